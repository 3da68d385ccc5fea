// The drains that a process knows: from the store, while it is away, and until their time is over.
import { expect, test } from 'vitest';
import type { UpstreamDrain } from '../../src/store/upstream-record.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { Drains } from '../../src/upstream/state/drains.ts';
import { collector } from '../cli/collector.ts';
import { logLines } from '../helpers/upstream-states.ts';
import { until } from '../helpers/wait.ts';

const row = (upstream: string, given: Partial<UpstreamDrain> = {}): UpstreamDrain => ({
  upstream,
  at: '2030-01-31T00:00:00.000Z',
  until: null,
  actor: 'ann',
  reason: null,
  ...given,
});

/** Drains on a store that a test fills and stops. */
function setting() {
  const store = { rows: [] as UpstreamDrain[], isAway: false, reads: 0, expired: [] as string[] };
  const written = collector();
  const lines = () => logLines(written.text()).map(({ upstream, msg }) => `${upstream}: ${msg}`);
  const drains = new Drains({
    store: {
      drains: async () => {
        store.reads += 1;
        if (store.isAway) throw new Error('away');
        return [...store.rows];
      },
      expire: async ({ upstream }) => {
        store.expired.push(upstream);
        store.rows = store.rows.filter((each) => each.upstream !== upstream);
      },
    },
    logger: createLogger(written.stream),
    intervalMs: 5,
  });
  return { store, drains, lines };
}

test('are those of the store, each change with one line', async () => {
  const { store, drains, lines } = setting();
  store.rows = [row('a')];
  await drains.start();
  expect([drains.of('a')?.actor, drains.of('b')]).toEqual(['ann', undefined]);
  store.rows = [row('a'), row('b')];
  await until(() => drains.of('b') !== undefined, 'the poll');
  store.rows = [row('b'), row('c', { reason: 'why' })];
  await drains.refresh();
  expect([drains.of('a'), drains.of('c')?.reason]).toEqual([undefined, 'why']);
  await drains.refresh();
  await drains.stop();
  expect(lines()).toEqual([
    'a: upstream drained; it gets no new requests',
    'b: upstream drained; it gets no new requests',
    'c: upstream drained; it gets no new requests',
    'a: upstream resumed; it gets requests again',
  ]);
});

test('stay while the store is away, and end on time nevertheless', async () => {
  const { store, drains, lines } = setting();
  store.rows = [row('a'), row('b', { until: new Date(Date.now() + 300).toISOString() })];
  await drains.start();
  store.isAway = true;
  await expect(drains.refresh()).rejects.toThrow('away');
  expect([drains.of('a'), drains.of('b')]).toMatchObject([{ actor: 'ann' }, { actor: 'ann' }]);
  await until(() => drains.of('b') === undefined, 'the end of the time');
  await until(() => lines().length === 3, 'its line');
  expect(lines()[2]).toMatch(/^b: upstream resumed, because the time of its drain is over/);
  expect([drains.of('a')?.actor, store.expired]).toEqual(['ann', []]);
  store.isAway = false;
  await until(() => store.expired.includes('b'), 'the end in the store');
  await drains.stop();
  expect(lines()).toHaveLength(3);
});

test('whose time was over before the start are none', async () => {
  const { store, drains, lines } = setting();
  store.rows = [row('a', { until: new Date(Date.now() - 1).toISOString() })];
  await drains.start();
  await drains.stop();
  expect([drains.of('a'), store.expired, lines()]).toEqual([undefined, ['a'], []]);
});

test('an unavailable store at the start is an error', async () => {
  const { store, drains } = setting();
  store.isAway = true;
  await expect(drains.start()).rejects.toThrow('away');
});
