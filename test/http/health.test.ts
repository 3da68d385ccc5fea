// Health: its states, and that asking for it costs little however often and however badly the parts behave.
import { afterEach, describe, expect, test, vi } from 'vitest';
import { type CheckState, Health, type HealthOptions } from '../../src/http/admin/health.ts';
import { Served } from './served.ts';

function health(checks: HealthOptions['checks'], draining = false): Health {
  return new Health({ version: '1.2.3', configHash: () => 'abc', draining: () => draining, checks });
}

afterEach(() => {
  vi.useRealTimers();
});

describe('the report', () => {
  test.each<[string, Record<string, CheckState>, boolean, string]>([
    ['everything well', { store: 'ok', redis: 'ok' }, false, 'ok'],
    ['one part degraded', { store: 'ok', redis: 'degraded' }, false, 'degraded'],
    ['one part failed', { store: 'failed', redis: 'degraded' }, false, 'failed'],
    ['a drain', { store: 'ok' }, true, 'draining'],
    ['a drain with a failed part', { store: 'failed' }, true, 'draining'],
    ['no parts', {}, false, 'ok'],
  ])('for %s', async (_what, states, draining, status) => {
    const checks = Object.fromEntries(Object.entries(states).map(([name, state]) => [name, () => state]));
    expect(await health(checks, draining).report()).toEqual({
      status,
      version: '1.2.3',
      uptime_s: expect.any(Number),
      config_hash: 'abc',
      checks: states,
    });
  });

  test('calls a part that fails to answer degraded', async () => {
    const report = await health({
      store: () => Promise.reject(new Error('away')),
      redis: () => {
        throw new Error('away');
      },
    }).report();
    expect(report).toMatchObject({ status: 'degraded', checks: { store: 'degraded', redis: 'degraded' } });
  });

  test('does not wait for a part that hangs, and does not ask it again meanwhile', async () => {
    vi.useFakeTimers();
    let asked = 0;
    let answer = (_state: CheckState): void => undefined;
    const subject = health({
      store: () => {
        asked += 1;
        return new Promise<CheckState>((resolve) => {
          answer = resolve;
        });
      },
    });
    for (let i = 0; i < 5; i += 1) {
      const report = subject.report();
      await vi.advanceTimersByTimeAsync(2_000);
      expect(await report).toMatchObject({ status: 'degraded', checks: { store: 'degraded' } });
    }
    expect(asked).toBe(1);
    answer('ok');
    await vi.advanceTimersByTimeAsync(2_000);
    const report = subject.report();
    expect(asked).toBe(2);
    answer('ok');
    expect(await report).toMatchObject({ status: 'ok' });
  });

  test('asks the parts once a second, however many want to know', async () => {
    vi.useFakeTimers();
    let asked = 0;
    const subject = health({
      store: () => {
        asked += 1;
        return 'ok';
      },
    });
    await Promise.all(Array.from({ length: 1_000 }, () => subject.report()));
    expect(asked).toBe(1);
    await vi.advanceTimersByTimeAsync(1_100);
    await subject.report();
    expect(asked).toBe(2);
  });
});

describe('on the wire', () => {
  test.each<[CheckState, number]>([
    ['ok', 200],
    ['degraded', 200],
    ['failed', 503],
  ])('%s is %i', async (state, status) => {
    const subject = health({ store: () => state });
    await using served = await Served.start({
      routes: (server) => server.route('GET', '/healthz', (exchange) => subject.answer(exchange)),
    });
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: '/healthz' });
    expect([response.status, response.header('cache-control')]).toEqual([status, 'no-store']);
    expect(response.json()).toMatchObject({ checks: { store: state } });
  });
});
