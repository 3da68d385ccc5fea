// Rejection of new connections without HTTP parsing: of those that waited too long in the accept queue, because its cost decides how fast
// the queue drains, and of those that are opened for one request while too many bodies wait to be decoded. Only requests under /v1 are
// rejected; all others (health checks, pages, webhooks) are served as usual.
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { ORIGIN } from '../exchange/absolute-form.ts';
import { closingAnswer } from '../exchange/response-writer.ts';
import { preparedByRetryTime } from '../exchange/retry-times.ts';
import type { EarlyRejection } from './early-rejection.ts';

/** Any method: unknown ones would be rejected too. */
const API_REQUEST = new RegExp(`^[A-Z]{1,10} ${ORIGIN}/v1/`);
/** What the expression reads at most. */
const REQUEST_START_BYTES = 300;
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
  const rejects = (start: Buffer) => {
    if (!API_REQUEST.test(start.toString('latin1', 0, REQUEST_START_BYTES))) return false;
    metrics.overload.refused.inc({ cause: 'accept_queue' });
    metrics.recordUnread('none', LATE);
    return true;
  };
  readFirst(socket, serve, rejects, () => socket.destroy());
}

/** For a connection that did not wait: if its client is silent, it is served as usual. @param serve as above */
export function rejectUndecoded(socket: Socket, serve: () => void, early: EarlyRejection): void {
  const rejects = (start: Buffer) => early.rejectsUnparsed(start);
  // Node's parser would wait for an end that has come.
  readFirst(socket, serve, rejects, () => (socket.readableEnded ? socket.destroy() : serve()));
}

/** @param rejects gets the first bytes, and counts a rejection */
function readFirst(
  socket: Socket,
  serve: () => void,
  rejects: (start: Buffer) => boolean,
  onSilence: () => void,
): void {
  const stopReading = () => {
    socket.setTimeout(0, onTimeout);
    socket.off('error', ignore).off('data', onStart);
  };
  const onTimeout = () => {
    stopReading();
    onSilence();
  };
  const onStart = (start: Buffer) => {
    if (rejects(start)) {
      socket.off('timeout', onTimeout).once('timeout', destroy).write(answerTo(socket));
      close(socket, start.length < READ_BYTES);
    } else {
      stopReading();
      socket.unshift(start);
      serve();
    }
  };
  socket.on('error', ignore).setTimeout(SILENCE_MS, onTimeout);
  socket.once('data', onStart);
}

/** @param isAll whether the client's bytes have been read */
function close(socket: Socket, isAll: boolean): void {
  // The kernel has the answer: closing sends FIN, and costs a quarter less than ending first. TLS has to end.
  if (isAll && socket.writableLength === 0 && !(socket instanceof TLSSocket)) socket.destroy();
  else if (isAll) socket.destroySoon();
  else {
    socket.end();
    socket.on('data', () => socket.bytesRead > MAX_DROPPED_BYTES && socket.destroy());
    setTimeout(() => socket.destroy(), SILENCE_MS).unref();
  }
}

function destroy(this: Socket): void {
  this.destroy();
}

function ignore(): void {}
