// Connection limits of the admin listener. A new connection always gets a slot: the one silent for longest is evicted, so that silent
// connections cannot lock out a probe.
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { endsOf } from '../accept/tls-handshakes.ts';

/** In total, and per address. */
const MAX_CONNECTIONS = 256;
const MAX_OF_ADDRESS = 64;
/** Inactivity timeout; it also ends connections whose client does not read. */
const SILENCE_MS = 5_000;

interface Slot {
  /** Below TLS, if there is any. */
  readonly socket: Socket;
  readonly ends: string;
  readonly address: string;
  isBusy: boolean;
}

/** Applies the limits to the server. */
export function limitConnections(server: Server): void {
  /** Oldest first; a served connection becomes the newest. */
  const slots = new Map<string, Slot>();
  /** Connections per address. */
  const counts = new Map<string, number>();

  const free = (slot: Slot) => {
    if (!slots.delete(slot.ends)) return;
    const left = (counts.get(slot.address) ?? 1) - 1;
    if (left === 0) counts.delete(slot.address);
    else counts.set(slot.address, left);
  };

  /** Closes the oldest idle connection, or else the oldest. */
  const evict = (isEvictable: (slot: Slot) => boolean) => {
    let oldest: Slot | undefined;
    for (const slot of slots.values()) {
      if (!isEvictable(slot)) continue;
      oldest ??= slot;
      if (slot.isBusy) continue;
      oldest = slot;
      break;
    }
    if (oldest === undefined) return;
    free(oldest);
    oldest.socket.destroy();
  };

  server.timeout = SILENCE_MS;
  server.on('connection', (socket) => {
    const address = socket.remoteAddress ?? '';
    if ((counts.get(address) ?? 0) >= MAX_OF_ADDRESS) evict((slot) => slot.address === address);
    else if (slots.size >= MAX_CONNECTIONS) evict(() => true);
    const slot = { socket, ends: endsOf(socket), address, isBusy: false };
    slots.set(slot.ends, slot);
    counts.set(address, (counts.get(address) ?? 0) + 1);
    socket.once('close', () => free(slot));
  });
  server.on('request', ({ socket }, response) => {
    const slot = slots.get(endsOf(socket));
    if (slot === undefined) return;
    slot.isBusy = true;
    response.once('close', () => {
      slot.isBusy = false;
      if (slots.delete(slot.ends)) slots.set(slot.ends, slot);
    });
  });
}
