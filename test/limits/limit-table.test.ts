// The table of limits, its documentation, and what follows from limits and counts, in the same order.
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { eachLimit, LIMITS, limitTexts, PLAIN_LIMITS, pickLimits } from '../../src/config/limit-table.ts';
import { activeLimits } from '../../src/limits/active-limits.ts';
import { utcDateAt } from '../../src/limits/calendar.ts';
import { NO_AMOUNTS } from '../../src/limits/limiter.ts';
import { makeScopes } from '../../src/limits/scope.ts';
import {
  capsOf,
  isFarFromLimits,
  rejectionOf,
  sumOf,
  UsageStates,
  usageBefore,
} from '../../src/limits/verdict.ts';
import { holderScope } from './of-holder.ts';

/** Noon of the last day of a month. */
const NOON = Date.UTC(2030, 0, 31, 12);
const HALF_DAY = 43_200_000;

const STARTS = {
  minute: "when the window ends; the holder's first request opens it",
  day: 'at midnight UTC',
  month: 'on the first of the month, UTC',
  concurrent: 'as each request ends',
};

test('docs/limits.md has exactly one row for each limit', () => {
  const page = readFileSync(new URL('../../docs/limits.md', import.meta.url), 'utf8');
  const [, after = ''] = page.split('|---|---|---|\n', 2);
  const rows = after.slice(0, after.indexOf('\n\n')).split('\n');
  expect(rows).toEqual(
    PLAIN_LIMITS.map(({ name, many, window }) => `| \`${name}\` | ${many} | ${STARTS[window]} |`),
  );
});

test('limits have texts in the order of the table, singular and plural', () => {
  const texts = limitTexts({ concurrency: 1, tokens_per_month: 20_000_000, requests_per_minute: 2 });
  expect(texts.map(({ max, text }) => `${max} ${text}`)).toEqual([
    '2 requests a minute',
    '20000000 tokens a month',
    '1 request at a time',
  ]);
  expect(LIMITS.map(({ rate }) => rate)).toContain('requests at once');
});

test('the limits of a tier are resolved to the data of the limiters', () => {
  const all = eachLimit(({ index }) => 100 - index);
  expect(activeLimits(all)).toMatchObject({
    needTotals: true,
    maxCost: Math.min(all.cost_per_day, all.cost_per_month),
    list: Object.values(all).map((max) => ({ max })),
  });
  expect(activeLimits(all).maxTokens).toBe(
    Math.min(...Object.values(pickLimits(all, ({ counts }) => counts === 'tokens'))),
  );
  expect(activeLimits({ concurrency: 3 })).toMatchObject({
    needTotals: false,
    maxTokens: Number.POSITIVE_INFINITY,
    list: [{ max: 3 }],
  });
});

describe('what follows from limits and counts:', () => {
  type Limits = Parameters<typeof holderScope>[1];
  const amounts = (tokens: number, cost = 0) => ({ tokens, cost });
  const usageOf = (used: NonNullable<Limits>, windowLeftMs = 7000) => ({
    wallMs: NOON,
    date: utcDateAt(NOON),
    windowLeftMs,
    counts: LIMITS.map(({ name }) => used[name] ?? 0),
  });
  const scopesOf = (...limits: [Limits, ...Limits[]]) => {
    const [first, ...others] = limits;
    return makeScopes('a', [
      holderScope('0', first),
      ...others.map((each, at) => holderScope(`${at + 1}`, each)),
    ]);
  };
  const verdict = (
    limits: Limits,
    used: NonNullable<Limits>,
    of = amounts(10, 10),
    {
      caps,
      windowLeftMs,
      hasSlot = false,
    }: { caps?: number[]; windowLeftMs?: number; hasSlot?: boolean } = {},
  ) => rejectionOf(scopesOf(limits), [{ usage: usageOf(used, windowLeftMs), hasSlot, caps }], of, () => []);

  test.each([
    ['requests_per_minute', 3, 2, 7000],
    ['tokens_per_minute', 20, 10, 7000],
    ['requests_per_day', 3, 2, HALF_DAY],
    ['tokens_per_day', 20, 10, HALF_DAY],
    ['tokens_per_month', 20, 10, HALF_DAY],
    ['concurrency', 3, 2, 1000],
    ['cost_per_day', 20, 10, HALF_DAY],
    ['cost_per_month', 20, 10, HALF_DAY],
  ] as const)(
    'a request fits in %s of %i with %i used, and with one more it waits',
    (limit, max, used, wait) => {
      expect(verdict({ [limit]: max }, { [limit]: used })).toBeUndefined();
      expect(verdict({ [limit]: max }, { [limit]: used + 1 })).toMatchObject({
        limit,
        reason: 'spent',
        retryAfterMs: wait,
        state: { limit: 0, used: 0, remaining: 0, resetMs: 0 },
      });
    },
  );

  test('the longest wait counts, the first of equal ones, and nothing fits that is too large', () => {
    const limits = { requests_per_minute: 1, tokens_per_day: 10, tokens_per_month: 10, concurrency: 1 };
    expect(verdict(limits, { ...limits })).toMatchObject({ limit: 'tokens_per_day', retryAfterMs: HALF_DAY });
    expect(verdict(limits, {}, amounts(10))).toBeUndefined();
    expect(verdict(limits, {}, amounts(11))).toMatchObject({ reason: 'too_large', retryAfterMs: undefined });
    const states = [limits, limits].map((each) => new UsageStates(() => usageOf(each), activeLimits(each)));
    const both = [{ ...limits, tokens_per_day: 99, tokens_per_month: 99 }, limits] as const;
    const checks = both.map(() => ({ usage: usageOf(limits), hasSlot: false }));
    expect(rejectionOf(scopesOf(...both), checks, amounts(1), () => states)).toMatchObject({
      scope: { id: '1' },
      state: { limit: 10, used: 10, remaining: 0, resetMs: HALF_DAY },
      states,
    });
  });

  test('a request with a slot needs amounts alone, and one without cost no budget', () => {
    const limits = { requests_per_day: 1, concurrency: 1, cost_per_day: 5, tokens_per_day: 9 };
    expect(verdict(limits, { ...limits, tokens_per_day: 0 }, amounts(9), { hasSlot: true })).toBeUndefined();
    expect(verdict(limits, limits, amounts(1), { hasSlot: true })).toMatchObject({ limit: 'tokens_per_day' });
    expect(verdict(limits, { cost_per_day: 6 }, amounts(9))).toBeUndefined();
  });

  test('where a share of the rest may be used, it rejects, also before a window is open', () => {
    const limits = { requests_per_minute: 100, tokens_per_day: 50 };
    const caps = capsOf(
      usageOf({ requests_per_minute: 20, tokens_per_day: 60 }),
      activeLimits(limits),
      (left) => left / 4,
    );
    const expected: NonNullable<Limits> = { requests_per_minute: 40, tokens_per_day: 60 };
    expect(caps).toEqual(LIMITS.map(({ name }) => expected[name] ?? 0));
    expect(capsOf(undefined, activeLimits({ concurrency: 8 }), (left) => left / 4)).toEqual(
      LIMITS.map(({ name }) => (name === 'concurrency' ? 2 : 0)),
    );
    expect(
      verdict({ requests_per_minute: 100 }, { requests_per_minute: 39 }, NO_AMOUNTS, { caps }),
    ).toBeUndefined();
    expect(
      verdict({ requests_per_minute: 100 }, { requests_per_minute: 40 }, NO_AMOUNTS, {
        caps,
        windowLeftMs: 0,
      }),
    ).toMatchObject({ reason: 'spent', retryAfterMs: 1000 });
  });

  test('far from the limits are 32 more requests in half of each', () => {
    const limits = { requests_per_minute: 128, tokens_per_day: 1000, cost_per_day: 10 };
    const far = (used: NonNullable<Limits>, of = amounts(10)) =>
      isFarFromLimits(scopesOf({}, limits), [usageOf({}), usageOf(used)], of);
    const used = { requests_per_minute: 32, tokens_per_day: 180, cost_per_day: 5 };
    expect([far(used), far({ ...used, requests_per_minute: 33 })]).toEqual([true, false]);
    expect([far({ ...used, tokens_per_day: 181 }), far({ ...used, cost_per_day: 6 })]).toEqual([
      false,
      false,
    ]);
  });

  test('what was used before a request leaves it out, and the window that it opened', () => {
    const all = eachLimit(({ counts }) => (counts === 'tokens' ? 9 : counts === 'cost' ? 4 : 2));
    expect(usageBefore(usageOf(all), amounts(5, 6))).toEqual(
      usageOf(eachLimit(({ counts }) => (counts === 'tokens' ? 4 : counts === 'cost' ? 0 : 1))),
    );
    expect(usageBefore(usageOf({ requests_per_minute: 1, tokens_per_day: 9 }), amounts(5))).toEqual(
      usageOf({ tokens_per_day: 4 }, 0),
    );
  });

  test('what two have counted is added up, in the longer window', () => {
    const [one, other] = [
      usageOf({ tokens_per_day: 3 }, 5),
      usageOf({ tokens_per_day: 4, concurrency: 1 }, 6),
    ];
    expect(sumOf(one, other)).toEqual(usageOf({ tokens_per_day: 7, concurrency: 1 }, 6));
    expect(sumOf(other, one)).toEqual(usageOf({ tokens_per_day: 7, concurrency: 1 }, 6));
  });

  test('states say what is left, and read the usage once', () => {
    const limits = { requests_per_minute: 5, tokens_per_month: 50, concurrency: 2 };
    let reads = 0;
    const states = new UsageStates(() => {
      reads += 1;
      return usageOf({ requests_per_minute: 6, tokens_per_month: 20, concurrency: 1 });
    }, activeLimits(limits));
    expect([
      states.of('requests_per_minute'),
      states.of('tokens_per_month'),
      states.of('concurrency'),
    ]).toEqual([
      { limit: 5, used: 6, remaining: 0, resetMs: 7000 },
      { limit: 50, used: 20, remaining: 30, resetMs: HALF_DAY },
      { limit: 2, used: 1, remaining: 1, resetMs: 0 },
    ]);
    expect([states.of('cost_per_day'), states.date, reads]).toEqual([undefined, utcDateAt(NOON), 1]);
    expect(states.active.list.map((each) => states.used(each))).toEqual([6, 20, 1]);
  });
});
