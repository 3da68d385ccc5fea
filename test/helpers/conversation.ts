// What the scripted upstream says in answer to one request: exact bytes, pauses and ends, as steps of a script.
// It does not parse requests and does not choose scripts; those are upstream-connection.ts and hostile-upstream.ts.
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { completion, DONE, defaultStream, frame } from './completions.ts';
import type { Field } from './http1.ts';
import type { RecordedRequest } from './upstream-connection.ts';
import { until } from './wait.ts';

export type Bytes = string | Buffer;

/** One act of a script. Awaited before the next one; cut short, without an error, when the socket is gone. */
export type Step = (conversation: Conversation) => void | Promise<void>;

export interface EarlyScript {
  readonly early: readonly Step[];
}

/** Runs when the request is complete; wrapped in `early()`, as soon as its head is. */
export type Script = Step | readonly Step[] | EarlyScript;

export type HeaderInput = Readonly<Record<string, string | number | readonly string[]>> | readonly Field[];

/** What a conversation needs from its socket. */
export interface Line {
  /** Resolves when the kernel has taken the bytes; so it waits for a peer that does not read. */
  write(bytes: Buffer): Promise<void>;
  fin(): void;
  reset(): void;
  pauseReading(): void;
  resumeReading(): void;
  /** Aborted when the socket is closed, by whom and however. */
  readonly gone: AbortSignal;
}

/** Thrown inside a script whose socket is gone. It ends the script and is not an error of the test. */
export class LineGone extends Error {}

export class Conversation {
  readonly request: RecordedRequest;
  readonly #line: Line;

  constructor(request: RecordedRequest, line: Line) {
    this.request = request;
    this.#line = line;
  }

  /** Aborted when the socket is closed. */
  get gone(): AbortSignal {
    return this.#line.gone;
  }

  /** These bytes and no others, in one write with Nagle off: the next `send` after a pause is another segment. */
  async send(bytes: Bytes): Promise<void> {
    this.#alive();
    await this.#line.write(toBuffer(bytes));
  }

  /** Each piece in its own TCP segment, `ms` milliseconds apart so that the reader sees them apart. */
  async segments(pieces: readonly Bytes[], ms = 3): Promise<void> {
    for (const [index, piece] of pieces.entries()) {
      if (index > 0) await this.wait(ms);
      await this.send(piece);
    }
  }

  /** One byte per segment, `ms` milliseconds apart; 0 lets the event loop turn twice in between and no more. */
  async drip(bytes: Bytes, ms = 0): Promise<void> {
    for (const byte of toBuffer(bytes)) {
      await this.send(Buffer.of(byte));
      await this.wait(ms);
    }
  }

  /** Status line and fields, nothing added: no date, no length. */
  async head(status: number, headers: HeaderInput = {}, reason = 'Scripted'): Promise<void> {
    await this.send(headBytes(status, headers, reason));
  }

  /** One piece of the chunked coding. */
  async chunk(bytes: Bytes): Promise<void> {
    await this.send(chunkBytes(bytes));
  }

  /** The chunk that ends a chunked body. Leave it out for a body that is cut short. */
  async lastChunk(): Promise<void> {
    await this.send('0\r\n\r\n');
  }

  /**
   * The same bytes again and again as fast as the peer takes them, without end or until `limit` bytes went out.
   * `request.bytesSent` counts what the kernel took.
   */
  async flood(bytes: Bytes, limit = Number.POSITIVE_INFINITY): Promise<void> {
    const unit = toBuffer(bytes);
    const block = Buffer.concat(
      Array.from({ length: Math.max(1, Math.ceil(65_536 / unit.length)) }, () => unit),
    );
    for (let sent = 0; sent < limit; sent += block.length) {
      await this.send(limit - sent < block.length ? block.subarray(0, limit - sent) : block);
    }
  }

  async wait(ms: number): Promise<void> {
    this.#alive();
    try {
      if (ms === 0) {
        // Enough for a reader in this process to see two writes apart.
        await turn();
        await turn(undefined, { signal: this.gone });
      } else await sleep(ms, undefined, { signal: this.gone });
    } catch {
      throw new LineGone();
    }
  }

  /** Until the promise settles, or the function gives a truthy value. Ends the script when the socket goes first. */
  async waitFor(condition: Promise<unknown> | (() => unknown)): Promise<void> {
    this.#alive();
    const gone = Promise.withResolvers<never>();
    const onGone = (): void => gone.reject(new LineGone());
    this.gone.addEventListener('abort', onGone, { once: true });
    try {
      const wanted =
        typeof condition === 'function'
          ? until(() => this.gone.aborted || condition(), 'waitFor')
          : condition;
      await Promise.race([wanted, gone.promise]);
      this.#alive();
    } finally {
      this.gone.removeEventListener('abort', onGone);
    }
  }

  /** Says nothing more and keeps the socket open, until the other side closes it. */
  async silence(): Promise<void> {
    await this.waitFor(new Promise(() => {}));
  }

  /** FIN. */
  close(): void {
    this.#line.fin();
  }

  /** RST: what was sent and not yet read by the peer may be lost with it. */
  reset(): void {
    this.#line.reset();
  }

  pauseReading(): void {
    this.#line.pauseReading();
  }

  resumeReading(): void {
    this.#line.resumeReading();
  }

  #alive(): void {
    if (this.gone.aborted) throw new LineGone();
  }
}

// Steps: the methods above, to be put in a list.

export const send =
  (bytes: Bytes): Step =>
  (c) =>
    c.send(bytes);
export const segments =
  (pieces: readonly Bytes[], ms?: number): Step =>
  (c) =>
    c.segments(pieces, ms);
export const drip =
  (bytes: Bytes, ms?: number): Step =>
  (c) =>
    c.drip(bytes, ms);
export const head =
  (status: number, headers?: HeaderInput, reason?: string): Step =>
  (c) =>
    c.head(status, headers, reason);
export const chunk =
  (bytes: Bytes): Step =>
  (c) =>
    c.chunk(bytes);
export const lastChunk = (): Step => (c) => c.lastChunk();
export const flood =
  (bytes: Bytes, limit?: number): Step =>
  (c) =>
    c.flood(bytes, limit);
export const wait =
  (ms: number): Step =>
  (c) =>
    c.wait(ms);
export const waitFor =
  (condition: Promise<unknown> | (() => unknown)): Step =>
  (c) =>
    c.waitFor(condition);
export const silence = (): Step => (c) => c.silence();
export const close = (): Step => (c) => c.close();
export const reset = (): Step => (c) => c.reset();
export const pauseReading = (): Step => (c) => c.pauseReading();

/** A script that begins when the head of the request is there, before its body. */
export function early(...steps: readonly Step[]): EarlyScript {
  return { early: steps };
}

/** A JSON answer with the right length. A string is sent as it is, an object as `JSON.stringify` writes it. */
export function json(status: number, body: unknown, headers: Record<string, string> = {}): Step {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  return async (c) => {
    const fields = { 'content-type': 'application/json', 'content-length': bytes.length, ...headers };
    await c.send(Buffer.concat([headBytes(status, fields, 'Scripted'), bytes]));
  };
}

export interface SseOptions {
  readonly status?: number;
  readonly headers?: HeaderInput;
  /** Milliseconds between frames; each is a chunk and a segment of its own. */
  readonly pause?: number;
  /** Default true: `data: [DONE]` as last frame. */
  readonly done?: boolean;
  /** Default true: the chunk that ends the body. */
  readonly end?: boolean;
}

export const SSE_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'transfer-encoding': 'chunked',
} as const;

/** A chunked event stream. Objects become `data:` frames; strings and buffers go out as they are. */
export function sse(frames: readonly (Bytes | object)[], options: SseOptions = {}): Step {
  return async (c) => {
    await c.head(options.status ?? 200, options.headers ?? SSE_HEADERS);
    const all = options.done === false ? frames : [...frames, DONE];
    for (const each of all) {
      await c.wait(options.pause ?? 1);
      await c.chunk(typeof each === 'string' || Buffer.isBuffer(each) ? each : frame(each));
    }
    if (options.end !== false) await c.lastChunk();
  };
}

/** What an upstream without a script answers: a small completion, streamed when the request says so. */
export const standardAnswer: Step = async (c) => {
  const body: unknown = c.request.body.length === 0 ? {} : c.request.json();
  const model = property(body, 'model');
  const name = typeof model === 'string' ? model : 'upstream-model';
  if (property(body, 'stream') !== true) return await json(200, completion({ model: name }))(c);
  const usage = property(property(body, 'stream_options'), 'include_usage') === true;
  await sse(defaultStream({ model: name, usage }))(c);
};

export function headBytes(status: number, headers: HeaderInput, reason: string): Buffer {
  const lines = [`HTTP/1.1 ${status} ${reason}`];
  for (const [name, value] of isFields(headers) ? headers : Object.entries(headers)) {
    for (const each of Array.isArray(value) ? value : [value]) lines.push(`${name}: ${each}`);
  }
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}

export function chunkBytes(bytes: Bytes): Buffer {
  const data = toBuffer(bytes);
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
}

/** A string is UTF-8. */
export function toBuffer(bytes: Bytes): Buffer {
  return typeof bytes === 'string' ? Buffer.from(bytes) : bytes;
}

function isFields(headers: HeaderInput): headers is readonly Field[] {
  return Array.isArray(headers);
}

function property(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && name in value
    ? Object.getOwnPropertyDescriptor(value, name)?.value
    : undefined;
}
