// Work that is followed until it ends: when it is asked for, how many questions there are at once, and what is given up.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { UsageFollower } from '../../src/proxy/usage-follower.ts';
import { memberOf } from '../../src/wire/error-answer.ts';

interface Work {
  readonly id: string;
}

const SECOND = 1000;
let gauge: number | undefined;
let reasons: unknown[] = [];
let asked: number[] = [];
let givenUp: string[] = [];
let answer: ((work: Work) => Promise<boolean>) | undefined;

beforeEach(() => {
  vi.useFakeTimers();
  gauge = undefined;
  reasons = [];
  asked = [];
  givenUp = [];
  answer = undefined;
});
afterEach(() => {
  vi.useRealTimers();
});

function follower(): UsageFollower<Work> {
  const begin = performance.now();
  return new UsageFollower<Work>({
    kind: 'batch',
    pauses: () => ({ first: SECOND, longest: 10 * SECOND }),
    atOnce: 2,
    maxAge: 40 * SECOND,
    ask: async (work) => {
      asked.push(Math.round((performance.now() - begin) / SECOND));
      return answer === undefined ? false : answer(work);
    },
    onGivenUp: async ({ id }) => void givenUp.push(id),
    metrics: {
      followedUsage: {
        running: {
          set: (_labels: unknown, value: number) => {
            gauge = value;
          },
        },
        givenUp: { inc: (labels: unknown) => void reasons.push(memberOf(labels, 'reason')) },
      },
    },
  });
}

test('it is asked for with doubled pauses up to the longest, and given up at its age', async () => {
  const followed = follower();
  followed.follow({ id: 'a' });
  followed.follow({ id: 'a' });
  expect(gauge).toBe(1);
  await vi.advanceTimersByTimeAsync(100 * SECOND);
  expect(asked).toEqual([1, 3, 7, 15, 25, 35, 45]);
  expect([givenUp, reasons, gauge]).toEqual([['a'], ['late'], 0]);
});

test('an older one is given up earlier', async () => {
  follower().follow({ id: 'a' }, 30 * SECOND);
  await vi.advanceTimersByTimeAsync(100 * SECOND);
  expect(asked).toEqual([1, 3, 7, 15]);
  expect(givenUp).toEqual(['a']);
});

test('a question without an answer is asked again, and the last answer ends it', async () => {
  answer = async () => {
    if (asked.length < 3) throw new Error('no answer');
    return true;
  };
  const followed = follower();
  followed.follow({ id: 'a' });
  await vi.advanceTimersByTimeAsync(100 * SECOND);
  expect(asked).toEqual([1, 3, 7]);
  expect([givenUp, reasons, gauge, followed.find('a')]).toEqual([[], [], 0, undefined]);
});

test('what has ended meanwhile is not asked for, nor what was cleared', async () => {
  const followed = follower();
  for (const id of ['a', 'b']) followed.follow({ id });
  followed.end('a');
  expect(gauge).toBe(1);
  followed.clear();
  await vi.advanceTimersByTimeAsync(100 * SECOND);
  expect([asked, gauge]).toEqual([[], 0]);
});

test('a bounded number of questions is asked at once, and all are asked', async () => {
  const waiting: (() => void)[] = [];
  answer = () => new Promise((resolve) => waiting.push(() => resolve(true)));
  const followed = follower();
  for (const id of ['a', 'b', 'c', 'd', 'e']) followed.follow({ id });
  await vi.advanceTimersByTimeAsync(20 * SECOND);
  expect(waiting).toHaveLength(2);
  for (let index = 0; index < 5; index += 1) {
    waiting[index]?.();
    await vi.advanceTimersByTimeAsync(0);
  }
  expect([waiting.length, gauge]).toEqual([5, 0]);
});

test('the oldest of more than 10,000 is no longer followed', () => {
  const followed = follower();
  for (let index = 0; index < 10_001; index += 1) followed.follow({ id: `w${index}` });
  expect([followed.isFull, gauge, reasons]).toEqual([true, 10_000, ['full']]);
  expect([followed.find('w0'), followed.find('w1')]).toEqual([undefined, { id: 'w1' }]);
});
