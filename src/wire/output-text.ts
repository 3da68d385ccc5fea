// Counts the text in a JSON value that a model wrote: the usage of an answer whose upstream reports none. It owns which members are
// text; it walks the value with the scanner that reads the frame, and decodes nothing.
import type { JsonScanner } from './json/json.ts';

/**
 * Bytes of base64 per token of sound or of an image: OpenAI bills a token for 50 ms of spoken output, which is 2,400 bytes of PCM
 * with 24,000 samples per second; an image of a megabyte is some hundred tokens as well.
 */
export const MEDIA_BYTES_PER_TOKEN = 3200;
/** Maximum depth of text in a delta; deeper values are skipped. */
const MAX_LEVEL = 8;
/** No model writes so much text between two frames: a data URL of this size in it is an image. */
const LARGE_TEXT = 64 * 1024;
/** Bytes of a media member that are checked for prose. */
const PROSE_HEAD = 64;
const DATA_URL = Buffer.from(';base64,');

const SPACE = 0x20;
const QUOTE = 0x22;
const OPEN_ARRAY = 0x5b;
const LETTER_F = 0x66;
const LETTER_N = 0x6e;
const OPEN_OBJECT = 0x7b;
const DELETE = 0x7f;

/** What the value of a member is. Routers repeat a `thought` under several names. The names in a `call` are the client's. */
type Kind = 'text' | 'thought' | 'media' | 'call' | 'other';

/** The members of each kind. All others hold text, so that a vendor's new name for it counts. */
const NAMES: readonly (readonly [kind: Kind, names: string])[] = [
  ['thought', 'reasoning reasoning_content reasoning_details reasoning_text thinking thinking_blocks'],
  ['media', 'data audio url image_url b64_json partial_image_b64 result'],
  ['call', 'arguments input'],
  [
    'other',
    'id type role index status format model object event_id file_id item_id call_id logprobs signature mime_type annotations ' +
      'obfuscation response_id previous_item_id extra_content finish_reason thought_signature encrypted_content ' +
      'provider_specific_fields',
  ],
];
const ALL = NAMES.flatMap(([kind, names]) => names.split(' ').map((name) => ({ name, kind })));
const MAX_NAME = Math.max(...ALL.map(({ name }) => name.length));
/** `ALL` by the length of the name, so that most members need no comparison. */
const BY_LENGTH = Array.from({ length: MAX_NAME + 1 }, (_, length) =>
  ALL.filter(({ name }) => name.length === length),
);

function kindOfKey(scanner: JsonScanner): Kind {
  const { keyLength, isKeyEscaped } = scanner;
  if (!isKeyEscaped && keyLength > MAX_NAME) return 'text';
  const names = isKeyEscaped ? ALL : (BY_LENGTH[keyLength] ?? ALL);
  for (let i = 0; i < names.length; i++) {
    const each = names[i];
    if (each !== undefined && scanner.keyIs(each.name)) return each.kind;
  }
  return 'text';
}

/** Sums up the members of an object. Of the names of a thought, the longest text counts. */
export class TextCount {
  /** Bytes as written in JSON; for media, those of a text with as many tokens. */
  bytes = 0;
  #thought = 0;

  begin(): void {
    this.bytes = 0;
    this.#thought = 0;
  }

  /** Continues with another object, and keeps the sum. */
  nextObject(): void {
    this.#thought = 0;
  }

  /**
   * Skips the value of the scanner's current member, and counts its text.
   * @returns whether the value is anything but null, false, "", [] and {}
   */
  member(scanner: JsonScanner, bytes: Buffer, level = 0): boolean {
    const { pos: start } = scanner;
    const first = bytes[start];
    if (first === QUOTE) {
      const kind = kindOfKey(scanner);
      if (!scanner.skipValue()) return false;
      const length = scanner.pos - start - 2;
      if (length === 0) return false;
      if (kind === 'text' || kind === 'call')
        this.bytes += length < LARGE_TEXT ? length : textIn(bytes, start + 1, length);
      else if (kind !== 'other') this.#addString(kind, bytes, start + 1, length);
      return true;
    }
    if (first !== OPEN_OBJECT && first !== OPEN_ARRAY) {
      return scanner.skipValue() && first !== LETTER_N && first !== LETTER_F;
    }
    const kind = kindOfKey(scanner);
    if (kind === 'other' || kind === 'call') scanner.skipValue();
    else this.#add(kind, outputTextOf(scanner, bytes, level));
    if (scanner.fault !== null || isEmpty(bytes, start, scanner.pos)) return false;
    if (kind === 'call') this.#add(kind, textIn(bytes, start, scanner.pos - start));
    return true;
  }

  #addString(kind: Kind, bytes: Buffer, start: number, length: number): void {
    const isMedia = kind === 'media' && !isProse(bytes, start, Math.min(length, PROSE_HEAD));
    this.#add(kind, isMedia ? mediaText(length) : textIn(bytes, start, length));
  }

  #add(kind: Kind, count: number): void {
    if (kind !== 'thought') this.bytes += count;
    else if (count > this.#thought) {
      this.bytes += count - this.#thought;
      this.#thought = count;
    }
  }
}

/** Whether a valid array or object is empty. */
function isEmpty(bytes: Buffer, start: number, end: number): boolean {
  for (let pos = start + 1; pos < end - 1; pos++) {
    if ((bytes[pos] ?? 0) > SPACE) return false;
  }
  return true;
}

/** Bytes of text in the value at the position of the scanner, which it skips. */
export function outputTextOf(scanner: JsonScanner, bytes: Buffer, level = 0): number {
  const first = scanner.peek();
  if (first === QUOTE) {
    const { pos } = scanner;
    return scanner.skipValue() ? textIn(bytes, pos + 1, scanner.pos - pos - 2) : 0;
  }
  if (level < MAX_LEVEL) {
    if (first === OPEN_OBJECT && scanner.enterObject()) {
      const count = new TextCount();
      while (scanner.nextMember()) count.member(scanner, bytes, level + 1);
      return count.bytes;
    }
    if (first === OPEN_ARRAY && scanner.enterArray()) {
      let sum = 0;
      while (scanner.nextElement()) sum += outputTextOf(scanner, bytes, level + 1);
      return sum;
    }
  }
  scanner.skipValue();
  return 0;
}

/** Bytes of a text with as many tokens. */
export function mediaText(base64Bytes: number): number {
  return (base64Bytes * 4) / MEDIA_BYTES_PER_TOKEN;
}

function textIn(bytes: Buffer, start: number, length: number): number {
  if (length < LARGE_TEXT) return length;
  // An image in Markdown, or a data URL by itself.
  const text = bytes.subarray(start, start + length);
  let media = 0;
  for (let at = text.indexOf(DATA_URL); at !== -1; at = text.indexOf(DATA_URL, at)) {
    at += DATA_URL.length;
    const from = at;
    while (at < length && isBase64(text[at] ?? 0)) at++;
    if (at - from >= LARGE_TEXT / 2) media += at - from;
  }
  return length - media + mediaText(media);
}

/** Whether a media member holds text: some byte occurs neither in base64 nor in a URL. */
function isProse(bytes: Buffer, start: number, length: number): boolean {
  for (let at = start; at < start + length; at++) {
    const byte = bytes[at] ?? 0;
    if (byte <= SPACE || byte >= DELETE) return true;
  }
  return false;
}

/** Letters, digits and `+ - / = _`; a slash may be escaped. */
function isBase64(byte: number): boolean {
  return (
    (byte >= 0x61 && byte <= 0x7a) ||
    (byte >= 0x41 && byte <= 0x5a) ||
    (byte >= 0x2d && byte <= 0x39 && byte !== 0x2e) ||
    byte === 0x2b ||
    byte === 0x3d ||
    byte === 0x5f ||
    byte === 0x5c
  );
}
