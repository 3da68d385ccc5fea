// `tollgate keys issue` and `tollgate keys rotate`: the commands that show a new key. auth/key-issuer.ts has the rules.
import { Hasher } from '../../auth/hashing/hasher.ts';
import { openSecret } from '../../auth/hashing/hashing-secret.ts';
import { type IssuedKey, KeyIssuer } from '../../auth/key-issuer.ts';
import { overlapOf } from '../../auth/rotation-endpoint.ts';
import { Claims } from '../../billing/key-claims.ts';
import { type Config, TIERS } from '../../config/schema/config-schema.ts';
import { NO_TERMS } from '../../config/terms.ts';
import { GatewayError } from '../../errors.ts';
import { isPrefix, type KeyRecord } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';
import { createMetrics } from '../../telemetry/metrics/all-metrics.ts';
import { broadcastFields, broadcastText, isConfirmed, warnings } from '../fleet-action.ts';
import { findOrder } from '../orders-commands.ts';
import { UsageError } from '../program/arguments.ts';
import { choice, command, list, SHOW_OPTIONS, text } from '../program/command.ts';
import { type CommandIo, write } from '../program/terminal.ts';
import { noSuchKey, readPrefix } from '../support-command.ts';
import { openFleet, withStore } from '../support-desk.ts';
import { LIMITS_HELP } from './limit-options.ts';
import {
  AUTHOR_OPTIONS,
  authorOf,
  CHANGE_OPTIONS,
  holderOperand,
  labelOptions,
  noSuchHolder,
  readExpiry,
  readName,
  teamNamed,
  termsOptions,
  termsOptionsOf,
  warnUnlisted,
} from './owner-options.ts';

export const PREFIX = { name: 'PREFIX', about: 'the first 8 characters of the key' };
export const KEY_OPTIONS = {
  name: text('TEXT', 'a name of the key', ['noName']),
  expires: text('TIME', 'when the key ends, such as 90d or 2030-01-31', ['noExpiry']),
  ...termsOptionsOf('its holder'),
} as const;
export const LIMITS_OF_KEY = `Limits are those of the key alone, in addition to those of its holder; more than the holder has, with --force, has no effect. ${LIMITS_HELP}`;

export const ISSUE = command('issue', 'issue a key: only the key goes to stdout, and only this once', {
  detail: `Exactly one of --tier, --for and --order says for whom. ${LIMITS_OF_KEY}`,
  options: {
    tier: choice(TIERS, 'TIER', 'for a new holder of this tier'),
    holder: text('NAME', 'a name of the new holder'),
    team: text('NAME', 'the team of the new holder'),
    label: list('NAME=VALUE', 'a label of the new holder'),
    for: text('HOLDER', 'for this holder: its id, or the prefix of one of its keys'),
    order: text('ORDER', 'the key of a paid order, for a buyer who cannot claim it'),
    ...KEY_OPTIONS,
    ...AUTHOR_OPTIONS,
    ...SHOW_OPTIONS,
  },
  examples: [
    'keys issue --tier Pro --holder "nightly build" --team search --label env=prod',
    'keys issue --for 0123abcd --expires 90d --limit requests_per_minute=20',
    'keys issue --order 5b1f7c1e-8d3a-4a3b-9f0e-0c7d2f6a9e21',
  ],
  run: async (given, io) => {
    const { tier, for: holderOf, order: paid, team } = given;
    if ([tier, holderOf, paid].filter((each) => each !== undefined).length !== 1)
      throw new UsageError(
        'give exactly one of --tier (a new holder), --for (an existing holder) and --order (a paid order)',
      );
    for (const option of ['holder', 'team', 'label'] as const)
      if (tier === undefined && given[option] !== undefined && given[option].length > 0)
        throw new UsageError(`--${option} is only for a new holder, with --tier; see tollgate holders set`);
    const labels = labelOptions(given);
    const [holder, name] = [readName(given.holder), readName(given.name)];
    const expiresAt = given.expires && readExpiry(given.expires, Date.now());
    const { actor, reason } = authorOf(given, io);
    if (paid !== undefined && reason !== null)
      throw new UsageError('the history of the key of an order names the order: give no --reason');
    const own = {
      actor,
      ...(reason !== null && { reason }),
      key: { ...(name && { name }), ...(expiresAt && { expiresAt }) },
    };
    const named = holderOf === undefined ? undefined : await holderOperand(holderOf, io);
    return withStore(given, io, 'create', async (store, config) => {
      await warnUnlisted(tier, config.dynamic, io);
      const secret = await openSecret(config.static.secret, config.static.store, store);
      await using fleet = await openFleet(config, io);
      const announcer = fleet?.announcer(secret);
      const issuer = new KeyIssuer({ store, secret, hasher: new Hasher(createMetrics()), announcer });
      const first = named === undefined ? undefined : await anyKeyOf(store, named);
      const tierOfKey = tier ?? first?.tier;
      const owner = {
        kind: 'key',
        config: config.dynamic,
        holderTerms: first?.holderTerms ?? NO_TERMS,
      } as const;
      const terms = tierOfKey && termsOptions(given, NO_TERMS, { ...owner, tier: tierOfKey });
      const order = { ...own, key: { ...own.key, ...(terms && { terms }) } };
      const issued =
        tier !== undefined
          ? await issuer.issue({
              ...order,
              tier,
              labels,
              ...(holder && { name: holder }),
              ...(team !== undefined && { teamId: (await teamNamed(store, team)).id }),
            })
          : first !== undefined
            ? await issuer.issueFor(first.prefix, order)
            : await issueForOrder(store, issuer, paid ?? '');
      if (issued === undefined) throw noSuchKey();
      const { prefix, tier: tierIssued, holderId, createdAt } = issued;
      const fields = { key: issued.key.reveal(), prefix, tier: tierIssued, holder: holderId };
      const json = { ...fields, created_at: createdAt };
      await showOnce(io, issuer, issued, given.json ? JSON.stringify(json) : fields.key);
      if (!given.json)
        await write(
          io.stderr,
          `Issued ${prefix} (${tierIssued}) for holder ${holderId}. The key is shown only this once.\n`,
        );
      return 0;
    });
  },
});

/** The key that is named, or one of the named holder: each has one, perhaps an ended one. @throws Error */
async function anyKeyOf(store: Store, named: string): Promise<KeyRecord> {
  const [any] = isPrefix(named)
    ? [{ prefix: named }]
    : (await store.listKeys({ holderId: named, limit: 1 })).items;
  const found = any && (await store.findKey(any.prefix));
  if (found === undefined) throw noSuchHolder();
  return found;
}

/** Claims the key of a paid order for a buyer who lost the browser's cookie. Support has verified the buyer. */
async function issueForOrder(store: Store, issuer: KeyIssuer, name: string): Promise<IssuedKey> {
  const { id } = await findOrder(store, name);
  return new Claims({ store: store.billing, issuer, now: Date.now }).claim(id, () => true);
}

const ROTATED = { many: 'reject it', one: 'rejects the old key', what: 'rotation' };
const KEPT = { many: 'apply it', one: 'applies it', what: 'changes of keys' };

export const ROTATE = command(
  'rotate',
  'replace a key: only the new key goes to stdout, and only this once',
  {
    detail:
      'The new key has the name, the expiry and the limits of the old one. The old key ends at once; with --overlap it is valid for a while, up to auth.max_rotation_overlap.',
    operand: PREFIX,
    options: {
      overlap: text('DURATION', 'how long the old key stays valid, such as 24h'),
      ...CHANGE_OPTIONS,
    },
    examples: ['keys rotate 0123abcd', 'keys rotate 0123abcd --overlap 24h --reason "asked for by mail"'],
    run: async (given, io, operand) => {
      const prefix = await readPrefix(operand, io);
      const by = authorOf(given, io);
      return withStore(given, io, 'must exist', async (store, config) => {
        const overlapMs = overlapIn(given, config);
        requireRotatable(await store.findKey(prefix), Date.now());
        const secret = await openSecret(config.static.secret, config.static.store, store);
        await using fleet = await openFleet(config, io);
        const issuer = new KeyIssuer({
          store,
          secret,
          hasher: new Hasher(createMetrics()),
          announcer: fleet?.announcer(secret),
          endAnnouncer: fleet?.confirmingAnnouncer(overlapMs > 0 ? 'tier' : undefined),
        });
        const rotated = await issuer.rotate({ prefix }, overlapMs, by).catch((error: unknown) => {
          // For the holder it is a wrong key.
          if (!(error instanceof GatewayError) || error.code !== 'invalid_api_key') throw error;
          throw new Error('the key has ended or was rotated just now', { cause: error });
        });
        const { key, validUntil } = rotated;
        const result = fleet?.result;
        const action = validUntil === null ? ROTATED : KEPT;
        const fields = { key: key.reveal(), prefix: rotated.prefix, replaces: prefix };
        const json = {
          ...fields,
          old_key_expires_at: validUntil,
          ...(result && { replicas: broadcastFields(result, action) }),
        };
        await showOnce(io, issuer, rotated, given.json ? JSON.stringify(json) : fields.key);
        const old = validUntil === null ? 'has ended' : `is valid until ${validUntil}`;
        if (!given.json)
          await write(
            io.stderr,
            `Rotated ${prefix} to ${rotated.prefix} (${rotated.tier}); the old key ${old}. ${broadcastText(result, action.many)} The new key is shown only this once.\n`,
          );
        for (const line of warnings(result, action)) await write(io.stderr, `${line}\n`);
        return isConfirmed(result) ? 0 : 3;
      });
    },
  },
);

/** @throws UsageError */
function overlapIn({ overlap }: { readonly overlap: string | undefined }, { dynamic }: Config): number {
  const read = overlap === undefined ? 0 : overlapOf(overlap, dynamic.auth.max_rotation_overlap);
  if (typeof read === 'number') return read;
  throw new UsageError(`--overlap ${read}`);
}

/** @throws Error */
function requireRotatable(key: KeyRecord | undefined, now: number): void {
  if (key === undefined) throw noSuchKey();
  if (key.state !== 'active') throw new Error(`the key has ended: it is ${key.state}`);
  // The new one would have the same expiry.
  if (key.expiresAt !== null && Date.parse(key.expiresAt) <= now)
    throw new Error(
      `the key expired at ${key.expiresAt}; move its expiry first, or issue another key for its holder`,
    );
}

/** Writes a line with a new key; revokes the key where nobody can have read it. @throws Error */
async function showOnce(
  io: CommandIo,
  issuer: KeyIssuer,
  { prefix }: IssuedKey,
  line: string,
): Promise<void> {
  try {
    await write(io.stdout, `${line}\n`);
  } catch (error) {
    await issuer.revoke(prefix, 'could not be shown when it was issued');
    throw new Error(`the key could not be written out, and ${prefix} was revoked`, { cause: error });
  }
}
