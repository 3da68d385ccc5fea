// Characters and strings of JSON, and the rule for member names: which spellings some reader takes for the same name
// (also of form fields and query parameters). json.ts finds the members.

const BACKSLASH = 0x5c;
export const LETTER_U = 0x75;
const UNDERSCORE = 0x5f;
const HYPHEN = 0x2d;
/** A key with more bytes is matched by its beginning. */
const MAX_KEY = 1024;

/** Byte offsets in a buffer; `end` is exclusive. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** The value of the string token at `span`, quotes included. The token must be valid. */
export function decodeString(bytes: Buffer, span: Span): string {
  const text = bytes.toString('utf8', span.start, span.end);
  if (!text.includes('\\')) return text.slice(1, -1);
  return String(JSON.parse(text));
}

/** Why a text is not JSON, for the client. It quotes nothing of the text. */
export type JsonFault =
  | 'it ends too early'
  | 'unexpected byte'
  | 'raw control character in a string'
  | 'invalid escape in a string'
  | 'nested deeper than 1000 levels'
  | 'more bytes after the value';

/** Minimum length in bytes of the strings that a `LongTextListener` receives. */
export const LONG_TEXT = 4096;

/** Receives long string values. */
export interface LongTextListener {
  /**
   * A string at `[start, end)`, without its quotes.
   * @param isWhole whether it is complete; otherwise the call is repeated as more of it arrives
   * @param keyStart the last key before it is at `[keyStart, keyEnd)`, without its quotes
   */
  longText(start: number, end: number, isWhole: boolean, keyStart: number, keyEnd: number): void;
}

export function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39;
}

/** 0 to 15, or -1 for any other byte. */
export function hexValue(byte: number): number {
  if (isDigit(byte)) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

/** Whether the key in `[start, end)`, without its quotes, is `name` (ASCII) after unescaping. Builds no string. */
export function readsAs(bytes: Buffer, start: number, end: number, name: string): boolean {
  let pos = start;
  for (let i = 0; i < name.length; i++) {
    if (pos >= end) return false;
    let code = bytes[pos++] ?? 0;
    if (code === BACKSLASH) {
      if (bytes[pos] !== LETTER_U) return false; // No name contains a character with a short escape.
      code = codeAt(bytes, pos + 1);
      pos += 5;
    }
    if (code !== name.charCodeAt(i)) return false;
  }
  return pos === end;
}

/**
 * The folded form of a name, which is equal for all spellings that some reader treats as the same name: Go's encoding/json folds case
 * by Unicode (U+017F is an s, U+212A a k), its v2 and protobuf's JSON mapping also ignore `_` and `-`, Java and .NET fold i by locale
 * (U+0130, U+0131), and readers in C end a name at U+0000.
 * @param name unescaped
 */
export function foldName(name: string): string {
  if (/^[a-z\d]*$/.test(name)) return name;
  const end = name.indexOf('\0');
  return (end === -1 ? name : name.slice(0, end))
    .replace(/[_-]/g, '')
    .replace(/[\u0130\u0131]/g, 'i')
    .replaceAll('\u017f', 's')
    .toLowerCase();
}

/**
 * The letters and digits of a folded name: some readers drop invalid characters, treat compatible characters as equal, or write lists
 * as `file_ids[]`.
 */
export function plainName(name: string): string {
  const folded = foldName(name.normalize('NFKC'));
  return /[^a-z\d]/.test(folded) ? withoutIndex(folded).replace(/[^a-z\d]/g, '') : folded;
}

/** A name without the brackets at its end. A regular expression for them would take quadratic time. */
function withoutIndex(name: string): string {
  const open = name.endsWith(']') ? name.indexOf('[', name.lastIndexOf(']', name.length - 2) + 1) : -1;
  return open === -1 ? name : name.slice(0, open);
}

/** The folded form of the key to look up. Shared, because a look-up is synchronous. */
const folded = new Uint8Array(64);

/** The names that are read at one place of a body, found in any spelling. */
export class MemberNames {
  readonly #names: readonly { readonly name: string; readonly folded: Buffer }[];
  /** 1 for each first byte that a spelling of one of the names can have. */
  readonly #first = new Uint8Array(256);
  readonly #longest: number;

  /** @param names ASCII, at most 64 characters, with distinct folded forms */
  constructor(names: readonly string[]) {
    this.#names = names.map((name) => ({ name, folded: Buffer.from(foldName(name)) }));
    this.#longest = Math.max(0, ...this.#names.map((each) => each.folded.length));
    for (const { folded: bytes } of this.#names) {
      const first = bytes[0] ?? 0;
      this.#first[first] = 1;
      this.#first[first & ~0x20] = 1;
    }
    // Escapes, ignored characters, and the first bytes of the letters outside ASCII that fold into it.
    for (const byte of [BACKSLASH, UNDERSCORE, HYPHEN, 0xc4, 0xc5, 0xe2]) this.#first[byte] = 1;
  }

  /**
   * The name that the key in `[start, end)`, without its quotes, spells by the rule of `foldName`; undefined if none. One pass over
   * at most 1 KiB: a longer key counts as a name that begins as it does.
   */
  find(bytes: Buffer, start: number, end: number): string | undefined {
    if (this.#first[bytes[start] ?? 0] === 0) return undefined;
    const isCut = end - start > MAX_KEY;
    const length = foldKey(bytes, start, isCut ? start + MAX_KEY : end, this.#longest);
    for (const each of this.#names) {
      if ((isCut || each.folded.length === length) && isFolded(each.folded, length)) return each.name;
    }
    return undefined;
  }
}

/** Whether `name` begins with the `length` bytes of `folded`. */
function isFolded(name: Buffer, length: number): boolean {
  if (length < 0) return false;
  for (let i = 0; i < length; i++) {
    if (name[i] !== folded[i]) return false;
  }
  return true;
}

/** Writes the folded form to `folded`. @returns its length, or -1 if it is longer than `longest` or not ASCII */
function foldKey(bytes: Buffer, start: number, end: number, longest: number): number {
  let length = 0;
  for (let pos = start; pos < end; ) {
    let code = bytes[pos++] ?? 0;
    if (code === BACKSLASH) {
      if (bytes[pos] !== LETTER_U) return -1;
      code = codeAt(bytes, pos + 1);
      pos += 5;
    } else if (code === 0xc4 || code === 0xc5) {
      code = ((code & 0x1f) << 6) | ((bytes[pos++] ?? 0) & 0x3f);
    } else if (code === 0xe2) {
      code = 0x2000 | (((bytes[pos] ?? 0) & 0x3f) << 6) | ((bytes[pos + 1] ?? 0) & 0x3f);
      pos += 2;
    }
    if (code === 0) break;
    if (code === UNDERSCORE || code === HYPHEN) continue;
    code = foldCode(code);
    if (code > 0x7f || length === longest) return -1;
    folded[length++] = code;
  }
  return length;
}

function foldCode(code: number): number {
  if (code >= 0x41 && code <= 0x5a) return code | 0x20;
  if (code === 0x17f) return 0x73;
  if (code === 0x212a) return 0x6b;
  return code === 0x130 || code === 0x131 ? 0x69 : code;
}

/** The four hexadecimal digits of an escape. */
function codeAt(bytes: Buffer, at: number): number {
  let code = 0;
  for (let pos = at; pos < at + 4; pos++) code = code * 16 + hexValue(bytes[pos] ?? 0);
  return code;
}
