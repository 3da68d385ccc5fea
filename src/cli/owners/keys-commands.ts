// `tollgate keys`: issues, lists and ends keys. It works on the store directly, with or without a running gateway;
// auth/key-issuer.ts has the rules.
import { Hasher } from '../../auth/hashing/hasher.ts';
import { openSecret } from '../../auth/hashing/hashing-secret.ts';
import { announceChanged } from '../../auth/holder-change.ts';
import { type IssuedKey, KeyIssuer, revokeKey } from '../../auth/key-issuer.ts';
import { Claims } from '../../billing/key-claims.ts';
import { TIERS } from '../../config/schema/config-schema.ts';
import { NO_TERMS, type Terms } from '../../config/terms.ts';
import { KEY_STATES, type KeyChange, type KeySummary, type ListedKey } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';
import { createMetrics } from '../../telemetry/metrics/all-metrics.ts';
import { oneOf, readArguments, readTime, UsageError } from '../arguments.ts';
import { broadcastText } from '../fleet-action.ts';
import { findOrder, orderFields, orderLine } from '../orders-commands.ts';
import { columns, noSuchKey, readPrefix, runSubcommand, writeList } from '../support-command.ts';
import {
  fieldLines,
  listedFields,
  openFleet,
  publicFields,
  withStore,
  writeChange,
} from '../support-desk.ts';
import { type CommandIo, write } from '../terminal.ts';
import { ownText, termsTexts, tierFields } from '../terms-fields.ts';
import { changeTier, resume, suspend } from './holder-commands.ts';
import { LIMITS_HELP } from './limit-options.ts';
import {
  actorOf,
  authorOf,
  labelOptions,
  labelText,
  readExpiry,
  readName,
  TERMS_OPTIONS,
  teamId,
  termsOptions,
} from './owner-options.ts';

const KEYS_USAGE = `Usage: tollgate keys COMMAND [--config FILE]

  issue --tier TIER [--holder NAME] [--team NAME] [--label NAME=VALUE]... [KEY OPTIONS]
                                      a key for a new holder; only the key goes to stdout, and only this once
  issue --for PREFIX [KEY OPTIONS]    another key for the holder of PREFIX, with the same limits and usage
  issue --order ORDER                 the key of a paid order, for a buyer who cannot claim it: see tollgate orders
  list [FILTERS] [--json]
  show PREFIX [--json]                a key and its history
  events PREFIX [--json]              only its history
  set PREFIX [--name TEXT | --no-name] [--expires TIME | --no-expiry] [--models LIST] [--endpoints LIST]
                                      [LIMITS] [--reason TEXT] [--json]
  revoke PREFIX [--reason TEXT] [--json]
                                      requests in flight finish; with --reason compromised they end at once
  tier PREFIX --tier TIER, suspend PREFIX, resume PREFIX
                                      change the holder of PREFIX with all its keys: see tollgate holders

KEY OPTIONS are --name TEXT, --expires TIME, such as 90d or 2030-01-31, --models LIST and --endpoints LIST: names with
commas, or all; what the key may use of what the tier may; and LIMITS.
LIMITS are --limit LIMIT, --budget BUDGET, each any number of times, --soft SHARES and --force: those of the key alone, in addition
to those of its holder; --force allows more than the holder has, which has no effect.
${LIMITS_HELP}FILTERS are --tier, --state, --holder NAME (the beginning of the holder's name), --team NAME, --label NAME=VALUE,
--unused-since TIME (such as 30d, or never used) and --expires-before TIME.
TIER is ${TIERS.join(', ')}; STATE is ${KEY_STATES.join(', ')}; PREFIX is the first 8 characters of a key.
Commands that change something take --actor NAME for the history; the default is the user of the operating system.
--config names the configuration file; the default is ./config.yaml.
`;

const TEXT = { name: 'keys', usage: KEYS_USAGE };
const COMMANDS = { issue, list, show, events, set, revoke, tier: changeTier, suspend, resume };
const REJECT = { many: 'reject it', one: 'rejects the key', what: 'revocation' };
const APPLY = { many: 'apply it', one: 'applies it', what: 'changes of keys' };

/**
 * @param argv arguments after `tollgate keys`
 * @returns the exit code: 0 done, 1 rejected or not found, 2 wrong usage, 3 done but not confirmed by all replicas
 */
export function runKeys(argv: readonly string[], io: CommandIo): Promise<number> {
  return runSubcommand(TEXT, COMMANDS, argv, io);
}

const ISSUE = {
  config: 'text',
  actor: 'text',
  tier: 'text',
  holder: 'text',
  team: 'text',
  label: 'list',
  for: 'text',
  order: 'text',
  name: 'text',
  expires: 'text',
  ...TERMS_OPTIONS,
} as const;

async function issue(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, ISSUE);
  const [tier, holderOf, paid] = [given.text('tier'), given.text('for'), given.text('order')];
  if ([tier, holderOf, paid].filter((each) => each !== undefined).length !== 1) {
    throw new UsageError(
      'give exactly one of --tier (a new holder), --for (an existing holder) and --order (a paid order)',
    );
  }
  const isNew = tier !== undefined;
  for (const option of ['holder', 'team'] as const)
    if (!isNew && given.text(option) !== undefined)
      throw new UsageError(`--${option} is only for a new holder, with --tier; see tollgate holders set`);
  if (!isNew && given.list('label').length > 0)
    throw new UsageError('--label is only for a new holder, with --tier; see tollgate holders set');
  const labels = labelOptions(given);
  const holder = readName(given.text('holder'));
  const [name, expires] = [readName(given.text('name')), given.text('expires')];
  const own = {
    actor: actorOf(given, io),
    key: { ...(name && { name }), ...(expires && { expiresAt: readExpiry(expires, Date.now()) }) },
  };
  const ofNew = isNew && { tier: oneOf(tier, TIERS, 'tier'), labels, ...(holder && { name: holder }) };
  const prefix = holderOf === undefined ? undefined : await readPrefix(holderOf, io);
  return withStore(given, io, 'create', async (store, config) => {
    const secret = await openSecret(config.static.secret, config.static.store, store);
    await using fleet = await openFleet(config);
    const announcer = fleet?.announcer(secret);
    const issuer = new KeyIssuer({ store, secret, hasher: new Hasher(createMetrics()), announcer });
    const team = given.text('team');
    const first = prefix && (await store.findKey(prefix));
    const tierOfKey = ofNew !== false ? ofNew.tier : first?.tier;
    const owner = {
      kind: 'key',
      config: config.dynamic,
      holderTerms: first?.holderTerms ?? NO_TERMS,
    } as const;
    const terms = tierOfKey && termsOptions(given, NO_TERMS, { ...owner, tier: tierOfKey });
    const order = { ...own, key: { ...own.key, ...(terms && { terms }) } };
    const issued =
      ofNew !== false
        ? await issuer.issue({
            ...order,
            ...ofNew,
            ...(team !== undefined && { teamId: await teamId(store, team) }),
          })
        : prefix !== undefined
          ? await issuer.issueFor(prefix, order)
          : await issueForOrder(store, issuer, paid ?? '');
    if (issued === undefined) throw noSuchKey();
    try {
      await write(io.stdout, `${issued.key.reveal()}\n`);
    } catch (error) {
      await issuer.revoke(issued.prefix, 'could not be shown when it was issued');
      throw new Error(`the key could not be written out, and ${issued.prefix} was revoked`, { cause: error });
    }
    await write(
      io.stderr,
      `Issued ${issued.prefix} (${issued.tier}) for holder ${issued.holderId}. The key is shown only this once.\n`,
    );
    return 0;
  });
}

/** Claims the key of a paid order for a buyer who lost the browser's cookie. Support has verified the buyer. */
async function issueForOrder(store: Store, issuer: KeyIssuer, name: string): Promise<IssuedKey> {
  const { id } = await findOrder(store, name);
  return new Claims({ store: store.billing, issuer, now: Date.now }).claim(id, () => true);
}

async function list(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, {
    config: 'text',
    tier: 'text',
    state: 'text',
    holder: 'text',
    team: 'text',
    label: 'list',
    'unused-since': 'text',
    'expires-before': 'text',
    json: 'flag',
  });
  const [tier, state, name, team] = [
    given.text('tier'),
    given.text('state'),
    given.text('holder'),
    given.text('team'),
  ];
  const [unused, expires] = [given.text('unused-since'), given.text('expires-before')];
  const now = Date.now();
  const conditions = {
    ...(tier !== undefined && { tier: oneOf(tier, TIERS, 'tier') }),
    ...(state !== undefined && { state: oneOf(state, KEY_STATES, 'state') }),
    ...(name !== undefined && { name }),
    ...(unused !== undefined && { unusedSince: readTime(unused, '--unused-since', now, -1).slice(0, 10) }),
    ...(expires !== undefined && { expiresBefore: readTime(expires, '--expires-before', now, 1) }),
    labels: labelOptions(given),
  };
  return withStore(given, io, 'must exist', async (store) => {
    const filter = { ...conditions, ...(team !== undefined && { teamId: await teamId(store, team) }) };
    const isJson = given.flag('json');
    if (!isJson) await write(io.stdout, HEAD);
    const page = (limit: number, last?: ListedKey) =>
      store.listKeys({ ...filter, limit, ...(last && { after: last.prefix }) });
    await writeList(io, isJson, page, listedFields, keyLine);
    return 0;
  });
}

async function show(argv: readonly string[], io: CommandIo): Promise<number> {
  return showKey(readArguments(argv, { config: 'text', json: 'flag' }, ['PREFIX']), io, true);
}

async function events(argv: readonly string[], io: CommandIo): Promise<number> {
  return showKey(readArguments(argv, { config: 'text', json: 'flag' }, ['PREFIX']), io, false);
}

async function showKey(
  given: ReturnType<typeof readArguments<'config' | 'json'>>,
  io: CommandIo,
  isWhole: boolean,
): Promise<number> {
  const prefix = await readPrefix(given.operands[0] ?? '', io);
  return withStore(given, io, 'must exist', async (store, { dynamic }) => {
    const [key] = await store.listKeys({ prefix, limit: 1 });
    if (key === undefined) throw noSuchKey();
    const changes = await store.historyOf(prefix);
    const shown = changes.map(({ kind, version, ...by }) => {
      const { at, actor, reason } = by;
      return { kind, version, at, actor, reason };
    });
    if (!isWhole) {
      const text = given.flag('json') ? JSON.stringify(shown, null, 2) : changes.map(eventLine).join('\n');
      await write(io.stdout, `${text}\n`);
      return 0;
    }
    const orders = await store.billing.ordersOf(key.holderId);
    const fields = { ...listedFields(key), labels: await store.organisation.labelsOf(key.holderId) };
    if (given.flag('json')) {
      const all = {
        ...fields,
        ...tierFields(dynamic.tiers[key.tier]),
        events: shown,
        orders: orders.map(orderFields),
      };
      await write(io.stdout, `${JSON.stringify(all, null, 2)}\n`);
      return 0;
    }
    const texts = termsTexts(key.terms, undefined, dynamic.currency);
    const lines = fieldLines({ ...fields, labels: labelText(fields.labels) || null, ...texts }, 12);
    const ordered = orders.length === 0 ? [] : ['orders', ...orders.map((order) => `  ${orderLine(order)}`)];
    const history = changes.map((change) => `  ${eventLine(change)}`);
    await write(io.stdout, `${[...lines, 'events', ...history, ...ordered].join('\n')}\n`);
    return 0;
  });
}

function eventLine({ at, kind, version, actor, reason }: KeyChange): string {
  return `${at}  ${kind}, version ${version}${actor === null ? '' : ` by ${actor}`}${reason === null ? '' : `: ${reason}`}`;
}

async function set(argv: readonly string[], io: CommandIo): Promise<number> {
  const kinds = {
    config: 'text',
    actor: 'text',
    reason: 'text',
    name: 'text',
    'no-name': 'flag',
    expires: 'text',
    'no-expiry': 'flag',
    ...TERMS_OPTIONS,
    json: 'flag',
  } as const;
  const given = readArguments(argv, kinds, ['PREFIX']);
  const [name, expires] = [readName(given.text('name')), given.text('expires')];
  if (name !== undefined && given.flag('no-name')) throw new UsageError('give either --name or --no-name');
  if (expires !== undefined && given.flag('no-expiry'))
    throw new UsageError('give either --expires or --no-expiry');
  const change = {
    ...(name !== undefined && { name }),
    ...(given.flag('no-name') && { name: null }),
    ...(expires !== undefined && { expiresAt: readExpiry(expires, Date.now()) }),
    ...(given.flag('no-expiry') && { expiresAt: null }),
  };
  const prefix = await readPrefix(given.operands[0] ?? '', io);
  const by = authorOf(given, io);
  return withStore(given, io, 'must exist', async (store, config) => {
    await using fleet = await openFleet(config);
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
}

async function revoke(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', actor: 'text', reason: 'text', json: 'flag' }, [
    'PREFIX',
  ]);
  const prefix = await readPrefix(given.operands[0] ?? '', io);
  return withStore(given, io, 'must exist', async (store, config) => {
    await using fleet = await openFleet(config);
    // Needs no secret: revocation must work even when the secret is lost.
    const announcer = fleet?.confirmingAnnouncer();
    const outcome = await revokeKey({ store, announcer }, prefix, given.text('reason'), actorOf(given, io));
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
    if (latest.prefix !== prefix && latest.state === 'active') {
      await write(
        io.stderr,
        `It was rotated, and its successor ${latest.prefix} is active. To end the access, revoke that one.\n`,
      );
    }
    // A rotated key is invalid already but cannot become revoked, so the command fails.
    return record.state === 'revoked' ? code : 1;
  });
}

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

const HEAD = `${line('PREFIX', 'STATE', 'TIER', 'CREATED', 'ENDS', 'LAST USED', 'HOLDER', 'NAME')}\n`;

function keyLine(key: ListedKey): string {
  const { prefix, tier, createdAt, endedAt, expiresAt, lastUsed, holderId, holderName, name, terms } = key;
  const names = [holderName, name].filter((each) => each !== null).join(' / ');
  return line(
    prefix,
    stateText(key),
    tier,
    createdAt,
    endedAt ?? expiresAt ?? '-',
    lastUsed ?? '-',
    holderId,
    `${names || '-'}${ownText(terms)}`,
  );
}

/** The effective state: an active key may be past its expiry, or its holder suspended. */
function stateText({ state, standing, expiresAt }: KeySummary): string {
  if (state !== 'active') return state;
  if (expiresAt !== null && Date.parse(expiresAt) <= Date.now()) return 'expired';
  return standing === 'suspended' ? standing : state;
}

function line(...cells: readonly string[]): string {
  return columns([8, 11, 4, 24, 24, 10, 36], cells);
}
