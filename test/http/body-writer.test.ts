// How a large body is written: in turns, at the pace of who reads it, and holding its memory until the system has taken it.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import { BodyPieces } from '../../src/http/pieces/body-pieces.ts';
import { BodyWriter } from '../../src/http/pieces/body-writer.ts';
import { BufferPool } from '../../src/http/pieces/buffer-pool.ts';

const MIB = 1024 * 1024;

interface Line extends AsyncDisposable {
  /** The side that writes. */
  readonly near: Socket;
  readonly far: Socket;
}

async function line(): Promise<Line> {
  const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address: AddressInfo | string | null = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const near = connect(address.port, '127.0.0.1').on('error', () => {});
  const [far]: Socket[] = await once(server, 'connection');
  if (far === undefined) throw new Error('no connection');
  far.on('error', () => {});
  return {
    near,
    far,
    async [Symbol.asyncDispose]() {
      near.destroy();
      far.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function fullBody(bytes: number) {
  const pool = new BufferPool();
  const slab = pool.take(bytes);
  for (let at = 0; at + 4 <= bytes; at += 4) slab.bytes.writeInt32LE(at, at);
  return { pool, slab, body: new BodyPieces([slab.bytes.subarray(0, bytes)]) };
}

function listen() {
  return { onStall: vi.fn(), onWritten: vi.fn(), onSourceError: vi.fn() };
}

test('a body is written byte for byte, at most one piece per tick, and released after the last one', async () => {
  await using between = await line();
  const { near, far } = between;
  const { pool, slab, body } = fullBody(4 * MIB);
  let turn = 0;
  let isOver = false;
  const tick = () => {
    turn += 1;
    if (!isOver) setImmediate(tick);
  };
  setImmediate(tick);
  const turns: number[] = [];
  const write = near.write.bind(near);
  vi.spyOn(near, 'write').mockImplementation((...args: Parameters<typeof write>) => {
    turns.push(turn);
    return write(...args);
  });
  const events = listen();
  const expected = Buffer.from(slab.bytes.subarray(0, 4 * MIB));
  const writer = new BodyWriter(near, body, events);
  slab.release();
  const pieces: Buffer[] = [];
  far.on('data', (piece: Buffer) => pieces.push(piece)).resume();
  // Polling the bytes themselves would format megabytes for each failed expectation.
  await vi.waitFor(() => expect(far.bytesRead).toBe(4 * MIB), { timeout: 20_000 });
  isOver = true;
  expect(Buffer.concat(pieces).equals(expected)).toBe(true);
  await vi.waitFor(() => expect(events.onWritten).toHaveBeenCalledOnce());
  expect(writer.isComplete).toBe(true);
  await vi.waitFor(() => expect(pool.retained).toBe(4 * MIB));
  expect(turns.length).toBeGreaterThanOrEqual(32);
  expect(new Set(turns).size).toBe(turns.length);
});

test.each(['cancelled', 'cut'])(
  'the memory of one that is %s is held while the system has some of it',
  async (how) => {
    await using between = await line();
    const { near, far } = between;
    const { pool, slab, body } = fullBody(32 * MIB);
    const events = listen();
    const writer = new BodyWriter(near, body, events);
    slab.release();
    // Nobody reads: after some pieces one does not go out any more.
    await vi.waitFor(() => expect(near.writableLength).toBeGreaterThan(0), { timeout: 20_000 });
    await vi.waitFor(
      async () => {
        const { bytesWritten } = near;
        for (let turns = 0; turns < 50; turns++) await new Promise((resolve) => setImmediate(resolve));
        expect(near.bytesWritten).toBe(bytesWritten);
      },
      { timeout: 20_000 },
    );
    expect(pool.retained).toBe(0);
    if (how === 'cancelled') {
      writer.cancel();
      expect(writer.isComplete).toBe(false);
      for (let turns = 0; turns < 50; turns++) await new Promise((resolve) => setImmediate(resolve));
      // A piece is still with the system: who reads it must get it.
      expect(near.writableLength).toBeGreaterThan(0);
      expect(pool.retained).toBe(0);
      near.destroy();
    } else {
      far.resetAndDestroy();
      await new Promise((resolve) => near.once('close', resolve));
      writer.cancel();
    }
    await vi.waitFor(() => expect(pool.retained).toBe(32 * MIB), { timeout: 20_000 });
    expect(events.onWritten).not.toHaveBeenCalled();
  },
);
