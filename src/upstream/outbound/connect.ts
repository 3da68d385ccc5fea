// Contract of those that open a connection: directly (dialer.ts) or through a proxy (tunnel.ts).
import type { Socket } from 'node:net';
import type { buildConnector } from 'undici';

/** A pending connection; its callback is called once in any case. */
export interface PendingConnection {
  destroy(reason: Error): void;
}

/** Where to connect. `hostname` is without brackets. */
export type Destination = Pick<buildConnector.Options, 'protocol' | 'hostname' | 'host' | 'port'>;

export type Connect = (
  destination: Destination,
  callback: (outcome: Socket | Error) => void,
) => PendingConnection;
