// HTTP/1.1 transport to one upstream over keep-alive connections: request framing and response content codings. Credentials,
// routes and retries are not its concern.
import { isStreamed } from '../../http/pieces/body-source.ts';
import type { Call, Sink, Transport, UpstreamRequest } from '../transport.ts';
import { ConnectionPool, type ConnectionPoolOptions } from './connection-pool.ts';
import { TOKEN } from './header-names.ts';
import { HttpCall } from './http-call.ts';
import type { WrittenRequest } from './upstream-connection.ts';

/** RFC 9110, 5.5. */
const FORBIDDEN_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
const TARGET = /^\/[\x21-\x7e]*$/;

export class HttpTransport implements Transport {
  readonly #pool: ConnectionPool;
  readonly #host: string;
  /** The start of the last head, cached: most requests of an upstream share it. */
  #beginning: Beginning | undefined;

  constructor(options: ConnectionPoolOptions) {
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
