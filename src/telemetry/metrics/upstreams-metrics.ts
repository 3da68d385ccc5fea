// Metrics of upstreams: attempts, extra attempts, states, tokens, broken streams.
import { FALLBACK_REASONS } from '../../config/schema/model-schema.ts';
import { UPSTREAM_ERRORS } from '../../errors.ts';
import { type MetricCatalogue, VALUES } from './metric-catalogue.ts';
import { DURATION_BUCKETS } from './traffic-metrics.ts';

/** Values of the gauges. */
const BREAKERS = { closed: 0, half_open: 1, open: 2 } as const;
const STATES = {
  ok: 0,
  cooling_down: 1,
  half_open: 2,
  unhealthy: 3,
  open: 4,
  drained: 5,
  disabled: 6,
} as const;

/** What the gauges show of the state of an upstream. */
export interface ShownUpstream {
  readonly upstream: string;
  readonly state: keyof typeof STATES;
  readonly health: { readonly ok: boolean } | null;
  readonly targets: readonly { readonly entry: string; readonly breaker: keyof typeof BREAKERS }[];
}

const FOLLOWED = { kind: '`response` (in the background), `batch`' };

const EXTRA_REASONS = ['fallback', 'retry', 'resend', 'token', 'hedge'] as const;

/** Error codes with which a stream breaks. */
const BREAKS = [
  'stream_incomplete',
  'upstream_error',
  'upstream_timeout',
  'client_closed',
  'draining',
] as const;

export function upstreamMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Upstreams');
  const upstreamAttempts = catalogue.counter('tollgate_upstream_attempts_total', {
    meaning: 'Upstream requests, by outcome.',
    labels: {
      upstream: VALUES.upstream,
      outcome: `${VALUES.outcome}; \`superseded\`: another attempt answered`,
    },
  });
  const upstreamSeconds = catalogue.childHistogram('tollgate_upstream_duration_seconds', {
    meaning: 'Upstream requests: from sending to the end of the response.',
    labels: { upstream: VALUES.upstream, result: '`ok`, `failed`' },
    buckets: DURATION_BUCKETS,
  });
  const upstreamUnsolicited = catalogue.counter('tollgate_upstream_unsolicited_bytes_total', {
    meaning: 'Connections closed because the upstream sent bytes that answer no request.',
    labels: {
      upstream: VALUES.upstream,
      kind: '`idle` (on an idle connection), `unsent` (before the request was written), `surplus` (after a complete response), `farewell` (a 408 before closing, which is no fault)',
    },
  });
  const streamsBroken = catalogue.counter('tollgate_streams_broken_total', {
    meaning: 'Streams that broke after their first output.',
    labels: { upstream: VALUES.upstream, cause: 'an error code' },
  });
  const extraAttempts = catalogue.counter('tollgate_upstream_extra_attempts_total', {
    meaning: 'Upstream requests beyond the first of a request, by reason.',
    labels: {
      upstream: VALUES.upstream,
      reason:
        '`fallback` (another target), `retry` (another round), `resend` (after a stale connection), `token` (new token after a 401), `hedge` (beside a silent first)',
    },
  });
  const fallbacks = catalogue.counter('tollgate_fallbacks_total', {
    meaning:
      'Requests that went to another target because of the reason for which one rejected them. Part of the `fallback` attempts.',
    labels: {
      upstream: 'the one that rejected the request',
      reason: '`context_length_exceeded`, `content_filter`, `rate_limited`, `insufficient_quota`',
    },
  });
  const staleAddresses = catalogue.counter('tollgate_upstream_stale_addresses_total', {
    meaning:
      'Minutes in which an upstream was connected by addresses of an earlier DNS lookup, because new lookups failed.',
    labels: { upstream: VALUES.upstream },
  });
  const states: { read: () => readonly ShownUpstream[] } = { read: () => [] };
  catalogue.readGauge('tollgate_upstream_state', {
    across: 'max',
    meaning: `State of each upstream, that of its worst target: ${Object.entries(STATES)
      .map(([name, value]) => `${value} ${name}`)
      .join(', ')}.`,
    labels: { upstream: VALUES.upstream },
    *read() {
      for (const { upstream, state } of states.read()) yield { labels: { upstream }, value: STATES[state] };
    },
  });
  catalogue.readGauge('tollgate_upstream_breaker_state', {
    across: 'max',
    meaning:
      'State of the circuit breaker of each target: 0 closed, 1 half open, 2 open; for a pattern, the worst of its models.',
    labels: { upstream: VALUES.upstream, model: '`model` of a target as configured, including patterns' },
    *read() {
      for (const { upstream, targets } of states.read()) {
        const worst = new Map<string, number>();
        for (const { entry, breaker } of targets)
          worst.set(entry, Math.max(worst.get(entry) ?? 0, BREAKERS[breaker]));
        for (const [model, value] of worst) yield { labels: { upstream, model }, value };
      }
    },
  });
  catalogue.readGauge('tollgate_upstream_healthy', {
    across: 'min',
    meaning: 'Result of the active health checks of `health`: 1 healthy, 0 not.',
    labels: { upstream: VALUES.upstream },
    *read() {
      for (const { upstream, health } of states.read())
        if (health !== null) yield { labels: { upstream }, value: health.ok ? 1 : 0 };
    },
  });
  catalogue.readGauge('tollgate_upstream_in_service', {
    across: 'min',
    meaning:
      'Whether an upstream may get requests: 1; 0 while it is drained by hand or has `enabled: false`.',
    labels: { upstream: VALUES.upstream },
    *read() {
      for (const { upstream, state } of states.read())
        yield { labels: { upstream }, value: state === 'drained' || state === 'disabled' ? 0 : 1 };
    },
  });
  return {
    upstreamAttempts,
    upstreamSeconds,
    /** The source of the gauges of states; read at each scrape. */
    upstreamStates: states,
    /** Begins the counters of an upstream at 0: PromQL's `increase` misses the first count of a series that does not start there. */
    addUpstream(upstream: string): void {
      for (const outcome of ['ok', ...Object.keys(UPSTREAM_ERRORS)])
        upstreamAttempts.inc({ upstream, outcome }, 0);
      for (const kind of ['idle', 'unsent', 'surplus']) upstreamUnsolicited.inc({ upstream, kind }, 0);
      for (const cause of BREAKS) streamsBroken.inc({ upstream, cause }, 0);
      for (const reason of EXTRA_REASONS) extraAttempts.inc({ upstream, reason }, 0);
      for (const reason of FALLBACK_REASONS) fallbacks.inc({ upstream, reason }, 0);
      staleAddresses.inc({ upstream }, 0);
    },
    unserved: catalogue.counter('tollgate_upstream_unserved_total', {
      meaning: 'Requests of every kind for which no upstream could be asked, by error code.',
      labels: { outcome: '`upstream_rate_limited`, `upstream_busy`, `upstream_out_of_service`' },
    }),
    upstreamInFlight: catalogue.gauge('tollgate_upstream_in_flight', {
      meaning: 'Requests in flight to an upstream.',
      labels: { upstream: VALUES.upstream },
    }),
    upstreamTokens: tokenMetrics(catalogue),
    upstreamCertificateExpiry: catalogue.gauge(
      'tollgate_upstream_client_certificate_expiry_timestamp_seconds',
      {
        across: 'min',
        meaning: 'Unix time at which the client certificate (`tls.cert`) for an upstream expires.',
        labels: { upstream: VALUES.upstream },
      },
    ),
    extraAttempts,
    staleAddresses,
    fallbacks,
    affinity: catalogue.counter('tollgate_affinity_total', {
      meaning: 'First choices of a target with `balance: affinity`.',
      labels: {
        result:
          '`sticky` (the target of its key), `overflow` (another one, because that has more than its share of the load), `moved` (another one, because that is not available), `maker` (the one that made the encrypted content of the request)',
      },
    }),
    upstreamUnsolicited,
    retryBudgetRefusals: catalogue.counter('tollgate_retry_budget_refusals_total', {
      meaning: 'Attempts not made because `retry.budget` was used up.',
    }),
    hedges: catalogue.counter('tollgate_hedges_total', {
      meaning: 'Hedge requests, by result.',
      labels: {
        result: '`won` (it answered), `lost` (the first did), `failed`, `stopped` (the client left)',
      },
    }),
    followedUsage: {
      running: catalogue.gauge('tollgate_followed_usage', {
        meaning:
          'Background responses and batches whose usage is not known yet, and which this process follows.',
        labels: FOLLOWED,
      }),
      givenUp: catalogue.counter('tollgate_followed_usage_given_up_total', {
        meaning: 'Background responses and batches whose usage nobody reads any more.',
        labels: {
          ...FOLLOWED,
          reason:
            '`late` (they did not end in time), `full` (too many at once), `gone` (the upstream does not have them any more)',
        },
      }),
    },
    usageReads: {
      running: catalogue.gaugeChild('tollgate_usage_reads', {
        meaning: 'Responses read for their usage after the client left, for 5 s at most.',
      }),
      results: catalogue.counter('tollgate_usage_reads_total', {
        meaning: 'Responses read for their usage after the client left, by result.',
        labels: { result: '`reported`, `missing` (not in time), `refused` (too many at once)' },
      }),
    },
    streamsBroken,
  };
}

/** Tokens that the gateway fetches for upstreams with `auth`. */
function tokenMetrics(catalogue: MetricCatalogue) {
  const labels = { upstream: VALUES.upstream };
  const fetchedAt = catalogue.gauge('tollgate_upstream_token_fetched_timestamp_seconds', {
    across: 'min',
    meaning: 'Unix time at which the current token of an upstream with `auth` was fetched.',
    labels,
  });
  const expiresAt = catalogue.gauge('tollgate_upstream_token_expiry_timestamp_seconds', {
    across: 'min',
    meaning: 'Unix time at which the current token of an upstream with `auth` expires.',
    labels,
  });
  const fetches = catalogue.counter('tollgate_upstream_token_fetches_total', {
    meaning: 'Token fetches for upstreams with `auth`, by result.',
    labels: { ...labels, result: '`ok`, `failed`' },
  });
  return {
    add(upstream: string): void {
      for (const result of ['ok', 'failed']) fetches.inc({ upstream, result }, 0);
    },
    onFetched: (upstream: string) => fetches.inc({ upstream, result: 'ok' }),
    /** @param token the one in force; times in Unix milliseconds */
    show(upstream: string, token: { readonly fetchedAt: number; readonly expiresAt: number }): void {
      fetchedAt.set({ upstream }, Math.floor(token.fetchedAt / 1000));
      expiresAt.set({ upstream }, Math.floor(token.expiresAt / 1000));
    },
    onFailed: (upstream: string) => fetches.inc({ upstream, result: 'failed' }),
    remove(upstream: string): void {
      fetchedAt.remove({ upstream });
      expiresAt.remove({ upstream });
    },
  };
}
