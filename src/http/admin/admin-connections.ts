// The places of the admin listener. A new connection always gets one: the connection that has been silent for longest makes room, so that
// no number of silent connections keeps a probe out.
import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/** Over all addresses, and of one. */
const MAX_CONNECTIONS = 256;
const MAX_OF_ADDRESS = 64;
/** Of a connection on which no byte moves; that also ends one whose client does not read. */
const SILENCE_MS = 5_000;

interface Place {
  readonly socket: Socket;
  readonly address: string;
  isBusy: boolean;
}

/** Gives connections of the server their places. */
export function limitConnections(server: Server): void {
  /** Oldest first; an answered one becomes the newest. */
  const places = new Map<Socket, Place>();
  /** How many each address has. */
  const counts = new Map<string, number>();

  const free = (place: Place) => {
    if (!places.delete(place.socket)) return;
    const left = (counts.get(place.address) ?? 1) - 1;
    if (left === 0) counts.delete(place.address);
    else counts.set(place.address, left);
  };

  /** The oldest that is silent, or else the oldest. */
  const evict = (isMeant: (place: Place) => boolean) => {
    let oldest: Place | undefined;
    for (const place of places.values()) {
      if (!isMeant(place)) continue;
      oldest ??= place;
      if (place.isBusy) continue;
      oldest = place;
      break;
    }
    if (oldest === undefined) return;
    free(oldest);
    oldest.socket.destroy();
  };

  server.timeout = SILENCE_MS;
  server.on('connection', (socket) => {
    const address = socket.remoteAddress ?? '';
    if ((counts.get(address) ?? 0) >= MAX_OF_ADDRESS) evict((place) => place.address === address);
    else if (places.size >= MAX_CONNECTIONS) evict(() => true);
    const place = { socket, address, isBusy: false };
    places.set(socket, place);
    counts.set(address, (counts.get(address) ?? 0) + 1);
    socket.once('close', () => free(place));
  });
  server.on('request', ({ socket }, response) => {
    const place = places.get(socket);
    if (place === undefined) return;
    place.isBusy = true;
    response.once('close', () => {
      place.isBusy = false;
      if (places.delete(socket)) places.set(socket, place);
    });
  });
}
