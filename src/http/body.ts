// Reads a request's body into one Buffer: bounded, decoded, cancellable. It does not look inside.
import type { Transform } from 'node:stream';
import * as zlib from 'node:zlib';
import { GatewayError } from '../errors.ts';
import type { Exchange } from './exchange.ts';

/** One decoder per coding of RFC 9110, 8.4.1 (with the `x-gzip` alias), Brotli (RFC 7932) and Zstandard (RFC 8878). */
const DECODERS: Readonly<Record<string, () => Transform>> = {
  gzip: () => zlib.createGunzip(),
  'x-gzip': () => zlib.createGunzip(),
  deflate: () => zlib.createInflate(),
  br: () => zlib.createBrotliDecompress(),
  zstd: () => zlib.createZstdDecompress(),
};

/** Between two pieces of a body a client may be silent this long. */
const BODY_IDLE_MS = 30_000;

/**
 * @param limit most bytes, both as sent and as decoded
 * @returns the decoded body
 * @throws GatewayError request_too_large, unsupported_content_encoding, corrupt_content_encoding, request_timeout, or the
 *   reason for which the exchange was stopped
 */
export function readBody(exchange: Exchange, limit: number): Promise<Buffer> {
  const { request, response } = exchange;
  const declared = request.headers['content-length'];
  if (declared !== undefined && Number(declared) > limit) return Promise.reject(tooLarge(limit));
  const coding = request.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  let decoder: Transform | undefined;
  if (coding !== 'identity' && coding !== '') {
    const create = Object.hasOwn(DECODERS, coding) ? DECODERS[coding] : undefined;
    if (create === undefined) return Promise.reject(new GatewayError('unsupported_content_encoding'));
    decoder = create();
  }
  // Only now: a refusal above reaches a client that waits for 100 Continue before it has sent its body (RFC 9110, 10.1.1).
  if (request.headers.expect !== undefined) response.writeContinue();

  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let received = 0;
    let size = 0;

    const settle = (error: GatewayError | undefined) => {
      clearTimeout(timer);
      request.off('data', onData).off('end', onEnd).off('error', onError);
      exchange.offStop(onStop);
      decoder?.destroy();
      exchange.access.bytes_in = received;
      if (error === undefined)
        resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks, size));
      else reject(error);
    };
    const keep = (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) settle(tooLarge(limit));
      else chunks.push(chunk);
    };
    const onData = (chunk: Buffer) => {
      timer.refresh();
      received += chunk.length;
      if (decoder === undefined) keep(chunk);
      else if (received > limit) settle(tooLarge(limit));
      else if (!decoder.write(chunk)) {
        request.pause();
        decoder.once('drain', () => request.resume());
      }
    };
    const onEnd = () => (decoder === undefined ? settle(undefined) : decoder.end());
    const onError = () => settle(new GatewayError('client_closed'));
    const onStop = () => settle(exchange.stopReason ?? new GatewayError('client_closed'));
    const timer = setTimeout(() => settle(new GatewayError('request_timeout')), BODY_IDLE_MS);

    decoder?.on('data', keep);
    decoder?.once('end', () => settle(undefined));
    decoder?.once('error', (cause) =>
      settle(new GatewayError('corrupt_content_encoding', undefined, { cause })),
    );
    exchange.onStop(onStop);
    if (exchange.stopReason !== undefined) onStop();
    else request.on('data', onData).once('end', onEnd).once('error', onError);
  });
}

function tooLarge(limit: number): GatewayError {
  return new GatewayError(
    'request_too_large',
    `The request body is larger than the ${limit} bytes that are accepted.`,
  );
}
