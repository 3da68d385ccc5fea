// Any order of requests, endings, lost processes and passing time, against a model that adds up a list of requests: the same
// are admitted, the same limit refuses, every state is the same at every step, and nothing is left over at the end.
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { dayOf, monthLeftMs, monthOf } from '../../src/limits/calendar.ts';
import {
  type Lease,
  LIMIT_NAMES,
  type LimitName,
  type LimitStates,
  type TierLimits,
} from '../../src/limits/limiter.ts';
import { REDIS_TIMEOUT } from '../helpers/redis.ts';
import { DAY, type MakeRig, memoryRig, newHolder, RedisSetting, unreachable } from './setting.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 300);
const MINUTE = 60_000;
/** So that a run may see the end of a day, and of a month, or neither. */
const STARTS = [Date.UTC(2027, 4, 17, 12), Date.UTC(2027, 4, 16, 23, 58), Date.UTC(2027, 11, 31, 23, 57)];

let setting: RedisSetting;

beforeAll(async () => {
  setting = await RedisSetting.start();
}, REDIS_TIMEOUT);
afterAll(() => setting?.stop());

type Step =
  | { readonly kind: 'admit'; readonly tokens: number }
  | { readonly kind: 'settle'; readonly which: number; readonly tokens: number; readonly times: number }
  | { readonly kind: 'lose'; readonly which: number }
  | { readonly kind: 'pass'; readonly ms: number }
  | { readonly kind: 'configure'; readonly limits: TierLimits };

const tokens = fc.oneof(fc.integer({ min: 0, max: 60 }), fc.integer({ min: 0, max: 400 }));
const which = fc.nat(20);
const limit = (...values: number[]) => fc.option(fc.constantFrom(...values), { nil: undefined });
const limitsOf: fc.Arbitrary<TierLimits> = fc
  .record({
    requests_per_minute: limit(1, 3, 5),
    tokens_per_minute: limit(60, 200),
    requests_per_day: limit(4, 8, 12),
    tokens_per_month: limit(300, 1000),
    concurrency: limit(1, 2, 4),
  })
  .map((limits) => Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined)));
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
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lose'), which }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('pass'),
      ms: fc.oneof(fc.constantFrom(1, 29_999, 30_000, 59_999, MINUTE), fc.integer({ min: 0, max: 70_000 })),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('configure'), limits: limitsOf }) },
);

interface Request {
  readonly at: number;
  readonly estimate: number;
  readonly window: number;
  settled: { readonly at: number; readonly tokens: number } | undefined;
}

/** Nothing is counted here: every figure is a sum over all requests there have been. */
class Model {
  readonly requests: Request[] = [];
  readonly #leaseMs: number;
  #window = Number.NEGATIVE_INFINITY;

  constructor(leaseMs: number) {
    this.#leaseMs = leaseMs;
  }

  states(now: number, limits: TierLimits): LimitStates {
    const used = this.used(now);
    const resets = { ...this.#resets(now), concurrency: 0 };
    const states: Record<string, unknown> = {};
    for (const name of LIMIT_NAMES) {
      const value = limits[name];
      if (value === undefined) continue;
      const remaining = Math.max(0, value - used[name]);
      states[name] = { limit: value, used: used[name], remaining, resetMs: resets[name] };
    }
    return states;
  }

  /** Which limit refuses, and how long it does; undefined when none does. */
  refusal(now: number, limits: TierLimits, cost: number): [LimitName, number | undefined] | undefined {
    const used = this.used(now);
    const waits = { ...this.#resets(now), concurrency: 1000 };
    const all = LIMIT_NAMES.flatMap((name): [LimitName, number][] => {
      const [value, amount] = [limits[name], name.startsWith('tokens') ? cost : 1];
      if (value === undefined || used[name] + amount <= value) return [];
      return [[name, amount > value ? Number.POSITIVE_INFINITY : waits[name]]];
    });
    const [first] = all.toSorted(([, one], [, other]) => (one === other ? 0 : other > one ? 1 : -1));
    return first === undefined
      ? undefined
      : [first[0], first[1] === Number.POSITIVE_INFINITY ? undefined : first[1]];
  }

  admit(now: number, estimate: number): Request {
    if (now >= this.#window + MINUTE) this.#window = now;
    const request: Request = { at: now, estimate, window: this.#window, settled: undefined };
    this.requests.push(request);
    return request;
  }

  used(now: number): Record<LimitName, number> {
    const isOpen = now < this.#window + MINUTE;
    const inWindow = this.requests.filter(({ window }) => isOpen && window === this.#window);
    const today = this.requests.filter(({ at }) => dayOf(at) === dayOf(now));
    const sum = (figures: number[]) => figures.reduce((total, figure) => total + figure, 0);
    return {
      requests_per_minute: inWindow.length,
      tokens_per_minute: sum(inWindow.map((each) => each.settled?.tokens ?? this.#reserved(each, now))),
      requests_per_day: today.length,
      tokens_per_month: sum(
        this.requests.map((each) => {
          const [at, figure] = [
            each.settled?.at ?? each.at,
            each.settled?.tokens ?? this.#reserved(each, now),
          ];
          return monthOf(at) === monthOf(now) ? figure : 0;
        }),
      ),
      concurrency: this.requests.filter((each) => this.#isRunning(each, now)).length,
    };
  }

  #resets(now: number): Record<Exclude<LimitName, 'concurrency'>, number> {
    const window = Math.max(0, this.#window + MINUTE - now);
    return {
      requests_per_minute: window,
      tokens_per_minute: window,
      requests_per_day: DAY - (now % DAY),
      tokens_per_month: monthLeftMs(now),
    };
  }

  #isRunning(request: Request, now: number): boolean {
    return request.settled === undefined && now < request.at + this.#leaseMs;
  }

  #reserved(request: Request, now: number): number {
    return this.#isRunning(request, now) ? request.estimate : 0;
  }
}

/** Totals are known before the first step, as they are where a tier always has a limit of a day or a month. */
const SEEDING: TierLimits = { requests_per_day: 1 };

async function play(
  makeRig: MakeRig,
  start: number,
  first: TierLimits,
  steps: readonly Step[],
): Promise<void> {
  await using rig = await makeRig();
  await rig.setWall(start);
  const holder = newHolder();
  const model = new Model(rig.leaseMs);
  const running: { readonly lease: Lease; readonly request: Request }[] = [];
  let [now, limits, lost] = [start, first, 0];
  // Only an admission makes the limiter in memory remember a holder.
  const { lease } = await opened(rig.limiter.admit(holder, SEEDING, 0));
  model.admit(now, 0);
  running.push({ lease, request: model.requests[0] ?? unreachable() });
  for (const each of steps) {
    switch (each.kind) {
      case 'admit': {
        const expected = model.refusal(now, limits, each.tokens);
        const admission = await rig.limiter.admit(holder, limits, each.tokens);
        if (admission.kind === 'admitted') {
          expect(expected).toBeUndefined();
          running.push({ lease: admission.lease, request: model.admit(now, each.tokens) });
        } else {
          expect([admission.limit, admission.retryAfterMs]).toEqual(expected);
        }
        expect(admission.states).toEqual(model.states(now, limits));
        break;
      }
      case 'settle': {
        const [taken] = running.splice(each.which % Math.max(1, running.length), 1);
        if (taken === undefined) break;
        for (let time = 0; time < each.times; time += 1) taken.lease.settle(each.tokens + time);
        await rig.settled();
        taken.request.settled = { at: now, tokens: each.tokens };
        break;
      }
      case 'lose':
        // Only where leases expire can a process be lost without the counters.
        if (rig.leaseMs === Number.POSITIVE_INFINITY || running.length === 0) break;
        running.splice(each.which % running.length, 1);
        lost += 1;
        break;
      case 'pass':
        now += each.ms;
        await rig.advance(each.ms);
        break;
      case 'configure':
        limits = each.limits;
        break;
    }
    expect(await rig.limiter.peek(holder, limits)).toEqual(model.states(now, limits));
  }
  for (const { lease, request } of running) {
    lease.settle(7);
    request.settled = { at: now, tokens: 7 };
  }
  await rig.settled();
  expect(rig.counters.leases).toBe(lost);
  if (lost > 0) {
    now += rig.leaseMs;
    await rig.advance(rig.leaseMs);
  }
  const every = {
    requests_per_minute: 9,
    tokens_per_minute: 9,
    requests_per_day: 9,
    tokens_per_month: 9,
    concurrency: 9,
  };
  const states = await rig.limiter.peek(holder, every);
  expect(states).toEqual(model.states(now, every));
  expect(states.concurrency?.used).toBe(0);
}

async function opened(admission: ReturnType<Awaited<ReturnType<MakeRig>>['limiter']['admit']>) {
  const settled = await admission;
  return settled.kind === 'admitted' ? settled : unreachable();
}

test.each<[string, MakeRig, number]>([
  ['in memory', memoryRig, RUNS],
  ['in Redis', () => setting.rig(), Math.ceil(RUNS / 3)],
])('%s', async (_name, makeRig, runs) => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...STARTS),
      limitsOf,
      fc.array(step, { maxLength: 40 }),
      (start, first, steps) => play(makeRig, start, first, steps),
    ),
    { numRuns: runs },
  );
});
