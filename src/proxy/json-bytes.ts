// Single characters of JSON: which is a digit, and what a key reads as. Where they stand is for json.ts.
const BACKSLASH = 0x5c;
export const LETTER_U = 0x75;
/** U+017F, which Unicode folds to "s". */
const LONG_S = 0x17f;

export function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39;
}

/** 0 to 15, or -1 for what is no hexadecimal digit. */
export function hexValue(byte: number): number {
  if (isDigit(byte)) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

/** Whether the key in `[start, end)`, without its quotes, is `name`. Compares character by character, undoing escapes on the way: a body full of odd keys costs no strings. */
export function readsAs(bytes: Buffer, start: number, end: number, name: string, foldCase: boolean): boolean {
  let pos = start;
  for (let i = 0; i < name.length; i++) {
    if (pos >= end) return false;
    let code = bytes[pos++] ?? 0;
    if (code === BACKSLASH) {
      if (bytes[pos] !== LETTER_U) return false; // No name has a character that a short escape stands for.
      code = 0;
      for (const stop = pos + 5; ++pos < stop; ) code = code * 16 + hexValue(bytes[pos] ?? 0);
    } else if (code === 0xc5 && bytes[pos] === 0xbf) {
      code = LONG_S;
      pos++;
    }
    if (foldCase && code >= 0x41 && code <= 0x5a) code |= 0x20;
    if (foldCase && code === LONG_S) code = 0x73;
    if (code !== name.charCodeAt(i)) return false;
  }
  return pos === end;
}
