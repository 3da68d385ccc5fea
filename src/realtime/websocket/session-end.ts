// How the WebSocket of a client ends: the gateway's error event before the Close, the time to answer it, and what the access log says.
import type { Socket } from 'node:net';
import { startDeadline } from '../../deadline.ts';
import { type ErrorCode, errorBody, type GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { textFrame } from './websocket-frames.ts';

/** A connection without a Close (RFC 6455, 7.4.1). */
export const ABNORMAL = 1006;

/** Time for a client to answer a Close. */
const CLOSE_MS = 1_000;

export type Side = 'client' | 'upstream' | 'gateway';

export interface SessionEnd {
  readonly by: Side;
  /** Of the first Close: 1005 without a code, 1006 without a Close. */
  readonly code: number;
  readonly outcome: 'ok' | ErrorCode;
}

/** To be called before the access log is written. @param bytes those forwarded by the two sides, with their framing */
export function recordSessionEnd(
  exchange: Exchange,
  { by, code, outcome }: SessionEnd,
  { bytesIn, bytesOut }: { readonly bytesIn: number; readonly bytesOut: number },
): void {
  const { access } = exchange;
  access.bytes_in = bytesIn;
  access.bytes_out = bytesOut;
  access.close_code = code;
  access.closed_by = by;
  access.outcome = outcome;
  if (outcome !== 'client_closed') exchange.markAnswered();
}

/** An error in the form of an upstream's event. */
export function errorFrame(error: GatewayError): Buffer {
  return textFrame(`{"type":"error",${errorBody(error).slice(1)}`);
}

/** Closes a client's connection a moment after a Close was sent, unless the client does. */
export function cutLater(client: Socket): void {
  if (client.destroyed) return;
  client.once(
    'close',
    startDeadline(CLOSE_MS, () => client.destroy()),
  );
}
