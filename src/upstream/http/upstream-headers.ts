// The headers of requests to one upstream: its credentials and defaults, what a request sets, and the client's headers that are forwarded.
import type { TraceContext } from '../../telemetry/traces/tracer.ts';
import {
  ALWAYS_FORWARDED,
  type ClientHeaders,
  FORWARDED_TRACE,
  type ForwardedHeaders,
} from './forwarded-headers.ts';

type Headers = Readonly<Record<string, string>>;

/** Headers that differ between requests. */
const OF_REQUESTS: ReadonlySet<string> = new Set([
  'content-type',
  'accept',
  'x-request-id',
  ...Object.values(ALWAYS_FORWARDED).flat(),
  ...FORWARDED_TRACE,
]);

/** What one request sets. */
export interface OwnHeaders {
  /** The accepted media types. */
  readonly accept: string;
  readonly requestId: string;
  /** Default: that of the upstream. */
  readonly contentType?: string | undefined;
  /** The span of this call; replaces the client's. */
  readonly trace?: TraceContext | undefined;
}

export class UpstreamHeaders {
  readonly #userAgent: string;
  #all: Headers = {};
  #common: Headers = {};
  /** The part that a request may override. */
  #defaults: Headers = {};

  /** @param userAgent header value */
  constructor(userAgent: string) {
    this.#userAgent = userAgent;
  }

  /** Those that no request overrides; the same object until the credentials change. */
  get common(): Headers {
    return this.#common;
  }

  /** Those of the gateway's own requests without a body. */
  get withoutBody(): Record<string, string> {
    const { 'content-type': _, ...headers } = this.#all;
    return headers;
  }

  /** @param own credentials and configured headers, which override the gateway's */
  replace(own: Headers): void {
    const all: Headers = {
      'content-type': 'application/json',
      // A compressed stream could not be spliced frame by frame.
      'accept-encoding': 'identity',
      'user-agent': this.#userAgent,
      ...own,
    };
    this.#all = all;
    const entries = Object.entries(all);
    this.#common = Object.fromEntries(entries.filter(([name]) => !OF_REQUESTS.has(name)));
    this.#defaults = Object.fromEntries(entries.filter(([name]) => OF_REQUESTS.has(name)));
  }

  /** @returns the headers of one request without the common ones */
  of(
    { accept, requestId, contentType, trace }: OwnHeaders,
    client: ClientHeaders,
    forwarded: ForwardedHeaders,
  ): Record<string, string> {
    const headers: Record<string, string> = { ...this.#defaults, accept, 'x-request-id': requestId };
    if (contentType !== undefined) headers['content-type'] = contentType;
    forwarded.copy(client, headers, trace === undefined);
    if (trace !== undefined) {
      headers['traceparent'] = trace.traceparent;
      if (trace.tracestate !== undefined) headers['tracestate'] = trace.tracestate;
    }
    return headers;
  }
}
