// Teams, names, labels, expiry and last use in each kind of database, and the search for them.
import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { Terms } from '../../src/config/terms.ts';
import type { HolderOf, KeyRecord, Prefix, SearchPosition } from '../../src/store/key-record.ts';
import type { Store } from '../../src/store/store.ts';
import { newKey, prefix } from './samples.ts';
import { STORE_KINDS, storeForEachTest } from './stores.ts';

const AT = '2030-01-02T03:04:05.006Z';
const BY = { actor: 'cli:alice', reason: null, at: AT };

describe.each(STORE_KINDS)('in $name', (kind) => {
  let store: Store;
  storeForEachTest(kind, (opened) => {
    store = opened;
  });

  async function add(
    holder: Partial<Extract<HolderOf, { kind: 'new' }>> = {},
    key = newKey(),
  ): Promise<KeyRecord> {
    const outcome = await store.addKey(key, { kind: 'new', id: randomUUID(), tier: 'Lite', ...holder }, null);
    if (outcome.kind !== 'added') throw new Error(outcome.kind);
    return outcome.record;
  }

  async function addTeam(name: string, labels = {}): Promise<string> {
    const result = await store.organisation.addTeam({ id: randomUUID(), name, terms: {} }, BY, labels);
    if (result.kind !== 'done') throw new Error(result.kind);
    return result.team.id;
  }

  const found = async (filter: Parameters<Store['organisation']['searchHolders']>[0]) =>
    (await store.organisation.searchHolders(filter, 10)).items.map(({ name }) => name).toSorted();

  describe('a team', () => {
    test('has a name that no other team has, whatever its case', async () => {
      const id = await addTeam('Search');
      expect(await store.organisation.addTeam({ id: 'x', name: 'search', terms: {} }, BY, {})).toEqual({
        kind: 'name_taken',
      });
      expect(await store.organisation.findTeam({ name: 'SEARCH' })).toMatchObject({ id, name: 'Search' });
      // Its own name in another case is not taken.
      expect(await store.organisation.changeTeam(id, { name: 'SEARCH' }, BY)).toMatchObject({ kind: 'done' });
      const other = await addTeam('ads');
      expect(await store.organisation.changeTeam(other, { name: 'Search' }, BY)).toEqual({
        kind: 'name_taken',
      });
      expect(await store.organisation.changeTeam('nobody', { name: 'x' }, BY)).toEqual({ kind: 'unknown' });
    });

    test('each change raises the version beyond that of all teams, so that readers find what is new', async () => {
      const [one, two] = [await addTeam('one'), await addTeam('two')];
      const seen = await store.organisation.teamsAfter(0, 10);
      expect(seen.map(({ id }) => id)).toEqual([one, two]);
      const last = seen.at(-1)?.version ?? 0;
      await store.organisation.changeTeam(one, { terms: { limits: { concurrency: 7 } } }, BY);
      expect(await store.organisation.teamsAfter(last, 10)).toMatchObject([
        { id: one, terms: { limits: { concurrency: 7 } } },
      ]);
      expect(await store.organisation.teamsAfter(last + 1, 10)).toEqual([]);
    });

    test('records who changed what, and why', async () => {
      const id = await addTeam('one');
      const change = { name: 'two', terms: { limits: { concurrency: 7 } }, labels: { env: 'prod' } };
      await store.organisation.changeTeam(id, change, { actor: 'cli:bob', reason: 'grown', at: AT });
      expect(await store.organisation.teamHistory(id)).toMatchObject([
        { what: 'created', actor: 'cli:alice', reason: null, at: AT },
        {
          what: 'name one to two, limit concurrency unset to 7, label env=prod',
          actor: 'cli:bob',
          reason: 'grown',
        },
      ]);
    });

    test('that already has the values is left alone, without an event', async () => {
      const id = await addTeam('one', { env: 'prod' });
      const before = await store.organisation.findTeam({ id });
      const change = { name: 'one', terms: {}, labels: { env: 'prod', absent: null } };
      expect(await store.organisation.changeTeam(id, change, BY)).toEqual({ kind: 'same', team: before });
      expect(await store.organisation.teamHistory(id)).toHaveLength(1);
      expect(await store.organisation.findTeam({ id })).toEqual(before);
    });

    test('has a version that no change had before, even if the team with the last one was removed', async () => {
      const [one, two] = [await addTeam('one'), await addTeam('two')];
      const last = (await store.organisation.findTeam({ id: two }))?.version ?? 0;
      await store.organisation.removeTeam(two, BY);
      await store.organisation.changeTeam(one, { name: 'three' }, BY);
      expect(await store.organisation.teamsAfter(last, 10)).toMatchObject([{ id: one }]);
    });

    test('keeps all of several changes of its terms at a time', async () => {
      const id = await addTeam('one');
      const names = ['concurrency', 'requests_per_day', 'tokens_per_day', 'tokens_per_month'] as const;
      const change = (name: (typeof names)[number]) => (before: Terms) => ({
        limits: { ...before.limits, [name]: 7 },
      });
      const all = { concurrency: 7, requests_per_day: 7, tokens_per_day: 7, tokens_per_month: 7 };
      await Promise.all(names.map((name) => store.organisation.changeTeam(id, { terms: change(name) }, BY)));
      expect(await store.organisation.findTeam({ id })).toMatchObject({ terms: { limits: all } });
      const { holderId, prefix: key } = await add();
      await Promise.all(names.map((name) => store.changeHolder(holderId, { terms: change(name) }, null, AT)));
      expect(await store.findHolder(holderId)).toMatchObject({ terms: { limits: all } });
      await Promise.all(names.map((name) => store.changeKey(key, { terms: change(name) }, BY)));
      expect(await store.findKey(key)).toMatchObject({
        terms: { limits: all },
        holderTerms: { limits: all },
      });
    });

    test('has at most 20 labels, however many commands set them', async () => {
      const labels = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`l${index}`, 'x']));
      const id = await addTeam('one', labels);
      const more = { labels: { more: 'x' } };
      await expect(store.organisation.changeTeam(id, more, BY)).rejects.toMatchObject({
        code: 'invalid_value',
        message: 'A holder or a team has at most 20 labels.',
      });
      expect(await store.organisation.labelsOf(id)).toEqual(labels);
      await store.organisation.changeTeam(id, { labels: { ...more.labels, l0: null } }, BY);
      expect(Object.keys(await store.organisation.labelsOf(id))).toHaveLength(20);
      const key = await add({ labels });
      await expect(store.changeHolder(key.holderId, more, null, AT)).rejects.toMatchObject({
        code: 'invalid_value',
      });
      await expect(add({ labels: { ...labels, ...more.labels } })).rejects.toMatchObject({
        code: 'invalid_value',
      });
    });

    test('that is removed while a holder joins it is either kept or not joined', async () => {
      const key = await add({});
      for (let round = 0; round < 20; round += 1) {
        const id = await addTeam(`team ${round}`);
        const [removed, joined] = await Promise.all([
          store.organisation.removeTeam(id, BY),
          store.changeHolder(key.holderId, { teamId: id }, null, AT).then(
            ({ kind }) => kind,
            (error: unknown) => Reflect.get(Object(error), 'code'),
          ),
        ]);
        expect([
          ['removed', 'invalid_value'],
          ['has_holders', 'changed'],
        ]).toContainEqual([removed, joined]);
        await store.changeHolder(key.holderId, { teamId: null }, null, AT);
      }
    });

    test('that is removed while a key is issued for it is either kept, or the key is not issued', async () => {
      for (let round = 0; round < 20; round += 1) {
        const id = await addTeam(`team ${round}`);
        const [removed, issued] = await Promise.all([
          store.organisation.removeTeam(id, BY),
          add({ teamId: id }).then(
            ({ state }) => state,
            (error: unknown) => Reflect.get(Object(error), 'code'),
          ),
        ]);
        expect([
          ['removed', 'invalid_value'],
          ['has_holders', 'active'],
        ]).toContainEqual([removed, issued]);
      }
    });

    test('that changes while holders join it, and keys are issued for it, blocks none of them', async () => {
      const id = await addTeam('one');
      const joining = await add();
      for (let round = 0; round < 40; round += 1) {
        await Promise.all([
          store.organisation.changeTeam(id, { terms: { limits: { concurrency: round + 1 } } }, BY),
          store.changeHolder(joining.holderId, { teamId: id }, null, AT),
          ...Array.from({ length: 4 }, () => add({ teamId: id })),
        ]);
        await store.changeHolder(joining.holderId, { teamId: null }, null, AT);
      }
      expect(await store.organisation.findTeam({ id })).toMatchObject({
        terms: { limits: { concurrency: 40 } },
      });
    });

    test('with holders is not removed, and without is, with its labels', async () => {
      const id = await addTeam('one', { env: 'prod' });
      const key = await add({ teamId: id });
      expect(await store.organisation.removeTeam(id, BY)).toBe('has_holders');
      await store.changeHolder(key.holderId, { teamId: null }, null, AT);
      expect(await store.organisation.removeTeam(id, BY)).toBe('removed');
      expect(await store.organisation.removeTeam(id, BY)).toBe('unknown');
      // A command that found it just before.
      await expect(store.changeHolder(key.holderId, { teamId: id }, null, AT)).rejects.toMatchObject({
        code: 'invalid_value',
      });
      expect(await store.organisation.labelsOf(id)).toEqual({});
      // For reports of its usage.
      expect((await store.organisation.teamHistory(id)).at(-1)).toMatchObject({
        what: 'removed one',
        actor: 'cli:alice',
      });
      expect(await store.usage.namesOf([id, 'nobody'])).toEqual(new Map([[id, 'one']]));
    });

    test('is listed by name with its labels and the number of its holders, page by page', async () => {
      const [b] = [await addTeam('b', { env: 'prod' }), await addTeam('A'), await addTeam('c')];
      await add({ teamId: b });
      await add({ teamId: b });
      const first = await store.organisation.listTeams({ limit: 2 });
      expect(first).toMatchObject([
        { name: 'A', labels: {}, holders: 0 },
        { name: 'b', labels: { env: 'prod' }, holders: 2 },
      ]);
      expect(await store.organisation.listTeams({ limit: 2, after: 'b' })).toMatchObject([{ name: 'c' }]);
      expect(await store.organisation.listTeams({ limit: 9, labels: { env: 'prod' } })).toMatchObject([
        { name: 'b' },
      ]);
    });
  });

  describe('a holder', () => {
    test('gets name, team, terms and labels with its first key, which has them too', async () => {
      const teamId = await addTeam('search');
      const terms = { limits: { requests_per_minute: 5 } };
      const key = await add({ name: 'Indexer', teamId, terms, labels: { env: 'prod' } });
      expect(await store.findKey(key.prefix)).toEqual(key);
      expect(key).toMatchObject({ holderName: 'Indexer', teamId, holderTerms: terms, terms: {} });
      expect(await store.findHolder(key.holderId)).toMatchObject({ name: 'Indexer', teamId, terms });
      expect(await store.organisation.labelsOf(key.holderId)).toEqual({ env: 'prod' });
      const more = await store.addKey(newKey(), { kind: 'existing', id: key.holderId }, null);
      expect(more).toMatchObject({
        kind: 'added',
        record: { holderName: 'Indexer', teamId, holderTerms: terms },
      });
    });

    test('changes in all of these, with one event that says what, who and why', async () => {
      const key = await add({ name: 'old', labels: { env: 'dev', tmp: '1' } });
      const teamId = await addTeam('search');
      const change = {
        name: 'new',
        teamId,
        terms: { models: ['gpt-*'] },
        labels: { env: 'prod', tmp: null },
      };
      const outcome = await store.changeHolder(key.holderId, change, 'moved', AT, 'cli:bob');
      expect(outcome).toMatchObject({
        kind: 'changed',
        records: [{ holderName: 'new', teamId, holderTerms: { models: ['gpt-*'] }, version: 2 }],
      });
      expect(await store.organisation.labelsOf(key.holderId)).toEqual({ env: 'prod' });
      expect((await store.historyOf(key.prefix)).at(-1)).toMatchObject({
        kind: 'changed',
        actor: 'cli:bob',
        reason: `name old to new, team none to search (${teamId}), models unset to gpt-*, label env=prod, label tmp removed: moved`,
      });
      // The same once more is no change.
      expect(await store.changeHolder(key.holderId, change, null, AT)).toMatchObject({ kind: 'same' });
    });

    test('is found by the beginning of its name, its labels, team, tier and standing, and by all of them', async () => {
      const teamId = await addTeam('search');
      const suspended = await add({ name: 'Search indexer', labels: { env: 'prod', app: 'index' }, teamId });
      await add({ name: 'search Frontend', labels: { env: 'prod' }, tier: 'Pro' });
      await add({ name: 'Ads', labels: { env: 'dev' } });
      await add({ name: '100%_sure' });
      await store.changeHolder(suspended.holderId, { standing: 'suspended' }, null, AT);
      expect(await found({ name: 'SEARCH' })).toEqual(['Search indexer', 'search Frontend']);
      expect(await found({ name: 'search i' })).toEqual(['Search indexer']);
      // No wildcards of SQL.
      expect(await found({ name: '100%' })).toEqual(['100%_sure']);
      expect(await found({ name: '_' })).toEqual([]);
      expect(await found({ labels: { env: 'prod' } })).toEqual(['Search indexer', 'search Frontend']);
      expect(await found({ labels: { env: 'pr*' } })).toEqual(['Search indexer', 'search Frontend']);
      expect(await found({ labels: { env: 'prod', app: 'index' } })).toEqual(['Search indexer']);
      expect(await found({ labels: { env: 'pro' } })).toEqual([]);
      expect(await found({ teamId })).toEqual(['Search indexer']);
      expect(await found({ tier: 'Pro' })).toEqual(['search Frontend']);
      expect(await found({ standing: 'suspended' })).toEqual(['Search indexer']);
      expect(await found({ name: 'search', labels: { env: 'prod' }, tier: 'Lite' })).toEqual([
        'Search indexer',
      ]);
      expect(await found({})).toHaveLength(4);
    });

    test('is listed with its team, labels, active keys and last use, page by page', async () => {
      const teamId = await addTeam('search');
      const key = await add({ name: 'Indexer', teamId, labels: { env: 'prod' } });
      const second = await store.addKey(newKey(), { kind: 'existing', id: key.holderId }, null);
      if (second.kind !== 'added') throw new Error(second.kind);
      await store.revokeKey(second.record.prefix, null, AT);
      await store.organisation.recordUses(
        new Map([
          [key.prefix, '2030-01-05'],
          [second.record.prefix, '2030-01-09'],
        ]),
      );
      expect((await store.organisation.searchHolders({ name: 'indexer' }, 10)).items).toEqual([
        {
          id: key.holderId,
          name: 'Indexer',
          tier: 'Lite',
          standing: 'good',
          teamId,
          team: 'search',
          terms: {},
          labels: { env: 'prod' },
          keys: 1,
          lastUsed: '2030-01-09',
          createdAt: key.createdAt,
        },
      ]);
      const others = await Promise.all(Array.from({ length: 4 }, () => add()));
      const all = [key, ...others].map(({ holderId }) => holderId).toSorted();
      const { items, next } = await store.organisation.searchHolders({}, 3);
      const rest = (await store.organisation.searchHolders({}, 3, next)).items;
      expect([...items, ...rest].map(({ id }) => id)).toEqual(all);
    });
  });

  describe('a key', () => {
    test('changes its name, expiry and terms with a version and an event, while it is active', async () => {
      const key = await add({}, { ...newKey(), name: 'ci', expiresAt: '2031-01-01T00:00:00.000Z' });
      expect(await store.findKey(key.prefix)).toEqual(key);
      const change = { name: 'deploy', expiresAt: null, terms: { endpoints: ['chat'] } } as const;
      const by = { actor: 'cli:bob', reason: 'kept', at: AT };
      const changed = await store.changeKey(key.prefix, change, by);
      expect(changed).toEqual({ kind: 'changed', record: { ...key, ...change, version: 2 } });
      expect(await store.findKey(key.prefix)).toEqual({ ...key, ...change, version: 2 });
      expect((await store.historyOf(key.prefix)).at(-1)).toMatchObject({
        kind: 'changed',
        version: 2,
        actor: 'cli:bob',
        reason: 'name ci to deploy, expiry 2031-01-01T00:00:00.000Z to none, endpoints unset to chat: kept',
      });
      expect(await store.changeKey(key.prefix, change, by)).toMatchObject({ kind: 'same' });
      await store.revokeKey(key.prefix, null, AT);
      expect(await store.changeKey(key.prefix, { name: 'x' }, by)).toMatchObject({ kind: 'ended' });
      expect(await store.changeKey(prefix('00000000'), { name: 'x' }, by)).toEqual({ kind: 'unknown' });
    });

    test('that is rotated with an overlap stays active until then, with one successor', async () => {
      const key = await add();
      const successor = newKey();
      const until = '2030-02-01T00:00:00.000Z';
      expect(await store.rotateKey(key, successor, until)).toMatchObject({
        kind: 'rotated',
        validUntil: until,
        endedVersion: 2,
        record: { replaces: key.prefix, expiresAt: null },
      });
      const old = { state: 'active', expiresAt: until, replacedBy: successor.prefix, version: 2 };
      expect(await store.findKey(key.prefix)).toMatchObject(old);
      expect((await store.historyOf(key.prefix)).at(-1)).toMatchObject({
        kind: 'changed',
        reason: `rotated, valid until ${until}`,
      });
      expect(await store.rotateKey(key, newKey(), until)).toEqual({ kind: 'not_active' });
      expect(await store.rotateKey(key, newKey())).toEqual({ kind: 'not_active' });
      expect(await store.findKey(key.prefix)).toMatchObject(old);
    });

    test('its successor has the name, the expiry and the terms that it has when it is rotated', async () => {
      const expiresAt = '2031-01-05T00:00:00.000Z';
      const terms: Terms = { models: ['gpt-4o'], limits: { concurrency: 2 } };
      for (const keepUntil of [undefined, '2030-02-01T00:00:00.000Z']) {
        // As its caller read it; another operator changes it before it is rotated.
        const key = await add();
        await store.changeKey(key.prefix, { name: 'ci', expiresAt, terms }, BY);
        await store.changeHolder(key.holderId, { standing: 'suspended' }, null, AT);
        const outcome = await store.rotateKey(key, newKey(), keepUntil);
        const own = { name: 'ci', expiresAt, terms, standing: 'suspended' };
        expect(outcome).toMatchObject({ kind: 'rotated', record: own });
        if (outcome.kind !== 'rotated') continue;
        expect(await store.findKey(outcome.record.prefix)).toEqual(outcome.record);
        // What other replicas are told of the old key.
        if (keepUntil === undefined) expect(outcome).not.toHaveProperty('kept');
        else {
          expect(outcome.kept).toMatchObject({ ...own, expiresAt: keepUntil, version: outcome.endedVersion });
          expect(await store.findKey(key.prefix)).toEqual(outcome.kept);
        }
      }
    });

    test('an overlap does not prolong an expiry', async () => {
      const expiresAt = '2030-01-05T00:00:00.000Z';
      const key = await add({}, { ...newKey(), expiresAt });
      const outcome = await store.rotateKey(key, newKey(), '2030-02-01T00:00:00.000Z');
      expect(outcome).toMatchObject({ kind: 'rotated', validUntil: expiresAt });
    });

    test('is found by expiry, last use, prefix, holder, and by what its holder is', async () => {
      const [a, b, c] = [
        await add({ labels: { env: 'prod' } }, { ...newKey(), expiresAt: '2030-01-05T00:00:00.000Z' }),
        await add({ name: 'Ads' }),
        await add({ tier: 'Pro' }),
      ];
      await store.organisation.recordUses(
        new Map([
          [a.prefix, '2030-01-05'],
          [b.prefix, '2030-01-09'],
        ]),
      );
      const keys = async (filter: Partial<Parameters<Store['listKeys']>[0]>): Promise<readonly Prefix[]> =>
        (await store.listKeys({ limit: 10, ...filter })).items.map((key) => key.prefix);
      expect(await keys({ expiresBefore: '2030-01-06T00:00:00.000Z' })).toEqual([a.prefix]);
      expect(await keys({ expiresBefore: '2030-01-05T00:00:00.000Z' })).toEqual([]);
      // Never used is first.
      expect(await keys({ unusedSince: '2030-01-09' })).toEqual([c.prefix, a.prefix]);
      expect(await keys({ labels: { env: 'prod' } })).toEqual([a.prefix]);
      expect(await keys({ name: 'ads' })).toEqual([b.prefix]);
      expect(await keys({ prefix: c.prefix })).toEqual([c.prefix]);
      expect(await keys({ holderId: b.holderId })).toEqual([b.prefix]);
      expect(await keys({})).toEqual([a.prefix, b.prefix, c.prefix]);
      const { next } = await store.listKeys({ limit: 1 });
      expect(await keys({ after: next })).toEqual([b.prefix, c.prefix]);
      expect((await store.listKeys({ limit: 1 })).items).toMatchObject([
        { prefix: a.prefix, lastUsed: '2030-01-05' },
      ]);
    });

    test.each([
      [{ name: 'n' }],
      [{ name: 'n', state: 'active' }],
      [{ tier: 'Lite' }],
      [{ standing: 'good', state: 'active' }],
      [{ state: 'revoked' }],
      [{ state: 'revoked', tier: 'Lite', standing: 'good' }],
      [{ state: 'invalidated' }],
      [{ expiresBefore: '2040-01-01T00:00:00.000Z' }],
      [{ labels: { env: 'p*' } }],
    ] as const)('pages of %j are whole, without gaps and repeats', async (filter) => {
      const all: Prefix[] = [];
      for (let index = 0; index < 9; index += 1) {
        // Names that are equal, and that differ in case alone.
        const holder = { name: ['Nora', 'nora', 'NB'][index % 3] ?? '', labels: { env: `p${index % 2}` } };
        const expiresAt = `203${index % 3}-01-01T00:00:00.000Z`;
        const key = await add(holder, { ...newKey(), expiresAt });
        all.push(key.prefix);
        const second = newKey();
        await store.addKey({ ...second, expiresAt }, { kind: 'of', prefix: key.prefix }, null);
        all.push(second.prefix);
      }
      for (const prefix of all.slice(0, 5)) await store.revokeKey(prefix, null, '2030-01-01T00:00:00.000Z');
      const paged: Prefix[] = [];
      for (let after: SearchPosition | undefined; ; ) {
        const { items, next } = await store.listKeys({ ...filter, limit: 4, after });
        paged.push(...items.map((key) => key.prefix));
        if (next === undefined) break;
        after = next;
      }
      const state: string = 'state' in filter ? filter.state : '';
      const wanted =
        state === 'revoked'
          ? all.slice(0, 5)
          : state === 'invalidated'
            ? []
            : state === 'active'
              ? all.slice(5)
              : all;
      expect(paged.toSorted()).toEqual(wanted.toSorted());
    });

    test('holders of a name are in its order, in pages without gaps and repeats', async () => {
      for (const name of ['Nora', 'nora', 'NB', 'Nz', 'na', 'Other']) await add({ name });
      const names: (string | null)[] = [];
      for (let after: SearchPosition | undefined; ; ) {
        const { items, next } = await store.organisation.searchHolders({ name: 'n' }, 2, after);
        names.push(...items.map((holder) => holder.name));
        if (next === undefined) break;
        after = next;
      }
      expect(names.map((name) => name?.toLowerCase())).toEqual(['na', 'nb', 'nora', 'nora', 'nz']);
    });

    test('its last use only moves forward, and is no change of the key', async () => {
      const key = await add();
      const last = await store.lastChange();
      for (const day of ['2030-01-05', '2030-01-04', '2030-01-06'])
        await store.organisation.recordUses(new Map([[key.prefix, day]]));
      await store.organisation.recordUses(new Map());
      expect((await store.listKeys({ limit: 1 })).items).toMatchObject([
        { lastUsed: '2030-01-06', version: 1 },
      ]);
      expect(await store.lastChange()).toBe(last);
    });
  });
});
