// Every Prometheus metric of the process, named in one place. It measures nothing itself.
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** Seconds; the OpenTelemetry GenAI buckets for operation duration. */
const DURATION_BUCKETS = [
  0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

export type Metrics = ReturnType<typeof createMetrics>;

/** A fresh registry and its metrics; one per gateway, so that tests and embedders can run several in a process. */
export function createMetrics() {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  return {
    registry,
    requests: new Counter({
      name: 'tollgate_requests_total',
      help: 'Requests answered, by route and status. Status 499: the client left first.',
      labelNames: ['route', 'status'],
      registers,
    }),
    requestSeconds: new Histogram({
      name: 'tollgate_request_duration_seconds',
      help: 'From the request line to the last byte of the answer.',
      labelNames: ['route'],
      buckets: DURATION_BUCKETS,
      registers,
    }),
    requestsInFlight: new Gauge({
      name: 'tollgate_requests_in_flight',
      help: 'Requests that have begun and not ended.',
      registers,
    }),
    connections: new Gauge({
      name: 'tollgate_connections',
      help: 'Open client connections on the public listener.',
      registers,
    }),
    connectionsDropped: new Counter({
      name: 'tollgate_connections_dropped_total',
      help: 'Connections refused because as many as allowed were open.',
      registers,
    }),
    upstreamAttempts: new Counter({
      name: 'tollgate_upstream_attempts_total',
      help: 'Requests sent to upstreams, by how each ended: ok, client_closed, superseded (another one of the same request answered) or an error code.',
      labelNames: ['upstream', 'outcome'],
      registers,
    }),
    upstreamInFlight: new Gauge({
      name: 'tollgate_upstream_in_flight',
      help: 'Requests that an upstream is working on.',
      labelNames: ['upstream'],
      registers,
    }),
    upstreamHealthy: new Gauge({
      name: 'tollgate_upstream_healthy',
      help: 'What the active health checks found, where `health` is configured: 1 healthy, 0 not.',
      labelNames: ['upstream'],
      registers,
    }),
    extraAttempts: new Counter({
      name: 'tollgate_upstream_extra_attempts_total',
      help: 'Upstream requests beyond the first of a request: fallback (another target), retry (a second round), resend (a kept connection was closed), hedge (beside a silent first).',
      labelNames: ['upstream', 'reason'],
      registers,
    }),
    retryBudgetRefusals: new Counter({
      name: 'tollgate_retry_budget_refusals_total',
      help: 'Attempts that were not made because `retry.budget` was used up.',
      registers,
    }),
    hedges: new Counter({
      name: 'tollgate_hedges_total',
      help: 'Second requests beside a silent first, by result: won (it answered the client), lost (the first did), failed, stopped (nobody waited any more).',
      labelNames: ['result'],
      registers,
    }),
    breakerState: new Gauge({
      name: 'tollgate_upstream_breaker_state',
      help: 'Circuit breakers that have opened at least once: 0 closed, 1 half open, 2 open.',
      labelNames: ['upstream', 'model'],
      registers,
    }),
    streamsBroken: new Counter({
      name: 'tollgate_streams_broken_total',
      help: 'Streams that ended before they were complete, after something was sent to the client.',
      labelNames: ['upstream', 'cause'],
      registers,
    }),
    authOutcomes: new Counter({
      name: 'tollgate_auth_total',
      help: 'Key checks by outcome: cached, verified, refused, refused_cached, limited, unavailable.',
      labelNames: ['outcome'],
      registers,
    }),
    authUnavailable: new Counter({
      name: 'tollgate_auth_unavailable_total',
      help: 'Keys that could not be checked (503), by reason: store, late, queue, hashing, contradiction, changing, other.',
      labelNames: ['reason'],
      registers,
    }),
    authCacheEntries: new Gauge({
      name: 'tollgate_auth_cache_entries',
      help: 'Entries in the bounded caches of key checking: positive, negative, failures.',
      labelNames: ['cache'],
      registers,
    }),
    argon2Runs: new Counter({
      name: 'tollgate_argon2_runs_total',
      help: 'Argon2id computations, by purpose: hash or verify.',
      labelNames: ['purpose'],
      registers,
    }),
    argon2Queue: new Gauge({
      name: 'tollgate_argon2_queue',
      help: 'Argon2id computations waiting for a place.',
      registers,
    }),
    keyChanges: new Counter({
      name: 'tollgate_key_changes_total',
      help: 'Changes of keys that this process took over from the store.',
      labelNames: ['kind'],
      registers,
    }),
    keyLag: new Histogram({
      name: 'tollgate_key_propagation_seconds',
      help: 'From a change of a key by another process until this one heard of it, by message or poll.',
      labelNames: ['via'],
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60],
      registers,
    }),
    sharedRecords: new Counter({
      name: 'tollgate_key_cache_lookups_total',
      help: 'Look-ups of key records in Redis: hit, miss, ended, damaged, unavailable.',
      labelNames: ['result'],
      registers,
    }),
    limitsRefused: new Counter({
      name: 'tollgate_limits_refused_total',
      help: 'Requests refused by a limit of their tier, by the limit.',
      labelNames: ['limit', 'tier'],
      registers,
    }),
    limitsDegraded: new Gauge({
      name: 'tollgate_limits_degraded',
      help: 'Whether limits are those of this process alone though Redis is configured: 1 or 0.',
      registers,
    }),
    limitHolders: new Gauge({
      name: 'tollgate_limit_holders',
      help: 'Holders whose limits are counted in the memory of this process.',
      registers,
    }),
    limitLeases: new Gauge({
      name: 'tollgate_limit_leases',
      help: 'Requests that were admitted here and are not settled.',
      registers,
    }),
    limitSeedFailures: new Counter({
      name: 'tollgate_limit_seed_failures_total',
      help: 'Totals of a day or month that the usage store did not give to the limiter.',
      registers,
    }),
    limitSettlementsDropped: new Counter({
      name: 'tollgate_limit_settlements_dropped_total',
      help: 'Settlements that will not reach Redis, where the lease expires instead: overflow, unknown, error, closed.',
      labelNames: ['reason'],
      registers,
    }),
    realtimeSessions: new Gauge({
      name: 'tollgate_realtime_sessions',
      help: 'Realtime sessions that are open.',
      registers,
    }),
    realtimeEnds: new Counter({
      name: 'tollgate_realtime_sessions_ended_total',
      help: 'Realtime sessions that ended, by who said Close first (or broke off) and its code; codes of applications are `other`.',
      labelNames: ['by', 'code'],
      registers,
    }),
    realtimeResponses: new Counter({
      name: 'tollgate_realtime_responses_total',
      help: 'Answers in realtime sessions whose tokens were counted: reported by the upstream, or estimated.',
      labelNames: ['counted'],
      registers,
    }),
    ledger: ledgerMetrics(registers),
    redis: redisMetrics(registers),
    keyPollFailures: new Counter({
      name: 'tollgate_key_poll_failures_total',
      help: 'Polls for changed keys that the store did not answer.',
      registers,
    }),
  };
}

/** In the form in which the Redis client tells them. */
function redisMetrics(registers: Registry[]) {
  const up = new Gauge({
    name: 'tollgate_redis_up',
    help: 'Whether Redis takes commands, where one is configured: 1 or 0.',
    registers,
  });
  const calls = new Counter({
    name: 'tollgate_redis_calls_total',
    help: 'Calls to Redis by outcome: ok, error (refused by Redis), deadline, lost, away (not sent), overload, closed.',
    labelNames: ['outcome'],
    registers,
  });
  return {
    onState: (isUp: boolean) => up.set(isUp ? 1 : 0),
    onCall: (outcome: string) => calls.inc({ outcome }),
  };
}

/** In the form in which the ledger tells them. */
function ledgerMetrics(registers: Registry[]) {
  const batches = new Counter({
    name: 'tollgate_usage_batches_total',
    help: 'Batches of usage sent to the store: written, known (written before, the answer got lost), failed (sent again).',
    labelNames: ['outcome'],
    registers,
  });
  const dropped = new Counter({
    name: 'tollgate_usage_dropped_total',
    help: 'Requests whose use is not counted by itself, by reason.',
    labelNames: ['reason'],
    registers,
  });
  const waiting = new Gauge({
    name: 'tollgate_usage_waiting',
    help: 'Usage that the store does not have yet: segments of the spool, their bytes, rows in memory.',
    labelNames: ['of'],
    registers,
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
