// How many upstreams are read on after their clients have left, for how long, and what the end of the process does to them.
import { expect, test } from 'vitest';
import { type UsageReadResult, UsageReads } from '../../src/upstream/usage-reads.ts';
import { until, within } from '../helpers/wait.ts';

function reads(options: { maxReads?: number; maxMs?: number }) {
  const results: UsageReadResult[] = [];
  const running: number[] = [];
  const metrics = {
    running: { set: (count: number) => void running.push(count) },
    results: { inc: ({ result }: { result: UsageReadResult }) => void results.push(result) },
  };
  return { results, running, reads: new UsageReads({ metrics, ...options }) };
}

test('no more run at once than there is room for, and the others are told', () => {
  const { reads: own, results, running } = reads({ maxReads: 2 });
  const first = own.begin(() => undefined);
  own.begin(() => undefined);
  expect(own.begin(() => undefined)).toBeUndefined();
  first?.end(true);
  first?.end(true);
  expect(own.begin(() => undefined)).toBeDefined();
  expect(results).toEqual(['refused', 'reported']);
  expect(running).toEqual([1, 2, 1, 2]);
  own.endAll();
});

test('each is stopped when its time is over', async () => {
  const { reads: own, results } = reads({ maxMs: 20 });
  const read = own.begin(() => read?.end(false));
  await until(() => results.length === 1);
  expect(results).toEqual(['missing']);
});

test('the end of the process waits for those that run, no longer than it may, and lets none begin', async () => {
  const { reads: own, results } = reads({});
  const read = own.begin(() => read?.end(false));
  const closed = own.close(30);
  await within(closed, 'the end');
  expect(results).toEqual(['missing']);
  expect(own.begin(() => undefined)).toBeUndefined();

  const other = reads({});
  const quick = other.reads.begin(() => quick?.end(false));
  const end = other.reads.close(60_000);
  quick?.end(true);
  await within(end, 'the end');
  expect(other.results).toEqual(['reported']);
});
