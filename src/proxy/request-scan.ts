// What the gateway reads from a request body, and how it changes one: spans are found and spliced, nothing is parsed
// into objects and written again. What is done with the model is for the pipeline; all else in the body is the upstream's.
import { isUtf8 } from 'node:buffer';
import { type ErrorCode, GatewayError } from '../errors.ts';
import { decodeString, JsonScanner, type Span } from './json.ts';

/** What stands in a request body, and where. Offsets are bytes in the body. */
export interface RequestScan {
  readonly model: string;
  /** The token of the model, quotes included; or a null that stands for the default; null where the request names none. */
  readonly modelSpan: Span | null;
  readonly stream: boolean;
  /** The value of the top-level `stream_options`, also when it is the literal null; null when there is none. */
  readonly streamOptions: Span | null;
  /** Whether the client itself asked for usage: `stream_options.include_usage` is true. */
  readonly includeUsage: boolean;
  /** The value of `include_usage`, when `stream_options` has one. */
  readonly includeUsageSpan: Span | null;
  /** `max_completion_tokens`, or else the older `max_tokens`, where it is a number that can be meant. */
  readonly maxTokens: number | null;
  /** `n`: how many answers are asked for. */
  readonly choices: number;
  /** The values of the members that were asked for by name, where they stand in the body. */
  readonly others: ReadonlyMap<string, Span>;
  /** Just before the closing brace of the body: where `,"key":value` may go in. */
  readonly insertAt: number;
  /** The body has no members, so that what goes in needs no comma. */
  readonly isEmpty: boolean;
}

/** Of a request that has no JSON body. */
export const NO_SCAN: RequestScan = {
  model: '',
  modelSpan: null,
  stream: false,
  streamOptions: null,
  includeUsage: false,
  includeUsageSpan: null,
  maxTokens: null,
  choices: 1,
  others: new Map(),
  insertAt: 0,
  isEmpty: true,
};

/** What an endpoint reads beyond what all have. */
export interface Wanted {
  /** The model of a request that names none; undefined where it has to. */
  readonly defaultModel?: string;
  /** Names of top-level members that gateway and upstream must not read differently, in lower case. */
  readonly members: readonly string[];
}

/** Bytes to put in the place of a span; an empty span is an insertion. */
export interface Edit {
  readonly span: Span;
  readonly bytes: Buffer;
}

/** First bytes of values. */
const QUOTE = 0x22;
const LETTER_F = 0x66;
const LETTER_N = 0x6e;
const LETTER_T = 0x74;

/** No count of tokens has more. */
const MAX_DIGITS = 12;

const NO_OTHERS: ReadonlyMap<string, Span> = new Map();
const NOTHING_ELSE: Wanted = { members: [] };

/**
 * Reads a request, checking that all of it is JSON.
 * @param body the decoded body (no content coding)
 * @throws GatewayError `invalid_json` (empty, byte order mark, not UTF-8, not RFC 8259; names the byte), `invalid_body`
 *   (not an object), and for the three fields it reads `missing_required_parameter`, `invalid_type`, `invalid_value`,
 *   `duplicate_parameter`. A fault of syntax is told before any other. Messages quote nothing of the body.
 */
export function scanRequest(body: Buffer, wanted: Wanted = NOTHING_ELSE): RequestScan {
  checkEncoding(body);
  return new RequestReader(body, wanted).read();
}

/** Whether the value at a span is `true`. */
export function isTrue(body: Buffer, span: Span | undefined): boolean {
  return span !== undefined && body[span.start] === LETTER_T;
}

/** Whether the value at a span is `false`. */
export function isFalse(body: Buffer, span: Span | undefined): boolean {
  return span !== undefined && body[span.start] === LETTER_F;
}

/** The string at a span; undefined when another value stands there, or none. */
export function textAt(body: Buffer, span: Span | undefined): string | undefined {
  return span !== undefined && body[span.start] === QUOTE ? decodeString(body, span) : undefined;
}

/** A number of tokens or answers; null for anything else, which is for the upstream to refuse. */
export function countAt(body: Buffer, span: Span | undefined): number | null {
  if (span === undefined || span.end - span.start > MAX_DIGITS) return null;
  const number = Number(body.toString('latin1', span.start, span.end));
  return Number.isSafeInteger(number) && number > 0 ? number : null;
}

/**
 * A copy of `body` with each span replaced; every other byte is the same. One allocation.
 * @param edits in any order; they must not overlap. Insertions at one place keep the order given.
 * @throws GatewayError `internal_error` when edits overlap or lie outside the body
 */
export function spliceSpans(body: Buffer, edits: readonly Edit[]): Buffer {
  let length = body.length;
  let from = 0;
  let sorted = true;
  for (const { span, bytes } of edits) {
    if (span.start < from) sorted = false;
    from = span.end;
    length += bytes.length - (span.end - span.start);
  }
  const ordered = sorted ? edits : edits.toSorted(byPlace);
  from = 0;
  for (const { span } of ordered) {
    if (span.start < from || span.end < span.start || span.end > body.length) {
      throw new GatewayError('internal_error', undefined, { cause: new RangeError('edits overlap') });
    }
    from = span.end;
  }
  const result = Buffer.allocUnsafe(length);
  let to = 0;
  from = 0;
  for (const { span, bytes } of ordered) {
    to += body.copy(result, to, from, span.start);
    to += bytes.copy(result, to);
    from = span.end;
  }
  body.copy(result, to, from);
  return result;
}

function byPlace(a: Edit, b: Edit): number {
  return a.span.start - b.span.start || a.span.end - b.span.end;
}

/** `text` as a JSON string token. */
export function jsonString(text: string): Buffer {
  return Buffer.from(JSON.stringify(text));
}

class RequestReader {
  readonly #body: Buffer;
  readonly #scanner = new JsonScanner();
  /** The first complaint that is not about syntax; told only when the whole body turned out to be JSON. */
  #complaint: GatewayError | null = null;
  readonly #seen = new Set<string>();
  readonly #wanted: Wanted;
  #modelSpan: Span | null = null;
  #nullModel: Span | null = null;
  #stream = false;
  #streamOptions: Span | null = null;
  #includeUsageSpan: Span | null = null;
  #includeUsage = false;
  #maxTokens: number | null = null;
  #maxCompletionTokens: number | null = null;
  #choices = 1;
  #others: Map<string, Span> | undefined;
  #isEmpty = true;

  constructor(body: Buffer, wanted: Wanted) {
    this.#body = body;
    this.#wanted = wanted;
    this.#scanner.reset(body);
  }

  read(): RequestScan {
    const scanner = this.#scanner;
    const isObject = scanner.enterObject();
    if (isObject) {
      while (scanner.nextMember()) {
        this.#isEmpty = false;
        this.#member();
      }
    } else {
      scanner.skipValue();
    }
    const insertAt = scanner.pos - 1;
    if (!scanner.finish()) throw invalidJson(scanner.fault ?? 'unexpected byte', scanner.faultAt);
    if (!isObject) throw new GatewayError('invalid_body');
    if (this.#complaint !== null) throw this.#complaint;
    const modelSpan = this.#modelSpan;
    const { defaultModel } = this.#wanted;
    if (modelSpan === null && defaultModel === undefined) {
      const message = "The parameter 'model' is missing.";
      throw new GatewayError('missing_required_parameter', message, { param: 'model' });
    }
    return {
      model: modelSpan === null ? (defaultModel ?? '') : decodeString(this.#body, modelSpan),
      modelSpan: modelSpan ?? this.#nullModel,
      stream: this.#stream,
      streamOptions: this.#streamOptions,
      includeUsage: this.#includeUsage,
      includeUsageSpan: this.#includeUsageSpan,
      maxTokens: this.#maxCompletionTokens ?? this.#maxTokens,
      choices: this.#choices,
      others: this.#others ?? NO_OTHERS,
      insertAt,
      isEmpty: this.#isEmpty,
    };
  }

  #member(): void {
    const scanner = this.#scanner;
    if (scanner.keyIs('model')) this.#model();
    else if (scanner.keyIs('stream')) this.#stream = this.#flag('stream');
    else if (scanner.keyIs('stream_options')) this.#options();
    else if (scanner.keyIs('max_completion_tokens')) this.#maxCompletionTokens = this.#count();
    else if (scanner.keyIs('max_tokens')) this.#maxTokens = this.#count();
    else if (scanner.keyIs('n')) this.#choices = this.#count() ?? 1;
    else if (this.#wanted.members.length === 0 || !this.#other()) {
      // `Model` beside `model` is the same field twice for an upstream that does not look at case.
      if (scanner.keyIsLike('model')) this.#once('model');
      else if (scanner.keyIsLike('stream')) this.#once('stream');
      else if (scanner.keyIsLike('stream_options')) this.#once('stream_options');
      scanner.skipValue();
    }
  }

  /** One of the members that this endpoint wants, in any case: some upstreams would take it for the same. */
  #other(): boolean {
    const scanner = this.#scanner;
    const name = this.#wanted.members.find((each) => scanner.keyIsLike(each));
    if (name === undefined) return false;
    this.#once(name);
    this.#others ??= new Map();
    this.#others.set(name, this.#skip());
    return true;
  }

  #model(): void {
    this.#once('model');
    const scanner = this.#scanner;
    const first = scanner.peek();
    const span = this.#skip();
    if (first === QUOTE && span.end - span.start > 2) this.#modelSpan = span;
    else if (first === QUOTE) this.#complain('invalid_value', 'model', 'must not be empty');
    else if (first !== LETTER_N) this.#complain('invalid_type', 'model', 'must be a string');
    else this.#nullModel = span;
  }

  #options(): void {
    this.#once('stream_options');
    const scanner = this.#scanner;
    const first = scanner.peek();
    const { pos: start } = scanner;
    if (scanner.enterObject()) {
      while (scanner.nextMember()) {
        if (!scanner.keyIs('include_usage')) scanner.skipValue();
        else {
          if (this.#includeUsageSpan !== null) this.#complainTwice('stream_options.include_usage');
          const { pos: at } = scanner;
          this.#includeUsage = this.#flag('stream_options.include_usage');
          this.#includeUsageSpan = { start: at, end: scanner.pos };
        }
      }
    } else {
      scanner.skipValue();
      if (first !== LETTER_N) this.#complain('invalid_type', 'stream_options', 'must be an object or null');
    }
    this.#streamOptions = { start, end: scanner.pos };
  }

  /** A value that must be true, false or null (which counts as false). */
  #flag(name: 'stream' | 'stream_options.include_usage'): boolean {
    if (name === 'stream') this.#once(name);
    const first = this.#scanner.peek();
    this.#skip();
    if (first !== LETTER_T && first !== LETTER_F && first !== LETTER_N) {
      this.#complain('invalid_type', name, 'must be true, false or null');
    }
    return first === LETTER_T;
  }

  #count(): number | null {
    return countAt(this.#body, this.#skip());
  }

  #skip(): Span {
    const { pos: start } = this.#scanner;
    this.#scanner.skipValue();
    return { start, end: this.#scanner.pos };
  }

  #once(name: string): void {
    if (this.#seen.has(name)) this.#complainTwice(name);
    this.#seen.add(name);
  }

  #complainTwice(name: string): void {
    this.#complain('duplicate_parameter', name, 'is given more than once');
  }

  #complain(code: ErrorCode, param: string, what: string): void {
    this.#complaint ??= new GatewayError(code, `The parameter '${param}' ${what}.`, { param });
  }
}

/** What must hold before the first byte is read as JSON. */
function checkEncoding(body: Buffer): void {
  if (body.length === 0) throw new GatewayError('invalid_json', 'The request body is empty.');
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) {
    throw invalidJson('it begins with a byte order mark (U+FEFF)', 0);
  }
  if (!isUtf8(body)) throw invalidJson('it is not UTF-8', firstInvalidUtf8(body));
}

function invalidJson(fault: string, offset: number): GatewayError {
  return new GatewayError('invalid_json', `The request body is not valid JSON: ${fault}, at byte ${offset}.`);
}

/** Offset of the first byte that begins no UTF-8 character, found in ever smaller steps of valid text. */
function firstInvalidUtf8(body: Buffer): number {
  let valid = 0;
  const advance = (step: number): boolean => {
    const end = valid + step;
    if (end > body.length || !isUtf8(body.subarray(valid, end))) return false;
    valid = end;
    return true;
  };
  for (const step of [1_048_576, 65_536, 4_096, 256]) {
    // A step may cut a character in two; then one that is up to three bytes longer does not.
    while (advance(step) || advance(step + 1) || advance(step + 2) || advance(step + 3));
  }
  while (advance(1) || advance(2) || advance(3) || advance(4));
  return valid;
}
