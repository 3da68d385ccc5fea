// Conversion of embeddings to base64. The official SDK requests base64 and decodes any answer as such, so it would misread numbers.
// Vectors that are strings already stay unchanged.
import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { GatewayError } from '../../errors.ts';
import { JsonScanner } from '../../wire/json/json.ts';
import type { Edit } from '../request/request-scan.ts';

const OPEN_ARRAY = 0x5b;
/** Vector text converted per event-loop tick: a millisecond or two. */
const TICK_BYTES = 256 * 1024;

/**
 * @param body an answer of `embeddings`: a complete and valid JSON object
 * @returns an edit for each vector of numbers, to a base64 token of 32-bit floats, little-endian
 * @throws (rejects with) GatewayError upstream_invalid_response where a vector holds anything but 32-bit floats
 */
export async function base64Edits(body: Buffer): Promise<readonly Edit[]> {
  let bytesLeft = TICK_BYTES;
  const edits: Edit[] = [];
  const scanner = new JsonScanner();
  scanner.reset(body);
  if (!scanner.enterObject()) return edits;
  while (scanner.nextMember()) {
    if (!scanner.keyIs('data') || !scanner.enterArray()) {
      scanner.skipValue();
      continue;
    }
    while (scanner.nextElement()) {
      if (!scanner.enterObjectOrSkip()) continue;
      while (scanner.nextMember()) {
        const isVector = scanner.keyIs('embedding') && scanner.peek() === OPEN_ARRAY;
        const { pos: start } = scanner;
        scanner.skipValue();
        if (!isVector) continue;
        const span = { start, end: scanner.pos };
        // A large answer must not delay other streams.
        bytesLeft -= span.end - start;
        if (bytesLeft < 0) {
          bytesLeft = TICK_BYTES;
          await yieldToEventLoop();
        }
        edits.push({ span, bytes: Buffer.from(`"${base64(body.toString('latin1', start, span.end))}"`) });
      }
    }
  }
  return edits;
}

/**
 * @param vector a JSON array
 * @throws GatewayError upstream_invalid_response where it holds anything but 32-bit floats
 */
export function base64(vector: string): string {
  const numbers: unknown = JSON.parse(vector);
  if (!Array.isArray(numbers)) throw unusable();
  const bytes = Buffer.allocUnsafe(numbers.length * Float32Array.BYTES_PER_ELEMENT);
  let at = 0;
  for (const number of numbers) {
    // Beyond the range of a float it would become infinite.
    if (typeof number !== 'number' || !Number.isFinite(Math.fround(number))) throw unusable();
    at = bytes.writeFloatLE(number, at);
  }
  return bytes.toString('base64');
}

function unusable(): GatewayError {
  const cause = 'an embedding is not a list of 32-bit floats';
  return new GatewayError('upstream_invalid_response', undefined, { cause });
}
