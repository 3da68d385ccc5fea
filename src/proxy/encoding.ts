// What must hold of a body before it is read as JSON: it is UTF-8, and not marked as such.
import { isUtf8 } from 'node:buffer';
import { GatewayError } from '../errors.ts';

/** What must hold before the first byte is read as JSON. */
export function checkEncoding(body: Buffer): void {
  if (body.length === 0) throw new GatewayError('invalid_json', 'The request body is empty.');
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) {
    throw invalidJson('it begins with a byte order mark (U+FEFF)', 0);
  }
  if (!isUtf8(body)) throw invalidJson('it is not UTF-8', firstInvalidUtf8(body));
}

export function invalidJson(fault: string, offset: number): GatewayError {
  return new GatewayError('invalid_json', `The request body is not valid JSON: ${fault}, at byte ${offset}.`);
}

/** Offset of the first byte that begins no UTF-8 character, found in ever smaller steps of valid text. */
function firstInvalidUtf8(body: Buffer): number {
  let valid = 0;
  const advance = (step: number): boolean => {
    const end = valid + step;
    if (end > body.length || !isUtf8(body.subarray(valid, end))) return false;
    valid = end;
    return true;
  };
  for (const step of [1_048_576, 65_536, 4_096, 256]) {
    // A step may cut a character in two; then one that is up to three bytes longer does not.
    while (advance(step) || advance(step + 1) || advance(step + 2) || advance(step + 3));
  }
  while (advance(1) || advance(2) || advance(3) || advance(4));
  return valid;
}
