// A strict incremental reader of HTTP/1.1 messages from raw bytes (RFC 9112), for both ends of the test wire.
// It only reads and reports: it opens no socket, sends nothing, and repairs nothing.

/** How the end of a body is known; `close`: by the end of the connection. */
export type Framing = 'none' | 'length' | 'chunked' | 'close';

export type Field = readonly [name: string, value: string];

export interface Head {
  /** The first line and all fields as they came, with the empty line that ends them. */
  readonly raw: Buffer;
  /** `POST /v1/x HTTP/1.1` or `HTTP/1.1 200 OK`. */
  readonly line: string;
  /** In order and spelling of the wire; repeated names stay repeated. */
  readonly fields: readonly Field[];
}

export interface MessageEvents {
  /** A head is complete. What it returns says how the body is framed; a string is a fault. */
  head(head: Head): { framing: Framing; length: number } | string;
  /** Bytes of the body, as they arrive, without chunk framing. */
  body(bytes: Buffer): void;
  /** A chunk of the chunked coding is complete. */
  chunk?(bytes: Buffer): void;
  /** The message is complete; `trailers` only with the chunked coding. */
  end(trailers: readonly Field[]): void;
  /** The bytes break a rule. Nothing is read any more. */
  fault(reason: string): void;
}

type State = 'head' | 'length' | 'size' | 'data' | 'data-end' | 'trailers' | 'close' | 'dead';

const EMPTY = Buffer.alloc(0);
const HEAD_LIMIT = 1024 * 1024;
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the bytes that a field value may not have.
const BAD_VALUE = /[\x00-\x08\x0a-\x1f\x7f]/;

/** Reads any number of messages of one direction of one connection. */
export class MessageReader {
  readonly #events: MessageEvents;
  #state: State = 'head';
  #pending: Buffer = EMPTY;
  #left = 0;
  #parts: Buffer[] = [];

  constructor(events: MessageEvents) {
    this.#events = events;
  }

  /** Whether the reader is between two messages with no byte of the next one. */
  get idle(): boolean {
    return this.#state === 'head' && this.#pending.length === 0;
  }

  push(bytes: Buffer): void {
    let rest = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    this.#pending = EMPTY;
    while (rest.length > 0 && this.#state !== 'dead') {
      const next = this.#step(rest);
      if (next === undefined) {
        this.#pending = rest;
        return;
      }
      rest = next;
    }
  }

  /** The sender closed its side. True when that is a legal place to stop. */
  finish(): boolean {
    if (this.#state === 'close') this.#end([]);
    return this.idle;
  }

  /** What is left of `rest` after one step, or undefined when the step needs more bytes. */
  #step(rest: Buffer): Buffer | undefined {
    switch (this.#state) {
      case 'head':
        return this.#head(rest);
      case 'length':
      case 'data':
        return this.#data(rest);
      case 'size':
        return this.#size(rest);
      case 'data-end':
        if (rest.length < 2) return undefined;
        if (rest[0] !== 13 || rest[1] !== 10) return this.#fault('chunk data is not followed by CRLF');
        this.#events.chunk?.(Buffer.concat(this.#parts));
        this.#parts = [];
        this.#state = 'size';
        return rest.subarray(2);
      case 'trailers':
        return this.#trailers(rest);
      case 'close':
        this.#events.body(rest);
        return EMPTY;
      case 'dead':
        return EMPTY;
    }
  }

  #head(rest: Buffer): Buffer | undefined {
    const end = rest.indexOf('\r\n\r\n');
    if (end === -1) {
      if (rest.length > HEAD_LIMIT) return this.#fault('the head is endless');
      // A bare LF can never become a legal head: say so now, not when the test has timed out.
      return hasBareBreak(rest) ? this.#fault('a line of the head ends without CRLF') : undefined;
    }
    const raw = rest.subarray(0, end + 4);
    const [line = '', ...lines] = raw.subarray(0, end).toString('latin1').split('\r\n');
    if (/[\r\n]/.test(line)) return this.#fault('the first line holds a bare CR or LF');
    const fields = parseFields(lines);
    if (typeof fields === 'string') return this.#fault(fields);
    const framing = this.#events.head({ raw, line, fields });
    if (typeof framing === 'string') return this.#fault(framing);
    this.#left = framing.length;
    if (framing.framing === 'close') this.#state = 'close';
    else if (framing.framing === 'chunked') this.#state = 'size';
    else if (framing.framing === 'length' && framing.length > 0) this.#state = 'length';
    else this.#end([]);
    return rest.subarray(end + 4);
  }

  #data(rest: Buffer): Buffer {
    const part = rest.subarray(0, this.#left);
    this.#left -= part.length;
    this.#events.body(part);
    if (this.#state === 'data') this.#parts.push(part);
    if (this.#left === 0) {
      if (this.#state === 'data') this.#state = 'data-end';
      else this.#end([]);
    }
    return rest.subarray(part.length);
  }

  #size(rest: Buffer): Buffer | undefined {
    const end = rest.indexOf('\r\n');
    if (end === -1) return rest.length > 1024 ? this.#fault('the chunk size line is endless') : undefined;
    const line = rest.subarray(0, end).toString('latin1');
    if (!/^[0-9a-fA-F]{1,8}$/.test(line)) return this.#fault(`the chunk size is ${JSON.stringify(line)}`);
    this.#left = Number.parseInt(line, 16);
    this.#state = this.#left === 0 ? 'trailers' : 'data';
    return rest.subarray(end + 2);
  }

  #trailers(rest: Buffer): Buffer | undefined {
    if (rest.length >= 2 && rest[0] === 13 && rest[1] === 10) {
      this.#end([]);
      return rest.subarray(2);
    }
    const end = rest.indexOf('\r\n\r\n');
    if (end === -1) return rest.length > HEAD_LIMIT ? this.#fault('the trailers are endless') : undefined;
    const fields = parseFields(rest.subarray(0, end).toString('latin1').split('\r\n'));
    if (typeof fields === 'string') return this.#fault(fields);
    this.#end(fields);
    return rest.subarray(end + 4);
  }

  #end(trailers: readonly Field[]): void {
    this.#state = 'head';
    this.#events.end(trailers);
  }

  #fault(reason: string): Buffer {
    this.#state = 'dead';
    this.#events.fault(reason);
    return EMPTY;
  }
}

/** Field lines without their CRLF; a string says which rule a line breaks. */
export function parseFields(lines: readonly string[]): Field[] | string {
  const fields: Field[] = [];
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon);
    // RFC 9112, 5.1 and 5.2: no space before the colon, no folded lines.
    if (colon === -1 || !TOKEN.test(name)) return `not a header field: ${JSON.stringify(line.slice(0, 80))}`;
    const value = line.slice(colon + 1).replace(/^[ \t]+|[ \t]+$/g, '');
    if (BAD_VALUE.test(value)) return `the value of ${name} holds a control character`;
    fields.push([name, value]);
  }
  return fields;
}

/** All values of a field, whatever the case of its name. */
export function fieldValues(fields: readonly Field[], name: string): string[] {
  const wanted = name.toLowerCase();
  return fields.filter(([each]) => each.toLowerCase() === wanted).map(([, value]) => value);
}

/**
 * Body framing by content-length and transfer-encoding alone (RFC 9112, 6.3), refusing all that two readers could
 * understand differently. `absent` is what holds when there is neither.
 */
export function bodyFraming(
  fields: readonly Field[],
  absent: 'none' | 'close',
): { framing: Framing; length: number } | string {
  const lengths = fieldValues(fields, 'content-length');
  const codings = fieldValues(fields, 'transfer-encoding');
  if (lengths.length > 1) return 'several content-length fields';
  if (codings.length > 1) return 'several transfer-encoding fields';
  if (lengths.length === 1 && codings.length === 1) return 'both content-length and transfer-encoding';
  const [coding] = codings;
  if (coding !== undefined) {
    return coding.toLowerCase() === 'chunked'
      ? { framing: 'chunked', length: 0 }
      : `transfer-encoding is ${JSON.stringify(coding)}`;
  }
  const [length] = lengths;
  if (length === undefined) return { framing: absent, length: 0 };
  if (!/^(0|[1-9]\d{0,14})$/.test(length)) return `content-length is ${JSON.stringify(length)}`;
  return { framing: 'length', length: Number(length) };
}

function hasBareBreak(bytes: Buffer): boolean {
  for (let at = bytes.indexOf(10); at !== -1; at = bytes.indexOf(10, at + 1)) {
    if (at === 0 || bytes[at - 1] !== 13) return true;
  }
  return false;
}
