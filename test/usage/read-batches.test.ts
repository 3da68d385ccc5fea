// Reads that are batched: which of them share a call, and what becomes of its result.
import { expect, test } from 'vitest';
import { ReadBatches } from '../../src/usage/read-batches.ts';

const keys = (count: number, from = 0) => Array.from({ length: count }, (_, index) => `k${from + index}`);

test('each read has its own value, and what is read while a batch runs is in the next one, without a key twice', async () => {
  const batches: string[][] = [];
  const reads = new ReadBatches(async (batch) => {
    batches.push([...batch]);
    return new Map(batch.map((key) => [key, key.toUpperCase()]));
  });
  const values = await Promise.all([...keys(600), 'k0'].map((key) => reads.read(key)));
  expect(values).toEqual([...keys(600), 'k0'].map((key) => key.toUpperCase()));
  expect(batches).toEqual([keys(256), keys(256, 256), keys(88, 512)]);
  expect(await reads.read('later')).toBe('LATER');
});

test('a batch that fails fails all of its reads, and the next one is tried', async () => {
  let isFailing = true;
  const reads = new ReadBatches(async (batch) => {
    if (isFailing) throw new Error('away');
    return new Map(batch.flatMap((key) => (key === 'missing' ? [] : [[key, 1]])));
  });
  const failed = await Promise.allSettled([reads.read('a'), reads.read('b')]);
  expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  isFailing = false;
  expect(await reads.read('a')).toBe(1);
  await expect(reads.read('missing')).rejects.toThrow('no value');
});

test('reads beyond a bound fail at once', async () => {
  const reads = new ReadBatches(async (batch) => new Map(batch.map((key) => [key, 1])));
  const settled = await Promise.allSettled(keys(10_001).map((key) => reads.read(key)));
  expect(settled.filter(({ status }) => status === 'rejected')).toHaveLength(1);
});
