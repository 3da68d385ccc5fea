// The upkeep of the usage tables: earlier usage is added to days and months, old rows go, and one process of the fleet does it.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { openStore } from '../../src/store/open.ts';
import { MIGRATIONS } from '../../src/store/schema/migrations.ts';
import type { Store } from '../../src/store/store.ts';
import type { UsageGroup } from '../../src/store/usage-record.ts';
import { UsageUpkeep } from '../../src/usage/usage-upkeep.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { countsOf, earlierUsage, migrateTo, run } from '../store/older.ts';
import { batch, row } from '../store/usage-samples.ts';
import { Told } from './samples.ts';

const DAY = 86_400_000;
const NOW = Date.parse('2030-06-15T12:00:00Z');
const dayAgo = (days: number) => new Date(NOW - days * DAY).toISOString().slice(0, 10);

let dir: TempDir;
let address: StoreAddress;
let store: Store;
let running: UsageUpkeep[];
let forgotten: Record<'hours' | 'days', number>;

beforeEach(async () => {
  dir = await tempDir();
  address = { kind: 'sqlite', path: dir.file('keys.db') };
  running = [];
  forgotten = { hours: 0, days: 0 };
});

afterEach(async () => {
  await Promise.all(running.map((upkeep) => upkeep.stop()));
  await store.close();
  await dir.remove();
});

function start(keep: { keepHours?: number; keepDays?: number } = {}) {
  const told = new Told();
  const upkeep = new UsageUpkeep({
    store: store.usage,
    takeTask: store.billing.takeTask,
    ...keep,
    logger: told.logger,
    metrics: {
      onForgotten: (of, rows) => {
        forgotten[of] += rows;
      },
    },
    now: () => NOW,
    pauses: { step: 1, round: 5 },
  });
  running.push(upkeep);
  upkeep.start();
  return told;
}

const lines = async (by: readonly UsageGroup[]) =>
  (await store.usage.usageReport({ from: '2000', by, limit: 1000 })).map(({ group, sums }) => [
    ...group,
    sums.requests,
  ]);

test('old hours and days are deleted, months stay', async () => {
  store = await openStore(address);
  const days = [1, 40, 99, 100, 101, 399, 401, 402];
  await store.usage.addUsage(batch(days.map((ago) => row({ hour: `${dayAgo(ago)}T05` }))));
  const months = await lines(['month']);
  start();
  await until(async () => forgotten.hours === 4 && forgotten.days === 2, 'old rows to go');
  expect((await lines(['hour'])).map(([hour]) => hour)).toEqual(
    [100, 99, 40, 1].map((ago) => `${dayAgo(ago)}T05`),
  );
  expect((await lines(['day'])).map(([day]) => day)).toEqual([399, 101, 100, 99, 40, 1].map(dayAgo));
  expect(await lines(['month'])).toEqual(months);
  expect(forgotten).toEqual({ hours: 4, days: 2 });
});

test('more or less is kept where the configuration says so', async () => {
  store = await openStore(address);
  await store.usage.addUsage(batch([1, 49, 51, 500].map((ago) => row({ hour: `${dayAgo(ago)}T05` }))));
  start({ keepHours: 50 * DAY, keepDays: 600 * DAY });
  await until(async () => forgotten.hours === 2, 'old rows to go');
  expect(await lines(['day'])).toHaveLength(4);
});

test('usage from before the migration is added first, by one of several processes', async () => {
  await migrateTo(address, MIGRATIONS.slice(0, 8));
  await run(
    address,
    Array.from({ length: 20 }, (_, index) => earlierUsage(`${dayAgo(index * 10)}T05`, 'holder-1', 1)),
  );
  store = await openStore(address);
  start();
  start();
  await until(async () => forgotten.hours > 0, 'the backlog to be added, and old hours to go');
  const total = (table: string) =>
    countsOf(address, `select cast(sum(requests) as bigint) as n from usage_${table}`);
  expect(await total('days')).toEqual([{ n: 20 }]);
  expect(await total('months')).toEqual([{ n: 20 }]);
});

test('a failure is followed by the pause of a round', async () => {
  store = await openStore(address);
  vi.useFakeTimers();
  let tries = 0;
  const upkeep = new UsageUpkeep({
    store: store.usage,
    takeTask: async () => {
      tries += 1;
      throw new Error('away');
    },
    logger: new Told().logger,
    metrics: { onForgotten: () => {} },
    pauses: { step: 1, round: 1000 },
  });
  try {
    upkeep.start();
    await vi.advanceTimersByTimeAsync(1);
    await vi.advanceTimersByTimeAsync(900);
    expect(tries).toBe(1);
    await vi.advanceTimersByTimeAsync(100);
    expect(tries).toBe(2);
  } finally {
    await upkeep.stop();
    vi.useRealTimers();
  }
});

test('a failing store is logged, and tried again', async () => {
  store = await openStore(address);
  const told = start();
  await store.close();
  await until(() => told.log.includes('failed to keep the usage tables in order'), 'the warning');
});
