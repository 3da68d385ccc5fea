// The outbox over a PostgreSQL server that pauses, and one that ends its connections at any moment.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { POSTGRES_TIMEOUT, type PostgresServer, query, startPostgres } from '../helpers/postgres.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { FaultyStore } from './faulty-store.ts';
import { BY_HAND, open, QUICK, record, sums } from './samples.ts';

let server: PostgresServer;
let store: Store;
let dir: TempDir;

beforeAll(async () => {
  server = await startPostgres();
}, POSTGRES_TIMEOUT);

afterAll(() => server[Symbol.asyncDispose]());

beforeEach(async () => {
  dir = await tempDir();
  store = await openStore({ kind: 'postgres', url: await server.createDatabase() });
});

afterEach(async () => {
  server.resume();
  await store.close();
  await dir.remove();
});

test('the outbox grows while the server pauses, and drains when it continues', async () => {
  const { outbox, told } = await open(store.usage, dir.file('directory'), QUICK);
  outbox.record(record());
  await until(async () => (await sums(store.usage))?.requests === 1, 'the first request');
  server.pause();
  for (let index = 0; index < 500; index += 1) {
    outbox.record(record({ model: `m${index % 50}` }));
    if (index % 50 === 0) await new Promise((done) => setTimeout(done, 10));
  }
  await until(() => told.batches.failed > 1, 'attempts');
  expect(told.waiting.segments).toBeGreaterThan(0);
  expect(told.dropped).toEqual({});
  server.resume();
  await until(() => told.waiting.segments === 0, 'an empty outbox');
  expect((await until(() => sums(store.usage))).requests).toBe(501);
  await outbox.close(30_000);
}, 120_000);

test('connections that break at any time, also in a commit, lose nothing and count nothing twice', async () => {
  const { outbox, told } = await open(store.usage, dir.file('directory'), {
    ...QUICK,
    writeMs: 1,
    sendMs: 1,
  });
  let recorded = 0;
  for (let round = 0; round < 40; round += 1) {
    for (let index = 0; index < 10; index += 1) {
      outbox.record(record({ model: `m${index}` }));
      recorded += 1;
    }
    await new Promise((done) => setTimeout(done, round % 7));
    await query(
      server.url(),
      `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tollgate'`,
    );
  }
  await until(() => outbox.flush(), 'an empty outbox');
  expect((await until(() => sums(store.usage))).requests).toBe(recorded);
  expect(told.batches.failed).toBeGreaterThan(0);
  await outbox.close(30_000);
}, 120_000);

test('a batch that the server committed counts once when the process ends before its removal', async () => {
  const faulty = new FaultyStore(store.usage);
  faulty.rest = 'commits and fails';
  const first = await open(faulty, dir.file('directory'), BY_HAND);
  first.outbox.record(record());
  expect(await first.outbox.flush()).toBe(false);
  await first.outbox.abandon();
  const second = await open(store.usage, dir.file('directory'), BY_HAND);
  second.outbox.record(record());
  expect(await second.outbox.flush()).toBe(true);
  expect(second.told.batches).toMatchObject({ known: 1, written: 1 });
  expect((await sums(store.usage))?.requests).toBe(2);
  await second.outbox.close(30_000);
});
