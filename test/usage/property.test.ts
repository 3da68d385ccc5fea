// Random records, faults of the store, and outboxes that are killed: in the end the store has what a simple count says.
// FUZZ_RUNS makes them more.
import { readdirSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { tempDir } from '../helpers/wait.ts';
import { STORE_KINDS, type StoreSource } from '../store/stores.ts';
import { FAULTS, FaultyStore } from './faulty-store.ts';
import { BY_HAND, open, record } from './samples.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 5);

const which = fc.constantFrom(0, 1);
const action = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('record' as const),
      which,
      model: fc.constantFrom('a', 'b'),
      upstream: fc.constantFrom('u', 'v'),
      prompt: fc.nat(1000),
      hasEarlier: fc.boolean(),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('flush' as const), which, fault: fc.constantFrom(...FAULTS) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('kill' as const), which }) },
);

/** Requests and prompt tokens by model and upstream. */
class Count {
  readonly #counts = new Map<string, [number, number]>();

  add(name: string, requests: number, tokens: number): void {
    const [before, tokensBefore] = this.#counts.get(name) ?? [0, 0];
    this.#counts.set(name, [before + requests, tokensBefore + tokens]);
  }

  get lines(): readonly unknown[] {
    return [...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, count]) => [name, ...count]);
  }
}

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let store: Store;

  beforeAll(async () => {
    source = await start();
    store = await openStore(await source.fresh());
  }, timeout);

  afterAll(async () => {
    await store.close();
    await source[Symbol.asyncDispose]();
  });

  let runs = 0;

  async function check(actions: readonly (typeof action extends fc.Arbitrary<infer T> ? T : never)[]) {
    runs += 1;
    const holderId = `holder-of-run-${runs}`;
    await using dir = await tempDir();
    const faulty = new FaultyStore(store.usage);
    const begin = async () => (await open(faulty, dir.path, BY_HAND)).outbox;
    const outboxes = [await begin(), await begin()];
    const expected = new Count();
    /** Not in the directory yet: lost when the outbox is killed. */
    const fresh: (() => void)[][] = [[], []];
    const settle = (index: number) => {
      for (const count of fresh[index]?.splice(0) ?? []) count();
    };
    for (const each of actions) {
      const outbox = outboxes[each.which];
      if (outbox === undefined) throw new Error('there are two');
      if (each.kind === 'record') {
        const { model, upstream, prompt, hasEarlier } = each;
        const usage = { prompt, completion: 0, cached: 0, reasoning: 0 };
        const extra = hasEarlier ? [{ upstream: 'earlier', target: 'gpt-2', usage }] : [];
        outbox.record(record({ holderId, model, upstream, usage, extra }));
        fresh[each.which]?.push(() => {
          expected.add(`${model} ${upstream}`, 1, prompt);
          if (hasEarlier) expected.add(`${model} earlier`, 0, prompt);
        });
      } else if (each.kind === 'flush') {
        faulty.next.splice(0, Infinity, each.fault);
        await outbox.flush();
        settle(each.which);
      } else {
        await outbox.abandon();
        fresh[each.which]?.splice(0);
        outboxes[each.which] = await begin();
      }
    }
    faulty.next.length = 0;
    await Promise.all(faulty.late);
    for (const [index, outbox] of outboxes.entries()) {
      await outbox.close(60_000);
      settle(index);
    }
    const last = await begin();
    expect(await last.flush()).toBe(true);
    await last.close(0);
    expect(readdirSync(dir.path)).toEqual([]);
    const lines = await store.usage.usageReport({
      holderId,
      from: '2000',
      by: ['model', 'upstream'],
      limit: 100,
    });
    expect(lines.map(({ group, sums }) => [group.join(' '), sums.requests, sums.prompt])).toEqual(
      expected.lines,
    );
  }

  test('no written record is lost, and none counts twice', async () => {
    await fc.assert(fc.asyncProperty(fc.array(action, { maxLength: 25 }), check), {
      numRuns: RUNS,
    });
  }, 300_000);
});
