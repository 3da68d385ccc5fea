// Which objects at an upstream a JSON body, or a query, may mean. It knows ids by their form and by where they stand, and
// nothing of whose they are (objects.ts).
import { GatewayError } from '../errors.ts';
import { decodeString, JsonScanner } from './json.ts';

/** Different texts of one request that are looked up; more is no honest request. */
const MOST = 10_000;
/** What an id can be, and a sentence cannot. */
const IDENTIFIER = /^[\w.:-]{4,200}$/;
/** An id with each of its characters escaped, and the quotes. */
const LONGEST_TOKEN = 6 * 200 + 2;
/** A member that is called so holds an id, whatever it looks like. */
const REFERENCE = /^(?:\w*_)?(?:file|vector_store|batch|upload|part|conversation)(?:_ids?|s)?$/;
/** Ids as OpenAI writes them; whatever holds one means the object. */
const SHAPE = /^(?:file|vs|vsfb|batch|upload|part|conv)[-_][A-Za-z0-9]{16,}$/;
/** A response at an upstream, and what names one of its items by its id alone. */
const STORED = /^(?:resp_[A-Za-z0-9]{16,}|item_reference)$/;
/** Below these members holders write what they like, and no upstream looks for objects there. */
const FREE = new Set(['metadata', 'attributes']);

/** What a request may mean. */
export interface References {
  /** These are ids, and have to be the holder's. */
  readonly certain: ReadonlySet<string>;
  /** These may be ids, and must not be somebody else's. */
  readonly possible: ReadonlySet<string>;
}

export class ReferenceFinder implements References {
  readonly #takesStored: boolean;
  readonly certain = new Set<string>();
  readonly possible = new Set<string>();

  /**
   * @param takesStored stored responses and their items may be meant, because somebody else sees to them. Where nobody does,
   *   they count as objects, of which they are none, and are refused
   */
  constructor({ takesStored = false } = {}) {
    this.#takesStored = takesStored;
  }

  /**
   * Walks a whole JSON text, duplicates of members included: an upstream may read another one than we would.
   * @throws GatewayError invalid_json, or invalid_value when it holds more than can be looked up
   */
  addJson(bytes: Buffer): this {
    const scanner = new JsonScanner();
    scanner.reset(bytes);
    this.#walk(scanner, bytes, '');
    if (!scanner.finish()) {
      const where = scanner.fault === null ? '' : `: ${scanner.fault} at byte ${scanner.faultAt}`;
      throw new GatewayError('invalid_json', `The request body is not valid JSON${where}.`);
    }
    return this;
  }

  /** @param search as it stands behind the `?` */
  addQuery(search: string): void {
    for (const [name, value] of new URLSearchParams(search)) this.#consider(name, value);
  }

  /** An id that stands in a path. */
  addId(id: string): void {
    this.certain.add(id);
  }

  get size(): number {
    return this.certain.size + this.possible.size;
  }

  #walk(scanner: JsonScanner, bytes: Buffer, key: string): void {
    if (scanner.enterObject()) {
      while (scanner.nextMember()) {
        const name = decodeString(bytes, scanner.keySpan);
        if (FREE.has(name)) scanner.skipValue();
        // `conversation: { id }` means what `conversation_id` means.
        else this.#walk(scanner, bytes, name === 'id' ? `${key}_id` : name);
      }
    } else if (scanner.enterArray()) {
      while (scanner.nextElement()) this.#walk(scanner, bytes, key);
    } else {
      const isText = scanner.peek() === 0x22;
      const start = scanner.pos;
      const isShort = scanner.skipValue() && isText && scanner.pos - start <= LONGEST_TOKEN;
      if (isShort) this.#consider(key, decodeString(bytes, { start, end: scanner.pos }));
    }
  }

  #consider(key: string, value: string): void {
    const isStored = STORED.test(value) || (key === 'previous_response_id' && value !== '');
    if (isStored) {
      if (!this.#takesStored) this.certain.add(value);
    } else if (SHAPE.test(value) || (REFERENCE.test(key) && value !== '')) this.certain.add(value);
    else if (IDENTIFIER.test(value)) this.possible.add(value);
    if (this.size > MOST) throw new GatewayError('invalid_value', 'The request names too many objects.');
  }
}
