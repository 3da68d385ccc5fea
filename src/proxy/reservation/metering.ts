// Wires the limiters of limits/ and the usage outbox of usage/.
import { resolve } from 'node:path';
import type { Authenticator } from '../../auth/authenticator.ts';
import { identify } from '../../auth/identify.ts';
import { BudgetWatch } from '../../budgets/budget-watch.ts';
import { NoticeSender } from '../../budgets/notice-sender.ts';
import type { DynamicConfig, StaticConfig } from '../../config/schema/config-schema.ts';
import { InitialTotals } from '../../limits/initial-totals.ts';
import type { FleetPlace } from '../../limits/last-known.ts';
import { MemoryLimiter } from '../../limits/memory/memory-limiter.ts';
import { RedisLimiter } from '../../limits/redis-limiter.ts';
import { SharedLimiter } from '../../limits/shared-limiter.ts';
import type { RedisClient } from '../../redis/redis-client.ts';
import type { Store } from '../../store/store.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { Outbound } from '../../upstream/outbound/outbound.ts';
import { HolderUsage } from '../../usage/holder-usage.ts';
import { outboxDirectory } from '../../usage/outbox/default-directory.ts';
import { OutboxDisk } from '../../usage/outbox/outbox-disk.ts';
import { usageEndpoint } from '../../usage/usage-endpoint.ts';
import { UsageOutbox } from '../../usage/usage-outbox.ts';
import { UsageUpkeep } from '../../usage/usage-upkeep.ts';
import { findLimitedOwner, type LimitLine, reportLimits } from './limit-report.ts';
import { ScopeResolver } from './scopes-of.ts';
import { TeamDirectory } from './team-directory.ts';

interface MeteringOptions {
  readonly config: StaticConfig;
  readonly store: Store;
  /** Shared by replicas, when there are several. */
  readonly redis: RedisClient | undefined;
  /** The position of this process among the replicas that serve. */
  readonly fleet: () => FleetPlace;
  readonly authenticator: Authenticator;
  /** Of the usage outbox. */
  readonly disk: OutboxDisk;
  /** The present configuration. */
  readonly dynamic: () => DynamicConfig;
  /** For the webhook of budgets. */
  readonly outbound: Outbound;
  /** The plan of a holder, for its report. */
  readonly planOf: (holderId: string) => Promise<unknown>;
  readonly logger: Logger;
  readonly metrics: Metrics;
}

export type Metering = Awaited<ReturnType<typeof openMetering>>;

/**
 * Starts the thread of the usage outbox, on another processor while the store opens. Files of an outbox are signs of an earlier store, so
 * it makes none before `openMetering`.
 */
export function startOutboxThread(config: StaticConfig): OutboxDisk {
  const disk = new OutboxDisk(resolve(outboxDirectory(config)));
  disk.start();
  return disk;
}

/** Opens the limiter and the usage outbox. @throws GatewayError store_unavailable */
export async function openMetering(options: MeteringOptions) {
  const { config, disk, dynamic, store, redis, fleet, authenticator, outbound, planOf, logger, metrics } =
    options;
  const teams = new TeamDirectory({ store: store.organisation, metrics });
  await teams.start();
  const outbox = await UsageOutbox.open({
    store: store.usage,
    directory: disk.directory,
    disk,
    logger,
    events: metrics.outbox,
  });
  const upkeep = new UsageUpkeep({
    store: store.usage,
    takeTask: store.billing.takeTask,
    keepHours: config.usage?.keep_hours,
    keepDays: config.usage?.keep_days,
    logger,
    metrics: metrics.outbox,
  });
  upkeep.start();
  const usage = new HolderUsage(outbox, store.usage);
  const initialTotals = new InitialTotals({
    read: ({ owner }) => usage.totalsOf(owner),
    compare: ({ owner }) => (owner.kind === 'holder' ? usage.totalsTogether(owner.id) : undefined),
    metrics,
  });
  const local = new MemoryLimiter({ initialTotals, metrics });
  const ofRedis = redis && { redis, shared: new RedisLimiter({ redis, initialTotals, metrics }) };
  const shared = ofRedis && new SharedLimiter({ ...ofRedis, local, fleet, metrics });
  const limiter = shared ?? local;
  const scopes = new ScopeResolver(teams);
  const notices = new NoticeSender({
    store: store.budgets,
    webhook: () => dynamic().budgets.webhook,
    outbound,
    logger,
    metrics,
  });
  notices.start();
  const budgets = new BudgetWatch({
    limiter,
    store,
    config: dynamic,
    onNotice: () => notices.wake(),
    logger,
    metrics,
  });
  return {
    limiter,
    /** The parts that a chat request needs. */
    metering: { limiter, scopes, budgets, outbox, metrics },
    /** `GET /admin/usage` */
    answerUsage: usageEndpoint({
      // A suspended holder can read here why it is not served.
      identify: (exchange) => identify(authenticator, exchange, 'any'),
      usage,
      currency: () => dynamic().currency,
      limits: async (principal) => {
        const all = await scopes.all(principal, dynamic());
        return reportLimits(all, await limiter.peek(all));
      },
      plan: ({ holderId }) => planOf(holderId),
    }),
    /**
     * The limits of a request, for support.
     * @param whose the prefix of a key, or the id of a holder
     * @param entry of `models`
     * @returns undefined where there is no such key or holder
     */
    async limitsOf(whose: string, entry: string | undefined): Promise<readonly LimitLine[] | undefined> {
      const owner = await findLimitedOwner(store, whose);
      if (owner === undefined) return undefined;
      const own = await scopes.of(owner, dynamic(), entry);
      return reportLimits(own, await limiter.peek(own));
    },
    /** Replicas should share limits, but this process counts alone at the moment. */
    get isDegraded() {
      return shared?.isDegraded ?? false;
    },
    /** Flushes the outbox. After the deadline the rest stays in the file, for the next process. */
    async close(deadlineMs: number): Promise<void> {
      await teams.stop();
      await budgets.stop();
      await notices.stop();
      await upkeep.stop();
      await limiter.close();
      await outbox.close(deadlineMs);
    },
  };
}
