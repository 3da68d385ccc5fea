// What the gateway reads from the upstream's answer: the facts of one SSE frame, and of a whole JSON completion.
// It changes nothing and decides nothing; framing is frames.ts, retries and metering are their own.
import { decodeString, JsonScanner, type Span } from './json.ts';

/** Token counts as the upstream reports them; what it left out is 0. Whether all-zero counts is for the reader. */
export interface Usage {
  readonly prompt: number;
  readonly completion: number;
  readonly total: number;
  /** Part of `prompt`. */
  readonly cached: number;
  /** Part of `completion`. */
  readonly reasoning: number;
}

/** What a chunk and a completion have in common. Spans are offsets in the buffer that was read. */
export interface AnswerFacts {
  /** The top-level `model` when it is a string, quotes included. */
  readonly modelSpan: Span | null;
  /** Whether a choice carries something real: in its delta or message (other than the role) or its text. */
  readonly hasOutput: boolean;
  /** The last non-empty `finish_reason` of its choices. */
  readonly finish: string | null;
  /** From `usage`, else from Groq's `x_groq.usage`. */
  readonly usage: Usage | null;
}

export interface ChunkFacts extends AnswerFacts {
  /**
   * `comment`: no data in it (comments, blank lines, other fields). `done`: data that begins with `[DONE]`, the test that
   * the SDKs make. `json`: data that is a JSON object. `other`: any other data, which is passed on as it is.
   */
  readonly kind: 'comment' | 'done' | 'json' | 'other';
  /** A top-level `error` that is truthy (the SDKs' test), or `event: error`. */
  readonly hasError: boolean;
  /** The extra chunk of `include_usage`: usage and no choices. Hidden from a client that did not ask for it. */
  readonly usageOnly: boolean;
}

export interface CompletionFacts extends AnswerFacts {
  /** Whether the body is a JSON object; if not, all else is empty. */
  readonly valid: boolean;
  /** A truthy top-level `error` and no choices beside it. */
  readonly isError: boolean;
}

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
const LETTER_F = 0x66;
const LETTER_N = 0x6e;

/** A byte order mark may stand before the first field of a stream (WHATWG HTML, 9.2.6). */
const BOM = Buffer.from([0xef, 0xbb, 0xbf]);
const NO_BYTES: Buffer = Buffer.alloc(0);
const DATA = Buffer.from('data');
const EVENT = Buffer.from('event');
const ERROR = Buffer.from('error');
const DONE = Buffer.from('[DONE]');

/** Reads one JSON answer, chunk or completion: a single pass over its top level, into choices only as far as needed. */
class AnswerReader implements AnswerFacts {
  modelSpan: Span | null = null;
  hasOutput = false;
  finish: string | null = null;
  usage: Usage | null = null;
  hasError = false;
  /** Whether `choices` is there and is neither null nor an empty array. */
  hasChoices = false;

  readonly #scanner = new JsonScanner();
  #bytes = NO_BYTES;
  #usageSpan: Span | null = null;
  #groqSpan: Span | null = null;

  /** Whether CR or LF stood between the tokens. */
  get sawLineBreak(): boolean {
    return this.#scanner.sawLineBreak;
  }

  /** Fills the fields from the text in `[start, end)`; false when it is not a JSON object. Of equal keys the last counts. */
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
    this.#usageSpan = null;
    this.#groqSpan = null;
    if (!scanner.enterObject()) return false;
    while (scanner.nextMember()) this.#member();
    if (!scanner.finish()) return false;
    const usage = this.#usageSpan ?? this.#groqSpan;
    if (usage !== null) this.usage = parseUsage(bytes, usage);
    return true;
  }

  #member(): void {
    const scanner = this.#scanner;
    if (scanner.keyIs('choices')) {
      this.#choices();
    } else if (scanner.keyIs('model')) {
      this.modelSpan = this.#skipIf(QUOTE);
    } else if (scanner.keyIs('usage')) {
      this.#usageSpan = this.#skipIf(OPEN_OBJECT);
    } else if (scanner.keyIs('error')) {
      const { pos: start } = scanner;
      this.hasError = scanner.skipValue() && isTruthy(this.#bytes, start, scanner.pos);
    } else if (scanner.keyIs('x_groq')) {
      this.#groqSpan = null;
      if (!scanner.enterObject()) scanner.skipValue();
      else {
        while (scanner.nextMember()) {
          if (scanner.keyIs('usage')) this.#groqSpan = this.#skipIf(OPEN_OBJECT);
          else scanner.skipValue();
        }
      }
    } else {
      scanner.skipValue();
    }
  }

  #choices(): void {
    const scanner = this.#scanner;
    this.hasOutput = false;
    this.finish = null;
    if (!scanner.enterArray()) {
      this.hasChoices = scanner.peek() !== LETTER_N;
      scanner.skipValue();
      return;
    }
    this.hasChoices = false;
    while (scanner.nextElement()) {
      this.hasChoices = true;
      if (scanner.enterObject()) {
        while (scanner.nextMember()) this.#choiceMember();
      } else {
        scanner.skipValue();
      }
    }
  }

  #choiceMember(): void {
    const scanner = this.#scanner;
    if (scanner.keyIs('delta') || scanner.keyIs('message')) {
      if (!scanner.enterObject()) scanner.skipValue();
      else {
        while (scanner.nextMember()) {
          if (this.hasOutput || scanner.keyIs('role')) scanner.skipValue();
          else this.hasOutput = this.#skipReal();
        }
      }
    } else if (scanner.keyIs('finish_reason')) {
      const span = this.#skipIf(QUOTE);
      if (span !== null && span.end - span.start > 2) this.finish = decodeString(this.#bytes, span);
    } else if (scanner.keyIs('text') && !this.hasOutput) {
      this.hasOutput = this.#skipReal();
    } else {
      scanner.skipValue();
    }
  }

  /** Skips the value; its span when it begins with `first`, else null. */
  #skipIf(first: number): Span | null {
    const scanner = this.#scanner;
    const isIt = scanner.peek() === first;
    const { pos: start } = scanner;
    return scanner.skipValue() && isIt ? { start, end: scanner.pos } : null;
  }

  /** Skips the value; whether it is anything but null, false, "", [] and {}. */
  #skipReal(): boolean {
    const scanner = this.#scanner;
    const { pos: start } = scanner;
    return scanner.skipValue() && isReal(this.#bytes, start, scanner.pos);
  }
}

/** Used for one frame at a time: reading is synchronous. */
const frameReader = new AnswerReader();

/**
 * Reads the frame in `[start, end)` of `bytes`, by default all of them. Never throws, whatever the bytes are.
 * @param bytes one or more complete SSE frames; `modelSpan` is an offset in them, so that all the frames of a batch can be
 *   spliced in one go
 */
export function readChunk(bytes: Buffer, start = 0, end = bytes.length): ChunkFacts {
  // Nearly every frame is one line, `data: {…}`: its JSON is read where it stands. A line break between tokens means that
  // the line ended there, and so the frame is looked at again, line by line.
  if (startsWith(bytes, DATA, start, end) && bytes[start + 4] === COLON) {
    let text = start + 5;
    if (bytes[text] === SPACE) text++;
    let stop = end;
    while (stop > text && isLineBreak(bytes[stop - 1])) stop--;
    if (text < stop && bytes[text] === OPEN_OBJECT) {
      if (frameReader.read(bytes, text, stop) && !frameReader.sawLineBreak) {
        return chunkFacts('json', frameReader.hasError, frameReader);
      }
    }
  }
  return readLines(bytes, start, end);
}

/** Reads a whole answer that is not a stream. Never throws. White space and a byte order mark before it are allowed. */
export function readCompletion(body: Buffer): CompletionFacts {
  const reader = new AnswerReader();
  const valid = reader.read(body, startsWith(body, BOM, 0, body.length) ? BOM.length : 0, body.length);
  if (!valid) return { valid, isError: false, modelSpan: null, hasOutput: false, finish: null, usage: null };
  const { modelSpan, hasOutput, finish, usage } = reader;
  return { valid, isError: reader.hasError && !reader.hasChoices, modelSpan, hasOutput, finish, usage };
}

/** The frame field by field (WHATWG HTML, 9.2.6), for what `readChunk` does not see at first glance. */
function readLines(bytes: Buffer, start: number, end: number): ChunkFacts {
  /** The values of the data fields: start, end, start, end … */
  const values: number[] = [];
  let isErrorEvent = false;
  let pos = startsWith(bytes, BOM, start, end) ? start + BOM.length : start;
  while (pos < end) {
    let lineEnd = pos;
    while (lineEnd < end && !isLineBreak(bytes[lineEnd])) lineEnd++;
    const dataAt = fieldValue(bytes, DATA, pos, lineEnd);
    if (dataAt >= 0) values.push(dataAt, lineEnd);
    else {
      const eventAt = fieldValue(bytes, EVENT, pos, lineEnd);
      if (eventAt >= 0) {
        isErrorEvent = lineEnd - eventAt === ERROR.length && startsWith(bytes, ERROR, eventAt, lineEnd);
      }
    }
    pos = lineEnd + 1;
  }
  const [from, to] = values;
  if (from === undefined || to === undefined) return chunkFacts('comment', isErrorEvent, null);
  if (startsWith(bytes, DONE, from, to)) return chunkFacts('done', isErrorEvent, null);
  const reader = frameReader;
  if (values.length === 2) {
    return reader.read(bytes, from, to)
      ? chunkFacts('json', isErrorEvent || reader.hasError, reader)
      : chunkFacts('other', isErrorEvent, null);
  }
  const joined = joinLines(bytes, values);
  if (!reader.read(joined, 0, joined.length)) return chunkFacts('other', isErrorEvent, null);
  if (reader.modelSpan !== null) reader.modelSpan = spanInFrame(reader.modelSpan, values);
  return chunkFacts('json', isErrorEvent || reader.hasError, reader);
}

/** Offset of the value of the field `name` in the line, behind the colon and one space; -1 when it is another line. */
function fieldValue(bytes: Buffer, name: Buffer, start: number, end: number): number {
  if (!startsWith(bytes, name, start, end)) return -1;
  const at = start + name.length;
  if (at === end) return end;
  if (bytes[at] !== COLON) return -1;
  return at + 1 < end && bytes[at + 1] === SPACE ? at + 2 : at + 1;
}

/** The data of an event with several data fields: their values with LF between them. */
function joinLines(bytes: Buffer, values: readonly number[]): Buffer {
  let length = -1;
  for (let i = 0; i < values.length; i += 2) length += (values[i + 1] ?? 0) - (values[i] ?? 0) + 1;
  const joined = Buffer.allocUnsafe(length).fill(LF);
  let to = 0;
  for (let i = 0; i < values.length; i += 2) to += bytes.copy(joined, to, values[i], values[i + 1]) + 1;
  return joined;
}

/** From an offset in the joined data back to the frame. A token is never broken over two lines, so one line holds it. */
function spanInFrame(span: Span, values: readonly number[]): Span {
  let lineStart = 0;
  for (let i = 0; i < values.length; i += 2) {
    const from = values[i] ?? 0;
    const lineEnd = lineStart + (values[i + 1] ?? 0) - from;
    if (span.start < lineEnd) {
      const shift = from - lineStart;
      return { start: span.start + shift, end: span.end + shift };
    }
    lineStart = lineEnd + 1;
  }
  return span;
}

function chunkFacts(kind: ChunkFacts['kind'], hasError: boolean, reader: AnswerReader | null): ChunkFacts {
  if (reader === null) {
    return { kind, hasError, modelSpan: null, hasOutput: false, finish: null, usage: null, usageOnly: false };
  }
  const { modelSpan, hasOutput, finish, usage } = reader;
  const usageOnly = usage !== null && !reader.hasChoices && !hasError;
  return { kind, hasError, modelSpan, hasOutput, finish, usage, usageOnly };
}

/** @param span an object that was scanned before */
function parseUsage(bytes: Buffer, span: Span): Usage {
  const usage: unknown = JSON.parse(bytes.toString('utf8', span.start, span.end));
  const prompt = count(usage, 'prompt_tokens');
  const completion = count(usage, 'completion_tokens');
  return {
    prompt,
    completion,
    total: count(usage, 'total_tokens') || prompt + completion,
    cached:
      count(member(usage, 'prompt_tokens_details'), 'cached_tokens') ||
      count(usage, 'prompt_cache_hit_tokens'),
    reasoning:
      count(member(usage, 'completion_tokens_details'), 'reasoning_tokens') ||
      count(usage, 'reasoning_tokens'),
  };
}

function member(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key)
    ? Reflect.get(value, key)
    : undefined;
}

/** A token count, or 0 for whatever is not one. */
function count(value: unknown, key: string): number {
  const number = member(value, key);
  return typeof number === 'number' && Number.isSafeInteger(number) && number > 0 ? number : 0;
}

/** Whether a valid JSON value is anything but null, false, "", [] and {}. */
function isReal(bytes: Buffer, start: number, end: number): boolean {
  const first = bytes[start];
  if (first === LETTER_N || first === LETTER_F) return false;
  if (first === QUOTE) return end - start > 2;
  if (first !== OPEN_ARRAY && first !== OPEN_OBJECT) return true;
  for (let pos = start + 1; pos < end - 1; pos++) {
    if ((bytes[pos] ?? 0) > SPACE) return true;
  }
  return false;
}

/** Whether a valid JSON value is truthy in JavaScript, in which both SDKs' users read it. */
function isTruthy(bytes: Buffer, start: number, end: number): boolean {
  const first = bytes[start];
  if (first === OPEN_ARRAY || first === OPEN_OBJECT) return true;
  if (first === QUOTE) return end - start > 2;
  return Boolean(JSON.parse(bytes.toString('utf8', start, end)));
}

function startsWith(bytes: Buffer, prefix: Buffer, start: number, end: number): boolean {
  const { length } = prefix;
  if (end - start < length) return false;
  for (let i = 0; i < length; i++) {
    if (bytes[start + i] !== prefix[i]) return false;
  }
  return true;
}

function isLineBreak(byte: number | undefined): boolean {
  return byte === LF || byte === CR;
}
