// Reads a request body into one Buffer: bounded in size and time, decoded, cancellable.
import type { IncomingMessage } from 'node:http';
import type { Transform } from 'node:stream';
import * as zlib from 'node:zlib';
import { startDeadline } from '../../deadline.ts';
import { GatewayError, wrapError } from '../../errors.ts';
import type { Exchange } from '../exchange/exchange.ts';
import { hasBody } from '../exchange/response-writer.ts';
import { retryTimeOf } from '../exchange/retry-times.ts';
import { batchWrite } from '../exchange/write-batch.ts';
import { BodyBuffer, LARGE_BODY, type LargeBody } from '../pieces/body-buffer.ts';
import { BodyPacing } from '../pieces/body-pacing.ts';

const CHUNK = { chunkSize: 64 * 1024 };
/** A compressed body of at most this length is decoded when it has arrived and its turn comes; others while they arrive. */
const QUEUED_BYTES = 64 * 1024;
/** A body that is larger when decoded lets the next ones begin, and is paced like other large bodies. */
const MAX_QUEUED_BYTES = 1024 * 1024;
/** RFC 9659: 8 MiB is the largest zstd window for a content coding; zlib's default would allow 128 MiB per request. */
const ZSTD = { ...CHUNK, params: { [zlib.constants.ZSTD_d_windowLogMax]: 23 } };

/** One decoder per coding of RFC 9110, 8.4.1 (with the `x-gzip` alias), Brotli (RFC 7932) and Zstandard (RFC 8878). */
const DECODERS: ReadonlyMap<string, () => Transform> = new Map([
  ['gzip', () => zlib.createGunzip(CHUNK)],
  ['x-gzip', () => zlib.createGunzip(CHUNK)],
  ['deflate', () => zlib.createInflate(CHUNK)],
  ['br', () => zlib.createBrotliDecompress(CHUNK)],
  ['zstd', () => zlib.createZstdDecompress(ZSTD)],
]);

/** Minimum speed of a body. */
export interface BodyPace {
  /** Maximum silence between two pieces, in milliseconds. */
  readonly silence: number;
  /** Time that any body may take, in milliseconds. */
  readonly grace: number;
  /** Minimum rate beyond `grace`, in bytes per second. */
  readonly rate: number;
}

/** A phone on a bad line stays well above this; a slow-body attack (slowloris) does not. */
export const PACE: BodyPace = { silence: 30_000, grace: 30_000, rate: 1024 };

/**
 * @param limit maximum bytes, both as sent and as decoded
 * @param large memory and observer of a large body
 * @returns the decoded body
 * @throws GatewayError request_too_large, unsupported_content_encoding, corrupt_content_encoding, request_timeout, a rejection of
 *   `large.admit`, or the stop reason of the exchange
 */
export async function readBody(
  exchange: Exchange,
  limit: number,
  pace: BodyPace = PACE,
  large?: LargeBody,
): Promise<Buffer> {
  const { request, response } = exchange;
  exchange.throwIfStopped();
  const declared = request.headers['content-length'];
  const expected = declared === undefined ? undefined : Number(declared);
  if (expected !== undefined && expected > limit) throw bodyTooLarge(limit);
  const coding = request.headers['content-encoding']?.trim().toLowerCase() ?? '';
  const createDecoder = DECODERS.get(coding);
  if (createDecoder === undefined && coding !== '' && coding !== 'identity')
    throw new GatewayError('unsupported_content_encoding');
  let admit = large?.admit;
  if (admit !== undefined && expected !== undefined && expected > LARGE_BODY) {
    await admit();
    admit = undefined;
    exchange.throwIfStopped();
  }
  // Only now: an earlier rejection reaches a client that waits for 100 Continue before it sends its body (RFC 9110, 10.1.1).
  if (waitsForContinue(request) && hasBody(exchange)) response.writeContinue();

  // Awaited, because an async function takes three more microtasks to return a promise.
  return await new Promise<Buffer>((resolve, reject) => {
    const body = new BodyBuffer(limit, createDecoder === undefined ? expected : undefined, large);
    let admission: 'due' | 'pending' | 'granted' = admit === undefined ? 'granted' : 'due';
    /** When its time began; 0 before, and for most bodies to their end. */
    let started = 0;
    let last = 0;
    let received = 0;
    let pacing: BodyPacing | undefined;
    let decoder: Transform | undefined;
    const queue =
      expected !== undefined && expected <= QUEUED_BYTES ? exchange.connection?.decodeQueue : undefined;
    /** Compressed, until its turn. */
    const queued: Buffer[] = [];
    let isInQueue = false;

    let stop = () => {};
    let isOver = false;
    let isWhole = false;
    const settle = (error: GatewayError | undefined) => {
      isOver = true;
      stop();
      pacing?.end();
      leaveQueue();
      request.off('data', onData).off('end', onEnd).off('error', onError);
      exchange.offStop(settle);
      decoder?.destroy();
      exchange.access.bytes_in = received;
      if (error === undefined) resolve(body.take());
      else {
        // It may be paused, and the connection needs the rest read.
        request.resume();
        reject(error);
      }
    };
    const leaveQueue = () => {
      if (isInQueue) queue?.leave();
      isInQueue = false;
    };
    const store = (piece: Buffer) => {
      // `push` may free the piece's memory.
      const { length } = piece;
      const isLarge = body.size + length > LARGE_BODY;
      const now = isLarge ? performance.now() : 0;
      if (!body.push(piece)) settle(bodyTooLarge(limit));
      else if (isLarge && !isOver) {
        exchange.isLarge = true;
        pacing ??= new BodyPacing();
        pacing.record(length, performance.now() - now);
        if (body.size > MAX_QUEUED_BYTES) leaveQueue();
        // The queue bounds the work of the bodies in it.
        if (admission === 'granted' && !isInQueue) pacing.throttle(decoder ?? request);
        else if (admission === 'due') waitForAdmission(decoder ?? request);
      }
    };
    const waitForAdmission = (source: Transform | IncomingMessage) => {
      admission = 'pending';
      source.pause();
      admit?.().then(
        () => {
          admission = 'granted';
          if (isOver) return;
          if (isWhole) settle(undefined);
          else source.resume();
        },
        (error: unknown) => {
          if (!isOver) settle(wrapError(error, 'internal_error'));
        },
      );
    };
    const onData = (piece: Buffer) => {
      if (started !== 0) last = performance.now();
      received += piece.length;
      if (createDecoder === undefined) store(piece);
      else if (received > limit) settle(bodyTooLarge(limit));
      else if (decoder === undefined) queued.push(piece);
      else if (!decoder.write(piece)) {
        request.pause();
        decoder.once('drain', () => request.resume());
      }
    };
    /** The end that came with the last piece is emitted although the source is paused. */
    const finish = () => {
      isWhole = true;
      if (admission !== 'pending') settle(undefined);
    };
    const onEnd = () => {
      if (createDecoder === undefined) finish();
      else if (decoder !== undefined) decoder.end();
      else
        queue?.enter((isLate) => {
          if (isOver) return false;
          if (isLate)
            settle(new GatewayError('overloaded', undefined, { retryAfterMs: retryTimeOf(request.socket) }));
          else decode(createDecoder()).end(Buffer.concat(queued));
          isInQueue = !isLate;
          return isInQueue;
        });
    };
    const decode = (transform: Transform) => {
      decoder = transform;
      return transform
        .on('data', (piece: Buffer) => store(piece))
        .once('end', finish)
        .once('error', (cause) => settle(new GatewayError('corrupt_content_encoding', undefined, { cause })));
    };
    const onError = () => settle(new GatewayError('client_closed'));
    /** One timer for both deadlines; arriving bytes only move the deadline that it computes when due. */
    const onDue = () => {
      const deadline = Math.min(last + pace.silence, started + pace.grace + (received / pace.rate) * 1000);
      const left = deadline - performance.now();
      if (left <= 0) settle(new GatewayError('request_timeout'));
      else stop = startDeadline(Math.ceil(left), onDue);
    };
    // Most bodies have arrived already and need no timer.
    batchWrite(() => {
      if (isOver) return;
      exchange.hasLateBody = true;
      started = last = performance.now();
      stop = startDeadline(Math.min(pace.silence, pace.grace), onDue);
    });

    if (createDecoder !== undefined && queue === undefined) decode(createDecoder());
    exchange.onStop(settle);
    request.on('data', onData).once('end', onEnd).once('error', onError);
  });
}

/** RFC 9110, 10.1.1: expectations of HTTP/1.0 clients are ignored. */
export function waitsForContinue({ headers, httpVersionMinor }: IncomingMessage): boolean {
  return headers.expect !== undefined && httpVersionMinor === 1;
}

export function bodyTooLarge(limit: number): GatewayError {
  return new GatewayError(
    'request_too_large',
    `The request body is larger than the limit of ${limit} bytes.`,
  );
}
