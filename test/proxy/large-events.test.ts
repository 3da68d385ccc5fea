// The turns of large events that clients of one holder send over WebSockets: four at once, in order, and none for a client that stops.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { LargeEvents, LargeEventTurn } from '../../src/realtime/responses/large-events.ts';

const LARGE = 100_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function setting(count: number) {
  const events = new LargeEvents();
  return Array.from({ length: count }, (_, index) => {
    const client = { paused: false, isPaused: () => client.paused };
    const seen: string[] = [];
    const turn = new LargeEventTurn((onTurn) => events.enter(`holder ${index % 2}`, onTurn), client, {
      onTurn: () => seen.push('turn'),
      onSilence: () => seen.push('silence'),
    });
    return { client, seen, turn };
  });
}

test('the turns of a holder begin in their order, whichever of them end', () => {
  const all = setting(14);
  for (const { turn } of all) turn.watch(LARGE);
  const mine = all.filter((_, index) => index % 2 === 0);
  const held = () => mine.map(({ turn }) => turn.isHeld);
  expect(held()).toEqual([false, false, false, false, true, true, true]);
  // One that waits gives up, and one that has begun is complete.
  mine[4]?.turn.end();
  mine[1]?.turn.watch(0);
  expect(held()).toEqual([false, false, false, false, false, false, true]);
  for (const { turn } of mine) turn.end();
  expect(mine.map(({ seen }) => seen.length)).toEqual([1, 1, 1, 1, 0, 1, 1]);
  expect(all.filter(({ turn }) => turn.isHeld)).toHaveLength(3);
});

test('a client that stops within an event for 30 s is reported, unless it is not read', async () => {
  const [sending, stopped, unread] = setting(3);
  for (const each of [sending, stopped, unread]) each?.turn.watch(LARGE);
  if (unread !== undefined) unread.client.paused = true;
  for (let seconds = 0; seconds < 60; seconds += 10) {
    await vi.advanceTimersByTimeAsync(10_000);
    sending?.turn.watch(LARGE + seconds);
  }
  expect([sending, stopped, unread].map((each) => each?.seen)).toEqual([
    ['turn'],
    ['turn', 'silence'],
    ['turn'],
  ]);
  if (unread !== undefined) unread.client.paused = false;
  stopped?.turn.end();
  sending?.turn.end();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(unread?.seen).toEqual(['turn', 'silence']);
  unread?.turn.end();
  expect(vi.getTimerCount()).toBe(0);
});
