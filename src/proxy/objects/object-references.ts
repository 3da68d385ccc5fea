// The upstream objects that a JSON body refers to. It recognizes ids by form and position (wire/object-names.ts); object-owners.ts
// checks their ownership.
import { isUtf8 } from 'node:buffer';
import { GatewayError } from '../../errors.ts';
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';
import { inSlices } from '../../http/pieces/text-slices.ts';
import { decodeString, type JsonScanner, MAX_DEPTH } from '../../wire/json/json.ts';
import { invalidJson } from '../../wire/json/json-text.ts';
import { JsonWalk, type WalkListener } from '../../wire/json/json-walk.ts';
import {
  formOf,
  isItemList,
  meaningOf,
  meaningOfId,
  type NameMeaning,
  plainText,
} from '../../wire/object-names.ts';
import { isCompleteItem, isContent, type ObjectPosition, objectPositionOf } from './object-positions.ts';
import { IDENTIFIER, isEmpty, mayBeId, ReferenceSet } from './reference-set.ts';

/** An id with every character escaped, in quotes. */
const MAX_TOKEN = 6 * 200 + 2;
/** Longest value of a member that names an object, in bytes, including white space around the id. */
const MAX_PADDED = 64 * 1024;
/** Of longer names, the end is read: it tells whether the member holds an id. */
const MAX_NAME = 1024;

const QUOTE = 0x22;
const LETTER_N = 0x6e;
const OPEN_OBJECT = 0x7b;

interface FinderOptions {
  /** Stored responses go to `responses` and are looked up elsewhere. Default: they count as objects, have no owner, and are rejected. */
  readonly takesStored?: boolean;
  /** Every text that could be an id is possible, not only those in the form of one. Default true. */
  readonly allTexts?: boolean;
  /** The member that holds the request body, in a line of a batch. */
  readonly root?: string;
}

/** An object of the body while its members are read. */
interface OpenObject {
  readonly ids: string[];
  readonly types: string[];
  /** Its content members, and those whose content is empty. */
  readonly content: string[];
  readonly empty: string[];
}

/** The type of an item that is only an id. */
const REFERENCE = 'itemreference';

export class ReferenceFinder extends ReferenceSet implements WalkListener {
  readonly depth = MAX_DEPTH;
  readonly #options: FinderOptions;
  /** Answered approval requests, and items present with their content. */
  readonly #approvals = new Set<string>();
  readonly #complete = new Set<string>();
  #bytes: Buffer = Buffer.alloc(0);
  /** By depth: the member name (`#` for an array element), and the name that applies to a value there. */
  readonly #path: string[] = [''];
  readonly #names: string[] = [''];
  readonly #meanings: NameMeaning[] = ['none'];
  readonly #positions: ObjectPosition[] = ['plain'];
  readonly #objects: (OpenObject | undefined)[] = [];

  constructor(options: FinderOptions = {}) {
    super();
    this.#options = options;
  }

  /**
   * Walks a whole JSON text, including duplicate members: an upstream may read either one.
   * @throws GatewayError invalid_json, or invalid_value when it has too many references
   */
  addJson(bytes: Buffer): this {
    const walk = this.#begin(bytes);
    walk.advance(bytes, bytes.length, true);
    return this.#end(walk);
  }

  /** `addJson`, or `addLargeJson` for a large body. */
  addBody(bytes: Buffer): this | Promise<this> {
    return bytes.length > LARGE_BODY ? this.addLargeJson(bytes) : this.addJson(bytes);
  }

  /** As `addJson`, for a long text: yields to the event loop between slices. */
  async addLargeJson(bytes: Buffer): Promise<this> {
    const walk = this.#begin(bytes);
    await inSlices(bytes.length, (end, isLast) => {
      walk.advance(bytes, end, isLast);
      return walk.fault === null;
    });
    return this.#end(walk);
  }

  #begin(bytes: Buffer): JsonWalk {
    // A decoder that drops invalid UTF-8 would read other names.
    if (!isUtf8(bytes)) throw new GatewayError('invalid_json', 'The request body is not valid UTF-8.');
    this.#bytes = bytes;
    return new JsonWalk(this);
  }

  #end({ fault, faultAt }: JsonWalk): this {
    if (fault !== null) throw invalidJson(fault, faultAt);
    for (const id of this.#approvals) this.add(id, this.#complete.has(id) ? this.possible : this.certain);
    this.#approvals.clear();
    return this;
  }

  opened(depth: number, isObject: boolean): void {
    if (isObject) {
      this.#objects[depth] = undefined;
      return;
    }
    const above = this.#positions[depth - 1];
    this.#path[depth] = '#';
    this.#names[depth] = this.#names[depth - 1] ?? '';
    this.#meanings[depth] = this.#meanings[depth - 1] ?? 'none';
    this.#positions[depth] = above === 'quoted' || above === 'text' ? above : 'plain';
  }

  key(depth: number, scanner: JsonScanner): void {
    const { start, end } = scanner.keySpan;
    const isLong = end - start > MAX_NAME;
    const name = isLong
      ? this.#bytes.toString('latin1', end - MAX_NAME, end - 1)
      : decodeString(this.#bytes, { start, end });
    this.#path[depth] = isLong ? '' : name;
    this.#names[depth] = name;
    this.#meanings[depth] = meaningOf(name);
    this.#positions[depth] = objectPositionOf(
      this.#path,
      depth,
      this.#positions[depth - 1],
      this.#options.root,
    );
  }

  value(depth: number, start: number, end: number, isMember: boolean): void {
    const first = this.#bytes[start];
    const name = this.#path[depth] ?? '';
    if (isMember && first !== LETTER_N && isContent(name)) {
      const { content, empty } = this.#objectAt(depth);
      if (!isEmpty(this.#bytes, start, end)) content.push(name);
      // A message with an empty text is only an id; an empty call or output is not.
      else if (first !== QUOTE || name !== 'content') empty.push(name);
    }
    if (first === OPEN_OBJECT) this.#closed(depth);
    if (first === QUOTE) this.#text(depth, start, end);
  }

  #text(depth: number, start: number, end: number): void {
    const position = this.#positions[depth] ?? 'plain';
    if (position === 'free') return;
    const meaning = this.#meanings[depth] ?? 'none';
    if (meaning === 'none' && this.#options.allTexts === false && !mayBeId(this.#bytes, start, end)) return;
    if (end - start > MAX_TOKEN) {
      if (meaning !== 'none') this.#longText(meaning, position, start, end);
      return;
    }
    const text = decodeString(this.#bytes, { start, end });
    switch (meaning) {
      case 'type':
        if (position !== 'quoted') this.#objectAt(this.#memberAt(depth)).types.push(text);
        if (this.#options.allTexts !== false || mayBeId(this.#bytes, start, end))
          this.#consider('none', text, position);
        break;
      case 'id':
        this.#considerOwnId(this.#memberAt(depth), text, position);
        break;
      default:
        this.#consider(meaning, text, position);
    }
  }

  /** Some servers trim white space around an id; other long texts are no ids. */
  #longText(meaning: NameMeaning, position: ObjectPosition, start: number, end: number): void {
    if (end - start > MAX_PADDED) {
      // A data URL is content, even where an id could be.
      if (this.#bytes.toString('latin1', start + 1, start + 6) === 'data:') return;
      this.#consider(meaning, this.#bytes.toString('utf8', start + 1, start + MAX_TOKEN), position);
      return;
    }
    const text = decodeString(this.#bytes, { start, end });
    if (IDENTIFIER.test(plainText(text))) this.#consider(meaning, text, position);
  }

  /** `conversation: { id }` equals `conversation_id`. Other ids are judged once their object is complete. */
  #considerOwnId(depth: number, text: string, position: ObjectPosition): void {
    const meaning = meaningOfId(this.#names[depth - 1] ?? '');
    if (meaning === 'object' || meaning === 'response') this.#consider(meaning, text, position);
    else if (position === 'quoted') this.#consider('none', text, position);
    else this.#objectAt(depth).ids.push(text);
  }

  #objectAt(depth: number): OpenObject {
    let object = this.#objects[depth];
    if (object === undefined) {
      object = { ids: [], types: [], content: [], empty: [] };
      this.#objects[depth] = object;
    }
    return object;
  }

  /** The depth of the member that holds the value at `depth`, possibly within lists. */
  #memberAt(depth: number): number {
    let member = depth;
    while (member > 1 && this.#path[member] === '#') member -= 1;
    return member;
  }

  /** The object at `depth` is complete: decides whether its id refers to content that is not in the body. */
  #closed(depth: number): void {
    const object = this.#objects[depth + 1];
    if (object === undefined) return;
    this.#objects[depth + 1] = undefined;
    const { ids, content, empty } = object;
    if (ids.length === 0) return;
    const types = object.types.map(typeOf);
    const isReference = types.some((type) => type.replaceAll('_', '') === REFERENCE);
    const isItem = isReference || isItemList(this.#names[depth] ?? '');
    for (const text of ids) {
      if (text === '') continue;
      if (!isItem && formOf(plainText(text)) !== 'item') this.#consider('none', text, 'plain');
      else if (isReference || !isCompleteItem(types, content, empty)) this.add(text, this.certain);
      else {
        this.#complete.add(text);
        this.addPossible(text);
      }
    }
  }

  #consider(meaning: NameMeaning, text: string, position: ObjectPosition): void {
    if (text === '') return;
    const plain = plainText(text);
    const form = formOf(plain);
    const isQuoted =
      position === 'quoted' || meaning === 'call' || (position === 'text' && meaning === 'none');
    if (meaning === 'none' && form === undefined) {
      if (this.#options.allTexts !== false && IDENTIFIER.test(plain)) this.addPossible(text);
    } else if (isQuoted) {
      if (form !== undefined || this.#options.allTexts !== false) this.addPossible(text);
    } else if (meaning === 'approval') this.add(text, this.#approvals);
    else if (meaning === 'response' || (meaning === 'none' && form === 'response'))
      this.add(text, this.#options.takesStored === true ? this.responses : this.certain);
    else this.add(text, this.certain);
  }

  override get size(): number {
    return super.size + this.#approvals.size;
  }
}

/** The type in a uniform spelling. */
function typeOf(text: string): string {
  return plainText(text).toLowerCase().replaceAll('-', '_');
}
