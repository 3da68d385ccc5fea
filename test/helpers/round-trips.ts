// Counts what a PostgreSQL client waits for: the server says "ready for query" once for everything that was sent together.
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

export interface RoundTrips extends AsyncDisposable {
  /** Where the client connects, on 127.0.0.1. */
  readonly port: number;
  /** Answers that the client has waited for since the last call. */
  take(): number;
}

const READY_FOR_QUERY = 'Z'.charCodeAt(0);

/** A way to a server at `target` of 127.0.0.1, without TLS. */
export async function countRoundTrips(target: number): Promise<RoundTrips> {
  const sockets = new Set<Socket>();
  let count = 0;
  const listener = createServer((client) => {
    const server = connect(target, '127.0.0.1');
    let waiting = Buffer.alloc(0);
    server.on('data', (bytes: Buffer) => {
      // Each message: a byte for its kind, then its length without that byte.
      waiting = Buffer.concat([waiting, bytes]);
      while (waiting.length >= 5 && waiting.length > waiting.readUInt32BE(1)) {
        if (waiting[0] === READY_FOR_QUERY) count += 1;
        waiting = waiting.subarray(1 + waiting.readUInt32BE(1));
      }
    });
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => {});
      from.once('close', () => {
        sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  return {
    port: address.port,
    take: () => {
      const taken = count;
      count = 0;
      return taken;
    },
    async [Symbol.asyncDispose]() {
      listener.close();
      for (const socket of sockets) socket.destroy();
      await once(listener, 'close');
    },
  };
}
