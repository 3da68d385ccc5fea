// Owners of objects in the store: the first holder keeps an object for good, a call records all or none, and pages continue
// after ended objects.
import { describe, expect, test } from 'vitest';
import type { ObjectQuery, ObjectRecord } from '../../src/store/object-record.ts';
import type { Store } from '../../src/store/store.ts';
import { STORE_KINDS, storeForEachTest } from './stores.ts';

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

describe.each(STORE_KINDS)('in $name', (kind) => {
  let store: Store;
  storeForEachTest(kind, (opened) => {
    store = opened;
  });

  const list = (query: Partial<ObjectQuery> = {}) =>
    store.objects.objectsOf({
      upstream: 'up',
      kind: 'file',
      holderId: 'one',
      order: 'asc',
      limit: 100,
      ...query,
    });
  const ids = async (query: Partial<ObjectQuery> = {}) => (await list(query)).map(({ id }) => id);

  const owners = async (of: readonly string[]) =>
    (await store.objects.ownersOf(of))
      .map(({ id, upstream, holderId }) => `${id} ${upstream} ${holderId}`)
      .sort();

  test('belongs to its first holder, at its upstream', async () => {
    expect(await store.objects.addObjects([object('a')])).toBe(true);
    expect(await store.objects.addObjects([object('a')])).toBe(true);
    expect(await store.objects.addObjects([object('a', { holderId: 'two' })])).toBe(false);
    expect(await store.objects.addObjects([object('a', { holderId: 'two', upstream: 'other' })])).toBe(true);
    expect(await owners(['a', 'b', "'"])).toEqual(['a other two', 'a up one']);
    expect(await owners([])).toEqual([]);
  });

  test('several are recorded together or not at all', async () => {
    await store.objects.addObjects([object('a', { holderId: 'two' })]);
    expect(await store.objects.addObjects([object('b'), object('a')])).toBe(false);
    expect(await owners(['a', 'b'])).toEqual(['a up two']);
  });

  test('one of many concurrent holders gets it', async () => {
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        store.objects.addObjects([object('x', { holderId: `h${index}` })]),
      ),
    );
    expect(all.filter(Boolean)).toHaveLength(1);
    expect(await owners(['x'])).toEqual([`x up h${all.indexOf(true)}`]);
  });

  test('is listed by kind, for its holder, in either order and in pages', async () => {
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

  test('that has ended is in no list, is still a cursor, and keeps its owner', async () => {
    for (const id of ['a', 'b', 'c']) await store.objects.addObjects([object(id)]);
    expect(await store.objects.endObject('up', 'b', 'two', AT)).toBe(false);
    expect(await ids()).toEqual(['a', 'b', 'c']);
    expect(await store.objects.endObject('up', 'b', 'one', AT)).toBe(true);
    expect(await store.objects.endObject('up', 'b', 'one', AT)).toBe(false);
    expect(await ids()).toEqual(['a', 'c']);
    expect(await ids({ after: 'b' })).toEqual(['c']);
    expect(await store.objects.addObjects([object('b', { holderId: 'two' })])).toBe(false);
  });

  test('an item belongs to its first holder until it is deleted', async () => {
    const item = (id: string, holderId: string, createdAt = AT) => ({
      upstream: 'up',
      id,
      holderId,
      createdAt,
    });
    await store.objects.addItems([item('msg_1', 'one'), item("it's", 'one'), item('msg_1', 'two')]);
    await store.objects.addItems([
      item('msg_1', 'two'),
      item('msg_2', 'two', '2030-01-03T00:00:00.000Z'),
      { ...item('msg_1', 'two'), upstream: 'other' },
    ]);
    await store.objects.addItems([]);
    await store.objects.addObjects([object('msg_2')]);
    expect(await owners(['msg_1', 'msg_2', "it's", 'x'])).toEqual([
      "it's up one",
      'msg_1 other two',
      'msg_1 up one',
      'msg_2 up one',
      'msg_2 up two',
    ]);
    expect(await store.objects.forgetItems(AT, 10)).toBe(0);
    expect(await store.objects.forgetItems('2030-01-02T12:00:00.000Z', 2)).toBe(2);
    expect(await store.objects.forgetItems('2030-01-02T12:00:00.000Z', 2)).toBe(1);
    expect(await owners(['msg_1', 'msg_2', "it's"])).toEqual(['msg_2 up one', 'msg_2 up two']);
  });
});
