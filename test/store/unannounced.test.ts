// Keys that a statement by hand has changed: each database notes them, and the store writes their events.
import { DatabaseSync } from 'node:sqlite';
import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { NO_TERMS } from '../../src/config/terms.ts';
import type { Store } from '../../src/store/store.ts';
import { newHolder, newKey, prefix } from './samples.ts';
import { STORE_KINDS, storeForEachTest } from './stores.ts';

const AT = '2030-01-01T00:00:00.000Z';
const BY = { at: AT, reason: null, actor: null };

async function run(address: StoreAddress, statement: string): Promise<readonly unknown[]> {
  if (address.kind === 'sqlite') {
    const database = new DatabaseSync(address.path);
    const rows = database.prepare(statement).all();
    database.close();
    return rows;
  }
  const client = new Client(address.url);
  await client.connect();
  const { rows } = await client.query(statement);
  await client.end();
  return rows;
}

describe.each(STORE_KINDS)('$name', (kind) => {
  let store: Store;
  let address: StoreAddress;
  storeForEachTest(kind, (opened, at) => {
    [store, address] = [opened, at];
  });

  const noted = () => run(address, 'select prefix from keys_unannounced order by prefix');

  test('notes nothing of what the store itself changes', async () => {
    const holder = newHolder();
    await store.addKey(newKey('aaaaaaaa'), holder, null);
    const holderId = (await store.findKey(prefix('aaaaaaaa')))?.holderId ?? '';
    await store.addKey(newKey('bbbbbbbb'), { kind: 'existing', id: holderId }, null);
    await store.changeHolder(holderId, { tier: 'Pro', standing: 'suspended' }, null, AT);
    await store.changeHolder(holderId, { name: 'Ada' }, null, AT);
    await store.changeKey(prefix('bbbbbbbb'), { expiresAt: AT, terms: NO_TERMS }, BY);
    await store.rotateKey({ prefix: prefix('aaaaaaaa') }, newKey('cccccccc'));
    await store.revokeKey(prefix('cccccccc'), null, AT);
    const last = await store.lastChange();
    expect(await noted()).toEqual([]);
    expect(await store.announceChanges(AT, 10)).toBe(0);
    expect(await store.lastChange()).toBe(last);
  });

  test('announces keys that were changed by hand, themselves or by their holders, each once', async () => {
    for (const name of ['aaaaaaaa', 'bbbbbbbb', 'cccccccc', 'dddddddd'])
      await store.addKey(newKey(name), newHolder(), null);
    const holderOf = async (name: string) => (await store.findKey(prefix(name)))?.holderId;
    await run(address, `update keys set version = 5 where prefix = 'aaaaaaaa'`);
    await run(
      address,
      `update keys set state = 'revoked', ended_at = '2030', version = 2 where prefix = 'bbbbbbbb'`,
    );
    await run(address, `update holders set tier = 'Pro' where id = '${await holderOf('cccccccc')}'`);
    await run(address, `update holders set tier = tier where id = '${await holderOf('dddddddd')}'`);
    expect(await noted()).toEqual([{ prefix: 'aaaaaaaa' }, { prefix: 'bbbbbbbb' }, { prefix: 'cccccccc' }]);
    const last = await store.lastChange();
    expect(await store.announceChanges(AT, 2)).toBe(2);
    expect(await store.announceChanges(AT, 2)).toBe(1);
    expect(await store.announceChanges(AT, 2)).toBe(0);
    const events = await store.changesAfter(last, 10);
    const reason = 'changed in the database';
    expect(events.map(({ id: _, ...event }) => event)).toEqual([
      { prefix: 'aaaaaaaa', kind: 'changed', version: 6, at: AT, reason, actor: null },
      { prefix: 'bbbbbbbb', kind: 'revoked', version: 2, at: AT, reason, actor: null },
      { prefix: 'cccccccc', kind: 'changed', version: 2, at: AT, reason, actor: null },
    ]);
    expect((await store.findKey(prefix('cccccccc')))?.tier).toBe('Pro');
  });

  test('announces a change by two processes at once without an error', async () => {
    await store.addKey(newKey('aaaaaaaa'), newHolder(), null);
    await run(address, `update keys set version = 2 where prefix = 'aaaaaaaa'`);
    const last = await store.lastChange();
    await Promise.all([store.announceChanges(AT, 10), store.announceChanges(AT, 10)]);
    expect((await store.changesAfter(last, 10)).length).toBeGreaterThanOrEqual(1);
    expect(await noted()).toEqual([]);
  });
});
