// `tollgate keys tier`, `suspend` and `resume`: change a holder, named by one of its keys. auth/holder-change.ts applies the change
// to all of its keys and notifies the fleet.
import { changeHolder } from '../auth/holder-change.ts';
import { TIERS } from '../config/schema/config-schema.ts';
import type { HolderChange } from '../store/key-record.ts';
import { type OptionKind, oneOf, readArguments, UsageError } from './arguments.ts';
import { broadcastText } from './fleet-action.ts';
import { type CommandIo, noSuchKey, readPrefix } from './support-command.ts';
import { openFleet, publicFields, withStore, writeChange } from './support-desk.ts';

const OPTIONS = { config: 'text', reason: 'text', json: 'flag' } as const satisfies Record<
  string,
  OptionKind
>;
const APPLY = { many: 'apply it', one: 'applies it' };
const WHAT = { tier: 'tier changes', suspension: 'suspension' } as const;

/** `tier PREFIX --tier TIER`. @returns the exit code */
export async function changeTier(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { ...OPTIONS, tier: 'text' }, ['PREFIX']);
  const tier = given.text('tier');
  if (tier === undefined) throw new UsageError('--tier is missing');
  return change(given, { tier: oneOf(tier, TIERS, 'tier') }, `has the tier ${tier}`, io);
}

/** `suspend PREFIX`. @returns the exit code */
export async function suspend(argv: readonly string[], io: CommandIo): Promise<number> {
  return change(readArguments(argv, OPTIONS, ['PREFIX']), { standing: 'suspended' }, 'is suspended', io);
}

/** `resume PREFIX`. @returns the exit code */
export async function resume(argv: readonly string[], io: CommandIo): Promise<number> {
  return change(readArguments(argv, OPTIONS, ['PREFIX']), { standing: 'good' }, 'is in good standing', io);
}

type Given = ReturnType<typeof readArguments<keyof typeof OPTIONS>>;

async function change(given: Given, wanted: HolderChange, is: string, io: CommandIo): Promise<number> {
  const prefix = await readPrefix(given.operands[0] ?? '', io);
  return withStore(given, io, 'must exist', async (store, config) => {
    const key = await store.findKey(prefix);
    if (key === undefined) throw noSuchKey();
    await using fleet = await openFleet(config);
    // Needs no secret, like a revocation: the replicas re-read the store.
    const needs = wanted.standing === undefined ? 'tier' : 'suspension';
    const announcer = fleet?.confirmingAnnouncer(needs);
    const outcome = await changeHolder({ store, announcer }, key.holderId, wanted, given.text('reason'));
    if (outcome.kind === 'unknown') throw new Error('a key has a holder');
    const { kind, records } = outcome;
    const result = fleet?.result;
    const names = records.map((record) => record.prefix).join(', ');
    const active = `Active keys: ${names}. ${broadcastText(result, APPLY.many)}`;
    const whose = names === '' ? 'It has no active keys.' : active;
    return await writeChange(
      given,
      io,
      result,
      { ...APPLY, what: WHAT[needs] },
      {
        fields: { outcome: kind, holder: key.holderId, keys: records.map(publicFields) },
        text: `The holder of ${prefix} ${is}${kind === 'same' ? ' as before' : ''}. ${whose}`,
      },
    );
  });
}
