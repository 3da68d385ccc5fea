// The cache of key records in Redis that all replicas share: its format, overwrite rules and validation. The store is
// authoritative; this cache can be lost or damaged at any time, and its content is not trusted.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { TIERS } from '../../config/schema/config-schema.ts';
import { readTerms, type Terms, writeTerms } from '../../config/terms.ts';
import { parseUntrusted } from '../../redis/foreign-text.ts';
import { type RedisClient, RedisCommandError } from '../../redis/redis-client.ts';
import { pause } from '../../redis/redis-deadline.ts';
import type { RedisScript } from '../../redis/redis-script.ts';
import { BILLING_STATUSES, isPrefix, type Prefix } from '../../store/key-record.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { isSameBytes, type KeySecret } from '../hashing/hashing-secret.ts';
import type { CheckableKey } from '../key/principal.ts';

/** Lifetime of a record; after it replicas read the store again and prove the key again if they have not. */
const RECORD_MS = 6 * 3_600_000;
/** Lifetime of a tombstone: longer than any process could pause between its read of the store and its write here. */
const TOMBSTONE_MS = 24 * 3_600_000;
/** Lifetime of a claim: a replica that ends before it runs Argon2 does not delay the others for longer. */
const PROOF_MS = 2_000;
const PROOF_WAIT_MS = 1000;
const PROOF_POLL_MS = 20;

const keyOf = (prefix: Prefix) => `tollgate:key:{${prefix}}`;
/** Includes the version: a claim for an earlier version does not apply. */
const proofOf = ({ prefix, version }: CheckableKey) => `tollgate:proof:{${prefix}}:${version}`;

/** Writes unless Redis has a version that wins over that of the arguments. It overwrites malformed values. */
const writer = (name: string, wins: '>' | '>=') => ({
  name,
  keys: 1,
  lua: `
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'string' then
  local version = tonumber(string.match(held, '^(%d%d?%d?%d?%d?%d?) '))
  if version and version ${wins} tonumber(ARGV[1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return 1`,
});

/** A slow reader cannot restore a key that has ended. */
const PUT = writer('put', '>');

/** For tombstones: a record of the same version has more information. */
const INVALIDATE = writer('invalidate', '>=');

/** Removes a damaged value if it is unchanged: the argument is its SHA-1 in hexadecimal, or empty for a non-string. */
const DISCARD = {
  name: 'discard',
  keys: 1,
  lua: `
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'string' and redis.sha1hex(held) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`,
} as const;

const ENDED = 'ended';
const CHANGED = 'changed';

/** A record of an active key. */
const Payload = z.strictObject({
  prefix: z.string(),
  holder: z.string(),
  tier: z.enum(TIERS),
  standing: z.enum(BILLING_STATUSES),
  version: z.int().min(1),
  argon2: z.string(),
  hmac: z.base64(),
  // Members since teams and expiry exist. Replicas of earlier versions read a record with one of them from the store.
  team: z.string().optional(),
  holder_terms: z.string().optional(),
  terms: z.string().optional(),
  expires_at: z.string().optional(),
  /** Only of rotated keys. A record of an earlier version lacks it: until it ends, the key counts as the first of its lineage. */
  lineage: z.string().optional(),
});

export type Tombstone = typeof ENDED | typeof CHANGED;

/**
 * - `record`: the key is active, and a replica has proven it with Argon2.
 * - `tombstone`: the key has ended, or its holder has changed and the new record is not here. Tombstones are not signed, so
 *   the store decides.
 * - `nothing`: missing, damaged, or Redis is unavailable.
 */
export type SharedAnswer =
  | { readonly kind: 'record'; readonly record: CheckableKey }
  | { readonly kind: 'tombstone'; readonly tombstone: Tombstone; readonly version: number }
  | { readonly kind: 'nothing' };

const NOTHING: SharedAnswer = { kind: 'nothing' };

/** Writes tombstones, which invalidate a key on all replicas. It needs no secret. */
export class KeyTombstones {
  readonly #put: RedisScript;
  readonly #invalidate: RedisScript;

  constructor(redis: Pick<RedisClient, 'script'>) {
    this.#put = redis.script(PUT);
    this.#invalidate = redis.script(INVALIDATE);
  }

  /**
   * Never rejects.
   * @param version version of the key after it ended or its holder changed
   * @returns whether Redis accepted it
   */
  async write(tombstone: Tombstone, prefix: Prefix, version: number): Promise<boolean> {
    const script = tombstone === ENDED ? this.#put : this.#invalidate;
    return script([keyOf(prefix)], [version, tombstone, TOMBSTONE_MS]).then(
      () => true,
      () => false,
    );
  }
}

export class SharedRecords {
  readonly #redis: RedisClient;
  readonly #put: RedisScript;
  readonly #discard: RedisScript;
  readonly #secret: KeySecret;
  readonly #lookups: Metrics['sharedRecords'];

  constructor(parts: {
    readonly redis: RedisClient;
    readonly secret: KeySecret;
    readonly metrics: Pick<Metrics, 'sharedRecords'>;
  }) {
    this.#redis = parts.redis;
    this.#put = parts.redis.script(PUT);
    this.#discard = parts.redis.script(DISCARD);
    this.#secret = parts.secret;
    this.#lookups = parts.metrics.sharedRecords;
  }

  /** Never rejects: an unavailable Redis gives `nothing`. */
  async find(prefix: Prefix): Promise<SharedAnswer> {
    let bytes: Buffer | null;
    try {
      bytes = await this.#redis.run((commands) => commands.getBuffer(keyOf(prefix)));
    } catch (error) {
      const isWrongType = error instanceof RedisCommandError && error.code === 'WRONGTYPE';
      this.#lookups.inc({ result: isWrongType ? 'damaged' : 'unavailable' });
      if (isWrongType) await ignoreErrors(this.#discard([keyOf(prefix)], ['']));
      return NOTHING;
    }
    if (bytes === null) {
      this.#lookups.inc({ result: 'miss' });
      return NOTHING;
    }
    const answer = this.#read(prefix, bytes.toString());
    this.#lookups.inc({
      result: answer === undefined ? 'damaged' : answer.kind === 'tombstone' ? answer.tombstone : 'hit',
    });
    if (answer !== undefined) return answer;
    // The digest is of the raw bytes, because decoding to text can change them.
    await ignoreErrors(this.#discard([keyOf(prefix)], [createHash('sha1').update(bytes).digest('hex')]));
    return NOTHING;
  }

  /** Publishes the record of an active, proven key to all replicas. Never rejects. */
  async publish(record: CheckableKey): Promise<void> {
    const { prefix, version } = record;
    const payload = encode(record);
    const value = `${this.#mac(version, payload)} ${payload}`;
    await ignoreErrors(this.#put([keyOf(prefix)], [version, value, RECORD_MS]));
  }

  /**
   * Replaces the record after a change of the holder, if Redis has the previous one. The proof stays valid, because the hash
   * of a key never changes. Never rejects.
   * @returns false when there is no record to replace; write a tombstone instead
   */
  async replace(record: CheckableKey): Promise<boolean> {
    const held = await this.find(record.prefix);
    if (held.kind !== 'record' || held.record.argon2 !== record.argon2) return false;
    await this.publish(record);
    return true;
  }

  /**
   * Claims the proof of a key, so that only one replica runs Argon2 for it. Without Redis every replica runs it.
   * @returns whether this replica has to run Argon2: no other one has or does
   */
  async claimProof(record: CheckableKey): Promise<boolean> {
    // One round trip.
    const proved = this.#isProved(record);
    try {
      const claimed = await this.#redis.run((commands) =>
        commands.set(proofOf(record), '1', 'PX', PROOF_MS, 'NX'),
      );
      return claimed === 'OK' && !(await proved);
    } catch {
      return true;
    }
  }

  /** Waits up to 1 s for the proof by another replica. @returns whether it arrived */
  async waitForProof(record: CheckableKey): Promise<boolean> {
    const end = performance.now() + PROOF_WAIT_MS;
    while (!(await this.#isProved(record))) {
      if (performance.now() >= end) return false;
      await pause(PROOF_POLL_MS);
    }
    return true;
  }

  /** Compares the hash only: the holder may have changed meanwhile. */
  async #isProved({ prefix, argon2 }: CheckableKey): Promise<boolean> {
    const answer = await this.find(prefix);
    return answer.kind === 'record' && answer.record.argon2 === argon2;
  }

  /** Releases the claim after a failure, so that others can run Argon2 at once. Never rejects. */
  async releaseProof(record: CheckableKey): Promise<void> {
    await ignoreErrors(this.#redis.run((commands) => commands.del(proofOf(record))));
  }

  #read(prefix: Prefix, text: string): SharedAnswer | undefined {
    const [, digits = '', body = ''] = /^(\d{1,6}) (.+)$/s.exec(text) ?? [];
    if (body === ENDED || body === CHANGED)
      return { kind: 'tombstone', tombstone: body, version: Number(digits) };
    const space = body.indexOf(' ');
    const payload = body.slice(space + 1);
    const given = Buffer.from(body.slice(0, Math.max(0, space)));
    const expected = Buffer.from(this.#mac(Number(digits), payload));
    if (!isSameBytes(given, expected)) return undefined;
    const record = decode(payload);
    return record?.prefix === prefix && record.version === Number(digits)
      ? { kind: 'record', record }
      : undefined;
  }

  /** The MAC prevents forged records, changed tiers and false proofs by clients of Redis without the secret. */
  #mac(version: number, payload: string): string {
    return this.#secret.recordDigest(`${version} ${payload}`).toString('base64');
  }
}

/** The cache is optional; the store has the record. */
async function ignoreErrors(work: Promise<unknown>): Promise<void> {
  await work.catch(() => undefined);
}

function encode(record: CheckableKey): string {
  const { prefix, lineage, holderId, tier, standing, version, argon2, hmac, teamId, expiresAt } = record;
  const [terms, holderTerms] = [writeTerms(record.terms), writeTerms(record.holderTerms)];
  const payload: z.input<typeof Payload> = {
    prefix,
    holder: holderId,
    tier,
    standing,
    version,
    argon2,
    hmac: Buffer.from(hmac).toString('base64'),
    ...(teamId !== null && { team: teamId }),
    ...(holderTerms !== '{}' && { holder_terms: holderTerms }),
    ...(terms !== '{}' && { terms }),
    ...(expiresAt !== null && { expires_at: expiresAt }),
    ...(lineage !== prefix && { lineage }),
  };
  return JSON.stringify(payload);
}

function decode(text: string): CheckableKey | undefined {
  const payload = parseUntrusted(Payload, text);
  if (payload === undefined || !isPrefix(payload.prefix)) return undefined;
  const { lineage = payload.prefix } = payload;
  if (!isPrefix(lineage)) return undefined;
  const { prefix, holder, tier, standing, version, argon2, hmac, team = null, expires_at = null } = payload;
  const [terms, holderTerms] = [payload.terms, payload.holder_terms].map(termsOf);
  if (terms === undefined || holderTerms === undefined) return undefined;
  return {
    prefix,
    lineage,
    holderId: holder,
    tier,
    standing,
    state: 'active',
    version,
    argon2,
    hmac: Buffer.from(hmac, 'base64'),
    teamId: team,
    holderTerms,
    terms,
    expiresAt: expires_at,
  };
}

/** Undefined for terms of a newer version. */
function termsOf(text = '{}'): Terms | undefined {
  try {
    return readTerms(text);
  } catch {
    return undefined;
  }
}
