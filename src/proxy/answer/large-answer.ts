// A large JSON answer: its memory, and its facts as they are parsed while it arrives, so that no work on the whole body remains.
// chat-chunk.ts reads small answers when they are complete, with the same results.

import { BodyBuffer } from '../../http/pieces/body-buffer.ts';
import type { BufferPool } from '../../http/pieces/buffer-pool.ts';
import { BodyMemory } from '../../http/pieces/large-body-memory.ts';
import { type CompletionFacts, isTruthy, readCompletion } from '../../wire/chat-chunk.ts';
import type { JsonScanner, Span } from '../../wire/json/json.ts';
import { JsonWalk, type WalkListener } from '../../wire/json/json-walk.ts';
import { BOM, bytesStartWith } from '../../wire/sse-fields.ts';
import { indexBeside, millisecondsOf, parseUsage } from '../../wire/token-usage.ts';

const QUOTE = 0x22;
const OPEN_ARRAY = 0x5b;
const LETTER_N = 0x6e;
const OPEN_OBJECT = 0x7b;

const NO_BYTES: Buffer = Buffer.alloc(0);

/** Meanings of the members of the outermost object. */
const UNREAD = 0;
const MODEL = 1;
const USAGE = 2;
const ERROR = 3;
const CHOICES = 4;
const GROQ = 5;
const DATA = 6;
const DURATION = 7;
/** The first of `indexBeside`. */
const BESIDE = 8;

/** Incremental `readCompletion`. Of duplicate keys the last counts. */
export class AnswerWalk implements WalkListener {
  /** The depth of the members of a choice. */
  readonly depth = 3;
  readonly #walk = new JsonWalk(this);
  #bytes = NO_BYTES;
  #meaning = UNREAD;
  #isUsage = false;
  #isChoiceUsage = false;
  #modelSpan: Span | null = null;
  #usageSpan: Span | null = null;
  #groqSpan: Span | null = null;
  #choiceUsageSpan: Span | null = null;
  readonly #beside: Span[] = [];
  #hasError = false;
  #hasChoices = false;
  #items: number | undefined;
  #milliseconds = 0;

  /** As `JsonWalk.advance`. Throws nothing. */
  advance(bytes: Buffer, size: number, isLast: boolean): void {
    this.#bytes = bytes;
    this.#walk.advance(bytes, size, isLast);
  }

  /** Call after the last `advance`. */
  facts(): CompletionFacts {
    const valid = this.#walk.fault === null && this.#walk.isObject;
    if (!valid) return { valid, isError: false, hasChoices: false, modelSpan: null, usage: null };
    const usage = this.#usageSpan ?? this.#groqSpan ?? this.#choiceUsageSpan;
    return {
      valid,
      isError: this.#hasError && !this.#hasChoices,
      hasChoices: this.#hasChoices,
      modelSpan: this.#modelSpan,
      usage: usage === null ? null : parseUsage(this.#bytes, usage, this.#beside),
      contents: { items: this.#items, milliseconds: this.#milliseconds },
    };
  }

  key(depth: number, scanner: JsonScanner): void {
    if (depth === 3) {
      this.#isChoiceUsage = this.#meaning === CHOICES && scanner.keyIs('usage');
      return;
    }
    if (depth === 2) {
      this.#isUsage = this.#meaning === GROQ && scanner.keyIs('usage');
      return;
    }
    this.#meaning = meaningOf(scanner);
    if (this.#meaning === GROQ) this.#groqSpan = null;
    else if (this.#meaning === CHOICES) {
      this.#hasChoices = false;
      this.#choiceUsageSpan = null;
    } else if (this.#meaning === DATA) this.#items = 0;
  }

  value(depth: number, start: number, end: number, isMember: boolean): void {
    if (depth === 3) {
      if (isMember && this.#isChoiceUsage && this.#bytes[start] === OPEN_OBJECT)
        this.#choiceUsageSpan = { start, end };
      return;
    }
    if (depth === 2) {
      if (this.#meaning === CHOICES) this.#hasChoices = true;
      else if (this.#meaning === DATA && !isMember) this.#items = (this.#items ?? 0) + 1;
      else if (isMember && this.#isUsage) this.#groqSpan = this.#spanIf(OPEN_OBJECT, start, end);
    } else if (depth === 1) this.#take(start, end);
  }

  #take(start: number, end: number): void {
    const first = this.#bytes[start];
    switch (this.#meaning) {
      case MODEL:
        this.#modelSpan = this.#spanIf(QUOTE, start, end);
        break;
      case USAGE:
        this.#usageSpan = this.#spanIf(OPEN_OBJECT, start, end);
        break;
      case ERROR:
        this.#hasError = isTruthy(this.#bytes, start, end);
        break;
      case CHOICES:
        if (first === OPEN_ARRAY) break;
        this.#hasChoices = first !== LETTER_N;
        this.#choiceUsageSpan = null;
        break;
      case DATA:
        if (first !== OPEN_ARRAY) this.#items = undefined;
        break;
      case DURATION:
        this.#milliseconds = millisecondsOf(JSON.parse(this.#bytes.toString('utf8', start, end)));
        break;
      default:
        if (this.#meaning >= BESIDE) this.#beside[this.#meaning - BESIDE] = { start, end };
    }
  }

  #spanIf(first: number, start: number, end: number): Span | null {
    return this.#bytes[start] === first ? { start, end } : null;
  }
}

function meaningOf(scanner: JsonScanner): number {
  if (scanner.keyIs('model')) return MODEL;
  if (scanner.keyIs('choices')) return CHOICES;
  if (scanner.keyIs('usage')) return USAGE;
  if (scanner.keyIs('error')) return ERROR;
  if (scanner.keyIs('data')) return DATA;
  if (scanner.keyIs('duration')) return DURATION;
  if (scanner.keyIs('x_groq')) return GROQ;
  const index = indexBeside(scanner);
  return index === -1 ? UNREAD : BESIDE + index;
}

export class LargeAnswer extends BodyMemory {
  readonly #buffer: BodyBuffer;
  readonly #walk = new AnswerWalk();
  /** Begins with a byte order mark, which the walk does not support. */
  #isMarked: boolean | undefined;

  /**
   * @param limit in bytes
   * @param expected the announced length in bytes, if known
   */
  constructor(limit: number, expected: number | undefined, buffers: BufferPool) {
    super(buffers);
    this.#buffer = new BodyBuffer(limit, expected, this);
  }

  /** @param piece ownership passes to this object; not beyond the limit */
  push(piece: Buffer): void {
    this.#buffer.push(piece);
  }

  /** Call after the last piece. */
  end(): { readonly body: Buffer; readonly facts: CompletionFacts } {
    const body = this.#buffer.take();
    if (this.#isMarked !== false) return { body, facts: readCompletion(body) };
    this.#walk.advance(body, body.length, true);
    return { body, facts: this.#walk.facts() };
  }

  protected override advance(bytes: Buffer, size: number): void {
    this.#isMarked ??= bytesStartWith(bytes, BOM, 0, size);
    if (!this.#isMarked) this.#walk.advance(bytes, size, false);
  }
}
