// Whose objects are, in the store: the first holder keeps one for good, all of a call or none, and pages go on behind what has
// ended meanwhile.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ObjectQuery, ObjectRecord } from '../../src/store/object-record.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { STORE_KINDS, type StoreSource } from './stores.ts';

const AT = '2030-01-02T03:04:05.000Z';

const object = (id: string, fields: Partial<ObjectRecord> = {}): ObjectRecord => ({
  upstream: 'up',
  id,
  kind: 'file',
  holderId: 'one',
  purpose: null,
  createdAt: AT,
  ...fields,
});

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let store: Store;

  beforeAll(async () => {
    source = await start();
  }, timeout);
  afterAll(() => source[Symbol.asyncDispose]());
  beforeEach(async () => {
    store = await openStore(await source.fresh());
  });
  afterEach(() => store.close());

  const ids = (query: Partial<ObjectQuery> = {}) =>
    store.objects.objectsOf({
      upstream: 'up',
      kind: 'file',
      holderId: 'one',
      order: 'asc',
      limit: 100,
      ...query,
    });

  test('belongs to whom it was given first, at its upstream', async () => {
    expect(await store.objects.addObjects([object('a')])).toBe(true);
    expect(await store.objects.addObjects([object('a')])).toBe(true);
    expect(await store.objects.addObjects([object('a', { holderId: 'two' })])).toBe(false);
    expect(await store.objects.addObjects([object('a', { holderId: 'two', upstream: 'other' })])).toBe(true);
    expect(await store.objects.ownersOf('up', ['a', 'b', "'"])).toEqual(new Map([['a', 'one']]));
    expect(await store.objects.ownersOf('other', ['a'])).toEqual(new Map([['a', 'two']]));
    expect(await store.objects.ownersOf('up', [])).toEqual(new Map());
  });

  test('several are taken together, or none of them', async () => {
    await store.objects.addObjects([object('a', { holderId: 'two' })]);
    expect(await store.objects.addObjects([object('b'), object('a')])).toBe(false);
    expect(await store.objects.ownersOf('up', ['a', 'b'])).toEqual(new Map([['a', 'two']]));
  });

  test('of many holders at once one has it', async () => {
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        store.objects.addObjects([object('x', { holderId: `h${index}` })]),
      ),
    );
    expect(all.filter(Boolean)).toHaveLength(1);
    const owner = (await store.objects.ownersOf('up', ['x'])).get('x');
    expect(owner).toBe(`h${all.indexOf(true)}`);
  });

  test('is listed with its kind, for its holder, in either order and in pages', async () => {
    for (const id of ['a', 'b', 'c', 'd']) await store.objects.addObjects([object(id)]);
    await store.objects.addObjects([object('e', { kind: 'batch' }), object('f', { purpose: 'p' })]);
    await store.objects.addObjects([object('g', { holderId: 'two' })]);
    expect(await ids()).toEqual(['a', 'b', 'c', 'd', 'f']);
    expect(await ids({ order: 'desc', limit: 2 })).toEqual(['f', 'd']);
    expect(await ids({ after: 'b', limit: 2 })).toEqual(['c', 'd']);
    expect(await ids({ after: 'c', order: 'desc' })).toEqual(['b', 'a']);
    expect(await ids({ before: 'd', limit: 2 })).toEqual(['b', 'c']);
    expect(await ids({ before: 'b', order: 'desc' })).toEqual(['f', 'd', 'c']);
    expect(await ids({ purpose: 'p' })).toEqual(['f']);
    expect(await ids({ kind: 'batch' })).toEqual(['e']);
    for (const foreign of ['g', 'e', 'nobody']) expect(await ids({ after: foreign })).toEqual([]);
  });

  test('that has ended is in no list, marks its place in it, and is nobody else’s', async () => {
    for (const id of ['a', 'b', 'c']) await store.objects.addObjects([object(id)]);
    await store.objects.endObject('up', 'b', 'two', AT);
    expect(await ids()).toEqual(['a', 'b', 'c']);
    await store.objects.endObject('up', 'b', 'one', AT);
    await store.objects.endObject('up', 'b', 'one', AT);
    expect(await ids()).toEqual(['a', 'c']);
    expect(await ids({ after: 'b' })).toEqual(['c']);
    expect(await store.objects.addObjects([object('b', { holderId: 'two' })])).toBe(false);
  });
});
