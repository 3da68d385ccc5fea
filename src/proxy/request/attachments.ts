// Token counts of attachments in a request: base64 images, sound and files, whose size says little about their tokens. It examines
// long strings only, in slices as they arrive. token-estimate.ts counts the text.

import { foldName, LONG_TEXT, MemberNames, type Span } from '../../wire/json/json-bytes.ts';
import { tokensOf } from './token-estimate.ts';

/** Shorter strings count as text, with about the same result. */
const MIN_ATTACHMENT = LONG_TEXT;
/** Images cost at most some thousand tokens at any size; a second of sound costs ten and is 16 to 64 KB. */
export const MEDIA_CHARACTERS_PER_TOKEN = 640;
/** Minimum per attachment. */
export const ATTACHMENT_TOKENS = 1000;

/** The content of an attachment, which determines its characters per token. */
type Content = 'media' | 'file' | 'text';
const CHARACTERS_PER_TOKEN: Readonly<Record<Content, number>> = {
  media: MEDIA_CHARACTERS_PER_TOKEN,
  // A page of a PDF is 50 to 100 KB and costs two thousand or so.
  file: 128,
  // Four bytes per token, as for all text.
  text: 16 / 3,
};

/**
 * Endings of folded member names that hold attachments: `image_url`, `data` of `input_audio`, `file_data`, `result` of
 * `image_generation_call`, `b64_json`, and the names of other vendors and tools.
 */
const ATTACHMENT_NAME =
  /(?:url|uri|data|result|image|images|mask|audio|video|file|b64|b64json|base64|base64encoded|bytes|blob)$/;
/** Members with schemas, which models read as text, and whose names clients choose. */
const SCHEMAS = new MemberNames(['tools', 'functions', 'response_format', 'text', 'output_config']);
const isSchema = (body: Buffer, { start, end }: Span) => SCHEMAS.find(body, start, end) !== undefined;
const FILE_DATA = foldName('file_data');
/** `%PDF-`, in base64. */
const PDF = 'JVBERi0';

/** Characters needed to recognize the content of a string. */
const HEAD = 256;
const DATA_URL = /^data:([^,]*);base64,/i;
const DATA_URL_BEFORE = /data:([^,]*);base64,$/i;
/** Text that is JSON itself, such as a tool result. */
const JSON_TEXT = /^(?: |\\[nrt])*[[{]/;
const MEDIA_TYPE = /^(?:image|audio|video)\//;
const TEXT_TYPE = /^text\/|[/+](?:json|xml|yaml|x-yaml|javascript|csv)\b/;

/** What the current string may hold. */
const UNKNOWN = 0;
const NOTHING = 1;
const WHOLE = 2;
const RUNS = 3;

/** Finds the attachments of one body. */
export class AttachmentCount {
  #tokens = 0;
  /** Characters of the body inside attachments. */
  #bytes = 0;
  /** What attachments that a model may read as text count beyond that. */
  textTokens = 0;
  readonly #member: Span;
  #start = -1;
  #state = UNKNOWN;
  readonly #run = new Base64Run();
  #isRun = false;
  /** Search for runs: a possible start, and the end of the bytes after it that are known to be in the alphabet. */
  #from = 0;
  #validTo = 0;
  #isFile = false;
  /** The string stands where attachments stand, so no model reads it as text. */
  #isPlaced = false;

  /** @param member where the last key of the outermost object is, without quotes; it changes as the body is read */
  constructor(member: Span) {
    this.#member = member;
  }

  /**
   * Takes a string, or its beginning; called again for the same string as more arrives.
   * @param end of the bytes that arrived, without quotes
   * @param isWhole the string ends there
   * @param keyStart the last key before it, without quotes, is at `[keyStart, keyEnd)`
   */
  text(body: Buffer, start: number, end: number, isWhole: boolean, keyStart: number, keyEnd: number): void {
    if (start !== this.#start) {
      this.#start = start;
      this.#state = UNKNOWN;
    }
    if (this.#state === UNKNOWN) {
      if (!isWhole && end - start < HEAD) return;
      this.#begin(body, end, foldName(body.toString('latin1', keyStart, Math.min(keyEnd, keyStart + HEAD))));
    }
    if (this.#state === WHOLE) {
      if (this.#run.advance(body, end, isWhole) !== -1) this.#state = NOTHING;
      else if (isWhole) this.#add(body, end);
    } else if (this.#state === RUNS) this.#search(body, end, isWhole);
  }

  /** The tokens of the whole input. @param size of the body, in bytes */
  inputTokens(size: number): number {
    return this.#tokens + tokensOf(size - this.#bytes);
  }

  #begin(body: Buffer, end: number, key: string): void {
    const start = this.#start;
    const head = body.toString('latin1', start, Math.min(end, start + HEAD));
    const url = DATA_URL.exec(head);
    this.#isFile = key === FILE_DATA;
    this.#isRun = false;
    this.#from = this.#validTo = start;
    this.#isPlaced = ATTACHMENT_NAME.test(key) && !isSchema(body, this.#member);
    if (url !== null || this.#isPlaced) {
      this.#state = WHOLE;
      this.#run.begin(start + (url?.[0].length ?? 0));
    }
    // JSON text is outside both alphabets.
    if (JSON_TEXT.test(head)) this.#state = RUNS;
    else if (this.#state === UNKNOWN) this.#state = NOTHING;
  }

  /** Finds sufficiently long runs, reading a few bytes of every 4 KiB of other text. */
  #search(body: Buffer, end: number, isWhole: boolean): void {
    for (;;) {
      if (this.#isRun) {
        const invalidAt = this.#run.advance(body, end, isWhole);
        if (invalidAt === -1 && !isWhole) return;
        const to = invalidAt === -1 ? end : invalidAt;
        this.#add(body, to);
        this.#isRun = false;
        this.#from = this.#validTo = to + 1;
      }
      const last = this.#from + MIN_ATTACHMENT - 1;
      if (last >= end) return;
      let at = last;
      while (at >= this.#validTo && ALPHABET[body[at] ?? 0] === 1) at--;
      if (at < this.#validTo) {
        this.#isRun = true;
        this.#run.begin(this.#from);
      } else {
        this.#from = at + 1;
        this.#validTo = last + 1;
      }
    }
  }

  /** Counts the run that ends at `end`, if it is an attachment. */
  #add(body: Buffer, end: number): void {
    const { start } = this.#run;
    const length = end - start;
    if (length < MIN_ATTACHMENT || !this.#run.isLikely(end)) return;
    const content = this.#contentOf(body, start);
    const tokens = Math.ceil(length / CHARACTERS_PER_TOKEN[content]);
    this.#tokens += content === 'text' ? tokens : Math.max(ATTACHMENT_TOKENS, tokens);
    this.#bytes += length;
    // A vendor reads all of a text as text. The lower count is only for admission.
    if (this.#state === RUNS || !this.#isPlaced) this.textTokens += Math.max(0, tokensOf(length) - tokens);
  }

  #contentOf(body: Buffer, start: number): Content {
    const before = body.toString('latin1', Math.max(this.#start, start - HEAD), start);
    const type = DATA_URL_BEFORE.exec(before)?.[1]?.toLowerCase().replaceAll('\\', '');
    if (type !== undefined && TEXT_TYPE.test(type)) return 'text';
    if (body.toString('latin1', start, start + PDF.length) === PDF) return 'file';
    if (type === undefined) return this.#isFile ? 'file' : 'media';
    return MEDIA_TYPE.test(type) ? 'media' : 'file';
  }
}

/** Both alphabets of RFC 4648, padding, and JSON escapes (slash, plus, line break). */
const ALPHABET = new Uint8Array(256);
for (const byte of Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\\'))
  ALPHABET[byte] = 1;
const BACKSLASH = 0x5c;
const PADDING = 0x3d;
/** A multiple of four. */
const SLICE = 16 * 1024;
const decoded = Buffer.allocUnsafe(SLICE);
/** Minimum of characters per escape: one word per line is text, not base64. */
const CHARACTERS_PER_ESCAPE = 16;

/** Checks that text is base64, in fixed slices, so that the result does not depend on how the text is split. */
class Base64Run {
  start = 0;
  #at = 0;
  #escapes = 0;

  begin(start: number): void {
    this.start = start;
    this.#at = start;
    this.#escapes = 0;
  }

  /** @returns the first byte outside the alphabet, or -1 if none so far */
  advance(body: Buffer, end: number, isWhole: boolean): number {
    while (end - this.#at >= SLICE || (isWhole && this.#at < end)) {
      const to = Math.min(end, this.#at + SLICE);
      const invalidAt = isPlain(body, this.#at, to) ? -1 : this.#check(body, to);
      if (invalidAt !== -1) return invalidAt;
      this.#at = to;
    }
    return -1;
  }

  /** Whether it has few enough escapes to be base64. */
  isLikely(end: number): boolean {
    return this.#escapes * CHARACTERS_PER_ESCAPE <= end - this.start;
  }

  #check(body: Buffer, end: number): number {
    for (let at = this.#at; at < end; at++) {
      const byte = body[at] ?? 0;
      if (ALPHABET[byte] === 0) return at;
      if (byte === BACKSLASH) this.#escapes++;
    }
    return -1;
  }
}

/**
 * Whether a slice is base64 without escapes. The native decoder skips invalid characters, so it then writes fewer bytes. It needs a
 * fifth of the time of a loop over the bytes.
 */
function isPlain(body: Buffer, start: number, end: number): boolean {
  if (ALPHABET[body[start] ?? 0] === 0) return false;
  let to = end;
  if (body[to - 1] === PADDING) to -= body[to - 2] === PADDING ? 2 : 1;
  const length = to - start;
  // A single character after whole groups would go unnoticed.
  if (length % 4 === 1) return false;
  return decoded.write(body.toString('latin1', start, to), 'base64') === (length * 3) >> 2;
}
