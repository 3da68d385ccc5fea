// Reads the facts of one SSE frame, and of a whole JSON completion, from the upstream's answer. It changes nothing and decides
// nothing; sse-frames.ts cuts the frames.

import { type AnswerContents, isErrorList, shapeOf } from './answer-shape.ts';
import { decodeString, JsonScanner, type Span } from './json/json.ts';
import { TextCount } from './output-text.ts';
import {
  BOM,
  bytesStartWith,
  DATA,
  dataOf,
  isLineBreak,
  readFields,
  spanEquals,
  spanInFrame,
} from './sse-fields.ts';
import { indexBeside, parseUsage, type Usage } from './token-usage.ts';

/** Facts of chunks and completions. Spans are offsets in the buffer that was read. */
interface AnswerFacts {
  /** The top-level `model` when it is a string, quotes included. */
  readonly modelSpan: Span | null;
  /** Whether a choice has output: a member of its delta or message other than the role, or its text. */
  readonly hasOutput: boolean;
  /** The last non-empty `finish_reason` of its choices. */
  readonly finish: string | null;
  /** From `usage`, from Groq's `x_groq.usage`, or from that of a choice, as Moonshot has it. */
  readonly usage: Usage | null;
}

export interface ChunkFacts extends AnswerFacts {
  /**
   * `comment`: no data (comments, blank lines, other fields). `done`: data that begins with `[DONE]`, which is what SDKs test for.
   * `json`: data that is a JSON object. `other`: any other data, which is forwarded unchanged.
   */
  readonly kind: 'comment' | 'done' | 'json' | 'other';
  /** A truthy top-level `error` (the test of the SDKs), `event: error`, an error object without that wrapper or in an array, or a choice that failed. */
  readonly hasError: boolean;
  /** The extra chunk of `include_usage`: usage and no choices, hidden from a client that did not ask for it. For typed events: hidden. */
  readonly usageOnly: boolean;
}

/** Facts of a whole answer of any size. */
export interface CompletionFacts extends Pick<AnswerFacts, 'modelSpan' | 'usage'> {
  /** Whether the body is a JSON object; if not, all other facts are empty. */
  readonly valid: boolean;
  /** A truthy top-level `error`, and no choices. */
  readonly isError: boolean;
  /** Whether it has `choices`, so that it is no error object in another shape. */
  readonly hasChoices: boolean;
  /** Whether a choice failed and there is no output. Large answers have output. */
  readonly hasFailed?: boolean;
  /** Of a large answer, as `contentsOf` of answer-shape.ts has them of a small one. */
  readonly contents?: AnswerContents;
}

const SPACE = 0x20;
const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
const LETTER_N = 0x6e;

const NO_BYTES: Buffer = Buffer.alloc(0);
const ERROR = Buffer.from('error');
/** Finish reasons with which vendors say that they failed: Mistral and OpenRouter; DeepSeek; vLLM and SGLang. */
const FAILURES: readonly (string | null)[] = ['error', 'insufficient_system_resource', 'abort'];
const NO_FACTS: AnswerFacts = { modelSpan: null, hasOutput: false, finish: null, usage: null };

/** Reads one JSON chunk or completion in a single pass over its top level, and into choices only as far as needed. */
class AnswerReader implements AnswerFacts {
  modelSpan: Span | null = null;
  hasOutput = false;
  finish: string | null = null;
  usage: Usage | null = null;
  hasError = false;
  readonly #text = new TextCount();
  /** Whether `choices` is present and neither null nor an empty array. */
  hasChoices = false;
  #hasChoiceError = false;

  readonly #scanner = new JsonScanner();
  #bytes = NO_BYTES;
  #usageSpan: Span | null = null;
  #groqSpan: Span | null = null;
  #choiceUsageSpan: Span | null = null;
  readonly #beside: Span[] = [];

  get text(): number {
    return this.#text.bytes;
  }

  /** Whether there is no output because the vendor failed: a choice has an `error`, as OpenRouter sends it, or a finish reason that says so. */
  get hasFailed(): boolean {
    return !this.hasOutput && (this.#hasChoiceError || FAILURES.includes(this.finish));
  }

  /** Whether there is a CR or LF between tokens. */
  get sawLineBreak(): boolean {
    return this.#scanner.sawLineBreak;
  }

  /** Reads the text in `[start, end)`; of equal keys the last counts. @returns false if it is not a JSON object */
  read(bytes: Buffer, start: number, end: number): boolean {
    const scanner = this.#scanner;
    scanner.reset(bytes, start, end);
    this.#bytes = bytes;
    this.modelSpan = null;
    this.hasOutput = false;
    this.finish = null;
    this.usage = null;
    this.hasError = false;
    this.hasChoices = false;
    this.#hasChoiceError = false;
    this.#text.bytes = 0;
    this.#usageSpan = null;
    this.#groqSpan = null;
    this.#choiceUsageSpan = null;
    this.#beside.length = 0;
    if (!scanner.enterObject()) return false;
    while (scanner.nextMember()) this.#member();
    if (!scanner.finish()) return false;
    const usage = this.#usageSpan ?? this.#groqSpan ?? this.#choiceUsageSpan;
    if (usage !== null) this.usage = parseUsage(bytes, usage, this.#beside);
    return true;
  }

  #member(): void {
    const scanner = this.#scanner;
    if (scanner.keyIs('choices')) {
      this.#choices();
    } else if (scanner.keyIs('model')) {
      this.modelSpan = scanner.skipIf(QUOTE);
    } else if (scanner.keyIs('usage')) {
      this.#usageSpan = scanner.skipIf(OPEN_OBJECT);
    } else if (scanner.keyIs('error')) {
      this.hasError = skipTruthy(scanner, this.#bytes);
    } else if (scanner.keyIs('x_groq')) {
      this.#groqSpan = null;
      if (scanner.enterObjectOrSkip()) {
        while (scanner.nextMember()) {
          if (scanner.keyIs('usage')) this.#groqSpan = scanner.skipIf(OPEN_OBJECT);
          else scanner.skipValue();
        }
      }
    } else this.#other();
  }

  /** A member that chunks of chat do not have. */
  #other(): void {
    const scanner = this.#scanner;
    const index = indexBeside(scanner);
    if (index === -1) return void scanner.skipValue();
    const span = scanner.skipIf(scanner.peek());
    if (span !== null) this.#beside[index] = span;
  }

  #choices(): void {
    const scanner = this.#scanner;
    this.hasOutput = false;
    this.finish = null;
    this.#hasChoiceError = false;
    this.#choiceUsageSpan = null;
    this.#text.bytes = 0;
    if (!scanner.enterArray()) {
      this.hasChoices = scanner.peek() !== LETTER_N;
      scanner.skipValue();
      return;
    }
    this.hasChoices = false;
    while (scanner.nextElement()) {
      this.hasChoices = true;
      if (!scanner.enterObject()) scanner.skipValue();
      else while (scanner.nextMember()) this.#choiceMember();
    }
  }

  #choiceMember(): void {
    const scanner = this.#scanner;
    if (scanner.keyIs('delta') || scanner.keyIs('message')) {
      if (scanner.enterObjectOrSkip()) {
        this.#text.nextObject();
        while (scanner.nextMember()) {
          if (scanner.keyIs('role')) scanner.skipValue();
          else if (this.#text.member(scanner, this.#bytes)) this.hasOutput = true;
        }
      }
    } else if (scanner.keyIs('finish_reason')) {
      const span = scanner.skipIf(QUOTE);
      if (span !== null && span.end - span.start > 2) this.finish = decodeString(this.#bytes, span);
    } else if (scanner.keyIs('text')) {
      if (this.#text.member(scanner, this.#bytes)) this.hasOutput = true;
    } else if (scanner.keyIs('error')) {
      if (skipTruthy(scanner, this.#bytes)) this.#hasChoiceError = true;
    } else if (scanner.keyIs('usage')) {
      this.#choiceUsageSpan = scanner.skipIf(OPEN_OBJECT) ?? this.#choiceUsageSpan;
    } else {
      scanner.skipValue();
    }
  }

  /** Whether a frame without known members is an error. Called for few frames. */
  isBareError(start: number, end: number): boolean {
    return shapeOf(this.#bytes, start, end, false) === 'error';
  }

  /** Whether no known member was found. */
  get saysNothing(): boolean {
    return !this.hasChoices && this.usage === null && !this.hasError;
  }
}

/** Shared, because reading is synchronous. */
const shared = new AnswerReader();

/**
 * Reads the frame in `[start, end)` of `bytes`, by default all of them. Never throws.
 * @param bytes one or more complete SSE frames; `modelSpan` is an offset in them, so that all frames of a batch can be spliced at once
 */
export function readChunk(bytes: Buffer, start = 0, end = bytes.length): ChunkFacts {
  // Nearly every frame is one line, `data: {…}`, whose JSON is read in place. A line break between tokens means that the line ended
  // there: then the frame is read line by line.
  if (bytesStartWith(bytes, DATA, start, end) && bytes[start + 4] === COLON) {
    let text = start + 5;
    if (bytes[text] === SPACE) text++;
    let stop = end;
    while (stop > text && isLineBreak(bytes[stop - 1])) stop--;
    if (text < stop && bytes[text] === OPEN_OBJECT) {
      if (shared.read(bytes, text, stop) && !shared.sawLineBreak) {
        if (shared.saysNothing) shared.hasError = shared.isBareError(text, stop);
        return chunkFacts('json', shared.hasError || shared.hasFailed, shared);
      }
    }
  }
  return readLines(bytes, start, end);
}

/**
 * Bytes of output text, as output-text.ts counts them, in the chunk that `readChunk` read last. Not a part of the facts, because
 * nearly every stream reports its usage and needs only the sum.
 */
export function textOfChunk(): number {
  return shared.text;
}

/** Reads a whole answer that is not a stream. Never throws. White space and a byte order mark may precede it. */
export function readCompletion(body: Buffer): CompletionFacts & AnswerFacts {
  const reader = shared;
  const valid = reader.read(body, bytesStartWith(body, BOM, 0, body.length) ? BOM.length : 0, body.length);
  if (!valid) return { valid, isError: false, hasChoices: false, hasFailed: false, ...NO_FACTS };
  const { modelSpan, hasOutput, finish, usage, hasChoices } = reader;
  const isError = reader.hasError && !hasChoices;
  return { valid, isError, hasChoices, hasFailed: reader.hasFailed, modelSpan, hasOutput, finish, usage };
}

/** Reads a frame field by field, for what the fast path of `readChunk` does not cover. */
function readLines(bytes: Buffer, start: number, end: number): ChunkFacts {
  const fields = readFields(bytes, start, end);
  const isErrorEvent = fields.event !== null && spanEquals(bytes, fields.event, ERROR);
  const data = dataOf(bytes, fields.values);
  if (data === null) return chunkFacts('comment', isErrorEvent, null);
  if (data.isDone) return chunkFacts('done', isErrorEvent, null);
  const reader = shared;
  if (!reader.read(data.bytes, data.start, data.end))
    return chunkFacts('other', isErrorEvent || isErrorList(data.bytes, data.start, data.end), null);
  if (reader.saysNothing) reader.hasError = reader.isBareError(data.start, data.end);
  if (reader.modelSpan !== null) reader.modelSpan = spanInFrame(reader.modelSpan, fields.values);
  return chunkFacts('json', isErrorEvent || reader.hasError || reader.hasFailed, reader);
}

function chunkFacts(kind: ChunkFacts['kind'], hasError: boolean, reader: AnswerReader | null): ChunkFacts {
  if (reader === null) {
    return { kind, hasError, modelSpan: null, hasOutput: false, finish: null, usage: null, usageOnly: false };
  }
  const { modelSpan, hasOutput, finish, usage } = reader;
  const usageOnly = usage !== null && !reader.hasChoices && !hasError;
  return { kind, hasError, modelSpan, hasOutput, finish, usage, usageOnly };
}

/** Of a frame without data. Spread it into the facts of others, so that all have one object shape. */
export const NO_CHUNK_FACTS: ChunkFacts = chunkFacts('comment', false, null);

/** Skips a value. @returns whether it is valid and truthy in JavaScript */
export function skipTruthy(scanner: JsonScanner, bytes: Buffer): boolean {
  const { pos: start } = scanner;
  return scanner.skipValue() && isTruthy(bytes, start, scanner.pos);
}

/** Whether a valid JSON value is truthy in JavaScript. */
export function isTruthy(bytes: Buffer, start: number, end: number): boolean {
  const first = bytes[start];
  if (first === OPEN_ARRAY || first === OPEN_OBJECT) return true;
  if (first === QUOTE) return end - start > 2;
  return Boolean(JSON.parse(bytes.toString('utf8', start, end)));
}
