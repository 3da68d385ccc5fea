// Content codings of answers (RFC 9110, 8.4.1). The gateway asks for none, and some upstreams code all the same; the
// client asked for none either, so what it gets is decoded. What is in the body is not looked at.
import type { Transform } from 'node:stream';
import * as zlib from 'node:zlib';

/** Each write is decoded as far as it goes: an event that was flushed must not wait for the next one. */
const FLUSH = { flush: zlib.constants.Z_SYNC_FLUSH };

const NONE: readonly string[] = [];

/** The codings of an answer, in lower case, `identity` left out. */
export function codingsOf(header: string | string[] | undefined): readonly string[] {
  if (header === undefined) return NONE;
  const names = (typeof header === 'string' ? header : header.join(','))
    .split(',')
    .map((name) => name.trim().toLowerCase());
  return names.filter((name) => name !== '' && name !== 'identity');
}

/** Whether `decoderFor` knows the coding. */
export function isKnownCoding(coding: string): boolean {
  return /^(x-)?gzip$|^deflate$|^br$|^zstd$/.test(coding);
}

/**
 * @param coding one that `isKnownCoding`
 * @param first the first byte of the body: `deflate` is zlib's format by the book and raw deflate by some
 */
export function decoderFor(coding: string, first: number): Transform {
  switch (coding) {
    case 'br':
      return zlib.createBrotliDecompress({ flush: zlib.constants.BROTLI_OPERATION_FLUSH });
    case 'zstd':
      return zlib.createZstdDecompress();
    case 'deflate':
      // RFC 1950: compression method 8 in the low bits. A raw stream (RFC 1951) does not begin with such a byte.
      return (first & 0x0f) === 8 ? zlib.createInflate(FLUSH) : zlib.createInflateRaw(FLUSH);
    default:
      return zlib.createGunzip(FLUSH);
  }
}
