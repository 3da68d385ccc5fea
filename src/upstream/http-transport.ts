// HTTP/1.1 to one upstream over a bounded pool of kept connections, on undici. It knows sockets, framing and codings,
// not keys, routes or retries.
import type { LookupFunction } from 'node:net';
import type { Transform } from 'node:stream';
import { buildConnector, type Dispatcher, errors, Pool } from 'undici';
import { GatewayError } from '../errors.ts';
import { Connection, type Connector, UnusableAnswer, type Wire } from './connection.ts';
import { codingsOf, decoderFor, isKnownCoding } from './decoder.ts';
import { Resolver } from './resolver.ts';
import type { Call, Delivery, ResponseHeaders, Sink, Transport, UpstreamRequest } from './transport.ts';

export interface HttpTransportOptions {
  /** Scheme, host and port. */
  readonly origin: string;
  /** Milliseconds for name resolution, TCP and TLS together. */
  readonly connectTimeout: number;
  /** Most connections that may be open at once. */
  readonly connections: number;
  /** Finds the addresses of a name. Default: the system's resolver. */
  readonly lookup?: LookupFunction;
}

/** A resolver that needs longer than this is passed over, where addresses are known from before. */
const LOOKUP_PATIENCE_MS = 1_000;

const CLIENT_OPTIONS = {
  pipelining: 1,
  allowH2: false,
  // Deadlines belong to the attempt, which knows what it waits for; undici's own 300 s would cut long answers.
  headersTimeout: 0,
  bodyTimeout: 0,
  keepAliveTimeout: 10_000,
  keepAliveMaxTimeout: 60_000,
  maxRequestsPerClient: 1_000,
} as const;

export class HttpTransport implements Transport {
  readonly #origin: string;
  readonly #connector: Connector;
  readonly #pool: Pool;
  /** Connections of requests that had to have their own. */
  readonly #fresh = new Set<Connection>();

  constructor(options: HttpTransportOptions) {
    this.#origin = options.origin;
    const { connectTimeout, lookup } = options;
    const resolver = new Resolver({
      // The rest of the time is for the connection itself.
      patienceMs: Math.min(LOOKUP_PATIENCE_MS, connectTimeout / 3),
      ...(lookup === undefined ? {} : { lookup }),
    });
    this.#connector = buildConnector({
      timeout: connectTimeout,
      autoSelectFamily: true,
      allowH2: false,
      lookup: resolver.lookup,
    });
    this.#pool = new Pool(options.origin, {
      ...CLIENT_OPTIONS,
      connections: options.connections,
      // A pool never resolves a name again by itself: connections are replaced after a minute.
      clientTtl: 60_000,
      factory: () => this.#connection(),
    });
  }

  send(request: UpstreamRequest, sink: Sink): Call {
    const call = new HttpCall(sink);
    const { path, headers, body, method = 'POST' } = request;
    const options: Dispatcher.DispatchOptions = {
      method,
      path,
      headers,
      body: method === 'POST' ? body : null,
      idempotent: false,
    };
    if (request.fresh === true) this.#dispatchAlone(options, call);
    else this.#pool.dispatch(options, call);
    call.returned = true;
    return call;
  }

  async close(): Promise<void> {
    await Promise.all([this.#pool.destroy(), ...[...this.#fresh].map((connection) => connection.destroy())]);
  }

  #connection(): Connection {
    return new Connection(this.#origin, CLIENT_OPTIONS, this.#connector, (handler, wire) => {
      if (handler instanceof HttpCall) handler.wire = wire;
    });
  }

  /** Any kept connection could be as dead as the one that has just failed, so this one is made anew, used once and closed. */
  #dispatchAlone(options: Dispatcher.DispatchOptions, call: HttpCall): void {
    const connection = this.#connection();
    this.#fresh.add(connection);
    connection.dispatch(options, call);
    const forget = () => this.#fresh.delete(connection);
    void connection.close().then(forget, forget);
  }
}

/** One exchange on a connection: undici's handler on one side, the `Call` of the gateway on the other. */
class HttpCall implements Call, Dispatcher.DispatchHandler {
  readonly #sink: Sink;
  /** False while `send` runs: undici reports some errors from inside `dispatch`, before the caller has its `Call`. */
  returned = false;
  /** Where the request was put; undefined while it waits for a connection to become free. */
  wire: Wire | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #hasHead = false;
  #coding: string | undefined;
  #decoder: Transform | undefined;
  /** Why the body ended before its end, while the decoder still holds some of it. */
  #broken: GatewayError | undefined;
  #paused = false;
  #over = false;

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  pause(): void {
    if (this.#over) return;
    this.#paused = true;
    // The decoder takes what is under way and then makes the connection wait.
    if (this.#decoder === undefined) this.#controller?.pause();
    else this.#decoder.pause();
  }

  resume(): void {
    if (this.#over) return;
    this.#paused = false;
    if (this.#decoder === undefined) this.#controller?.resume();
    else this.#decoder.resume();
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#decoder?.destroy();
    if (this.#controller !== undefined) this.#controller.abort(ABORTED);
    // Not written yet: onRequestStart sees the flag. A connection that is being made for it alone is given up.
    else this.wire?.cancel();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(ABORTED);
    else {
      this.wire?.begin();
      if (this.returned) this.#sink.onSent?.();
      else queueMicrotask(() => this.#over || this.#sink.onSent?.());
    }
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: ResponseHeaders): void {
    if (this.#over) return;
    this.#hasHead = true;
    const codings = codingsOf(headers['content-encoding']);
    const [coding] = codings;
    if (coding !== undefined) {
      if (codings.length > 1 || !isKnownCoding(coding)) {
        this.#fail(unusable(`content-encoding ${codings.join(', ')}`));
        controller.abort(ABORTED);
        return;
      }
      this.#coding = coding;
    }
    this.#sink.onHead(status, headers);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return;
    if (this.#coding === undefined) this.#sink.onData(chunk);
    else {
      this.#decoder ??= this.#decode(this.#coding, chunk[0] ?? 0, controller);
      if (!this.#decoder.write(chunk)) controller.pause();
    }
  }

  onResponseEnd(): void {
    if (this.#over) return;
    if (this.#decoder === undefined) this.#end();
    else this.#decoder.end();
  }

  onResponseError(controller: Dispatcher.DispatchController | undefined, cause: Error): void {
    if (this.#over) return;
    if (!this.returned) {
      queueMicrotask(() => this.onResponseError(controller, cause));
      return;
    }
    const error = wrapTransportError(cause, this.#hasHead);
    if (this.#decoder === undefined) this.#fail(error);
    else {
      this.#broken = error;
      this.#decoder.end();
    }
  }

  #decode(coding: string, first: number, controller: Dispatcher.DispatchController): Transform {
    const decoder = decoderFor(coding, first);
    decoder.on('data', (chunk: Buffer) => this.#over || this.#sink.onData(chunk));
    decoder.on('drain', () => controller.resume());
    decoder.once('end', () => (this.#broken === undefined ? this.#end() : this.#fail(this.#broken)));
    decoder.on('error', (cause) => {
      this.#fail(this.#broken ?? unusable(cause));
      controller.abort(ABORTED);
    });
    if (this.#paused) decoder.pause();
    return decoder;
  }

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#sink.onEnd();
  }

  #fail(error: GatewayError): void {
    if (this.#over) return;
    this.#over = true;
    this.#sink.onError(error, this.#delivery());
  }

  #delivery(): Delivery {
    if (this.#controller === undefined) return 'not_sent';
    return this.wire?.unheard === true ? 'unheard' : 'maybe_sent';
  }
}

/** The reason given to undici when the gateway itself ends a call; no stack is needed, so it is made once. */
const ABORTED = new Error('the gateway ended this call');

function unusable(cause: unknown): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause });
}

/**
 * The socket's or parser's error in the gateway's words. The cause may hold addresses: it is for the log alone.
 * @param hasHead whether the head of the answer had come
 */
function wrapTransportError(cause: Error, hasHead: boolean): GatewayError {
  if (cause instanceof errors.ConnectTimeoutError) {
    return new GatewayError('upstream_timeout', undefined, { cause });
  }
  if (
    cause instanceof UnusableAnswer ||
    cause instanceof errors.HTTPParserError ||
    cause instanceof errors.HeadersOverflowError ||
    // Later, a body that is shorter than its length has been cut by the connection.
    (cause instanceof errors.ResponseContentLengthMismatchError && !hasHead) ||
    (cause instanceof errors.SocketError && cause.message.startsWith('bad '))
  ) {
    return unusable(cause);
  }
  return new GatewayError(isDistrust(cause) ? 'upstream_tls' : 'upstream_unreachable', undefined, { cause });
}

/** Codes of Node and OpenSSL for a handshake that failed: by its certificate, or because the other side speaks no TLS. */
const DISTRUST =
  /^(ERR_TLS_|ERR_SSL_|CERT_|CRL_|EPROTO$|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|ERROR_IN_C|INVALID_(CA|PURPOSE)$|HOSTNAME_MISMATCH$|PATH_LENGTH_EXCEEDED$)/;

/** Whether the other side is not who it should be, or could not show it. */
export function isDistrust(cause: Error): boolean {
  return 'code' in cause && typeof cause.code === 'string' && DISTRUST.test(cause.code);
}
