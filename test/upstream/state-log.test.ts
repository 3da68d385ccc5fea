// Reports of state changes: one line and one event each, limited for each upstream, and no key in them.
import { hostname } from 'node:os';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { UpstreamEvent } from '../../src/store/upstream-record.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { StateLog } from '../../src/upstream/state/state-log.ts';
import { collector } from '../cli/collector.ts';
import { logLines } from '../helpers/upstream-states.ts';

function setting() {
  const clock = { now: 0 };
  const store = { events: [] as Omit<UpstreamEvent, 'id'>[], isAway: false };
  const written = collector();
  const lines = () => logLines(written.text());
  const log = new StateLog({
    store: {
      async addEvents(events) {
        if (store.isAway) throw new Error('away');
        store.events.push(...events);
      },
    },
    logger: createLogger(written.stream),
    now: () => clock.now,
  });
  return { clock, store, lines, log };
}

test('a change is a line with its reason, and an event', async () => {
  const { store, lines, log } = setting();
  const key = 'ab'.repeat(16);
  log.report({
    upstream: 'u',
    model: `m-${key}`,
    what: 'cooling_down',
    reason: 'upstream_rate_limited',
    ms: 1500.5,
  });
  log.report({ upstream: 'u', what: 'healthy', reason: '2 checks in a row succeeded' });
  await log.close();
  expect(lines()).toMatchObject([
    { level: 'warn', upstream: 'u', reason: 'upstream_rate_limited', for_ms: 1501 },
    { level: 'info', upstream: 'u', reason: '2 checks in a row succeeded' },
  ]);
  for (const line of lines()) expect(line).not.toHaveProperty('suppressed');
  expect(store.events).toMatchObject([
    { upstream: 'u', what: 'cooling_down', reason: 'upstream_rate_limited', actor: null },
    { upstream: 'u', what: 'healthy', model: null },
  ]);
  expect(JSON.stringify([lines(), store.events])).not.toContain(key);
});

test.each([
  ['breaker open', 'warn', 'circuit breaker opened; requests go to other targets'],
  ['breaker half_open', 'info', 'circuit breaker half open'],
  ['breaker closed', 'info', 'circuit breaker closed; the target gets requests again'],
  ['cooling_down', 'warn', 'target in a cool-down, because it is rate limited or asked for a wait'],
  ['cooled_down', 'info', 'cool-down of a target is over'],
  ['unhealthy', 'warn', 'health check of an upstream fails; its targets are tried last'],
  ['disabled', 'info', 'upstream disabled; it gets no new requests'],
  ['enabled', 'info', 'upstream enabled; it gets requests again'],
  ['healthy', 'info', 'health check of an upstream succeeds again'],
] as const)('the change %s is written within a second', async (what, level, msg) => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const { store, lines, log } = setting();
  log.report({ upstream: 'u', what, reason: 'why' });
  await vi.advanceTimersByTimeAsync(999);
  expect(store.events).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(store.events).toMatchObject([{ what, replica: `${hostname()}:${process.pid}` }]);
  log.report({ upstream: 'u', what, reason: 'again' });
  await vi.advanceTimersByTimeAsync(1000);
  expect(store.events).toHaveLength(2);
  expect(lines()[0]).toMatchObject({ level, msg });
});

test('an upstream that flaps is limited, another one is not', async () => {
  const { clock, store, lines, log } = setting();
  for (let each = 0; each < 100; each += 1) log.report({ upstream: 'u', what: 'unhealthy', reason: 'x' });
  log.report({ upstream: 'v', what: 'unhealthy', reason: 'x' });
  expect(lines()).toHaveLength(21);
  clock.now += 3000;
  for (let each = 0; each < 2; each += 1) log.report({ upstream: 'u', what: 'healthy', reason: 'x' });
  expect(lines()).toHaveLength(22);
  expect(lines().at(-1)).toMatchObject({ upstream: 'u', suppressed: 80 });
  await log.close();
  expect(store.events).toHaveLength(22);
});

test('events of a moment without the store are written later, up to a bound', async () => {
  const { clock, store, log } = setting();
  store.isAway = true;
  for (let each = 0; each < 300; each += 1) {
    clock.now += 3000;
    log.report({ upstream: 'u', what: 'healthy', reason: `${each}` });
  }
  await log.close();
  expect(store.events).toEqual([]);
  log.report({ upstream: 'u', what: 'healthy', reason: 'last' });
  store.isAway = false;
  await log.close();
  expect(store.events).toHaveLength(256);
  expect([store.events.at(0)?.reason, store.events.at(-1)?.reason]).toEqual(['45', 'last']);
});
