// Masks keys in client input before it is logged, counted, traced or quoted.

const DIGITS = 32;
/** The prefix length of `auth/key/key.ts`. */
const SHOWN = 8;
/** Longest name of a model in logs and traces, in characters. */
const MAX_NAME = 256;
const KEY = /[0-9a-f]{32,}/gi;
/** Client secrets of sessions. */
const CLIENT_SECRET = /ek_[\w-]{32,}/g;
const ENCODED_DIGIT = /%(3[0-9]|[46][1-6])/gi;

/** Shortens everything with the form of a key, in either case or percent-encoded, to its prefix. */
export function maskKeys(text: string): string {
  if (text.length < DIGITS) return text;
  const plain = text.includes('%') ? text.replace(ENCODED_DIGIT, decodedDigit) : text;
  const masked = plain.replace(CLIENT_SECRET, 'ek_…').replace(KEY, (found) => `${found.slice(0, SHOWN)}…`);
  return masked === plain ? text : masked;
}

/** The name of a model as a client gave it, for logs and traces: users paste API keys into `model`. */
export function maskedName(model: string): string {
  return maskKeys(model).slice(0, MAX_NAME);
}

/** Whether the text contains something with the form of a key. */
export function holdsKey(text: string): boolean {
  return maskKeys(text) !== text;
}

function decodedDigit(_found: string, code: string): string {
  return String.fromCharCode(Number.parseInt(code, 16));
}
