// Metrics of upstreams: attempts, extra attempts, breakers, tokens, broken streams.
import { type MetricCatalogue, VALUES } from './metric-catalogue.ts';
import { DURATION_BUCKETS } from './traffic-metrics.ts';

/** Values of the gauge. */
const STATES = { closed: 0, half_open: 1, open: 2 } as const;
type ShownState = keyof typeof STATES;

export function upstreamMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Upstreams');
  const upstreamAttempts = catalogue.counter('tollgate_upstream_attempts_total', {
    meaning: 'Upstream requests, by outcome.',
    labels: {
      upstream: VALUES.upstream,
      outcome: `${VALUES.outcome}; \`superseded\`: another attempt answered`,
    },
    action:
      '`upstream_auth_error`: the credential is wrong or expired; act at once. `upstream_account_error`: the account is unpaid or out of quota. `upstream_tls`: check the certificate. `upstream_proxy_denied`, `upstream_proxy_error`: check the outbound proxy. `upstream_rate_limited`: your rate limit is reached.',
  });
  const upstreamSeconds = catalogue.childHistogram('tollgate_upstream_duration_seconds', {
    meaning: 'Upstream requests: from sending to the end of the response.',
    labels: { upstream: VALUES.upstream, result: '`ok`, `failed`' },
    buckets: DURATION_BUCKETS,
    action: 'High for `failed`: deadlines pass. Lower `timeouts`, so that the next target is tried sooner.',
  });
  const breakerState = catalogue.gauge('tollgate_upstream_breaker_state', {
    across: 'max',
    meaning:
      'State of circuit breakers that have opened before: 0 closed, 1 half open, 2 open; for a pattern, the worst of its models.',
    labels: { upstream: VALUES.upstream, model: '`model` of a target as configured, including patterns' },
    action: '2: the upstream fails and gets no requests. `tollgate_upstream_attempts_total` has its errors.',
  });
  return {
    upstreamAttempts,
    upstreamSeconds,
    breakerState,
    breakers: new BreakerSeries(breakerState),
    upstreamInFlight: catalogue.gauge('tollgate_upstream_in_flight', {
      meaning: 'Requests in flight to an upstream.',
      labels: { upstream: VALUES.upstream },
      action: 'Near `max_concurrency`: further requests go to other targets or fail with `upstream_busy`.',
    }),
    upstreamHealthy: catalogue.gauge('tollgate_upstream_healthy', {
      across: 'min',
      meaning: 'Result of the active health checks of `health`: 1 healthy, 0 not.',
      labels: { upstream: VALUES.upstream },
      action: '0: its targets are tried last. Check its `health.path`.',
    }),
    upstreamTokens: tokenMetrics(catalogue),
    upstreamCertificateExpiry: catalogue.gauge(
      'tollgate_upstream_client_certificate_expiry_timestamp_seconds',
      {
        across: 'min',
        meaning: 'Unix time at which the client certificate (`tls.cert`) for an upstream expires.',
        labels: { upstream: VALUES.upstream },
        action:
          'Less than a week ahead: replace its files. Once it has expired, the upstream answers `upstream_tls`.',
      },
    ),
    extraAttempts: catalogue.counter('tollgate_upstream_extra_attempts_total', {
      meaning: 'Upstream requests beyond the first of a request, by reason.',
      labels: {
        upstream: VALUES.upstream,
        reason:
          '`fallback` (another target), `retry` (another round), `resend` (after a stale connection), `token` (new token after a 401), `hedge` (beside a silent first)',
      },
      action: 'Continuing `fallback`: the first target fails, or its weight is too high.',
    }),
    fallbacks: catalogue.counter('tollgate_fallbacks_total', {
      meaning:
        'Requests that went to another target because of the reason for which one rejected them. Part of the `fallback` attempts.',
      labels: {
        upstream: 'the one that rejected the request',
        reason: '`context_length_exceeded`, `content_filter`, `rate_limited`, `insufficient_quota`',
      },
      action:
        '`context_length_exceeded` for much of the traffic: each such request pays a round trip; put the model with the larger context first. `insufficient_quota`: top up the account.',
    }),
    affinity: catalogue.counter('tollgate_affinity_total', {
      meaning: 'First choices of a target with `balance: affinity`.',
      labels: {
        result:
          '`sticky` (the target of its key), `overflow` (another one, because that has more than its share of the load), `moved` (another one, because that is not available), `maker` (the one that made the encrypted content of the request)',
      },
      action:
        'Much `overflow`: many requests have the same key; give them different `prompt_cache_key` or session headers. `moved`: look at the breakers.',
    }),
    upstreamUnsolicited: catalogue.counter('tollgate_upstream_unsolicited_bytes_total', {
      meaning: 'Connections closed because the upstream sent bytes that answer no request.',
      labels: {
        upstream: VALUES.upstream,
        kind: '`idle` (on an idle connection), `unsent` (before the request was written), `surplus` (after a complete response), `farewell` (a 408 before closing, which is no fault)',
      },
      action:
        'Any but `farewell`: responses may reach the wrong request. Tell the vendor, or find the proxy that mixes them up; connections are not reused meanwhile.',
    }),
    retryBudgetRefusals: catalogue.counter('tollgate_retry_budget_refusals_total', {
      meaning: 'Attempts not made because `retry.budget` was used up.',
      action:
        'Any: so many requests fail that retries would add load. Repair the upstream before you raise the budget.',
    }),
    hedges: catalogue.counter('tollgate_hedges_total', {
      meaning: 'Hedge requests, by result.',
      labels: {
        result: '`won` (it answered), `lost` (the first did), `failed`, `stopped` (the client left)',
      },
      action: 'Mostly `lost`: `hedge.after` is too short and costs without benefit.',
    }),
    usageReads: {
      running: catalogue.gaugeChild('tollgate_usage_reads', {
        meaning: 'Responses read for their usage after the client left, for 5 s at most.',
        action:
          'At 256: the usage of further ones is estimated. Many clients leave before their responses end.',
      }),
      results: catalogue.counter('tollgate_usage_reads_total', {
        meaning: 'Responses read for their usage after the client left, by result.',
        labels: { result: '`reported`, `missing` (not in time), `refused` (too many at once)' },
        action: '`missing`: the upstream reports no usage, or reports it late; it is estimated.',
      }),
    },
    streamsBroken: catalogue.counter('tollgate_streams_broken_total', {
      meaning: 'Streams that broke after their first output.',
      labels: { upstream: VALUES.upstream, cause: 'an error code' },
      action:
        '`stream_incomplete`: the upstream or a proxy before it drops connections. `client_closed`: the client left. `draining`: `drain.timeout` is shorter than responses.',
    }),
  };
}

interface StateGauge {
  set(labels: { upstream: string; model: string }, value: number): void;
  remove(labels: { upstream: string; model: string }): void;
}

/** The breaker states by configured model. The models that match one pattern share a series, which has their worst state. */
export class BreakerSeries {
  readonly #gauge: StateGauge;
  /** Series → model → state. */
  readonly #states = new Map<string, Map<string, ShownState>>();

  constructor(gauge: StateGauge) {
    this.#gauge = gauge;
  }

  /** @param entry the target's model in the configuration */
  set(upstream: string, entry: string, model: string, state: ShownState): void {
    const key = JSON.stringify([upstream, entry]);
    const states = this.#states.get(key) ?? new Map<string, ShownState>();
    this.#states.set(key, states.set(model, state));
    this.#gauge.set({ upstream, model: entry }, worst(states));
  }

  /** Removes a model whose state was evicted. */
  forget(upstream: string, entry: string, model: string): void {
    const key = JSON.stringify([upstream, entry]);
    const states = this.#states.get(key);
    if (states === undefined || !states.delete(model)) return;
    if (states.size > 0) this.#gauge.set({ upstream, model: entry }, worst(states));
    else {
      this.#states.delete(key);
      this.#gauge.remove({ upstream, model: entry });
    }
  }
}

function worst(states: ReadonlyMap<string, ShownState>): number {
  return Math.max(...Array.from(states.values(), (state) => STATES[state]));
}

/** Tokens that the gateway fetches for upstreams with `auth`. */
function tokenMetrics(catalogue: MetricCatalogue) {
  const labels = { upstream: VALUES.upstream };
  const fetchedAt = catalogue.gauge('tollgate_upstream_token_fetched_timestamp_seconds', {
    across: 'min',
    meaning: 'Unix time at which the current token of an upstream with `auth` was fetched.',
    labels,
    action: 'Its age is `time()` minus this.',
  });
  const expiresAt = catalogue.gauge('tollgate_upstream_token_expiry_timestamp_seconds', {
    across: 'min',
    meaning: 'Unix time at which the current token of an upstream with `auth` expires.',
    labels,
    action:
      'Less than a minute ahead: renewal fails. See `tollgate_upstream_token_fetches_total` and the log.',
  });
  const fetches = catalogue.counter('tollgate_upstream_token_fetches_total', {
    meaning: 'Token fetches for upstreams with `auth`, by result.',
    labels: { ...labels, result: '`ok`, `failed`' },
    action:
      '`failed`: the log has the cause; `tollgate check --credentials` tries it. The current token serves until it expires.',
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
