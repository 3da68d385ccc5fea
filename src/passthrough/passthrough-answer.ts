// The ways to use an answer that was piped: read it within bounds, or forward it as it arrives.
import { pipeline } from 'node:stream/promises';
import { startDeadline } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { wholeBody } from '../http/pieces/body-buffer.ts';
import { relayedHeaders } from '../upstream/error-outcome.ts';
import type { PipedAnswer } from './passthrough-pipe.ts';

/** Headers of the body, besides those that every answer forwards. */
const BODY_HEADERS = ['content-type', 'content-disposition', 'content-encoding', 'content-length'] as const;

/**
 * The pieces of the body. The call is aborted at the end, however it is reached.
 * @throws GatewayError upstream_invalid_response for a truncated body, upstream_timeout, or the stop reason of the exchange
 */
export async function* piecesOf(
  exchange: Exchange,
  { response, abort, idle, isKept }: PipedAnswer,
): AsyncGenerator<Buffer, void> {
  let failed: GatewayError | undefined;
  const fail = (error: GatewayError) => {
    failed ??= error;
    abort();
  };
  const onLate = () => fail(new GatewayError('upstream_timeout', undefined, { cause: 'deadline: idle' }));
  let stop = startDeadline(idle, onLate);
  if (!isKept) exchange.onStop(fail);
  if (!isKept && exchange.stopReason !== undefined) fail(exchange.stopReason);
  try {
    for await (const piece of response) {
      stop();
      yield piece;
      stop = startDeadline(idle, onLate);
    }
    if (!response.complete) throw invalid('the body is truncated');
  } catch (cause) {
    throw failed ?? (cause instanceof GatewayError ? cause : invalid('the body is truncated'));
  } finally {
    stop();
    exchange.offStop(fail);
    abort();
  }
}

/**
 * The whole body.
 * @param limit maximum bytes
 * @throws GatewayError as `piecesOf`; upstream_invalid_response for a larger body
 */
export async function collectAnswer(exchange: Exchange, piped: PipedAnswer, limit: number): Promise<Buffer> {
  const body = await wholeBody(piecesOf(exchange, piped), limit);
  if (body === undefined) throw invalid('the answer is too large to be checked');
  return body;
}

/**
 * Forwards the answer byte for byte, with backpressure. A truncated one stays truncated: both connections are closed.
 * @returns whether it was complete
 */
export async function pipeAnswer(exchange: Exchange, piped: PipedAnswer): Promise<boolean> {
  const { response: answer, access } = exchange;
  const { headers, statusCode = 502 } = piped.response;
  const relayed: Record<string, string> = { ...exchange.headers, ...relayedHeaders(headers) };
  for (const name of BODY_HEADERS) {
    const value = headers[name];
    if (typeof value === 'string') relayed[name] = value;
  }
  answer.writeHead(statusCode, relayed);
  if (exchange.request.method === 'HEAD') {
    // The body is not sent, so the upstream's is not read.
    answer.end();
    piped.abort();
    return true;
  }
  let bytes = 0;
  async function* counted() {
    // The deadline does not run while the client does not read; the server closes such connections.
    for await (const piece of piecesOf(exchange, piped)) {
      bytes += piece.length;
      yield piece;
    }
  }
  try {
    await pipeline(counted, answer);
    return true;
  } catch {
    return false;
  } finally {
    access.bytes_out = bytes;
  }
}

function invalid(cause: string): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause: new Error(cause) });
}
