import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { batchWrite, flushWrites } from '../../src/http/exchange/write-batch.ts';

test('writes run at the end of the tick, after nextTick and promises, in order', async () => {
  const order: string[] = [];
  setImmediate(() => {
    batchWrite(() => order.push('first'));
    batchWrite(() => order.push('second'));
    process.nextTick(() => order.push('tick'));
    queueMicrotask(() => order.push('promise'));
    order.push('turn');
  });
  await nextTurn();
  await nextTurn();
  expect(order).toEqual(['turn', 'tick', 'promise', 'first', 'second']);
});

test('a write that is added by a write runs in the next tick', async () => {
  const order: string[] = [];
  batchWrite(() => {
    order.push('outer');
    batchWrite(() => order.push('inner'));
  });
  await nextTurn();
  await nextTurn();
  expect(order).toEqual(['outer', 'inner']);
});

test('writes that were flushed early do not run again', async () => {
  let written = 0;
  batchWrite(() => {
    written += 1;
  });
  flushWrites();
  expect(written).toBe(1);
  await nextTurn();
  expect(written).toBe(1);
});

test('a write that throws does not stop the others, and is an uncaught exception', async () => {
  const faults: unknown[] = [];
  const others = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', (error) => faults.push(error));
  onTestFinished(() => {
    process.removeAllListeners('uncaughtException');
    for (const listener of others) process.on('uncaughtException', listener);
  });
  const order: string[] = [];
  const fault = new Error('a fault');
  batchWrite(() => order.push('before'));
  batchWrite(() => {
    throw fault;
  });
  batchWrite(() => order.push('behind'));
  await nextTurn();
  await nextTurn();
  expect(order).toEqual(['before', 'behind']);
  expect(faults).toEqual([fault]);
});
