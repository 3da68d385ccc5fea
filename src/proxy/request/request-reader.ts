// The members of a request that the gateway reads, during a scan of the whole body or an incremental walk. json.ts and json-walk.ts
// parse everything else.
import { type ErrorCode, GatewayError, parameterError } from '../../errors.ts';
import { decodeString, type JsonScanner, type Span } from '../../wire/json/json.ts';
import { type LongTextListener, MemberNames } from '../../wire/json/json-bytes.ts';
import { invalidJson } from '../../wire/json/json-text.ts';
import type { JsonWalk, WalkListener } from '../../wire/json/json-walk.ts';
import { MemberSearch, type WatchedMembers } from '../routes/watched-members.ts';
import { AttachmentCount } from './attachments.ts';
import { choicesAt, countAt } from './request-counts.ts';
import type { RequestScan, Wanted } from './request-members.ts';
import { tokensOf } from './token-estimate.ts';

type Meaning = number | string;

/** The depth of `stream_options.include_usage`. */
const OPTION_DEPTH = 2;
const INCLUDE_USAGE = 'stream_options.include_usage';
/** Members of endpoints that must be true, false or null. */
const FLAGS = new Set(['background', 'store']);
/** For completions: each prompt has its own answers, and `best_of` answers are generated though fewer are returned. */
const PROMPT = 'prompt';
const BEST_OF = 'best_of';
/** Lists whose elements are documents, of the endpoints that read them. A request has one of them, and may have a query beside it. */
export const DOCUMENTS = ['documents', 'input', 'text_2', 'data_2'] as const;
/** Members whose elements are counted. */
const LISTS = new Set<Meaning>([PROMPT, ...DOCUMENTS]);
const OPTION_NAMES = new MemberNames(['include_usage']);

/** First bytes of values. */
const QUOTE = 0x22;
const LETTER_F = 0x66;
const LETTER_N = 0x6e;
const LETTER_T = 0x74;
const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;

/** Longest model token in bytes: each use of a name reads all of it. */
const MAX_MODEL = 64 * 1024;

const NO_BYTES: Buffer = Buffer.alloc(0);
const NO_OTHERS: ReadonlyMap<string, Span> = new Map();

/** Meaning of a member; for members of endpoints, their name. */
const UNREAD = 0;
const MODEL = 1;
const STREAM = 2;
const OPTIONS = 3;
const MAX_COMPLETION_TOKENS = 4;
const MAX_TOKENS = 5;
const CHOICES = 6;

export class RequestReader implements WalkListener, LongTextListener {
  readonly depth: number;
  /** The bytes of the body so far. */
  body = NO_BYTES;
  readonly #wanted: Wanted;
  readonly #search: MemberSearch | undefined;
  /** The first error that is not about syntax; thrown only if the whole body is valid JSON. */
  #firstError: GatewayError | null = null;
  readonly #seen: string[] = [];
  /** The first member with another spelling than the exact one. */
  #misspelled: string | undefined;
  #modelSpan: Span | null = null;
  #nullModel: Span | null = null;
  #stream = false;
  #streamOptions: Span | null = null;
  #includeUsageSpan: Span | null = null;
  #includeUsage = false;
  #maxTokens: Span | null = null;
  #maxCompletionTokens: Span | null = null;
  #choices: Span | null = null;
  #prompts = 0;
  #documents = 0;
  #others: Map<string, Span> | undefined;
  /** The last key of the outermost object, without quotes. */
  readonly #member = { start: 0, end: 0 };
  #attachments: AttachmentCount | undefined;
  /** In a walk: meaning of the last key of the outermost object, and whether the last key within is `include_usage`. */
  #meaning: Meaning = UNREAD;
  #isUsageKey = false;

  /** @param watched members to search for in a walk; undefined for none */
  constructor(wanted: Wanted, watched?: WatchedMembers) {
    this.#wanted = wanted;
    this.#search = watched === undefined ? undefined : new MemberSearch(watched);
    this.depth = Math.max(OPTION_DEPTH, this.#search?.depth ?? 0);
  }

  /** @param scanner at the beginning of the body @throws GatewayError as `scanRequest` */
  read(body: Buffer, scanner: JsonScanner): RequestScan {
    this.body = body;
    scanner.texts = this;
    const isObject = scanner.enterObject();
    if (isObject) {
      while (scanner.nextMember()) {
        const meaning = this.#meaningOf(scanner);
        const { pos: start } = scanner;
        if (meaning === OPTIONS && scanner.enterObject()) this.#readOptions(scanner);
        else if (LISTS.has(meaning) && scanner.enterArray()) this.#readList(scanner, meaning);
        else scanner.skipValue();
        if (meaning !== UNREAD) this.#take(meaning, start, scanner.pos);
      }
    } else scanner.skipValue();
    const insertAt = scanner.pos - 1;
    if (!scanner.finish()) throw invalidJson(scanner.fault ?? 'unexpected byte', scanner.faultAt);
    return this.#result(isObject, insertAt);
  }

  opened(depth: number, isObject: boolean): void {
    this.#search?.opened(depth, isObject);
  }

  key(depth: number, scanner: JsonScanner): void {
    if (depth === 1) this.#meaning = this.#meaningOf(scanner);
    else if (depth === OPTION_DEPTH) this.#isUsageKey = this.#meaning === OPTIONS && this.#isUsage(scanner);
    this.#search?.key(depth, scanner);
  }

  ignoresWithin(): boolean {
    return this.#search === undefined && this.#meaning !== OPTIONS && !LISTS.has(this.#meaning);
  }

  value(depth: number, start: number, end: number, isMember: boolean): void {
    this.#search?.value(depth, start, end, isMember);
    if (depth === OPTION_DEPTH) {
      if (isMember && this.#isUsageKey) this.#takeUsage(start, end);
      else if (!isMember && LISTS.has(this.#meaning)) this.#takeElement(this.#meaning, start);
    } else if (depth === 1 && this.#meaning !== UNREAD) this.#take(this.#meaning, start, end);
  }

  longText(start: number, end: number, isWhole: boolean, keyStart: number, keyEnd: number): void {
    this.#attachments ??= new AttachmentCount(this.#member);
    this.#attachments.text(this.body, start, end, isWhole, keyStart, keyEnd);
  }

  /** Call after a walk over all of `body`. @throws GatewayError as `scanRequest` */
  result(walk: JsonWalk): RequestScan {
    if (walk.fault !== null) throw invalidJson(walk.fault, walk.faultAt);
    return this.#result(walk.isObject, walk.insertAt);
  }

  #result(isObject: boolean, insertAt: number): RequestScan {
    if (!isObject) throw new GatewayError('invalid_body');
    if (this.#firstError === null && this.#misspelled !== undefined) {
      // Upstreams differ in whether they accept another spelling.
      const what = 'is spelled differently: spell it exactly like this';
      this.#fail('invalid_value', this.#misspelled, what);
    }
    if (this.#firstError !== null) throw this.#firstError;
    const modelSpan = this.#modelSpan;
    const { defaultModel } = this.#wanted;
    if (modelSpan === null && defaultModel === undefined)
      throw parameterError('missing_required_parameter', 'model', 'is missing');
    return {
      model: modelSpan === null ? (defaultModel ?? '') : decodeString(this.body, modelSpan),
      modelSpan: modelSpan ?? this.#nullModel,
      stream: this.#stream,
      streamOptions: this.#streamOptions,
      includeUsage: this.#includeUsage,
      includeUsageSpan: this.#includeUsageSpan,
      maxTokens: this.#tokenLimit(),
      choices: this.#answerCount(),
      documents: this.#documents,
      others: this.#others ?? NO_OTHERS,
      inputTokens: this.#attachments?.inputTokens(this.body.length) ?? tokensOf(this.body.length),
      textTokens: this.#attachments?.textTokens ?? 0,
      members: this.#search?.found,
      insertAt,
      isEmpty: this.#member.end === 0,
    };
  }

  #answerCount(): number {
    const best = countAt(this.body, this.#others?.get(BEST_OF), BEST_OF) ?? 1;
    return Math.max(choicesAt(this.body, this.#choices), best) * Math.max(1, this.#prompts);
  }

  /** Upstreams support either name, or both. */
  #tokenLimit(): number | null {
    const older = countAt(this.body, this.#maxTokens, 'max_tokens');
    const newer = countAt(this.body, this.#maxCompletionTokens, 'max_completion_tokens');
    return older === null || newer === null ? (newer ?? older) : Math.max(older, newer);
  }

  /** The meaning of the key that the scanner has just read. */
  #meaningOf(scanner: JsonScanner): Meaning {
    this.#member.start = scanner.keyStart;
    this.#member.end = scanner.keyEnd;
    if (scanner.keyIs('model')) return this.#once('model', MODEL);
    if (scanner.keyIs('stream')) return this.#once('stream', STREAM);
    if (scanner.keyIs('stream_options')) return this.#once('stream_options', OPTIONS);
    if (scanner.keyIs('max_completion_tokens'))
      return this.#once('max_completion_tokens', MAX_COMPLETION_TOKENS);
    if (scanner.keyIs('max_tokens')) return this.#once('max_tokens', MAX_TOKENS);
    if (scanner.keyIs('n')) return this.#once('n', CHOICES);
    const { members, names } = this.#wanted;
    const name = scanner.keyAmong(names);
    if (name === undefined) return UNREAD;
    return scanner.keyIs(name) && members.includes(name) ? this.#once(name, name) : this.#misspell(name);
  }

  #take(meaning: Meaning, start: number, end: number): void {
    const first = this.body[start];
    const span = { start, end };
    switch (meaning) {
      case MODEL:
        if (first === QUOTE && end - start > MAX_MODEL) this.#fail('invalid_value', 'model', 'is too long');
        else if (first === QUOTE && end - start > 2) this.#modelSpan = span;
        else if (first === QUOTE && this.#wanted.defaultModel !== '')
          this.#fail('invalid_value', 'model', 'must not be empty');
        else if (first !== QUOTE && first !== LETTER_N)
          this.#fail('invalid_type', 'model', 'must be a string');
        else this.#nullModel = span;
        break;
      case STREAM:
        this.#stream = this.#flag('stream', first);
        break;
      case OPTIONS:
        this.#streamOptions = span;
        if (first !== OPEN_OBJECT && first !== LETTER_N)
          this.#fail('invalid_type', 'stream_options', 'must be an object or null');
        break;
      case MAX_COMPLETION_TOKENS:
        this.#maxCompletionTokens = span;
        break;
      case MAX_TOKENS:
        this.#maxTokens = span;
        break;
      case CHOICES:
        this.#choices = span;
        break;
      default:
        if (typeof meaning !== 'string') break;
        if (FLAGS.has(meaning)) this.#flag(meaning, first);
        this.#others ??= new Map();
        this.#others.set(meaning, span);
    }
  }

  #readOptions(scanner: JsonScanner): void {
    while (scanner.nextMember()) {
      const isUsage = this.#isUsage(scanner);
      const { pos: start } = scanner;
      scanner.skipValue();
      if (isUsage) this.#takeUsage(start, scanner.pos);
    }
  }

  #readList(scanner: JsonScanner, meaning: Meaning): void {
    while (scanner.nextElement()) {
      this.#takeElement(meaning, scanner.pos);
      scanner.skipValue();
    }
  }

  /** A document, or an element of a list of prompts: a text, an object or a list of tokens. Bare tokens are one together. */
  #takeElement(meaning: Meaning, start: number): void {
    const first = this.body[start];
    if (first !== QUOTE && first !== OPEN_ARRAY && first !== OPEN_OBJECT) return;
    if (meaning === PROMPT) this.#prompts += 1;
    else this.#documents += 1;
  }

  /** Whether the key that the scanner has just read is `include_usage`. */
  #isUsage(scanner: JsonScanner): boolean {
    const isExact = scanner.keyIs('include_usage');
    if (isExact) this.#once(INCLUDE_USAGE, UNREAD);
    else if (scanner.keyAmong(OPTION_NAMES) !== undefined) this.#misspell(INCLUDE_USAGE);
    return isExact;
  }

  #takeUsage(start: number, end: number): void {
    this.#includeUsage = this.#flag(INCLUDE_USAGE, this.body[start]);
    this.#includeUsageSpan = { start, end };
  }

  /** A value that must be true, false or null (null means false). */
  #flag(name: string, first: number | undefined): boolean {
    if (first !== LETTER_T && first !== LETTER_F && first !== LETTER_N)
      this.#fail('invalid_type', name, 'must be true, false or null');
    return first === LETTER_T;
  }

  #once(name: string, meaning: Meaning): Meaning {
    if (this.#seen.includes(name)) this.#fail('duplicate_parameter', name, 'is given more than once');
    this.#seen.push(name);
    return meaning;
  }

  #misspell(name: string): Meaning {
    this.#misspelled ??= name;
    return this.#once(name, UNREAD);
  }

  #fail(code: ErrorCode, param: string, what: string): void {
    this.#firstError ??= parameterError(code, param, what);
  }
}
