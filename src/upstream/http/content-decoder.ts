// Content codings of responses (RFC 9110, 8.4.1). Neither gateway nor client asks for one; if an upstream applies one anyway, the
// client receives the decoded body.
import type { Transform } from 'node:stream';
import * as zlib from 'node:zlib';

/** Flush after each write, so that an event does not wait for the next one. */
const FLUSH = { flush: zlib.constants.Z_SYNC_FLUSH };

const NONE: readonly string[] = [];

/** The codings of a response, in lower case, without `identity`. */
export function codingsOf(header: string | string[] | undefined): readonly string[] {
  if (header === undefined) return NONE;
  const names = (typeof header === 'string' ? header : header.join(','))
    .split(',')
    .map((name) => name.trim().toLowerCase());
  return names.filter((name) => name !== '' && name !== 'identity');
}

/** Whether `decoderFor` supports the coding. */
export function isKnownCoding(coding: string): boolean {
  return /^(x-)?gzip$|^deflate$|^br$|^zstd$/.test(coding);
}

/**
 * @param coding a coding that `isKnownCoding` accepts
 * @param first the first byte of the body: `deflate` is the zlib format by the RFC, but raw deflate from some servers
 */
export function decoderFor(coding: string, first: number): Transform {
  switch (coding) {
    case 'br':
      return zlib.createBrotliDecompress({ flush: zlib.constants.BROTLI_OPERATION_FLUSH });
    case 'zstd':
      return zlib.createZstdDecompress();
    case 'deflate':
      // RFC 1950: compression method 8 in the low bits. A raw stream (RFC 1951) does not start with such a byte.
      return (first & 0x0f) === 8 ? zlib.createInflate(FLUSH) : zlib.createInflateRaw(FLUSH);
    default:
      return zlib.createGunzip(FLUSH);
  }
}
