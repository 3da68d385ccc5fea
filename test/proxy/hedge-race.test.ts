// The parts of a hedge by themselves: who has the client, what two failures come to, and a target that is given back.
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { type Contender, mergeFailures, Race } from '../../src/proxy/attempts/hedge.ts';
import { TargetPlan } from '../../src/proxy/targets/target-plan.ts';
import { CircuitBreaker } from '../../src/upstream/breaker/circuit-breaker.ts';
import { type Failure, failure } from '../../src/upstream/error-outcome.ts';
import { LatencyAverage } from '../../src/upstream/target-latency.ts';
import { pause } from '../helpers/wait.ts';

function contender(heard: string[], name: string): Contender {
  return {
    sign: () => heard.push(`${name} won`),
    lost: () => heard.push(`${name} superseded`),
    soleAttempt: () => heard.push(`${name} alone`),
  };
}

describe('a race', () => {
  function setting() {
    const heard: string[] = [];
    const race = new Race();
    const [a, b] = [contender(heard, 'a'), contender(heard, 'b')];
    race.enter(a);
    race.enter(b);
    return { heard, race, a, b };
  }

  test('gives the client to one, and ends the other before', () => {
    const { heard, race, a, b } = setting();
    expect(race.isUndecided).toBe(true);
    expect([race.commit(b), race.commit(a), race.commit(b)]).toEqual([true, false, true]);
    expect(heard).toEqual(['a superseded', 'b won']);
    expect([race.isDecided, race.isUndecided]).toEqual([true, false]);
  });

  test('tells the one that is left, and nobody once it is decided', () => {
    const { heard, race, a, b } = setting();
    race.leave(a);
    race.leave(a);
    expect([heard, race.running, race.isUndecided]).toEqual([['b alone'], 1, false]);
    expect(race.commit(b)).toBe(true);
    race.leave(b);
    expect([heard, race.running]).toEqual([['b alone', 'b won'], 0]);
  });

  test.each(['decided', 'disarmed'])('that is %s begins no second', async (how) => {
    const race = new Race();
    let begun = 0;
    race.arm(5, () => {
      begun += 1;
    });
    const entry = contender([], 'a');
    race.enter(entry);
    if (how === 'decided') race.commit(entry);
    else race.disarm();
    await pause(20);
    expect(begun).toBe(0);
    race.arm(5, () => {
      begun += 1;
    });
    await pause(20);
    expect(begun).toBe(1);
  });
});

describe('two failures', () => {
  const of = (code: 'upstream_error' | 'upstream_timeout', more: Partial<Failure>): Failure => ({
    ...failure(new GatewayError(code), true),
    ...more,
  });

  test.each<[Partial<Failure>, Partial<Failure>, object]>([
    [{}, {}, { tryNextTarget: true, skipsRetryBudget: false, mayHaveExecuted: false, says: 'second' }],
    [{ tryNextTarget: false }, {}, { tryNextTarget: false, says: 'first' }],
    [{}, { tryNextTarget: false }, { tryNextTarget: false, says: 'second' }],
    [{ tryNextTarget: false }, { tryNextTarget: false }, { tryNextTarget: false, says: 'first' }],
    [{ skipsRetryBudget: true }, {}, { skipsRetryBudget: true, says: 'second' }],
    [{}, { skipsRetryBudget: true }, { skipsRetryBudget: true }],
    [{ mayHaveExecuted: true }, {}, { mayHaveExecuted: true }],
    [{}, { mayHaveExecuted: true }, { mayHaveExecuted: true }],
  ])('%j and %j come to %j', (first, second, expected) => {
    const both = mergeFailures(of('upstream_timeout', first), of('upstream_error', second));
    const says = both.error.code === 'upstream_timeout' ? 'first' : 'second';
    expect({ ...both, says }).toMatchObject(expected);
  });
});

test('a target that was given back is handed out again, and its permit is back', () => {
  const now = () => 0;
  const targets = ['a', 'b'].map((name, index) => ({ name, weight: 1, priority: index + 1 }));
  const statuses = new Map(
    targets.map((target) => [
      target,
      { breaker: new CircuitBreaker({ now, random: now }), latency: new LatencyAverage(now) },
    ]),
  );
  const statusOf = (target: (typeof targets)[number]) => {
    const found = statuses.get(target);
    if (found === undefined) throw new Error('no such target');
    return found;
  };
  const plan = new TargetPlan({ targets, balance: 'weighted', statusOf, now, random: now });
  expect(plan.next(() => false).kind).toBe('exhausted');
  const step = plan.next(({ name }) => name === 'b');
  if (step.kind !== 'target') throw new Error('a target was expected');
  expect(step.target.name).toBe('b');
  plan.putBack(step);
  expect(statusOf(step.target).breaker.inFlight).toBe(0);
  const names = [plan.next(), plan.next(), plan.next()].map((each) =>
    each.kind === 'target' ? each.target.name : each.cause,
  );
  expect(names).toEqual(['a', 'b', 'tried']);
});
