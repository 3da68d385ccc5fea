// Metrics of what is counted: limits, the usage outbox, and the Redis that replicas share.
import type { MetricCatalogue } from './metric-catalogue.ts';

export function limitMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Limits');
  return {
    limitsRefused: catalogue.counter({
      name: 'tollgate_limits_refused_total',
      meaning: 'Requests refused by a limit of their tier, by the limit.',
      labels: { limit: 'a limit of `tiers`', tier: '`Free`, `Lite`, `Pro`' },
      action: 'Many of one tier: its limit is too low, or a client does not heed `retry-after`.',
    }),
    limitsDegraded: catalogue.gauge({
      name: 'tollgate_limits_degraded',
      across: 'max',
      meaning: 'Whether limits are those of this process alone though Redis is configured: 1 or 0.',
      labels: {},
      action: '1: a fleet of N admits up to N times as much. Bring Redis back.',
    }),
    limitHolders: catalogue.gauge({
      name: 'tollgate_limit_holders',
      meaning: 'Holders whose limits are counted in the memory of this process.',
      labels: {},
      action: 'Memory. It has a bound.',
    }),
    limitLeases: catalogue
      .gauge({
        name: 'tollgate_limit_leases',
        meaning: 'Requests that were admitted here and are not settled.',
        labels: {},
        action: 'Follows `tollgate_requests_in_flight`. Above it for long: report it, a lease is lost.',
      })
      .cell({}),
    limitSeedFailures: catalogue.counter({
      name: 'tollgate_limit_seed_failures_total',
      meaning: 'Totals of a day or month that the usage store did not give to the limiter.',
      labels: {},
      action: 'Any: long limits count from 0 until the store answers.',
    }),
    limitSettlementsDropped: catalogue.counter({
      name: 'tollgate_limit_settlements_dropped_total',
      meaning:
        'Settlements that will not reach Redis, where the lease expires instead: overflow, unknown, error, closed.',
      labels: { reason: '`overflow`, `unknown`, `error`, `closed`' },
      action: 'Rises while Redis is away. Reserved tokens stay counted until their window ends.',
    }),
  };
}

/** For `UsageOutboxEvents`. */
export function outboxMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Usage');
  const batches = catalogue.counter({
    name: 'tollgate_usage_batches_total',
    meaning:
      'Batches of usage sent to the store: written, known (written before, the answer got lost), failed (sent again).',
    labels: { outcome: '`written`, `known`, `failed`' },
    action: '`failed` and no `written`: the store does not take usage; it waits on disk meanwhile.',
  });
  const dropped = catalogue.counter({
    name: 'tollgate_usage_dropped_total',
    meaning: 'Requests whose use is not counted by itself, by reason.',
    labels: { reason: '`memory`, `spool_full`, `refused`, `too_old`, `closed`' },
    action: 'Any: use that is not billed. See the log and [usage.md](usage.md).',
  });
  const waiting = catalogue.gauge({
    name: 'tollgate_usage_waiting',
    meaning:
      'Usage that the store does not have yet: batches in the outbox file (`segments`), bytes of the file, rows in memory.',
    labels: { of: '`segments`, `bytes`, `rows`' },
    action:
      '`segments` grow: the store is away or slow. Keep room on the disk. `rows` grow: the disk does not answer.',
  });
  return {
    onBatch: (outcome: string) => batches.inc({ outcome }),
    onDropped: (reason: string, requests: number) => dropped.inc({ reason }, requests),
    onWaiting: ({ segments, bytes, rows }: { segments: number; bytes: number; rows: number }) => {
      waiting.set({ of: 'segments' }, segments);
      waiting.set({ of: 'bytes' }, bytes);
      waiting.set({ of: 'rows' }, rows);
    },
  };
}

/** In the form in which the Redis client tells them. */
export function redisMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Redis');
  const up = catalogue.gauge({
    name: 'tollgate_redis_up',
    across: 'min',
    meaning: 'Whether Redis takes commands, where one is configured: 1 or 0. Absent elsewhere.',
    labels: {},
    action: '0: limits are per process and revocations take up to 5 s.',
  });
  // A process without Redis has no such series, rather than a Redis that is away.
  up.remove({});
  const calls = catalogue.counter({
    name: 'tollgate_redis_calls_total',
    meaning:
      'Calls to Redis by outcome: ok, error (refused by Redis), deadline, lost, away (not sent), overload, closed.',
    labels: { outcome: '`ok`, `error`, `deadline`, `lost`, `away`, `overload`, `closed`' },
    action: '`deadline`: Redis or the network is slow, the deadline is 100 ms. `error`: full, or read-only.',
  });
  return {
    onState: (isUp: boolean) => up.set(isUp ? 1 : 0),
    onCall: (outcome: string) => calls.inc({ outcome }),
  };
}
