// Changes of a holder and their effect on its keys, in each kind of database, and the migration of earlier databases.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import type { KeyRecord } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import { MIGRATIONS } from '../../src/store/schema/migrations.ts';
import type { Store } from '../../src/store/store.ts';
import { migrateTo, run } from './older.ts';
import { newHolder, newKey, prefix } from './samples.ts';
import { STORE_KINDS, type StoreSource, storeForEachTest } from './stores.ts';

const AT = '2030-01-02T03:04:05.006Z';

describe.each(STORE_KINDS)('in $name', (kind) => {
  let address: StoreAddress;
  let store: Store;
  storeForEachTest(kind, (opened, at) => {
    store = opened;
    address = at;
  });

  async function add(holder = newHolder()): Promise<KeyRecord> {
    const outcome = await store.addKey(newKey(), holder, null);
    if (outcome.kind !== 'added') throw new Error(outcome.kind);
    return outcome.record;
  }

  describe('a change of a holder', () => {
    test('without active keys is an event of the last one, with actor and reason, and raises no version', async () => {
      const first = await add();
      const last = await add({ kind: 'of', prefix: first.prefix });
      for (const { prefix: name } of [last, first]) await store.revokeKey(name, null, AT);
      const before = await store.findKey(last.prefix);
      const changes = [
        [{ standing: 'suspended' }, 'standing good to suspended'],
        [{ standing: 'good', tier: 'Pro' }, 'tier Lite to Pro, standing suspended to good'],
        [{ name: 'new' }, 'name none to new'],
        [{ labels: { env: 'prod' } }, 'label env=prod'],
        [{ terms: () => ({ limits: { concurrency: 1 } }) }, 'limit concurrency unset to 1'],
      ] as const;
      for (const [change] of changes) {
        const outcome = await store.changeHolder(first.holderId, change, 'why', AT, 'cli:ann');
        expect(outcome).toEqual({ kind: 'changed', records: [] });
      }
      expect((await store.historyOf(last.prefix)).slice(2)).toMatchObject(
        changes.map(([, what]) => ({
          kind: 'changed',
          version: 2,
          actor: 'cli:ann',
          reason: `${what}: why`,
        })),
      );
      expect(await store.historyOf(first.prefix)).toHaveLength(2);
      expect(await store.findKey(last.prefix)).toMatchObject({ state: 'revoked', version: before?.version });
      expect(
        (await store.holderHistory(first.holderId, 6)).map(({ prefix: name, kind }) => [name, kind]),
      ).toEqual([...changes.map(() => [last.prefix, 'changed']), [first.prefix, 'revoked']]);
    });

    test('gives each of its active keys a new version and one event, and no other key', async () => {
      const [one, stranger] = [await add(newHolder('Free', 'team')), await add()];
      const [two, ended] = [
        await add({ kind: 'of', prefix: one.prefix }),
        await add({ kind: 'of', prefix: one.prefix }),
      ];
      await store.revokeKey(ended.prefix, null, AT);
      const last = await store.lastChange();
      const change = { tier: 'Pro', standing: 'suspended' } as const;
      const outcome = await store.changeHolder(one.holderId, change, 'why', AT);
      const after = { ...change, version: 2, state: 'active', holderName: 'team' };
      expect(outcome).toMatchObject({
        kind: 'changed',
        records: [
          { prefix: one.prefix, argon2: one.argon2, ...after },
          { prefix: two.prefix, ...after },
        ],
      });
      expect(await store.findKey(one.prefix)).toMatchObject(after);
      // An ended key shows what its holder is, and nothing has happened to it.
      expect(await store.findKey(ended.prefix)).toMatchObject({ state: 'revoked', version: 2, ...change });
      expect(await store.findKey(stranger.prefix)).toEqual(stranger);
      const events = await store.changesAfter(last, 10);
      const reason = 'tier Free to Pro, standing good to suspended: why';
      expect(events.map(({ prefix: name }) => name).sort()).toEqual([one.prefix, two.prefix].sort());
      for (const event of events)
        expect(event).toMatchObject({ kind: 'changed', version: 2, at: AT, reason });
      expect(await store.findHolder(one.holderId)).toEqual({
        id: one.holderId,
        name: 'team',
        teamId: null,
        terms: {},
        createdAt: one.createdAt,
        ...change,
      });
    });

    test('that changes nothing writes nothing', async () => {
      const key = await add(newHolder('Lite'));
      const last = await store.lastChange();
      for (const change of [{}, { tier: 'Lite' }, { tier: 'Lite', standing: 'good' }] as const) {
        expect(await store.changeHolder(key.holderId, change, null, AT)).toEqual({
          kind: 'same',
          records: [key],
        });
      }
      expect(await store.lastChange()).toBe(last);
    });

    test('of an unknown holder returns unknown', async () => {
      expect(await store.changeHolder('nobody', { tier: 'Pro' }, null, AT)).toEqual({ kind: 'unknown' });
      expect(await store.findHolder('nobody')).toBeUndefined();
    });

    test.each([
      ['labels', (round: number) => ({ labels: { env: `v${round}` } })],
      ['tier', (round: number) => ({ tier: round % 2 === 0 ? 'Pro' : 'Lite' }) as const],
      ['name', (round: number) => ({ name: `name ${round}` })],
    ])('of its %s and revocations of its keys do not wait for each other', async (_, changeOf) => {
      const { holderId, prefix: first } = await add(newHolder('Free'));
      for (let round = 0; round < 15; round += 1) {
        const keys = [await add({ kind: 'of', prefix: first }), await add({ kind: 'of', prefix: first })];
        const [changed, ...revoked] = await Promise.all([
          store.changeHolder(holderId, changeOf(round), null, AT),
          ...keys.map((key) => store.revokeKey(key.prefix, 'lost', AT)),
        ]);
        expect([changed, ...revoked].map(({ kind }) => kind)).toEqual(['changed', 'revoked', 'revoked']);
      }
    });

    test('without an active key applies to the next one', async () => {
      const key = await add(newHolder('Free'));
      await store.revokeKey(key.prefix, null, AT);
      expect(await store.changeHolder(key.holderId, { tier: 'Pro' }, null, AT)).toEqual({
        kind: 'changed',
        records: [],
      });
      expect(await add({ kind: 'of', prefix: key.prefix })).toMatchObject({ tier: 'Pro', version: 1 });
    });

    test('can be repeated and undone, with an event each time', async () => {
      const key = await add(newHolder('Lite'));
      await store.changeHolder(key.holderId, { standing: 'suspended' }, null, AT);
      await store.changeHolder(key.holderId, { standing: 'good' }, 'paid', AT);
      expect(await store.findKey(key.prefix)).toMatchObject({ standing: 'good', version: 3 });
      expect((await store.historyOf(key.prefix)).map(({ reason }) => reason)).toEqual([
        null,
        'standing good to suspended',
        'standing suspended to good: paid',
      ]);
    });
  });

  test('rotation keeps tier and standing, at any version of the key', async () => {
    const key = await add(newHolder('Free'));
    await store.changeHolder(key.holderId, { tier: 'Pro', standing: 'suspended' }, null, AT);
    const successor = newKey();
    expect(await store.rotateKey(key, successor)).toMatchObject({
      kind: 'rotated',
      endedVersion: 3,
      record: { prefix: successor.prefix, tier: 'Pro', standing: 'suspended', version: 1 },
    });
    expect(await store.findKey(key.prefix)).toMatchObject({ state: 'invalidated', version: 3 });
  });

  test('in any order of rotations, new keys and changes, each key has the tier of its holder', async () => {
    // Connections of their own, as processes have.
    const stores = [store, await openStore(address), await openStore(address)] as const;
    for (let round = 0; round < 25; round += 1) {
      const key = await add(newHolder('Free'));
      const last = await store.lastChange();
      const [rotated, added] = await Promise.all([
        stores[0].rotateKey(key, newKey()),
        stores[1].addKey(newKey(), { kind: 'of', prefix: key.prefix }, null),
        stores[2].changeHolder(key.holderId, { tier: 'Pro' }, null, AT),
        stores[1].changeHolder(key.holderId, { standing: 'suspended' }, null, AT),
      ]);
      if (rotated.kind !== 'rotated' || added.kind !== 'added') throw new Error(rotated.kind);
      const events = await store.changesAfter(last, 100);
      for (const made of [rotated.record, added.record]) {
        const now = await store.findKey(made.prefix);
        expect(now).toMatchObject({ tier: 'Pro', standing: 'suspended', state: 'active' });
        // Whoever was told of the key as it was made is told of each change since.
        const changes = events.filter(({ prefix: name, kind }) => name === made.prefix && kind === 'changed');
        const missing = (made.tier === 'Pro' ? 0 : 1) + (made.standing === 'suspended' ? 0 : 1);
        expect([changes.length, now?.version]).toEqual([missing, 1 + missing]);
      }
    }
    for (const other of stores.slice(1)) await other.close();
  });
});

describe.each(STORE_KINDS)('a database in $name from before the billing status', ({ start, timeout }) => {
  let source: StoreSource;

  beforeAll(async () => {
    source = await start();
  }, timeout);

  afterAll(() => source[Symbol.asyncDispose]());

  test('keeps holders, keys, events with their ids, guards, and the position of the feed', async () => {
    const address = await source.empty();
    await migrateTo(address, MIGRATIONS.slice(0, 2));
    const hmac = address.kind === 'sqlite' ? 'zeroblob(32)' : `decode(repeat('00', 32), 'hex')`;
    const key = (name: string) =>
      `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at)
       values ('${name}', 'somebody', '$argon2id$x', ${hmac}, 'active', 1, '2029')`;
    await run(address, [
      `insert into holders (id, tier, label, created_at) values ('somebody', 'Lite', 'team', '2029')`,
      key('aaaaaaaa'),
      key('bbbbbbbb'),
      `insert into key_events (prefix, kind, version, at, reason) values ('aaaaaaaa', 'issued', 1, '2029', 'first')`,
      `insert into key_events (prefix, kind, version, at, reason) values ('bbbbbbbb', 'issued', 1, '2029', null)`,
      `update keys set state = 'revoked', ended_at = '2029', version = 2 where prefix = 'bbbbbbbb'`,
      `insert into key_events (prefix, kind, version, at, reason) values ('bbbbbbbb', 'revoked', 2, '2029', 'lost')`,
      // Ids beyond the last event were drawn before.
      address.kind === 'sqlite'
        ? `update sqlite_sequence set seq = 50 where name = 'key_events'`
        : `select setval(pg_get_serial_sequence('key_events', 'id'), 50)`,
    ]);

    const store = await openStore(address);
    expect(await store.findKey(prefix('aaaaaaaa'))).toMatchObject({
      tier: 'Lite',
      standing: 'good',
      holderName: 'team',
      state: 'active',
    });
    const before = [
      { id: 1, prefix: 'aaaaaaaa', kind: 'issued', version: 1, at: '2029', reason: 'first' },
      { id: 2, prefix: 'bbbbbbbb', kind: 'issued', version: 1, at: '2029', reason: null },
      { id: 3, prefix: 'bbbbbbbb', kind: 'revoked', version: 2, at: '2029', reason: 'lost' },
    ];
    expect(await store.changesAfter(0, 10)).toEqual(before.map((event) => ({ ...event, actor: null })));
    expect(await store.changeHolder('somebody', { standing: 'suspended' }, null, AT)).toMatchObject({
      kind: 'changed',
      records: [{ prefix: 'aaaaaaaa', version: 2 }],
    });
    expect(await store.changesAfter(3, 10)).toMatchObject([{ id: 51, prefix: 'aaaaaaaa', kind: 'changed' }]);
    await store.close();

    for (const statement of [
      `update key_events set reason = 'x'`,
      `delete from key_events`,
      `insert into key_events (prefix, kind, version, at) values ('00000000', 'changed', 1, '2030')`,
      ...(address.kind === 'sqlite'
        ? [
            `pragma foreign_keys = off; delete from key_events`,
            `insert or replace into key_events (id, prefix, kind, version, at)
             values (1, 'aaaaaaaa', 'issued', 1, '2030')`,
          ]
        : ['truncate key_events']),
    ]) {
      await expect(run(address, [statement])).rejects.toThrow(/never|constraint/i);
    }
    // And once more: there is nothing left to do.
    const again = await openStore(address);
    expect(await again.lastChange()).toBe(51);
    await again.close();
  });
});
