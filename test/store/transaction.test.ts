// A transaction is repeated where another one has removed what it refers to, and in no other case.
import { DummyDriver, Kysely, SqliteAdapter, SqliteIntrospector, SqliteQueryCompiler } from 'kysely';
import { expect, test } from 'vitest';
import type { Tables } from '../../src/store/schema/tables.ts';
import { transact } from '../../src/store/sql/sql-database.ts';

const writer = new Kysely<Tables>({
  dialect: {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (kysely) => new SqliteIntrospector(kysely),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  },
});

/** Fails this many times with this code. @returns what became of it, and how often it ran */
async function run(failures: number, code: string) {
  let runs = 0;
  const work = async () => {
    runs += 1;
    if (runs <= failures) throw Object.assign(new Error('failed'), { code });
    return 'done';
  };
  const result = await transact({ writer }, work).catch((error: Error) => error.message);
  return [result, runs];
}

test('a transaction whose reference was removed meanwhile is repeated once', async () => {
  expect(await run(1, '23503')).toEqual(['done', 2]);
  expect(await run(2, '23503')).toEqual(['failed', 2]);
});

test('a transaction that fails otherwise is not repeated', async () => {
  expect(await run(1, '23505')).toEqual(['failed', 1]);
});
