// HTTP/1.1 to one upstream over kept connections. It knows framing of requests and codings of answers, not keys, routes or
// retries.
import type { Transform } from 'node:stream';
import { errors } from 'undici';
import { GatewayError, wrapError } from '../../errors.ts';
import { isStreamed } from '../../http/pieces/body-source.ts';
import type { Call, Delivery, ResponseHeaders, Sink, Transport, UpstreamRequest } from '../transport.ts';
import { ConnectionPool, type ConnectionPoolOptions, type Opening } from './connection-pool.ts';
import { codingsOf, decoderFor, isKnownCoding } from './content-decoder.ts';
import { TOKEN } from './header-names.ts';
import { UnusableAnswer } from './response-parser.ts';
import type { ResponseHandler, UpstreamConnection, WrittenRequest } from './upstream-connection.ts';

export type HttpTransportOptions = ConnectionPoolOptions;

/** RFC 9110, 5.5. */
const FORBIDDEN_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
const TARGET = /^\/[\x21-\x7e]*$/;

export class HttpTransport implements Transport {
  readonly #pool: ConnectionPool;
  readonly #host: string;
  /** The beginning of the last head: most requests of an upstream begin with the same. */
  #beginning: Beginning | undefined;

  constructor(options: HttpTransportOptions) {
    this.#pool = new ConnectionPool(options);
    this.#host = new URL(options.origin).host;
  }

  send(request: UpstreamRequest, sink: Sink): Call {
    const call = new HttpCall(sink, this.#open);
    const isAlone = isOwn(request) || this.#pool.isSuspect;
    const head = this.#headOf(request, isAlone);
    if (head === undefined || this.#pool.isRetired) {
      const why = head === undefined ? 'a header that cannot be sent' : 'the transport is closed';
      queueMicrotask(() => call.onBroken(new Error(why)));
      return call;
    }
    const written = { head, body: hasBody(request) ? request.body : NO_BODY, isLast: isAlone };
    // Any kept connection could be as dead as the one that has just failed.
    const connection = isAlone ? undefined : this.#pool.take();
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

  /** The request line and headers; undefined if one of them cannot be written. */
  #headOf(request: UpstreamRequest, isAlone: boolean): string | undefined {
    const { length } = request.body;
    const beginning = this.#beginningOf(request);
    const own = linesOf(request.headers);
    if (beginning === undefined || own === undefined) return undefined;
    const end = isAlone ? 'connection: close\r\n' : 'connection: keep-alive\r\n';
    if (!hasBody(request)) return `${beginning}${own}${end}\r\n`;
    const framing = length === undefined ? 'transfer-encoding: chunked' : `content-length: ${length}`;
    return `${beginning}${own}${end}${framing}\r\n\r\n`;
  }

  /** The request line, `host` and the common headers. */
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

/** Headers as they are written; undefined if one of them cannot be. */
function linesOf(headers: Readonly<Record<string, string>>): string | undefined {
  let lines = '';
  for (const name in headers) {
    const value = headers[name] ?? '';
    if (!TOKEN.test(name) || FORBIDDEN_IN_VALUE.test(value)) return undefined;
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}

/** A connection of its own: also for a body that can perhaps not be sent again when a kept one turns out to be closed. */
function isOwn({ fresh, body }: UpstreamRequest): boolean {
  return fresh === true || isStreamed(body);
}

function hasBody({ method = 'POST' }: UpstreamRequest): boolean {
  return method === 'POST';
}

const NO_BODY: Buffer = Buffer.alloc(0);

type Reopen = (call: HttpCall, request: WrittenRequest) => void;

/** One exchange: a connection's occupant on one side, the `Call` of the gateway on the other. */
class HttpCall implements Call, ResponseHandler {
  readonly #sink: Sink;
  readonly #reopen: Reopen;
  /** What it was begun with; undefined when it may not be begun once more. */
  #request: WrittenRequest | undefined;
  /** The connection that is being made for it. */
  opening: Opening | undefined;
  #connection: UpstreamConnection | undefined;
  #begun = false;
  /** Its body comes at a pace of its own; of others nothing is told but that they are sent. */
  #isStreamed = false;
  #coding: string | undefined;
  #decoder: Transform | undefined;
  /** Why the body ended before its end, while the decoder still holds some of it. */
  #broken: GatewayError | undefined;
  #paused = false;
  #over = false;

  /** @param reopen makes a connection for it, instead of one that could not be used */
  constructor(sink: Sink, reopen: Reopen) {
    this.#sink = sink;
    this.#reopen = reopen;
  }

  get isOver(): boolean {
    return this.#over;
  }

  begin(connection: UpstreamConnection, request: WrittenRequest): void {
    this.#connection = connection;
    // From a connection that was idle it may go to a new one, from that to no other.
    this.#request = connection.isKept ? request : undefined;
    this.#isStreamed = isStreamed(request.body);
    if (this.#paused) connection.pause();
    connection.begin(this, request);
  }

  onBegun(): void {
    this.#begun = true;
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
    // The decoder takes what is under way and then makes the connection wait.
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
        throw new UnusableAnswer(`content-encoding ${codings.join(', ')}`);
      }
      this.#coding = coding;
    }
    this.#sink.onHead(status, headers);
  }

  onBody(bytes: Buffer, start: number, end: number): void {
    if (this.#over) return;
    // A copy: the bytes are only lent.
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

  onLost(cause: unknown): void {
    if (!this.#over) this.#fail(wrapError(cause, 'internal_error'), 'withdrawn');
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
    if (this.#decoder === undefined) this.#fail(error);
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
    decoder.on('error', (cause) => this.#fail(this.#broken ?? unusable(cause)));
    if (this.#paused) decoder.pause();
    return decoder;
  }

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    try {
      this.#sink.onEnd();
    } catch (cause) {
      // A fault of the gateway, which costs this request and no other.
      this.#sink.onError(new GatewayError('internal_error', undefined, { cause }), 'maybe_sent');
    }
  }

  #fail(error: GatewayError, delivery = this.#delivery()): void {
    if (this.#over) return;
    this.#stop();
    this.#sink.onError(error, delivery);
  }

  /** Nothing is told any more, and a connection that has not answered is of no use to anybody. */
  #stop(): void {
    this.#over = true;
    this.#decoder?.destroy();
    this.#connection?.abandon();
  }

  #delivery(): Delivery {
    if (!this.#begun) return 'not_sent';
    return this.#connection?.isUnheard === true ? 'unheard' : 'maybe_sent';
  }
}

function unusable(cause: unknown): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause });
}

/** The socket's or parser's error in the gateway's words. The cause may hold addresses: it is for the log alone. */
function wrapTransportError(cause: Error): GatewayError {
  if (cause instanceof GatewayError) return cause;
  if (cause instanceof errors.ConnectTimeoutError) {
    return new GatewayError('upstream_timeout', undefined, { cause });
  }
  // This process has none left to give: no fault of the upstream's.
  if ('code' in cause && typeof cause.code === 'string' && EXHAUSTED.has(cause.code)) {
    return new GatewayError('upstream_busy', undefined, { cause });
  }
  if (cause instanceof UnusableAnswer) return unusable(cause);
  return new GatewayError(isDistrust(cause) ? 'upstream_tls' : 'upstream_unreachable', undefined, { cause });
}

/** Open files of the process or of the system, and memory for sockets. */
const EXHAUSTED: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOBUFS']);

/** Codes of Node and OpenSSL for a handshake that failed: by its certificate, or because the other side speaks no TLS. */
const DISTRUST =
  /^(ERR_TLS_|ERR_SSL_|CERT_|CRL_|EPROTO$|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|ERROR_IN_C|INVALID_(CA|PURPOSE)$|HOSTNAME_MISMATCH$|PATH_LENGTH_EXCEEDED$)/;

/** Whether the other side is not who it should be, or could not show it. */
export function isDistrust(cause: Error): boolean {
  return 'code' in cause && typeof cause.code === 'string' && DISTRUST.test(cause.code);
}
