// Closed months, usage from before there were days and months, and what is kept: in each kind of database.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { openStore } from '../../src/store/open.ts';
import { MIGRATIONS } from '../../src/store/schema/migrations.ts';
import type { Store } from '../../src/store/store.ts';
import type { UsageGroup, UsageQuery } from '../../src/store/usage-record.ts';
import { countsOf, earlierUsage, migrateTo, run } from './older.ts';
import { STORE_KINDS, type StoreSource } from './stores.ts';
import { batch, distinct, row } from './usage-samples.ts';

const BY = { actor: 'cli:alice', reason: null, at: '2030-02-02T00:00:00.000Z' };

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let address: StoreAddress;
  let store: Store;

  beforeAll(async () => {
    source = await start();
  }, timeout);

  afterAll(() => source[Symbol.asyncDispose]());

  beforeEach(async () => {
    address = await source.fresh();
    store = await openStore(address);
  });

  afterEach(() => store.close());

  const at = (time: string, ...rows: Parameters<typeof row>[0][]) =>
    store.usage.addUsage({ ...batch(rows.map(row)), at: time });
  const by = async (groups: readonly UsageGroup[], query: Partial<UsageQuery> = {}) =>
    (await store.usage.usageReport({ from: '2000', by: groups, limit: 1000, ...query })).map(
      ({ group, sums }) => [...group, sums.requests],
    );

  describe('a closed month', () => {
    test('does not change by later usage of an earlier one, from a process whose clock is behind', async () => {
      const last = '2030-02-28T23:59:59.000Z';
      await at(last, { hour: '2030-01-31T23' }, { hour: '2030-02-28T23' });
      for (const month of ['2030-01', '2030-02']) await store.usage.closeMonth(month, BY);
      expect(await at(last, { hour: '2030-01-31T23' })).toBe('late');
      expect(await by(['month'])).toEqual([
        ['2030-01', 1],
        ['2030-02', 1],
        ['2030-03', 1],
      ]);
      expect(await store.usage.months()).toMatchObject([
        { month: '2030-01', late: { requests: 1 } },
        { month: '2030-02', late: { requests: 0 } },
        { month: '2030-03', closedAt: null },
      ]);
      expect(await at(last, { hour: '2030-03-01T00' })).toBe('written');
    });

    test('does not change any more: later usage of it is booked in the hour of its batch, and noted', async () => {
      await at('2030-01-31T23:59:59.000Z', { hour: '2030-01-31T23', sums: { cost: 5 } });
      expect(await store.usage.closeMonth('2030-01', BY)).toBe('closed');
      expect(await store.usage.closeMonth('2030-01', BY)).toBe('already');
      const rows = await store.usage.monthRows('2030-01', 10);
      const late = batch([
        row({ hour: '2030-01-31T23', sums: { cost: 7 } }),
        row({ hour: '2030-02-02T03', sums: { cost: 9 } }),
      ]);
      expect(await store.usage.addUsage({ ...late, at: '2030-02-02T03:04:05.000Z' })).toBe('late');
      expect(await store.usage.addUsage({ ...late, at: '2030-02-02T04:04:05.000Z' })).toBe('known');
      expect(await store.usage.monthRows('2030-01', 10)).toEqual(rows);
      expect(await by(['hour'])).toEqual([
        ['2030-01-31T23', 1],
        ['2030-02-02T03', 2],
      ]);
      expect(await by(['day'])).toEqual([
        ['2030-01-31', 1],
        ['2030-02-02', 2],
      ]);
      expect(await store.usage.months()).toMatchObject([
        { month: '2030-01', closedAt: BY.at, late: { requests: 1, cost: 7n } },
        { month: '2030-02', closedAt: null, late: { requests: 0, cost: 0n } },
      ]);
    });

    test('takes nothing from a process whose clock is behind', async () => {
      await at('2030-01-31T23:59:59.000Z', { hour: '2030-01-31T23' });
      await store.usage.closeMonth('2030-01', BY);
      expect(await at('2030-01-31T23:59:59.000Z', { hour: '2030-01-31T23' })).toBe('late');
      expect(await by(['hour'])).toEqual([
        ['2030-01-31T23', 1],
        ['2030-02-01T00', 1],
      ]);
    });

    test('takes nothing from an earlier version either', async () => {
      await at('2030-01-31T23:59:59.000Z', { hour: '2030-01-31T23' });
      await store.usage.closeMonth('2030-01', BY);
      await run(address, [earlierUsage('2030-01-31T23', 'holder-1', 1)]);
      const months = await by(['month']);
      expect(months).toContainEqual(['2030-01', 1]);
      // The other is the month of the test.
      expect(months).toHaveLength(2);
    });

    test('is open again after it was reopened, with its history', async () => {
      expect(await store.usage.reopenMonth('2030-01', BY)).toBe('open');
      await store.usage.closeMonth('2030-01', BY);
      await store.usage.setDigest('2030-01', 'abc');
      const why = { actor: 'cli:bob', reason: 'a bill was wrong', at: '2030-02-03T00:00:00.000Z' };
      expect(await store.usage.reopenMonth('2030-01', why)).toBe('reopened');
      expect(await at('2030-02-03T01:00:00.000Z', { hour: '2030-01-05T00' })).toBe('written');
      expect(await store.usage.months()).toMatchObject([
        {
          closedAt: null,
          digest: null,
          events: [
            { what: 'closed', actor: 'cli:alice' },
            { what: 'reopened', ...why, digest: 'abc' },
          ],
        },
      ]);
    });

    test('is either closed before a batch or has it, whichever is first', async () => {
      const other = await openStore(address);
      const writes = Array.from({ length: 10 }, (_, index) =>
        (index % 2 ? store : other).usage.addUsage({
          ...batch([row({ hour: '2030-01-31T23', holderId: `h${index}` })]),
          at: '2030-02-02T00:00:00.000Z',
        }),
      );
      await writes[0];
      const closed = store.usage.closeMonth('2030-01', BY);
      const outcomes = await Promise.all(writes);
      expect(await closed).toBe('closed');
      await other.close();
      const inTime = outcomes.filter((outcome) => outcome === 'written').length;
      expect(await by(['month'], { to: '2030-01-31' })).toEqual([['2030-01', inTime]]);
      expect((await store.usage.months())[0]?.late.requests).toBe(10 - inTime);
    });

    test('has its rows page by page in the order of their texts', async () => {
      const models = ['b', 'a', 'Z', 'ü', '😀', ''];
      await at('2030-01-31T23:59:59.000Z', ...models.map((model) => ({ model, sums: distinct() })));
      const all = await store.usage.monthRows('2030-01', 100);
      expect(all.map(({ texts }) => texts[2])).toEqual(['', 'Z', 'a', 'b', 'ü', '😀']);
      const [first, second] = [
        await store.usage.monthRows('2030-01', 4),
        await store.usage.monthRows('2030-01', 4, all[3]?.texts),
      ];
      expect([...first, ...second]).toEqual(all);
      expect(all[0]?.sums).toMatchObject({ requests: 1n, cost: 10n });
    });
  });

  describe('usage from before the migration', () => {
    beforeEach(async () => {
      address = await source.empty();
      await store.close();
      await migrateTo(address, MIGRATIONS.slice(0, 8));
      await run(address, [
        `insert into teams (id, name, terms, version, created_at) values ('t', 'search', '{}', 1, '2030')`,
        `insert into holders (id, tier, created_at, team_id) values ('h1', 'Pro', '2030', 't')`,
        earlierUsage('2029-12-31T23', 'h1', 1),
        earlierUsage('2030-01-02T03', 'h1', 10),
        earlierUsage('2030-01-02T04', 'h1', 100),
        earlierUsage('2030-01-02T04', 'gone', 7),
      ]);
      store = await openStore(address);
    });

    const rollUp = async () => {
      for (let steps = 0; await store.usage.rollUp(); steps += 1) if (steps > 100) throw new Error('endless');
    };

    test('is in reports before it is added to days and months, and the same afterwards', async () => {
      // Both versions go on meanwhile.
      await run(address, [earlierUsage('2030-01-02T04', 'h1', 1000)]);
      await at('2030-01-02T04:00:00.000Z', {
        hour: '2030-01-02T04',
        holderId: 'h1',
        prefix: '0123abcd',
        teamId: 't',
        tier: 'Pro',
        sums: distinct(10_000),
      });
      const seen = async () => [
        await by(['month', 'team', 'tier']),
        await by(['day', 'holder']),
        await by([], { teamId: 't' }),
        await by(['hour']),
      ];
      const expected = [
        [
          ['2029-12', 't', 'Pro', 1],
          ['2030-01', '', '', 7],
          ['2030-01', 't', 'Pro', 11_110],
        ],
        [
          ['2029-12-31', 'h1', 1],
          ['2030-01-02', 'gone', 7],
          ['2030-01-02', 'h1', 11_110],
        ],
        [[11_111]],
        [
          ['2029-12-31T23', 1],
          ['2030-01-02T03', 10],
          ['2030-01-02T04', 11_107],
        ],
      ];
      expect(await seen()).toEqual(expected);
      expect(await store.usage.closeMonth('2030-01', BY)).toBe('backlog');
      await store.usage.rollUp();
      expect(await seen()).toEqual(expected);
      await rollUp();
      expect(await seen()).toEqual(expected);
      expect(await by(['target', 'endpoint'])).toEqual([
        ['', '', 1118],
        ['gpt-1', 'chat', 10_000],
      ]);
      expect(await store.usage.rollUp()).toBe(false);
      expect(await store.usage.closeMonth('2030-01', BY)).toBe('closed');
      const total = (table: string) =>
        countsOf(address, `select cast(sum(cost) as bigint) as cost from usage_${table}`);
      expect(await total('days')).toEqual(await total('hours'));
      expect(await total('months')).toEqual(await total('hours'));
    });

    test('is added once by many processes, while batches arrive', async () => {
      const other = await openStore(address);
      await Promise.all([
        rollUp(),
        (async () => {
          while (await other.usage.rollUp());
        })(),
        ...Array.from({ length: 10 }, (_, index) =>
          at('2030-01-02T04:00:00.000Z', {
            hour: `2030-01-02T0${index % 5}`,
            holderId: 'h1',
            teamId: 't',
            sums: distinct(10_000),
          }),
        ),
      ]);
      await other.close();
      expect(await by(['month', 'team'])).toEqual([
        ['2029-12', 't', 1],
        ['2030-01', '', 7],
        ['2030-01', 't', 100_110],
      ]);
    });

    test('stays in hours while it is nowhere else', async () => {
      expect(await store.usage.forgetUsage('hours', '2031-01-01', 100)).toBe(0);
      await rollUp();
      expect(await store.usage.forgetUsage('hours', '2031-01-01', 100)).toBe(4);
      expect(await by(['month'])).toEqual([
        ['2029-12', 1],
        ['2030-01', 117],
      ]);
    });
  });

  test('hours and days are forgotten by age, a bounded number at a time; months stay', async () => {
    const hours = ['2029-12-30T10', '2029-12-30T11', '2029-12-31T10', '2030-01-01T00'];
    await at('2030-01-01T00:00:00.000Z', ...hours.map((hour) => ({ hour })));
    expect(await store.usage.usageKept()).toEqual({ hours: '', days: '' });
    expect(await store.usage.forgetUsage('hours', '2030-01-01', 2)).toBe(2);
    expect(await store.usage.usageKept()).toEqual({ hours: '2030-01-01', days: '' });
    expect(await store.usage.forgetUsage('hours', '2030-01-01', 2)).toBe(1);
    expect(await store.usage.forgetUsage('days', '2029-12-31', 10)).toBe(1);
    // Never back: what is gone is gone.
    expect(await store.usage.forgetUsage('days', '2029-12-01', 10)).toBe(0);
    expect(await store.usage.usageKept()).toEqual({ hours: '2030-01-01', days: '2029-12-31' });
    expect(await by(['hour'])).toEqual([['2030-01-01T00', 1]]);
    expect(await by(['day'])).toEqual([
      ['2029-12-31', 1],
      ['2030-01-01', 1],
    ]);
    expect(await by(['month'])).toEqual([
      ['2029-12', 3],
      ['2030-01', 1],
    ]);
  });

  test('sums of any size are exact, of lines and in total', async () => {
    const max = Number.MAX_SAFE_INTEGER;
    const rows = Array.from({ length: 1300 }, (_, index) =>
      row({ model: `m${index}`, sums: { cost: max - index } }),
    );
    for (let from = 0; from < rows.length; from += 400) {
      const some = rows.slice(from, from + 400);
      await store.usage.addUsage(batch(some));
      await store.usage.addUsage(batch(some));
    }
    const expected = rows.reduce((total, { sums }) => total + BigInt(sums.cost), 0n);
    const total = async (by: readonly UsageGroup[]) =>
      (await store.usage.exactReport({ from: '2000', by, limit: 5000 })).reduce(
        (sum, { sums }) => sum + sums.cost,
        0n,
      );
    expect(await total([])).toBe(2n * expected);
    expect(await total(['model'])).toBe(2n * expected);
  });
});
