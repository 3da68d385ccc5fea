// A JSON answer that is large: the memory that it stands in, and what is found in it while it comes, so that nothing is left to
// be done with all of it at once. Small answers are read when they are whole, by chat-chunk.ts, and mean the same.

import { BodyBuffer } from '../../http/pieces/body-buffer.ts';
import type { BufferPool } from '../../http/pieces/buffer-pool.ts';
import { BodyMemory } from '../../http/pieces/large-body-memory.ts';
import { type CompletionFacts, isTruthy, parseUsage, readCompletion } from '../../wire/chat-chunk.ts';
import type { JsonScanner, Span } from '../../wire/json.ts';
import { JsonWalk, type WalkListener } from '../../wire/json-walk.ts';
import { BOM, bytesStartWith } from '../../wire/sse-fields.ts';

const QUOTE = 0x22;
const OPEN_ARRAY = 0x5b;
const LETTER_N = 0x6e;
const OPEN_OBJECT = 0x7b;

const NO_BYTES: Buffer = Buffer.alloc(0);

/** What a member of the outermost object is. */
const UNREAD = 0;
const MODEL = 1;
const USAGE = 2;
const ERROR = 3;
const CHOICES = 4;
const GROQ = 5;

/** `readCompletion`, as the answer comes. Of equal keys the last counts. */
export class AnswerWalk implements WalkListener {
  /** That of `x_groq.usage`, and of what stands in `choices`. */
  readonly depth = 2;
  readonly #walk = new JsonWalk(this);
  #bytes = NO_BYTES;
  #meaning = UNREAD;
  #isUsage = false;
  #modelSpan: Span | null = null;
  #usageSpan: Span | null = null;
  #groqSpan: Span | null = null;
  #hasError = false;
  #hasChoices = false;

  /** As `JsonWalk.advance`. Throws nothing. */
  advance(bytes: Buffer, size: number, isLast: boolean): void {
    this.#bytes = bytes;
    this.#walk.advance(bytes, size, isLast);
  }

  /** When it has seen all of it. */
  facts(): CompletionFacts {
    const valid = this.#walk.fault === null && this.#walk.isObject;
    if (!valid) return { valid, isError: false, hasChoices: false, modelSpan: null, usage: null };
    const usage = this.#usageSpan ?? this.#groqSpan;
    return {
      valid,
      isError: this.#hasError && !this.#hasChoices,
      hasChoices: this.#hasChoices,
      modelSpan: this.#modelSpan,
      usage: usage === null ? null : parseUsage(this.#bytes, usage),
    };
  }

  key(depth: number, scanner: JsonScanner): void {
    if (depth === 2) {
      this.#isUsage = this.#meaning === GROQ && scanner.keyIs('usage');
      return;
    }
    this.#meaning = meaningOf(scanner);
    if (this.#meaning === GROQ) this.#groqSpan = null;
    else if (this.#meaning === CHOICES) this.#hasChoices = false;
  }

  value(depth: number, start: number, end: number, isMember: boolean): void {
    if (depth === 2) {
      if (this.#meaning === CHOICES) this.#hasChoices = true;
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
        if (first !== OPEN_ARRAY) this.#hasChoices = first !== LETTER_N;
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
  return scanner.keyIs('x_groq') ? GROQ : UNREAD;
}

export class LargeAnswer extends BodyMemory {
  readonly #buffer: BodyBuffer;
  readonly #walk = new AnswerWalk();
  /** Begins with a byte order mark, which a walk does not know. */
  #isMarked: boolean | undefined;

  /**
   * @param limit most bytes
   * @param expected how many will come, if that was announced
   */
  constructor(limit: number, expected: number | undefined, buffers: BufferPool) {
    super(buffers);
    this.#buffer = new BodyBuffer(limit, expected, this);
  }

  /** @param piece given away: nobody else reads it any more. Not beyond the limit */
  push(piece: Buffer): void {
    this.#buffer.push(piece);
  }

  /** When all of it has come. */
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
