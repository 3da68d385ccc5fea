// The last line of defence for keys: what the database itself rejects, for any client. Raw SQL, as from a shell.
import { DatabaseSync } from 'node:sqlite';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { openStore } from '../../src/store/open.ts';
import { newHolder, newKey, prefix } from './samples.ts';
import { POSTGRES_KIND, SQLITE_KIND, type StoreSource } from './stores.ts';

/** A database as a shell sees it. */
interface Shell {
  run(statement: string): Promise<void>;
  rows(query: string): Promise<readonly unknown[]>;
  close(): Promise<void>;
}

const INSERT = `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at, ended_at, replaces)
  select`;
const copy = (columns: string) => `${INSERT} ${columns} from keys where prefix = 'aaaaaaaa'`;
const NEW = `'eeeeeeee', holder_id, argon2, hmac, 'active', 1, created_at, null, null`;

/** @param zeros an expression for that many zero bytes */
const refusedEverywhere = (zeros: (length: number) => string): Record<string, string> => ({
  'revoked to active': `update keys set state = 'active', ended_at = null, version = version + 1 where prefix = 'cccccccc'`,
  'invalidated to active': `update keys set state = 'active', ended_at = null, version = version + 1 where prefix = 'bbbbbbbb'`,
  'invalidated to revoked': `update keys set state = 'revoked', version = version + 1 where prefix = 'bbbbbbbb'`,
  'revoked to invalidated': `update keys set state = 'invalidated', version = version + 1 where prefix = 'cccccccc'`,
  'a new version of an ended key': `update keys set version = version + 1 where prefix = 'cccccccc'`,
  'another end of an ended key': `update keys set ended_at = '2031', version = version + 1 where prefix = 'cccccccc'`,
  'deletion of an active key': `delete from keys where prefix = 'aaaaaaaa'`,
  'deletion of an ended key': `delete from keys where prefix = 'cccccccc'`,
  'deletion of all keys': `delete from keys`,
  'another prefix': `update keys set prefix = 'eeeeeeee', version = version + 1 where prefix = 'aaaaaaaa'`,
  'another hmac': `update keys set hmac = ${zeros(32)}, version = version + 1 where prefix = 'aaaaaaaa'`,
  'another argon2': `update keys set argon2 = '$argon2id$x', version = version + 1 where prefix = 'aaaaaaaa'`,
  'another holder': `update keys set version = version + 1, holder_id =
    (select holder_id from keys where prefix = 'bbbbbbbb') where prefix = 'aaaaaaaa'`,
  'another predecessor': `update keys set replaces = 'cccccccc', version = version + 1 where prefix = 'aaaaaaaa'`,
  'another time of issue': `update keys set created_at = '2000', version = version + 1 where prefix = 'aaaaaaaa'`,
  'an end without a new version': `update keys set state = 'revoked', ended_at = '2030' where prefix = 'aaaaaaaa'`,
  'an older version': `update keys set version = 0 where prefix = 'aaaaaaaa'`,
  'an end without its time': `update keys set state = 'revoked', version = 2 where prefix = 'aaaaaaaa'`,
  'a time of end while active': `update keys set ended_at = '2030', version = 2 where prefix = 'aaaaaaaa'`,
  'an unknown state': `update keys set state = 'paused', ended_at = '2030', version = 2 where prefix = 'aaaaaaaa'`,
  'a key that begins revoked': copy(
    NEW.replace(`'active', 1, created_at, null`, `'revoked', 1, created_at, '2030'`),
  ),
  'a key that begins at version 2': copy(NEW.replace(`'active', 1`, `'active', 2`)),
  'a second successor': copy(NEW.replace(/null$/, `'bbbbbbbb'`)),
  'a successor of nothing': copy(NEW.replace(/null$/, `'00000000'`)),
  'a key of nobody': copy(NEW.replace('holder_id', `'nobody'`)),
  'a prefix with capitals': copy(NEW.replace('eeeeeeee', 'EEEEEEEE')),
  'a prefix that is too long': copy(NEW.replace('eeeeeeee', 'eeeeeeeee')),
  'a short hmac': copy(NEW.replace('hmac', zeros(31))),
  'another kind of hash': copy(NEW.replace('argon2', `'$2b$10$abc'`)),
  'the same prefix again': copy(NEW.replace('eeeeeeee', 'cccccccc')),
  'an unknown tier': `update holders set tier = 'Gold'`,
  'an unknown standing': `update holders set standing = 'bad'`,
  'an unknown kind of event': `insert into key_events (prefix, kind, version, at)
    values ('aaaaaaaa', 'lost', 2, '2030')`,
  'deletion of a holder': `delete from holders`,
  'another event': `update key_events set kind = 'issued'`,
  'deletion of events': `delete from key_events`,
});

// A shell has no foreign keys in SQLite, and what must hold without them is asked without. Nor has it recursive triggers,
// which `insert or replace` would need to ask for its deletion.
const REFUSED_BY_SQLITE: Record<string, string> = {
  ...refusedEverywhere((length) => `zeroblob(${length})`),
  'deletion of an active key': `pragma foreign_keys = off; delete from keys where prefix = 'aaaaaaaa'`,
  'deletion of an ended key': `pragma foreign_keys = off; delete from keys where prefix = 'cccccccc'`,
  'deletion of all keys': `pragma foreign_keys = off; delete from keys`,
  'an hmac that is text': copy(NEW.replace('hmac', `'${'x'.repeat(32)}'`)),
  'replacement of a revoked key': copy(NEW.replace('eeeeeeee', 'cccccccc')).replace(
    'insert',
    'insert or replace',
  ),
  'replacement by predecessor': copy(NEW.replace(/null$/, `'bbbbbbbb'`)).replace(
    'insert',
    'insert or replace',
  ),
  'replacement by id': copy(NEW)
    .replace('insert', 'insert or replace')
    .replace('(prefix', '(id, prefix')
    .replace('select', 'select 3,'),
  'update or replace': `update or replace keys set prefix = 'cccccccc', version = 2 where prefix = 'aaaaaaaa'`,
  'replacement of an event': `insert or replace into key_events (id, prefix, kind, version, at)
    values (1, 'aaaaaaaa', 'issued', 1, '2030')`,
};

const REFUSED_BY_POSTGRES: Record<string, string> = {
  ...refusedEverywhere((length) => `decode(repeat('00', ${length}), 'hex')`),
  'truncation of keys': `truncate keys, key_events`,
  'truncation of events': `truncate key_events`,
  'truncation by way of holders': `truncate holders cascade`,
  'truncation of a holder alone': `truncate holders`,
  'an upsert that brings a revoked key back': `${copy(NEW.replace('eeeeeeee', 'cccccccc'))}
    on conflict (prefix) do update set state = 'active', ended_at = null, version = keys.version + 1`,
  'an upsert that changes a hash': `${copy(NEW.replace('eeeeeeee', 'aaaaaaaa'))}
    on conflict (prefix) do update set argon2 = '$argon2id$x', version = keys.version + 1`,
  'a key with an id of its own': copy(NEW).replace('(prefix', '(id, prefix').replace('select', 'select 3,'),
  'an event with an id of its own': `insert into key_events (id, prefix, kind, version, at)
    values (1, 'aaaaaaaa', 'issued', 1, '2030')`,
  'a day that is none': `insert into free_key_grants values ('2030-1-1', ${`decode(repeat('00', 32), 'hex')`}, 1)`,
};

const KINDS = [
  { kind: SQLITE_KIND, refused: REFUSED_BY_SQLITE },
  { kind: POSTGRES_KIND, refused: REFUSED_BY_POSTGRES },
];

describe.each(KINDS)('$kind.name', ({ kind, refused }) => {
  let source: StoreSource;
  /** All refusals are in one store, because none changes it. */
  let shared: StoreAddress;
  /** A connection of each test's own. */
  let shell: Shell;

  beforeAll(async () => {
    source = await kind.start();
    shared = await filled();
  }, kind.timeout);

  afterAll(() => source[Symbol.asyncDispose]());

  beforeEach(async () => {
    shell = await shellOf(shared);
  });

  afterEach(() => shell.close());

  async function filled(): Promise<StoreAddress> {
    const address = await source.fresh();
    const store = await openStore(address);
    await store.addKey(newKey('aaaaaaaa'), newHolder(), null);
    await store.addKey(newKey('bbbbbbbb'), newHolder(), null);
    await store.addKey(newKey('cccccccc'), newHolder(), null);
    await store.rotateKey({ prefix: prefix('bbbbbbbb') }, newKey('dddddddd'));
    await store.revokeKey(prefix('cccccccc'), null, '2030-01-01T00:00:00Z');
    await store.close();
    return address;
  }

  async function everything(): Promise<unknown[]> {
    const tables: unknown[] = [];
    for (const table of ['keys', 'holders', 'key_events', 'free_key_grants']) {
      tables.push(await shell.rows(`select * from ${table} order by 1`));
    }
    return tables;
  }

  test.each(Object.entries(refused))('rejects %s', async (_, statement) => {
    const before = await everything();
    await expect(shell.run(statement)).rejects.toThrow(
      /constraint|never|nothing leaves|begins|raises|exists|cannot store|cannot insert a non-DEFAULT/i,
    );
    expect(await everything()).toEqual(before);
  });

  test('rejects truncating the tables of keys and events', async () => {
    for (const [name, statement] of Object.entries(refused)) {
      if (!/^(deletion of|truncation of|truncation by way)/.test(name) || /holder$|alone/.test(name))
        continue;
      await expect(shell.run(statement)).rejects.toThrow(/never deleted/);
    }
  });

  test('allows the store’s own insert and end', async () => {
    await shell.close();
    shell = await shellOf(await filled());
    await shell.run(copy(NEW));
    await shell.run(
      `update keys set state = 'revoked', ended_at = '2030', version = 2 where prefix = 'eeeeeeee'`,
    );
    expect(await shell.rows(`select state from keys where prefix = 'eeeeeeee'`)).toEqual([
      { state: 'revoked' },
    ]);
  });
});

async function shellOf(address: StoreAddress): Promise<Shell> {
  return address.kind === 'sqlite' ? sqliteShell(address.path) : await postgresShell(address.url);
}

function sqliteShell(path: string): Shell {
  const database = new DatabaseSync(path);
  return {
    run: async (statement) => database.exec(statement),
    rows: async (query) => database.prepare(query).all(),
    close: async () => database.close(),
  };
}

async function postgresShell(url: string): Promise<Shell> {
  const client = new Client({ connectionString: url });
  await client.connect();
  return {
    run: async (statement) => {
      await client.query(statement);
    },
    rows: async (query) => (await client.query(query)).rows,
    close: () => client.end(),
  };
}
