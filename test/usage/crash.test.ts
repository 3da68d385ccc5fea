// Processes that are killed while they record: what a line of the directory held counts, once, by whoever takes it over.
import { existsSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir, until, within } from '../helpers/wait.ts';
import { type Child, startChild } from '../store/processes.ts';
import { files, open, QUICK, sums } from './samples.ts';

const SCRIPT = fileURLToPath(new URL('./children/record.ts', import.meta.url));
/** Records are written four times a second. The rest is for a slow machine. */
const BOUND_MS = 1500;

let dir: TempDir;
let store: Store;
let directory: string;

beforeEach(async () => {
  dir = await tempDir();
  directory = dir.file('directory');
  store = await openNewStore(dir.file('keys.db'));
});

afterEach(async () => {
  await store.close();
  await dir.remove();
});

const begin = (holderId: string) => startChild(SCRIPT, [dir.file('keys.db'), directory, holderId]);
const counted = async (holderId: string) =>
  (await store.usage.usageReport({ holderId, from: '2000', by: [], limit: 1 }))[0]?.sums.requests ?? 0;

/** Most and least that may be counted of a child that was killed. */
function bounds({ lines }: Child): { least: number; most: number } {
  const last = Number(lines.at(-1));
  const safe = lines.filter((line) => Number(line) <= last - BOUND_MS).length;
  // It may have been killed between a record and its line.
  return { least: safe, most: lines.length + 1 };
}

async function kill(child: Child): Promise<void> {
  child.process.kill('SIGKILL');
  await child.ended;
}

test.each([1, 2, 3])(
  'killed at some moment, it loses no more than the last of its records (round %i)',
  async (round) => {
    await using child = begin('killed');
    await until(
      () => Number(child.lines.at(-1)) - Number(child.lines[0]) > 2500 + round * 137,
      'records',
      60_000,
    );
    await kill(child);
    const { outbox } = await open(store.usage, directory, QUICK);
    await until(() => outbox.flush(), 'an empty outbox');
    await outbox.close(30_000);
    const { least, most } = bounds(child);
    const count = await counted('killed');
    expect(count).toBeGreaterThanOrEqual(least);
    expect(count).toBeLessThanOrEqual(most);
    expect(least).toBeGreaterThan(0);
  },
  120_000,
);

test('of two processes on one directory, the survivor counts the usage of the killed one and loses none of its own', async () => {
  await using killed = begin('killed');
  await using living = begin('living');
  await until(() => Number(killed.lines.at(-1)) - Number(killed.lines[0]) > 2500, 'records', 60_000);
  await until(() => living.lines.length > 100, 'records');
  await kill(killed);
  await until(() => files(directory).length === 1, 'one file', 60_000);
  living.process.kill('SIGTERM');
  expect([await living.ended, living.stderr()]).toEqual([0, '']);
  expect(readdirSync(directory)).toEqual([]);
  expect(await counted('living')).toBe(living.lines.length);
  const { least, most } = bounds(killed);
  const count = await counted('killed');
  expect(count).toBeGreaterThanOrEqual(least);
  expect(count).toBeLessThanOrEqual(most);
  expect((await sums(store.usage))?.requests).toBe(count + living.lines.length);
  expect(existsSync(directory)).toBe(true);
}, 120_000);

test('a process ends without closing its outbox, and the next one sends its usage', async () => {
  const script = fileURLToPath(new URL('./children/no-close.ts', import.meta.url));
  await using child = startChild(script, [dir.file('keys.db'), directory]);
  expect([await within(child.ended, 'the end of the process'), child.stderr()]).toEqual([0, '']);
  const { outbox } = await open(store.usage, directory, QUICK);
  await until(() => outbox.flush(), 'an empty outbox');
  await outbox.close(30_000);
  expect((await sums(store.usage))?.requests).toBe(1);
});
