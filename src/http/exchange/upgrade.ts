// Which requests may turn their connection into a WebSocket (RFC 6455, 4.2.1), and what is left of the connection then.
// What a handshake is for, and what goes over the connection, is not its business.
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { GatewayError } from '../../errors.ts';

/** How long a client may take to read an answer to a handshake that was refused, and to close. */
const FAREWELL_MS = 1_000;

/** A connection that is no HTTP any more as far as reading goes: what comes on it belongs to whoever took the handshake. */
export interface Upgrade {
  readonly socket: Socket;
  /** What came right behind the handshake. */
  readonly head: Buffer;
}

/**
 * Whether a request asks for a WebSocket in a form that can be taken. Everything else stays a request, so that it gets an
 * answer in HTTP whatever `upgrade` says.
 */
export function isHandshake(request: IncomingMessage): boolean {
  return asksForWebSocket(request) && upgradeRejectionOf(request) === undefined;
}

/** @returns what is wrong with a request where only a handshake is of use */
export function upgradeRejectionOf(request: IncomingMessage): GatewayError | undefined {
  const { headers } = request;
  if (!asksForWebSocket(request) || headers['sec-websocket-version'] !== '13') {
    return new GatewayError('upgrade_required');
  }
  const key = headers['sec-websocket-key'];
  if (key === undefined || !/^[A-Za-z0-9+/]{22}==$/.test(key)) {
    return new GatewayError('invalid_http', 'The Sec-WebSocket-Key is missing or malformed.');
  }
  return undefined;
}

/** What every answer to something else than a handshake says (RFC 9110, 15.5.22; RFC 6455, 4.4). */
export const WANTED = { upgrade: 'websocket', 'sec-websocket-version': '13' } as const;

function asksForWebSocket({ method, headers, httpVersionMinor }: IncomingMessage): boolean {
  return (
    method === 'GET' &&
    httpVersionMinor === 1 &&
    headers.upgrade?.trim().toLowerCase() === 'websocket' &&
    hasToken(headers.connection, 'upgrade') &&
    // Whatever follows would have to be a body.
    headers['transfer-encoding'] === undefined &&
    (headers['content-length'] ?? '0') === '0'
  );
}

function hasToken(value: string | undefined, token: string): boolean {
  return value?.split(',').some((each) => each.trim().toLowerCase() === token) ?? false;
}

/**
 * An answer in HTTP for a handshake, for as long as it is not taken: Node makes none. After it the connection ends. To be
 * called when the connection has no other answer under way.
 */
export function responseTo(request: IncomingMessage): ServerResponse {
  const { socket } = request;
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  response.once('finish', () => {
    socket.end();
    // Over bytes that were not read the kernel would send RST, and the answer would be lost.
    socket.resume();
    const cut = setTimeout(() => socket.destroy(), FAREWELL_MS);
    socket.once('close', () => clearTimeout(cut));
  });
  return response;
}
