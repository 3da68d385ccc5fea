// Metrics of the public listener: requests by route and how they ended, connections.

import { type MetricCatalogue, VALUES } from './metric-catalogue.ts';
import { ByLabel } from './metric-children.ts';

/** Seconds; the OpenTelemetry GenAI buckets for operation duration. */
export const DURATION_BUCKETS = [
  0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
] as const;

/** One request that has ended. */
export interface EndedRequest {
  /** Its path in the router; undefined where there is none. */
  readonly route: string | undefined;
  readonly status: number;
  /** The entry of the routing table, or `unknown`; undefined when no model was read. */
  readonly model: string | undefined;
  readonly upstream: string | undefined;
  /** `ok` or an error code. */
  readonly outcome: string;
  readonly seconds: number;
}

export function trafficMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Requests');
  const requests = catalogue.counter({
    name: 'tollgate_requests_total',
    meaning: 'Requests answered, by route and status. Status 499: the client left first.',
    labels: { route: VALUES.route, status: 'HTTP status' },
    action:
      'Traffic. A rise of 5xx or 406: see `tollgate_request_outcomes_total` for the reason; of 401: keys that ended, or guesses; of 429: limits of tiers, or upstreams that are full.',
  });
  const outcomes = catalogue.counter({
    name: 'tollgate_request_outcomes_total',
    meaning: 'Requests by route, model, upstream that answered (or was asked last) and how they ended.',
    labels: {
      route: VALUES.route,
      model: VALUES.modelOrNone,
      upstream: VALUES.upstreamOrNone,
      outcome: VALUES.outcome,
    },
    action: 'Errors. Look the code up in [errors.md](errors.md): it says whose fault it is and what helps.',
  });
  const seconds = catalogue.cellHistogram({
    name: 'tollgate_request_duration_seconds',
    meaning: 'From the request line to the last byte of the answer.',
    labels: { route: VALUES.route },
    buckets: DURATION_BUCKETS,
    action:
      'Latency, streams in full length. Compare with `tollgate_upstream_duration_seconds`: what is not the upstream is the gateway, its store or Redis.',
  });
  const routes = new ByLabel((route) => ({
    seconds: seconds.cell({ route }),
    statuses: new ByLabel((status) => requests.cell({ route, status })),
    models: new ByLabel(
      (model) =>
        new ByLabel(
          (upstream) => new ByLabel((outcome) => outcomes.cell({ route, model, upstream, outcome })),
        ),
    ),
  }));
  return {
    requests,
    /** Counts what was answered and never became a request. */
    recordUnread(route: 'malformed' | 'none', { status, code }: { status: number; code: string }): void {
      requests.inc({ route, status });
      outcomes.inc({ route, model: 'none', upstream: 'none', outcome: code });
    },
    /** Counts a request when it has ended. */
    recordRequest(request: EndedRequest): void {
      const { route = 'none', status, model = 'none', upstream = 'none', outcome, seconds: took } = request;
      const series = routes.of(route);
      series.statuses.of(String(status)).inc();
      series.models.of(model).of(upstream).of(outcome).inc();
      series.seconds.observe(took);
    },
    requestsInFlight: catalogue.gauge({
      name: 'tollgate_requests_in_flight',
      meaning: 'Requests that have begun and not ended.',
      labels: {},
      action:
        'Saturation. When it grows and traffic does not, answers take longer, or clients do not read them.',
    }),
    connections: catalogue.gauge({
      name: 'tollgate_connections',
      meaning: 'Open client connections on the public listener.',
      labels: {},
      action: 'Saturation. Beyond the bound connections are refused; add replicas, or see who opens so many.',
    }),
    connectionsDropped: catalogue.counter({
      name: 'tollgate_connections_dropped_total',
      meaning: 'Connections refused because as many as allowed were open.',
      labels: {},
      action: 'Any: clients cannot connect. Add replicas.',
    }),
  };
}
