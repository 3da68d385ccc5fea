// Wires the key components of one gateway process, with Redis as a replica of a fleet, without it alone.
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { publish } from '../redis/broadcast.ts';
import { RedisClient } from '../redis/redis-client.ts';
import { Replicas } from '../redis/replicas.ts';
import type { KeyChange, Prefix } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { Authenticator } from './authenticator.ts';
import { countExpiringKeys } from './expiring-keys.ts';
import { Hasher } from './hashing/hasher.ts';
import { openSecret } from './hashing/hashing-secret.ts';
import { KeyIssuer } from './key-issuer.ts';
import { isCompromised } from './key-revocation.ts';
import { KeyUses } from './key-uses.ts';
import { ChangeFeed } from './records/change-feed.ts';
import { KeyAnnouncer, KeyBroadcast } from './records/key-broadcast.ts';
import { SharedRecords } from './records/shared-records.ts';

interface KeysOptions {
  /** Version of Tollgate, for other replicas and support. */
  readonly version: string;
  readonly config: StaticConfig;
  readonly store: Store;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** `auth.failures_per_minute` of the current configuration. */
  readonly failuresPerMinute: () => number;
  /** Called when a key is revoked as compromised: its running requests have to end too. */
  readonly onCompromised: (prefix: Prefix) => void;
  /** Called with each message of the fleet, also with those about keys. @returns what to answer */
  readonly onMessage?: (body: string) => Promise<string | undefined>;
}

export interface Keys {
  readonly authenticator: Authenticator;
  readonly issuer: KeyIssuer;
  /** The key by which client secrets of sessions are encrypted, the same in all replicas. */
  readonly sealingKey: Buffer;
  readonly redis: RedisClient | undefined;
  /** Whether changes by other processes arrive. */
  readonly isLinked: boolean;
  /** The position of this process among the serving replicas. */
  readonly position: Replicas['position'];
  /** Leaves the fleet and stops all key components. The store stays open. */
  close(): Promise<void>;
}

/**
 * Opens the secret and starts to follow changes. An unavailable Redis does not prevent the start.
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
  const redis = url === undefined ? undefined : new RedisClient({ url, logger, metrics: metrics.redis });
  const shared = redis && new SharedRecords({ redis, secret, metrics });
  const uses = new KeyUses({ store: store.organisation, logger });
  const stopCounting = countExpiringKeys(store.organisation, metrics.expiringKeys);
  const stopUpkeep = async () => {
    stopCounting();
    await uses.close();
  };
  const parts = { store, shared, onFirstUse, uses, secret, hasher, metrics, failuresPerMinute };
  const authenticator = new Authenticator(parts);
  const broadcast = redis && new KeyBroadcast({ redis, listener: authenticator, metrics });
  const changes = new ChangeFeed({
    store,
    listener: authenticator,
    onChange: (change) => {
      void broadcast?.onFeedChange(change);
      onChange(change);
    },
    metrics,
  });
  if (url === undefined || redis === undefined) {
    const issuer = new KeyIssuer({ store, secret, hasher, listener: authenticator });
    await changes.start();
    const position = { index: 0, count: 1 };
    const close = async () => {
      await changes.stop();
      await stopUpkeep();
    };
    return { authenticator, issuer, sealingKey: secret.sealingKey(), redis, isLinked: true, position, close };
  }
  const replicas = new Replicas({
    redis,
    url,
    logger,
    version: options.version,
    onMessage: async (text) => {
      broadcast?.receive(text);
      return options.onMessage?.(text);
    },
    onLost: () => authenticator.unlinked(),
    onRestored: () => {
      authenticator.linked();
      void changes.poll();
    },
  });
  const announcer = new KeyAnnouncer({ redis, shared, send: (body) => publish(redis, { body }) });
  authenticator.unlinked();
  // Start the feed before the subscription: it covers messages that arrive earlier.
  await changes.start();
  await redis.start();
  await replicas.start();
  return {
    authenticator,
    issuer: new KeyIssuer({ store, secret, hasher, listener: authenticator, announcer }),
    sealingKey: secret.sealingKey(),
    redis,
    get isLinked() {
      return replicas.isLinked;
    },
    get position() {
      return replicas.position;
    },
    async close() {
      await changes.stop();
      await replicas.stop();
      await stopUpkeep();
      await redis.close();
    },
  };
}
