// Which objects at an upstream a JSON body, or a query, may mean. It knows ids by their form and by where they stand, and
// nothing of whose they are (objects.ts).
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayError } from '../errors.ts';
import { LARGE_BODY } from '../http/body-buffer.ts';
import { decodeString, type JsonScanner, MAX_DEPTH } from './json.ts';
import { JsonWalk, type WalkListener } from './json-walk.ts';

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
/** A longer name is judged by its end, which is what says that a member holds an id. */
const LONGEST_NAME = 1024;
/** Of a long text, so much is read before the event loop is looked after, or what takes so long, in milliseconds. */
const SLICE_BYTES = 32 * 1024;
const TURN_MS = 0.5;
/** Below these members holders write what they like, and no upstream looks for objects there. */
const FREE = new Set(['metadata', 'attributes']);

/** What a request may mean. */
export interface References {
  /** These are ids, and have to be the holder's. */
  readonly certain: ReadonlySet<string>;
  /** These may be ids, and must not be somebody else's. */
  readonly possible: ReadonlySet<string>;
}

export class ReferenceFinder implements References, WalkListener {
  readonly depth = MAX_DEPTH;
  readonly #takesStored: boolean;
  readonly certain = new Set<string>();
  readonly possible = new Set<string>();
  #bytes: Buffer = Buffer.alloc(0);
  /** By depth: what a value is called there. Elements of an array are called as it is. */
  readonly #names: string[] = [''];
  /** The depth of a member in which nothing counts, while it is read. */
  #free = Number.POSITIVE_INFINITY;

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
    const walk = this.#begin(bytes);
    walk.advance(bytes, bytes.length, true);
    checkWalk(walk);
    return this;
  }

  /** As `addJson`, or as `addLargeJson` where the body is large. */
  addBody(bytes: Buffer): this | Promise<this> {
    return bytes.length > LARGE_BODY ? this.addLargeJson(bytes) : this.addJson(bytes);
  }

  /** As `addJson`, of a text that is long: with turns of the event loop between. */
  async addLargeJson(bytes: Buffer): Promise<this> {
    const walk = this.#begin(bytes);
    let began = performance.now();
    for (let end = 0; end < bytes.length && walk.fault === null; ) {
      end = Math.min(bytes.length, end + SLICE_BYTES);
      walk.advance(bytes, end, end === bytes.length);
      if (performance.now() - began < TURN_MS) continue;
      await nextTurn();
      began = performance.now();
    }
    checkWalk(walk);
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

  #begin(bytes: Buffer): JsonWalk {
    this.#bytes = bytes;
    this.#free = Number.POSITIVE_INFINITY;
    return new JsonWalk(this);
  }

  opened(depth: number, isObject: boolean): void {
    if (!isObject) this.#names[depth] = this.#names[depth - 1] ?? '';
  }

  key(depth: number, scanner: JsonScanner): void {
    if (depth > this.#free) return;
    const { start, end } = scanner.keySpan;
    const isLong = end - start > LONGEST_NAME;
    const name = isLong
      ? this.#bytes.toString('latin1', end - LONGEST_NAME, end - 1)
      : decodeString(this.#bytes, { start, end });
    if (FREE.has(name)) this.#free = depth;
    // `conversation: { id }` means what `conversation_id` means.
    else this.#names[depth] = name === 'id' ? `${this.#names[depth - 1] ?? ''}_id` : name;
  }

  value(depth: number, start: number, end: number): void {
    if (depth >= this.#free) {
      if (depth === this.#free) this.#free = Number.POSITIVE_INFINITY;
      return;
    }
    if (this.#bytes[start] !== 0x22 || end - start > LONGEST_TOKEN) return;
    this.#consider(this.#names[depth] ?? '', decodeString(this.#bytes, { start, end }));
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

function checkWalk({ fault, faultAt }: JsonWalk): void {
  if (fault === null) return;
  throw new GatewayError('invalid_json', `The request body is not valid JSON: ${fault} at byte ${faultAt}.`);
}
