// The only place for what Node does but does not document. test/http/node-internals.test.ts fails when a version of Node changes it.
// V8's flags are in process/heap-tuning.ts.
import type { Worker } from 'node:cluster';
import { type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { OnReadOpts, Socket } from 'node:net';

/** In place of the text of a head. */
const SENT = 'sent';

/**
 * Makes plain properties of the globals that Node computes by getters, so that V8 treats them as constants: otherwise each use in a hot
 * function is two calls.
 */
export function fixGlobals(): void {
  for (const name of ['Buffer', 'performance'] as const)
    Object.defineProperty(globalThis, name, { value: globalThis[name], writable: true });
}

/** After a client's FIN, its requests are still answered: a half-closed client may read. Node's types lack the property. */
export function allowHalfOpen(server: Server): void {
  Object.assign(server, { httpAllowHalfOpen: true });
}

/**
 * Passes every new connection to `accept`, with a function that hands a connection, the same or one on top of it, to Node's HTTP
 * parser. Node attaches its parser by a listener of 'connection'.
 */
export function interceptConnections(
  server: Server,
  accept: (socket: Socket, read: (socket: Socket) => void) => void,
): void {
  const listeners = server.listeners('connection');
  const read = (socket: Socket) => {
    for (const listener of listeners) listener.call(server, socket);
  };
  server.removeAllListeners('connection').on('connection', (socket: Socket) => accept(socket, read));
}

/** A response for a request that Node emits with 'upgrade', for which it creates none. Nothing closes the connection after it. */
export function responseFor(request: IncomingMessage): ServerResponse {
  const response = new ServerResponse(request);
  response.assignSocket(request.socket);
  return response;
}

/** Whether the connection stays open after this response, as far as the head tells the client. */
export function keepsConnection(response: ServerResponse): boolean {
  return response.shouldKeepAlive;
}

/** Before the head is written: whether it says `connection: keep-alive`, or `close` and Node closes the connection. */
export function setKeepsConnection(response: ServerResponse, keeps: boolean): void {
  response.shouldKeepAlive = keeps;
}

/** After the head was written: Node keeps its text until the end, in some sixty pieces, and only asks whether there is one. */
export function forgetHead(response: ServerResponse): void {
  Object.assign(response, { _header: SENT });
}

/** After `writeHead` with `transfer-encoding: chunked`: the caller writes the chunks, the last one too. */
export function frameChunksByHand(response: ServerResponse): void {
  response.chunkedEncoding = false;
}

/**
 * Options for creating sockets that read into one buffer, without a stream. Node calls the callback of these options with the socket
 * as `this`.
 * @param onRead gets the socket and the number of bytes in the buffer. The buffer is reused after it returns
 */
export function readInto(
  buffer: Buffer,
  onRead: (socket: object, bytes: Buffer, length: number) => void,
): OnReadOpts {
  return {
    buffer,
    callback(this: object, length: number, bytes: Uint8Array): boolean {
      onRead(this, bytes === buffer ? buffer : Buffer.from(bytes.buffer, bytes.byteOffset), length);
      return true;
    },
  };
}

/** A worker whose primary ends drains, where Node would exit at once. Call it in the listener of 'disconnect'. */
export function stayAfterDisconnect(worker: Worker): void {
  worker.exitedAfterDisconnect = true;
}
