import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { atEndOfTurn, holdForTurn } from '../../src/http/turn.ts';

test('what is to be written waits for the end of the turn, behind ticks and promises, and keeps its order', async () => {
  const order: string[] = [];
  setImmediate(() => {
    atEndOfTurn(() => order.push('first'));
    atEndOfTurn(() => order.push('second'));
    process.nextTick(() => order.push('tick'));
    queueMicrotask(() => order.push('promise'));
    order.push('turn');
  });
  await nextTurn();
  await nextTurn();
  expect(order).toEqual(['turn', 'tick', 'promise', 'first', 'second']);
});

test('what a write gives to be written comes in the next turn, and is not lost', async () => {
  const order: string[] = [];
  atEndOfTurn(() => {
    order.push('outer');
    atEndOfTurn(() => order.push('inner'));
  });
  await nextTurn();
  await nextTurn();
  expect(order).toEqual(['outer', 'inner']);
});

async function pair(): Promise<[near: Socket, far: Socket]> {
  const server = createServer();
  onTestFinished(() => void server.close());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const near = connect(address.port, '127.0.0.1');
  const [[far]] = await Promise.all([once(server, 'connection'), once(near, 'connect')]);
  onTestFinished(() => {
    near.destroy();
    far.destroy();
  });
  return [near, far];
}

test('a held socket sends nothing within the turn, and all of it in order at its end', async () => {
  const [near, far] = await pair();
  const got: Buffer[] = [];
  far.on('data', (bytes: Buffer) => got.push(bytes));
  setImmediate(() => {
    holdForTurn(near);
    near.write('one ');
    holdForTurn(near);
    near.write('two ');
    expect(near.writableLength).toBe(8);
    near.write('three');
  });
  while (Buffer.concat(got).length < 13) await nextTurn();
  expect(Buffer.concat(got).toString()).toBe('one two three');
  expect(near.writableCorked).toBe(0);
});

test('a socket that is destroyed or ended while it is held does no harm to the others', async () => {
  const [near, far] = await pair();
  const [other, otherFar] = await pair();
  const gone = once(near, 'close');
  holdForTurn(near);
  near.write('never');
  near.destroy();
  holdForTurn(other);
  other.end('whole');
  const pieces: Buffer[] = [];
  otherFar.on('data', (bytes: Buffer) => pieces.push(bytes));
  await Promise.all([gone, once(otherFar, 'end')]);
  expect(Buffer.concat(pieces).toString()).toBe('whole');
  far.resume();
});
