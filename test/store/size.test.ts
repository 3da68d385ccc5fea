// Searches and reports among many holders: their plans use indexes, whatever the size. `STORE_SIZE=1000000 npx vitest run
// test/store/size.test.ts` also measures them among that many holders, and reports of a year of a hundredth as many keys.
import { DatabaseSync } from 'node:sqlite';
import { type Kysely, sql } from 'kysely';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import type { HolderFilter, KeyFilter } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import { PostgresLease } from '../../src/store/postgres/postgres-lease.ts';
import { POSTGRES } from '../../src/store/postgres/postgres-schema.ts';
import type { Tables } from '../../src/store/schema/tables.ts';
import { searchHolders } from '../../src/store/sql/search/holder-search.ts';
import { listKeys } from '../../src/store/sql/search/key-search.ts';
import { SEARCH_BOUNDS } from '../../src/store/sql/search/search-bounds.ts';
import type { Searched } from '../../src/store/sql/search/search-conditions.ts';
import { SqliteQueue } from '../../src/store/sqlite/sqlite-queue.ts';
import { SQLITE } from '../../src/store/sqlite/sqlite-schema.ts';
import type { Store } from '../../src/store/store.ts';
import { USAGE_SUMS } from '../../src/store/usage-record.ts';
import { readerOf, run } from './older.ts';
import { STORE_KINDS, type StoreSource } from './stores.ts';

const SIZE = Number(process.env['STORE_SIZE'] ?? 2000);
const IS_MEASURED = process.env['STORE_SIZE'] !== undefined;
const TEAMS = Math.ceil(SIZE / 100);
/** Keys with usage, in each month of a year and on each day of the last one. */
const USED = Math.ceil(SIZE / 100);
const MODELS = 4;

/** Statements that build the data, for both databases. */
function data(numbers: (count: number) => string, zeros: string): readonly string[] {
  const padded = (prefix: string) => `'${prefix}' || substr('0000000' || n, -7)`;
  const sums = USAGE_SUMS.map((name) => (name === 'cost' ? '1234567' : '7')).join(', ');
  const usage = (table: string, period: string, periods: string) => `insert into ${table}
    (${period}, holder_id, prefix, model, upstream, team_id, tier, target, endpoint, ${USAGE_SUMS.join(', ')})
    select p.p, ${padded('h').replace(/\bn\b/g, 'k.n')}, substr('00000000' || k.n, -8), 'model-' || m.n, 'up', 't' || (k.n % ${TEAMS}),
      'Pro', 'target', 'chat', ${sums}
    from (${numbers(USED)}) as k, (${numbers(MODELS)}) as m, (${periods}) as p`;
  const months = Array.from(
    { length: 12 },
    (_, index) => `select '2030-${String(index + 1).padStart(2, '0')}' as p`,
  );
  const days = Array.from({ length: 10 }, (_, index) => `select '2030-12-${index + 10}' as p`);
  return [
    `insert into teams (id, name, terms, version, created_at)
       select 't' || n, 'Team ' || n, '{}', n + 1, '2030' from (${numbers(TEAMS)}) as x`,
    `insert into holders (id, tier, label, created_at, team_id, standing)
       select ${padded('h')}, case when n % 1000 = 0 then 'Pro' else 'Lite' end, 'Name ' || n, '2030', 't' || (n % ${TEAMS}),
         case when n % 1000 = 1 then 'suspended' else 'good' end from (${numbers(SIZE)}) as x`,
    `insert into labels (owner_id, name, value)
       select ${padded('h')}, 'cost_center', 'c' || n from (${numbers(SIZE)}) as x`,
    ...['env', 'stage'].map(
      (name) => `insert into labels (owner_id, name, value)
       select ${padded('h')}, '${name}', case when n % 2 = 0 then 'even' else 'odd' end from (${numbers(SIZE)}) as x`,
    ),
    `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at, expires_at)
       select substr('0000000' || n, length('0000000' || n) - 7), ${padded('h')}, '$argon2id$x', ${zeros}, 'active', 1, '2030',
         case when n % 1000 = 5 then '2030' end from (${numbers(SIZE)}) as x`,
    `update keys set state = 'revoked', version = 2, ended_at = '2030' where id % 500 = 7`,
    usage('usage_months', 'month', months.join(' union all ')),
    usage('usage_days', 'day', days.join(' union all ')),
  ];
}

const NUMBERS = {
  SQLite: (count: number) =>
    `with recursive c (n) as (select 0 union all select n + 1 from c where n + 1 < ${count}) select n from c`,
  PostgreSQL: (count: number) => `select generate_series(0, ${count - 1}) as n`,
} as const;

/** Of keys. The indexes that lead: where the condition with the order does, and else. */
const LISTS: readonly (readonly [string, Omit<KeyFilter, 'limit'>, RegExp, RegExp?])[] = [
  ['nothing', {}, /key_search_pkey|SCAN s\b/],
  ['a rare state', { state: 'revoked' }, /key_search_by_kind/],
  ['a state that no key has', { state: 'invalidated' }, /key_search_by_kind/],
  ['a rare state of a wide tier', { state: 'revoked', tier: 'Lite' }, /key_search_by_kind/],
  ['a name', { name: 'name 1234' }, /key_search_by_name/],
  ['active keys of a name', { state: 'active', name: 'n' }, /key_search_by_name/],
  ['a team', { teamId: 't7' }, /key_search_by_team/],
  ['active keys of a team', { teamId: 't7', state: 'active' }, /key_search_by_team/],
  ['an expiry', { expiresBefore: '2031' }, /key_search_by_expiry/],
  ['a use', { unusedSince: '2031' }, /key_search_by_use/],
  ['a use that no active key has', { unusedSince: '2000', state: 'active' }, /key_search_by_use/],
  ['a label', { labels: { cost_center: 'c123' } }, /labels_by_value/],
  ['the beginning of all labels', { labels: { cost_center: 'c*' } }, /labels_by_value/],
  [
    'a label of a team',
    { labels: { cost_center: 'c*' }, teamId: 't7' },
    /labels_by_value|key_search_by_team/,
    /key_search_by_team/,
  ],
  [
    'a name and an expiry',
    { name: 'n', expiresBefore: '2031' },
    /key_search_by_name/,
    /key_search_by_expiry/,
  ],
  ['a name and a use', { name: 'name 12', unusedSince: '2031' }, /key_search_by_name/, /key_search_by_name/],
  [
    'an expiry and a label',
    { labels: { cost_center: 'c12' }, expiresBefore: '2031' },
    /key_search_by_expiry/,
    /labels_by_value/,
  ],
  [
    'a label of active keys',
    { labels: { cost_center: 'c12' }, state: 'active' },
    /(?:COVERING INDEX|Index Only Scan using) key_search_by_kind/,
    /labels_by_value/,
  ],
  [
    'a label and a use',
    { labels: { cost_center: 'c12' }, unusedSince: '2031' },
    /(?:COVERING INDEX|Index Only Scan using) key_search_by_use/,
    /labels_by_value/,
  ],
  [
    'a team and an expiry',
    { teamId: 't5', expiresBefore: '2031' },
    /(?:COVERING INDEX|Index Only Scan using) key_search_by_expiry/,
    /key_search_by_expiry/,
  ],
  [
    'a use and an expiry',
    { unusedSince: '2031', expiresBefore: '2031' },
    /(?:COVERING INDEX|Index Only Scan using) key_search_by_expiry/,
    /key_search_by_expiry/,
  ],
  ['a holder', { holderId: 'h0000007', state: 'active' }, /keys_by_holder/],
];

/** PostgreSQL reads a part of the table that the index names where what leads finds few. */
const BY_LABEL = /(?:COVERING INDEX|Index Only Scan using|Bitmap Index Scan on) labels_by_value/;
const SEARCHES: readonly (readonly [string, HolderFilter, RegExp])[] = [
  ['name', { name: 'name 1234' }, /holders_by_name/],
  ['team', { teamId: 't7' }, /holders_by_team/],
  ['tier', { tier: 'Pro' }, /holders_by_tier/],
  ['standing', { standing: 'suspended' }, /holders_by_standing/],
  ['label', { labels: { cost_center: 'c123' } }, /labels_by_value/],
  ['beginning of a label', { labels: { cost_center: 'c123*' } }, /labels_by_value/],
  ['name and tier', { name: 'n', tier: 'Lite' }, /holders_by_name/],
  ['name and label', { name: 'n', labels: { env: 'odd' } }, /holders_by_name/],
  ['label and tier', { labels: { cost_center: 'c*' }, tier: 'Lite' }, BY_LABEL],
  ['label and label', { labels: { env: 'odd', stage: 'odd' } }, BY_LABEL],
  ['label and beginning', { labels: { env: 'odd', stage: 'o*' } }, BY_LABEL],
];

/** The condition with the order leads, or the one that finds few. */
const BOUNDS = [{ ...SEARCH_BOUNDS, maxFew: 0 }, SEARCH_BOUNDS];

const TWO_RANGES = { name: 'n', labels: { cost_center: 'c*' } };

const REPORTS = {
  'a team of a month': { from: '2030-10-01', to: '2030-10-31', teamId: 't7', by: ['model'] },
  'a holder of 90 days': { from: '2030-10-03', to: '2030-12-31', holderId: 'h0000007', by: ['day', 'model'] },
  'the limits of a team': undefined,
} as const;

describe.each(STORE_KINDS)(
  'in $name',
  ({ name, start, timeout }) => {
    let source: StoreSource;
    let address: StoreAddress;
    let store: Store;
    let reader: Kysely<Tables>;
    let database: Searched;

    beforeAll(async () => {
      source = await start();
      address = await source.fresh();
      store = await openStore(address, { isPatient: true });
      const isSqlite = name === 'SQLite';
      const zeros = isSqlite ? 'zeroblob(32)' : "decode(repeat('00', 32), 'hex')";
      await run(address, data(isSqlite ? NUMBERS.SQLite : NUMBERS.PostgreSQL, zeros));
      // A gateway has no statistics in SQLite.
      if (!isSqlite) await run(address, ['analyze']);
      reader = readerOf(address);
      const { byBytes, hash } = (isSqlite ? SQLITE : POSTGRES).types;
      database = { reader, byBytes: sql.raw(byBytes), hash, ordersStreams: address.kind === 'postgres' };
    }, timeout + 600_000);

    afterAll(async () => {
      await reader.destroy();
      await store.close();
      await source[Symbol.asyncDispose]();
    });

    /** The plans of the statements that `work` runs, and how long it takes in milliseconds. */
    async function plansOf(
      work: () => Promise<unknown>,
    ): Promise<{ readonly plans: string; readonly ms: number }> {
      await work();
      const from = performance.now();
      await work();
      const ms = performance.now() - from;
      const prototype = address.kind === 'sqlite' ? SqliteQueue.prototype : PostgresLease.prototype;
      const spy = vi.spyOn(prototype, 'executeQuery');
      await work();
      const statements = spy.mock.calls.map(([query]) => query);
      spy.mockRestore();
      const plans: string[] = [];
      if (address.kind === 'sqlite') {
        const database = new DatabaseSync(address.path);
        for (const { sql, parameters } of statements) {
          const given = parameters.map((each) => (typeof each === 'number' ? each : String(each)));
          for (const { detail } of database.prepare(`explain query plan ${sql}`).all(...given))
            plans.push(String(detail));
        }
        database.close();
      } else {
        const client = new Client({ connectionString: address.url });
        await client.connect();
        // Small tables are read as a whole otherwise.
        await client.query('set enable_seqscan = off');
        for (const { sql, parameters } of statements) {
          const { rows } = await client.query(`explain ${sql}`, [...parameters]);
          for (const row of rows) plans.push(String(row['QUERY PLAN']));
        }
        await client.end();
      }
      return { plans: plans.join('\n'), ms };
    }

    /** Neither database may read these as a whole. `u` is a table of usage in reports, and the few rows of a subquery in limits. */
    const WHOLE =
      /\bSCAN (?:s|h|k|l|holders|keys|key_search|labels|teams|usage_hours|usage_days|usage_months|u)\b(?! USING)|Seq Scan on (?:holders|keys|key_search|labels|usage_(?:hours|days|months))\b/;

    /** Where PostgreSQL takes many rows for few, and sorts them all: a label checked by a join, and one value of it as an order. */
    const FOR_FEW =
      /(?<!(?:Limit[^\n]*|\(id = s(?:_\d+)?\.key_id\))\n[^\n]*)\bon labels held\b|\(SubPlan \d+\)[^\n]*owner_id|owner_id = \(SubPlan|ROW\(value, [^\n]*\bvalue = /;

    test.each(SEARCHES)('a search by %s reads an index, whichever leads', async (what, filter, index) => {
      for (const bounds of BOUNDS) {
        const { plans, ms } = await plansOf(async () => {
          const { items, next } = await searchHolders(database, filter, 51, undefined, bounds);
          expect(items.length).toBeGreaterThan(0);
          await searchHolders(database, filter, 51, next, bounds);
        });
        expect(plans).not.toMatch(WHOLE);
        expect(plans).not.toMatch(FOR_FEW);
        expect(plans).toMatch(index);
        if (IS_MEASURED) process.stderr.write(`${name}: search by ${what}: ${ms.toFixed(1)} ms\n`);
      }
    });

    test.each(SEARCHES.filter(([what]) => what.includes('name')))(
      'a large page of a search by %s sorts nothing',
      async (_what, filter) => {
        const { plans } = await plansOf(() =>
          searchHolders(database, { ...filter, name: 'n' }, 101, undefined, BOUNDS[0]),
        );
        expect(plans).not.toMatch(/Sort Key: [^\n]*lower/);
      },
    );

    test.each([
      ['holders', () => searchHolders(database, TWO_RANGES, 51, undefined, BOUNDS[0])],
      ['keys', () => listKeys(database, { ...TWO_RANGES, limit: 51 }, BOUNDS[0])],
    ] as const)('a search for %s by two ranges scans a piece of one of them', async (what, search) => {
      const { plans } = await plansOf(async () => expect((await search()).items).toHaveLength(51));
      const index = what === 'keys' ? 'key_search_by_name' : 'holders_by_name';
      expect(plans).toMatch(address.kind === 'sqlite' ? /MATERIALIZE scanned/ : /CTE scanned\n *-> {2}Limit/);
      expect(plans).toMatch(index);
      expect(plans).not.toMatch(/scanned\n[^\n]*Sort/);
    });

    test.each(LISTS.map(([what, filter, index, ofFew = index]) => [what, filter, index, ofFew] as const))(
      'a list of keys by %s reads its index, and its next page too',
      async (what, filter, index, ofFew) => {
        for (const bounds of BOUNDS) {
          const { plans, ms } = await plansOf(async () => {
            const { next } = await listKeys(database, { ...filter, limit: 51 }, bounds);
            if (next !== undefined) await listKeys(database, { ...filter, limit: 51, after: next }, bounds);
          });
          expect(plans).toMatch(bounds.maxFew === 0 ? index : ofFew);
          expect(plans).not.toMatch(FOR_FEW);
          if (what !== 'nothing') expect(plans).not.toMatch(WHOLE);
          if (IS_MEASURED)
            process.stderr.write(`${name}: two pages of keys by ${what}: ${ms.toFixed(1)} ms\n`);
        }
      },
    );

    test.each(Object.entries(REPORTS))('%s reads an index', async (what, query) => {
      const { plans, ms } = await plansOf(() =>
        query === undefined
          ? store.usage.usageOf({ kind: 'team', id: 't7' }, '2030-12-12')
          : store.usage.exactReport({ ...query, limit: 1000 }),
      );
      expect(query === undefined ? plans.replace(/^SCAN u$/m, '') : plans).not.toMatch(WHOLE);
      if (IS_MEASURED) process.stderr.write(`${name}: ${what}: ${ms.toFixed(1)} ms\n`);
    });

    const TEAMS_USED = Math.min(TEAMS, USED);
    test.each([
      { by: ['team', 'month'], count: 12 * TEAMS_USED },
      { by: ['team'], count: TEAMS_USED },
      { by: ['team', 'model'], count: MODELS * TEAMS_USED },
    ] as const)('a year by $by reads months alone, and adds up', async ({ by, count }) => {
      let cpuMs = 0;
      const { plans } = await plansOf(async () => {
        const from = process.cpuUsage();
        const query = { from: '2030-01-01', to: '2030-12-31', by, limit: 1_000_000 };
        const lines = await store.usage.exactReport(query);
        const { user, system } = process.cpuUsage(from);
        cpuMs = (user + system) / 1000;
        expect(lines).toHaveLength(count);
        const cost = lines.reduce((sum, { sums }) => sum + sums.cost, 0n);
        expect(cost).toBe(BigInt(12 * USED * MODELS) * 1_234_567n);
      });
      expect(plans).not.toMatch(/usage_days|usage_hours as/);
      if (IS_MEASURED)
        process.stderr.write(
          `${name}: a year of ${USED} keys by ${by}: ${cpuMs.toFixed(0)} ms of CPU time here\n`,
        );
    });
  },
  900_000,
);
