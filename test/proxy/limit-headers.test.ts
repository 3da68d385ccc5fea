import fc from 'fast-check';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { LimitName } from '../../src/config/limit-table.ts';
import type { BudgetedLimits } from '../../src/config/terms.ts';
import { retryHeaders } from '../../src/http/exchange/response-writer.ts';
import { utcDateAt } from '../../src/limits/calendar.ts';
import type { LimitState, Rejected } from '../../src/limits/limiter.ts';
import { makeScope, makeScopes } from '../../src/limits/scope.ts';
import { budgetHeaders } from '../../src/proxy/reservation/budget-headers.ts';
import {
  goDuration,
  limitHeaders,
  rejectionError,
  rejectionHeaders,
} from '../../src/proxy/reservation/limit-headers.ts';
import { rejectionBy, reportLimits } from '../../src/proxy/reservation/limit-report.ts';
import { holderScope } from '../limits/of-holder.ts';
import { statesOf } from '../limits/states.ts';

const state = (limit: number, remaining: number, resetMs: number): LimitState => ({
  limit,
  used: limit - remaining,
  remaining,
  resetMs,
});

const HOLDER = holderScope('holder');
const TEAM = makeScope({ kind: 'team', id: 'team-77' }, {});
const KEY = makeScope({ kind: 'key', lineage: 'abcd1234' }, {});
const MODEL = makeScope({ kind: 'model', holderId: 'holder', model: 'gpt-secret' }, {});

function refused(limit: LimitName, retryAfterMs: number | undefined, rest: Partial<Rejected> = {}): Rejected {
  const own = state(10, 0, 90_000);
  return {
    kind: 'refused',
    scope: HOLDER,
    limit,
    reason: 'spent',
    retryAfterMs,
    state: own,
    date: utcDateAt(0),
    states: [statesOf({ [limit]: own })],
    ...rest,
  };
}

describe('a duration as Go writes it', () => {
  test.each([
    [0, '0s'],
    [0.2, '1ms'],
    [2, '2ms'],
    [999, '999ms'],
    [1000, '1s'],
    [8640, '8.64s'],
    [59_999, '59.999s'],
    [60_000, '1m0s'],
    [83_000, '1m23s'],
    [360_000, '6m0s'],
    [3_600_000, '1h0m0s'],
    [86_385_000, '23h59m45s'],
    [2_678_400_000, '744h0m0s'],
    [-5, '0s'],
  ])('%d ms is %s', (ms, text) => expect(goDuration(ms)).toBe(text));

  test('says the same time again, whatever it is', () => {
    const units: Record<string, number> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 3_000_000_000 }), (ms) => {
        const parts = [...goDuration(ms).matchAll(/(\d+(?:\.\d+)?)(ms|h|m|s)/g)];
        const sum = parts.reduce(
          (total, [, digits, unit = '']) => total + Number(digits) * (units[unit] ?? Number.NaN),
          0,
        );
        expect(Math.round(sum)).toBe(ms);
      }),
    );
  });
});

describe('the headers', () => {
  test('are those of the limit that is nearest to refusing, in each family', () => {
    expect(
      limitHeaders([
        statesOf({
          requests_per_minute: state(20, 10, 30_000),
          requests_per_day: state(500, 20, 3_600_000),
          tokens_per_minute: state(1000, 10, 30_000),
          tokens_per_day: state(5000, 60, 3_600_000),
          tokens_per_month: state(10_000, 5000, 86_400_000),
          concurrency: state(2, 0, 0),
          cost_per_day: state(100, 0, 5),
        }),
      ]),
    ).toEqual({
      'x-ratelimit-limit-requests': '500',
      'x-ratelimit-remaining-requests': '20',
      'x-ratelimit-reset-requests': '1h0m0s',
      'x-ratelimit-limit-tokens': '1000',
      'x-ratelimit-remaining-tokens': '10',
      'x-ratelimit-reset-tokens': '30s',
    });
  });

  test('are those of the most restrictive limit of all scopes, in each family', () => {
    const headers = limitHeaders([
      statesOf({ requests_per_minute: state(20, 10, 30_000), tokens_per_minute: state(1000, 10, 30_000) }),
      statesOf({}),
      statesOf({
        requests_per_day: state(500, 20, 3_600_000),
        tokens_per_month: state(10_000, 5000, 86_400_000),
      }),
    ]);
    expect(headers).toMatchObject({
      'x-ratelimit-limit-requests': '500',
      'x-ratelimit-limit-tokens': '1000',
    });
  });

  test.each([
    ['the first of those that are reached', 20, 0, '20'],
    ['one that is reached before one that is nearly', 20, 1, '20'],
  ])('are those of %s', (_what, used, left, limit) => {
    const headers = limitHeaders([
      statesOf({ requests_per_minute: state(20, 20 - used, 5), requests_per_day: state(100, left, 5) }),
    ]);
    expect(headers['x-ratelimit-limit-requests']).toBe(limit);
  });

  test("for Anthropic's clients have its names, and the time of the reset in whole seconds", () => {
    vi.useFakeTimers({ now: Date.UTC(2030, 0, 1, 0, 0, 0, 500) });
    onTestFinished(() => void vi.useRealTimers());
    const states = [
      statesOf({ requests_per_minute: state(20, 10, 30_000), tokens_per_day: state(1000, 400, -1000) }),
    ];
    expect(limitHeaders(states, {}, true)).toEqual({
      'anthropic-ratelimit-requests-limit': '20',
      'anthropic-ratelimit-requests-remaining': '10',
      'anthropic-ratelimit-requests-reset': '2030-01-01T00:00:31Z',
      'anthropic-ratelimit-tokens-limit': '1000',
      'anthropic-ratelimit-tokens-remaining': '400',
      'anthropic-ratelimit-tokens-reset': '2030-01-01T00:00:01Z',
    });
  });

  test('of a refusal are those of the scope that refused', () => {
    const own = state(500, 0, 3_600_000);
    const headers = rejectionHeaders(
      refused('requests_per_day', undefined, {
        scope: TEAM,
        state: own,
        states: [{ requests_per_day: state(20, 0, 3_600_000) }, { requests_per_day: own }].map(statesOf),
      }),
    );
    expect(headers['x-ratelimit-limit-requests']).toBe('500');
  });

  test('of a tier without limits are none', () => {
    expect(limitHeaders([statesOf({})])).toEqual({});
    expect(
      limitHeaders([statesOf({ concurrency: state(2, 1, 0), cost_per_month: state(100, 0, 5) })]),
    ).toEqual({});
  });

  test('of a refusal are those of the limit that refused', () => {
    const headers = rejectionHeaders(
      refused('requests_per_minute', 1000, {
        state: state(20, 1, 1000),
        states: [
          statesOf({ requests_per_minute: state(20, 1, 1000), requests_per_day: state(100, 0, 5000) }),
        ],
      }),
    );
    expect(headers['x-ratelimit-limit-requests']).toBe('20');
  });
});

describe('the error', () => {
  test.each([
    ['requests_per_minute', 1, { 'retry-after': '1', 'retry-after-ms': '1' }],
    ['requests_per_minute', 30_001, { 'retry-after': '31', 'retry-after-ms': '30001' }],
    // The longest that openai-node obeys; no window is longer.
    ['tokens_per_minute', 59_999, { 'retry-after': '60', 'retry-after-ms': '59999' }],
    ['tokens_per_minute', 59_000.2, { 'retry-after': '60', 'retry-after-ms': '59001' }],
    ['requests_per_day', 60_000, { 'x-should-retry': 'false' }],
    ['requests_per_day', 59_000, { 'retry-after': '59', 'retry-after-ms': '59000' }],
    ['requests_per_day', 3_600_000, { 'x-should-retry': 'false' }],
    ['tokens_per_day', 3_600_000, { 'x-should-retry': 'false' }],
    ['tokens_per_day', 500, { 'retry-after': '1', 'retry-after-ms': '500' }],
    ['concurrency', 1000, { 'retry-after': '1', 'retry-after-ms': '1000' }],
  ] as const)('of %s in %d ms', (limit, ms, headers) => {
    const error = rejectionError(refused(limit, ms), 5);
    expect([error.status, error.code, error.type]).toEqual([
      429,
      'rate_limit_exceeded',
      limit.startsWith('tokens') ? 'tokens' : 'requests',
    ]);
    expect(retryHeaders(error)).toEqual(headers);
  });

  test('of a month that is spent is about quota, and waiting does not help', () => {
    const error = rejectionError(refused('tokens_per_month', 86_400_000), 5);
    expect([error.code, error.type, retryHeaders(error)]).toEqual([
      'insufficient_quota',
      'insufficient_quota',
      { 'x-should-retry': 'false' },
    ]);
  });

  test.each([
    [HOLDER, 'requests_per_day', 'The limit of 10 requests per day is reached.'],
    [TEAM, 'requests_per_day', 'The limit of 10 requests per day of the team is reached.'],
    [KEY, 'concurrency', 'The limit of 10 requests at once of the key is reached.'],
    [MODEL, 'tokens_per_month', 'The limit of 10 tokens per month of the model is reached.'],
    [HOLDER, 'cost_per_month', 'The monthly budget of the holder is spent.'],
    [TEAM, 'cost_per_month', 'The monthly budget of the team is spent.'],
    [KEY, 'cost_per_day', 'The daily budget of the key is spent.'],
    [MODEL, 'cost_per_day', 'The daily budget of the model is spent.'],
  ] as const)('says whose limit it is, and names nobody: $0.kind, %s', (scope, limit, message) => {
    expect(rejectionError(refused(limit, 1000, { scope }), 5).message).toBe(message);
  });

  test.each(['cost_per_day', 'cost_per_month'] as const)(
    'of %s is about quota, and waiting does not help',
    (limit) => {
      for (const reason of ['spent', 'too_large'] as const) {
        const error = rejectionError(refused(limit, 500, { reason, scope: TEAM }), 5);
        expect([error.status, error.code, error.type, retryHeaders(error)]).toEqual([
          429,
          'insufficient_quota',
          'insufficient_quota',
          { 'x-should-retry': 'false' },
        ]);
        // The estimate of a price is nothing that a client should calculate with.
        expect(error.message).not.toMatch(/[0-9]/);
        expect(error.message).toMatch(reason === 'spent' ? /is spent\.$/ : /may cost more than the whole/);
      }
    },
  );

  test.each(['tokens_per_minute', 'tokens_per_day', 'tokens_per_month'] as const)(
    'of a request larger than %s names both figures',
    (limit) => {
      const error = rejectionError(refused(limit, undefined, { reason: 'too_large' }), 5000);
      expect([error.code, error.type, retryHeaders(error)]).toEqual([
        'rate_limit_exceeded',
        'tokens',
        { 'x-should-retry': 'false' },
      ]);
      expect(error.message).toMatch(/about 5000 tokens.*limit is 10 /);
    },
  );
});

describe('the report of limits', () => {
  const UNIT = 1e9;
  const scopes = makeScopes('holder', [
    holderScope('holder', { requests_per_minute: 20, cost_per_day: 4 * UNIT }),
    makeScope({ kind: 'team', id: 'team-77' }, { tokens_per_month: 500 }),
    makeScope({ kind: 'key', lineage: 'abcd1234' }, {}),
    makeScope({ kind: 'model', holderId: 'holder', model: 'gpt-*' }, { concurrency: 2 }),
  ]);
  const lines = reportLimits(scopes, [
    statesOf({ requests_per_minute: state(20, 5, 1001), cost_per_day: state(4 * UNIT, UNIT, 9000) }),
    statesOf({ tokens_per_month: state(500, 100, 5000) }),
    statesOf({}),
    statesOf({ concurrency: state(2, 1, 0) }),
  ]);

  test('has a line for each limit of each scope, with cost in units and whole seconds', () => {
    expect(lines).toEqual([
      { limit: 'requests_per_minute', max: 20, used: 15, remaining: 5, resets_in_s: 2 },
      { limit: 'cost_per_day', max: 4, used: 3, remaining: 1, resets_in_s: 9 },
      { scope: 'team', limit: 'tokens_per_month', max: 500, used: 400, remaining: 100, resets_in_s: 5 },
      { scope: 'model', model: 'gpt-*', limit: 'concurrency', max: 2, used: 1, remaining: 1, resets_in_s: 0 },
    ]);
    expect(reportLimits(scopes, [])).toEqual([]);
  });

  test.each([
    ['fits in all', lines, {}, undefined],
    ['has too many tokens', lines, { tokens: 101 }, { scope: { kind: 'team' }, limit: 'tokens_per_month' }],
    ['costs too much', lines, { cost: UNIT + 1 }, { scope: { kind: 'holder' }, limit: 'cost_per_day' }],
    [
      'is one too many',
      lines.map((line) => ({ ...line, used: line.limit === 'concurrency' ? 2 : 0 })),
      {},
      { scope: { kind: 'model' }, limit: 'concurrency', state: { limit: 2, used: 2 } },
    ],
    [
      'waits for the minute',
      lines.map((line) => ({ ...line, used: line.limit === 'requests_per_minute' ? 20 : 0 })),
      {},
      { limit: 'requests_per_minute', retryAfterMs: 2000, state: { limit: 20, used: 20 } },
    ],
  ])('says that a request %s', (_what, reported, amounts, expected) => {
    const rejected = rejectionBy(scopes, reported, { tokens: 100, cost: UNIT, ...amounts });
    if (expected === undefined) expect(rejected).toBeUndefined();
    else expect(rejected).toMatchObject({ kind: 'refused', reason: 'spent', ...expected });
  });
});

describe('the headers of budgets', () => {
  const UNIT = 1e9;
  const budget = (max: number, used: number) => state(max * UNIT, (max - used) * UNIT, 5);
  const headersOf = (
    day: { max: number; used: number; soft?: readonly number[] } | undefined,
    month: { max: number; used: number; soft?: readonly number[] },
  ) => {
    const headers = {};
    const own: BudgetedLimits =
      day === undefined ? {} : { cost_per_day: day.max * UNIT, soft: day.soft ?? [] };
    const ofTeam: BudgetedLimits = { cost_per_month: month.max * UNIT, soft: month.soft ?? [] };
    const scopes = makeScopes('holder', [
      makeScope({ kind: 'holder', id: 'a' }, own),
      makeScope({ kind: 'team', id: 't' }, ofTeam),
    ]);
    const ofDay = day ? { cost_per_day: budget(day.max, day.used) } : {};
    budgetHeaders(
      scopes,
      [statesOf(ofDay), statesOf({ cost_per_month: budget(month.max, month.used) })],
      headers,
    );
    return headers;
  };
  const remaining = (left: string) => ({ 'x-tollgate-budget-remaining': left });
  const warned = (text: string) => ({ 'x-tollgate-budget-warning': `${text} is used` });

  test.each([
    [
      'are those of the budget with the least share left',
      { max: 4, used: 2 },
      { max: 10, used: 6 },
      remaining('4'),
    ],
    ['are those of the first of equal shares', { max: 4, used: 2 }, { max: 10, used: 5 }, remaining('2')],
    [
      'warn from a soft threshold on',
      { max: 4, used: 2, soft: [0.5, 0.8] },
      { max: 10, used: 9 },
      { ...remaining('1'), ...warned('50% of the daily budget of the holder') },
    ],
    ['do not warn before it', { max: 4, used: 1.9, soft: [0.5] }, { max: 10, used: 9 }, remaining('1')],
    [
      'warn of the budget that is used most',
      { max: 4, used: 3, soft: [0.5] },
      { max: 10, used: 7.99, soft: [0.5] },
      { ...remaining('2.01'), ...warned('79% of the monthly budget of the team') },
    ],
    [
      'warn of one beyond its end, of which nothing is left',
      { max: 4, used: 5 },
      { max: 10, used: 10 },
      { ...remaining('0'), ...warned('125% of the daily budget of the holder') },
    ],
    [
      'warn of the first of those that are spent',
      { max: 4, used: 4 },
      { max: 10, used: 10 },
      { ...remaining('0'), ...warned('100% of the daily budget of the holder') },
    ],
    ['are those of the only one', undefined, { max: 10, used: 2 }, remaining('8')],
  ] as const)('%s', (_what, day, month, headers) => {
    expect(headersOf(day, month)).toEqual(headers);
  });

  test('are none without a budget', () => {
    const headers = {};
    budgetHeaders(makeScopes('a', [HOLDER]), [statesOf({ cost_per_day: budget(4, 4) })], headers);
    expect(headers).toEqual({});
  });
});
