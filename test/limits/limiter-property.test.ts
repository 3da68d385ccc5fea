// Random sequences of requests, settlements, lost processes, passing time, store failures and Redis flushes, against a model
// that sums a list of requests; and the sequences that were once counted wrongly, by name.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { REDIS_TIMEOUT } from '../helpers/redis.ts';
import { CASES } from './cases.ts';
import { MINUTE } from './model.ts';
import { play, type Step } from './play.ts';
import { type MakeRig, memoryRig, NOTHING, RedisSetting, totals } from './setting.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 150);
/** So that a run may see the end of a day, and of a month, or neither. */
const STARTS = [Date.UTC(2027, 4, 17, 12), Date.UTC(2027, 4, 16, 23, 58), Date.UTC(2027, 11, 31, 23, 57)];

let setting: RedisSetting;

beforeAll(async () => {
  setting = await RedisSetting.start();
}, REDIS_TIMEOUT);
afterAll(() => setting?.stop());

const tokens = fc.oneof(fc.integer({ min: 0, max: 60 }), fc.integer({ min: 0, max: 400 }));
const which = fc.nat(20);
const limit = (...values: number[]) => fc.option(fc.constantFrom(...values), { nil: undefined });
const limitsOf: fc.Arbitrary<TierLimits> = fc
  .record({
    requests_per_minute: limit(1, 3, 5),
    tokens_per_minute: limit(60, 200),
    requests_per_day: limit(4, 8, 12),
    tokens_per_day: limit(200, 600),
    tokens_per_month: limit(300, 1000),
    concurrency: limit(1, 2, 4),
    cost_per_day: limit(150, 1800),
    cost_per_month: limit(900, 3000),
  })
  .map((limits) => Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined)));
const ms = fc.oneof(
  fc.constantFrom(1, 5000, 29_999, 30_000, MINUTE - 1, MINUTE),
  fc.integer({ min: 0, max: 70_000 }),
);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('admit'), tokens }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('settle'),
      which,
      tokens,
      times: fc.integer({ min: 1, max: 2 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('change'), which, tokens }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lose'), which }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('pass'), ms }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('configure'), limits: limitsOf }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('store'), isAway: fc.boolean() }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'flush' }) },
);
const prior = fc.constantFrom(
  NOTHING,
  totals({
    requests_per_day: 3,
    tokens_per_day: 90,
    tokens_per_month: 200,
    cost_per_day: 100,
    cost_per_month: 500,
  }),
);

describe.each<[string, MakeRig, number]>([
  ['in memory', memoryRig, RUNS],
  ['in Redis', () => setting.rig(), Math.ceil(RUNS / 3)],
])('%s', (_name, makeRig, runs) => {
  test.each(CASES)('$name', (order) => play(makeRig, order));

  test('any order of steps', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...STARTS),
        limitsOf,
        prior,
        fc.boolean(),
        fc.array(step, { maxLength: 40 }),
        (start, limits, before, isAway, steps) =>
          play(makeRig, { start, limits, prior: before, isAway, steps }),
      ),
      { numRuns: runs },
    );
  });
});
