// `tollgate keys`: issues, lists and ends keys. It works on the store directly, with or without a running gateway;
// auth/key-issuer.ts has the rules.
import { Hasher } from '../auth/hashing/hasher.ts';
import { openSecret } from '../auth/hashing/hashing-secret.ts';
import { type IssuedKey, KeyIssuer, revokeKey } from '../auth/key-issuer.ts';
import { Claims } from '../billing/key-claims.ts';
import { TIERS } from '../config/schema/config-schema.ts';
import { KEY_STATES, type KeySummary } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import { createMetrics } from '../telemetry/metrics/all-metrics.ts';
import { oneOf, readArguments, UsageError } from './arguments.ts';
import { broadcastText } from './fleet-action.ts';
import { changeTier, resume, suspend } from './holder-commands.ts';
import { findOrder, orderFields, orderLine } from './orders-commands.ts';
import { type CommandIo, noSuchKey, readPrefix, runSubcommand, write, writeList } from './support-command.ts';
import { fieldLines, openFleet, publicFields, withStore, writeChange } from './support-desk.ts';

const KEYS_USAGE = `Usage: tollgate keys COMMAND [--config FILE]

  issue --tier TIER [--label TEXT]    a key for a new holder; only the key goes to stdout, and only this once
  issue --for PREFIX                  another key for the holder of PREFIX, with the same limits and usage
  issue --order ORDER                 the key of a paid order, for a buyer who cannot claim it: see tollgate orders
  list [--tier TIER] [--state STATE] [--json]
  show PREFIX [--json]                a key and its history
  revoke PREFIX [--reason TEXT] [--json]
                                      requests in flight finish; with --reason compromised they end at once
  tier PREFIX --tier TIER [--reason TEXT] [--json]
                                      changes the tier of the holder of PREFIX, for all its keys
  suspend PREFIX [--reason TEXT] [--json]
                                      all keys of the holder get a 403 until resume
  resume PREFIX [--reason TEXT] [--json]

TIER is ${TIERS.join(', ')}; STATE is ${KEY_STATES.join(', ')}; PREFIX is the first 8 characters of a key.
--config names the configuration file; the default is ./config.yaml.
`;

const TEXT = { name: 'keys', usage: KEYS_USAGE };
const COMMANDS = { issue, list, show, revoke, tier: changeTier, suspend, resume };
const REJECT = { many: 'reject it', one: 'rejects the key', what: 'revocation' };

/**
 * @param argv arguments after `tollgate keys`
 * @returns the exit code: 0 done, 1 rejected or not found, 2 wrong usage, 3 done but not confirmed by all replicas
 */
export function runKeys(argv: readonly string[], io: CommandIo): Promise<number> {
  return runSubcommand(TEXT, COMMANDS, argv, io);
}

async function issue(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, {
    config: 'text',
    tier: 'text',
    label: 'text',
    for: 'text',
    order: 'text',
  });
  const tier = given.text('tier');
  const label = given.text('label');
  const holderOf = given.text('for');
  const paid = given.text('order');
  if ([tier, holderOf, paid].filter((each) => each !== undefined).length !== 1) {
    throw new UsageError(
      'give exactly one of --tier (a new holder), --for (an existing holder) and --order (a paid order)',
    );
  }
  if (tier === undefined && label !== undefined) {
    throw new UsageError('--label is only for a new holder, with --tier; an existing holder keeps its label');
  }
  const order =
    tier === undefined ? undefined : { tier: oneOf(tier, TIERS, 'tier'), ...(label && { name: label }) };
  const prefix = holderOf === undefined ? undefined : await readPrefix(holderOf, io);
  return withStore(given, io, 'create', async (store, config) => {
    const secret = await openSecret(config.static.secret, config.static.store, store);
    await using fleet = await openFleet(config);
    const announcer = fleet?.announcer(secret);
    const issuer = new KeyIssuer({ store, secret, hasher: new Hasher(createMetrics()), announcer });
    const issued =
      order !== undefined
        ? await issuer.issue(order)
        : prefix !== undefined
          ? await issuer.issueFor(prefix)
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
  const given = readArguments(argv, { config: 'text', tier: 'text', state: 'text', json: 'flag' });
  const tier = given.text('tier');
  const state = given.text('state');
  const filter = {
    ...(tier !== undefined && { tier: oneOf(tier, TIERS, 'tier') }),
    ...(state !== undefined && { state: oneOf(state, KEY_STATES, 'state') }),
  };
  return withStore(given, io, 'must exist', async (store) => {
    const isJson = given.flag('json');
    if (!isJson) await write(io.stdout, HEAD);
    const page = (limit: number, last?: KeySummary) =>
      store.listKeys({ ...filter, limit, ...(last && { after: last.prefix }) });
    await writeList(io, isJson, page, publicFields, keyLine);
    return 0;
  });
}

async function show(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', json: 'flag' }, ['PREFIX']);
  const prefix = await readPrefix(given.operands[0] ?? '', io);
  return withStore(given, io, 'must exist', async (store) => {
    const key = await store.findKey(prefix);
    if (key === undefined) throw noSuchKey();
    const events = await store.historyOf(prefix);
    const orders = await store.billing.ordersOf(key.holderId);
    if (given.flag('json')) {
      const shown = events.map(({ kind, version, at, reason }) => ({ kind, version, at, reason }));
      await write(
        io.stdout,
        `${JSON.stringify({ ...publicFields(key), events: shown, orders: orders.map(orderFields) }, null, 2)}\n`,
      );
      return 0;
    }
    const lines = fieldLines(publicFields(key), 12);
    const history = events.map(
      ({ kind, version, at, reason }) =>
        `  ${at}  ${kind}, version ${version}${reason === null ? '' : `: ${reason}`}`,
    );
    const ordered = orders.length === 0 ? [] : ['orders', ...orders.map((order) => `  ${orderLine(order)}`)];
    await write(io.stdout, `${[...lines, 'events', ...history, ...ordered].join('\n')}\n`);
    return 0;
  });
}

async function revoke(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', reason: 'text', json: 'flag' }, ['PREFIX']);
  const prefix = await readPrefix(given.operands[0] ?? '', io);
  return withStore(given, io, 'must exist', async (store, config) => {
    await using fleet = await openFleet(config);
    // Needs no secret: revocation must work even when the secret is lost.
    const announcer = fleet?.confirmingAnnouncer();
    const outcome = await revokeKey({ store, announcer }, prefix, given.text('reason'));
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

const HEAD = `${line('PREFIX', 'STATE', 'TIER', 'CREATED', 'ENDED', 'HOLDER', 'LABEL')}\n`;

function keyLine(key: KeySummary): string {
  const { prefix, tier, createdAt, endedAt, holderId, holderName } = key;
  return line(prefix, stateText(key), tier, createdAt, endedAt ?? '-', holderId, holderName ?? '-');
}

/** The effective state: an active key of a suspended holder is suspended. */
function stateText({ state, standing }: KeySummary): string {
  return state === 'active' && standing === 'suspended' ? standing : state;
}

function line(...cells: [string, string, string, string, string, string, string]): string {
  const widths = [8, 11, 4, 24, 24, 36, 0];
  const padded = cells.map((cell, index) => cell.padEnd(widths[index] ?? 0));
  return padded.join('  ').trimEnd();
}
