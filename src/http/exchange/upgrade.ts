// WebSocket handshakes (RFC 6455, 4.2.1): which requests are valid ones, and responses to rejected ones. The session itself is
// elsewhere.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { GatewayError } from '../../errors.ts';
import { responseFor, setKeepsConnection } from './node-internals.ts';

/** Time for a client to read the response to a rejected handshake and to close. */
const CLOSE_MS = 1_000;

/** A connection that leaves HTTP; the handler of the handshake reads it. */
export interface Upgrade {
  readonly socket: Socket;
  /** Bytes received right after the handshake. */
  readonly head: Buffer;
}

/** Whether a request is a valid WebSocket handshake. All others are handled as plain HTTP, despite an `upgrade` header. */
export function isHandshake(request: IncomingMessage): boolean {
  return asksForWebSocket(request) && upgradeRejectionOf(request) === undefined;
}

/** @returns the error for a request to a WebSocket-only URL; undefined for a valid handshake */
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

/** Headers of responses to anything but a handshake (RFC 9110, 15.5.22; RFC 6455, 4.4). */
export const UPGRADE_REQUIRED_HEADERS = { upgrade: 'websocket', 'sec-websocket-version': '13' } as const;

function asksForWebSocket({ method, headers, httpVersionMinor }: IncomingMessage): boolean {
  return (
    method === 'GET' &&
    httpVersionMinor === 1 &&
    headers.upgrade?.trim().toLowerCase() === 'websocket' &&
    hasToken(headers.connection, 'upgrade') &&
    // A handshake has no body.
    headers['transfer-encoding'] === undefined &&
    (headers['content-length'] ?? '0') === '0'
  );
}

function hasToken(value: string | undefined, token: string): boolean {
  return value?.split(',').some((each) => each.trim().toLowerCase() === token) ?? false;
}

/**
 * An HTTP response for a handshake, because Node creates none. It closes the connection. Call it only when no other response is
 * running on the connection.
 */
export function responseTo(request: IncomingMessage): ServerResponse {
  const { socket } = request;
  const response = responseFor(request);
  setKeepsConnection(response, false);
  response.once('finish', () => {
    socket.end();
    // With unread bytes the kernel would send RST, and the response would be lost.
    socket.resume();
    const cut = setTimeout(() => socket.destroy(), CLOSE_MS);
    socket.once('close', () => clearTimeout(cut));
  });
  return response;
}
