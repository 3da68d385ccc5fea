// Checks that a body is UTF-8 without a byte order mark before it is read as JSON.
import { isUtf8 } from 'node:buffer';
import { GatewayError } from '../../errors.ts';

/** @throws GatewayError invalid_json if the body is empty, begins with a byte order mark, or is not UTF-8 */
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

/** Validates UTF-8 incrementally as a body arrives. */
export class Utf8Walk {
  /** Offset up to which the text is valid. */
  #valid = 0;

  /**
   * @param end bytes received; the last character may be incomplete unless `isLast`
   * @throws GatewayError as `checkEncoding`
   */
  advance(bytes: Buffer, end: number, isLast: boolean): void {
    const to = isLast ? end : lastBoundary(bytes, end);
    if (to <= this.#valid && end > 0) return;
    const from = this.#valid;
    this.#valid = to;
    if (from === 0) checkEncoding(bytes.subarray(0, to));
    else {
      const more = bytes.subarray(from, to);
      if (!isUtf8(more)) throw invalidJson('it is not UTF-8', from + firstInvalidUtf8(more));
    }
  }
}

/** Offset before the last character if it may be incomplete. A character has up to four bytes; continuation bytes are 10xxxxxx. */
function lastBoundary(bytes: Buffer, end: number): number {
  for (let at = end - 1; at >= 0 && at >= end - 3; at--) {
    const byte = bytes[at] ?? 0;
    if (byte >= 0xc0) return at;
    if (byte < 0x80) break;
  }
  return end;
}

/** Offset of the first byte that begins no UTF-8 character, found in decreasing steps of valid text. */
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
