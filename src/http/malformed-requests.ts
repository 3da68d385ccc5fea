// What Node's parser cannot read as a request: it emits none for it, and its default response has no body.
import type { Server as HttpServer } from 'node:http';
import type { Socket } from 'node:net';
import { GatewayError } from '../errors.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { Connection } from './connection.ts';
import { edgeRejectionFor } from './edge.ts';
import type { RunningExchanges } from './exchange/running-exchanges.ts';

/** The client left or the socket failed: a response is impossible. */
const GONE = new Set(['ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ECONNABORTED']);

interface MalformedRequestsOptions {
  /** The open ones. */
  readonly connections: ReadonlyMap<Socket, Connection>;
  readonly active: RunningExchanges;
  readonly metrics: Pick<Metrics, 'recordUnread'>;
}

/** Answers them behind the requests before them, and ends their connections. */
export function rejectMalformed(
  http: HttpServer,
  { connections, active, metrics }: MalformedRequestsOptions,
): void {
  const reject = (socket: Socket, rejection: GatewayError) => {
    if (connections.get(socket)?.reject(rejection) === true) metrics.recordUnread('malformed', rejection);
  };
  http.on('clientError', (error: Error & { code?: string }, socket: Socket) => {
    const connection = connections.get(socket);
    if (connection === undefined || GONE.has(error.code ?? '')) {
      socket.destroy();
      return;
    }
    // Node reports every further piece after a parse error.
    if (connection.rejection !== undefined) return;
    const { current } = connection;
    const unfinished = current !== undefined && !current.request.complete;
    // No request was sent (a preconnection, a port probe), or the client sent FIN within its body: it left.
    if (socket.bytesRead === 0 || (unfinished && error.code === 'HPE_INVALID_EOF_STATE')) {
      socket.destroy();
      return;
    }
    const rejection = edgeRejectionFor(error.code);
    // The reader of an incomplete body answers, unless a response was sent.
    if (unfinished) active.stop(current, rejection);
    else reject(socket, rejection);
  });
  // Node's parser treats the bytes after CONNECT as another protocol, so it is never emitted as a request.
  http.on('connect', (_request, socket: Socket) => {
    reject(socket, new GatewayError('method_not_allowed', 'This server is not a proxy.'));
    socket.resume();
  });
}
