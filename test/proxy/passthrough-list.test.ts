// Lists of a holder's objects whose upstream says for a while, or for good, that some do not exist.
import { expect, test } from 'vitest';
import { GoneObjects, makeList, readListQuery } from '../../src/passthrough/passthrough-list.ts';

const MINUTE = 60_000;

function setting(ids: readonly string[]) {
  let now = 0;
  const state = { present: new Set(ids), recorded: [...ids], asked: 0 };
  const gone = new GoneObjects(() => now);
  const source = {
    page: async ({ limit, after }: { limit: number; after?: string | undefined }) => {
      const start = after === undefined ? 0 : ids.indexOf(after) + 1;
      return ids
        .slice(start)
        .filter((id) => state.recorded.includes(id))
        .slice(0, limit);
    },
    object: async (id: string) => {
      state.asked += 1;
      return state.present.has(id) ? Buffer.from(JSON.stringify({ id })) : undefined;
    },
    ended: async (id: string) => {
      state.recorded = state.recorded.filter((each) => each !== id);
    },
  };
  const list = async () => {
    const bytes = await makeList(readListQuery('order=asc&limit=2'), source, gone);
    return JSON.parse(bytes.toString()).data.map(({ id }: { id: string }) => id);
  };
  return { state, list, pass: (ms: number) => (now += ms) };
}

test('objects that seem to be gone for less than an hour are listed again', async () => {
  const { state, list, pass } = setting(['a', 'b', 'c']);
  state.present.clear();
  expect(await list()).toEqual([]);
  pass(59 * MINUTE);
  expect(await list()).toEqual([]);
  state.present = new Set(['a', 'b', 'c']);
  pass(MINUTE);
  expect(await list()).toEqual(['a', 'b']);
  expect(state.recorded).toEqual(['a', 'b', 'c']);
});

test('an object that is gone is asked for once a minute, and forgotten after an hour', async () => {
  const { state, list, pass } = setting(['a', 'b', 'c']);
  state.present.delete('a');
  for (let count = 0; count < 3; count += 1) expect(await list()).toEqual(['b', 'c']);
  expect(state.asked).toBe(1 + 3 * 2);
  pass(61 * MINUTE);
  expect(await list()).toEqual(['b', 'c']);
  expect(state.recorded).toEqual(['b', 'c']);
});
