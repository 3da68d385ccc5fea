// The tracer interface, and the no-op tracer. otlp-tracer.ts implements it with OpenTelemetry and is loaded only when tracing is
// configured; otherwise requests have no spans.

import type { IncomingHttpHeaders } from 'node:http';
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import type { Tokens } from '../../wire/token-usage.ts';

/** The trace headers for an upstream (W3C Trace Context). */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

/** The part of Node's request that a tracer reads. */
export interface RequestHead {
  readonly method?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly httpVersion: string;
}

export interface Tracing {
  /**
   * Starts the span of a request, in the client's trace if its `traceparent` is valid, else in a new one.
   * @returns undefined when tracing is off
   */
  begin(request: RequestHead): RequestSpan | undefined;
  /** Exports the queued spans, within a deadline, and stops. Never rejects. */
  close(): Promise<void>;
}

export interface RequestSpan {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** Starts the span of an upstream request. */
  attempt(start: AttemptStart): AttemptSpan;
  /** Call it once. */
  end(end: RequestEnd): void;
}

export interface AttemptStart {
  /** Name in the configuration. */
  readonly upstream: string;
  readonly provider: string;
  /** The requested model, with keys masked. */
  readonly model: string;
  readonly stream: boolean;
  readonly endpoint: EndpointName;
  /** Host and port of the upstream; undefined for a built-in one. */
  readonly server: { readonly address: string; readonly port: number } | undefined;
  /** From 1, per request. */
  readonly number: number;
}

export interface AttemptSpan extends TraceContext {
  /** Records the first output. */
  firstOutput(): void;
  /** Call it once. */
  end(end: AttemptEnding): void;
}

export interface AttemptEnding {
  /** `ok`, `superseded` or an error code. */
  readonly outcome: string;
  /** Status of the upstream's response; undefined without one. */
  readonly status: number | undefined;
  /** The usage that the upstream reported. */
  readonly usage: Tokens | null;
}

export interface RequestEnd {
  /** Its path in the router, never client input. */
  readonly route: string | undefined;
  readonly status: number;
  /** `ok` or an error code. */
  readonly outcome: string;
  readonly requestId: string;
}

export const NO_TRACING: Tracing = {
  begin: () => undefined,
  close: () => Promise.resolve(),
};
