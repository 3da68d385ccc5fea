// `tollgate holders`, and the commands of `tollgate keys` that change a holder. auth/holder-change.ts applies a change to all keys of
// the holder and notifies the fleet.
import { changeHolder } from '../../auth/holder-change.ts';
import { type DynamicConfig, TIERS } from '../../config/schema/config-schema.ts';
import type { Terms } from '../../config/terms.ts';
import { wholeHolder } from '../../console/owner-records.ts';
import { holderFields, publicFields } from '../../console/record-fields.ts';
import { BILLING_STATUSES, type HolderChange, isPrefix } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';
import { broadcastText } from '../fleet-action.ts';
import { orderLines } from '../orders-commands.ts';
import {
  choice,
  command,
  type Definition,
  flag,
  type Given,
  group,
  type Operand,
  required,
  SHOW_OPTIONS,
  text,
} from '../program/command.ts';
import { filledPages, print, writeList } from '../program/table.ts';
import type { CommandIo } from '../program/terminal.ts';
import { fieldLines, openFleet, withStore, writeChange } from '../support-desk.ts';
import { termsTexts } from '../terms-fields.ts';
import { LIMITS_HELP, MODEL_LIMIT_OPTIONS, modelLimitOptions } from './limit-options.ts';
import {
  actorOf,
  authorText,
  CHANGE_OPTIONS,
  holderId,
  holderOperand,
  LABEL,
  LABEL_FILTER,
  labelChangeOptions,
  labelOptions,
  labelText,
  noSuchHolder,
  REMOVED_LABEL,
  readName,
  requireLabels,
  shownOwner,
  teamNamed,
  termsOptions,
  termsOptionsOf,
  warnUnlisted,
  writeMissingLabels,
} from './owner-options.ts';

const HOLDER: Operand = { name: 'HOLDER', about: 'the id of the holder, or the prefix of one of its keys' };
const EXAMPLE = '1f6f4c52-3f0c-4c5e-8f3c-0d6a2a5c7e11';
const APPLY = { many: 'apply it', one: 'applies it' };
const WHAT = { tier: 'tier changes', suspension: 'suspension' } as const;

/**
 * `tier`, `suspend` and `resume` of a group of commands.
 * @param operand what names the holder
 * @param example of it
 */
export function holderChanges(of: string, operand: Operand, example: string): readonly Definition[] {
  const definition = (name: string, about: string, wanted: HolderChange, is: string) =>
    command(name, about, {
      operand,
      options: CHANGE_OPTIONS,
      examples: [`${of} ${name} ${example} --reason "chargeback 4711"`],
      run: (given, io, holder) => change(given, holder, wanted, is, io),
    });
  const tier = command('tier', 'change the tier of a holder, with all its keys', {
    operand,
    options: { tier: required(choice(TIERS, 'TIER', 'the new tier')), ...CHANGE_OPTIONS },
    examples: [`${of} tier ${example} --tier Pro --reason "paid by invoice"`],
    run: (given, io, holder) => change(given, holder, { tier: given.tier }, `has the tier ${given.tier}`, io),
  });
  const suspended = 'suspend a holder: all its keys get a 403 until resume';
  return [
    tier,
    definition('suspend', suspended, { standing: 'suspended' }, 'is suspended'),
    definition('resume', 'resume a suspended holder', { standing: 'good' }, 'is in good standing'),
  ];
}

const list = command('list', 'list holders', {
  options: {
    name: text('TEXT', 'only those whose names begin so'),
    label: LABEL_FILTER,
    team: text('NAME', 'only of this team'),
    tier: choice(TIERS, 'TIER', 'only of this tier'),
    standing: choice(BILLING_STATUSES, 'STATE', 'only in this state'),
    ...SHOW_OPTIONS,
  },
  examples: ['holders list --team search', 'holders list --label env=prod --json'],
  run: (given, io) => {
    const { name, team, tier, standing } = given;
    const labels = labelOptions(given);
    return withStore(given, io, 'must exist', async (store) => {
      await requireLabels(store, Object.keys(labels));
      const teamId = team && (await teamNamed(store, team)).id;
      const filter = { name, tier, standing, labels, teamId };
      const page = filledPages((limit, after) => store.organisation.searchHolders(filter, limit, after));
      return writeList(io, given.json, page, holderFields, COLUMNS, shownOwner);
    });
  },
});

const show = command('show', 'show a holder, its keys and their history', {
  operand: HOLDER,
  options: SHOW_OPTIONS,
  examples: [`holders show ${EXAMPLE}`, 'holders show 0123abcd --json'],
  run: async (given, io, operand) => {
    const named = await holderOperand(operand, io);
    return withStore(given, io, 'must exist', async (store, { dynamic }) => {
      const id = await holderId(store, named);
      const holder = id === undefined ? undefined : await store.findHolder(id);
      if (holder === undefined) throw noSuchHolder();
      const record = await wholeHolder(store, dynamic, holder);
      const { tier_limits: _limits, tier_budget: _budget, keys, events, orders, ...own } = record;
      const texts = termsTexts(holder.terms, dynamic.tiers[holder.tier], dynamic.currency);
      const lines = fieldLines({ ...own, labels: labelText(own.labels) || null, ...texts }, 12);
      const keyLines = keys.map(({ prefix, state, last_used, name }) =>
        `  ${prefix}  ${state.padEnd(11)}  last used ${last_used ?? 'never'}  ${name ?? ''}`.trimEnd(),
      );
      const history = events.map(
        (event) => `  ${event.at}  ${event.kind} ${event.keys.join(', ')}${authorText(event)}`,
      );
      return print(io, given.json, record, [
        ...lines,
        'keys',
        ...keyLines,
        'events',
        ...history,
        ...orderLines(orders),
      ]);
    });
  },
});

const set = command('set', 'change a holder', {
  detail: `Each limit replaces what the tier says; tier, as in NAME=tier or tier/month, goes back to it. ${LIMITS_HELP}`,
  operand: HOLDER,
  options: {
    name: text('TEXT', 'its name', ['noName']),
    noName: flag('remove the name'),
    team: text('NAME', 'its team', ['noTeam']),
    noTeam: flag('leave the team'),
    label: LABEL,
    removeLabel: REMOVED_LABEL,
    ...termsOptionsOf('its tier'),
    ...MODEL_LIMIT_OPTIONS,
    ...CHANGE_OPTIONS,
  },
  examples: [
    `holders set ${EXAMPLE} --name "Search team" --team search --label env=prod`,
    'holders set 0123abcd --limit requests_per_minute=500 --budget 500/month --force',
    'holders set 0123abcd --model-limit gpt-4o:tokens_per_day=100000',
  ],
  run: (given, io, operand) => {
    const name = readName(given.name);
    const wanted: HolderChange = {
      ...(name !== undefined && { name }),
      ...(given.noName && { name: null }),
      ...(given.noTeam && { teamId: null }),
      labels: labelChangeOptions(given),
    };
    const more = async (store: Store, id: string, config: DynamicConfig): Promise<HolderChange> => {
      await writeMissingLabels(store, id, given, io);
      const holder = await store.findHolder(id);
      const owner = holder && ({ kind: 'holder', config, tier: holder.tier } as const);
      const termsOf = (before: Terms) => {
        const own = owner && termsOptions(given, before, owner);
        return (owner && modelLimitOptions(given, own ?? before, owner, given.force)) ?? own;
      };
      const isLimited = holder !== undefined && termsOf(holder.terms) !== undefined;
      const terms = (before: Terms) => termsOf(before) ?? before;
      const joined = given.team && (await teamNamed(store, given.team)).id;
      return { ...(joined && { teamId: joined }), ...(isLimited && { terms }) };
    };
    return change(given, operand, wanted, 'is changed', io, more);
  },
});

/** @param more what else changes, which depends on the store */
async function change(
  given: Given<typeof CHANGE_OPTIONS>,
  operand: string,
  wanted: HolderChange,
  is: string,
  io: CommandIo,
  more?: (store: Store, id: string, config: DynamicConfig) => Promise<HolderChange>,
): Promise<number> {
  const named = await holderOperand(operand, io);
  return withStore(given, io, 'must exist', async (store, config) => {
    const id = await holderId(store, named);
    if (id === undefined) throw noSuchHolder();
    await warnUnlisted(wanted.tier, config.dynamic, io);
    const full = { ...wanted, ...(await more?.(store, id, config.dynamic)) };
    await using fleet = await openFleet(config, io);
    // Needs no secret, like a revocation: the replicas re-read the store.
    const needs = wanted.standing === undefined ? 'tier' : 'suspension';
    const announcer = fleet?.confirmingAnnouncer(needs);
    const outcome = await changeHolder({ store, announcer }, id, full, given.reason, actorOf(given, io));
    if (outcome.kind === 'unknown') throw noSuchHolder();
    const { kind, records } = outcome;
    const result = fleet?.result;
    const names = records.map((record) => record.prefix).join(', ');
    const active = `Active keys: ${names}. ${broadcastText(result, APPLY.many)}`;
    const whose = names === '' ? 'It has no active keys.' : active;
    const done = kind === 'same' ? `${is === 'is changed' ? 'is' : is} as before` : is;
    return await writeChange(
      given,
      io,
      result,
      { ...APPLY, what: WHAT[needs] },
      {
        fields: { outcome: kind, holder: id, keys: records.map(publicFields) },
        text: `The holder ${isPrefix(named) ? `of ${named}` : named} ${done}. ${whose}`,
      },
    );
  });
}

const COLUMNS = ['holder', 'tier', 'standing', 'keys', 'last_used', 'team', 'name', 'labels', 'limits'];

export const HOLDERS = group('holders', 'find and change holders of keys', [
  list,
  show,
  set,
  ...holderChanges('holders', HOLDER, EXAMPLE),
]);
