// A request of the public listener. Clients send the same header lines with each request of a connection, so lines that were read and
// checked once are only compared. edge.ts has the checks.
import { type IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** Header fields that passed the checks; no name is repeated. */
interface PassedFields {
  readonly raw: readonly string[];
  readonly headers: IncomingHttpHeaders;
}

/** Of the connections. */
const passed = new WeakMap<Socket, PassedFields>();

export class IncomingRequest extends IncomingMessage {
  #headers: IncomingHttpHeaders | undefined;
  #changed: readonly number[] | undefined;

  static {
    // TypeScript has no accessor for what Node's types declare as a property.
    Object.defineProperty(IncomingRequest.prototype, 'headers', {
      get(this: IncomingRequest): IncomingHttpHeaders {
        this.#headers ??= this.#likeBefore() ?? Reflect.get(IncomingMessage.prototype, 'headers', this);
        return this.#headers;
      },
      set(this: IncomingRequest, headers: IncomingHttpHeaders) {
        this.#headers = headers;
      },
    });
  }

  /**
   * If an earlier request of the connection passed with the same names in the same order: the offsets in `rawHeaders` of the names whose
   * values are others now. Undefined if all fields have to be checked.
   */
  get changed(): readonly number[] | undefined {
    void this.headers;
    return this.#changed;
  }

  /** All fields passed the checks. */
  pass(): void {
    const { headers, rawHeaders: raw } = this;
    // Node joins repeated fields, and makes a list of this one.
    const isPlain = Object.keys(headers).length * 2 === raw.length && headers['set-cookie'] === undefined;
    if (this.#changed === undefined && isPlain) passed.set(this.socket, { raw, headers });
  }

  #likeBefore(): IncomingHttpHeaders | undefined {
    const before = passed.get(this.socket);
    const { rawHeaders } = this;
    if (before === undefined || before.raw.length !== rawHeaders.length) return undefined;
    const changed: number[] = [];
    const headers = { ...before.headers };
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const name = rawHeaders[at];
      if (name === undefined || name !== before.raw[at]) return undefined;
      const value = rawHeaders[at + 1];
      if (value === before.raw[at + 1]) continue;
      changed.push(at);
      headers[name.toLowerCase()] = value;
    }
    this.#changed = changed;
    return headers;
  }
}
