// Metrics of the public listener: requests, connections, uploads, realtime sessions.

import { type MetricCatalogue, VALUES } from './metric-catalogue.ts';
import { ByLabel } from './metric-children.ts';

/** In seconds: the buckets of OpenTelemetry's GenAI conventions for operation duration. */
export const DURATION_BUCKETS = [
  0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
] as const;

const FAILED_STATUSES = ['406', '500', '502', '503', '504'] as const;

export interface EndedRequest {
  /** Its path in the router; undefined without a route. */
  readonly route: string | undefined;
  readonly status: number;
  /** The entry of the route table, or `unknown`; undefined when no model was read. */
  readonly model: string | undefined;
  readonly upstream: string | undefined;
  /** `ok` or an error code. */
  readonly outcome: string;
  readonly seconds: number;
}

export function trafficMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Requests');
  const requests = catalogue.counter('tollgate_requests_total', {
    meaning: 'Requests by route and status. Status 499: the client disconnected first.',
    labels: { route: VALUES.route, status: 'HTTP status' },
  });
  const outcomes = catalogue.counter('tollgate_request_outcomes_total', {
    meaning: 'Requests by route, model, upstream (that answered, or was tried last) and outcome.',
    labels: {
      route: VALUES.route,
      model: VALUES.modelOrNone,
      upstream: VALUES.upstreamOrNone,
      outcome: VALUES.outcome,
    },
  });
  const seconds = catalogue.childHistogram('tollgate_request_duration_seconds', {
    meaning: 'From the request line to the last byte of the response.',
    labels: { route: VALUES.route },
    buckets: DURATION_BUCKETS,
  });
  const routes = new ByLabel((route) => ({
    seconds: seconds.child({ route }),
    statuses: new ByLabel((status) => requests.child({ route, status })),
    models: new ByLabel(
      (model) =>
        new ByLabel(
          (upstream) => new ByLabel((outcome) => outcomes.child({ route, model, upstream, outcome })),
        ),
    ),
  }));
  return {
    requests,
    /** Begins the counters of failed requests to a route at 0, for alerts on a first burst. */
    addRoute(route: string): void {
      for (const status of FAILED_STATUSES) requests.inc({ route, status }, 0);
    },
    /** Counts a rejection of bytes that did not become a request. */
    recordUnread(route: 'malformed' | 'none', { status, code }: { status: number; code: string }): void {
      requests.inc({ route, status });
      outcomes.inc({ route, model: 'none', upstream: 'none', outcome: code });
    },
    /** Counts a finished request. */
    recordRequest(request: EndedRequest): void {
      const { route = 'none', status, model = 'none', upstream = 'none', outcome, seconds: took } = request;
      const series = routes.of(route);
      series.statuses.of(String(status)).inc();
      series.models.of(model).of(upstream).of(outcome).inc();
      series.seconds.observe(took);
    },
    requestsInFlight: catalogue.gauge('tollgate_requests_in_flight', { meaning: 'Requests in flight.' }),
    connections: catalogue.gauge('tollgate_connections', {
      meaning: 'Open client connections on the public listener, also those whose TLS handshake is running.',
    }),
    connectionsDropped: catalogue.counter('tollgate_connections_dropped_total', {
      meaning: 'Connections refused at the connection limit.',
    }),
  };
}

export function tlsMetrics(catalogue: MetricCatalogue) {
  catalogue.area('TLS');
  const expiry = catalogue.gauge('tollgate_tls_certificate_expiry_timestamp_seconds', {
    across: 'min',
    meaning:
      'Unix time at which the certificate of the public listener expires. Absent without `listen.tls`.',
  });
  const failures = catalogue.counter('tollgate_tls_handshake_failures_total', {
    meaning:
      'Connections to the public listener that ended before their TLS handshake was complete, by cause.',
    labels: {
      cause:
        '`failed` (no common version or cipher, a client that does not trust the certificate, or one that left), `timeout`, `plain_http`',
    },
  });
  return { expiry, failures };
}

export function uploadMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Uploads');
  return {
    uploadFiles: catalogue.gaugeChild('tollgate_upload_files', {
      meaning: 'Uploads in temporary files, because their `model` field follows a large file.',
    }),
    uploadFileBytes: catalogue.gaugeChild('tollgate_upload_file_bytes', {
      meaning: 'Bytes in the temporary files of uploads.',
    }),
    slabBytes: catalogue.gaugeChild('tollgate_body_memory_bytes', {
      meaning: 'Memory pooled for large bodies; released after ten seconds without use.',
    }),
  };
}

export function realtimeMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Realtime');
  return {
    realtimeSessions: catalogue.gauge('tollgate_realtime_sessions', { meaning: 'Open realtime sessions.' }),
    responsesSockets: catalogue.gauge('tollgate_responses_websockets', {
      meaning: 'Open WebSockets for responses.',
    }),
    realtimeEnds: catalogue.counter('tollgate_realtime_sessions_ended_total', {
      meaning: 'Ended realtime sessions, by the side that closed first and the close code.',
      labels: {
        by: '`client`, `upstream`, `gateway`',
        code: 'a close code from 1000 to 1015; `other` for all others',
      },
    }),
    realtimeResponses: catalogue.counter('tollgate_realtime_responses_total', {
      meaning: 'Responses in realtime sessions, by the source of their token counts.',
      labels: { counted: '`reported`, `estimated`' },
    }),
  };
}
