// Sequences of steps that limiters have counted wrongly, or might. Both limiters run them against the model.
import { MINUTE } from './model.ts';
import type { Play, Step } from './play.ts';
import { DAY, NOON, totals } from './setting.ts';

const LIMITS = {
  tokens_per_month: 1_000_000,
  tokens_per_day: 500_000,
  requests_per_day: 1000,
  concurrency: 50,
};
const MONTH_END = Date.UTC(2027, 5, 1);

const admit = (tokens = 4000): Step => ({ kind: 'admit', tokens });
const settle = (tokens = 100): Step => ({ kind: 'settle', which: 0, tokens });
const pass = (ms: number): Step => ({ kind: 'pass', ms });
const times = (count: number, step: Step): Step[] => Array.from({ length: count }, () => step);
const HERE: Step = { kind: 'store', isAway: false };
const AWAY: Step = { kind: 'store', isAway: true };
const FLUSH: Step = { kind: 'flush' };

const prior = totals({ requests_per_day: 10, tokens_per_day: 900, tokens_per_month: 7000 });
const base = { start: NOON, limits: LIMITS, prior };

export const CASES: readonly (Play & { readonly name: string })[] = [
  {
    name: 'what runs while totals become known is taken back when it ends',
    ...base,
    isAway: true,
    steps: [...times(5, admit()), HERE, pass(5000), admit(), ...times(7, settle())],
  },
  {
    name: 'what has ended before totals become known is in them once',
    ...base,
    isAway: true,
    steps: [...times(3, admit()), ...times(3, settle()), HERE, pass(5000), admit(), settle()],
  },
  {
    name: 'totals that become known late, twice in vain',
    ...base,
    isAway: true,
    steps: [
      admit(),
      pass(5000),
      admit(),
      pass(5000),
      admit(),
      settle(),
      HERE,
      pass(5000),
      ...times(2, admit()),
    ],
  },
  {
    name: 'totals become known in the month after the one in which requests began',
    ...base,
    start: MONTH_END - 20_000,
    isAway: true,
    steps: [...times(3, admit()), pass(19_000), pass(2000), HERE, admit(), ...times(4, settle())],
  },
  {
    name: 'a request begins in one month and ends in the next, where it counts with its real tokens',
    ...base,
    start: MONTH_END - 10_000,
    steps: [admit(), admit(), settle(50), pass(15_000), admit(30), settle(200), settle(20)],
  },
  {
    name: 'a request begins on one day and ends on the next: it counts on the first',
    ...base,
    start: NOON + DAY / 2 - 10_000,
    steps: [admit(), pass(15_000), admit(), settle(), settle()],
  },
  {
    name: 'Redis is emptied while requests run: each of them counts once',
    ...base,
    steps: [...times(4, admit()), settle(), FLUSH, admit(), ...times(4, settle()), admit(), settle()],
  },
  {
    name: 'Redis is emptied while requests run, and the store is away',
    ...base,
    steps: [
      ...times(3, admit()),
      AWAY,
      FLUSH,
      admit(),
      ...times(2, settle()),
      HERE,
      pass(5000),
      admit(),
      ...times(3, settle()),
    ],
  },
  {
    name: 'a process is lost while totals are provisional',
    ...base,
    isAway: true,
    steps: [admit(), { kind: 'lose', which: 0 }, pass(30_000), HERE, admit(), settle(), settle()],
  },
  {
    name: 'a request that has outlived its lease counts with its real tokens',
    ...base,
    steps: [admit(), pass(30_000), admit(), settle(), settle()],
  },
  {
    name: 'another tier while totals are provisional',
    ...base,
    isAway: true,
    steps: [
      admit(),
      { kind: 'configure', limits: { tokens_per_month: 9000 } },
      HERE,
      pass(5000),
      admit(10),
      settle(),
      admit(),
      settle(),
    ],
  },
  {
    name: 'tokens of a request that begins on one day and ends on the next are reserved on the first and count on the second',
    ...base,
    start: NOON + DAY / 2 - 10_000,
    steps: [
      admit(),
      admit(),
      settle(50),
      pass(15_000),
      admit(30),
      settle(200),
      { kind: 'change', which: 0, tokens: 700 },
      settle(20),
    ],
  },
  {
    name: 'tokens of a day that are used up come back on the next day, and those of the month do not',
    ...base,
    start: NOON + DAY / 2 - 10_000,
    limits: { tokens_per_day: 1000, tokens_per_month: 8000 },
    steps: [
      admit(100),
      admit(1),
      settle(100),
      admit(1),
      pass(10_000),
      admit(900),
      settle(900),
      admit(100),
      admit(1),
    ],
  },
  {
    name: 'other tokens for a request that runs, in another window and another month',
    ...base,
    start: MONTH_END - 20_000,
    steps: [
      admit(1),
      { kind: 'change', which: 0, tokens: 500 },
      pass(21_000),
      { kind: 'change', which: 0, tokens: 700 },
      admit(),
      settle(),
      settle(),
      pass(MINUTE),
    ],
  },
];
