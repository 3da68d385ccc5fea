import fc from 'fast-check';
import { expect, test } from 'vitest';
import { singleFlight } from '../src/single-flight.ts';

test('a key has one call at a time, whose end its callers share; a later caller starts another', async () => {
  const step = fc.oneof(
    fc.record({ key: fc.integer({ min: 0, max: 2 }) }),
    fc.record({ ends: fc.integer({ min: 0, max: 2 }), fails: fc.boolean() }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const open = new Map<number, { readonly end: (fails: boolean) => void; readonly number: number }>();
      let calls = 0;
      const run = singleFlight((key: number) => {
        calls += 1;
        const number = calls;
        expect(open.has(key)).toBe(false);
        return new Promise<number>((resolve, reject) => {
          const end = (fails: boolean) => (fails ? reject(new Error(String(number))) : resolve(number));
          open.set(key, { end, number });
        });
      });
      for (const each of steps) {
        if ('key' in each) {
          const before = open.get(each.key);
          const answer = run(each.key);
          answer.catch(() => {});
          expect(run.running(each.key)).toBe(answer);
          if (before !== undefined) expect(open.get(each.key)).toBe(before);
        } else {
          const { ends: key, fails } = each;
          const call = open.get(key);
          const answer = run.running(key);
          expect(answer === undefined).toBe(call === undefined);
          call?.end(fails);
          open.delete(key);
          const found = await answer?.then(String, (error: Error) => error.message);
          expect(found).toBe(call === undefined ? undefined : String(call.number));
          expect(run.running(key)).toBeUndefined();
        }
      }
    }),
  );
});

test('a call without arguments is one call for all', async () => {
  let calls = 0;
  const run = singleFlight(async () => {
    calls += 1;
    await Promise.resolve();
    return calls;
  });
  expect(await Promise.all([run(), run(), run()])).toEqual([1, 1, 1]);
  expect(await run()).toBe(2);
});
