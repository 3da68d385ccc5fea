// Text of clients is read in time proportional to its length, also when it repeats itself: a regular expression that tries every start takes
// quadratic time.
// Runs beside one other: it measures what more tests at the same time would change.
import { expect, test } from 'vitest';
import { boundaryOf } from '../../src/http/multipart/part-head.ts';
import { ReferenceSet } from '../../src/proxy/objects/reference-set.ts';
import { meaningOf } from '../../src/wire/object-names.ts';

const SHORT = 1_000;
const TIMES = 16;

/** The least time of some turns, in milliseconds. */
function timeOf(count: number, work: () => void): number {
  const turns = Array.from({ length: 7 }, () => {
    const began = performance.now();
    for (let done = 0; done < count; done += 1) work();
    return performance.now() - began;
  });
  return Math.min(...turns);
}

test.each<[string, (size: number) => () => void]>([
  [
    'the name of a parameter in a query',
    (size) => {
      const query = `${'['.repeat(size)}=1`;
      return () => new ReferenceSet().addQuery(query);
    },
  ],
  [
    'the name of a member',
    (size) => {
      const name = '['.repeat(size);
      return () => meaningOf(name);
    },
  ],
  [
    'the content type of a form',
    (size) => {
      const type = `multipart/form-data; boundary=b${' '.repeat(size)}!`;
      return () => expect(() => boundaryOf(type)).toThrow();
    },
  ],
])('%s', (_, workOf) => {
  const [short, long] = [workOf(SHORT), workOf(SHORT * TIMES)];
  timeOf(TIMES, short);
  // The same number of bytes both ways; quadratic time would be 16 times as long.
  expect(timeOf(2, long) / timeOf(2 * TIMES, short)).toBeLessThan(6);
});
