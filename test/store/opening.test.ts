import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { openStore, StoreOpenError } from '../../src/store/open.ts';
import { MIGRATIONS, migrate } from '../../src/store/schema/migrations.ts';
import { sqliteKysely } from '../../src/store/sqlite/sqlite.ts';
import { SqliteQueue } from '../../src/store/sqlite/sqlite-queue.ts';
import { SQLITE } from '../../src/store/sqlite/sqlite-schema.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { startChild } from './processes.ts';
import { newHolder, newKey, prefix } from './samples.ts';
import { openTried } from './tried.ts';

/** The steps of this version, as the database lists them. */
const released = MIGRATIONS.map(({ id, name }) => ({ id, name }));
/** The step that comes after them. */
const NEXT = Math.max(...MIGRATIONS.map(({ id }) => id)) + 1;

let dir: TempDir;

beforeEach(async () => {
  dir = await tempDir();
});

afterEach(() => dir.remove());

const open = (path: string) => openTried({ kind: 'sqlite', path });
const mode = (path: string) => (statSync(path).mode & 0o777).toString(8);

/** Opens the file with SQLite alone, runs `statements` and closes it. */
function alter(path: string, ...statements: string[]): void {
  const database = new DatabaseSync(path);
  for (const statement of statements) database.exec(statement);
  database.close();
}

describe('opening a SQLite store', () => {
  test('creates a folder and files that only this user can read', async () => {
    const path = join(dir.path, 'a', 'b', 'keys.db');
    const store = await open(path);
    await store.addKey(newKey(), newHolder(), null);
    expect(mode(join(dir.path, 'a', 'b'))).toBe('700');
    expect(readdirSync(join(dir.path, 'a', 'b'))).toEqual(['keys.db', 'keys.db-shm', 'keys.db-wal']);
    for (const file of readdirSync(join(dir.path, 'a', 'b'))) {
      expect(mode(join(dir.path, 'a', 'b', file))).toBe('600');
    }
    await store.close();
    expect(readdirSync(join(dir.path, 'a', 'b'))).toEqual(['keys.db']);
  });

  test('commits durably: write-ahead log, full synchronisation, foreign keys, on both connections', async () => {
    const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
    const store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
    const connections = new Set(exec.mock.contexts.filter((one) => one instanceof DatabaseSync));
    exec.mockRestore();
    expect(connections.size).toBe(2);
    for (const connection of connections) {
      const pragma = (name: string) => connection.prepare(`pragma ${name}`).get();
      expect(pragma('journal_mode')).toEqual({ journal_mode: 'wal' });
      expect(pragma('synchronous')).toEqual({ synchronous: 2 });
      expect(pragma('foreign_keys')).toEqual({ foreign_keys: 1 });
      // Waiting is the lane's: SQLite's own would block the event loop.
      expect(pragma('busy_timeout')).toEqual({ timeout: 0 });
    }
    await store.close();
    for (const connection of connections) expect(connection.isOpen).toBe(false);
  });

  test('keeps the data and the mode of an existing file', async () => {
    const path = dir.file('keys.db');
    writeFileSync(path, '', { mode: 0o640 });
    const first = await open(path);
    await first.addKey(newKey('0123abcd'), newHolder(), null);
    await first.close();
    const second = await open(path);
    expect(await second.findKey(prefix('0123abcd'))).toMatchObject({ state: 'active' });
    await second.close();
    expect(mode(path)).toBe('640');
  });

  test('rejects a schema of a newer version and leaves it unchanged', async () => {
    const path = dir.file('keys.db');
    await (await open(path)).close();
    alter(path, `insert into schema_migrations values (99, 'the future', '2040')`);
    await expect(open(path)).rejects.toThrow(StoreOpenError);
    await expect(open(path)).rejects.toThrow(
      /keys\.db: the store has schema 99 \(the future\).*newer version/,
    );
    alter(path, `delete from schema_migrations where id = 99`);
    await (await open(path)).close();
  });

  test('rejects a schema with another history', async () => {
    const path = dir.file('keys.db');
    await (await open(path)).close();
    alter(path, `update schema_migrations set name = 'else' where id = 1`);
    await expect(open(path)).rejects.toThrow(/schema 1 \(else\) where this version expects 1 \(keys\)/);
  });

  test('rejects a database of another program and adds nothing to it', async () => {
    const path = dir.file('other.db');
    alter(path, 'create table invoices (id integer primary key)');
    await expect(open(path)).rejects.toThrow(/tables of another program/);
    const database = new DatabaseSync(path);
    expect(database.prepare('select name from sqlite_schema').all()).toEqual([{ name: 'invoices' }]);
    database.close();
  });

  test('does not mistake the schema_migrations of another program for its own', async () => {
    const path = dir.file('other.db');
    alter(path, 'create table schema_migrations (version text primary key)');
    await expect(open(path)).rejects.toThrow(/tables of another program/);
  });

  test('rejects what is no database, no file or no path', async () => {
    writeFileSync(dir.file('text'), 'this is a text, and a long one at that. '.repeat(100));
    await expect(open(dir.file('text'))).rejects.toThrow(
      /cannot open the store .*text: file is not a database/,
    );
    mkdirSync(dir.file('folder'));
    await expect(open(dir.file('folder'))).rejects.toThrow(/folder: it is a directory; name a file in it$/);
    await expect(open(join(dir.file('text'), 'below'))).rejects.toThrow(StoreOpenError);
    for (const path of ['', ':memory:', 'file:x?mode=memory'])
      await expect(open(path)).rejects.toThrow(/path of a file/);
  });

  test('applies only missing migrations', async () => {
    const path = dir.file('keys.db');
    const step = { id: NEXT, name: 'more', statements: () => ['create table more (x integer) strict'] };
    const run = async (migrations: typeof MIGRATIONS) => {
      const database = new DatabaseSync(path);
      const lane = new SqliteQueue(database, { waitMs: 1000, maxWaiting: 10 });
      try {
        await migrate(sqliteKysely(lane), SQLITE, migrations);
        return database.prepare('select id, name from schema_migrations order by id').all();
      } finally {
        await lane.close();
      }
    };
    expect(await run(MIGRATIONS)).toEqual(released);
    expect(await run([...MIGRATIONS, step])).toEqual([...released, { id: NEXT, name: 'more' }]);
    // And a step that fails leaves the schema of before.
    const broken = {
      id: NEXT + 1,
      name: 'broken',
      statements: () => ['create table half (x integer) strict', 'create nonsense'],
    };
    await expect(run([...MIGRATIONS, step, broken])).rejects.toThrow(/syntax/);
    expect(await run([...MIGRATIONS, step])).toHaveLength(MIGRATIONS.length + 1);
    const database = new DatabaseSync(path);
    expect(database.prepare(`select name from sqlite_schema where name = 'half'`).all()).toEqual([]);
    database.close();
  });
});

describe('several processes that open a new store at once', () => {
  test.each([1, 2])('all succeed, with one secret (round %i)', async () => {
    const path = dir.file('keys.db');
    const children = Array.from({ length: 3 }, () => startChild('issue-keys.ts', [path, '2']));
    for (const child of children) expect([await child.ended, child.stderr()]).toEqual([0, '']);
    expect(readdirSync(dir.path).sort()).toEqual(['keys.db', 'keys.db.secret']);
    expect(mode(`${path}.secret`)).toBe('600');
    const store = await open(path);
    expect((await store.listKeys({ limit: 100 })).items).toHaveLength(6);
    // The secret that all of them used is the one in the file: the store would have refused a second one.
    const secret = readFileSync(`${path}.secret`, 'utf8');
    expect(secret).toMatch(/^[0-9a-f]{64}\n$/);
    await store.close();
  });
});
