// The tag of a record: it names exactly the members that have changed, whatever they are.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { differenceFrom, etagOf } from '../../src/console/api/record-etag.ts';

const name = fc
  .stringMatching(/^[a-z][a-z_]{0,10}$/)
  .filter((each) => !['keys', 'events', 'orders', 'targets', 'health', 'version'].includes(each));
const record = fc.dictionary(name, fc.jsonValue(), { maxKeys: 8, noNullPrototype: true });

test('a record differs in the members that are not the same, and in no others', () => {
  fc.assert(
    fc.property(record, record, (read, changes) => {
      const now = { ...read, ...changes };
      const changed = Object.keys(now).filter(
        (each) => JSON.stringify(Reflect.get(read, each)) !== JSON.stringify(Reflect.get(now, each)),
      );
      expect(differenceFrom(etagOf(read), now, {}).map(({ field }) => field)).toEqual(changed);
    }),
  );
});

test('a tag is a header value, and any other text differs in every member', () => {
  fc.assert(
    fc.property(record, fc.string(), (read, text) => {
      expect(etagOf(read)).toMatch(/^"[\x20-\x7e]*"$/);
      fc.pre(!text.includes(':'));
      expect(differenceFrom(text, read, {})).toHaveLength(Object.keys(read).length);
    }),
  );
});

test('what changes by itself is not compared', () => {
  const key = { prefix: '0000000a', name: 'ci', last_used: null, version: 1, events: [] };
  expect(
    differenceFrom(etagOf(key), { ...key, last_used: '2030-01-01', version: 2, events: [1] }, {}),
  ).toEqual([]);
  expect(differenceFrom(etagOf(key), { ...key, name: 'cd' }, { name: 'ce' })).toEqual([
    { field: 'name', now: 'cd', yours: 'ce' },
  ]);
});
