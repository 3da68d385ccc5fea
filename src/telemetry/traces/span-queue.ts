// The export queue of spans: bounded, exported in batches with a deadline, each span counted by result. Requests do not wait for it.
import type { Context } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import {
  BatchSpanProcessor,
  type ReadableSpan,
  type Span,
  type SpanExporter,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace';
import type { Logger } from '../log/logger.ts';
import type { TraceSettings } from './trace-settings.ts';

export interface SpanCounter {
  inc(labels: { result: 'exported' | 'failed' | 'dropped' }, by: number): void;
}

type Export = SpanExporter['export'];

/** Minimum interval of log lines about failed exports. */
const LOG_EVERY_MS = 60_000;
/** Maximum concurrent exports; only shutdown has several. */
const MAX_EXPORTS = 8;

export function spanQueue(settings: TraceSettings, counter: SpanCounter, logger: Logger): SpanProcessor {
  const { url, headers, timeoutMs } = settings;
  const exporter = new OTLPTraceExporter({
    url,
    headers: { ...headers },
    timeoutMillis: timeoutMs,
    concurrencyLimit: MAX_EXPORTS,
  });
  return new SpanQueue(exporter, settings, counter, logger);
}

class SpanQueue implements SpanProcessor {
  readonly #inner: BatchSpanProcessor;
  readonly #max: number;
  readonly #counter: SpanCounter;
  readonly #logger: Logger;
  readonly #host: string;
  /** Finished spans, including those being exported. The package's own bound excludes these and counts no drops. */
  #waiting = 0;
  #failed = 0;
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(
    exporter: SpanExporter,
    { batch, timeoutMs, url }: TraceSettings,
    counter: SpanCounter,
    logger: Logger,
  ) {
    this.#counter = counter;
    this.#logger = logger;
    this.#max = batch.maxQueue;
    this.#host = new URL(url).host;
    this.#inner = new BatchSpanProcessor({
      exporter: {
        export: (spans, done) => this.#export(exporter, spans, done),
        shutdown: () => exporter.shutdown(),
      },
      maxQueueSize: batch.maxQueue,
      maxExportBatchSize: Math.min(batch.maxBatch, batch.maxQueue),
      scheduledDelayMillis: batch.delayMs,
      // A safeguard: the exporter has its own deadline.
      exportTimeoutMillis: 2 * timeoutMs,
    });
  }

  onStart(span: Span, parent: Context): void {
    this.#inner.onStart(span, parent);
  }

  onEnd(span: ReadableSpan): void {
    if (this.#waiting >= this.#max) {
      this.#counter.inc({ result: 'dropped' }, 1);
      return;
    }
    this.#waiting += 1;
    this.#inner.onEnd(span);
  }

  forceFlush(): Promise<void> {
    return this.#inner.forceFlush();
  }

  shutdown(): Promise<void> {
    return this.#inner.shutdown();
  }

  #export(exporter: SpanExporter, spans: Parameters<Export>[0], done: Parameters<Export>[1]): void {
    exporter.export(spans, (result) => {
      this.#waiting -= spans.length;
      // 0 is `ExportResultCode.SUCCESS`.
      const isExported = result.code === 0;
      this.#counter.inc({ result: isExported ? 'exported' : 'failed' }, spans.length);
      if (!isExported) this.#logFailure(spans.length, result.error);
      done(result);
    });
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
