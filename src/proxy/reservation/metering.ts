// Wires the limiters of limits/ and the usage outbox of usage/.
import { resolve } from 'node:path';
import type { Authenticator } from '../../auth/authenticator.ts';
import { identify } from '../../auth/identify.ts';
import type { Principal } from '../../auth/key/principal.ts';
import { LIMITS } from '../../config/limit-table.ts';
import type { StaticConfig } from '../../config/schema/config-schema.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { InitialTotals } from '../../limits/initial-totals.ts';
import type { FleetPlace } from '../../limits/last-known.ts';
import type { Limiter, ScopeStates } from '../../limits/limiter.ts';
import { MemoryLimiter } from '../../limits/memory-limiter.ts';
import { RedisLimiter } from '../../limits/redis-limiter.ts';
import type { Scopes } from '../../limits/scope.ts';
import { SharedLimiter } from '../../limits/shared-limiter.ts';
import type { RedisClient } from '../../redis/redis-client.ts';
import type { UsageStore } from '../../store/store.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { HolderUsage } from '../../usage/holder-usage.ts';
import { outboxDirectory } from '../../usage/outbox/default-directory.ts';
import { usageEndpoint } from '../../usage/usage-endpoint.ts';
import { UsageOutbox } from '../../usage/usage-outbox.ts';
import type { ReservationOptions } from './usage-reservation.ts';

interface MeteringOptions {
  readonly config: StaticConfig;
  readonly store: UsageStore;
  /** Shared by replicas, when there are several. */
  readonly redis: RedisClient | undefined;
  /** The position of this process among the replicas that serve. */
  readonly fleet: () => FleetPlace;
  readonly authenticator: Authenticator;
  /** The scopes of a key in the present configuration. */
  readonly scopesOf: (principal: Principal) => Scopes;
  /** The plan of a holder, for its report. */
  readonly planOf: (holderId: string) => Promise<unknown>;
  readonly logger: Logger;
  readonly metrics: Metrics;
}

export interface Metering {
  readonly limiter: Limiter;
  /** The parts that a chat request needs. */
  readonly metering: ReservationOptions;
  /** `GET /admin/usage` */
  readonly answerUsage: (exchange: Exchange) => Promise<void>;
  /** Replicas should share limits, but this process counts alone at the moment. */
  readonly isDegraded: boolean;
  /** Flushes the outbox. After the deadline the rest stays in the file, for the next process. */
  close(deadlineMs: number): Promise<void>;
}

export async function openMetering(options: MeteringOptions): Promise<Metering> {
  const { config, store, redis, fleet, authenticator, scopesOf, planOf, logger, metrics } = options;
  const outbox = await UsageOutbox.open({
    store,
    directory: resolve(outboxDirectory(config)),
    logger,
    events: metrics.outbox,
  });
  const usage = new HolderUsage(outbox, store);
  const initialTotals = new InitialTotals({ read: ({ owner }) => usage.totalsOf(owner), metrics });
  const local = new MemoryLimiter({ initialTotals, metrics });
  const shared =
    redis === undefined
      ? undefined
      : new SharedLimiter({
          redis,
          local,
          fleet,
          shared: new RedisLimiter({ redis, initialTotals, metrics }),
          metrics,
        });
  const limiter = shared ?? local;
  return {
    limiter,
    metering: { limiter, outbox, metrics },
    answerUsage: usageEndpoint({
      // A suspended holder can read here why it is not served.
      identify: (exchange) => identify(authenticator, exchange, 'any'),
      usage,
      limits: async (principal) => {
        const scopes = scopesOf(principal);
        return shown(scopes, await limiter.peek(scopes));
      },
      plan: ({ holderId }) => planOf(holderId),
    }),
    get isDegraded() {
      return shared?.isDegraded ?? false;
    },
    async close(deadlineMs) {
      await limiter.close();
      await outbox.close(deadlineMs);
    },
  };
}

/** The limits in the report of a holder. Those of cost are in the unit of the prices. */
function shown({ list }: Scopes, states: ScopeStates) {
  return list.flatMap(({ kind }, index) =>
    LIMITS.flatMap(({ name: limit, counts }) => {
      const state = states[index]?.[limit];
      if (state === undefined) return [];
      const [max, used, remaining] = [state.limit, state.used, state.remaining].map((amount) =>
        counts === 'cost' ? amount / 1e9 : amount,
      );
      const scope = kind === 'holder' ? {} : { scope: kind };
      return [{ ...scope, limit, max, used, remaining, resets_in_s: Math.ceil(state.resetMs / 1000) }];
    }),
  );
}
