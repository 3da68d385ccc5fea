// Keys of this gateway in text that clients have written: found by their form, and cut to their prefix before it is logged, counted,
// traced or quoted.

const DIGITS = 32;
/** As `auth/key/key.ts` shows a key. */
const SHOWN = 8;
const KEY = /[0-9a-f]{32,}/gi;
const ENCODED_DIGIT = /%(3[0-9]|[46][1-6])/gi;

/** Text with everything in it that has the form of a key, in either case or percent-encoded, cut to its prefix. */
export function maskKeys(text: string): string {
  if (text.length < DIGITS) return text;
  const plain = text.includes('%') ? text.replace(ENCODED_DIGIT, decodedDigit) : text;
  const masked = plain.replace(KEY, (found) => `${found.slice(0, SHOWN)}…`);
  return masked === plain ? text : masked;
}

/** Whether something in the text has the form of a key. */
export function holdsKey(text: string): boolean {
  return maskKeys(text) !== text;
}

function decodedDigit(_found: string, code: string): string {
  return String.fromCharCode(Number.parseInt(code, 16));
}
