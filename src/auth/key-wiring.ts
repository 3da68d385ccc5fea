// Everything about keys that one gateway process runs, wired together: with Redis as one replica of several, without it alone.
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { RedisClient } from '../redis/redis-client.ts';
import { Replicas } from '../redis/replicas.ts';
import type { KeyChange, Prefix } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { Authenticator } from './authenticator.ts';
import { Hasher } from './hashing/hasher.ts';
import { openSecret } from './hashing/hashing-secret.ts';
import { isCompromised, KeyIssuer } from './key-issuer.ts';
import { ChangeFeed } from './records/change-feed.ts';
import { KeyAnnouncer, KeyBroadcast } from './records/key-broadcast.ts';
import { SharedRecords } from './records/shared-records.ts';

interface KeysOptions {
  /** Of Tollgate, for other replicas and the support desk. */
  readonly version: string;
  readonly config: StaticConfig;
  readonly store: Store;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** `auth.failures_per_minute` of the configuration in force. */
  readonly failuresPerMinute: () => number;
  /** Another process revoked this key because it was compromised: what it has running is to end too. */
  readonly onCompromised: (prefix: Prefix) => void;
}

export interface Keys {
  readonly authenticator: Authenticator;
  readonly issuer: KeyIssuer;
  /** Undefined where none is configured. */
  readonly redis: RedisClient | undefined;
  /** Whether this process hears what others change. */
  readonly isLinked: boolean;
  /** Where this process stands among the replicas that serve. */
  readonly place: Replicas['place'];
  /** Leaves the fleet, and ends what runs. The store stays open. */
  close(): Promise<void>;
}

/**
 * Opens the secret and begins to follow the changes. A Redis that is away does not keep it from starting.
 * @throws SecretError, or GatewayError `store_unavailable`
 */
export async function openKeys(options: KeysOptions): Promise<Keys> {
  const { config, store, logger, metrics, failuresPerMinute } = options;
  const onChange = ({ kind, prefix, reason }: KeyChange) => {
    if (kind === 'revoked' && isCompromised(reason)) options.onCompromised(prefix);
  };
  const secret = await openSecret(config.secret, config.store, store);
  const hasher = new Hasher(metrics);
  const onFirstUse = (prefix: Prefix) => store.billing.markFirstUse(prefix, new Date().toISOString());
  const url = config.redis;
  if (url === undefined) {
    const authenticator = new Authenticator({
      store,
      onFirstUse,
      secret,
      hasher,
      metrics,
      failuresPerMinute,
    });
    const issuer = new KeyIssuer({ store, secret, hasher, listener: authenticator });
    const changes = new ChangeFeed({ store, listener: authenticator, onChange, metrics });
    await changes.start();
    const place = { index: 0, count: 1 };
    return { authenticator, issuer, redis: undefined, isLinked: true, place, close: () => changes.stop() };
  }
  const redis = new RedisClient({ url, logger, metrics: metrics.redis });
  const shared = new SharedRecords({ redis, secret, metrics });
  const authenticator = new Authenticator({
    store,
    shared,
    onFirstUse,
    secret,
    hasher,
    metrics,
    failuresPerMinute,
  });
  const replicas = new Replicas({
    redis,
    url,
    logger,
    version: options.version,
    onMessage: (text) => fleet.heard(text),
    onLost: () => authenticator.unlinked(),
    onRestored: () => {
      authenticator.linked();
      void changes.poll();
    },
  });
  const fleet = new KeyBroadcast({ redis, listener: authenticator, metrics });
  const announcer = new KeyAnnouncer({ redis, shared, send: (body) => replicas.send(body) });
  const changes = new ChangeFeed({
    store,
    listener: authenticator,
    onChange: (change) => {
      void fleet.read(change);
      onChange(change);
    },
    metrics,
  });
  authenticator.unlinked();
  // The feed first: a message that comes before its place is noted is in it.
  await changes.start();
  await redis.start();
  await replicas.start();
  return {
    authenticator,
    issuer: new KeyIssuer({ store, secret, hasher, listener: authenticator, announcer }),
    redis,
    get isLinked() {
      return replicas.isLinked;
    },
    get place() {
      return replicas.place;
    },
    async close() {
      await changes.stop();
      await replicas.stop();
      await redis.close();
    },
  };
}
