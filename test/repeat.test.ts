// Work that repeats: one time after the other, until it is stopped.
import { expect, test } from 'vitest';
import { Repeat } from '../src/repeat.ts';
import { until } from './helpers/wait.ts';

test('begins after the pause that the work returned, never while it runs', async () => {
  const began: number[] = [];
  let running = 0;
  let most = 0;
  const repeat = new Repeat(async () => {
    began.push(performance.now());
    running += 1;
    most = Math.max(most, running);
    await new Promise((done) => setTimeout(done, 20));
    running -= 1;
    return 30;
  });
  repeat.start(0);
  await until(() => began.length === 3, 'the third time');
  await repeat.stop();
  const [first = 0, second = 0] = began;
  expect([most, running]).toEqual([1, 0]);
  expect(second - first).toBeGreaterThan(45);
});

test('a stop waits for the work under way, and nothing begins after it', async () => {
  let began = 0;
  let finish = (_ms: number) => {};
  const repeat = new Repeat(() => {
    began += 1;
    return new Promise<number>((resolve) => {
      finish = resolve;
    });
  });
  repeat.start(0);
  await until(() => began === 1, 'the first time');
  let isStopped = false;
  const stopped = repeat.stop().then(() => {
    isStopped = true;
  });
  await new Promise((done) => setImmediate(done));
  expect([isStopped, repeat.isStopped]).toEqual([false, true]);
  finish(0);
  await stopped;
  repeat.start(0);
  await new Promise((done) => setTimeout(done, 20));
  expect(began).toBe(1);
});
