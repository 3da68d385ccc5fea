// How long the chunk with the finish reason is held, and how much behind it. What goes into it is in relay-usage-chunks.test.ts.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { flushWrites } from '../../src/http/exchange/write-batch.ts';
import { FinishHold } from '../../src/proxy/answer/stream/finish-hold.ts';

const FRAME = Buffer.from('data: {"choices":[]}\n\n');

let written: string;
const client = {
  isOver: false,
  isPaused: false,
  passAll: (pieces: readonly Buffer[]) => {
    written += Buffer.concat(pieces).toString();
  },
};

beforeEach(() => {
  vi.useFakeTimers();
  written = '';
  Object.assign(client, { isOver: false, isPaused: false });
});
afterEach(() => {
  // A fake `setImmediate` that has not run is dropped with the fake clock.
  flushWrites();
  vi.useRealTimers();
});

function begin(): FinishHold {
  const hold = new FinishHold(client);
  hold.begin(FRAME);
  return hold;
}

test('the chunk is written after a moment, with the comments behind it', () => {
  const hold = begin();
  hold.passAll([Buffer.from(': a\n\n')]);
  vi.advanceTimersByTime(90);
  expect([written, hold.isHolding]).toEqual(['', true]);
  vi.advanceTimersByTime(60);
  expect([written, hold.isHolding]).toEqual([`${FRAME}: a\n\n`, false]);
  expect(vi.getTimerCount()).toBe(0);
});

test('the time in which the client does not read does not count, because the upstream is not read then', () => {
  client.isPaused = true;
  begin();
  vi.advanceTimersByTime(10_000);
  expect(written).toBe('');
  client.isPaused = false;
  vi.advanceTimersByTime(300);
  expect(written).toBe(FRAME.toString());
});

test('too many comments end the hold', () => {
  const hold = begin();
  const comment = Buffer.from(`: ${'x'.repeat(40_000)}\n\n`);
  hold.passAll([comment]);
  expect(hold.isHolding).toBe(true);
  hold.passAll([comment]);
  expect([written, hold.isHolding]).toEqual([`${FRAME}${comment}${comment}`, false]);
});

test('nothing is written to a client that has left, and no timer is left', () => {
  client.isPaused = true;
  const hold = begin();
  client.isOver = true;
  vi.advanceTimersByTime(1_000);
  hold.release();
  expect([written, vi.getTimerCount()]).toEqual(['', 0]);
});
