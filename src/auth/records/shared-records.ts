// Key records in Redis, where all replicas find them: what stands there, who may overwrite what, and what is believed of it.
// Truth is the store's; this is a cache that can be emptied, lost or damaged at any time, and that others may have written to.
import { createHash, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { TIERS } from '../../config/schema/config-schema.ts';
import { parseUntrusted } from '../../redis/foreign-text.ts';
import { type RedisClient, RedisCommandError, type RedisScript } from '../../redis/redis-client.ts';
import { pause } from '../../redis/redis-deadline.ts';
import { BILLING_STATUSES, isPrefix, type Prefix } from '../../store/key-record.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { KeySecret } from '../hashing/hashing-secret.ts';
import type { CheckableKey } from '../key/principal.ts';

/** After this time a key is looked up in the store again, and proved again by whoever has not proved it. */
const RECORD_MS = 6 * 3_600_000;
/** Longer than any process could have been asleep between its question to the store and its writing of the answer here. */
const MARK_MS = 24 * 3_600_000;
/** A replica that was to run Argon2 and did not, because it is gone, holds up the others no longer. */
const PROOF_MS = 2_000;
const PROOF_WAIT_MS = 1000;
const PROOF_POLL_MS = 20;

const keyOf = (prefix: Prefix) => `tollgate:key:{${prefix}}`;
/** By version: what was claimed for an earlier one says nothing about whether anybody proves this one. */
const proofOf = ({ prefix, version }: CheckableKey) => `tollgate:proof:{${prefix}}:${version}`;

/**
 * Writes unless something newer is there, so that a reader who was slow cannot put back what has ended since. Whatever is
 * not of this form is overwritten.
 */
const KEEP = {
  name: 'keep',
  keys: 1,
  lua: `
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'string' then
  local version = tonumber(string.match(held, '^(%d%d?%d?%d?%d?%d?) '))
  if version and version > tonumber(ARGV[1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return 1`,
} as const;

/** Writes a mark unless something as new is there: a record of this version says more than that there is one. */
const OUTDATE = {
  name: 'outdate',
  keys: 1,
  lua: `
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'string' then
  local version = tonumber(string.match(held, '^(%d%d?%d?%d?%d?%d?) '))
  if version and version >= tonumber(ARGV[1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return 1`,
} as const;

/** Removes exactly what was found to be damaged: its SHA-1 in hexadecimal is given, or nothing where it is no string. */
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

/** A record of an active key. What is not in it follows from that. */
const Payload = z.strictObject({
  prefix: z.string(),
  holder: z.string(),
  tier: z.enum(TIERS),
  standing: z.enum(BILLING_STATUSES),
  version: z.int().min(1),
  argon2: z.string(),
  hmac: z.base64(),
});

export type Tombstone = typeof ENDED | typeof CHANGED;

/**
 * - `record`: the key is active, and Argon2 has proved it somewhere in the fleet.
 * - `mark`: it is not active any more, or its holder has changed and nobody has put the new record here. Anybody who can write
 *   to Redis can write this, so the store has the last word.
 * - `nothing`: not there, not usable, or Redis is away.
 */
export type SharedAnswer =
  | { readonly kind: 'record'; readonly record: CheckableKey }
  | { readonly kind: 'tombstone'; readonly tombstone: Tombstone; readonly version: number }
  | { readonly kind: 'nothing' };

const NOTHING: SharedAnswer = { kind: 'nothing' };

/** Marks for all replicas that what they know of a key is no more. It needs no secret. */
export class KeyTombstones {
  readonly #keep: RedisScript;
  readonly #outdate: RedisScript;

  constructor(redis: Pick<RedisClient, 'script'>) {
    this.#keep = redis.script(KEEP);
    this.#outdate = redis.script(OUTDATE);
  }

  /**
   * Never rejects.
   * @param version of the key since it ended, or since its holder changed
   * @returns whether Redis took it
   */
  async mark(tombstone: Tombstone, prefix: Prefix, version: number): Promise<boolean> {
    const write = tombstone === ENDED ? this.#keep : this.#outdate;
    try {
      await write([keyOf(prefix)], [version, tombstone, MARK_MS]);
      return true;
    } catch {
      return false;
    }
  }
}

export class SharedRecords {
  readonly #redis: RedisClient;
  readonly #keep: RedisScript;
  readonly #discard: RedisScript;
  readonly #secret: KeySecret;
  readonly #lookups: Metrics['sharedRecords'];

  constructor(parts: {
    readonly redis: RedisClient;
    readonly secret: KeySecret;
    readonly metrics: Pick<Metrics, 'sharedRecords'>;
  }) {
    this.#redis = parts.redis;
    this.#keep = parts.redis.script(KEEP);
    this.#discard = parts.redis.script(DISCARD);
    this.#secret = parts.secret;
    this.#lookups = parts.metrics.sharedRecords;
  }

  /** Never rejects: Redis that does not answer knows nothing. */
  async find(prefix: Prefix): Promise<SharedAnswer> {
    let bytes: Buffer | null;
    try {
      bytes = await this.#redis.run((commands) => commands.getBuffer(keyOf(prefix)));
    } catch (error) {
      const isOther = error instanceof RedisCommandError && error.code === 'WRONGTYPE';
      this.#lookups.inc({ result: isOther ? 'damaged' : 'unavailable' });
      if (isOther) await quietly(this.#discard([keyOf(prefix)], ['']));
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
    // By the bytes, which are not always those of the text.
    await quietly(this.#discard([keyOf(prefix)], [createHash('sha1').update(bytes).digest('hex')]));
    return NOTHING;
  }

  /** Tells all replicas that the key is active and proved. Never rejects. */
  async keep(record: CheckableKey): Promise<void> {
    const { prefix, version } = record;
    const payload = encode(record);
    const value = `${this.#mac(version, payload)} ${payload}`;
    await quietly(this.#keep([keyOf(prefix)], [version, value, RECORD_MS]));
  }

  /**
   * Puts the record of a key whose holder has changed in the place of the one before, if that is there: proved is proved, since
   * a key never changes its hash. Never rejects.
   * @returns whether it did; else a mark has to do
   */
  async succeed(record: CheckableKey): Promise<boolean> {
    const held = await this.find(record.prefix);
    if (held.kind !== 'record' || held.record.argon2 !== record.argon2) return false;
    await this.keep(record);
    return true;
  }

  /**
   * Whether this replica should run Argon2 for the key: only one of those that meet it at the same time has to.
   * Without Redis everyone has to.
   */
  async claimProof(record: CheckableKey): Promise<boolean> {
    try {
      const claimed = await this.#redis.run((commands) =>
        commands.set(proofOf(record), '1', 'PX', PROOF_MS, 'NX'),
      );
      return claimed === 'OK';
    } catch {
      return true;
    }
  }

  /** Waits a moment for the proof by another replica. @returns whether it came */
  async isProvedSoon({ prefix, argon2 }: CheckableKey): Promise<boolean> {
    const end = performance.now() + PROOF_WAIT_MS;
    do {
      await pause(PROOF_POLL_MS);
      const answer = await this.find(prefix);
      // Its holder may have changed meanwhile; the proof is of the hash.
      if (answer.kind === 'record' && answer.record.argon2 === argon2) return true;
    } while (performance.now() < end);
    return false;
  }

  /** Lets others run Argon2 at once when it came to nothing here. Never rejects. */
  async disclaimProof(record: CheckableKey): Promise<void> {
    await quietly(this.#redis.run((commands) => commands.del(proofOf(record))));
  }

  #read(prefix: Prefix, text: string): SharedAnswer | undefined {
    const [, digits = '', body = ''] = /^(\d{1,6}) (.+)$/s.exec(text) ?? [];
    if (body === ENDED || body === CHANGED)
      return { kind: 'tombstone', tombstone: body, version: Number(digits) };
    const space = body.indexOf(' ');
    const payload = body.slice(space + 1);
    const given = Buffer.from(body.slice(0, Math.max(0, space)));
    const expected = Buffer.from(this.#mac(Number(digits), payload));
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
    const record = decode(payload);
    return record?.prefix === prefix && record.version === Number(digits)
      ? { kind: 'record', record }
      : undefined;
  }

  /** Without the secret nobody can invent a record, raise a tier in one, or claim that Argon2 has run. */
  #mac(version: number, payload: string): string {
    return this.#secret.recordDigest(`${version} ${payload}`).toString('base64');
  }
}

async function quietly(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch {
    // The store has it.
  }
}

function encode({ prefix, holderId, tier, standing, version, argon2, hmac }: CheckableKey): string {
  const payload: z.input<typeof Payload> = {
    prefix,
    holder: holderId,
    tier,
    standing,
    version,
    argon2,
    hmac: Buffer.from(hmac).toString('base64'),
  };
  return JSON.stringify(payload);
}

function decode(text: string): CheckableKey | undefined {
  const payload = parseUntrusted(Payload, text);
  if (payload === undefined || !isPrefix(payload.prefix)) return undefined;
  const { prefix, holder, tier, standing, version, argon2, hmac } = payload;
  return {
    prefix,
    holderId: holder,
    tier,
    standing,
    state: 'active',
    version,
    argon2,
    hmac: Buffer.from(hmac, 'base64'),
  };
}
