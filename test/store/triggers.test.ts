import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { newHolder, newKey, prefix } from './samples.ts';

// Raw SQL on the file, with the defaults of a shell: no recursive triggers, as `insert or replace` would need. A shell has
// no foreign keys either, and what must hold without them says so.
let dir: TempDir;
let database: DatabaseSync;

beforeEach(async () => {
  dir = await tempDir();
  const path = dir.file('keys.db');
  const store = await openStore({ kind: 'sqlite', path });
  await store.addKey(newKey('aaaaaaaa'), newHolder(), null);
  await store.addKey(newKey('bbbbbbbb'), newHolder(), null);
  await store.addKey(newKey('cccccccc'), newHolder(), null);
  await store.rotateKey({ prefix: prefix('bbbbbbbb'), version: 1 }, newKey('dddddddd'));
  await store.revokeKey(prefix('cccccccc'), null, '2030-01-01T00:00:00Z');
  await store.close();
  database = new DatabaseSync(path);
});

afterEach(async () => {
  database.close();
  await dir.remove();
});

const INSERT = `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at, ended_at, replaces)
  select`;
const copy = (columns: string) => `${INSERT} ${columns} from keys where prefix = 'aaaaaaaa'`;
const NEW = `'eeeeeeee', holder_id, argon2, hmac, 'active', 1, created_at, null, null`;

const REFUSED: Record<string, string> = {
  'revoked to active': `update keys set state = 'active', ended_at = null, version = version + 1 where prefix = 'cccccccc'`,
  'invalidated to active': `update keys set state = 'active', ended_at = null, version = version + 1 where prefix = 'bbbbbbbb'`,
  'invalidated to revoked': `update keys set state = 'revoked', version = version + 1 where prefix = 'bbbbbbbb'`,
  'revoked to invalidated': `update keys set state = 'invalidated', version = version + 1 where prefix = 'cccccccc'`,
  'a new version of an ended key': `update keys set version = version + 1 where prefix = 'cccccccc'`,
  'another end of an ended key': `update keys set ended_at = '2031', version = version + 1 where prefix = 'cccccccc'`,
  'deletion of an active key': `pragma foreign_keys = off; delete from keys where prefix = 'aaaaaaaa'`,
  'deletion of an ended key': `pragma foreign_keys = off; delete from keys where prefix = 'cccccccc'`,
  'deletion of all keys': `pragma foreign_keys = off; delete from keys`,
  'another prefix': `update keys set prefix = 'eeeeeeee', version = version + 1 where prefix = 'aaaaaaaa'`,
  'another hmac': `update keys set hmac = zeroblob(32), version = version + 1 where prefix = 'aaaaaaaa'`,
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
  'a short hmac': copy(NEW.replace('hmac', 'zeroblob(31)')),
  'an hmac that is text': copy(NEW.replace('hmac', `'${'x'.repeat(32)}'`)),
  'another kind of hash': copy(NEW.replace('argon2', `'$2b$10$abc'`)),
  'the same prefix again': copy(NEW.replace('eeeeeeee', 'cccccccc')),
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
  'an unknown tier': `update holders set tier = 'Gold'`,
  'deletion of a holder': `delete from holders`,
  'another event': `update key_events set kind = 'issued'`,
  'deletion of events': `delete from key_events`,
  'replacement of an event': `insert or replace into key_events (id, prefix, kind, version, at)
    values (1, 'aaaaaaaa', 'issued', 1, '2030')`,
};

describe('the database refuses', () => {
  test.each(Object.entries(REFUSED))('%s', (_, statement) => {
    const before = everything();
    expect(() => database.exec(statement)).toThrow(
      /constraint|never|nothing leaves|begins|raises|exists|cannot store/i,
    );
    expect(everything()).toEqual(before);
  });
});

test('what it allows is what the store does: an insert and an end', () => {
  database.exec(copy(NEW));
  database.exec(
    `update keys set state = 'revoked', ended_at = '2030', version = 2 where prefix = 'eeeeeeee'`,
  );
  expect(database.prepare(`select state from keys where prefix = 'eeeeeeee'`).get()).toEqual({
    state: 'revoked',
  });
});

function everything(): unknown[] {
  return ['keys', 'holders', 'key_events'].map((table) =>
    database.prepare(`select * from ${table} order by 1`).all(),
  );
}
