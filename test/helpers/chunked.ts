// What a relay writes to a client of HTTP/1.1, as the client reads it: chunks of RFC 9112, 7.1, each in one piece.
import { expect } from 'vitest';

const LAST_CHUNK = '0\r\n\r\n';

/** The bytes of what ends an answer: of a chunk before the last one, if there is one, and of an answer that is no stream. */
export function lastContentOf(piece: unknown): Buffer {
  if (piece === undefined) return Buffer.alloc(0);
  if (!Buffer.isBuffer(piece)) return Buffer.from(String(piece), 'latin1');
  if (!piece.toString('latin1').endsWith(LAST_CHUNK)) return piece;
  const before = piece.subarray(0, -LAST_CHUNK.length);
  return before.length === 0 ? before : contentOf(before);
}

/** The bytes of one chunk, which has to be whole, and not the last one. */
export function contentOf(piece: unknown): Buffer {
  if (!Buffer.isBuffer(piece)) throw new Error('the relay writes buffers');
  const size = piece.indexOf('\r\n');
  const length = Number.parseInt(piece.toString('latin1', 0, size), 16);
  const content = piece.subarray(size + 2, -2);
  expect([content.length, piece.toString('latin1', piece.length - 2)]).toEqual([length, '\r\n']);
  expect(length).toBeGreaterThan(0);
  return content;
}
