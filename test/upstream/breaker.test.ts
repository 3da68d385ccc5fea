import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type BreakerChange,
  type BreakerOptions,
  CircuitBreaker,
} from '../../src/upstream/breaker/circuit-breaker.ts';
import type { BreakerRejection, Permit, ResultClass } from '../../src/upstream/breaker/permit.ts';

const SUCCESS: ResultClass = { kind: 'success' };
const FAILURE: ResultClass = { kind: 'failure' };
const NEUTRAL: ResultClass = { kind: 'neutral' };

/** A breaker without jitter, with its clock. */
function setting(options: Partial<BreakerOptions> = {}) {
  const clock = { now: 1_000_000 };
  const states: BreakerChange[] = [];
  const breaker = new CircuitBreaker({
    now: () => clock.now,
    random: () => 0,
    onChange: (state) => states.push(state),
    ...options,
  });
  const permit = () => admitted(breaker.admit());
  const report = (outcome: ResultClass, times = 1) => {
    for (let index = 0; index < times; index += 1) permit().release(outcome);
  };
  return { clock, states, breaker, permit, report };
}

function admitted(admission: Permit | BreakerRejection): Permit {
  if (admission.kind === 'rejection') throw new Error(`refused: ${admission.cause}`);
  return admission;
}

describe('opening', () => {
  test('after five failures in a row, for ten seconds', () => {
    const { clock, breaker, report } = setting();
    report(FAILURE, 4);
    expect(breaker.state).toBe('closed');
    report(FAILURE);
    expect(breaker.state).toBe('open');
    expect(breaker.admit()).toEqual({ kind: 'rejection', cause: 'open', until: clock.now + 10_000 });
  });

  test('a success in between begins the count anew', () => {
    const { breaker, report } = setting();
    report(FAILURE, 4);
    report(SUCCESS);
    report(FAILURE, 4);
    expect(breaker.state).toBe('closed');
  });

  test('when half of at least twenty outcomes in the window failed', () => {
    const { breaker, report } = setting();
    for (let index = 0; index < 9; index += 1) {
      report(SUCCESS);
      report(FAILURE);
    }
    report(SUCCESS);
    expect(breaker.state).toBe('closed');
    report(FAILURE);
    expect(breaker.state).toBe('open');
  });

  test('not for fewer than half', () => {
    const { breaker, report } = setting();
    for (let index = 0; index < 100; index += 1) {
      report(SUCCESS, 2);
      report(FAILURE);
    }
    expect(breaker.state).toBe('closed');
  });

  test('not for failures that have left the window', () => {
    const { clock, breaker, report } = setting();
    for (let index = 0; index < 9; index += 1) {
      report(FAILURE);
      report(SUCCESS);
    }
    clock.now += 30_000;
    // With those from before, 13 of 22 would have failed.
    report(FAILURE, 4);
    expect(breaker.state).toBe('closed');
  });

  test('never by limits, nor by what says nothing about the target', () => {
    const { clock, breaker, report } = setting();
    for (let index = 0; index < 100; index += 1) {
      report({ kind: 'limited', retryAfterMs: 100 });
      clock.now += 100;
      report(NEUTRAL);
    }
    expect(breaker.snapshot()).toMatchObject({ state: 'closed', failures: 0, inFlight: 0 });
  });

  test('limits and neutral outcomes do not interrupt a row of failures', () => {
    const { breaker, report } = setting();
    report(FAILURE, 4);
    report(NEUTRAL);
    report(FAILURE);
    expect(breaker.state).toBe('open');
  });

  test('failures that were under way when it opened do not lengthen the cool-down', () => {
    const { clock, breaker, permit } = setting();
    const permits = Array.from({ length: 200 }, permit);
    for (const each of permits.slice(0, 5)) each.release(FAILURE);
    const refusal = breaker.rejection();
    clock.now += 9000;
    for (const each of permits.slice(5)) each.release(FAILURE);
    expect(breaker.rejection()).toEqual(refusal);
    expect(breaker.inFlight).toBe(0);
  });

  test('what was sent before it closed again does not count against it', () => {
    const { clock, breaker, permit, report } = setting();
    const old = Array.from({ length: 50 }, permit);
    report(FAILURE, 5);
    clock.now += 10_000;
    report(SUCCESS);
    for (const each of old) each.release(FAILURE);
    expect(breaker.state).toBe('closed');
  });
});

describe('half-open', () => {
  function opened(options: Partial<BreakerOptions> = {}) {
    const all = setting(options);
    all.report(FAILURE, 5);
    all.clock.now += 10_000;
    return all;
  }

  test('lets exactly one through, and its success closes', () => {
    const { states, breaker, permit } = opened();
    const probe = permit();
    expect(probe.probe).toBe(true);
    expect(breaker.state).toBe('half_open');
    for (let index = 0; index < 10; index += 1) {
      expect(breaker.admit()).toMatchObject({ kind: 'rejection', cause: 'probing' });
    }
    probe.release(SUCCESS);
    expect(breaker.state).toBe('closed');
    expect(permit().probe).toBe(false);
    expect(states).toEqual(['open', 'half_open', 'closed']);
  });

  test('its failure opens for twice as long, up to a minute, and closing forgets that', () => {
    const { clock, breaker, report } = opened();
    for (const wait of [20_000, 40_000, 60_000, 60_000]) {
      report(FAILURE);
      expect(breaker.rejection()).toMatchObject({ cause: 'open', until: clock.now + wait });
      clock.now += wait;
    }
    report(SUCCESS);
    report(FAILURE, 5);
    expect(breaker.rejection()).toMatchObject({ until: clock.now + 10_000 });
  });

  test('chance shortens the cool-down by up to a fifth', () => {
    const { clock, breaker, report } = setting({ random: () => 0.999_999 });
    report(FAILURE, 5);
    const wait = (breaker.rejection()?.until ?? 0) - clock.now;
    expect(wait).toBeGreaterThanOrEqual(8000);
    expect(wait).toBeLessThan(8001);
  });

  test.each([NEUTRAL, { kind: 'limited' } as const])(
    'a probe that ended $kind gives its place back',
    (outcome) => {
      const { clock, breaker, permit } = opened();
      permit().release(outcome);
      clock.now += 1000;
      expect(breaker.state).toBe('half_open');
      expect(permit().probe).toBe(true);
    },
  );

  test('the first output of a probe closes, long before its end', () => {
    const { breaker, permit } = opened();
    const probe = permit();
    probe.answered();
    expect(breaker.state).toBe('closed');
    const other = permit();
    // The end still counts, as that of any other request.
    probe.release(FAILURE);
    expect(breaker.snapshot()).toMatchObject({ state: 'closed', failures: 1, inFlight: 1 });
    other.release(SUCCESS);
  });

  test('a probe without output for 10 s does not keep others away, and its output still closes', () => {
    const { clock, breaker, permit } = opened();
    const thinking = permit();
    clock.now += 9_999;
    expect(breaker.rejection()).toMatchObject({ cause: 'probing' });
    clock.now += 1;
    const second = permit();
    expect([second.probe, breaker.rejection()]).toMatchObject([true, { cause: 'probing' }]);
    second.release(NEUTRAL);
    thinking.answered();
    expect(breaker.state).toBe('closed');
  });

  test('a permit counts once, however often it is released', () => {
    const { breaker, permit } = opened();
    const probe = permit();
    probe.release(NEUTRAL);
    const next = permit();
    probe.release(SUCCESS);
    probe.answered();
    expect(breaker.snapshot()).toMatchObject({ state: 'half_open', inFlight: 1 });
    next.release(SUCCESS);
    expect(breaker.snapshot()).toMatchObject({ state: 'closed', inFlight: 0 });
  });
});

describe('a target that asked to be left alone', () => {
  test('is, until then, by all', () => {
    const { clock, breaker, permit, report } = setting();
    const underWay = permit();
    report({ kind: 'limited', retryAfterMs: 5000 });
    const until = clock.now + 5000;
    underWay.release(SUCCESS);
    expect(breaker.admit()).toEqual({ kind: 'rejection', cause: 'limit', until });
    expect(breaker.force()).toEqual({ kind: 'rejection', cause: 'limit', until });
    clock.now += 4999;
    expect(breaker.rejection()).toBeDefined();
    clock.now += 1;
    expect(breaker.rejection()).toBeUndefined();
  });

  test('but not for longer than a minute', () => {
    const { clock, breaker, report } = setting();
    report({ kind: 'limited', retryAfterMs: 86_400_000 });
    expect(breaker.rejection()?.until).toBe(clock.now + 59_999);
  });

  test.each([undefined, 0, -5, Number.NaN])(
    'after a 429 that says %s, for a second, unless there is no other',
    (ms) => {
      const { clock, breaker, report } = setting();
      report(ms === undefined ? { kind: 'limited' } : { kind: 'limited', retryAfterMs: ms });
      expect(breaker.admit()).toMatchObject({ cause: 'limit', until: clock.now + 1000 });
      expect(breaker.force().kind).toBe('permit');
    },
  );

  test('a failure may ask for it too, and counts as one', () => {
    const { clock, breaker, report } = setting();
    report({ kind: 'failure', retryAfterMs: 3000 });
    expect(breaker.force()).toEqual({ kind: 'rejection', cause: 'pause', until: clock.now + 3000 });
    expect(breaker.snapshot().failures).toBe(1);
  });

  test('the latest time holds, and what the target said goes before a guess', () => {
    const { clock, breaker, permit } = setting();
    const [one, two, three, four] = [permit(), permit(), permit(), permit()];
    const start = clock.now;
    one.release({ kind: 'limited' });
    two.release({ kind: 'limited', retryAfterMs: 500 });
    expect(breaker.force()).toMatchObject({ until: start + 500 });
    three.release({ kind: 'limited', retryAfterMs: 200 });
    four.release({ kind: 'limited' });
    expect(breaker.force()).toMatchObject({ until: start + 500 });
  });

  test('of an open breaker and a rest, the longer one is the reason', () => {
    const { clock, breaker, permit, report } = setting();
    const [one, two] = [permit(), permit()];
    report(FAILURE, 5);
    one.release({ kind: 'limited', retryAfterMs: 2000 });
    expect(breaker.rejection()).toMatchObject({ cause: 'open', until: clock.now + 10_000 });
    two.release({ kind: 'limited', retryAfterMs: 30_000 });
    expect(breaker.rejection()).toMatchObject({ cause: 'limit', until: clock.now + 30_000 });
  });
});

describe('without another target', () => {
  test('an open breaker lets through; success closes it, failure changes nothing', () => {
    const { breaker, report } = setting();
    report(FAILURE, 5);
    const refusal = breaker.rejection();
    const [one, two] = [admitted(breaker.force()), admitted(breaker.force())];
    one.release(FAILURE);
    expect(breaker.rejection()).toEqual(refusal);
    two.release(SUCCESS);
    expect(breaker.state).toBe('closed');
  });

  test('once the cool-down is over, the first to be forced is the probe', () => {
    const { clock, breaker, report } = setting();
    report(FAILURE, 5);
    clock.now += 10_000;
    const [one, two] = [admitted(breaker.force()), admitted(breaker.force())];
    expect([one.probe, two.probe]).toEqual([true, false]);
    two.release(SUCCESS);
    one.release(FAILURE);
    expect(breaker.state).toBe('closed');
  });
});

describe('the end of a cool-down is reported once', () => {
  test('of an open breaker without requests, and not again by the probe', () => {
    const { clock, states, breaker, permit, report } = setting();
    report(FAILURE, 5);
    clock.now += 9999;
    expect([breaker.observe(), states]).toEqual([true, ['open']]);
    clock.now += 1;
    expect([breaker.observe(), breaker.observe()]).toEqual([false, false]);
    permit().release(FAILURE);
    expect(states).toEqual(['open', 'half_open', 'open']);
    clock.now += 20_000;
    permit().release(SUCCESS);
    expect([breaker.observe(), states.slice(3)]).toEqual([false, ['half_open', 'closed']]);
  });

  test('of a wait, also when it became longer', () => {
    const { clock, states, breaker, permit } = setting();
    const [one, other] = [permit(), permit()];
    one.release({ kind: 'limited', retryAfterMs: 1000 });
    other.release({ kind: 'limited', retryAfterMs: 3000 });
    clock.now += 2999;
    expect([breaker.observe(), states]).toEqual([true, ['cooling_down']]);
    clock.now += 1;
    expect([breaker.observe(), breaker.observe()]).toEqual([false, false]);
    permit().release({ kind: 'limited' });
    clock.now += 1000;
    permit().release(SUCCESS);
    expect(states).toEqual(['cooling_down', 'cooled_down', 'cooling_down', 'cooled_down']);
  });
});

test('it is pristine when there is nothing to remember', () => {
  const { clock, breaker, permit, report } = setting();
  expect(breaker.isPristine).toBe(true);
  const out = permit();
  expect(breaker.isPristine).toBe(false);
  out.release(NEUTRAL);
  expect(breaker.isPristine).toBe(true);
  report({ kind: 'limited', retryAfterMs: 10 });
  expect(breaker.isPristine).toBe(false);
  clock.now += 10;
  expect(breaker.isPristine).toBe(true);
  report(FAILURE);
  report(SUCCESS);
  expect(breaker.isPristine).toBe(false);
  clock.now += 30_000;
  expect(breaker.isPristine).toBe(true);
  // Of a row of failures no time takes anything away.
  report(FAILURE);
  clock.now += 30_000;
  expect(breaker.isPristine).toBe(false);
  report(SUCCESS);
  expect(breaker.isPristine).toBe(true);
});

/** What the commands below know: the clock, and the permits that they hold. */
interface Model {
  readonly clock: { now: number };
  readonly out: { readonly permit: Permit; readonly since: number; readonly at: number }[];
  readonly done: Permit[];
  /** Grows while the breaker is closed: a probe from before that decides nothing any more. */
  closings: number;
}

class Command implements fc.Command<Model, CircuitBreaker> {
  readonly #name: string;
  readonly #act: (model: Model, breaker: CircuitBreaker) => void;

  constructor(name: string, act: (model: Model, breaker: CircuitBreaker) => void) {
    this.#name = name;
    this.#act = act;
  }

  check(): boolean {
    return true;
  }

  run(model: Model, breaker: CircuitBreaker): void {
    this.#act(model, breaker);
    if (breaker.state === 'closed') model.closings += 1;
    const { clock, out, closings } = model;
    const probes = out.filter(({ permit, since }) => permit.probe && since === closings);
    // One that has been thought about for long keeps nobody away.
    expect(probes.filter(({ at }) => clock.now < at + 10_000).length).toBeLessThan(2);
    expect(breaker.inFlight).toBe(out.length);
    if (breaker.state === 'open') expect(breaker.rejection()).toBeDefined();
  }

  toString(): string {
    return this.#name;
  }
}

function take({ clock, out, closings }: Model, admission: Permit | BreakerRejection): void {
  if (admission.kind === 'permit') out.push({ permit: admission, since: closings, at: clock.now });
  else {
    expect(admission.until).toBeGreaterThan(clock.now);
    expect(admission.until).toBeLessThanOrEqual(clock.now + 60_000);
  }
}

const admit = new Command('admit', (model, breaker) => {
  const [before, refusal] = [breaker.state, breaker.rejection()];
  const admission = breaker.admit();
  expect(admission.kind).toBe(refusal === undefined ? 'permit' : 'rejection');
  // An open breaker lets nobody through, and a half-open one only a probe.
  if (before === 'open') expect(admission.kind).toBe('rejection');
  if (admission.kind === 'permit') expect(admission.probe).toBe(before !== 'closed');
  take(model, admission);
});

const force = new Command('force', (model, breaker) => {
  take(model, breaker.force());
});

const wait = (ms: number) =>
  new Command(`wait ${ms}`, ({ clock }) => {
    clock.now += ms;
  });

const answer = (which: number) =>
  new Command(`answered ${which}`, ({ out }) => {
    out[which % Math.max(1, out.length)]?.permit.answered();
  });

const release = (which: number, outcome: ResultClass) =>
  new Command(`release ${which} ${JSON.stringify(outcome)}`, ({ out, done }) => {
    const [taken] = out.splice(which % Math.max(1, out.length), 1);
    if (taken === undefined) return;
    taken.permit.release(outcome);
    done.push(taken.permit);
    // Twice is once.
    done[which % done.length]?.release(FAILURE);
  });

const anOutcome: fc.Arbitrary<ResultClass> = fc.oneof(
  fc.constantFrom<ResultClass>(SUCCESS, NEUTRAL, FAILURE, FAILURE, FAILURE),
  fc.record({
    kind: fc.constantFrom('failure' as const, 'limited' as const),
    retryAfterMs: fc.oneof(fc.integer({ min: -1, max: 100_000 }), fc.constant(Number.NaN)),
  }),
);

const course = fc.commands(
  [
    fc.constant(admit),
    fc.constant(admit),
    fc.constant(force),
    fc.nat(30_000).map(wait),
    fc.nat(20).map(answer),
    fc.tuple(fc.nat(20), anOutcome).map(([which, outcome]) => release(which, outcome)),
    fc.nat(20).map((which) => release(which, FAILURE)),
  ],
  { size: '+1', maxCommands: 150 },
);

test('for any course of events: one probe at a time, all permits come back, and it never stays open', () => {
  const seen = new Set<BreakerChange>();
  fc.assert(
    fc.property(course, (commands) => {
      const model: Model = { clock: { now: 0 }, out: [], done: [], closings: 0 };
      const breaker = new CircuitBreaker({
        now: () => model.clock.now,
        random: () => 0.5,
        consecutive: 3,
        onChange: (state) => seen.add(state),
      });
      fc.modelRun(() => ({ model, real: breaker }), commands);
      for (const { permit } of model.out) permit.release(NEUTRAL);
      expect(breaker.inFlight).toBe(0);
      model.clock.now += 60_001;
      admitted(breaker.admit()).release(SUCCESS);
      expect(breaker.state).toBe('closed');
      expect(breaker.rejection()).toBeUndefined();
    }),
    { numRuns: 400 },
  );
  // The courses have been everywhere.
  expect([...seen].sort()).toEqual(['closed', 'cooled_down', 'cooling_down', 'half_open', 'open']);
});
