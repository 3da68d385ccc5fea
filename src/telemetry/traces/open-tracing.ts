// Turns tracing on. OpenTelemetry is loaded only when the environment names an endpoint.
import type { Logger } from '../log/logger.ts';
import type { Metrics } from '../metrics/all-metrics.ts';
import type { AgentFactory } from './span-queue.ts';
import { readTraceSettings } from './trace-settings.ts';
import { NO_TRACING, type Tracing } from './tracer.ts';

interface TracingOptions {
  readonly version: string;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'traceSpans'>;
  /** For the connections to the collector. */
  readonly agent: AgentFactory;
}

/** @param env OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT turns tracing on */
export async function openTracing(
  env: Readonly<Record<string, string | undefined>>,
  parts: TracingOptions,
): Promise<Tracing> {
  const { settings, warnings } = readTraceSettings(env);
  for (const warning of warnings) parts.logger.warn(warning);
  if (settings === undefined) return NO_TRACING;
  const { startOtlp } = await import('./otlp-tracer.ts');
  return startOtlp(settings, parts);
}
