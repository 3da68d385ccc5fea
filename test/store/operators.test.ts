// Operators, their sessions and their events in each kind of database.
import { describe, expect, test } from 'vitest';
import { isPrefix } from '../../src/store/key-record.ts';
import type { NewOperatorEvent, OperatorRecord, OperatorSession } from '../../src/store/operator-record.ts';
import type { Store } from '../../src/store/store.ts';
import { STORE_KINDS, storeForEachTest } from './stores.ts';

const AT = '2030-01-02T03:04:05.006Z';
const HASH = (digit: number) => Buffer.alloc(32, digit);

function operator(name: string, prefix: string, given: Partial<OperatorRecord> = {}): OperatorRecord {
  if (!isPrefix(prefix)) throw new Error('not a prefix');
  const own = { name, prefix, role: 'viewer' as const, createdAt: AT, expiresAt: null, usedAt: null };
  return { id: `id-${name}`, argon2: '$argon2id$', hmac: HASH(1), ...own, ...given };
}

const event = (what: string, given: Partial<NewOperatorEvent> = {}): NewOperatorEvent => ({
  at: AT,
  actor: 'operator:ann',
  address: '192.0.2.1',
  what,
  target: 'x',
  reason: null,
  before: null,
  after: null,
  status: null,
  requestKey: null,
  digest: null,
  ...given,
});

const session = (id: string, operatorId: string, hash: Buffer, usedAt = AT): OperatorSession => ({
  id,
  operatorId,
  hash,
  previous: null,
  rotatedAt: AT,
  createdAt: AT,
  usedAt,
  address: '192.0.2.1',
});

describe.each(STORE_KINDS)('in $name', (kind) => {
  let store: Store;
  storeForEachTest(kind, (opened) => {
    store = opened;
  });

  const what = async () => (await store.operators.events({ limit: 100 })).map((each) => each.what);

  test('an operator is found by prefix and by name in any case, and is listed by name', async () => {
    const { operators } = store;
    const [bob, ann] = [operator('Bob', '0000000b', { role: 'admin' }), operator('ann', '0000000a')];
    expect(await operators.addOperator(bob, event('add'))).toBe('added');
    expect(await operators.addOperator(ann, event('add'))).toBe('added');
    expect((await operators.listOperators(10)).map(({ name }) => name)).toEqual(['ann', 'Bob']);
    const found = await operators.findOperator({ name: 'BOB' });
    expect(found && { ...found, hmac: Buffer.from(found.hmac) }).toEqual(bob);
    expect((await operators.findOperator({ prefix: '0000000a' }))?.id).toBe('id-ann');
    await operators.recordUse('id-ann', AT);
    expect((await operators.findOperator({ name: 'ann' }))?.usedAt).toBe(AT);
  });

  test('a taken name and a taken prefix are distinguished, and leave no event', async () => {
    const { operators } = store;
    await operators.addOperator(operator('ann', '0000000a'), event('first'));
    expect(await operators.addOperator(operator('ANN', '0000000b', { id: '2' }), event('second'))).toBe(
      'name_taken',
    );
    expect(await operators.addOperator(operator('bob', '0000000a'), event('third'))).toBe('prefix_taken');
    expect(await what()).toEqual(['first']);
  });

  test('another token ends the sessions of its operator, and of nobody else', async () => {
    const { operators } = store;
    await operators.addOperator(operator('ann', '0000000a'), event('add'));
    await operators.addOperator(operator('bob', '0000000b'), event('add'));
    await operators.addSession(session('1', 'id-ann', HASH(1)), '', '');
    await operators.addSession(session('2', 'id-bob', HASH(2)), '', '');
    const { prefix, argon2, hmac } = operator('ann', '0000000c');
    const token = { prefix, argon2, hmac, expiresAt: AT };
    expect(await operators.replaceToken('id-ann', token, event('rotate'))).toBe('replaced');
    expect(await operators.findSession(HASH(1))).toBeUndefined();
    expect((await operators.findSession(HASH(2)))?.operator.name).toBe('bob');
    expect(await operators.findOperator({ prefix: '0000000a' })).toBeUndefined();
    expect((await operators.findOperator({ prefix: '0000000c' }))?.expiresAt).toBe(AT);
    expect(
      await operators.replaceToken(
        'nobody',
        { ...token, prefix: operator('x', '0000000d').prefix },
        event('no'),
      ),
    ).toBe('unknown');
    expect(await operators.replaceToken('id-bob', token, event('no'))).toBe('prefix_taken');
    expect(await operators.removeOperator('id-bob', event('remove'))).toBe('removed');
    expect(await operators.removeOperator('id-bob', event('no'))).toBe('unknown');
    expect(await operators.findSession(HASH(2))).toBeUndefined();
    expect(await what()).toEqual(['remove', 'rotate', 'add', 'add']);
  });

  test('a session is found by its hash and by the one before, and is rotated once', async () => {
    const { operators } = store;
    await operators.addOperator(operator('ann', '0000000a'), event('add'));
    await operators.addSession(session('1', 'id-ann', HASH(1)), '', '');
    const rotated = await Promise.all(
      [2, 3].map((to) => operators.rotateSession('1', HASH(1), HASH(to), AT)),
    );
    expect(rotated.toSorted()).toEqual([false, true]);
    const now = HASH(rotated[0] ? 2 : 3);
    for (const hash of [HASH(1), now]) {
      const found = await operators.findSession(hash);
      expect(found && Buffer.from(found.session.hash)).toEqual(now);
    }
    await operators.touchSession('1', '2031-01-01T00:00:00.000Z');
    expect((await operators.findSession(now))?.session.usedAt).toBe('2031-01-01T00:00:00.000Z');
    await operators.endSession('1');
    expect(await operators.findSession(now)).toBeUndefined();
  });

  test('a new session removes those that are over', async () => {
    const { operators } = store;
    await operators.addOperator(operator('ann', '0000000a'), event('add'));
    await operators.addSession(session('1', 'id-ann', HASH(1), '2030-01-01T00:00:00.000Z'), '', '');
    await operators.addSession(session('2', 'id-ann', HASH(2)), '2030-01-02T00:00:00.000Z', '');
    expect(await operators.findSession(HASH(1))).toBeUndefined();
    expect(await operators.findSession(HASH(2))).toBeDefined();
  });

  test('of events with one request key one is added, and the others get it', async () => {
    const { operators } = store;
    const given = event('keys.revoke', { requestKey: 'k', digest: 'd' });
    const results = await Promise.all(Array.from({ length: 5 }, () => operators.addEvent(given)));
    const [id] = results.flatMap((each) => ('id' in each ? [each.id] : []));
    expect(results.filter((each) => 'id' in each)).toHaveLength(1);
    expect(id).toBeDefined();
    await operators.settleEvent(id ?? 0, { status: 200, after: '{}' });
    expect(await operators.addEvent(given)).toEqual({ known: { ...given, id, status: 200, after: '{}' } });
    expect(await operators.addEvent({ ...given, actor: 'operator:bob' })).toHaveProperty('id');
    await operators.dropEvent(id ?? 0);
    expect(await operators.addEvent(given)).toHaveProperty('id');
  });

  test('events without a request key are each added, filtered, paged and forgotten', async () => {
    const { operators } = store;
    for (const name of ['a', 'b', 'c'])
      await operators.addEvent(event(name, { target: name === 'b' ? 'y' : 'x' }));
    const all = await operators.events({ limit: 2 });
    expect(all.map((each) => each.what)).toEqual(['c', 'b']);
    const rest = await operators.events({ limit: 2, before: all[1]?.id ?? 0 });
    expect(rest.map((each) => each.what)).toEqual(['a']);
    expect(await operators.events({ limit: 9, target: 'y' })).toHaveLength(1);
    expect(await operators.events({ limit: 9, what: 'a', actor: 'operator:ann' })).toHaveLength(1);
    expect(await operators.events({ limit: 9, actor: 'operator:bob' })).toEqual([]);
    await operators.addEvent(event('later', { at: '2032-01-01T00:00:00.000Z' }));
    expect(await what()).toEqual(['later']);
  });
});
