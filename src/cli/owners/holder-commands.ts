// `tollgate holders`, and the commands of `tollgate keys` that change a holder. auth/holder-change.ts applies a change to all keys of
// the holder and notifies the fleet.
import { changeHolder } from '../../auth/holder-change.ts';
import { type DynamicConfig, TIERS } from '../../config/schema/config-schema.ts';
import type { Terms } from '../../config/terms.ts';
import { holderFields } from '../../console/record-fields.ts';
import { BILLING_STATUSES, type HolderChange, isPrefix } from '../../store/key-record.ts';
import type { HolderSummary } from '../../store/organisation-record.ts';
import type { Store } from '../../store/store.ts';
import { type OptionKind, oneOf, readArguments, UsageError } from '../arguments.ts';
import { broadcastText } from '../fleet-action.ts';
import { columns, readPrefix, runSubcommand, writeList } from '../support-command.ts';
import { fieldLines, openFleet, publicFields, withStore, writeChange } from '../support-desk.ts';
import { type CommandIo, write } from '../terminal.ts';
import { ownText, termsFields, termsTexts, tierFields } from '../terms-fields.ts';
import { LIMITS_HELP, MODEL_LIMIT_OPTIONS, modelLimitOptions } from './limit-options.ts';
import {
  actorOf,
  holderId,
  labelChangeOptions,
  labelOptions,
  labelText,
  readName,
  TERMS_OPTIONS,
  teamId,
  termsOptions,
} from './owner-options.ts';

const HOLDERS_USAGE = `Usage: tollgate holders COMMAND [--config FILE]

  list [--name TEXT] [--label NAME=VALUE]... [--team NAME] [--tier TIER] [--standing STATE] [--json]
                                      --name is the beginning of the name; a VALUE may end with *
  show HOLDER [--json]                a holder and its keys
  set HOLDER [--name TEXT | --no-name] [--team NAME | --no-team] [--label NAME=VALUE]... [--remove-label NAME]...
                                      [--models LIST] [--endpoints LIST] [--limit LIMIT]... [--budget BUDGET]... [--soft SHARES]
                                      [--model-limit MODEL:LIMIT]... [--model-budget MODEL:BUDGET]... [--force] [--reason TEXT] [--json]
  tier HOLDER --tier TIER [--reason TEXT] [--json]
  suspend HOLDER [--reason TEXT] [--json]
                                      all keys of the holder get a 403 until resume
  resume HOLDER [--reason TEXT] [--json]

LIST is names with commas, or all: what its keys may use of what the tier may.
${LIMITS_HELP}Each replaces what the tier says, tier (as in NAME=tier, tier/month) goes back to it, and --force allows more than it.
HOLDER is the prefix of one of its keys, or its id. TIER is ${TIERS.join(', ')}; STATE is ${BILLING_STATUSES.join(', ')}.
set, tier, suspend and resume take --actor NAME for the history; the default is the user of the operating system.
--config names the configuration file; the default is ./config.yaml.
`;

const TEXT = { name: 'holders', usage: HOLDERS_USAGE };
const OPTIONS = {
  config: 'text',
  actor: 'text',
  reason: 'text',
  json: 'flag',
} as const satisfies Record<string, OptionKind>;
const APPLY = { many: 'apply it', one: 'applies it' };
const WHAT = { tier: 'tier changes', suspension: 'suspension' } as const;

/** @returns the exit code: 0 done, 1 not found, 2 wrong usage, 3 done but not confirmed by all replicas */
export function runHolders(argv: readonly string[], io: CommandIo): Promise<number> {
  return runSubcommand(TEXT, { list, show, set, tier: changeTier, suspend, resume }, argv, io);
}

/** `tier HOLDER --tier TIER`. @returns the exit code */
export async function changeTier(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { ...OPTIONS, tier: 'text' }, ['HOLDER']);
  const tier = given.text('tier');
  if (tier === undefined) throw new UsageError('--tier is missing');
  return change(given, { tier: oneOf(tier, TIERS, 'tier') }, `has the tier ${tier}`, io);
}

/** `suspend HOLDER`. @returns the exit code */
export async function suspend(argv: readonly string[], io: CommandIo): Promise<number> {
  return change(readArguments(argv, OPTIONS, ['HOLDER']), { standing: 'suspended' }, 'is suspended', io);
}

/** `resume HOLDER`. @returns the exit code */
export async function resume(argv: readonly string[], io: CommandIo): Promise<number> {
  return change(readArguments(argv, OPTIONS, ['HOLDER']), { standing: 'good' }, 'is in good standing', io);
}

async function list(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, {
    config: 'text',
    name: 'text',
    label: 'list',
    team: 'text',
    tier: 'text',
    standing: 'text',
    json: 'flag',
  });
  const [name, team, tier, standing] = [
    given.text('name'),
    given.text('team'),
    given.text('tier'),
    given.text('standing'),
  ];
  const conditions = {
    ...(name !== undefined && { name }),
    ...(tier !== undefined && { tier: oneOf(tier, TIERS, 'tier') }),
    ...(standing !== undefined && { standing: oneOf(standing, BILLING_STATUSES, 'state') }),
    labels: labelOptions(given),
  };
  return withStore(given, io, 'must exist', async (store) => {
    const filter = { ...conditions, ...(team !== undefined && { teamId: await teamId(store, team) }) };
    const isJson = given.flag('json');
    const page = (limit: number, last?: HolderSummary) =>
      store.organisation.searchHolders(filter, limit, last?.id);
    if (!isJson) await write(io.stdout, `${HEAD}\n`);
    await writeList(io, isJson, page, holderFields, holderLine);
    return 0;
  });
}

async function show(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', json: 'flag' }, ['HOLDER']);
  const text = await readHolder(given.operands[0] ?? '', io);
  return withStore(given, io, 'must exist', async (store, { dynamic }) => {
    const id = await holderId(store, text);
    const holder = id === undefined ? undefined : await store.findHolder(id);
    if (holder === undefined) throw noSuchHolder();
    const [labels, keys] = [
      await store.organisation.labelsOf(holder.id),
      await store.listKeys({ holderId: holder.id, limit: 1000 }),
    ];
    const team =
      holder.teamId === null ? undefined : await store.organisation.findTeam({ id: holder.teamId });
    const { id: holderIdShown, name, tier, standing, createdAt: created_at, terms } = holder;
    const fields = {
      holder: holderIdShown,
      name,
      team: team?.name ?? null,
      tier,
      standing,
      labels,
      ...termsFields(terms),
      ...tierFields(dynamic.tiers[tier]),
      created_at,
    };
    if (given.flag('json')) {
      await write(io.stdout, `${JSON.stringify({ ...fields, keys: keys.map(publicFields) }, null, 2)}\n`);
      return 0;
    }
    const { tier_limits: _limits, tier_budget: _budget, ...own } = fields;
    const texts = termsTexts(terms, dynamic.tiers[tier], dynamic.currency);
    const lines = fieldLines({ ...own, labels: labelText(labels) || null, ...texts }, 12);
    const keyLines = keys.map((key) =>
      `  ${key.prefix}  ${key.state.padEnd(11)}  last used ${key.lastUsed ?? 'never'}  ${key.name ?? ''}`.trimEnd(),
    );
    await write(io.stdout, `${[...lines, 'keys', ...keyLines].join('\n')}\n`);
    return 0;
  });
}

async function set(argv: readonly string[], io: CommandIo): Promise<number> {
  const kinds = {
    ...OPTIONS,
    name: 'text',
    'no-name': 'flag',
    team: 'text',
    'no-team': 'flag',
    label: 'list',
    'remove-label': 'list',
    ...TERMS_OPTIONS,
    ...MODEL_LIMIT_OPTIONS,
  } as const;
  const given = readArguments(argv, kinds, ['HOLDER']);
  const [name, team] = [readName(given.text('name')), given.text('team')];
  if (name !== undefined && given.flag('no-name')) throw new UsageError('give either --name or --no-name');
  if (team !== undefined && given.flag('no-team')) throw new UsageError('give either --team or --no-team');
  const wanted: HolderChange = {
    ...(name !== undefined && { name }),
    ...(given.flag('no-name') && { name: null }),
    ...(given.flag('no-team') && { teamId: null }),
    labels: labelChangeOptions(given),
  };
  const more = async (store: Store, id: string, config: DynamicConfig): Promise<HolderChange> => {
    const holder = await store.findHolder(id);
    const owner = holder && ({ kind: 'holder', config, tier: holder.tier } as const);
    const isForced = given.flag('force');
    const termsOf = (before: Terms) => {
      const own = owner && termsOptions(given, before, owner);
      return (owner && modelLimitOptions(given, own ?? before, owner, isForced)) ?? own;
    };
    const isLimited = holder !== undefined && termsOf(holder.terms) !== undefined;
    const terms = (before: Terms) => termsOf(before) ?? before;
    const joined = team === undefined ? undefined : await teamId(store, team);
    return { ...(joined !== undefined && { teamId: joined }), ...(isLimited && { terms }) };
  };
  return change(given, wanted, 'is changed', io, more);
}

type Given = ReturnType<typeof readArguments<keyof typeof OPTIONS>>;

/** @param more what else changes, which depends on the store */
async function change(
  given: Given,
  wanted: HolderChange,
  is: string,
  io: CommandIo,
  more?: (store: Store, id: string, config: DynamicConfig) => Promise<HolderChange>,
): Promise<number> {
  const text = await readHolder(given.operands[0] ?? '', io);
  return withStore(given, io, 'must exist', async (store, config) => {
    const id = await holderId(store, text);
    if (id === undefined) throw noSuchHolder();
    const full = { ...wanted, ...(await more?.(store, id, config.dynamic)) };
    await using fleet = await openFleet(config);
    // Needs no secret, like a revocation: the replicas re-read the store.
    const needs = wanted.standing === undefined ? 'tier' : 'suspension';
    const announcer = fleet?.confirmingAnnouncer(needs);
    const by = { reason: given.text('reason'), actor: actorOf(given, io) };
    const outcome = await changeHolder({ store, announcer }, id, full, by.reason, by.actor);
    if (outcome.kind === 'unknown') throw noSuchHolder();
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
        fields: { outcome: kind, holder: id, keys: records.map(publicFields) },
        text: `The holder ${isPrefix(text) ? `of ${text}` : text} ${is}${kind === 'same' ? ' as before' : ''}. ${whose}`,
      },
    );
  });
}

/** A prefix, or the id of a holder. @throws UsageError */
async function readHolder(text: string, io: CommandIo): Promise<string> {
  return /^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(text) ? text.toLowerCase() : readPrefix(text, io);
}

function noSuchHolder(): Error {
  return new Error('no key with this prefix, and no holder with this id');
}

const WIDTHS = [36, 4, 9, 5, 10, 20];
const HEAD = columns(WIDTHS, ['HOLDER', 'TIER', 'STANDING', 'KEYS', 'LAST USED', 'TEAM', 'NAME']);

function holderLine(holder: HolderSummary): string {
  const { id, tier, standing, keys, lastUsed, team, name, labels, terms } = holder;
  const text = `${name ?? '-'}${labelText(labels) && `  (${labelText(labels)})`}${ownText(terms)}`;
  return columns(WIDTHS, [id, tier, standing, String(keys), lastUsed ?? '-', team ?? '-', text]);
}
