import { describe, expect, test } from 'vitest';
import { HealthProbe, type HealthProbeOptions } from '../../src/upstream/state/health-probe.ts';

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

/** Timers that fire when the test says so. */
class Timers {
  now = 0;
  readonly pending = new Set<Timer>();

  readonly schedule = (run: () => void, ms: number) => {
    const timer = { at: this.now + ms, run };
    this.pending.add(timer);
    return () => void this.pending.delete(timer);
  };

  /** Moves on, fires what is due in its order, and lets promises settle in between. */
  async advance(ms: number): Promise<void> {
    const end = this.now + ms;
    for (;;) {
      await settled();
      const [next] = [...this.pending].sort((a, b) => a.at - b.at);
      if (next === undefined || next.at > end) break;
      this.now = next.at;
      this.pending.delete(next);
      next.run();
    }
    this.now = end;
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

type Answer = number | 'error' | 'silence' | 'throw';

/** A probe every second, deadline 200 ms, without jitter, whose upstream answers as the test says. */
function setting(options: Partial<HealthProbeOptions> = {}) {
  const timers = new Timers();
  const state: { answer: Answer; checks: number; signals: AbortSignal[] } = {
    answer: 200,
    checks: 0,
    signals: [],
  };
  const changes: boolean[] = [];
  const probe = new HealthProbe({
    check: (signal) => {
      state.checks += 1;
      state.signals.push(signal);
      if (state.answer === 'silence') return new Promise(() => {});
      if (state.answer === 'throw') throw new Error('at once');
      return state.answer === 'error' ? Promise.reject(new Error('refused')) : Promise.resolve(state.answer);
    },
    intervalMs: 1000,
    deadlineMs: 200,
    random: () => 0.5,
    schedule: timers.schedule,
    onChange: (healthy) => changes.push(healthy),
    ...options,
  });
  return { timers, state, changes, probe };
}

describe('the health probe', () => {
  test('thinks well of an upstream before it has asked, and asks only when started', async () => {
    const { timers, state, probe } = setting();
    expect(probe.healthy).toBe(true);
    await timers.advance(10_000);
    expect(state.checks).toBe(0);
  });

  test.each<Answer>([503, 404, 301, 'error', 'silence', 'throw'])(
    'two checks in a row that end in %s make it unhealthy, two good ones healthy again',
    async (bad) => {
      const { timers, state, changes, probe } = setting();
      const next = async (answer: Answer) => {
        const before = state.checks;
        state.answer = answer;
        while (state.checks === before) await timers.advance(100);
        // Long enough for the deadline, too short for the next check.
        await timers.advance(300);
        return probe.healthy;
      };
      probe.start();
      expect(await next(bad)).toBe(true);
      expect(await next(204)).toBe(true);
      expect(await next(bad)).toBe(true);
      expect(await next(bad)).toBe(false);
      expect(await next(bad)).toBe(false);
      expect(await next(200)).toBe(false);
      expect(await next(bad)).toBe(false);
      expect(await next(200)).toBe(false);
      expect(await next(200)).toBe(true);
      expect(changes).toEqual([false, true]);
      probe.stop();
    },
  );

  test('checks follow each other at the interval and never overlap', async () => {
    const { timers, state, probe } = setting();
    state.answer = 'silence';
    probe.start();
    await timers.advance(500);
    expect(state.checks).toBe(1);
    // 200 ms until the deadline, 1,000 ms to the next.
    await timers.advance(1199);
    expect(state.checks).toBe(1);
    expect(state.signals[0]?.aborted).toBe(true);
    await timers.advance(1);
    expect(state.checks).toBe(2);
    expect(timers.pending.size).toBe(1);
    probe.stop();
  });

  test.each([
    [0, 800],
    [0.999_999, 1200],
  ])('jitter: chance %s makes an interval of about %s', async (random, interval) => {
    const { timers, state, probe } = setting({ random: () => random });
    probe.start();
    await timers.advance(1000);
    const before = state.checks;
    const [timer] = timers.pending;
    expect(before).toBeGreaterThan(0);
    const lastCheck = random === 0 ? (before - 1) * 800 : 999.999;
    expect((timer?.at ?? 0) - lastCheck).toBeCloseTo(interval, 0);
    probe.stop();
  });

  test('stop ends a wait and a check at once; what comes later changes nothing', async () => {
    let answer: (status: number) => void = () => {};
    const { timers, state, probe, changes } = setting({
      check: (signal) => {
        state.signals.push(signal);
        return new Promise((resolve) => {
          answer = resolve;
        });
      },
    });
    probe.start();
    await timers.advance(500);
    expect(state.signals).toHaveLength(1);
    probe.stop();
    expect(state.signals[0]?.aborted).toBe(true);
    expect(timers.pending.size).toBe(0);
    answer(503);
    await timers.advance(60_000);
    expect(timers.pending.size).toBe(0);
    expect(changes).toEqual([]);
    probe.stop();
  });

  test('an answer after the deadline is not an answer', async () => {
    let answer: (status: number) => void = () => {};
    const { timers, probe } = setting({
      check: () =>
        new Promise((resolve) => {
          answer = resolve;
        }),
    });
    probe.start();
    for (let check = 0; check < 2; check += 1) {
      await timers.advance(check === 0 ? 500 : 1000);
      await timers.advance(200);
      answer(200);
    }
    await timers.advance(0);
    expect(probe.healthy).toBe(false);
    expect(timers.pending.size).toBe(1);
    probe.stop();
  });

  test('starting twice is starting once, and it can start again', async () => {
    const { timers, state, probe } = setting();
    probe.start();
    probe.start();
    expect(timers.pending.size).toBe(1);
    probe.stop();
    probe.start();
    await timers.advance(600);
    expect(state.checks).toBe(1);
    probe.stop();
  });

  test('its own timers do not keep the process alive', () => {
    const probe = new HealthProbe({
      check: () => Promise.resolve(200),
      intervalMs: 60_000,
      random: () => 0.9,
    });
    const active = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    const before = active();
    probe.start();
    expect(active()).toBe(before);
    probe.stop();
  });
});
