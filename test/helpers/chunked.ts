// What a relay writes to a client of HTTP/1.1, as the client reads it: chunks of RFC 9112, 7.1, each in one piece.
import { expect } from 'vitest';

const LAST_CHUNK = '0\r\n\r\n';

/** The bytes of what ends an answer: of a chunk before the last one, if there is one, and of an answer that is no stream. */
export function lastContentOf(written: unknown): Buffer {
  if (written === undefined) return Buffer.alloc(0);
  const piece = Buffer.isBuffer(written) ? written : Buffer.from(String(written), 'latin1');
  if (!piece.toString('latin1').endsWith(LAST_CHUNK)) return piece;
  const before = piece.subarray(0, -LAST_CHUNK.length);
  return before.length === 0 ? before : contentOf(before);
}

/** The bytes of one chunk, which has to be whole, and not the last one. What goes with the head is text in latin1. */
export function contentOf(written: unknown): Buffer {
  const piece = typeof written === 'string' ? Buffer.from(written, 'latin1') : written;
  if (!Buffer.isBuffer(piece)) throw new Error('the relay writes buffers, or text with the head');
  const size = piece.indexOf('\r\n');
  const length = Number.parseInt(piece.toString('latin1', 0, size), 16);
  const content = piece.subarray(size + 2, -2);
  expect([content.length, piece.toString('latin1', piece.length - 2)]).toEqual([length, '\r\n']);
  expect(length).toBeGreaterThan(0);
  return content;
}
