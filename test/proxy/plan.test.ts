import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type PlannedTarget,
  TargetPlan,
  type TargetPlanOptions,
} from '../../src/proxy/targets/target-plan.ts';
import { TargetStatuses } from '../../src/proxy/targets/target-statuses.ts';
import { CircuitBreaker } from '../../src/upstream/breaker/circuit-breaker.ts';
import type { ResultClass } from '../../src/upstream/breaker/permit.ts';
import { LatencyAverage } from '../../src/upstream/target-latency.ts';

interface Named {
  readonly name: string;
  readonly weight: number;
  readonly priority: number;
}

const FAILURE: ResultClass = { kind: 'failure' };

/** Targets by name and `priority` or `priority×weight`, ascending: `{ a: '1', b: '1x3', c: '2' }`. */
function setting(names: Readonly<Record<string, string>>) {
  const clock = { now: 50_000 };
  const now = () => clock.now;
  const targets: Named[] = Object.entries(names).map(([name, text]) => {
    const [priority, weight = '1'] = text.split('x');
    return { name, weight: Number(weight), priority: Number(priority) };
  });
  const statuses = new TargetStatuses(() => ({
    breaker: new CircuitBreaker({ now, random: () => 0 }),
    latency: new LatencyAverage(now),
  }));
  const upstream = {};
  const of = (name: string) => statuses.of(upstream, name);
  const plan = (options: Partial<TargetPlanOptions<Named>> = {}) =>
    new TargetPlan<Named>({
      targets,
      balance: 'weighted',
      statusOf: ({ name }) => of(name),
      now,
      random: () => 0,
      ...options,
    });
  const report = (name: string, outcome: ResultClass, times = 1) => {
    for (let index = 0; index < times; index += 1) {
      const permit = of(name).breaker.force();
      if (permit.kind === 'permit') permit.release(outcome);
    }
  };
  const limit = (name: string, retryAfterMs: number) => report(name, { kind: 'limited', retryAfterMs });
  const open = (name: string) => report(name, FAILURE, 5);
  return { clock, targets, of, plan, limit, open, report };
}

function handed(step: ReturnType<TargetPlan<Named>['next']>): PlannedTarget<Named> {
  if (step.kind === 'exhausted') throw new Error(`exhausted: ${step.cause}`);
  return step;
}

/** Asks all of them, each failing, and says in which order. */
function names(plan: TargetPlan<Named>, outcome: ResultClass = FAILURE): string[] {
  const order: string[] = [];
  for (let step = plan.next(); step.kind === 'target'; step = plan.next()) {
    order.push(step.target.name);
    step.permit.release(outcome);
  }
  return order;
}

describe('the order', () => {
  test('is by priority, each target once', () => {
    const { plan } = setting({ a: '1', b: '1', c: '2', d: '3' });
    expect(names(plan())).toEqual(['a', 'b', 'c', 'd']);
    expect(names(plan({ random: () => 0.99 }))).toEqual(['b', 'a', 'c', 'd']);
  });

  test('within a priority it is by weight, and without weight never', () => {
    const { plan } = setting({ a: '1', b: '1x3', c: '1x0' });
    expect(names(plan({ random: () => 0.2 }))).toEqual(['a', 'b']);
    expect(names(plan({ random: () => 0.3 }))).toEqual(['b', 'a']);
  });

  test('of two equal ones the less busy, when the balance says so', () => {
    const { of, plan } = setting({ a: '1', b: '1' });
    const busy = of('a').breaker.admit();
    expect(busy.kind).toBe('permit');
    expect(names(plan({ balance: 'least_requests' }))).toEqual(['b', 'a']);
    expect(names(plan())).toEqual(['a', 'b']);
  });

  test('of two equal ones the quicker, when the balance says so', () => {
    const { of, plan } = setting({ a: '1', b: '1' });
    of('a').latency.observe(900);
    of('b').latency.observe(100);
    expect(names(plan({ balance: 'latency' }))).toEqual(['b', 'a']);
  });

  test('leaves out whoever is cooling down, and the comparison is among the others', () => {
    const { plan, limit, open } = setting({ a: '1', b: '1', c: '1', d: '2' });
    limit('a', 5000);
    open('b');
    expect(names(plan({ balance: 'least_requests' }))).toEqual(['c', 'd']);
  });

  test('an unhealthy target comes last, and is asked in the end', () => {
    const { plan } = setting({ a: '1', b: '2', c: '3' });
    expect(names(plan({ isHealthy: ({ name }) => name !== 'a' }))).toEqual(['b', 'c', 'a']);
    expect(names(plan({ isHealthy: () => false }))).toEqual(['a', 'b', 'c']);
  });

  test('a target that recovers during the request is asked after all', () => {
    const { clock, plan, limit } = setting({ a: '1', b: '2' });
    limit('a', 5000);
    const started = plan();
    const step = handed(started.next());
    expect(step.target.name).toBe('b');
    clock.now += 5000;
    step.permit.release(FAILURE);
    expect(handed(started.next()).target.name).toBe('a');
  });

  test('two steps at once are two targets, with a permit each', () => {
    const { of, plan } = setting({ a: '1', b: '2' });
    const started = plan();
    const [one, two] = [handed(started.next()), handed(started.next())];
    expect([one.target.name, two.target.name]).toEqual(['a', 'b']);
    expect([of('a').breaker.inFlight, of('b').breaker.inFlight]).toEqual([1, 1]);
  });

  test('another round asks them once more', () => {
    const { plan } = setting({ a: '1', b: '2' });
    const started = plan();
    expect(names(started)).toEqual(['a', 'b']);
    expect(started.next()).toMatchObject({ cause: 'tried' });
    started.startRound();
    expect(names(started)).toEqual(['a', 'b']);
  });
});

describe('a probe', () => {
  test('goes to one request, and the others to the next target', () => {
    const { clock, plan, open } = setting({ a: '1', b: '2' });
    open('a');
    clock.now += 10_000;
    const steps = [1, 2, 3].map(() => handed(plan().next()));
    expect(steps.map(({ target }) => target.name)).toEqual(['a', 'b', 'b']);
    expect(steps[0]?.permit.probe).toBe(true);
  });
});

describe('nothing left', () => {
  test('all at their limit: the soonest of them', () => {
    const { plan, limit } = setting({ a: '1', b: '2' });
    limit('a', 5000);
    limit('b', 2000);
    expect(plan().next()).toEqual({ kind: 'exhausted', cause: 'limit', retryAfterMs: 2000 });
  });

  test('all failing, or one of them: the soonest of them, and not a limit', () => {
    const { clock, plan, limit, open } = setting({ a: '1', b: '2' });
    open('a');
    clock.now += 3000;
    open('b');
    expect(plan().next()).toEqual({ kind: 'exhausted', cause: 'open', retryAfterMs: 7000 });
    limit('b', 60_000);
    expect(plan().next()).toMatchObject({ cause: 'open', retryAfterMs: 7000 });
  });

  test('asking does not extend a cool-down', () => {
    const { clock, plan, limit, open } = setting({ a: '1', b: '2' });
    limit('a', 5000);
    open('b');
    for (let index = 0; index < 50; index += 1) {
      expect(plan().next().kind).toBe('exhausted');
      clock.now += 99;
    }
    clock.now += 50;
    expect(handed(plan().next()).target.name).toBe('a');
  });

  test('both limited during the request: the second answer stands, and the soonest is known', () => {
    const { plan } = setting({ a: '1', b: '2' });
    const started = plan();
    handed(started.next()).permit.release({ kind: 'limited', retryAfterMs: 5000 });
    handed(started.next()).permit.release({ kind: 'limited', retryAfterMs: 2000 });
    expect(started.next()).toEqual({ kind: 'exhausted', cause: 'tried', retryAfterMs: 2000 });
  });

  test('a route whose targets have no weight, or are out of service, is out of service', () => {
    const exhausted = { kind: 'exhausted', cause: 'out_of_service', retryAfterMs: 5000 };
    expect(setting({}).plan().next()).toEqual(exhausted);
    expect(setting({ a: '1x0' }).plan().next()).toEqual(exhausted);
    const { plan } = setting({ a: '1', b: '2' });
    expect(plan({ isInService: () => false }).next()).toEqual(exhausted);
    expect(names(plan({ isInService: ({ name }) => name === 'b' }))).toEqual(['b']);
  });

  test('the only one in service is a sole target', () => {
    const { plan, open } = setting({ a: '1', b: '1' });
    open('b');
    expect(names(plan({ isInService: ({ name }) => name === 'b' }))).toEqual(['b']);
  });

  test('a target that leaves service during a request is not tried any more', () => {
    const { plan } = setting({ a: '1', b: '2' });
    let isOut = false;
    const begun = plan({ isInService: ({ name }) => name === 'a' || !isOut });
    handed(begun.next()).permit.release(FAILURE);
    isOut = true;
    expect(begun.next()).toMatchObject({ kind: 'exhausted', cause: 'tried' });
  });
});

describe('a sole target', () => {
  test('is still tried when its breaker is open, once by each request', () => {
    const { plan, open } = setting({ a: '1' });
    open('a');
    expect(names(plan())).toEqual(['a']);
    expect(names(plan())).toEqual(['a']);
  });

  test('is still tried when another request is probing it', () => {
    const { clock, plan, open } = setting({ a: '1', never: '1x0' });
    open('a');
    clock.now += 10_000;
    const steps = [handed(plan().next()), handed(plan().next())];
    expect(steps.map(({ permit }) => permit.probe)).toEqual([true, false]);
  });

  test('is left alone for the time that it named', () => {
    const { plan, limit } = setting({ a: '1' });
    limit('a', 5000);
    expect(plan().next()).toEqual({ kind: 'exhausted', cause: 'limit', retryAfterMs: 5000 });
  });

  test('a failure that named a time is no limit', () => {
    const { plan, report } = setting({ a: '1' });
    report('a', { kind: 'failure', retryAfterMs: 4000 });
    expect(plan().next()).toEqual({ kind: 'exhausted', cause: 'open', retryAfterMs: 4000 });
  });

  test('names the time that it asked for, also where its breaker stays open for longer', () => {
    const { clock, plan, open, limit } = setting({ a: '1' });
    open('a');
    limit('a', 20);
    expect(plan().next()).toEqual({ kind: 'exhausted', cause: 'limit', retryAfterMs: 20 });
    clock.now += 20;
    expect(names(plan())).toEqual(['a']);
  });

  test('is still tried after a 429 that named no time', () => {
    const { plan, report } = setting({ a: '1' });
    report('a', { kind: 'limited' });
    expect(names(plan())).toEqual(['a']);
  });
});

test('for any outcomes: each target at most once, all permits come back, and it recovers', () => {
  const outcome = fc.oneof(
    fc.constantFrom<ResultClass>({ kind: 'success' }, { kind: 'neutral' }, FAILURE, FAILURE),
    fc.record({
      kind: fc.constantFrom('limited' as const, 'failure' as const),
      retryAfterMs: fc.nat(100_000),
    }),
  );
  const request = fc.record({ wait: fc.nat(15_000), outcomes: fc.array(outcome, { maxLength: 4 }) });
  const balance = fc.constantFrom('weighted' as const, 'least_requests' as const, 'latency' as const);
  fc.assert(
    fc.property(balance, fc.array(request, { maxLength: 60 }), fc.integer(), (mode, requests, seed) => {
      const { clock, of, plan, targets } = setting({ a: '1x2', b: '1', c: '2' });
      let turn = seed >>> 0;
      const random = () => {
        turn = (Math.imul(turn, 1_664_525) + 1_013_904_223) >>> 0;
        return turn / 2 ** 32;
      };
      for (const { wait, outcomes } of requests) {
        clock.now += wait;
        const started = plan({ balance: mode, random });
        const asked: string[] = [];
        for (const each of outcomes) {
          const step = started.next();
          if (step.kind === 'exhausted') {
            // Nobody is sent away while a target that was not asked would take the request.
            for (const { name } of targets) {
              if (!asked.includes(name)) expect(of(name).breaker.rejection()).toBeDefined();
            }
            if (asked.length === 0) expect(step.retryAfterMs).toBeGreaterThan(0);
            expect(step.retryAfterMs).toBeLessThanOrEqual(60_000);
            break;
          }
          asked.push(step.target.name);
          step.permit.release(each);
        }
        expect(new Set(asked).size).toBe(asked.length);
      }
      expect(targets.map(({ name }) => of(name).breaker.inFlight)).toEqual([0, 0, 0]);
      clock.now += 60_001;
      expect(names(plan({ random }), { kind: 'success' })).toHaveLength(3);
      expect(targets.map(({ name }) => of(name).breaker.state)).toEqual(['closed', 'closed', 'closed']);
    }),
    { numRuns: 200 },
  );
});

describe('statuses', () => {
  const fresh = () =>
    new TargetStatuses(() => ({
      breaker: new CircuitBreaker({ now: () => 0, random: () => 0 }),
      latency: new LatencyAverage(() => 0),
    }));

  test('belong to an upstream and a model', () => {
    const statuses = fresh();
    const [one, two] = [{}, {}];
    expect(statuses.of(one, 'm')).toBe(statuses.of(one, 'm'));
    expect(statuses.of(one, 'm')).not.toBe(statuses.of(one, 'n'));
    expect(statuses.of(one, 'm')).not.toBe(statuses.of(two, 'm'));
    expect(statuses.peek({}, 'm')).toBeUndefined();
    expect(statuses.peek(one, 'x')).toBeUndefined();
    expect(statuses.peek(one, 'm')).toBe(statuses.of(one, 'm'));
  });

  test('names that clients invent do not add up, and do not displace what matters', () => {
    const statuses = fresh();
    const upstream = {};
    const permit = statuses.of(upstream, 'troubled').breaker.admit();
    if (permit.kind === 'permit') permit.release(FAILURE);
    const { breaker } = statuses.of(upstream, 'troubled');
    for (let index = 0; index < 2000; index += 1) statuses.of(upstream, `invented-${index}`);
    expect(statuses.peek(upstream, 'troubled')?.breaker).toBe(breaker);
    const kept = Array.from({ length: 2000 }, (_, index) => statuses.peek(upstream, `invented-${index}`));
    expect(kept.filter((each) => each !== undefined)).toHaveLength(255);
    expect(kept.at(-1)).toBeDefined();
  });
});
