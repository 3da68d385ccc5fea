// Usage in the store: a batch counts once however often it is sent, and reports are the sums of the batches.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import type { UsageGroup, UsageQuery } from '../../src/store/usage-record.ts';
import { newKey } from './samples.ts';
import { STORE_KINDS, type StoreSource } from './stores.ts';
import { batch, distinct, NOTHING, row } from './usage-samples.ts';

const MAX = Number.MAX_SAFE_INTEGER;

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

  const report = (query: Partial<UsageQuery> = {}) =>
    store.usage.usageReport({ from: '2000', by: [], limit: 100, ...query });
  const by = async (...dimensions: UsageGroup[]) =>
    (await report({ by: dimensions })).map(({ group, sums }) => [...group, sums.requests]);

  describe('a batch', () => {
    test('is added to existing rows, in every column', async () => {
      expect(await store.usage.addUsage(batch([row({ sums: distinct() })]))).toBe('written');
      expect(await store.usage.addUsage(batch([row({ sums: distinct(10) })]))).toBe('written');
      expect(await report()).toEqual([{ group: [], sums: distinct(11) }]);
    });

    test('of many rows lets others have their turn in between', async () => {
      let turns = 0;
      const count = () => {
        turns += 1;
        next = setImmediate(count);
      };
      let next = setImmediate(count);
      const rows = Array.from({ length: 1000 }, (_, index) => row({ holderId: `holder-${index}` }));
      expect(await store.usage.addUsage(batch(rows))).toBe('written');
      clearImmediate(next);
      expect(turns).toBeGreaterThanOrEqual(9);
      expect(await by()).toEqual([[1000]]);
    });

    test('counts once when it is sent again, also to another process', async () => {
      const once = batch([row(), row({ model: 'other' })]);
      expect(await store.usage.addUsage(once)).toBe('written');
      expect(await store.usage.addUsage(once)).toBe('known');
      const other = await openStore(address);
      expect(await other.usage.addUsage(once)).toBe('known');
      await other.close();
      expect(await by('model')).toEqual([
        ['gpt', 1],
        ['other', 1],
      ]);
    });

    test('sent by many at once counts once', async () => {
      const once = batch([row()]);
      const other = await openStore(address);
      const outcomes = await Promise.all(
        Array.from({ length: 20 }, (_, index) => (index % 2 ? store : other).usage.addUsage(once)),
      );
      await other.close();
      expect(outcomes.filter((outcome) => outcome === 'written')).toHaveLength(1);
      expect(await by()).toEqual([[1]]);
    });

    test('that fails leaves nothing, and counts when it is sent again', async () => {
      const id = 'the-batch';
      const bad = batch([row(), row({ model: 'x', sums: { requests: -1 } })], id);
      await expect(store.usage.addUsage(bad)).rejects.toMatchObject({ code: 'store_unavailable' });
      expect(await by()).toEqual([[0]]);
      expect(await store.usage.addUsage(batch([row()], id))).toBe('written');
    });

    test('with rows of many writers is neither lost nor blocked', async () => {
      const models = Array.from({ length: 20 }, (_, index) => `model-${index}`);
      const other = await openStore(address);
      await Promise.all(
        Array.from({ length: 16 }, (_, index) => {
          const rows = models.map((model) => row({ model }));
          // Each in another order.
          const turned = [...rows.slice(index), ...rows.slice(0, index)];
          return (index % 2 ? store : other).usage.addUsage(batch(index % 3 ? turned : turned.reverse()));
        }),
      );
      await other.close();
      expect(await by('model')).toEqual(models.toSorted().map((model) => [model, 16]));
    });

    test('of no rows and of thousands', async () => {
      // More than any batch has, so the statement may take longer than a gateway allows it.
      const patient = await openStore(address, { isPatient: true });
      expect(await patient.usage.addUsage(batch([]))).toBe('written');
      const rows = Array.from({ length: 3000 }, (_, index) => row({ model: `m${index}` }));
      expect(await patient.usage.addUsage(batch(rows))).toBe('written');
      await patient.close();
      expect(await by()).toEqual([[3000]]);
    });

    test('of any number of rows adds each of them to its hour, its day and its month', async () => {
      let index = 0;
      const expected: unknown[] = [];
      for (const count of [1, 7, 8, 9, 63, 64, 65, 73, 138]) {
        const models = Array.from({ length: count }, () => {
          index += 1;
          const model = `m${String(index).padStart(3, '0')}`;
          expected.push({ group: [model], sums: distinct(3 * index) });
          return { model, index };
        });
        const rows = ['2030-01-02T03', '2030-01-02T04'].flatMap((hour, later) =>
          models.map(({ model, index: at }) => row({ hour, model, sums: distinct(at * (later + 1)) })),
        );
        expect(await store.usage.addUsage(batch(rows))).toBe('written');
      }
      const all = await report({ by: ['model'], limit: 1000 });
      expect(all).toEqual(expected);
      // Hours have no upstream's name of the model, and days and months do.
      const target = await report({ by: ['model', 'target'], limit: 1000 });
      expect(target.map(({ sums }) => sums)).toEqual(all.map(({ sums }) => sums));
      const month = await store.usage.monthRows('2030-01', 1000);
      expect(month.map(({ sums }) => Number(sums.ttft_count))).toEqual(
        all.map(({ sums }) => sums.ttft_count),
      );
    });

    test('keeps names as they are', async () => {
      const names = [`it's "quoted"`, 'ünï/cödé:日本', '{"json":1}', '=1+1', '😀', ''];
      await store.usage.addUsage(batch(names.map((model) => row({ model, upstream: 'a\\b' }))));
      expect((await by('model')).map(([model]) => model).sort()).toEqual([...names].sort());
    });

    test('beyond the largest exact number is capped', async () => {
      await store.usage.addUsage(batch([row({ sums: { prompt: MAX - 5, cost: MAX - 5 } })]));
      await store.usage.addUsage(batch([row({ sums: { prompt: 10, cost: 10 } })]));
      await store.usage.addUsage(batch([row({ model: 'other', sums: { prompt: MAX, completion: MAX } })]));
      const [line] = await report();
      expect(line?.sums).toMatchObject({ requests: 3, prompt: MAX, completion: MAX });
      expect(await store.usage.usageOf({ kind: 'holder', id: 'holder-1' }, '2030-01-02')).toEqual({
        requests_per_day: 3,
        tokens_per_day: MAX,
        tokens_per_month: MAX,
        cost_per_day: MAX,
        cost_per_month: MAX,
      });
    });
  });

  test('ids of batches are deleted by age, a bounded number at a time', async () => {
    const old = Array.from({ length: 5 }, () => ({ ...batch([row()]), at: '2030-01-01T00:00:00.000Z' }));
    const young = { ...batch([row()]), at: '2030-01-09T00:00:00.000Z' };
    for (const each of [...old, young]) await store.usage.addUsage(each);
    const before = '2030-01-05T00:00:00.000Z';
    expect(await store.usage.forgetBatches(before, 3)).toBe(3);
    expect(await store.usage.forgetBatches(before, 3)).toBe(2);
    expect(await store.usage.forgetBatches(before, 3)).toBe(0);
    expect(await store.usage.addUsage(young)).toBe('known');
    expect(await by()).toEqual([[6]]);
  });

  describe('a report', () => {
    beforeEach(async () => {
      const hours = ['2029-12-31T23', '2030-01-01T00', '2030-01-01T23', '2030-01-02T00'];
      await store.usage.addUsage(
        batch([
          ...hours.map((hour) => row({ hour })),
          row({ hour: '2030-01-01T05', model: 'b', upstream: 'azure', prefix: 'ffff0000' }),
          row({ hour: '2030-01-01T05', holderId: 'holder-2', prefix: 'aaaa0000' }),
        ]),
      );
    });

    test('groups by each dimension and by several, in order', async () => {
      expect(await by('day')).toEqual([
        ['2029-12-31', 1],
        ['2030-01-01', 4],
        ['2030-01-02', 1],
      ]);
      expect(await by('hour')).toHaveLength(5);
      expect(await by('upstream')).toEqual([
        ['azure', 1],
        ['openai', 5],
      ]);
      expect(await by('key')).toEqual([
        ['0123abcd', 4],
        ['aaaa0000', 1],
        ['ffff0000', 1],
      ]);
      expect(await by('model', 'day')).toEqual([
        ['b', '2030-01-01', 1],
        ['gpt', '2029-12-31', 1],
        ['gpt', '2030-01-01', 3],
        ['gpt', '2030-01-02', 1],
      ]);
    });

    test('starts at a day or an hour, for one holder', async () => {
      const total = async (query: Partial<UsageQuery>) => (await report(query))[0]?.sums.requests;
      expect(await total({ from: '2030-01-01' })).toBe(5);
      expect(await total({ from: '2030-01-01T05' })).toBe(4);
      expect(await total({ holderId: 'holder-1' })).toBe(5);
      expect(await total({ holderId: 'holder-2', from: '2030-01-02' })).toBe(0);
      expect(await total({ holderId: `' or 1=1 --` })).toBe(0);
    });

    test('has at most the requested lines, and zeros without usage', async () => {
      expect(await report({ by: ['hour'], limit: 2 })).toHaveLength(2);
      expect(await report({ from: '2040' })).toEqual([{ group: [], sums: NOTHING }]);
      expect(await report({ from: '2040', by: ['model'] })).toEqual([]);
    });

    test('groups and filters by what the holder and the attempt were then', async () => {
      await store.usage.addUsage(
        batch([
          row({
            hour: '2030-01-02T05',
            holderId: 'h',
            teamId: 't1',
            tier: 'Pro',
            target: 'x',
            endpoint: 'embeddings',
          }),
          row({ hour: '2030-02-02T05', holderId: 'h', teamId: 't2', tier: 'Free', model: 'b' }),
        ]),
      );
      expect(await by('tier')).toEqual([
        ['Free', 1],
        ['Lite', 6],
        ['Pro', 1],
      ]);
      expect(await by('month', 'team', 'endpoint')).toEqual([
        ['2029-12', '', 'chat', 1],
        ['2030-01', '', 'chat', 5],
        ['2030-01', 't1', 'embeddings', 1],
        ['2030-02', 't2', 'chat', 1],
      ]);
      expect(await by('target', 'holder')).toContainEqual(['x', 'h', 1]);
      const total = async (query: Partial<UsageQuery>) => (await report(query))[0]?.sums.requests;
      expect(await total({ tier: 'Pro' })).toBe(1);
      expect(await total({ teamId: 't2' })).toBe(1);
      expect(await total({ model: 'b' })).toBe(2);
      expect(await total({ holderId: 'h', tier: 'Free', from: '2030-02-02' })).toBe(1);
      expect(await total({ teamId: `' or 1=1 --` })).toBe(0);
      expect(await total({ to: '2030-01-01' })).toBe(5);
      expect(await total({ from: '2030-01-02', to: '2030-02-01' })).toBe(2);
      // The first day is whole, because hours know no team.
      expect(await total({ from: '2030-01-02T06', teamId: 't1' })).toBe(1);
      expect(await total({ from: '2030-01-02T06', holderId: 'h' })).toBe(1);
    });

    test('groups and filters by the label of the holder, or else of its team', async () => {
      const by1 = { actor: null, reason: null, at: '2030-01-01T00:00:00.000Z' };
      await store.organisation.addTeam({ id: 't1', name: 'search', terms: {} }, by1, { cost_center: '4711' });
      const labels = { cost_center: '4712' };
      await store.addKey(newKey(), { kind: 'new', id: 'h1', tier: 'Lite', teamId: 't1', labels }, null);
      await store.addKey(newKey(), { kind: 'new', id: 'h2', tier: 'Lite', teamId: 't1' }, null);
      const of = (holderId: string, teamId = '') => row({ holderId, teamId, hour: '2030-01-03T00' });
      await store.usage.addUsage(batch([of('h1', 't1'), of('h2', 't1'), of('h3', 't1'), of('h3')]));
      const from = '2030-01-03';
      const lines = async (query: Partial<UsageQuery>) =>
        (await report({ from, ...query })).map(({ group, sums }) => [...group, sums.requests]);
      expect(await lines({ by: ['label:cost_center'] })).toEqual([
        ['', 1],
        ['4711', 2],
        ['4712', 1],
      ]);
      expect(await lines({ labels: { cost_center: '4711' } })).toEqual([[2]]);
      expect(await lines({ labels: { cost_center: '47*' } })).toEqual([[3]]);
      expect(await lines({ labels: { cost_center: '4*', other: 'x' } })).toEqual([[0]]);
    });
  });

  test('the usage of a holder covers the day and the month in UTC', async () => {
    const sums = { prompt: 10, completion: 5, cached: 10, reasoning: 5, cost: 7 };
    const hours = ['2029-12-31T23', '2030-01-01T00', '2030-01-31T23', '2030-02-01T00', '2029-01-31T12'];
    await store.usage.addUsage(
      batch([...hours.map((hour) => row({ hour, sums })), row({ hour: '2030-01-31T22', holderId: 'else' })]),
    );
    const use = (day: string) => store.usage.usageOf({ kind: 'holder', id: 'holder-1' }, day);
    expect(await use('2030-01-31')).toEqual({
      requests_per_day: 1,
      tokens_per_day: 15,
      tokens_per_month: 30,
      cost_per_day: 7,
      cost_per_month: 14,
    });
    expect(await use('2030-01-02')).toEqual({
      requests_per_day: 0,
      tokens_per_day: 0,
      tokens_per_month: 30,
      cost_per_day: 0,
      cost_per_month: 14,
    });
    expect(await use('2030-02-01')).toEqual({
      requests_per_day: 1,
      tokens_per_day: 15,
      tokens_per_month: 15,
      cost_per_day: 7,
      cost_per_month: 7,
    });
    for (const day of ['2030-01-31', '2030-01-02', '2030-02-01']) {
      const ids = ['holder-1', 'nobody', 'else'];
      const together = await store.usage.usageOfHolders(ids, day);
      expect([...together.keys()].sort()).toEqual(day < '2030-02' ? ['else', 'holder-1'] : ['holder-1']);
      for (const [id, totals] of together)
        expect(totals).toEqual(await store.usage.usageOf({ kind: 'holder', id }, day));
    }
    expect(await store.usage.usageOf({ kind: 'holder', id: 'nobody' }, '2030-01-31')).toEqual({
      requests_per_day: 0,
      tokens_per_day: 0,
      tokens_per_month: 0,
      cost_per_day: 0,
      cost_per_month: 0,
    });
  });

  test('after close every method rejects with store_unavailable', async () => {
    await store.close();
    const calls: Promise<unknown>[] = [
      store.usage.addUsage(batch([row()])),
      store.usage.forgetBatches('2030', 1),
      report(),
      store.usage.usageOf({ kind: 'holder', id: 'holder-1' }, '2030-01-01'),
      store.usage.usageOfHolders(['holder-1'], '2030-01-01'),
    ];
    for (const outcome of await Promise.allSettled(calls)) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'store_unavailable' } });
    }
  });
});
