// The frames of streams with typed events (responses, images, speech): which are output, which end the stream, and where usage,
// error and model name are. chat-chunk.ts reads chat chunks.
import type { GatewayError } from '../../errors.ts';
import type { Failure } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import { isErrorList, shapeOf } from '../../wire/answer-shape.ts';
import { type ChunkFacts, NO_CHUNK_FACTS, skipTruthy } from '../../wire/chat-chunk.ts';
import {
  type CreatedItem,
  type CreatedObjects,
  readAnnotation,
  readItem,
} from '../../wire/created-objects.ts';
import { decodeString, JsonScanner, type Span } from '../../wire/json/json.ts';
import { mediaText, outputTextOf, TextCount } from '../../wire/output-text.ts';
import { dataOf, readFields, type SseData, spanEquals, spanInFrame } from '../../wire/sse-fields.ts';
import { indexBeside, OUTPUT_BESIDE, parseUsage } from '../../wire/token-usage.ts';
import type { FrameReader } from '../contracts/endpoint.ts';
import { judgeNamed } from './named-errors.ts';

/**
 * - `news`: progress without output; another upstream may repeat it.
 * - `output`: content for the client; commits the response.
 * - `last`: an item is complete, but others may follow.
 * - `end`: the last event, whatever its result.
 * - `failed`: the last event, which reports that there is no answer.
 */
export type EventKind = 'news' | 'output' | 'last' | 'end' | 'failed';

/** Maps the event types of an endpoint to kinds. */
type EventKinds = (type: string) => EventKind;

const QUOTE = 0x22;
const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;
const LETTER_E = 0x65;
const LETTER_F = 0x66;
const ERROR = Buffer.from('error');
const CONTENT_FILTER = Buffer.from('"content_filter');
/** Members of an event with the whole output, or with base64 media. */
const REPEATS = ['item', 'text', 'arguments', 'refusal', 'code', 'input', 'transcript'] as const;

/** For items, besides the scanner of their event. Shared: reading is synchronous. */
const itemScanner = new JsonScanner();

export class EventReader implements FrameReader {
  readonly #kinds: EventKinds;
  readonly #onCreated: ((created: CreatedObjects) => void) | undefined;
  #createdId: Span | null = null;
  #isStored = true;
  #hasReported = false;
  /** Items in the current event. */
  readonly #items: CreatedItem[] = [];
  readonly #scanner = new JsonScanner();
  /** The last one seen. */
  #sequence: number | undefined;
  #hasEnded = false;
  #bytes: Buffer = Buffer.alloc(0);
  #type: Span | null = null;
  #model: Span | null = null;
  #usage: Span | null = null;
  readonly #beside: Span[] = [];
  #hasError = false;
  /** Of the response in the current event. */
  #isFiltered = false;
  /** Of the current event: its piece of output, and what it repeats as a whole. */
  readonly #own = new TextCount();
  readonly #repeated = new TextCount();
  #item: Span | null = null;
  readonly #text = new OutputText();
  readonly errorSign = 'type';
  /** Bytes of output text in the last event, beyond what earlier events reported. */
  text = 0;
  /** The client may have the whole answer with the last event, although usage is still to come. */
  mayBeLast = false;

  /** @param onCreated called with the response on the first event that has its id, and with items on each event that has any */
  constructor(kinds: EventKinds, onCreated?: (created: CreatedObjects) => void) {
    this.#kinds = kinds;
    this.#onCreated = onCreated;
  }

  read(bytes: Buffer, start: number, end: number): ChunkFacts {
    const { values, event } = readFields(bytes, start, end);
    const isErrorEvent = event !== null && spanEquals(bytes, event, ERROR);
    this.text = 0;
    const data = dataOf(bytes, values);
    if (data === null) return { ...NO_CHUNK_FACTS, hasError: isErrorEvent };
    // A chat convention that some servers add after the last event. Earlier, it would end an incomplete stream, so it is hidden.
    if (data.isDone)
      return { ...NO_CHUNK_FACTS, kind: this.#hasEnded ? 'done' : 'other', usageOnly: !this.#hasEnded };
    if (!this.#scan(data.bytes, data.start, data.end))
      return {
        ...NO_CHUNK_FACTS,
        kind: 'other',
        hasError: isErrorEvent || isErrorList(data.bytes, data.start, data.end),
      };
    this.#reportCreated(data.bytes);
    const type = this.#type === null ? '' : decodeString(data.bytes, this.#type);
    const isError = isErrorEvent || type === 'error' || this.#isBareError(type, data);
    const kind = isError ? 'failed' : this.#kinds(type);
    const isEnd = kind === 'end' || kind === 'failed';
    this.#hasEnded ||= isEnd || kind === 'last';
    if (kind === 'output' || kind === 'last') this.#countText(type, kind, data.bytes);
    return {
      ...NO_CHUNK_FACTS,
      kind: isEnd ? 'done' : 'json',
      hasError: kind === 'failed' || this.#hasError,
      modelSpan: this.#model === null ? null : spanInFrame(this.#model, values),
      hasOutput: kind === 'output',
      finish: kind === 'last' ? type : this.#isFiltered && !this.#hasItems ? 'content_filter' : null,
      usage: this.#usage === null ? null : parseUsage(data.bytes, this.#usage, this.#beside),
    };
  }

  /** In the API's form, and with the `error` object that SDKs look for in any stream. */
  errorFrame(error: GatewayError): Buffer {
    const { message, param, code, type } = error;
    const about = { type: 'error', code, message, param };
    const position = this.#sequence === undefined ? {} : { sequence_number: this.#sequence + 1 };
    const data = JSON.stringify({ ...about, ...position, error: { message, type, param, code } });
    return Buffer.from(`event: error\ndata: ${data}\n\n`);
  }

  judge(frame: Buffer, headers: ResponseHeaders): Failure {
    const data = dataOf(frame, readFields(frame, 0, frame.length).values);
    return judgeNamed(data === null ? '' : data.bytes.toString('utf8', data.start, data.end), headers);
  }

  /** Whether it is an error object without a wrapper. The types of all content events contain a dot. */
  #isBareError(type: string, { bytes, start, end }: SseData): boolean {
    return !type.includes('.') && !this.#hasError && shapeOf(bytes, start, end, false) === 'error';
  }

  /** @returns whether the data is a JSON object */
  #scan(bytes: Buffer, start: number, end: number): boolean {
    const scanner = this.#scanner;
    scanner.reset(bytes, start, end);
    this.#bytes = bytes;
    this.#type = null;
    this.#model = null;
    this.#usage = null;
    this.#beside.length = 0;
    this.#hasError = false;
    this.#createdId = null;
    this.#isFiltered = false;
    this.#own.begin();
    this.#repeated.begin();
    this.#item = null;
    let repeats = true;
    if (!scanner.enterObject()) return false;
    while (scanner.nextMember()) {
      if (scanner.keyIs('type')) {
        this.#type = this.#scanner.skipIf(QUOTE);
        // `done` ends in `e`, `delta` does not.
        repeats = this.#type === null || bytes[this.#type.end - 2] === LETTER_E;
      } else if (scanner.keyIs('response')) this.#response();
      else if (scanner.keyIs('sequence_number')) this.#number();
      else if (this.#onCreated !== undefined && scanner.keyIs('item')) this.#itemMember(bytes);
      else if (this.#onCreated !== undefined && scanner.keyIs('annotation'))
        readAnnotation(scanner, bytes, this.#items);
      else if (scanner.keyIs('error')) this.#hasError = skipTruthy(scanner, bytes);
      else if (scanner.keyIs('delta') && bytes[scanner.pos] === QUOTE) this.#delta();
      else if (isPiece(scanner)) this.#own.member(scanner, bytes);
      else if (repeats && REPEATS.some((name) => scanner.keyIs(name))) this.#repeated.member(scanner, bytes);
      else this.#either();
    }
    return scanner.finish();
  }

  #delta(): void {
    const scanner = this.#scanner;
    const { pos: start } = scanner;
    if (scanner.skipValue()) this.#own.bytes += scanner.pos - start - 2;
  }

  /** Reads an item twice: once for the record of created objects, once for its text. */
  #itemMember(bytes: Buffer): void {
    const scanner = this.#scanner;
    const { pos: start } = scanner;
    readItem(scanner, bytes, this.#items);
    if (scanner.fault === null) this.#item = { start, end: scanner.pos };
  }

  /** Reads the whole response object that some events carry. */
  #response(): void {
    const scanner = this.#scanner;
    if (!scanner.enterObjectOrSkip()) return;
    while (scanner.nextMember()) {
      if (scanner.keyIs('id')) this.#createdId = this.#scanner.skipIf(QUOTE);
      else if (scanner.keyIs('store')) this.#isStored = this.#scanner.skipIf(LETTER_F) === null;
      else if (scanner.keyIs('incomplete_details')) this.#isFiltered = this.#names(CONTENT_FILTER);
      else {
        const index = indexBeside(scanner);
        const span = index === -1 ? null : scanner.skipIf(scanner.peek());
        if (index === -1) this.#either();
        else if (span !== null) this.#beside[index] = span;
      }
    }
  }

  /** Skips an object. @returns whether the text is in it */
  #names(text: Buffer): boolean {
    const span = this.#scanner.skipIf(OPEN_OBJECT);
    return span !== null && this.#bytes.subarray(span.start, span.end).includes(text);
  }

  /** Whether the response has output; a space in an empty list is rare and costs only a fallback. */
  get #hasItems(): boolean {
    const output = this.#beside[OUTPUT_BESIDE];
    return output !== undefined && this.#bytes[output.start] === OPEN_ARRAY && output.end - output.start > 2;
  }

  #countText(type: string, kind: EventKind, bytes: Buffer): void {
    const isDone = type.endsWith('.done');
    this.mayBeLast = isDone || kind === 'last';
    if (!isDone) {
      // Base64 sound, which only the type distinguishes from text here.
      const isSound = type.endsWith('audio.delta') && type.startsWith('response.');
      this.text = this.#text.piece(isSound ? mediaText(this.#own.bytes) : this.#own.bytes);
      return;
    }
    const isItem = type.endsWith('_item.done');
    if (isItem && this.#item !== null) {
      itemScanner.reset(bytes, this.#item.start, this.#item.end);
      this.#repeated.bytes += outputTextOf(itemScanner, bytes);
    }
    if (isItem || !type.endsWith('_part.done')) this.text = this.#text.whole(this.#repeated.bytes, isItem);
  }

  #reportCreated(bytes: Buffer): void {
    if (this.#onCreated === undefined) return;
    const isStored = this.#isStored;
    if (this.#createdId !== null && !this.#hasReported) {
      this.#hasReported = true;
      const id = isStored ? decodeString(bytes, this.#createdId) : undefined;
      this.#onCreated({ id, isStored, items: [] });
    }
    if (this.#items.length > 0) this.#onCreated({ isStored, items: this.#items.splice(0) });
  }

  /** Reads members that occur in the event or in its response object. */
  #either(): void {
    const scanner = this.#scanner;
    if (scanner.keyIs('model')) this.#model = this.#scanner.skipIf(QUOTE);
    else if (scanner.keyIs('usage')) this.#usage = this.#scanner.skipIf(OPEN_OBJECT);
    else scanner.skipValue();
  }

  #number(): void {
    const scanner = this.#scanner;
    scanner.peek();
    const { pos } = scanner;
    if (!scanner.skipValue()) return;
    const number = Number(this.#bytes.toString('latin1', pos, scanner.pos));
    if (Number.isSafeInteger(number)) this.#sequence = number;
  }
}

/** Whether the member is the event's piece of output. */
function isPiece(scanner: JsonScanner): boolean {
  return scanner.keyIs('delta') || scanner.keyIs('audio') || scanner.keyIs('partial_image_b64');
}

/**
 * Counts the text of an answer whose events repeat it: in pieces, then as whole parts and whole items. The largest of the three
 * counts, because upstreams may omit any of them.
 */
class OutputText {
  #pieces = 0;
  #parts = 0;
  #items = 0;
  #counted = 0;

  /** @returns the bytes that the piece adds */
  piece(bytes: number): number {
    this.#pieces += bytes;
    return this.#added(this.#pieces);
  }

  /** @returns the bytes that the part or item adds */
  whole(bytes: number, isItem: boolean): number {
    if (isItem) this.#items += bytes;
    else this.#parts += bytes;
    return this.#added(isItem ? this.#items : this.#parts);
  }

  #added(all: number): number {
    const added = Math.max(0, all - this.#counted);
    this.#counted += added;
    return added;
  }
}
