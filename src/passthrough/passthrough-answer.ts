// What is done with an answer that was piped: read whole and within bounds, or passed on as it comes. It judges no status.
import { pipeline } from 'node:stream';
import { startDeadline } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { BodyBuffer } from '../http/pieces/body-buffer.ts';
import { relayedHeaders } from '../upstream/error-outcome.ts';
import type { PipedAnswer } from './passthrough-pipe.ts';

/** Of the body, beside the few that every answer passes on. */
const OF_BODY = ['content-type', 'content-disposition', 'content-encoding'] as const;

/**
 * The whole body.
 * @param limit most bytes
 * @param idle milliseconds between two reads
 * @throws GatewayError upstream_invalid_response for one that is too large or was cut, upstream_timeout, or the reason why the
 *   exchange was stopped
 */
export function collectAnswer(
  exchange: Exchange,
  { response, abort }: PipedAnswer,
  limit: number,
  idle: number,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const body = new BodyBuffer(limit);
    const end = (error: GatewayError | undefined) => {
      stop();
      exchange.offStop(onStop);
      response.off('data', onData).off('end', onEnd).off('close', onEnd);
      if (error === undefined) resolve(body.take());
      else {
        abort();
        reject(error);
      }
    };
    const late = () => end(new GatewayError('upstream_timeout', undefined, { cause: 'deadline: idle' }));
    const onStop = () => end(exchange.stopReason ?? new GatewayError('client_closed'));
    const onData = (chunk: Buffer) => {
      stop();
      stop = startDeadline(idle, late);
      if (!body.push(chunk)) end(invalid('an answer that is too large to be checked'));
    };
    const onEnd = () => end(response.complete ? undefined : invalid('a body cut short'));
    let stop = startDeadline(idle, late);
    exchange.onStop(onStop);
    response.on('data', onData).once('end', onEnd).once('close', onEnd);
    if (exchange.stopReason !== undefined) onStop();
  });
}

/**
 * Passes the answer on, byte for byte and no faster than the client reads. One that breaks off is broken off.
 * @returns whether it was whole
 */
export function pipeAnswer(
  exchange: Exchange,
  { response, abort }: PipedAnswer,
  idle: number,
): Promise<boolean> {
  const { response: answer, access } = exchange;
  const { headers, statusCode = 502 } = response;
  const told: Record<string, string> = { ...exchange.headers, ...relayedHeaders(headers) };
  for (const name of [...OF_BODY, 'content-length']) {
    const value = headers[name];
    if (typeof value === 'string') told[name] = value;
  }
  if (exchange.request.method === 'HEAD') {
    // The body is not sent, so the upstream's is not read.
    answer.writeHead(statusCode, told).end();
    abort();
    return Promise.resolve(true);
  }
  return new Promise((resolve) => {
    let bytes = 0;
    let stop = () => {};
    const watch = () => {
      stop();
      // While the client does not read, the upstream's silence is not its own; the listener sees to such clients.
      stop = startDeadline(idle, () => (answer.writableNeedDrain ? watch() : abort()));
    };
    const onStop = () => abort();
    exchange.onStop(onStop);
    response.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      watch();
    });
    response.pause();
    watch();
    answer.writeHead(statusCode, told);
    pipeline(response, answer, (error) => {
      stop();
      exchange.offStop(onStop);
      access.bytes_out = bytes;
      // On failure both ends are destroyed, so that a client that has read some of it can tell.
      if (error !== undefined && error !== null) abort();
      resolve(error === undefined || error === null);
    });
  });
}

function invalid(cause: string): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause: new Error(cause) });
}
