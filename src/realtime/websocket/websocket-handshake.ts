// The opening handshake of a WebSocket, on both sides (RFC 6455, 4): the head of the 101 for a client, and the check of an upstream's.
import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** RFC 6455, 1.3. */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/**
 * The head of the 101 response to a handshake.
 * @param protocol the selected subprotocol
 * @param headers those of the response
 */
export function acceptedHead(
  handshake: IncomingHttpHeaders,
  protocol: string | undefined,
  headers: Readonly<Record<string, string>>,
): string {
  const fields = Object.entries({
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-accept': acceptOf(handshake['sec-websocket-key']),
    ...(protocol === undefined ? {} : { 'sec-websocket-protocol': protocol }),
    ...headers,
  });
  const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 101 Switching Protocols\r\n${lines.join('')}\r\n`;
}

/** The headers of a handshake towards an upstream. */
export function handshakeHeaders(key: string, protocols: readonly string[]): Record<string, string> {
  return {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': key,
    ...(protocols.length === 0 ? {} : { 'sec-websocket-protocol': protocols.join(', ') }),
  };
}

/**
 * @param protocols the offered ones
 * @returns what is wrong with an upstream's 101 response; undefined for a valid one
 */
export function problemOf101(
  headers: IncomingHttpHeaders,
  key: string | undefined,
  protocols: readonly string[],
): string | undefined {
  const protocol = headers['sec-websocket-protocol'];
  if (headers.upgrade?.toLowerCase() !== 'websocket' || headers['sec-websocket-accept'] !== acceptOf(key))
    return 'the 101 response accepts another handshake';
  if (protocol !== undefined && !protocols.includes(protocol))
    return 'the 101 response selects a subprotocol that was not offered';
  return headers['sec-websocket-extensions'] === undefined
    ? undefined
    : 'the 101 response selects an extension that was not offered';
}

/** The Sec-WebSocket-Accept for a Sec-WebSocket-Key. */
function acceptOf(key: string | undefined): string {
  return hash('sha1', `${key ?? ''}${GUID}`, 'base64');
}
