// Usage by day and month with all that it is about, whichever version writes it, and the totals of teams, keys and models.
import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { NameTable } from '../../src/config/name-table.ts';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { countsFor, countsInScope, modelScope, USAGE_SUMS } from '../../src/store/usage-record.ts';
import { countsOf, earlierUsage, run } from './older.ts';
import { newKey } from './samples.ts';
import { STORE_KINDS, storeForEachTest } from './stores.ts';
import { batch, distinct, row } from './usage-samples.ts';

const BY = { actor: null, reason: null, at: '2030-01-01T00:00:00.000Z' };
describe.each(STORE_KINDS)('in $name', (kind) => {
  let address: StoreAddress;
  let store: Store;
  storeForEachTest(kind, (opened, at) => {
    store = opened;
    address = at;
  });

  async function addTeam(name: string): Promise<string> {
    const result = await store.organisation.addTeam({ id: randomUUID(), name, terms: {} }, BY, {});
    if (result.kind !== 'done') throw new Error(result.kind);
    return result.team.id;
  }

  async function addHolder(teamId: string | null, key = newKey()) {
    const added = await store.addKey(key, { kind: 'new', id: randomUUID(), tier: 'Pro', teamId }, null);
    if (added.kind !== 'added') throw new Error(added.kind);
    return added.record;
  }

  const add = (...rows: Parameters<typeof row>[0][]) => store.usage.addUsage(batch(rows.map(row)));
  const requests = async (scope: Parameters<Store['usage']['usageOf']>[0], day = '2030-01-02') =>
    (await store.usage.usageOf(scope, day)).requests_per_day;
  const rolled = (period: 'day' | 'month') =>
    countsOf(
      address,
      `select ${period} as time, team_id as team, tier, target, endpoint, requests, cost from usage_${period}s
       order by ${period}, team_id, target`,
    );

  test('each table has every sum of a batch, and rows that differ elsewhere alone are one of their hour', async () => {
    await add(
      { sums: distinct() },
      { target: 'gpt-2', sums: distinct(10) },
      { teamId: 't', sums: distinct(100) },
    );
    await add({ hour: '2030-01-02T04', sums: distinct(1000) });
    const total = (table: string) =>
      countsOf(
        address,
        `select count(*) as rows, ${USAGE_SUMS.map((name) => `cast(sum(${name}) as bigint) as ${name}`).join(', ')} from ${table}`,
      );
    expect(await total('usage_hours')).toMatchObject([{ rows: 2, ...distinct(1111) }]);
    expect(await total('usage_days')).toMatchObject([{ rows: 3, ...distinct(1111) }]);
    expect(await total('usage_months')).toMatchObject([{ rows: 3, ...distinct(1111) }]);
  });

  test('usage stays with the team and the tier that it was recorded with', async () => {
    const [one, two] = [await addTeam('one'), await addTeam('two')];
    const { holderId } = await addHolder(one);
    await add({ holderId, teamId: one, tier: 'Lite' });
    await store.changeHolder(holderId, { teamId: two, tier: 'Free' }, null, BY.at);
    await add(
      { holderId, teamId: two, tier: 'Free' },
      { holderId, teamId: two, tier: 'Free', hour: '2030-01-03T00' },
    );
    expect(await requests({ kind: 'team', id: one })).toBe(1);
    expect(await requests({ kind: 'team', id: two })).toBe(1);
    expect(await store.usage.usageOf({ kind: 'team', id: two }, '2030-01-04')).toMatchObject({
      requests_per_day: 0,
      tokens_per_month: 0,
    });
    expect(await requests({ kind: 'holder', id: holderId })).toBe(2);
  });

  test('a team has the tokens of its month, and of no other', async () => {
    const sums = { prompt: 10, completion: 5 };
    const hours = ['2029-12-31T23', '2030-01-01T00', '2030-01-31T23', '2030-02-01T00', '2029-01-31T12'];
    await add(...hours.map((hour) => ({ hour, teamId: 't', sums })), { teamId: 'other', sums });
    expect(await store.usage.usageOf({ kind: 'team', id: 't' }, '2030-01-31')).toMatchObject({
      requests_per_day: 1,
      tokens_per_day: 15,
      tokens_per_month: 30,
    });
  });

  test('a key has the usage of those it was rotated from and into, and of no other of its holder', async () => {
    const first = await addHolder(null);
    const [second, third] = [newKey(), newKey()];
    const { holderId } = first;
    const rotated = await store.rotateKey(first, second);
    expect(rotated).toMatchObject({ record: { lineage: first.prefix } });
    expect(await store.rotateKey(second, third)).toMatchObject({ record: { lineage: first.prefix } });
    const other = newKey();
    await store.addKey(other, { kind: 'existing', id: holderId }, null);
    for (const { prefix } of [first, second, third]) {
      expect(await store.findKey(prefix)).toMatchObject({ lineage: first.prefix });
      await add({ holderId, prefix });
    }
    await add({ holderId, prefix: other.prefix }, { holderId: 'else', prefix: first.prefix });
    expect(await requests({ kind: 'key', lineage: first.prefix })).toBe(3);
    expect(await requests({ kind: 'key', lineage: other.prefix })).toBe(1);
    expect((await store.usage.keysOf(first.prefix)).prefixes.toSorted()).toEqual(
      [first, second, third].map(({ prefix }) => prefix).toSorted(),
    );
    await add({ holderId, prefix: first.prefix, model: 'other' });
    expect(await requests({ kind: 'model', holderId, model: 'other' })).toBe(1);
    expect(await requests({ kind: 'model', holderId, model: 'gpt' })).toBe(4);
  });

  test('a pattern of models has the usage of the names that it stands for, as pending usage counts', async () => {
    const names = [
      'o/a',
      'o/𝒳',
      'o/',
      'o/*',
      'O/a',
      'po/a',
      'a-mini',
      '-mini',
      'a-minix',
      '',
      '%',
      'a-*mini',
    ];
    await add(...names.map((model) => ({ holderId: 'h', model })), { holderId: 'other', model: 'o/a' });
    for (const entry of ['o/*', '*-mini', 'a*x', '*', 'o/a', '%*', '𝒳*', '*𝒳']) {
      const counted = names.filter((name) => countsFor(entry, name)).length;
      expect([entry, await requests({ kind: 'model', holderId: 'h', model: entry })]).toEqual([
        entry,
        counted,
      ]);
    }
    expect(names.filter((name) => countsFor('o/*', name))).toEqual(['o/a', 'o/𝒳', 'o/*']);
    expect(names.filter((name) => countsFor('*-mini', name))).toEqual(['a-mini']);
  });

  test('a pattern of models has no usage of names for which another entry is found', async () => {
    const entries = ['gpt-*', 'gpt-4*', 'gpt-4o', '*-mini', '*', 'other', 'gpt-*x'];
    const names = [
      'gpt-3',
      'gpt-4',
      'gpt-4o',
      'gpt-4o-mini',
      'gpt-mini',
      'a-mini',
      'other',
      'else',
      'gpt-x',
      'gpt-*',
    ];
    await add(...names.map((model) => ({ holderId: 'h', model })));
    const table = new NameTable(entries.map((entry) => [entry, entry]));
    for (const entry of entries) {
      const scope = modelScope('h', entry, entries);
      const found = names.filter((name) => table.find(name)?.value === entry || name === entry);
      expect([entry, names.filter((name) => countsInScope(scope, name))]).toEqual([entry, found]);
      expect([entry, await requests(scope)]).toEqual([entry, found.length]);
    }
    const many = Array.from({ length: 5000 }, (_, index) => `gpt-3.${index}`);
    expect(await requests(modelScope('h', 'gpt-*', [...many, 'gpt-3', 'gpt-*']))).toBe(6);
    const patterns = Array.from({ length: 2000 }, (_, index) => `gpt-5.${index}*`);
    expect(await requests(modelScope('h', 'gpt-*', [...patterns, 'gpt-4o*', 'gpt-*']))).toBe(6);
  });

  test('what an earlier version writes beside counts once, for the present team of the holder', async () => {
    const team = await addTeam('one');
    const { holderId } = await addHolder(team);
    const hour = '2030-01-02T03';
    await run(address, [earlierUsage(hour, holderId, 1)]);
    await add({ hour, holderId, teamId: team, tier: 'Pro', sums: distinct(10) });
    // A row of this version is raised by the earlier one, and the other way round.
    await run(address, [earlierUsage(hour, holderId, 100), earlierUsage(hour, 'unknown', 7)]);
    await add({ hour, holderId, teamId: team, tier: 'Pro', sums: distinct(1000) });
    const cost = USAGE_SUMS.indexOf('cost') + 1;
    const expected = (time: string) => [
      { time, team: '', tier: '', target: '', endpoint: '', requests: 7, cost: 7 * cost },
      { time, team, tier: 'Pro', target: '', endpoint: '', requests: 101, cost: 101 * cost },
      { time, team, tier: 'Pro', target: 'gpt-1', endpoint: 'chat', requests: 1010, cost: 1010 * cost },
    ];
    expect(await rolled('day')).toEqual(expected('2030-01-02'));
    expect(await rolled('month')).toEqual(expected('2030-01'));
    expect(await requests({ kind: 'team', id: team })).toBe(1111);
    expect(await requests({ kind: 'holder', id: holderId })).toBe(1111);
  });

  test('writers of both versions at once lose and double nothing', async () => {
    const other = await openStore(address);
    const hour = '2030-01-02T03';
    const holders = ['h1', 'h2', 'h3'];
    await Promise.all(
      Array.from({ length: 12 }, async (_, index) => {
        if (index % 3 === 0)
          for (const holder of holders) await run(address, [earlierUsage(hour, holder, 1)]);
        else {
          const rows = holders.map((holderId) => row({ holderId, sums: distinct() }));
          await (index % 2 ? store : other).usage.addUsage(batch(rows));
        }
      }),
    );
    await other.close();
    const totals = (table: string) =>
      countsOf(address, `select cast(sum(requests) as bigint) as n from ${table}`);
    for (const table of ['usage_hours', 'usage_days', 'usage_months'])
      expect(await totals(table)).toMatchObject([{ n: 36 }]);
  });
});
