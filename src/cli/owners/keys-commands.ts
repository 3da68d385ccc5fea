// `tollgate keys`: issues, lists and ends keys. It works on the store directly, with or without a running gateway;
// auth/key-issuer.ts has the rules.
import { announceChanged } from '../../auth/holder-change.ts';
import { revokeKey } from '../../auth/key-revocation.ts';
import { TIERS } from '../../config/schema/config-schema.ts';
import type { Terms } from '../../config/terms.ts';
import { SHOWN_STATES, stateFilter, wholeKey } from '../../console/owner-records.ts';
import { listedFields, publicFields } from '../../console/record-fields.ts';
import type { KeySummary, ListedKey } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';
import { broadcastText } from '../fleet-action.ts';
import { orderLines } from '../orders-commands.ts';
import { readTime, UsageError } from '../program/arguments.ts';
import { choice, command, flag, group, SHOW_OPTIONS, text } from '../program/command.ts';
import { filledPages, print, writeList } from '../program/table.ts';
import { write } from '../program/terminal.ts';
import { noSuchKey, readPrefix } from '../support-command.ts';
import { fieldLines, openFleet, withStore, writeChange } from '../support-desk.ts';
import { ownText, termsTexts } from '../terms-fields.ts';
import { holderChanges } from './holder-commands.ts';
import { ISSUE, KEY_OPTIONS, LIMITS_OF_KEY, PREFIX, ROTATE } from './new-key-commands.ts';
import {
  actorOf,
  authorOf,
  authorText,
  CHANGE_OPTIONS,
  holderFilter,
  LABEL_FILTER,
  labelOptions,
  labelText,
  readExpiry,
  readName,
  requireLabels,
  teamNamed,
  termsOptions,
} from './owner-options.ts';

const REJECT = { many: 'reject it', one: 'rejects the key', what: 'revocation' };
const APPLY = { many: 'apply it', one: 'applies it', what: 'changes of keys' };

const listKeys = command('list', 'list keys', {
  options: {
    tier: choice(TIERS, 'TIER', 'only of holders of this tier'),
    state: choice(SHOWN_STATES, 'STATE', 'only in this state'),
    holder: text('HOLDER', 'only of holders whose names begin so, or of the holder with this id'),
    team: text('NAME', 'only of this team'),
    label: LABEL_FILTER,
    unusedSince: text('TIME', 'only unused since, such as 30d, or never used'),
    expiresBefore: text('TIME', 'only those that end before, such as 30d'),
    ...SHOW_OPTIONS,
  },
  examples: ['keys list --tier Pro --state active', 'keys list --unused-since 30d --json'],
  run: (given, io) => {
    const { tier, holder, team, unusedSince: unused, expiresBefore: expires } = given;
    const now = Date.now();
    const labels = labelOptions(given);
    const expiresBefore = expires && readTime(expires, '--expires-before', now, 1);
    const conditions = {
      tier,
      labels,
      ...holderFilter(holder),
      unusedSince: unused && readTime(unused, '--unused-since', now, -1).slice(0, 10),
      ...stateFilter(given.state, new Date(now).toISOString(), expiresBefore),
    };
    return withStore(given, io, 'must exist', async (store) => {
      await requireLabels(store, Object.keys(labels));
      const filter = { ...conditions, teamId: team && (await teamNamed(store, team)).id };
      const page = filledPages((limit, after) => store.listKeys({ ...filter, limit, after }));
      return writeList(io, given.json, page, listedFields, COLUMNS, shownOf);
    });
  },
});

const show = showCommand('show', 'show a key and its history', true);
const events = showCommand('events', 'show the history of a key', false);

function showCommand(name: string, about: string, isWhole: boolean) {
  return command(name, about, {
    operand: PREFIX,
    options: SHOW_OPTIONS,
    examples: [`keys ${name} 0123abcd`, `keys ${name} 0123abcd --json`],
    run: async (given, io, operand) => {
      const prefix = await readPrefix(operand, io);
      return withStore(given, io, 'must exist', async (store, { dynamic }) => {
        const {
          items: [key],
        } = await store.listKeys({ prefix, limit: 1 });
        if (key === undefined) throw noSuchKey();
        const record = await wholeKey(store, dynamic, key);
        const { tier_limits: _limits, tier_budget: _budget, events, orders, ...own } = record;
        const history = events.map(
          (event) => `${event.at}  ${event.kind}, version ${event.version}${authorText(event)}`,
        );
        if (!isWhole) return print(io, given.json, events, history);
        const texts = termsTexts(key.terms, undefined, dynamic.currency);
        const lines = fieldLines({ ...own, labels: labelText(own.labels) || null, ...texts }, 12);
        const indented = history.map((line) => `  ${line}`);
        return print(io, given.json, record, [...lines, 'events', ...indented, ...orderLines(orders)]);
      });
    },
  });
}

const set = command('set', 'change a key', {
  detail: LIMITS_OF_KEY,
  operand: PREFIX,
  options: {
    ...KEY_OPTIONS,
    noName: flag('remove the name'),
    noExpiry: flag('remove the end'),
    ...CHANGE_OPTIONS,
  },
  examples: ['keys set 0123abcd --name ci --expires 90d', 'keys set 0123abcd --budget none/day --models all'],
  run: async (given, io, operand) => {
    const [name, { expires }] = [readName(given.name), given];
    const change = {
      ...(name !== undefined && { name }),
      ...(given.noName && { name: null }),
      ...(expires !== undefined && { expiresAt: readExpiry(expires, Date.now()) }),
      ...(given.noExpiry && { expiresAt: null }),
    };
    const prefix = await readPrefix(operand, io);
    const by = authorOf(given, io);
    return withStore(given, io, 'must exist', async (store, config) => {
      await using fleet = await openFleet(config, io);
      const before = await store.findKey(prefix);
      if (before === undefined) throw noSuchKey();
      const { tier, holderTerms } = before;
      const owner = { kind: 'key', config: config.dynamic, tier, holderTerms } as const;
      const isLimited = termsOptions(given, before.terms, owner) !== undefined;
      if (Object.keys(change).length === 0 && !isLimited)
        throw new UsageError('give what to set, such as --name or --expires');
      const terms = (present: Terms) => termsOptions(given, present, owner) ?? present;
      const outcome = await store.changeKey(prefix, { ...change, ...(isLimited && { terms }) }, by);
      if (outcome.kind === 'unknown') throw noSuchKey();
      if (outcome.kind === 'ended') throw new Error(`the key has ended: it is ${outcome.record.state}`);
      await announceChanged({ announcer: fleet?.confirmingAnnouncer('tier') }, [outcome.record], by.at);
      const result = fleet?.result;
      return await writeChange(given, io, result, APPLY, {
        fields: { outcome: outcome.kind, ...publicFields(outcome.record) },
        text: `${prefix} is ${outcome.kind === 'same' ? 'as before' : 'changed'}. ${broadcastText(result, APPLY.many)}`,
      });
    });
  },
});

const revoke = command('revoke', 'revoke a key', {
  detail: 'Requests in flight finish; with --reason compromised they end at once.',
  operand: PREFIX,
  options: CHANGE_OPTIONS,
  examples: ['keys revoke 0123abcd', 'keys revoke 0123abcd --reason compromised'],
  run: async (given, io, operand) => {
    const prefix = await readPrefix(operand, io);
    return withStore(given, io, 'must exist', async (store, config) => {
      await using fleet = await openFleet(config, io);
      // Needs no secret: revocation must work even when the secret is lost.
      const announcer = fleet?.confirmingAnnouncer();
      const outcome = await revokeKey({ store, announcer }, prefix, given.reason, actorOf(given, io));
      if (outcome.kind === 'unknown') throw noSuchKey();
      const { record } = outcome;
      const ended =
        outcome.kind === 'revoked'
          ? `${prefix} is revoked.`
          : `${prefix} was ${record.state} before, at ${record.endedAt}.`;
      const result = fleet?.result;
      const code = await writeChange(given, io, result, REJECT, {
        fields: { outcome: outcome.kind, ...publicFields(record) },
        text: `${ended} ${broadcastText(result, REJECT.many)}`,
      });
      const latest = await latestOf(store, record);
      const hint = `It was rotated, and its successor ${latest.prefix} is active. To end the access, revoke that one.\n`;
      if (latest.prefix !== prefix && latest.state === 'active') await write(io.stderr, hint);
      // A rotated key is invalid already but cannot become revoked, so the command fails.
      return record.state === 'revoked' ? code : 1;
    });
  },
});

/** The latest successor of `key` by rotation. */
async function latestOf(store: Store, key: KeySummary): Promise<KeySummary> {
  let latest = key;
  while (latest.replacedBy !== null) {
    const next = await store.findKey(latest.replacedBy);
    if (next === undefined) break;
    latest = next;
  }
  return latest;
}

const COLUMNS = [
  'prefix',
  'state',
  'tier',
  'created_at',
  'ends_at',
  'last_used',
  'holder',
  'holder_name',
  'name',
  'limits',
];

/** What the list shows otherwise than the JSON. */
const shownOf = (key: ListedKey) => ({
  state: stateText(key),
  ends_at: key.endedAt ?? key.expiresAt,
  limits: ownText(key.terms),
});

/** The effective state: an active key may be past its expiry, or its holder suspended. */
function stateText({ state, standing, expiresAt }: KeySummary): string {
  if (state !== 'active') return state;
  if (expiresAt !== null && Date.parse(expiresAt) <= Date.now()) return 'expired';
  return standing === 'suspended' ? standing : state;
}

export const KEYS = group('keys', 'issue and change keys', [
  ISSUE,
  listKeys,
  show,
  events,
  set,
  ROTATE,
  revoke,
  ...holderChanges('keys', { name: 'PREFIX', about: 'a key of the holder' }, '0123abcd'),
]);
