// Rejection of connections that waited too long in the accept queue. Its cost decides how fast the queue drains, so requests under
// /v1 are rejected without HTTP parsing; all others (health checks, pages, webhooks) are served as usual.
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { closingAnswer } from '../exchange/response-writer.ts';
import { preparedByRetryTime } from '../exchange/retry-times.ts';

/** Any method: unknown ones would be rejected too. */
const API_REQUEST = /^[A-Z]{1,10} \/v1\//;
const REQUEST_START_BYTES = 16;
/** Node's read size: a shorter piece is all that the client has sent. */
const READ_BYTES = 64 * 1024;
/**
 * Bytes of a longer request that are read and dropped: closing with unread bytes makes the kernel send RST, and the client would
 * lose the response.
 */
const MAX_DROPPED_BYTES = 1024 * 1024;
/** Timeout for silent clients and for discarding. */
const SILENCE_MS = 1_000;
const LATE = new GatewayError('overloaded');
const answerTo = preparedByRetryTime((retryAfterMs) =>
  closingAnswer(new GatewayError('overloaded', undefined, { retryAfterMs })),
);

/**
 * @param serve serves the connection normally
 * @param metrics count the rejection of a request under /v1
 */
export function rejectLate(
  socket: Socket,
  serve: () => void,
  metrics: Pick<Metrics, 'overload' | 'recordUnread'>,
): void {
  socket.on('error', ignore).setTimeout(SILENCE_MS, destroy);
  socket.once('data', (start: Buffer) => {
    if (API_REQUEST.test(start.toString('latin1', 0, REQUEST_START_BYTES))) {
      metrics.overload.refused.inc({ cause: 'accept_queue' });
      metrics.recordUnread('none', LATE);
      socket.write(answerTo(socket));
      const isAll = start.length < READ_BYTES;
      // The kernel has the answer: closing sends FIN, and costs a quarter less than ending first. TLS has to end.
      if (isAll && socket.writableLength === 0 && !(socket instanceof TLSSocket)) socket.destroy();
      else if (isAll) socket.destroySoon();
      else {
        socket.end();
        socket.on('data', () => socket.bytesRead > MAX_DROPPED_BYTES && socket.destroy());
        setTimeout(() => socket.destroy(), SILENCE_MS).unref();
      }
    } else {
      socket.setTimeout(0, destroy);
      socket.off('error', ignore);
      socket.unshift(start);
      serve();
    }
  });
}

function destroy(this: Socket): void {
  this.destroy();
}

function ignore(): void {}
