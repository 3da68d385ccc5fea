// Connections that waited too long in the accept queue. What each costs decides how soon the queue is empty again, so requests
// under /v1 are rejected without parsing HTTP; everything else (health checks, pages, webhooks) is served as usual.
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { closingAnswer } from '../exchange/response-writer.ts';

/** With any method: one that no route has would be rejected as well. */
const API_REQUEST = /^[A-Z]{1,10} \/v1\//;
const REQUEST_START_BYTES = 16;
/** As much as Node reads at once: a shorter start is all that the client has sent. */
const READ_BYTES = 64 * 1024;
/**
 * So much of a longer request is read and dropped: the kernel resets a connection that is closed with unread bytes, and its
 * client would lose the answer.
 */
const MAX_DROPPED_BYTES = 1024 * 1024;
/** For a client that sends nothing, or more than it should. */
const SILENCE_MS = 1_000;
const RETRY_MS = 2_000;

const LATE = new GatewayError('overloaded', undefined, { retryAfterMs: RETRY_MS });
const ANSWER = closingAnswer(LATE);

/** Gives every new connection to `accept`, with a function that lets Node read requests from it. */
export function interceptConnections(
  server: Server,
  accept: (socket: Socket, read: () => void) => void,
): void {
  const listeners = server.listeners('connection');
  server.removeAllListeners('connection').on('connection', (socket: Socket) =>
    accept(socket, () => {
      for (const listener of listeners) listener.call(server, socket);
    }),
  );
}

/**
 * @param serve takes the connection over, as if it had just been accepted
 * @param metrics count it if it was a request under /v1
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
      socket.end(ANSWER);
      if (start.length < READ_BYTES) socket.destroySoon();
      else {
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
