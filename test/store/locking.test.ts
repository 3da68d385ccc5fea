import { DatabaseSync } from 'node:sqlite';
import { type Kysely, sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { sqliteKysely } from '../../src/store/sqlite/sqlite.ts';
import { SqliteQueue } from '../../src/store/sqlite/sqlite-queue.ts';
import type { Store } from '../../src/store/store.ts';
import { pause, type TempDir, tempDir, until } from '../helpers/wait.ts';
import { startChild } from './processes.ts';
import { newHolder, newKey } from './samples.ts';

let dir: TempDir;

beforeEach(async () => {
  dir = await tempDir();
});

afterEach(() => dir.remove());

describe('while another process holds the write lock', () => {
  let store: Store;

  beforeEach(async () => {
    store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
  });

  afterEach(() => store.close());

  test('writes fail with store_unavailable by the deadline, without blocking the event loop, and reads work', async () => {
    const added = await store.addKey(newKey(), newHolder(), null);
    if (added.kind !== 'added') throw new Error(added.kind);
    await using holder = startChild('hold-lock.ts', [dir.file('keys.db')]);
    expect(await holder.nextLine()).toBe('locked');

    let ticks = 0;
    const ticking = setInterval(() => {
      ticks += 1;
    }, 5);
    const begun = performance.now();
    const writes = [
      store.addKey(newKey(), newHolder(), null),
      store.rotateKey(added.record, newKey()),
      store.revokeKey(added.record.prefix, null, '2030-01-01T00:00:00Z'),
      store.pin('secret_check', Buffer.alloc(32)),
    ];
    const outcomes = Promise.allSettled<unknown>(writes);
    expect(await store.findKey(added.record.prefix)).toMatchObject({ state: 'active' });
    expect(await store.lastChange()).toBe(1);
    expect(performance.now() - begun).toBeLessThan(1400);
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({
        status: 'rejected',
        reason: { code: 'store_unavailable', cause: expect.any(Error) },
      });
    }
    const waited = performance.now() - begun;
    clearInterval(ticking);
    expect(waited).toBeGreaterThan(1000);
    // The deadline is 1.5 s; the rest is for a slow machine.
    expect(waited).toBeLessThan(10_000);
    expect(ticks).toBeGreaterThan(20);

    holder.process.stdin?.end();
    expect(await holder.nextLine()).toBe('released');
    expect(await store.findKey(added.record.prefix)).toMatchObject({ state: 'active', version: 1 });
    expect(await store.revokeKey(added.record.prefix, null, '2030-01-01T00:00:00Z')).toMatchObject({
      kind: 'revoked',
    });
  });

  test('the store can be opened and read', async () => {
    const added = await store.addKey(newKey(), newHolder(), null);
    if (added.kind !== 'added') throw new Error(added.kind);
    await using holder = startChild('hold-lock.ts', [dir.file('keys.db')]);
    await holder.nextLine();
    const second = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
    expect(await second.findKey(added.record.prefix)).toMatchObject({ state: 'active' });
    await second.close();
  });

  test('a waiting write succeeds when the lock is free in time', async () => {
    await using holder = startChild('hold-lock.ts', [dir.file('keys.db')]);
    await holder.nextLine();
    const write = store.addKey(newKey(), newHolder(), null);
    holder.process.stdin?.end();
    expect(await write).toMatchObject({ kind: 'added' });
  });
});

describe('a connection queue', () => {
  let database: DatabaseSync;
  let lane: SqliteQueue;
  let db: Kysely<{ t: { id: number } }>;

  beforeEach(() => {
    database = new DatabaseSync(dir.file('lane.db'), { timeout: 0 });
    database.exec('create table t (id integer primary key) strict');
    lane = new SqliteQueue(database, { waitMs: 500, maxWaiting: 3 });
    db = sqliteKysely(lane);
  });

  afterEach(() => lane.close());

  const count = () => db.selectFrom('t').select('id').execute();
  const insert = (id: number) => db.insertInto('t').values({ id }).execute();

  test('runs no query between two statements of a transaction', async () => {
    let letGo = (): void => {};
    const pausing = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const transaction = db.transaction().execute(async (trx) => {
      await trx.insertInto('t').values({ id: 1 }).execute();
      await pausing;
      throw new Error('taken back');
    });
    const seen = count();
    letGo();
    await expect(transaction).rejects.toThrow('taken back');
    expect(await seen).toEqual([]);
  });

  test('retries a single statement while another connection holds the lock of the file', async () => {
    const other = new DatabaseSync(dir.file('lane.db'));
    other.exec('begin immediate');
    const inserted = insert(1);
    await pause(20);
    other.exec('rollback');
    await inserted;
    other.exec('begin immediate');
    await expect(insert(2)).rejects.toThrow('database is locked');
    other.close();
    expect(await count()).toEqual([{ id: 1 }]);
  });

  test('serves waiting callers in order', async () => {
    await lane.acquire();
    const order: number[] = [];
    const waiting = [1, 2, 3].map(async (id) => {
      await lane.acquire();
      order.push(id);
      lane.release();
    });
    lane.release();
    await Promise.all(waiting);
    expect(order).toEqual([1, 2, 3]);
  });

  test('rejects callers when the queue is full or the wait is too long', async () => {
    await lane.acquire();
    const waiting = [insert(1), insert(2), insert(3)];
    await expect(insert(4)).rejects.toThrow('the queue for the store is full: 3 callers wait');
    for (const outcome of await Promise.allSettled(waiting)) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { message: /not free within 500 ms/ } });
    }
    lane.release();
    await insert(5);
    expect(await count()).toEqual([{ id: 5 }]);
  });

  test('lets the owner finish its transaction at close and rejects all others', async () => {
    let letGo = (): void => {};
    const pausing = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const transaction = db.transaction().execute(async (trx) => {
      await pausing;
      await trx.insertInto('t').values({ id: 1 }).execute();
    });
    await until(() => database.isTransaction);
    const waiting = insert(2);
    const closed = lane.close();
    await expect(waiting).rejects.toThrow('the store is closed');
    await expect(insert(3)).rejects.toThrow('the store is closed');
    expect(database.isOpen).toBe(true);
    letGo();
    await transaction;
    await closed;
    expect(database.isOpen).toBe(false);
    const again = new DatabaseSync(dir.file('lane.db'));
    expect(again.prepare('select id from t').all()).toEqual([{ id: 1 }]);
    again.close();
  });

  test('ends a query outside the transaction, awaited inside it, at the deadline', async () => {
    const stuck = db.transaction().execute(async () => {
      await insert(1);
    });
    await expect(stuck).rejects.toThrow(/not free within/);
    await insert(2);
    expect(await count()).toEqual([{ id: 2 }]);
  });

  test('rolls back the whole transaction of a failed statement, and the next one is not affected', async () => {
    await insert(1);
    const failing = db.transaction().execute(async (trx) => {
      await trx.insertInto('t').values({ id: 2 }).execute();
      await trx.insertInto('t').values({ id: 1 }).execute();
    });
    await expect(failing).rejects.toThrow(/UNIQUE/);
    await db.transaction().execute((trx) => trx.insertInto('t').values({ id: 3 }).execute());
    expect(await count()).toEqual([{ id: 1 }, { id: 3 }]);
  });

  test('leaves no transaction open for the next caller when a commit fails', async () => {
    database.exec('create table child (t integer references t (id) deferrable initially deferred) strict');
    const orphan = db.transaction().execute((trx) => sql`insert into child values (7)`.execute(trx));
    await expect(orphan).rejects.toThrow(/FOREIGN KEY/);
    expect(database.isTransaction).toBe(false);
    expect(await sql`select * from child`.execute(db)).toMatchObject({ rows: [] });
  });

  test('prepares a statement once, and again when the schema has changed', async () => {
    const prepare = database.prepare.bind(database);
    let prepared = 0;
    database.prepare = (text) => {
      prepared += 1;
      return prepare(text);
    };
    await insert(1);
    for (let round = 0; round < 10; round += 1) await sql`select * from t`.execute(db);
    expect(prepared).toBe(2);
    await sql`alter table t add column more text`.execute(db);
    expect((await sql`select * from t`.execute(db)).rows).toEqual([{ id: 1, more: null }]);
    for (let id = 0; id < 500; id += 1) await sql.raw(`select ${id}`).execute(db);
    await sql`select * from t`.execute(db);
    expect(prepared).toBe(504);
  });

  test('rejects values that SQLite does not have', async () => {
    await expect(sql`select ${true}`.execute(db)).rejects.toThrow('a boolean cannot be stored');
    await expect(sql`select ${{}}`.execute(db)).rejects.toThrow('a object cannot be stored');
  });
});
