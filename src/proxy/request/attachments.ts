// What of a request's input are attachments: images, sound and files in base64, whose bytes say little about their tokens. It
// looks at long strings alone, in slices as they come. What text comes to is token-estimate.ts.

import { foldName } from '../../wire/fold-name.ts';
import { LONG_TEXT } from '../../wire/json-bytes.ts';
import { tokensOf } from './token-estimate.ts';

/** A shorter string is counted as text, which comes to about as much. */
const MIN_ATTACHMENT = LONG_TEXT;
/** Images cost at most some thousand tokens, whatever their size; a second of sound costs ten, and is 16 to 64 KB. */
export const MEDIA_CHARACTERS_PER_TOKEN = 640;
/** What an attachment counts as at least. */
export const ATTACHMENT_TOKENS = 1000;

/** What is in an attachment, and so how many of its characters count as one token. */
type Content = 'media' | 'file' | 'text';
const CHARACTERS_PER_TOKEN: Readonly<Record<Content, number>> = {
  media: MEDIA_CHARACTERS_PER_TOKEN,
  // A page of a PDF is 50 to 100 KB and costs two thousand or so.
  file: 128,
  // Four bytes a token, as all text.
  text: 16 / 3,
};

/**
 * Ends of the folded names of members that an attachment stands in: `image_url`, `data` of `input_audio`, `file_data`, `result`
 * of `image_generation_call`, `b64_json`, and what other vendors and tools call theirs.
 */
const PLACE =
  /(?:url|uri|data|result|image|images|mask|audio|video|file|b64|b64json|base64|base64encoded|bytes|blob)$/;
const FILE_DATA = foldName('file_data');
/** `%PDF-`, in base64. */
const PDF = 'JVBERi0';

/** So much of a string says what it is. */
const HEAD = 256;
const DATA_URL = /^data:([^,]*);base64,/i;
const DATA_URL_BEFORE = /data:([^,]*);base64,$/i;
/** A text that is JSON itself, such as the result of a tool. */
const JSON_TEXT = /^(?: |\\[nrt])*[[{]/;
const MEDIA_TYPE = /^(?:image|audio|video)\//;
const TEXT_TYPE = /^text\/|[/+](?:json|xml|yaml|x-yaml|javascript|csv)\b/;

/** What the string that is being read may hold. */
const UNKNOWN = 0;
const NOTHING = 1;
const WHOLE = 2;
const RUNS = 3;

/** Finds the attachments of one body. */
export class AttachmentCount {
  #tokens = 0;
  /** Characters of the body that they stand for. */
  #bytes = 0;
  #start = -1;
  #state = UNKNOWN;
  readonly #run = new Base64Run();
  #isRun = false;
  /** Of a search for runs: where one may begin, and how far the bytes behind that are known to be in the alphabet. */
  #from = 0;
  #goodTo = 0;
  #isFile = false;

  /**
   * A string, at first perhaps only some of it: the same one again as more comes.
   * @param end of what has come of it; without its quotes
   * @param isWhole it ends there
   * @param keyStart the last key before it, without its quotes, is at `[keyStart, keyEnd)`
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

  /**
   * What the whole input comes to.
   * @param size of the body, in bytes
   */
  inputTokens(size: number): number {
    return this.#tokens + tokensOf(size - this.#bytes);
  }

  #begin(body: Buffer, end: number, key: string): void {
    const start = this.#start;
    const head = body.toString('latin1', start, Math.min(end, start + HEAD));
    const url = DATA_URL.exec(head);
    this.#isFile = key === FILE_DATA;
    this.#isRun = false;
    this.#from = this.#goodTo = start;
    if (url !== null || PLACE.test(key)) {
      this.#state = WHOLE;
      this.#run.begin(start + (url?.[0].length ?? 0));
    }
    // Such a text is in no alphabet, wherever it stands.
    if (JSON_TEXT.test(head)) this.#state = RUNS;
    else if (this.#state === UNKNOWN) this.#state = NOTHING;
  }

  /** Finds the runs that are long enough, looking at a few bytes of every 4 KiB of other text. */
  #search(body: Buffer, end: number, isWhole: boolean): void {
    for (;;) {
      if (this.#isRun) {
        const bad = this.#run.advance(body, end, isWhole);
        if (bad === -1 && !isWhole) return;
        const to = bad === -1 ? end : bad;
        this.#add(body, to);
        this.#isRun = false;
        this.#from = this.#goodTo = to + 1;
      }
      const last = this.#from + MIN_ATTACHMENT - 1;
      if (last >= end) return;
      let at = last;
      while (at >= this.#goodTo && ALPHABET[body[at] ?? 0] === 1) at--;
      if (at < this.#goodTo) {
        this.#isRun = true;
        this.#run.begin(this.#from);
      } else {
        this.#from = at + 1;
        this.#goodTo = last + 1;
      }
    }
  }

  /** What began with the run, and ends at `end`, is one. */
  #add(body: Buffer, end: number): void {
    const { start } = this.#run;
    const length = end - start;
    if (length < MIN_ATTACHMENT || !this.#run.isLikely(end)) return;
    const content = this.#contentOf(body, start);
    const tokens = Math.ceil(length / CHARACTERS_PER_TOKEN[content]);
    this.#tokens += content === 'text' ? tokens : Math.max(ATTACHMENT_TOKENS, tokens);
    this.#bytes += length;
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

/** Both alphabets of RFC 4648, padding, and the escapes that JSON may have in them: of a slash, a plus, a line break. */
const ALPHABET = new Uint8Array(256);
for (const byte of Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\\'))
  ALPHABET[byte] = 1;
const BACKSLASH = 0x5c;
const PADDING = 0x3d;
/** A multiple of four. */
const SLICE = 16 * 1024;
const decoded = Buffer.allocUnsafe(SLICE);
/** Characters for each escape, at least: a word on each line is text, and no base64. */
const CHARACTERS_PER_ESCAPE = 16;

/** Checks that text is base64. A slice at a time, so that the same is found however the text is cut. */
class Base64Run {
  start = 0;
  #at = 0;
  #escapes = 0;

  begin(start: number): void {
    this.start = start;
    this.#at = start;
    this.#escapes = 0;
  }

  /** @returns the first byte that is in no alphabet, or -1 as long as there is none */
  advance(body: Buffer, end: number, isWhole: boolean): number {
    while (end - this.#at >= SLICE || (isWhole && this.#at < end)) {
      const to = Math.min(end, this.#at + SLICE);
      const bad = isPlain(body, this.#at, to) ? -1 : this.#look(body, to);
      if (bad !== -1) return bad;
      this.#at = to;
    }
    return -1;
  }

  /** Whether it has no more escapes than base64 can have. */
  isLikely(end: number): boolean {
    return this.#escapes * CHARACTERS_PER_ESCAPE <= end - this.start;
  }

  #look(body: Buffer, end: number): number {
    for (let at = this.#at; at < end; at++) {
      const byte = body[at] ?? 0;
      if (ALPHABET[byte] === 0) return at;
      if (byte === BACKSLASH) this.#escapes++;
    }
    return -1;
  }
}

/**
 * Whether a slice is base64 without escapes. The native decoder leaves out what it does not know, and so writes fewer bytes; it takes a
 * fifth of the time that looking at each byte does.
 */
function isPlain(body: Buffer, start: number, end: number): boolean {
  if (ALPHABET[body[start] ?? 0] === 0) return false;
  let to = end;
  if (body[to - 1] === PADDING) to -= body[to - 2] === PADDING ? 2 : 1;
  const length = to - start;
  // One character more than whole groups would not be missed.
  if (length % 4 === 1) return false;
  return decoded.write(body.toString('latin1', start, to), 'base64') === (length * 3) >> 2;
}
