// A client on a raw TCP socket: writes exactly the bytes a test wants and reads answers from raw bytes, with the
// time of every piece, the boundaries of chunks, and whether the message really came to its end.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { ByteLog, type Piece } from './byte-log.ts';
import { type Bytes, toBuffer } from './conversation.ts';
import { bodyFraming, type Field, type Framing, fieldValues, type Head, MessageReader } from './http1.ts';
import { PATIENCE, pause, until, within } from './wait.ts';

/** How the socket ended, seen from here. */
export type ClientEnd = 'fin' | 'reset' | 'local';

export interface RawResponse {
  readonly status: number;
  readonly reason: string;
  readonly rawHead: Buffer;
  /** In order and spelling of the wire. */
  readonly headers: readonly Field[];
  readonly framing: Framing;
  /** The 1xx responses that came before. */
  readonly interim: readonly { readonly status: number; readonly headers: readonly Field[] }[];
  /** The body so far, without chunk framing. */
  readonly body: Buffer;
  /** The pieces of the body as they were read from the socket. */
  readonly pieces: readonly Piece[];
  /** The chunks of the chunked coding, each with the arrival of its last byte. */
  readonly chunks: readonly Piece[];
  /** Its end is marked in the protocol: length reached, final chunk seen. A close-delimited body needs a FIN. */
  readonly complete: boolean;
  readonly trailers: readonly Field[];
  readonly headAt: number;
  /** Resolves when it is complete, or when the socket ended before. */
  readonly ended: Promise<void>;
  /** The one value of a field; undefined when absent, an error when it came twice. */
  header(name: string): string | undefined;
  text(): string;
  json(): unknown;
  /** The events of the body: what stands between blank lines, without them; an unfinished last one is left out. */
  frames(): string[];
}

/** Headers of a WebSocket handshake (RFC 6455, 4.1), with the key of its example. */
export const WEBSOCKET_HANDSHAKE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
};

export interface RequestInput {
  readonly method?: string;
  readonly target?: string;
  /** Fields after Host, as given. Content-length is added when there is a body and no transfer-encoding. */
  readonly headers?: Readonly<Record<string, string>> | readonly Field[];
  readonly body?: Bytes | object;
  /** Default `localhost`. */
  readonly host?: string;
}

export interface ConnectOptions {
  /** Speak TLS without looking at the certificate. */
  readonly tls?: boolean;
  /** Default true; false leaves out the log of raw bytes, for very long streams. */
  readonly keep?: boolean;
}

export class RawClient implements Disposable {
  /** All that came in, as it came. */
  readonly received = new ByteLog();
  /** Final responses in order; the last one may still be arriving. */
  readonly responses: RawResponse[] = [];
  /** What breaks HTTP/1.1 in what came in; nothing is understood after it. */
  fault: string | undefined;
  /** Resolves when the other side has ended the socket, or this side has destroyed it. */
  readonly closed: Promise<ClientEnd>;
  readonly #socket: Socket;
  readonly #reader: MessageReader;
  readonly #ended = Promise.withResolvers<ClientEnd>();
  readonly #bodiless: boolean[] = [];
  #interim: { status: number; headers: readonly Field[] }[] = [];
  #current: Incoming | undefined;
  #end: ClientEnd | undefined;
  #taken = 0;
  #searched = 0;

  private constructor(socket: Socket, keep: boolean) {
    this.#socket = socket;
    this.closed = this.#ended.promise;
    this.#reader = new MessageReader({
      head: (head) => this.#onHead(head),
      body: (bytes) => this.#current?.log.push(bytes),
      chunk: (bytes) => this.#current?.chunks.push({ bytes, at: performance.now() }),
      end: (trailers) => this.#onEnd(trailers),
      fault: (reason) => {
        this.fault = reason;
        this.#current?.over.resolve();
      },
    });
    socket.on('data', (bytes: Buffer) => {
      if (keep) this.received.push(bytes);
      this.#reader.push(bytes);
    });
    socket.on('end', () => {
      this.#reader.finish();
      this.#finish('fin');
      socket.end();
    });
    socket.on('error', () => this.#finish('reset'));
    socket.on('close', () => this.#finish('local'));
  }

  /** @param to a port of 127.0.0.1, or a URL of which host and port count */
  static async connect(to: number | string, options: ConnectOptions = {}): Promise<RawClient> {
    const url = new URL(typeof to === 'number' ? `http://127.0.0.1:${to}` : to);
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
    const tls = options.tls ?? url.protocol === 'https:';
    const socket = tls
      ? connectTls({ host, port, rejectUnauthorized: false })
      : connect({ host, port, allowHalfOpen: true });
    socket.setNoDelay(true);
    await within(once(socket, tls ? 'secureConnect' : 'connect'), `a connection to ${host}:${port}`);
    return new RawClient(socket, options.keep ?? true);
  }

  /** On a connection that the test has made itself. */
  static over(socket: Socket): RawClient {
    return new RawClient(socket, true);
  }

  /** Exactly these bytes; resolves when the kernel has taken them. A socket that is gone makes it fail. */
  write(bytes: Bytes): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#socket.write(toBuffer(bytes), (error) => (error ? reject(error) : resolve()));
    });
  }

  /** Each piece in a TCP segment of its own, `ms` milliseconds apart. */
  async segments(pieces: readonly Bytes[], ms = 3): Promise<void> {
    for (const [index, piece] of pieces.entries()) {
      if (index > 0) await pause(ms);
      await this.write(piece);
    }
  }

  /** Writes a request built by `requestBytes`. */
  async send(input: RequestInput): Promise<void> {
    this.#bodiless.push(input.method === 'HEAD');
    await this.write(requestBytes(input));
  }

  /** Writes a request and reads its response to the end. */
  async ask(input: RequestInput, ms: number = PATIENCE): Promise<RawResponse> {
    await this.send(input);
    return await this.response(ms);
  }

  /** The next response that was not taken yet, as soon as its head is there. */
  async responseHead(ms: number = PATIENCE): Promise<RawResponse> {
    const index = this.#taken++;
    const response = await until(
      () => this.responses[index] ?? (this.#over() ? 'none' : undefined),
      `response ${index}`,
      ms,
    );
    if (response === 'none')
      throw new Error(this.fault ?? `the socket ended (${this.#end}) without response ${index}`);
    return response;
  }

  /** The next response, when it is complete or the socket has ended: look at `complete`. Fails on malformed bytes. */
  async response(ms: number = PATIENCE): Promise<RawResponse> {
    const response = await this.responseHead(ms);
    await within(
      response.ended,
      'the end of the response',
      ms,
      () => `${response.body.length} bytes of body came`,
    );
    if (this.fault !== undefined) throw new Error(this.fault);
    return response;
  }

  /**
   * Waits until the bytes hold `wanted` (after what the last call found) or the function says yes to all bytes so
   * far. Returns all bytes so far.
   */
  async readUntil(wanted: Bytes | ((all: Buffer) => boolean), ms: number = PATIENCE): Promise<Buffer> {
    const what =
      typeof wanted === 'function' ? 'the wanted bytes' : JSON.stringify(wanted.toString('latin1'));
    await until(
      () => {
        if (typeof wanted === 'function') return wanted(this.received.bytes);
        const at = this.received.bytes.indexOf(wanted, this.#searched);
        if (at === -1) return false;
        this.#searched = at + wanted.length;
        return true;
      },
      what,
      ms,
    );
    return this.received.bytes;
  }

  /** FIN: nothing more to say, still listening. */
  halfClose(): void {
    this.#socket.end();
  }

  /** RST. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Stops reading, so that the windows fill up. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  [Symbol.dispose](): void {
    this.destroy();
  }

  #over(): boolean {
    return this.#end !== undefined || this.fault !== undefined;
  }

  #finish(how: ClientEnd): void {
    if (this.#end !== undefined) return;
    this.#end = how;
    this.#current?.over.resolve();
    this.#ended.resolve(how);
  }

  #onHead(head: Head): { framing: Framing; length: number } | string {
    const [, digits, reason] = /^HTTP\/1\.1 ([1-5]\d\d)(?: (.*))?$/.exec(head.line) ?? [];
    if (digits === undefined) return `not a status line: ${JSON.stringify(head.line)}`;
    const status = Number(digits);
    if (status < 200 && status !== 101) {
      this.#interim.push({ status, headers: head.fields });
      return { framing: 'none', length: 0 };
    }
    const bodiless = this.#bodiless.shift() === true || status === 204 || status === 304;
    const framing = bodyFraming(head.fields, 'close');
    if (typeof framing === 'string') return framing;
    const used: Framing = status === 101 ? 'close' : bodiless ? 'none' : framing.framing;
    this.#current = new Incoming(head, status, reason ?? '', used, this.#interim);
    this.#interim = [];
    this.responses.push(this.#current);
    return { framing: used, length: framing.length };
  }

  #onEnd(trailers: readonly Field[]): void {
    const response = this.#current;
    this.#current = undefined;
    if (response === undefined) return;
    response.trailers = trailers;
    response.complete = true;
    response.over.resolve();
  }
}

/** The writable side of a RawResponse. */
class Incoming implements RawResponse {
  readonly status: number;
  readonly reason: string;
  readonly rawHead: Buffer;
  readonly headers: readonly Field[];
  readonly framing: Framing;
  readonly interim: RawResponse['interim'];
  readonly chunks: Piece[] = [];
  readonly headAt = performance.now();
  readonly ended: Promise<void>;
  readonly log = new ByteLog();
  readonly over = Promise.withResolvers<void>();
  trailers: readonly Field[] = [];
  complete = false;

  constructor(head: Head, status: number, reason: string, framing: Framing, interim: RawResponse['interim']) {
    this.status = status;
    this.reason = reason;
    this.rawHead = head.raw;
    this.headers = head.fields;
    this.framing = framing;
    this.interim = interim;
    this.ended = this.over.promise;
  }

  get body(): Buffer {
    return this.log.bytes;
  }

  get pieces(): readonly Piece[] {
    return this.log.pieces;
  }

  header(name: string): string | undefined {
    const values = fieldValues(this.headers, name);
    if (values.length > 1) throw new Error(`${name} came ${values.length} times: ${values.join(' | ')}`);
    return values[0];
  }

  text(): string {
    return this.body.toString('utf8');
  }

  json(): unknown {
    return JSON.parse(this.text());
  }

  frames(): string[] {
    return this.text()
      .replaceAll(/\r\n?/g, '\n')
      .split(/\n\n+/)
      .slice(0, -1)
      .filter((frame) => frame !== '');
  }
}

/** A request as bytes: the given fields in the given order and nothing but Host and content-length besides. */
export function requestBytes(input: RequestInput): Buffer {
  const { method = 'POST', target = '/v1/chat/completions', host = 'localhost', headers = {}, body } = input;
  const data =
    body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const bytes = data === undefined ? Buffer.alloc(0) : toBuffer(data);
  const fields: Field[] = [['host', host], ...(isFields(headers) ? headers : Object.entries(headers))];
  const framed = ['content-length', 'transfer-encoding'].some((name) => fieldValues(fields, name).length > 0);
  if (data !== undefined && fieldValues(fields, 'content-type').length === 0) {
    fields.push(['content-type', 'application/json']);
  }
  if (data !== undefined && !framed) fields.push(['content-length', String(bytes.length)]);
  const lines = [`${method} ${target} HTTP/1.1`, ...fields.map(([name, value]) => `${name}: ${value}`)];
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), bytes]);
}

function isFields(headers: NonNullable<RequestInput['headers']>): headers is readonly Field[] {
  return Array.isArray(headers);
}
