// The table of losses in docs/usage.md: one test for each of its rows, named by the row, and that no row is without one. What needs
// whole gateways is in losses-process.test.ts.
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { OutboxDisk } from '../../src/usage/outbox/outbox-disk.ts';
import { OutboxFile } from '../../src/usage/outbox/outbox-file.ts';
import type { UsageOutboxLimits } from '../../src/usage/outbox/outbox-limits.ts';
import { readRow, writeLine, writeRow } from '../../src/usage/outbox/outbox-row.ts';
import { rowsOf } from '../../src/usage/records/request-usage.ts';
import type { UsageOutbox } from '../../src/usage/usage-outbox.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { startChild } from '../store/processes.ts';
import { FaultyStore } from './faulty-store.ts';
import { losses, row, tested } from './losses.ts';
import {
  age,
  BY_HAND,
  files,
  open as openOutbox,
  QUICK,
  record,
  stored,
  sums,
  type Told,
  writeOldFile,
} from './samples.ts';

const DAY = 86_400_000;

let dir: TempDir;
let store: Store;
let faulty: FaultyStore;
let directory: string;
let outboxes: UsageOutbox[];

beforeEach(async () => {
  dir = await tempDir();
  directory = dir.file('directory');
  store = await openNewStore(dir.file('keys.db'));
  faulty = new FaultyStore(store.usage);
  outboxes = [];
});

afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(outboxes.map((outbox) => outbox.abandon()));
  await store.close();
  await dir.remove();
});

async function open(limits: Partial<UsageOutboxLimits> = BY_HAND, clock?: () => number) {
  const opened = await openOutbox(faulty, directory, limits, clock);
  outboxes.push(opened.outbox);
  return opened;
}

/** Requests of a holder in the files. */
function written(holderId: string): number {
  return files(directory)
    .flatMap((name) => stored(join(directory, name)))
    .map(({ cells }) => readRow(cells))
    .reduce((sum, found) => sum + (found?.holderId === holderId ? found.sums.requests : 0), 0);
}

const counted = async () => (await sums(store.usage))?.requests ?? 0;
const isSent = (told: Told) => until(() => told.waiting.segments === 0, 'an empty outbox');
const write = (outbox: UsageOutbox, count: number, changed: Parameters<typeof record>[0] = {}) => {
  for (let index = 0; index < count; index += 1) outbox.record(record({ model: `m${index}`, ...changed }));
};

test('every row of docs/usage.md has a test, and every test a row', () => {
  expect(losses().length).toBeGreaterThan(15);
  expect(tested().toSorted()).toEqual(losses().toSorted());
});

describe('what happens', () => {
  row('a worker is killed', async () => {
    // To the directory a worker is a process, and its siblings are others on the same directory.
    await using child = startChild(fileURLToPath(new URL('./children/record.ts', import.meta.url)), [
      dir.file('keys.db'),
      directory,
      'killed',
    ]);
    const { outbox } = await open(QUICK);
    await until(() => written('killed') > 0, 'a row of the other');
    const taken = child.lines.length;
    child.process.kill('SIGKILL');
    await child.ended;
    write(outbox, 3, { holderId: 'sibling' });
    await until(() => files(directory).length === 1, 'one file');
    await until(() => outbox.flush(), 'an empty outbox');
    const of = async (holderId: string) =>
      (await store.usage.usageReport({ holderId, from: '2000', by: [], limit: 1 }))[0]?.sums.requests ?? 0;
    expect(await of('sibling')).toBe(3);
    // At least what the file held by then; at most all of it.
    expect(await of('killed')).toBeGreaterThan(0);
    expect(await of('killed')).toBeLessThanOrEqual(child.lines.length + 1);
    expect(taken).toBeGreaterThan(0);
  });

  row('the power fails', async () => {
    // What the thread does, in this one: SQLite syncs each commit when it is told `full`, and checkpoints alone with `normal`.
    const executed = vi.spyOn(DatabaseSync.prototype, 'exec');
    const file = new OutboxFile(directory);
    file.open();
    const told = () =>
      executed.mock.calls.flatMap(([text]) => /synchronous = (normal|full)/.exec(text)?.[1] ?? []);
    expect(told().at(-1)).toBe('normal');
    file.setSync(true);
    expect(told().at(-1)).toBe('full');
    expect(executed.mock.lastCall?.[0]).toContain('wal_checkpoint');
    // A file that replaces it is synced too.
    rmSync(directory, { recursive: true });
    file.open();
    expect(told().at(-1)).toBe('full');
    file.close();
    // While the store takes usage, the disk is not asked to hurry.
    const { outbox } = await open();
    const called = vi.spyOn(OutboxDisk.prototype, 'call');
    const asked = () => called.mock.calls.flatMap(([name, isOn]) => (name === 'setSync' ? [isOn] : []));
    write(outbox, 1);
    expect(await outbox.flush()).toBe(true);
    expect(asked()).toEqual([]);
    faulty.rest = 'refuses';
    write(outbox, 1);
    expect(await outbox.flush()).toBe(false);
    expect(asked()).toEqual([true]);
    faulty.rest = 'none';
    expect(await outbox.flush()).toBe(true);
    expect(asked()).toEqual([true, false]);
  });

  row('the store is unavailable or slow, or rejects writes', async () => {
    const { outbox, told } = await open({ ...QUICK, diskBytes: 100_000 });
    faulty.rest = 'refuses';
    write(outbox, 3);
    await until(() => told.batches.failed > 2, 'several attempts');
    faulty.rest = 'forgets to answer';
    write(outbox, 3);
    await until(() => told.batches.failed > 5, 'several attempts');
    faulty.rest = 'none';
    await until(async () => (await counted()) === 6, 'all of it');
    expect(told.dropped).toEqual({});
    // Beyond the bound the oldest batches go, counted and logged.
    faulty.rest = 'refuses';
    await until(() => {
      write(outbox, 200);
      return (told.dropped['spool_full'] ?? 0) > 0;
    }, 'the bound');
    expect(told.log).toContain('usage is not counted');
  });

  row('it is unknown whether a batch was committed', async () => {
    let now = Date.parse('2030-01-01T00:00:00Z');
    const { outbox } = await open(BY_HAND, () => now);
    for (const fault of ['commits and fails', 'is late', 'forgets to answer'] as const) {
      write(outbox, 1);
      faulty.next.push(fault);
      await outbox.flush();
      await Promise.all(faulty.late);
    }
    now += 6 * DAY;
    expect(await outbox.flush()).toBe(true);
    expect(await counted()).toBe(3);
  });

  row('the store never accepts one batch', async () => {
    const { outbox, told } = await open(QUICK);
    faulty.next.push('refuses');
    write(outbox, 1);
    const bad = await until(() => faulty.seen[0]?.id, 'the first attempt');
    faulty.refused.add(bad);
    let others = 0;
    await until(() => {
      outbox.record(record({ model: 'good' }));
      others += 1;
      return existsSync(join(directory, `${bad}.aside`));
    }, 'the file kept aside');
    expect(told.dropped).toEqual({ refused: 1 });
    await until(async () => (await counted()) === others, 'all others');
    // As the page says: renamed by hand, it counts after all.
    faulty.refused.clear();
    renameSync(join(directory, `${bad}.aside`), join(directory, `000000000000.1.000000000000.${bad}.jsonl`));
    await until(async () => (await counted()) === others + 1, 'that one too');
  });

  row('the disk is full, or the directory is not writable', async () => {
    writeFileSync(directory, 'a file where the directory belongs');
    const { outbox, told } = await open({ ...BY_HAND, memoryRows: 10 });
    write(outbox, 8);
    expect(await outbox.flush()).toBe(true);
    expect([await counted(), told.dropped]).toEqual([8, {}]);
    expect(told.log).toContain('in memory only');
    faulty.rest = 'refuses';
    write(outbox, 15);
    // One that needs no other line has room.
    outbox.record(record({ model: 'm0' }));
    expect(told.dropped).toEqual({ memory: 5 });
    faulty.rest = 'none';
    expect(await outbox.flush()).toBe(true);
    expect(await counted()).toBe(8 + 11);
  });

  row('the disk does not respond', async () => {
    const { outbox, told } = await open(QUICK);
    const { call } = OutboxDisk.prototype;
    let answer = () => {};
    const answered = new Promise<void>((resolve) => (answer = resolve));
    const hung = vi.spyOn(OutboxDisk.prototype, 'call').mockImplementation(async function (
      this: OutboxDisk,
      ...args
    ) {
      await answered;
      return call.apply(this, args);
    });
    write(outbox, 3);
    await until(() => told.log.includes('in memory only'), 'the log line');
    write(outbox, 5);
    expect([await counted(), told.dropped]).toEqual([0, {}]);
    answer();
    await until(async () => (await counted()) === 8, 'all requests');
    hung.mockRestore();
  });

  row('the directory of the outbox is lost', async () => {
    const first = await open();
    write(first.outbox, 2);
    expect(await first.outbox.flush()).toBe(true);
    faulty.rest = 'refuses';
    write(first.outbox, 3);
    await first.outbox.flush();
    await first.outbox.abandon();
    rmSync(directory, { recursive: true });
    faulty.rest = 'none';
    const second = await open();
    write(second.outbox, 1);
    expect(await second.outbox.flush()).toBe(true);
    expect(await counted()).toBe(3);
  });

  row('a file of the outbox is damaged', async () => {
    const first = await open();
    faulty.rest = 'refuses';
    for (let batch = 0; batch < 30; batch += 1) {
      write(first.outbox, 20, { upstream: `u${batch}` });
      await first.outbox.flush();
    }
    await first.outbox.abandon();
    faulty.rest = 'none';
    const path = join(directory, files(directory)[0] ?? '');
    const bytes = readFileSync(path);
    const at = bytes.indexOf('"u15"');
    bytes.fill(0x55, at - (at % 4096), at - (at % 4096) + 4096);
    writeFileSync(path, bytes);
    const { told } = await open(QUICK);
    await until(() => told.log.includes('failed to read parts of'), 'the log line');
    await isSent(told);
    const damaged = path.replace(/outbox$/, 'damaged');
    expect(statSync(damaged).size).toBe(bytes.length);
    // A page of 4 KiB holds some 30 of these rows.
    expect(await counted()).toBeGreaterThan(500);
    expect(await counted()).toBeLessThan(600);
  });

  row('a file is found after more than 6 days', async () => {
    for (const days of [6.1, 5.9]) {
      const { outbox } = await open(BY_HAND, () => Date.now() - days * DAY);
      faulty.rest = 'refuses';
      write(outbox, 1);
      expect(await outbox.flush()).toBe(false);
      await outbox.abandon();
      faulty.rest = 'none';
    }
    const { told } = await open(QUICK);
    await until(async () => (await counted()) === 1, 'the younger one');
    await isSent(told);
    expect([await counted(), told.dropped]).toEqual([1, { too_old: 1 }]);
    const [aside = ''] = readdirSync(directory).filter((name) => name.endsWith('.aside'));
    // As the page says: renamed by hand and given today's time, it counts after all.
    const renamed = join(directory, `000000000000.1.000000000000.${aside.slice(0, 16)}.jsonl`);
    renameSync(join(directory, aside), renamed);
    age(renamed, 0);
    await until(async () => (await counted()) === 2, 'the older one');
  });

  row('the process was stopped for over a minute', async () => {
    await using child = startChild(fileURLToPath(new URL('./children/record.ts', import.meta.url)), [
      dir.file('other.db'),
      directory,
      'stopped',
    ]);
    await until(() => child.lines.length > 100, 'records');
    child.process.kill('SIGSTOP');
    for (const name of files(directory)) age(join(directory, name), 2 * 60_000);
    const { outbox, told } = await open({ ...BY_HAND, scanMs: 10 });
    write(outbox, 1);
    expect(await outbox.flush()).toBe(true);
    await new Promise((done) => setTimeout(done, 200));
    // Its file is its own: the other process has taken nothing.
    expect([await counted(), told.waiting.segments]).toEqual([1, 0]);
    child.process.kill('SIGCONT');
    child.process.kill('SIGTERM');
    expect([await child.ended, child.stderr()]).toEqual([0, '']);
    const other = await openStore({ kind: 'sqlite', path: dir.file('other.db') });
    expect((await sums(other.usage))?.requests).toBe(child.lines.length);
    await other.close();
  });

  row('an earlier build left its files', async () => {
    const id = '0000000000000001';
    const line = rowsOf(record()).map(writeRow).map(writeLine).join('');
    const path = writeOldFile(directory, id, `${line}damaged\n${line}${line.slice(0, 9)}`);
    const { told } = await open(QUICK);
    age(path, 2 * 60_000);
    await until(async () => (await counted()) === 2, 'both lines');
    await isSent(told);
    expect([existsSync(path), existsSync(join(directory, `${id}.aside`))]).toEqual([false, true]);
    expect(told.log).toContain('failed to read parts of');
  });

  row('several processes share the directory', async () => {
    const three = [await open(QUICK), await open(QUICK), await open(QUICK)];
    faulty.rest = 'refuses';
    for (const { outbox } of three) write(outbox, 10);
    await until(() => three.every(({ told }) => told.batches.failed > 0), 'attempts of all');
    await three[0]?.outbox.abandon();
    faulty.rest = 'none';
    await until(async () => (await counted()) === 30, 'all requests');
    await Promise.all(three.slice(1).map(({ told }) => isSent(told)));
    expect(await counted()).toBe(30);
  });

  row('the clock jumps', async () => {
    let now = Date.parse('2030-01-02T03:59:59Z');
    const { outbox } = await open(BY_HAND, () => now);
    for (const jump of [0, 2 * 3_600_000, -5 * 3_600_000, 400 * DAY, -400 * DAY]) {
      now += jump;
      outbox.record(record({ at: now }));
      faulty.next.push('commits and fails');
      await outbox.flush();
      await until(() => outbox.flush(), 'the store to take it');
    }
    expect(await counted()).toBe(5);
    const hours = await store.usage.usageReport({ from: '2000', by: ['hour'], limit: 100 });
    expect(hours.map(({ group, sums: { requests } }) => [group[0], requests])).toEqual([
      ['2030-01-02T00', 2],
      ['2030-01-02T03', 1],
      ['2030-01-02T05', 1],
      ['2031-02-06T00', 1],
    ]);
  });

  row('an answer has more than a billion tokens', async () => {
    const { outbox } = await open();
    const usage = { prompt: 5e9, completion: Number.MAX_VALUE, cached: 2e9, reasoning: 0 };
    outbox.record(record({ usage }));
    expect(await outbox.flush()).toBe(true);
    expect(await sums(store.usage)).toMatchObject({ prompt: 1e9, completion: 1e9, cached: 1e9 });
  });

  row('a sum reaches 2^53 - 1', async () => {
    const { outbox } = await open();
    for (let index = 0; index < 3; index += 1) {
      outbox.record(record({ costNanos: Number.MAX_SAFE_INTEGER - 10 }));
      expect(await outbox.flush()).toBe(true);
    }
    expect(await sums(store.usage)).toMatchObject({ requests: 3, cost: Number.MAX_SAFE_INTEGER });
  });

  row('a record cannot be read', async () => {
    const { outbox, told } = await open();
    for (const wrong of [undefined, {}, { ...record(), model: undefined }])
      Reflect.apply(outbox.record, outbox, [wrong]);
    write(outbox, 1);
    expect(await outbox.flush()).toBe(true);
    expect([await counted(), told.dropped]).toEqual([1, { refused: 3 }]);
    expect(told.log).toContain('usage is not counted');
  });

  row('a record arrives after the end', async () => {
    const { outbox, told } = await open();
    write(outbox, 2);
    await outbox.close(30_000);
    write(outbox, 1);
    expect([await counted(), told.dropped]).toEqual([2, { closed: 1 }]);
  });
});
