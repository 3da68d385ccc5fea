// Metrics of upstreams: attempts, what came beyond the first, breakers, broken streams.
import { type MetricCatalogue, VALUES } from './metric-catalogue.ts';
import { DURATION_BUCKETS } from './traffic-metrics.ts';

/** As the gauge shows them. */
const STATES = { closed: 0, half_open: 1, open: 2 } as const;
type ShownState = keyof typeof STATES;

export function upstreamMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Upstreams');
  const upstreamAttempts = catalogue.counter({
    name: 'tollgate_upstream_attempts_total',
    meaning:
      'Requests sent to upstreams, by how each ended: ok, client_closed, superseded (another one of the same request answered) or an error code.',
    labels: { upstream: VALUES.upstream, outcome: `${VALUES.outcome}; \`superseded\`` },
    action:
      '`upstream_auth_error`: the credential is wrong or has ended, act at once. `upstream_account_error`: the account there is unpaid or out of quota. `upstream_tls`: its certificate. `upstream_rate_limited`: your quota there is used up.',
  });
  const upstreamSeconds = catalogue.cellHistogram({
    name: 'tollgate_upstream_duration_seconds',
    meaning: 'Requests sent to upstreams: from when they were sent to the end of the answer.',
    labels: { upstream: VALUES.upstream, result: '`ok`, `failed` (for whatever reason)' },
    buckets: DURATION_BUCKETS,
    action:
      'High for `failed`: deadlines are used up. Lower `timeouts`, so that the next target is asked sooner.',
  });
  const breakerState = catalogue.gauge({
    name: 'tollgate_upstream_breaker_state',
    across: 'max',
    meaning:
      'Circuit breakers that have opened at least once: 0 closed, 1 half open, 2 open. Of the models of one pattern, the worst.',
    labels: { upstream: VALUES.upstream, model: 'a target’s `model` as it is configured, patterns included' },
    action: '2: the upstream fails and is left alone. Its errors are in `tollgate_upstream_attempts_total`.',
  });
  return {
    upstreamAttempts,
    upstreamSeconds,
    breakerState,
    breakers: new BreakerSeries(breakerState),
    upstreamInFlight: catalogue.gauge({
      name: 'tollgate_upstream_in_flight',
      meaning: 'Requests that an upstream is working on.',
      labels: { upstream: VALUES.upstream },
      action: 'Near `max_concurrency`: the next requests go elsewhere or are refused with `upstream_busy`.',
    }),
    upstreamHealthy: catalogue.gauge({
      name: 'tollgate_upstream_healthy',
      across: 'min',
      meaning: 'What the active health checks found, where `health` is configured: 1 healthy, 0 not.',
      labels: { upstream: VALUES.upstream },
      action: '0: it is asked last. See whether its `health.path` answers.',
    }),
    upstreamTokens: tokenMetrics(catalogue),
    extraAttempts: catalogue.counter({
      name: 'tollgate_upstream_extra_attempts_total',
      meaning:
        'Upstream requests beyond the first of a request: fallback (another target), retry (a second round), resend (a kept connection was closed), token (with a new token, after a 401), hedge (beside a silent first).',
      labels: { upstream: VALUES.upstream, reason: '`fallback`, `retry`, `resend`, `token`, `hedge`' },
      action: 'Fallbacks that go on: the first target is not well, or its weight is too high.',
    }),
    upstreamUnsolicited: catalogue.counter({
      name: 'tollgate_upstream_unsolicited_bytes_total',
      meaning:
        'Connections that were closed because the upstream sent bytes that answer no request: idle (while none was under way), unsent (before the next request was written), surplus (behind a complete answer), farewell (a 408 before it closes an idle connection, which is no fault).',
      labels: { upstream: VALUES.upstream, kind: '`idle`, `unsent`, `surplus`, `farewell`' },
      action:
        'Any but `farewell`: answers may reach the wrong request. Tell the vendor, or look for a proxy in between that mixes answers up; connections are not kept meanwhile.',
    }),
    retryBudgetRefusals: catalogue.counter({
      name: 'tollgate_retry_budget_refusals_total',
      meaning: 'Attempts that were not made because `retry.budget` was used up.',
      labels: {},
      action:
        'Any: so much fails that retrying would add to the load. Mend the upstream; do not raise the budget first.',
    }),
    hedges: catalogue.counter({
      name: 'tollgate_hedges_total',
      meaning:
        'Second requests beside a silent first, by result: won (it answered the client), lost (the first did), failed, stopped (nobody waited any more).',
      labels: { result: '`won`, `lost`, `failed`, `stopped`' },
      action: 'Mostly lost: `hedge.after` is too short and costs for nothing.',
    }),
    usageReads: {
      running: catalogue
        .gauge({
          name: 'tollgate_usage_reads',
          meaning:
            'Upstreams that are read on for their usage, at most for 5 s, after the client has left at the end of its answer.',
          labels: {},
          action:
            'Saturation, at 256: the use of more is estimated. Many clients leave before their answers end.',
        })
        .cell({}),
      results: catalogue.counter({
        name: 'tollgate_usage_reads_total',
        meaning:
          'Upstreams that were read on for their usage after the client had left: reported (it came), missing (it did not in time), refused (too many were read).',
        labels: { result: '`reported`, `missing`, `refused`' },
        action: '`missing`: the upstream reports no usage, or late. What was used is estimated then.',
      }),
    },
    streamsBroken: catalogue.counter({
      name: 'tollgate_streams_broken_total',
      meaning: 'Streams that ended before they were complete, after something was sent to the client.',
      labels: { upstream: VALUES.upstream, cause: 'an error code' },
      action:
        '`stream_incomplete`: the upstream or something before it cuts connections. `client_closed` is the client’s own. `draining`: `drain.timeout` is shorter than answers are.',
    }),
  };
}

interface StateGauge {
  set(labels: { upstream: string; model: string }, value: number): void;
  remove(labels: { upstream: string; model: string }): void;
}

/**
 * The states of breakers, by the model as it is configured. Where that is a pattern, clients name the models behind it: they
 * share one series, which shows the worst.
 */
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

  /** Nothing is remembered of this model any more. */
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
  const fetchedAt = catalogue.gauge({
    name: 'tollgate_upstream_token_fetched_timestamp_seconds',
    across: 'min',
    meaning: 'When the present token of an upstream with `auth` was fetched; Unix time.',
    labels,
    action: 'Its age is `time()` minus this.',
  });
  const expiresAt = catalogue.gauge({
    name: 'tollgate_upstream_token_expiry_timestamp_seconds',
    across: 'min',
    meaning: 'When the present token of an upstream with `auth` expires; Unix time.',
    labels,
    action:
      'Less than a minute ahead: renewals fail. See `tollgate_upstream_token_fetches_total` and the log.',
  });
  const fetches = catalogue.counter({
    name: 'tollgate_upstream_token_fetches_total',
    meaning: 'Fetches of tokens for upstreams with `auth`.',
    labels: { ...labels, result: '`ok`, `failed`' },
    action:
      '`failed`: the log says why; `tollgate check --credentials` tries it. The present token serves until it expires.',
  });
  return {
    add(upstream: string): void {
      for (const result of ['ok', 'failed']) fetches.inc({ upstream, result }, 0);
    },
    onFetched(upstream: string, expiry: number): void {
      fetches.inc({ upstream, result: 'ok' });
      fetchedAt.set({ upstream }, Math.floor(Date.now() / 1000));
      expiresAt.set({ upstream }, Math.floor(expiry / 1000));
    },
    onFailed: (upstream: string) => fetches.inc({ upstream, result: 'failed' }),
    remove(upstream: string): void {
      fetchedAt.remove({ upstream });
      expiresAt.remove({ upstream });
    },
  };
}
