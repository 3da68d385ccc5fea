// The references of a request to objects at upstreams: their texts, the bound of their number, those in a query, and what an id looks
// like. object-references.ts finds those in a JSON body.
import { GatewayError } from '../../errors.ts';
import { holdsId, MIN_ID_LENGTH, meaningOf, plainText } from '../../wire/object-names.ts';

/** Most distinct texts to look up per request; no legitimate request has more. */
const MAX_TEXTS = 10_000;
/** Matches ids, but no sentences. */
export const IDENTIFIER = /^[\w.:-]{4,200}$/;

const QUOTE = 0x22;
const HYPHEN = 0x2d;
const BACKSLASH = 0x5c;
const UNDERSCORE = 0x5f;
const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;
const SPACE = 0x20;

/** The references of a request. */
export interface References {
  /** Ids, which must be the holder's. */
  readonly certain: ReadonlySet<string>;
  /** Possible ids, which must not be another holder's. */
  readonly possible: ReadonlySet<string>;
}

export class ReferenceSet implements References {
  readonly certain = new Set<string>();
  readonly possible = new Set<string>();
  /** Stored responses. */
  readonly responses = new Set<string>();

  get size(): number {
    return this.certain.size + this.possible.size + this.responses.size;
  }

  /**
   * Adds all parameters, in each way that servers parse a query: with and without `;` as a separator, and doubly decoded.
   * @param search the query string without `?`
   */
  addQuery(search: string): void {
    for (const text of new Set([search, search.replaceAll(';', '&')]))
      this.addFields(new URLSearchParams(text));
  }

  /** Adds all fields of a form. */
  addFields(fields: Iterable<readonly [string, string]>): void {
    for (const [name, value] of fields) this.#considerParameter(name, value);
  }

  #considerParameter(name: string, value: string): void {
    const plain = decodedAgain(value);
    const meaning = meaningOf(withoutBrackets(decodedAgain(name)));
    // A page of a list starts after a cursor, which is an element of the list.
    const isCursor = name === 'after' || name === 'before';
    const isNamed = meaning !== 'none' && meaning !== 'type' && plain !== '';
    if (isNamed || (!isCursor && holdsId(plain))) this.add(plain, this.certain);
    else if (IDENTIFIER.test(plainText(plain))) this.addPossible(plain);
  }

  /** Adds the text in each form that some server would look up. */
  protected addPossible(text: string): void {
    this.add(text, this.possible);
    const plain = plainText(text);
    if (plain !== text && plain !== '') this.add(plain, this.possible);
  }

  protected add(text: string, to: Set<string>): void {
    to.add(text);
    if (this.size > MAX_TEXTS)
      throw new GatewayError('invalid_value', 'The request refers to too many objects.');
  }
}

/** Whether a token may be an id: long enough, with an early hyphen or underscore, or escaped. */
export function mayBeId(bytes: Buffer, start: number, end: number): boolean {
  if (end - start < MIN_ID_LENGTH) return false;
  let pos = start + 1;
  while (pos < end && bytes[pos] === SPACE) pos += 1;
  for (const stop = Math.min(end, pos + 8); pos < stop; pos++) {
    const byte = bytes[pos];
    if (byte === UNDERSCORE || byte === HYPHEN || byte === BACKSLASH) return true;
    // White space other than SPACE is escaped or not ASCII.
    if (byte !== undefined && byte > 0x7f) return true;
  }
  return false;
}

/** Whether it is an empty string, list or object. */
export function isEmpty(bytes: Buffer, start: number, end: number): boolean {
  const first = bytes[start];
  if (first === QUOTE) return end - start === 2;
  if (first !== OPEN_OBJECT && first !== OPEN_ARRAY) return false;
  let pos = start + 1;
  while (pos < end && (bytes[pos] ?? 0) <= SPACE) pos += 1;
  return pos === end - 1;
}

/** Without each bracket and what is in it, up to the next `]`. A regular expression would take quadratic time. */
function withoutBrackets(name: string): string {
  let rest = '';
  for (let at = 0; ; ) {
    const open = name.indexOf('[', at);
    const close = open === -1 ? -1 : name.indexOf(']', open);
    if (close === -1) return rest + name.slice(at);
    rest += name.slice(at, open);
    at = close + 1;
  }
}

function decodedAgain(text: string): string {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
