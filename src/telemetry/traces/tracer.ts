// What the gateway tells a tracer, and the tracer that does nothing. Names of OpenTelemetry are in otlp-tracer.ts, which is loaded
// only where traces are configured; without it a request has no span, and nothing is made or called for it.

import type { IncomingHttpHeaders } from 'node:http';
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import type { Tokens } from '../../wire/token-usage.ts';

/** What an upstream is told of the trace (W3C Trace Context). */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

/** The head of a request, as Node has it. */
export interface RequestHead {
  readonly method?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly httpVersion: string;
}

export interface Tracing {
  /**
   * A request begins. It continues the client's trace where `traceparent` is sound, and begins one otherwise.
   * @returns undefined where nothing is traced
   */
  begin(request: RequestHead): RequestSpan | undefined;
  /** Sends what waits, within a bound, and ends. Never rejects. */
  close(): Promise<void>;
}

export interface RequestSpan {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** A request to an upstream begins. */
  attempt(start: AttemptStart): AttemptSpan;
  /** To be called once. */
  end(end: RequestEnd): void;
}

export interface AttemptStart {
  /** Name in the configuration. */
  readonly upstream: string;
  readonly provider: string;
  /** What the upstream is asked for, without keys that somebody put there. */
  readonly model: string;
  readonly stream: boolean;
  readonly endpoint: EndpointName;
  /** Host and port of the upstream; undefined where it is in this process. */
  readonly server: { readonly address: string; readonly port: number } | undefined;
  /** 1 is the first one of its request. */
  readonly number: number;
}

export interface AttemptSpan extends TraceContext {
  /** The first output came. */
  firstOutput(): void;
  /** To be called once. */
  end(end: AttemptEnding): void;
}

export interface AttemptEnding {
  /** `ok`, `superseded` or an error code. */
  readonly outcome: string;
  /** Of the upstream's answer; undefined when there was none. */
  readonly status: number | undefined;
  /** What the upstream says that it used. */
  readonly usage: Tokens | null;
}

export interface RequestEnd {
  /** Its path in the router: never what the client wrote. */
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
