import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import type { NewKey, SearchPosition } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { newHolder, newKey, prefix } from './samples.ts';
import { STORE_KINDS, storeForEachTest } from './stores.ts';

describe.each(STORE_KINDS)('in $name', (kind) => {
  let address: StoreAddress;
  let store: Store;
  storeForEachTest(kind, (opened, at) => {
    store = opened;
    address = at;
  });

  async function add(key: NewKey = newKey(), holder = newHolder()) {
    const outcome = await store.addKey(key, holder, null);
    if (outcome.kind !== 'added') throw new Error(outcome.kind);
    return outcome.record;
  }

  describe('adding a key', () => {
    test('stores it active, with its holder, and returns it', async () => {
      const key = newKey('0123abcd');
      const outcome = await store.addKey(key, newHolder('Pro', 'ein Übungs-Schlüssel'), 'why');
      const record = await store.findKey(prefix('0123abcd'));
      expect(outcome).toEqual({ kind: 'added', record });
      expect(record).toMatchObject({
        prefix: '0123abcd',
        tier: 'Pro',
        holderName: 'ein Übungs-Schlüssel',
        state: 'active',
        version: 1,
        argon2: key.argon2,
        createdAt: key.createdAt,
        endedAt: null,
        replaces: null,
        replacedBy: null,
      });
      expect(Buffer.from(record?.hmac ?? [])).toEqual(key.hmac);
      expect(await store.historyOf(prefix('0123abcd'))).toMatchObject([
        { kind: 'issued', version: 1, at: key.createdAt, reason: 'why' },
      ]);
    });

    test('a taken prefix changes nothing, in any state of that key', async () => {
      const first = await add();
      const again = () => store.addKey(newKey(first.prefix), newHolder(), null);
      expect(await again()).toEqual({ kind: 'prefix_taken' });
      await store.revokeKey(first.prefix, null, first.createdAt);
      expect(await again()).toEqual({ kind: 'prefix_taken' });
      expect((await store.listKeys({ limit: 10 })).items).toHaveLength(1);
      expect(await store.lastChange()).toBe(2);
    });

    test('a second key of a holder shares holder, tier and name', async () => {
      const first = await add(newKey(), newHolder('Pro', 'shared'));
      await store.revokeKey(first.prefix, null, first.createdAt);
      const second = await store.addKey(newKey(), { kind: 'of', prefix: first.prefix }, null);
      expect(second).toMatchObject({
        kind: 'added',
        record: {
          holderId: first.holderId,
          tier: 'Pro',
          holderName: 'shared',
          state: 'active',
          replaces: null,
        },
      });
    });

    test('an unknown key has no holder for a new key', async () => {
      const outcome = await store.addKey(newKey(), { kind: 'of', prefix: prefix('00000000') }, null);
      expect(outcome).toEqual({ kind: 'unknown_holder' });
      expect((await store.listKeys({ limit: 10 })).items).toEqual([]);
    });

    test('an unknown key is undefined', async () => {
      expect(await store.findKey(prefix('ffffffff'))).toBeUndefined();
    });
  });

  describe('rotation', () => {
    test('ends the old key and stores the new one for the same holder', async () => {
      const old = await add(newKey(), newHolder('Pro', 'team'));
      const successor = newKey();
      const outcome = await store.rotateKey(old, successor);
      expect(outcome).toMatchObject({
        kind: 'rotated',
        record: {
          prefix: successor.prefix,
          holderId: old.holderId,
          tier: 'Pro',
          holderName: 'team',
          state: 'active',
        },
      });
      expect(await store.findKey(old.prefix)).toMatchObject({
        state: 'invalidated',
        version: 2,
        endedAt: successor.createdAt,
        replacedBy: successor.prefix,
      });
      expect(await store.findKey(successor.prefix)).toMatchObject({ replaces: old.prefix, version: 1 });
      expect(await store.changesAfter(1, 10)).toMatchObject([
        { id: 2, prefix: old.prefix, kind: 'rotated', version: 2 },
        { id: 3, prefix: successor.prefix, kind: 'issued', version: 1 },
      ]);
    });

    test.each(['rotated', 'revoked', 'unknown'])('a key that is %s is not rotated', async (how) => {
      const old = await add();
      if (how === 'rotated') await store.rotateKey(old, newKey());
      if (how === 'revoked') await store.revokeKey(old.prefix, null, old.createdAt);
      const subject = how === 'unknown' ? { prefix: prefix('00000000') } : old;
      const before = [(await store.listKeys({ limit: 10 })).items, await store.lastChange()];
      expect(await store.rotateKey(subject, newKey())).toEqual({ kind: 'not_active' });
      expect([(await store.listKeys({ limit: 10 })).items, await store.lastChange()]).toEqual(before);
    });

    test('with a taken prefix leaves the old key active', async () => {
      const old = await add();
      const other = await add();
      expect(await store.rotateKey(old, newKey(other.prefix))).toEqual({ kind: 'prefix_taken' });
      expect(await store.findKey(old.prefix)).toMatchObject({ state: 'active', version: 1 });
    });

    test('many at once: one succeeds and one successor exists', async () => {
      const old = await add();
      const outcomes = await Promise.all(Array.from({ length: 50 }, () => store.rotateKey(old, newKey())));
      expect(outcomes.filter(({ kind }) => kind === 'rotated')).toHaveLength(1);
      expect(outcomes.filter(({ kind }) => kind === 'not_active')).toHaveLength(49);
      expect((await store.listKeys({ limit: 10 })).items).toHaveLength(2);
    });
  });

  describe('revocation', () => {
    test('ends the key once, with its reason', async () => {
      const key = await add();
      const at = '2030-01-02T03:04:05.006Z';
      expect(await store.revokeKey(key.prefix, 'lost', at)).toMatchObject({
        kind: 'revoked',
        record: { state: 'revoked', version: 2, endedAt: at },
      });
      expect(await store.revokeKey(key.prefix, 'again', '2031-01-01T00:00:00.000Z')).toMatchObject({
        kind: 'already',
        record: { state: 'revoked', version: 2, endedAt: at },
      });
      expect(await store.historyOf(key.prefix)).toMatchObject([
        { kind: 'issued' },
        { kind: 'revoked', version: 2, at, reason: 'lost' },
      ]);
    });

    test('does not turn a rotated key into a revoked one', async () => {
      const key = await add();
      await store.rotateKey(key, newKey());
      expect(await store.revokeKey(key.prefix, null, key.createdAt)).toMatchObject({
        kind: 'already',
        record: { state: 'invalidated' },
      });
    });

    test('of an unknown key returns unknown', async () => {
      expect(await store.revokeKey(prefix('00000000'), null, '2030-01-01T00:00:00Z')).toEqual({
        kind: 'unknown',
      });
    });
  });

  describe('listing', () => {
    test('is in the order of issue, by tier and state, in pages without gaps and repeats', async () => {
      const tiers = ['Free', 'Lite', 'Pro'] as const;
      const added: string[] = [];
      for (let index = 0; index < 25; index += 1) {
        added.push((await add(newKey(), newHolder(tiers[index % 3]))).prefix);
      }
      const paged: string[] = [];
      for (let after: SearchPosition | undefined; ; ) {
        const { items, next } = await store.listKeys({ limit: 7, after });
        paged.push(...items.map((key) => key.prefix));
        if (next === undefined) break;
        after = next;
      }
      expect(paged).toEqual(added);
      const ofPro = added.filter((_, index) => index % 3 === 2);
      const found = (await store.listKeys({ limit: 100, tier: 'Pro' })).items.map((key) => key.prefix);
      expect(found.toSorted()).toEqual(ofPro.toSorted());
      await store.revokeKey(prefix(added[4] ?? ''), null, '2030-01-01T00:00:00Z');
      expect((await store.listKeys({ limit: 100, state: 'revoked' })).items).toMatchObject([
        { prefix: added[4] },
      ]);
      expect((await store.listKeys({ limit: 100, state: 'active', tier: 'Lite' })).items).toHaveLength(7);
    });

    test('contains no hash', async () => {
      await add();
      const [key] = (await store.listKeys({ limit: 1 })).items;
      expect(Object.keys(key ?? {})).not.toContain('hmac');
      expect(Object.keys(key ?? {})).not.toContain('argon2');
    });
  });

  describe('free keys', () => {
    const address = Buffer.alloc(32, 1);
    const grant = { day: '2030-01-01', address, perDay: 3 };

    test('of concurrent requests exactly the daily limit is granted, and the others leave nothing', async () => {
      const outcomes = await Promise.all(
        Array.from({ length: 10 }, () => store.addKey(newKey(), newHolder('Free'), null, grant)),
      );
      expect(outcomes.filter(({ kind }) => kind === 'added')).toHaveLength(3);
      expect(outcomes.filter(({ kind }) => kind === 'free_limit')).toHaveLength(7);
      expect((await store.listKeys({ limit: 100 })).items).toHaveLength(3);
      expect(await store.lastChange()).toBe(3);
      expect(await store.freeGrants('2030-01-01', address)).toBe(3);
    });

    test('each address and day has its own count', async () => {
      const one = { ...grant, perDay: 1 };
      const take = (changed: Partial<typeof grant>) =>
        store.addKey(newKey(), newHolder('Free'), null, { ...one, ...changed }).then(({ kind }) => kind);
      expect(await take({})).toBe('added');
      expect(await take({})).toBe('free_limit');
      expect(await take({ address: Buffer.alloc(32, 2) })).toBe('added');
      expect(await take({ day: '2030-01-02' })).toBe('added');
      expect(await store.freeGrants('2030-01-02', address)).toBe(1);
      expect(await store.freeGrants('2030-01-03', address)).toBe(0);
    });

    test('with a limit of 0 there are none', async () => {
      const outcome = await store.addKey(newKey(), newHolder('Free'), null, { ...grant, perDay: 0 });
      expect(outcome).toEqual({ kind: 'free_limit' });
    });

    test('a key with a taken prefix is not counted', async () => {
      const taken = await add();
      await store.addKey(newKey(taken.prefix), newHolder('Free'), null, grant);
      expect(await store.freeGrants(grant.day, address)).toBe(0);
    });
  });

  describe('the change feed', () => {
    test('is complete, in order, and readable in batches', async () => {
      expect(await store.lastChange()).toBe(0);
      expect(await store.changesAfter(0, 10)).toEqual([]);
      const key = await add();
      await store.rotateKey(key, newKey());
      await add();
      expect(await store.lastChange()).toBe(4);
      const all = await store.changesAfter(0, 10);
      expect(all.map(({ kind }) => kind)).toEqual(['issued', 'rotated', 'issued', 'issued']);
      expect([...(await store.changesAfter(0, 2)), ...(await store.changesAfter(2, 2))]).toEqual(all);
      expect(await store.changesAfter(4, 10)).toEqual([]);
    });
  });

  describe('a fact that never changes', () => {
    test('is set once and stays, each by its name', async () => {
      expect(await store.pinned('secret_check')).toBeUndefined();
      const [first, second] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)];
      expect(Buffer.from(await store.pin('secret_check', first))).toEqual(first);
      expect(Buffer.from(await store.pin('secret_check', second))).toEqual(first);
      expect(Buffer.from((await store.pinned('secret_check')) ?? [])).toEqual(first);
      expect(await store.pinned('currency')).toBeUndefined();
      expect(Buffer.from(await store.pin('currency', second))).toEqual(second);
      expect(Buffer.from((await store.pinned('secret_check')) ?? [])).toEqual(first);
    });
  });

  test('after close every method rejects with store_unavailable, and a second close succeeds', async () => {
    const key = await add();
    await store.close();
    await store.close();
    const at = key.createdAt;
    const calls = [
      store.findKey(key.prefix),
      store.addKey(newKey(), { kind: 'new', id: randomUUID(), tier: 'Free' }, null),
      store.rotateKey(key, newKey()),
      store.revokeKey(key.prefix, null, at),
      store.findHolder(key.holderId),
      store.changeHolder(key.holderId, { tier: 'Free' }, null, at),
      store.listKeys({ limit: 1 }),
      store.historyOf(key.prefix),
      store.freeGrants('2030-01-01', Buffer.alloc(32)),
      store.lastChange(),
      store.changesAfter(0, 1),
      store.pinned('secret_check'),
      store.pin('secret_check', Buffer.alloc(32)),
      store.ping(),
    ];
    for (const outcome of await Promise.allSettled<unknown>(calls)) {
      expect(outcome).toMatchObject({
        status: 'rejected',
        reason: { code: 'store_unavailable', status: 503 },
      });
    }
  });

  test('a close completes or rejects each call in flight', async () => {
    const running = Array.from({ length: 5 }, () => store.addKey(newKey(), newHolder(), null));
    await store.close();
    const outcomes = await Promise.allSettled(running);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ code: 'store_unavailable' });
    }
    const added = outcomes.filter(({ status }) => status === 'fulfilled').length;
    store = await openStore(address);
    expect((await store.listKeys({ limit: 10 })).items).toHaveLength(added);
  });
});
