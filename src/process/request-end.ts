// Records a finished request: access log line, metrics, end of the span.
import type { Exchange } from '../http/exchange/exchange.ts';
import { REJECTION_CODES } from '../proxy/targets/target-plan.ts';
import type { AccessLog } from '../telemetry/log/access-log.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

/** Outcomes of requests for which no upstream could be asked. */
const UNSERVED: ReadonlySet<string> = new Set(Object.values(REJECTION_CODES));

/** Call it once per exchange, when its response or its connection has ended. */
export function recordEnd(exchange: Exchange, log: AccessLog, metrics: Metrics): void {
  const { access, response, stopReason, error, route } = exchange;
  const status = stopReason?.code === 'client_closed' ? stopReason.status : response.statusCode;
  const outcome = stopReason?.code ?? access.outcome ?? 'ok';
  const { elapsed } = exchange;
  access.status = status;
  access.duration_ms = Math.round(elapsed);
  access.outcome = outcome;
  access.route = route;
  access.key_prefix = exchange.keyPrefix;
  access.model = exchange.model;
  access.stream = exchange.isStream;
  access.ttft_ms = exchange.firstOutputMs;
  log.write(access, error?.cause);
  exchange.span?.end({ route, status, outcome, requestId: exchange.id });
  // Whatever the request is: for a model, a session, a stored response, or without a model.
  if (access.upstream === undefined && UNSERVED.has(outcome)) metrics.unserved.inc({ outcome });
  metrics.recordRequest({
    route,
    status,
    model: exchange.entry,
    upstream: access.upstream,
    outcome,
    seconds: elapsed / 1000,
  });
}
