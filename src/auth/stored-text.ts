// Validates labels and reasons that are stored with keys.
import { invisibleFault } from '../config/invisible-characters.ts';
import { GatewayError } from '../errors.ts';

const MAX_TEXT = 200;

/**
 * Validates text that support writes and reads in a terminal: short, without control characters, and without a key.
 * @param param name of the text, for the error
 * @returns the text, trimmed
 * @throws GatewayError `invalid_value`
 */
export function storableText(text: string, param: string): string {
  // One form of a letter: names that look the same are the same.
  const trimmed = text.normalize('NFC').trim();
  const invalid = (why: string) => new GatewayError('invalid_value', `The ${param} ${why}.`, { param });
  if (trimmed.length > MAX_TEXT) throw invalid(`is longer than ${MAX_TEXT} characters`);
  if (trimmed === '') throw invalid('is empty');
  const invisible = invisibleFault(trimmed);
  if (invisible !== undefined) throw invalid(`contains ${invisible}`);
  if (/[0-9a-f]{32}/i.test(trimmed)) throw invalid('contains text that looks like a key');
  return trimmed;
}
