// Text that is kept beside keys, labels and reasons: what of it may be stored.
import { GatewayError } from '../errors.ts';

const MAX_TEXT = 200;

/**
 * Text that support writes and reads in a terminal: short, without control characters, and without a key.
 * @param param what it is, for the error
 * @returns it without blanks around it
 * @throws GatewayError `invalid_value`
 */
export function storableText(text: string, param: string): string {
  const kept = text.trim();
  const refuse = (why: string) => new GatewayError('invalid_value', `The ${param} ${why}.`, { param });
  if (kept.length > MAX_TEXT) throw refuse(`is longer than ${MAX_TEXT} characters`);
  if (kept === '') throw refuse('is empty');
  if (/[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u.test(kept)) throw refuse('has a control character in it');
  if (/[0-9a-f]{32}/i.test(kept)) throw refuse('has something in it that looks like a key');
  return kept;
}
