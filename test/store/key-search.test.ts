// Searches of keys and holders find what a look at each of them finds, in their order, whichever condition leads; and the table that they
// read follows all that any version writes. FUZZ_RUNS sets the number of runs of each property.
import fc from 'fast-check';
import type { Kysely } from 'kysely';
import { sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import type { Prefix, SearchPage, SearchPosition } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import { POSTGRES } from '../../src/store/postgres/postgres-schema.ts';
import { MIGRATIONS } from '../../src/store/schema/migrations.ts';
import { marksOf } from '../../src/store/schema/schema-search.ts';
import type { Tables } from '../../src/store/schema/tables.ts';
import { searchHolders } from '../../src/store/sql/search/holder-search.ts';
import { listKeys } from '../../src/store/sql/search/key-search.ts';
import type { Searched } from '../../src/store/sql/search/search-conditions.ts';
import { SQLITE } from '../../src/store/sqlite/sqlite-schema.ts';
import { countsOf, migrateTo, readerOf, run } from './older.ts';
import { STORE_KINDS, type StoreSource } from './stores.ts';

const AT = '2030-01-01T00:00:00.000Z';
const RUNS = Number(process.env['FUZZ_RUNS'] ?? 50);

interface Owner {
  readonly id: string;
  readonly tier: string;
  readonly standing: string;
  readonly name: string | null;
  readonly team: string | null;
  readonly labels: Readonly<Record<string, string>>;
}

interface Key {
  readonly id: number;
  readonly prefix: string;
  readonly owner: Owner;
  readonly state: string;
  readonly expiresAt: string | null;
  readonly used: string | null;
}

const pick = <T>(list: readonly T[], at: number): T | undefined => list[at % list.length];

/** Values that repeat in different steps, so that each meets each. */
const OWNERS: readonly Owner[] = Array.from({ length: 90 }, (_, n) => ({
  id: `h${(n * 37) % 90}`.padEnd(5, 'x'),
  tier: pick(['Free', 'Lite', 'Pro'], n) ?? '',
  standing: n % 5 === 0 ? 'suspended' : 'good',
  name: pick(['Nora', 'nora', 'NB', null, 'Other', 'n'], n + Math.floor(n / 6)) ?? null,
  team: pick(['t1', 't2', null], Math.floor(n / 3)) ?? null,
  labels: { ...(n % 4 !== 0 && { env: `p${n % 3}` }), ...(n % 7 < 4 && { cost: `c${n % 7}` }) },
}));
const KEYS: readonly Key[] = Array.from({ length: 180 }, (_, n) => ({
  id: n + 1,
  prefix: String((n * 7919) % 100_003).padStart(8, '0'),
  owner: OWNERS[(n * 13) % 90] ?? OWNERS[0] ?? never(),
  state: pick(['active', 'active', 'revoked', 'invalidated'], n + Math.floor(n / 4)) ?? '',
  expiresAt: pick([null, '2031-01-01T00:00:00.000Z', '2032-01-01T00:00:00.000Z'], Math.floor(n / 2)) ?? null,
  used: pick([null, '2029-01-01', '2029-06-01', '2030-01-01'], Math.floor(n / 5)) ?? null,
}));

function never(): never {
  throw new Error('there is no such row');
}

const text = (value: string | null) => (value === null ? 'null' : `'${value}'`);
const rows = <T>(list: readonly T[], row: (each: T) => readonly string[]) =>
  list.map((each) => `(${row(each).join(', ')})`).join(', ');

/** As an earlier version writes it. */
function written(kind: StoreAddress['kind']): readonly string[] {
  const zeros = kind === 'sqlite' ? 'zeroblob(32)' : "decode(repeat('00', 32), 'hex')";
  const labels = OWNERS.flatMap(({ id, labels }) => Object.entries(labels).map((label) => [id, ...label]));
  const state = (each: string) => KEYS.filter((key) => key.state === each).map(({ prefix }) => `'${prefix}'`);
  return [
    `insert into teams (id, name, terms, version, created_at) values ('t1', 'One', '{}', 1, '${AT}'), ('t2', 'Two', '{}', 2, '${AT}')`,
    `insert into holders (id, tier, standing, label, team_id, created_at) values ${rows(OWNERS, ({ id, tier, standing, name, team }) => [...[id, tier, standing, name, team].map(text), `'${AT}'`])}`,
    `insert into labels (owner_id, name, value) values ${rows(labels, (label) => label.map(text))}, ('t1', 'env', 'p1')`,
    `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at, expires_at) values ${rows(KEYS, ({ prefix, owner, expiresAt }) => [text(prefix), text(owner.id), `'$argon2id$x', ${zeros}, 'active', 1, '${AT}'`, text(expiresAt)])}`,
    ...['revoked', 'invalidated'].map(
      (each) =>
        `update keys set state = '${each}', version = 2, ended_at = '${AT}' where prefix in (${state(each).join(', ')})`,
    ),
    `insert into key_uses (prefix, day) values ${rows(
      KEYS.filter(({ used }) => used !== null),
      ({ prefix, used }) => [text(prefix), text(used)],
    )}`,
  ];
}

const maybe = <const T>(...values: readonly T[]) => fc.option(fc.constantFrom(...values), { nil: undefined });
const ofHolders = {
  name: maybe('n', 'no', 'NORA', 'o', 'z', ''),
  labels: maybe(
    { env: 'p1' },
    { env: 'p*' },
    { env: '*' },
    { cost: 'c2' },
    { env: 'p2', cost: 'c*' },
    { cost: 'c*', env: 'p1' },
    { env: 'none' },
    { env: 'p1', cost: 'c2' },
    { env: 'p*', cost: 'c*' },
    {},
  ),
  teamId: maybe('t1', 't2', 'none'),
  tier: maybe('Free', 'Lite', 'Pro'),
  standing: maybe('good', 'suspended'),
} as const;
const HOLDER_FILTER = fc.record(ofHolders);
const KEY_FILTER = fc.record({
  ...ofHolders,
  state: maybe('active', 'revoked', 'invalidated'),
  unusedSince: maybe('2029-06-01', '2030-01-02', '2029-01-01', '2000-01-01'),
  expiresBefore: maybe('2031-06-01T00:00:00.000Z', '2040-01-01T00:00:00.000Z', '2031-01-01T00:00:00.000Z'),
  holderId: fc.option(fc.constantFrom(...OWNERS.slice(0, 3).map(({ id }) => id)), {
    nil: undefined,
    freq: 20,
  }),
});
type HolderFilter = typeof HOLDER_FILTER extends fc.Arbitrary<infer T> ? T : never;
type KeyFilter = typeof KEY_FILTER extends fc.Arbitrary<infer T> ? T : never;

/** With `maxFew` 0, the condition with the order always leads. Pages end early where the others are small. */
const BOUNDS = fc.record({
  maxFew: fc.constantFrom(0, 20, 5000),
  firstRows: fc.constantFrom(1, 7, 1000),
  maxRows: fc.constantFrom(1, 2, 10, 60, 100_000),
  maxLooks: fc.constantFrom(1, 3, 20, 5000),
});

function matchesOwner(owner: Owner, { name, labels = {}, teamId, tier, standing }: HolderFilter): boolean {
  return (
    (name === undefined || owner.name?.toLowerCase().startsWith(name.toLowerCase()) === true) &&
    (teamId === undefined || owner.team === teamId) &&
    (tier === undefined || owner.tier === tier) &&
    (standing === undefined || owner.standing === standing) &&
    Object.entries(labels).every(([label, value]) => {
      const own = owner.labels[label];
      return own !== undefined && (value.endsWith('*') ? own.startsWith(value.slice(0, -1)) : own === value);
    })
  );
}

function matchesKey(key: Key, filter: KeyFilter): boolean {
  const { state, unusedSince, expiresBefore, holderId } = filter;
  return (
    matchesOwner(key.owner, filter) &&
    (state === undefined || key.state === state) &&
    (unusedSince === undefined || (key.used ?? '') < unusedSince) &&
    (expiresBefore === undefined || (key.expiresAt !== null && key.expiresAt < expiresBefore)) &&
    (holderId === undefined || key.owner.id === holderId)
  );
}

type Sort = readonly (string | number)[];

function bySort(a: Sort, b: Sort): number {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at === -1 ? 0 : (a[at] ?? '') < (b[at] ?? '') ? -1 : 1;
}

/** The first label with a beginning as its value. */
const beginning = (labels: Readonly<Record<string, string | undefined>>) =>
  Object.keys(labels).find((label) => labels[label]?.endsWith('*'));

function ownerSort(owner: Owner, { name, labels = {} }: HolderFilter): Sort {
  const first =
    name !== undefined ? (owner.name ?? '').toLowerCase() : (owner.labels[beginning(labels) ?? ''] ?? '');
  return [first, owner.id];
}

function keySort(key: Key, filter: KeyFilter): Sort {
  const { name, labels = {}, expiresBefore, unusedSince } = filter;
  if (name !== undefined) return [(key.owner.name ?? '').toLowerCase(), key.id];
  if (expiresBefore !== undefined) return [key.expiresAt ?? '', key.id];
  if (unusedSince !== undefined) return [key.used ?? '', key.id];
  const label = beginning(labels);
  if (label !== undefined) return [key.owner.labels[label] ?? '', key.owner.id, key.id];
  const given = Object.values(filter).filter((value) => value !== undefined);
  const isAlone = given.length === 1 && Object.keys(labels).length === 1;
  return isAlone ? [key.owner.id, key.id] : [key.id];
}

/** @param between what happens between two pages */
async function paged<Item>(
  read: (after: SearchPosition | undefined) => Promise<SearchPage<Item>>,
  between: () => Promise<void> = async () => {},
): Promise<readonly Item[]> {
  const all: Item[] = [];
  for (let after: SearchPosition | undefined; ; ) {
    const { items, next } = await read(after);
    all.push(...items);
    if (next === undefined) return all;
    // Each page gets further.
    expect(next).not.toEqual(after);
    after = next;
    await between();
  }
}

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let address: StoreAddress;
  let reader: Kysely<Tables>;
  let database: Searched;

  beforeAll(async () => {
    source = await start();
    address = await source.empty();
    await migrateTo(address, MIGRATIONS.slice(0, 14));
    await run(address, written(address.kind));
    await (await openStore(address)).close();
    reader = readerOf(address);
    const { byBytes, hash } = (address.kind === 'sqlite' ? SQLITE : POSTGRES).types;
    database = { reader, byBytes: sql.raw(byBytes), hash, ordersStreams: address.kind === 'postgres' };
  }, timeout);

  afterAll(async () => {
    await reader.destroy();
    await source[Symbol.asyncDispose]();
  });

  test('keys are found by any conditions, in order, in pages without gaps and repeats', async () => {
    const property = fc.asyncProperty(
      KEY_FILTER,
      BOUNDS,
      fc.integer({ min: 1, max: 60 }),
      async (filter, bounds, limit) => {
        const found = await paged((after) => listKeys(database, { ...filter, limit, after }, bounds));
        const wanted = KEYS.filter((key) => matchesKey(key, filter)).toSorted((a, b) =>
          bySort(keySort(a, filter), keySort(b, filter)),
        );
        expect(found.map(({ prefix }) => prefix)).toEqual(wanted.map(({ prefix }) => prefix));
      },
    );
    await fc.assert(property, { numRuns: RUNS });
  });

  test('holders are found by any conditions, in order, in pages without gaps and repeats', async () => {
    const property = fc.asyncProperty(
      HOLDER_FILTER,
      BOUNDS,
      fc.integer({ min: 1, max: 60 }),
      async (filter, bounds, limit) => {
        const found = await paged((after) => searchHolders(database, filter, limit, after, bounds));
        const wanted = OWNERS.filter((owner) => matchesOwner(owner, filter)).toSorted((a, b) =>
          bySort(ownerSort(a, filter), ownerSort(b, filter)),
        );
        expect(found.map(({ id }) => id)).toEqual(wanted.map(({ id }) => id));
      },
    );
    await fc.assert(property, { numRuns: RUNS });
  });

  test('rows that change between pages leave the others where they are, each once', async () => {
    const changing = OWNERS.filter((_, index) => index % 6 === 0);
    const [names, teams, expiries] = [
      ['a', 'N', 'nn', 'oz', null],
      ['t1', 't2', null],
      ['2031-02-01T00:00:00.000Z', null],
    ];
    const change = fc.record({
      owner: fc.constantFrom(...changing),
      name: fc.constantFrom(...names),
      team: fc.constantFrom(...teams),
      standing: fc.constantFrom('good', 'suspended'),
      label: fc.constantFrom('p1', 'p2', 'c0', 'c9'),
      expiry: fc.constantFrom(...expiries),
      used: fc.constantFrom('2029-01-01', '2030-01-05'),
    });
    const changed = new Set(changing.map(({ id }) => id));
    const property = fc.asyncProperty(
      KEY_FILTER,
      BOUNDS,
      fc.integer({ min: 1, max: 20 }),
      fc.array(change, { minLength: 1, maxLength: 5 }),
      async (filter, bounds, limit, changes) => {
        let next = 0;
        const between = async () => {
          const { owner, name, team, standing, label, expiry, used } =
            changes[next++ % changes.length] ?? never();
          const key = KEYS.find((each) => each.owner === owner) ?? never();
          // On the connection of the search: a new one would cost more than all else here.
          for (const statement of [
            `update holders set label = ${text(name)}, team_id = ${text(team)}, standing = '${standing}' where id = '${owner.id}'`,
            `update labels set value = '${label}' where owner_id = '${owner.id}'`,
            `update keys set expires_at = ${text(expiry)}, version = version + 1 where prefix = '${key.prefix}' and state = 'active'`,
            `insert into key_uses (prefix, day) values ('${key.prefix}', '${used}') on conflict (prefix) do update set day = excluded.day`,
          ])
            await sql.raw(statement).execute(reader);
        };
        const keys = await paged((after) => listKeys(database, { ...filter, limit, after }, bounds), between);
        const still = keys.filter(({ holderId }) => !changed.has(holderId)).map(({ prefix }) => prefix);
        expect(still.toSorted()).toEqual(
          KEYS.filter((key) => !changed.has(key.owner.id) && matchesKey(key, filter))
            .map(({ prefix }) => prefix)
            .toSorted(),
        );
        const owners = await paged((after) => searchHolders(database, filter, limit, after, bounds), between);
        const others = owners.filter(({ id }) => !changed.has(id)).map(({ id }) => id);
        expect(others.toSorted()).toEqual(
          OWNERS.filter((owner) => !changed.has(owner.id) && matchesOwner(owner, filter))
            .map(({ id }) => id)
            .toSorted(),
        );
      },
    );
    // Each reads and writes many times.
    await fc.assert(property, { numRuns: Math.ceil(RUNS / 3) });
  }, 120_000);

  test('a page reads no more than its bounds, and says where the search continues', async () => {
    const bounds = { maxFew: 0, firstRows: 10, maxRows: 40, maxLooks: 10 };
    const filter = { name: 'n', labels: { cost: 'c*' } };
    for (const read of [
      (after?: SearchPosition) => searchHolders(database, filter, 50, after, bounds),
      (after?: SearchPosition) => listKeys(database, { ...filter, limit: 50, after }, bounds),
    ]) {
      const { items, next } = await read();
      expect(items.length).toBeLessThanOrEqual(10);
      expect(next).toBeDefined();
      const rest = await paged<{ readonly name: string | null }>((after) => read(after ?? next));
      expect(items.length + rest.length).toBeGreaterThan(20);
    }
  });

  test('a cursor of another list is refused', async () => {
    const { next } = await searchHolders(database, { name: 'n' }, 3);
    await expect(searchHolders(database, {}, 3, next)).rejects.toMatchObject({ code: 'invalid_value' });
    await expect(listKeys(database, { name: 'n', limit: 3, after: next })).rejects.toMatchObject({
      code: 'invalid_value',
    });
  });

  const WRONG = `select count(*) as n from keys as k join holders as h on h.id = k.holder_id
    left join key_uses as u on u.prefix = k.prefix left join key_search as s on s.key_id = k.id
    where (s.kind, s.name, s.team_id, s.expires_at, s.used) is distinct from
      (substr(h.tier, 1, 1) || substr(h.standing, 1, 1) || substr(k.state, 1, 1), lower(h.label), h.team_id, k.expires_at, coalesce(u.day, ''))`;
  /** Each holder has the marks of what it has, and each key and label those of its holder. */
  const wrongMarks = () => {
    const [before, after] = marksOf(database.hash);
    const texts = `select 'tier=' || h.tier as t union all select 'standing=' || h.standing union all
      select 'team=' || h.team_id union all select name || '=' || value from labels where owner_id = h.id`;
    return `select count(*) as n from holders as h left join keys as k on k.holder_id = h.id left join key_search as s on s.key_id = k.id
      where h.marks is null or h.marks <> ${before}${texts}${after} or (k.id is not null and s.marks is distinct from h.marks)`;
  };
  const WRONG_LABELS = `select count(*) as n from labels as l left join holders as h on h.id = l.owner_id
    where l.marks is distinct from coalesce(h.marks, 0)`;
  const wrong = async (of: StoreAddress) => {
    const counts = await Promise.all([WRONG, wrongMarks(), WRONG_LABELS].map((text) => countsOf(of, text)));
    return counts.reduce((sum, [row]) => sum + Number(row?.['n']), 0);
  };

  test('what an earlier version writes beside is found, too', async () => {
    const [first, second, third] = [KEYS[0]?.prefix, KEYS[1]?.prefix, KEYS[5]?.prefix];
    const [holder, team] = [KEYS[0]?.owner.id, KEYS[0]?.owner.team === 't1' ? 't2' : 't1'];
    const zeros = address.kind === 'sqlite' ? 'zeroblob(32)' : "decode(repeat('00', 32), 'hex')";
    for (const statement of [
      `insert into holders (id, tier, label, created_at) values ('new', 'Pro', 'New One', '${AT}')`,
      `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at) values ('ffffffff', 'new', '$argon2id$x', ${zeros}, 'active', 1, '${AT}')`,
      `update holders set tier = 'Free' where id = 'new'`,
      `update holders set standing = 'suspended', label = 'Newer', team_id = '${team}' where id = '${holder}'`,
      `update holders set label = null, team_id = null where id = '${holder}'`,
      `update keys set expires_at = '2035-01-01T00:00:00.000Z', version = version + 1 where prefix = '${first}'`,
      `update keys set expires_at = null, version = version + 1 where prefix = '${first}'`,
      `update keys set state = 'revoked', ended_at = '${AT}', version = version + 1 where prefix = '${second}'`,
      `update holders set standing = 'good', team_id = '${team}' where id = '${holder}'`,
      `insert into labels (owner_id, name, value) values ('new', 'env', 'p1'), ('new', 'cost', 'c1'), ('${holder}', 'more', 'x')`,
      `insert into labels (owner_id, name, value) values ('new', 'env', 'p2') on conflict (owner_id, name) do update set value = excluded.value`,
      `update labels set value = 'p3' where owner_id = 'new' and name = 'env'`,
      `delete from labels where owner_id in ('new', '${holder}') and name in ('cost', 'more')`,
      // What has no bit that the others do not have.
      `insert into labels (owner_id, name, value) values ('new', 'tier', 'Free')`,
      `insert into labels (owner_id, name, value) values ('t2', 'env', 'p1')`,
      `update labels set value = 'p2' where owner_id = 't2'`,
      `update holders set team_id = 't2' where id = 'new'`,
      `insert into key_uses (prefix, day) values ('ffffffff', '2030-02-01')`,
      `update key_uses set day = '2030-03-01' where prefix = '${third}'`,
    ]) {
      await run(address, [statement]);
      expect(await wrong(address), statement).toBe(0);
    }
  });

  test('a store with many keys gets its rows in portions, without those that it has', async () => {
    const large = await source.empty();
    await migrateTo(large, MIGRATIONS.slice(0, 14));
    const zeros = large.kind === 'sqlite' ? 'zeroblob(32)' : "decode(repeat('00', 32), 'hex')";
    const numbers =
      large.kind === 'sqlite'
        ? '(with recursive c (n) as (select 1 union all select n + 1 from c where n < 20001) select n from c) as x'
        : 'generate_series(1, 20001) as x (n)';
    const key = (prefix: string) => `select ${prefix}, 'h', '$argon2id$x', ${zeros}, 'active', 1, '${AT}'`;
    const into = 'insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at)';
    await run(large, [
      `insert into holders (id, tier, created_at) values ('h', 'Pro', '${AT}'), ('without a key', 'Pro', '${AT}')`,
      `insert into labels (owner_id, name, value) values ('h', 'env', 'p1'), ('without a key', 'env', 'p1')`,
      `${into} ${key('substr(cast(10000000 + n as text), 1, 8)')} from ${numbers}`,
      `insert into key_uses (prefix, day) select prefix, '2030-01-01' from keys where id % 3 = 0`,
    ]);
    await migrateTo(large, MIGRATIONS);
    // Before the rest has a row.
    await run(large, [`${into} ${key("'ffffffff'")}`, `update holders set tier = 'Lite' where id = 'h'`]);
    // The holder without a key and its label, and each other key for its row and its marks.
    expect(await wrong(large)).toBe(40_004);
    await Promise.all([1, 2].map(async () => (await openStore(large, { isPatient: true })).close()));
    expect(await wrong(large)).toBe(0);
    expect(await countsOf(large, 'select count(*) as n from key_search')).toEqual([{ n: 20_002 }]);
  }, 120_000);

  test('labels of an earlier version get their marks in portions, beside new ones', async () => {
    const labelled = await source.empty();
    await migrateTo(labelled, MIGRATIONS.slice(0, 17));
    const numbers =
      labelled.kind === 'sqlite'
        ? '(with recursive c (n) as (select 1 union all select n + 1 from c where n < 5003) select n from c) as x'
        : 'generate_series(1, 5003) as x (n)';
    await run(labelled, [
      `insert into teams (id, name, terms, version, created_at) values ('t1', 'One', '{}', 1, '${AT}')`,
      `insert into labels (owner_id, name, value) values ('t1', 'env', 'p1'), ('nobody', 'env', 'p1')`,
      ...['env', 'cost'].map(
        (name) =>
          `insert into labels (owner_id, name, value) select 'h' || n, '${name}', 'p1' from ${numbers}`,
      ),
      `insert into holders (id, tier, created_at) select 'h' || n, 'Pro', '${AT}' from ${numbers}`,
    ]);
    await migrateTo(labelled, MIGRATIONS);
    await run(labelled, [
      `insert into labels (owner_id, name, value) values ('h1', 'more', 'x'), ('t1', 'more', 'x')`,
    ]);
    // Of what was there, without the labels of the first holder.
    expect(await wrong(labelled)).toBe(2 + 2 * 5003 - 2);
    const stores = await Promise.all([1, 2].map(() => openStore(labelled, { isPatient: true })));
    expect(await wrong(labelled)).toBe(0);
    const [store] = stores;
    const filter = { labels: { env: 'p1', cost: 'p1' } };
    expect(
      await paged(async (after) => store?.organisation.searchHolders(filter, 6000, after) ?? never()),
    ).toHaveLength(5003);
    expect(await store?.organisation.listTeams({ labels: { env: 'p1' }, limit: 10 })).toMatchObject([
      { id: 't1' },
    ]);
    expect(await store?.organisation.labelNames()).toEqual(['cost', 'env', 'more']);
    await Promise.all(stores.map((each) => each.close()));
  }, 120_000);

  test('uses and changes of the same keys do not lock each other out', async () => {
    const store = await openStore(address, { isPatient: true });
    const owner = KEYS[3]?.owner.id ?? '';
    const own = KEYS.filter((key) => key.owner.id === owner).map(({ prefix }) => prefix as Prefix);
    const days = Array.from(
      { length: 40 },
      (_, index) => `2031-${String(1 + (index % 12)).padStart(2, '0')}-${10 + Math.floor(index / 12)}`,
    );
    await Promise.all(
      days
        .toSorted()
        .flatMap((day, index) => [
          store.organisation.recordUses(new Map(own.map((prefix) => [prefix, day]))),
          store.changeHolder(owner, { tier: index % 2 === 0 ? 'Free' : 'Pro' }, null, AT),
        ]),
    );
    expect(await wrong(address)).toBe(0);
    await store.close();
  }, 120_000);
});
