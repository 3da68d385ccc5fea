// A port for tests of refused connections. Apart from `wait.ts`, whose importers need no sockets.
import { once } from 'node:events';
import { createServer } from 'node:net';

/** A TCP port of 127.0.0.1 where nothing listens: a connection to it is refused. */
export async function closedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  return address.port;
}
