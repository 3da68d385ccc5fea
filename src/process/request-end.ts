// What is left of a request when it has ended: a line of the access log, the counters, the end of the span.
import type { Exchange } from '../http/exchange.ts';
import type { AccessLog, AccessRecord } from '../telemetry/access-log.ts';
import type { Metrics } from '../telemetry/metrics.ts';

/** To be called once for each exchange, when its answer or its connection has ended. */
export function recordEnd(exchange: Exchange, log: AccessLog, metrics: Metrics): void {
  const { access, request, response, stopReason, error } = exchange;
  const status = stopReason?.code === 'client_closed' ? stopReason.status : response.statusCode;
  const line: AccessRecord = {
    request_id: exchange.id,
    method: request.method ?? '',
    status,
    duration_ms: Math.round(exchange.elapsed),
    ...access,
    outcome: stopReason?.code ?? access.outcome ?? 'ok',
  };
  log.write(line, error?.cause);
  const { outcome = 'ok' } = line;
  exchange.span?.end({ route: access.route, status, outcome, requestId: exchange.id });
  metrics.recordRequest({
    route: access.route,
    status,
    model: exchange.entry,
    upstream: access.upstream,
    outcome,
    seconds: exchange.elapsed / 1000,
  });
}
