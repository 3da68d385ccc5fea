// A server that closes a connection in the same packet in which it accepts it, as during a shutdown.
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { PostgresPool } from '../../src/store/postgres/postgres-pool.ts';

function message(type: string, body: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(type, 'latin1');
  head.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
}

const WELCOME = [message('R', Buffer.alloc(4)), message('Z', Buffer.from('I'))];
const FAREWELL = message('E', Buffer.from('SFATAL\0C57P01\0Mterminating connection\0\0'));

test('fails the call and not the process', async () => {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
    socket.once('data', () => socket.end(Buffer.concat([...WELCOME, FAREWELL])));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  const pool = new PostgresPool(
    { host: '127.0.0.1', port: address.port, user: 'u', database: 'd', password: 'p' },
    { connections: 1, maxWaiting: 1, connectMs: 5000, callMs: 5000, statementMs: 5000, lockMs: 5000 },
  );
  try {
    for (let call = 0; call < 3; call += 1) {
      const ask = async () => {
        const lease = await pool.acquire();
        try {
          return await lease.command('select 1');
        } finally {
          lease.release();
        }
      };
      await expect(ask()).rejects.toThrow();
    }
  } finally {
    await pool.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  }
  expect(sockets.length).toBeGreaterThanOrEqual(3);
});
