// Metrics of limits, the usage outbox and Redis.
import { type MetricCatalogue, VALUES } from './metric-catalogue.ts';
import { ByLabel } from './metric-children.ts';

export function limitMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Limits');
  return {
    limitsRefused: catalogue.counter('tollgate_limits_refused_total', {
      meaning: 'Requests rejected by a limit.',
      labels: {
        limit: 'the name of a limit',
        scope: 'whose: `holder`, `key`, `team`, `model`',
        tier: '`Free`, `Lite`, `Pro`',
      },
    }),
    limitsDegraded: catalogue.gauge('tollgate_limits_degraded', {
      across: 'max',
      meaning: 'Whether this process enforces limits on its own although Redis is configured: 1 or 0.',
    }),
    limitHolders: catalogue.gauge('tollgate_limit_holders', {
      meaning:
        'Holders, keys, teams and models of holders with limit counters in the memory of this process.',
    }),
    limitLeases: catalogue.gaugeChild('tollgate_limit_leases', {
      meaning: 'Admitted requests that are not settled yet.',
    }),
    limitSeedFailures: catalogue.counter('tollgate_limit_seed_failures_total', {
      meaning:
        'Failed reads of daily or monthly totals from the usage store: before counting starts (`first`), or to compare what is counted (`compare`).',
      labels: { reading: '`first`, `compare`' },
    }),
    teamsAge: catalogue.gauge('tollgate_teams_age_seconds', {
      across: 'max',
      meaning: 'Age of what this process knows of teams and their limits, after its last poll of the store.',
    }),
    teamReadFailures: catalogue.counter('tollgate_team_read_failures_total', {
      meaning: 'Failed reads of teams from the store.',
    }),
    limitSettlementsDropped: catalogue.counter('tollgate_limit_settlements_dropped_total', {
      meaning: 'Settlements that do not reach Redis, where the lease expires instead, by reason.',
      labels: { reason: '`overflow`, `unknown`, `error`, `closed`' },
    }),
  };
}

export function budgetMetrics(catalogue: MetricCatalogue) {
  return {
    notices: catalogue.counter('tollgate_budget_notices_total', {
      meaning:
        'Soft thresholds and ends of budgets that were reached, each counted by one replica of the fleet.',
      labels: { scope: '`holder`, `key`, `team`, `model`', type: '`threshold`, `spent`' },
    }),
    webhooks: catalogue.counter('tollgate_budget_webhooks_total', {
      meaning: 'Messages to `budgets.webhook`, by outcome.',
      labels: { outcome: '`sent`, `failed` (to be repeated), `given_up`' },
    }),
    waiting: catalogue.gauge('tollgate_budget_webhooks_waiting', {
      across: 'max',
      meaning:
        'Budget notices in the store that the webhook has not accepted yet; 0 without `budgets.webhook`.',
    }),
  };
}

/** Implements `UsageOutboxEvents`. */
export function outboxMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Usage');
  const batches = catalogue.counter('tollgate_usage_batches_total', {
    meaning: 'Usage batches sent to the store, by outcome.',
    labels: {
      outcome:
        '`written`, `known` (written before; its answer was lost), `late` (written, with usage of a closed month in the present one), `failed` (to be retried)',
    },
  });
  const dropped = catalogue.counter('tollgate_usage_dropped_total', {
    meaning: 'Requests without a usage record of their own, by reason.',
    labels: { reason: '`memory`, `spool_full`, `refused`, `too_old`, `closed`' },
  });
  const waiting = catalogue.gauge('tollgate_usage_waiting', {
    meaning: 'Usage that the store does not have yet.',
    labels: { of: '`segments`: batches in the outbox file; `bytes` of the file; `rows` in memory' },
  });
  const forgotten = catalogue.counter('tollgate_usage_forgotten_total', {
    meaning: 'Rows of usage that were deleted because of their age.',
    labels: { of: '`hours` (`usage.keep_hours`), `days` (`usage.keep_days`)' },
  });
  const cost = catalogue.counter('tollgate_cost_total', {
    meaning:
      'Cost of requests by the configured prices, in units of `currency`. Absent for models without a price.',
    labels: { model: VALUES.model, upstream: VALUES.upstream },
  });
  const costs = new ByLabel((model) => new ByLabel((upstream) => cost.child({ model, upstream })));
  return {
    onCost: (model: string, upstream: string, nanos: number) =>
      costs
        .of(model)
        .of(upstream)
        .inc(nanos / 1e9),
    onForgotten: (of: 'hours' | 'days', rows: number) => forgotten.inc({ of }, rows),
    onBatch: (outcome: string) => batches.inc({ outcome }),
    onDropped: (reason: string, requests: number) => dropped.inc({ reason }, requests),
    onWaiting: ({ segments, bytes, rows }: { segments: number; bytes: number; rows: number }) => {
      waiting.set({ of: 'segments' }, segments);
      waiting.set({ of: 'bytes' }, bytes);
      waiting.set({ of: 'rows' }, rows);
    },
  };
}

/** The events of the Redis client. */
export function redisMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Redis');
  const up = catalogue.gauge('tollgate_redis_up', {
    across: 'min',
    meaning: 'Whether Redis accepts commands: 1 or 0. Absent without Redis in the configuration.',
  });
  // Without Redis the series is absent; 0 would mean an outage.
  up.remove({});
  const calls = catalogue.counter('tollgate_redis_calls_total', {
    meaning: 'Calls to Redis, by outcome.',
    labels: {
      outcome: '`ok`, `error` (of Redis), `deadline`, `lost`, `away` (not sent), `overload`, `closed`',
    },
  });
  return {
    onState: (isUp: boolean) => up.set(isUp ? 1 : 0),
    onCall: (outcome: string) => calls.inc({ outcome }),
  };
}
