// Replicas that share a real Redis beside the store, with the clock, the failing store and the Argon2 of setting.ts.
import { Authenticator } from '../../src/auth/authenticator.ts';
import { Hasher } from '../../src/auth/hashing/hasher.ts';
import type { CheckableKey } from '../../src/auth/key/principal.ts';
import { KeyIssuer } from '../../src/auth/key-issuer.ts';
import { ChangeFeed } from '../../src/auth/records/change-feed.ts';
import { KeyAnnouncer, KeyBroadcast } from '../../src/auth/records/key-broadcast.ts';
import { KeyTombstones, SharedRecords } from '../../src/auth/records/shared-records.ts';
import { RedisClient } from '../../src/redis/redis-client.ts';
import type { Prefix } from '../../src/store/key-record.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { prefix as samplePrefix } from '../store/samples.ts';
import { holderChanger, openSetting, quickArgon2, type Replica, type Setting } from './setting.ts';

export const SILENT = createLogger(undefined, 'silent');

/** Long enough for a busy machine. What Redis does late is tested with the client's own deadline. */
const PATIENT_MS = 10_000;

export interface SharedReplica extends Replica {
  readonly redis: RedisClient;
  readonly shared: SharedRecords;
  readonly fleet: KeyBroadcast;
  readonly announcer: KeyAnnouncer;
  /** What it sent to the others; they hear it when the test hands it on. */
  readonly sent: readonly string[];
}

export interface ReplicaOptions {
  /** Deadline of calls to Redis in milliseconds. */
  readonly commandMs?: number;
  /** Awaited in each Argon2 verification, before its result. */
  readonly verifying?: () => Promise<void>;
}

export interface FleetSetting extends AsyncDisposable {
  /** Its own replica shares nothing: what it issues is in the store alone. */
  readonly setting: Setting;
  /** Another process on the same store and the same Redis. */
  replica(options?: ReplicaOptions): Promise<SharedReplica>;
}

export async function openFleetSetting(
  url: string,
  options: { readonly failuresPerMinute?: () => number } = {},
): Promise<FleetSetting> {
  await using stack = new AsyncDisposableStack();
  const setting = stack.use(await openSetting({ argon2: 'quick', ...options }));
  const { store, secret } = setting;
  const replica = async ({ commandMs = PATIENT_MS, verifying }: ReplicaOptions = {}) => {
    const metrics = createMetrics();
    const redis = new RedisClient({ url, logger: SILENT, commandMs, startMs: PATIENT_MS });
    running.defer(() => redis.close());
    const shared = new SharedRecords({ redis, secret, metrics });
    const quick = quickArgon2(setting.argon2);
    const hasher = new Hasher(metrics, {
      hash: quick.hash,
      async verify(phc, text) {
        const result = await quick.verify(phc, text);
        await verifying?.();
        return result;
      },
    });
    const authenticator = new Authenticator({
      store: setting.moody,
      shared,
      secret,
      hasher,
      metrics,
      failuresPerMinute: options.failuresPerMinute ?? (() => 60),
      now: setting.now,
    });
    const fleet = new KeyBroadcast({ redis, listener: authenticator, metrics });
    const sent: string[] = [];
    const announcer = new KeyAnnouncer({ redis, shared, send: async (body) => void sent.push(body) });
    const changes = new ChangeFeed({
      store,
      listener: authenticator,
      onChange: (change) => void fleet.onFeedChange(change),
      metrics,
      now: setting.now,
      intervalMs: 3_600_000,
    });
    await changes.start();
    running.defer(() => changes.stop());
    await redis.start();
    const issuer = new KeyIssuer({ store, secret, hasher, listener: authenticator, announcer });
    const changeHolder = holderChanger({ store, listener: authenticator, announcer });
    return { authenticator, issuer, changeHolder, changes, metrics, redis, shared, fleet, announcer, sent };
  };
  const running = stack.use(new AsyncDisposableStack());
  const all = stack.move();
  return { setting, replica, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

/** A client of Redis for a test. */
export async function connect(url: string, commandMs = PATIENT_MS): Promise<RedisClient> {
  const redis = new RedisClient({ url, logger: SILENT, commandMs, startMs: PATIENT_MS });
  await redis.start();
  return redis;
}

export const numbered = (index: number): Prefix => samplePrefix(index.toString(16).padStart(8, '0'));

/** A record that no key fits. */
export function recordOf(prefix: Prefix, version = 1): CheckableKey {
  return {
    prefix,
    lineage: prefix,
    holderId: `holder of ${prefix}`,
    tier: 'Lite',
    standing: 'good',
    state: 'active',
    version,
    argon2: '$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g',
    hmac: Buffer.from(prefix.repeat(8), 'hex'),
    teamId: null,
    holderTerms: {},
    terms: {},
    expiresAt: null,
  };
}

export const recordKey = (prefix: Prefix): string => `tollgate:key:{${prefix}}`;
export const proofKey = (prefix: Prefix, version = 1): string => `tollgate:proof:{${prefix}}:${version}`;

/** Marks keys as ended, as a process does that does not know the secret. */
export const marksIn = (redis: RedisClient): KeyTombstones => new KeyTombstones(redis);
