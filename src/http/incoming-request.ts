// A request of the public listener. Clients send the same header lines with each request, so lines that were read and checked once are
// only compared. edge.ts has the checks.
import { type IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** Header fields that passed the checks; no name is repeated. */
interface PassedFields {
  readonly raw: readonly string[];
  readonly headers: IncomingHttpHeaders;
}

const UNCHANGED: readonly number[] = [];

/** The last ones by the length of `raw`, which edge.ts bounds: clients of one kind send equally many. */
const passed = new Map<number, PassedFields>();
/** Fields with credentials: their values are not kept. */
const SECRET = /^(?:authorization|proxy-authorization|cookie|(?:x-)?api-key|sec-websocket-protocol)$/i;

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
   * If an earlier request passed with the same names in the same order: the offsets in `rawHeaders` of the names whose values are others
   * now. Undefined if all fields have to be checked.
   */
  get changed(): readonly number[] | undefined {
    void this.headers;
    return this.#changed;
  }

  /** All fields passed the checks. */
  pass(): void {
    const { headers, rawHeaders } = this;
    // Node joins repeated fields, and makes a list of this one.
    const isPlain =
      Object.keys(headers).length * 2 === rawHeaders.length && headers['set-cookie'] === undefined;
    if (this.#changed !== undefined) {
      // Read once; the request lives as long as its answer.
      this.#changed = UNCHANGED;
      return;
    }
    if (!isPlain) return;
    const [raw, kept] = [[...rawHeaders], { ...headers }];
    for (let at = 0; at < raw.length; at += 2) {
      const name = raw[at] ?? '';
      if (SECRET.test(name)) raw[at + 1] = kept[name.toLowerCase()] = '';
    }
    passed.set(raw.length, { raw, headers: kept });
  }

  #likeBefore(): IncomingHttpHeaders | undefined {
    const { rawHeaders } = this;
    const before = passed.get(rawHeaders.length);
    if (before === undefined) return undefined;
    const changed: number[] = [];
    const headers = { ...before.headers };
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const name = rawHeaders[at];
      const earlier = before.raw[at];
      if (name === undefined || name !== earlier) return undefined;
      // The parser's own texts are garbage then, while a stream is open.
      rawHeaders[at] = earlier;
      const value = rawHeaders[at + 1];
      const earlierValue = before.raw[at + 1];
      if (earlierValue !== undefined && value === earlierValue) {
        rawHeaders[at + 1] = earlierValue;
        continue;
      }
      changed.push(at);
      headers[name.toLowerCase()] = value;
    }
    this.#changed = changed;
    return headers;
  }
}
