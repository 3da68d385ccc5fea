// HTTP/1.1 transport to one upstream over keep-alive connections: request framing and response content codings. Credentials,
// routes and retries are not its concern.
import type { Transform } from 'node:stream';
import { errors } from 'undici';
import { GatewayError, wrapError } from '../../errors.ts';
import { isStreamed } from '../../http/pieces/body-source.ts';
import { isCertificateRejected, isExhausted, isTlsFailure } from '../outbound/socket-errors.ts';
import type { Call, Delivery, ResponseHeaders, Sink, Transport, UpstreamRequest } from '../transport.ts';
import { ConnectionPool, type ConnectionPoolOptions, type Opening } from './connection-pool.ts';
import { codingsOf, decoderFor, isKnownCoding } from './content-decoder.ts';
import { TOKEN } from './header-names.ts';
import { InvalidResponse } from './response-parser.ts';
import type { ResponseHandler, UpstreamConnection, WrittenRequest } from './upstream-connection.ts';

export type HttpTransportOptions = ConnectionPoolOptions;

/** RFC 9110, 5.5. */
const FORBIDDEN_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
const TARGET = /^\/[\x21-\x7e]*$/;

export class HttpTransport implements Transport {
  readonly #pool: ConnectionPool;
  readonly #host: string;
  /** The start of the last head, cached: most requests of an upstream share it. */
  #beginning: Beginning | undefined;

  constructor(options: HttpTransportOptions) {
    this.#pool = new ConnectionPool(options);
    this.#host = new URL(options.origin).host;
  }

  send(request: UpstreamRequest, sink: Sink): Call {
    const call = new HttpCall(sink, this.#open);
    const isSingleUse = needsNewConnection(request) || this.#pool.isSuspect;
    const head = this.#headOf(request, isSingleUse);
    if (head === undefined || this.#pool.isRetired) {
      const why = head === undefined ? 'the request has an invalid header' : 'the transport is closed';
      queueMicrotask(() => call.onBroken(new Error(why)));
      return call;
    }
    const written = { head, body: hasBody(request) ? request.body : NO_BODY, isLast: isSingleUse };
    // After a stale connection, any other idle one may be stale too.
    const connection = isSingleUse ? undefined : this.#pool.take();
    if (connection !== undefined) call.begin(connection, written);
    else this.#open(call, written);
    return call;
  }

  readonly #open = (call: HttpCall, request: WrittenRequest): void => {
    call.opening = this.#pool.open((outcome) => {
      call.opening = undefined;
      if (outcome instanceof Error) call.onBroken(outcome);
      else if (call.isOver) this.#pool.onFree(outcome);
      else call.begin(outcome, request);
    });
  };

  retire(): Promise<void> {
    return this.#pool.retire();
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  /** Request line and headers; undefined if any of them is invalid. */
  #headOf(request: UpstreamRequest, isSingleUse: boolean): string | undefined {
    const { length } = request.body;
    const beginning = this.#beginningOf(request);
    const own = linesOf(request.headers);
    if (beginning === undefined || own === undefined) return undefined;
    const end = isSingleUse ? 'connection: close\r\n' : 'connection: keep-alive\r\n';
    if (!hasBody(request)) return `${beginning}${own}${end}\r\n`;
    const framing = length === undefined ? 'transfer-encoding: chunked' : `content-length: ${length}`;
    return `${beginning}${own}${end}${framing}\r\n\r\n`;
  }

  /** Request line, `host` and the common headers. */
  #beginningOf({ method = 'POST', path, common = NO_HEADERS }: UpstreamRequest): string | undefined {
    const last = this.#beginning;
    if (last?.common === common && last.path === path && last.method === method) return last.text;
    const lines = linesOf(common);
    if (lines === undefined || !TARGET.test(path)) return undefined;
    const text = `${method} ${path} HTTP/1.1\r\nhost: ${this.#host}\r\n${lines}`;
    this.#beginning = { method, path, common, text };
    return text;
  }
}

interface Beginning {
  readonly method: string;
  readonly path: string;
  readonly common: Readonly<Record<string, string>>;
  readonly text: string;
}

const NO_HEADERS: Readonly<Record<string, string>> = {};

/** Header lines; undefined if a name or value is invalid. */
function linesOf(headers: Readonly<Record<string, string>>): string | undefined {
  let lines = '';
  for (const name in headers) {
    const value = headers[name] ?? '';
    if (!TOKEN.test(name) || FORBIDDEN_IN_VALUE.test(value)) return undefined;
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}

/** Also true for a streamed body, which may not be replayable if the connection proves stale. */
function needsNewConnection({ fresh, body }: UpstreamRequest): boolean {
  return fresh === true || isStreamed(body);
}

function hasBody({ method = 'POST' }: UpstreamRequest): boolean {
  return method === 'POST';
}

const NO_BODY: Buffer = Buffer.alloc(0);

type Reopen = (call: HttpCall, request: WrittenRequest) => void;

/** One exchange: the response handler of a connection, and the `Call` that the gateway holds. */
class HttpCall implements Call, ResponseHandler {
  readonly #sink: Sink;
  readonly #reopen: Reopen;
  /** The request, kept while it may be moved to another connection. */
  #request: WrittenRequest | undefined;
  /** The pending connection for this call. */
  opening: Opening | undefined;
  #connection: UpstreamConnection | undefined;
  #isWriteStarted = false;
  /** The body is streamed; only then are upload events reported. */
  #isStreamed = false;
  #coding: string | undefined;
  #decoder: Transform | undefined;
  /** The error that ended the body early, while the decoder still holds data. */
  #broken: GatewayError | undefined;
  #paused = false;
  #over = false;

  /** @param reopen opens a new connection after an unusable one */
  constructor(sink: Sink, reopen: Reopen) {
    this.#sink = sink;
    this.#reopen = reopen;
  }

  get isOver(): boolean {
    return this.#over;
  }

  begin(connection: UpstreamConnection, request: WrittenRequest): void {
    this.#connection = connection;
    // A request may move from an idle connection to a new one, but not from a new one.
    this.#request = connection.isKept ? request : undefined;
    this.#isStreamed = isStreamed(request.body);
    if (this.#paused) connection.pause();
    connection.begin(this, request);
  }

  onWriteStart(): void {
    this.#isWriteStarted = true;
    // From now on it cannot move.
    this.#request = undefined;
    if (this.#isStreamed) this.#sink.onUpload?.();
    else this.#sink.onSent?.();
  }

  onUnsent(cause: Error): void {
    this.#connection = undefined;
    if (this.#over) return;
    if (this.#request === undefined) this.#fail(wrapTransportError(cause));
    else this.#reopen(this, this.#request);
  }

  pause(): void {
    if (this.#over) return;
    this.#paused = true;
    // The decoder takes what is in flight, then applies backpressure to the connection.
    if (this.#decoder === undefined) this.#connection?.pause();
    else this.#decoder.pause();
  }

  resume(): void {
    if (this.#over) return;
    this.#paused = false;
    if (this.#decoder === undefined) this.#connection?.resume();
    else this.#decoder.resume();
  }

  abort(): void {
    if (this.#over) return;
    this.#stop();
    this.opening?.cancel();
  }

  onHead(status: number, headers: ResponseHeaders): void {
    if (this.#over) return;
    const codings = codingsOf(headers['content-encoding']);
    const [coding] = codings;
    if (coding !== undefined) {
      if (codings.length > 1 || !isKnownCoding(coding)) {
        throw new InvalidResponse(`content-encoding ${codings.join(', ')}`);
      }
      this.#coding = coding;
    }
    this.#sink.onHead(status, headers);
  }

  onBody(bytes: Buffer, start: number, end: number): void {
    if (this.#over) return;
    // Copied: the read buffer is reused.
    const chunk = Buffer.allocUnsafe(end - start);
    bytes.copy(chunk, 0, start, end);
    if (this.#coding === undefined) this.#sink.onData(chunk);
    else {
      this.#decoder ??= this.#decode(this.#coding, chunk[0] ?? 0);
      if (!this.#decoder.write(chunk)) this.#connection?.pause();
    }
  }

  onStall(isStalled: boolean): void {
    if (!this.#over && this.#isStreamed) this.#sink.onStall?.(isStalled);
  }

  onWritten(): void {
    if (!this.#over && this.#isStreamed) this.#sink.onSent?.();
  }

  onSourceError(cause: unknown): void {
    if (!this.#over) this.#fail(wrapError(cause, 'internal_error'), 'body_lost');
  }

  onComplete(): void {
    this.#connection = undefined;
    if (this.#over) return;
    if (this.#decoder === undefined) this.#end();
    else this.#decoder.end();
  }

  onBroken(cause: Error): void {
    if (this.#over) return;
    const error = wrapTransportError(cause);
    const isUnread = isCertificateRejected(cause) && this.#connection?.isUnanswered === true;
    if (this.#decoder === undefined) this.#fail(error, isUnread ? 'not_sent' : undefined);
    else {
      this.#broken = error;
      this.#decoder.end();
    }
  }

  #decode(coding: string, first: number): Transform {
    const decoder = decoderFor(coding, first);
    decoder.on('data', (chunk: Buffer) => this.#over || this.#sink.onData(chunk));
    decoder.on('drain', () => this.#connection?.resume());
    decoder.once('end', () => (this.#broken === undefined ? this.#end() : this.#fail(this.#broken)));
    decoder.on('error', (cause) => this.#fail(this.#broken ?? invalidResponse(cause)));
    if (this.#paused) decoder.pause();
    return decoder;
  }

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    try {
      this.#sink.onEnd();
    } catch (cause) {
      // A bug in the sink fails this request only.
      this.#sink.onError(new GatewayError('internal_error', undefined, { cause }), 'maybe_sent');
    }
  }

  #fail(error: GatewayError, delivery = this.#delivery()): void {
    if (this.#over) return;
    this.#stop();
    this.#sink.onError(error, delivery);
  }

  /** No more sink calls; a connection without a complete response cannot be reused. */
  #stop(): void {
    this.#over = true;
    this.#decoder?.destroy();
    this.#connection?.abandon();
  }

  #delivery(): Delivery {
    if (!this.#isWriteStarted) return 'not_sent';
    return this.#connection?.hasNoResponse === true ? 'no_response' : 'maybe_sent';
  }
}

function invalidResponse(cause: unknown): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause });
}

/** Maps an error of the socket or parser to a gateway error. The cause may hold addresses; it is only logged. */
function wrapTransportError(cause: Error): GatewayError {
  if (cause instanceof GatewayError) return cause;
  if (cause instanceof errors.ConnectTimeoutError) {
    return new GatewayError('upstream_timeout', undefined, { cause });
  }
  // Not the upstream's fault.
  if (isExhausted(cause)) return new GatewayError('upstream_busy', undefined, { cause });
  if (cause instanceof InvalidResponse) return invalidResponse(cause);
  if (isCertificateRejected(cause)) {
    const message =
      'The upstream rejected the TLS handshake; it may want another client certificate. The operator has to act.';
    return new GatewayError('upstream_tls', message, { cause });
  }
  return new GatewayError(isTlsFailure(cause) ? 'upstream_tls' : 'upstream_unreachable', undefined, {
    cause,
  });
}

/** The error for a failure that Node or http-proxy-3 reported before there was an answer. */
export function wrapConnectionError(cause: unknown): GatewayError {
  if (cause instanceof GatewayError) return cause;
  const error = cause instanceof Error ? cause : new Error(String(cause));
  const code = String(Reflect.get(error, 'code'));
  if (code === 'ECONNECT_TIMEOUT') return new GatewayError('upstream_timeout', undefined, { cause });
  return code.startsWith('HPE_') ? invalidResponse(cause) : wrapTransportError(error);
}
