// The export queue of spans: bounded, exported in batches with a deadline, each span counted by result. Requests do not wait for it.
import type { Agent } from 'node:http';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';
import type { TlsConfig } from '../../config/schema/outbound-schema.ts';
import type { Logger } from '../log/logger.ts';
import type { TraceSettings } from './trace-settings.ts';

/** @param tls certificates that win over those of the configuration */
export type AgentFactory = (isTls: boolean, tls: TlsConfig | undefined) => Agent;

export interface SpanCounter {
  inc(labels: { result: 'exported' | 'failed' | 'dropped' }, by: number): void;
}

type ExportResult = Parameters<Parameters<SpanExporter['export']>[1]>[0];

/** Minimum interval of log lines about failed exports. */
const LOG_EVERY_MS = 60_000;
/** Maximum concurrent exports; only shutdown has several. */
const MAX_EXPORTS = 8;

/** Counts each span once, and drops spans beyond the bound, which the package would neither count nor include exports in. */
export class SpanQueue extends BatchSpanProcessor {
  readonly #max: number;
  readonly #counter: SpanCounter;
  readonly #logger: Logger;
  readonly #host: string;
  /** Finished spans, including those being exported. */
  #waiting = 0;
  #failed = 0;
  #loggedAt = Number.NEGATIVE_INFINITY;

  /** @param agent for the connections to the collector */
  constructor(
    { batch, timeoutMs, url, headers, tls }: TraceSettings,
    counter: SpanCounter,
    logger: Logger,
    agent: AgentFactory,
  ) {
    const exporter = new OTLPTraceExporter({
      url,
      headers: { ...headers },
      timeoutMillis: timeoutMs,
      concurrencyLimit: MAX_EXPORTS,
      httpAgentOptions: (protocol) => agent(protocol === 'https:', tls),
    });
    super({
      exporter: {
        export: (spans, done) =>
          exporter.export(spans, (result) => {
            this.#exported(spans.length, result);
            done(result);
          }),
        shutdown: () => exporter.shutdown(),
      },
      maxQueueSize: batch.maxQueue,
      maxExportBatchSize: Math.min(batch.maxBatch, batch.maxQueue),
      scheduledDelayMillis: batch.delayMs,
      // A safeguard: the exporter has its own deadline.
      exportTimeoutMillis: 2 * timeoutMs,
    });
    this.#counter = counter;
    this.#logger = logger;
    this.#max = batch.maxQueue;
    this.#host = new URL(url).host;
  }

  override onEnd(span: ReadableSpan): void {
    if (this.#waiting >= this.#max) {
      this.#counter.inc({ result: 'dropped' }, 1);
      return;
    }
    this.#waiting += 1;
    super.onEnd(span);
  }

  #exported(spans: number, { code, error }: ExportResult): void {
    this.#waiting -= spans;
    // 0 is `ExportResultCode.SUCCESS`.
    this.#counter.inc({ result: code === 0 ? 'exported' : 'failed' }, spans);
    if (code !== 0) this.#logFailure(spans, error);
  }

  #logFailure(spans: number, error: Error | undefined): void {
    this.#failed += spans;
    const now = performance.now();
    if (now - this.#loggedAt < LOG_EVERY_MS) return;
    this.#loggedAt = now;
    this.#logger.warn(
      { host: this.#host, spans: this.#failed, cause: causeOf(error) },
      'failed to export spans; they are lost',
    );
    this.#failed = 0;
  }
}

/** The error code if there is one, else the message. */
function causeOf(error: Error | undefined): string {
  if (error === undefined) return 'unknown';
  const code: unknown = Reflect.get(error, 'code');
  return typeof code === 'string' || typeof code === 'number' ? String(code) : error.message.slice(0, 200);
}
