// From a record to the store: counted once whatever fails on the way, and in the directory as long as the store does not have it.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { open as openFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { writeLine, writeRow } from '../../src/usage/outbox/outbox-row.ts';
import { rowsOf } from '../../src/usage/records/request-usage.ts';
import type { UsageOutbox } from '../../src/usage/usage-outbox.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { newHolder, newKey } from '../store/samples.ts';
import { STORE_KINDS, type StoreSource } from '../store/stores.ts';
import { FaultyStore } from './faulty-store.ts';
import {
  age,
  BY_HAND,
  FOREIGN,
  files,
  open as openOutbox,
  QUICK,
  record,
  stored,
  sums,
  writeOldFile,
} from './samples.ts';

const cells = (): string[] => rowsOf(record()).map(writeRow);
/** The column of a file that all versions read. */
const earlierCells = (row: string): string => row.replace(/,\[[^[\]]*\]\]$/, ']');
const line = (): string => cells().map(writeLine).join('');

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let store: Store;
  let faulty: FaultyStore;
  let dir: TempDir;
  let directory: string;
  let outboxes: UsageOutbox[];

  beforeAll(async () => {
    source = await start();
  }, timeout);

  afterAll(() => source[Symbol.asyncDispose]());

  beforeEach(async () => {
    store = await openStore(await source.fresh());
    faulty = new FaultyStore(store.usage);
    dir = await tempDir();
    directory = dir.file('directory');
    outboxes = [];
  });

  afterEach(async () => {
    await Promise.all(outboxes.map((outbox) => outbox.abandon()));
    await store.close();
    await dir.remove();
  });

  async function open(limits = BY_HAND, clock?: () => number) {
    const opened = await openOutbox(faulty, directory, limits, clock);
    outboxes.push(opened.outbox);
    return opened;
  }

  const counted = async () => (await sums(store.usage))?.requests;

  test('recorded usage reaches the store soon, in few batches, and is then removed', async () => {
    const { outbox, told } = await open(QUICK);
    for (let index = 0; index < 1000; index += 1) outbox.record(record({ model: `m${index % 7}` }));
    await until(async () => (await counted()) === 1000, 'all requests');
    await until(() => told.waiting.segments === 0, 'an empty outbox');
    expect(await sums(store.usage)).toMatchObject({ prompt: 100_000, cost: 7_000_000, ttft_count: 1000 });
    expect(told.batches.written).toBeLessThan(10);
    expect(told.dropped).toEqual({});
  });

  test('the file has a record before the store, and is readable only by its owner', async () => {
    const { outbox } = await open({ ...BY_HAND, writeMs: 5 });
    outbox.record(record());
    const [name = ''] = files(directory);
    await until(() => stored(join(directory, name)).length > 0, 'a row');
    expect((statSync(directory).mode & 0o777).toString(8)).toBe('700');
    for (const each of [name, `${name}-wal`])
      expect((statSync(join(directory, each)).mode & 0o777).toString(8)).toBe('600');
    await outbox.abandon();
    expect(await counted()).toBe(0);
    expect(stored(join(directory, name)).map((row) => row.cells)).toEqual(cells().map(earlierCells));
  });

  test.each(['refuses', 'forgets to answer', 'commits and fails', 'is late'] as const)(
    'a store that %s is asked again, and counts once',
    async (fault) => {
      const { outbox, told } = await open();
      faulty.next.push(fault, fault);
      outbox.record(record());
      expect(await outbox.flush()).toBe(false);
      expect(told.waiting.segments).toBe(1);
      expect(await outbox.flush()).toBe(false);
      await Promise.all(faulty.late);
      expect(await outbox.flush()).toBe(true);
      expect(await counted()).toBe(1);
      expect(told.waiting.segments).toBe(0);
      expect(told.batches.failed).toBe(2);
      expect(told.log).toContain('failed to write usage to the store');
    },
  );

  test('while the store is unavailable the outbox grows by few batches, and drains afterwards', async () => {
    const { outbox, told } = await open(QUICK);
    faulty.rest = 'refuses';
    for (let index = 0; index < 40; index += 1) {
      outbox.record(record());
      await new Promise((done) => setTimeout(done, 5));
    }
    await until(() => told.batches.failed > 3, 'several attempts');
    expect(told.waiting.segments).toBeLessThan(10);
    expect(await counted()).toBe(0);
    faulty.rest = 'none';
    await until(async () => (await counted()) === 40, 'all requests');
    await until(() => told.waiting.segments === 0, 'an empty outbox');
  });

  test('the next process sends the usage that an ended one left, whether the store had it or not', async () => {
    const first = await open();
    faulty.next.push('commits and fails', 'refuses');
    first.outbox.record(record());
    expect(await first.outbox.flush()).toBe(false);
    first.outbox.record(record());
    expect(await first.outbox.flush()).toBe(false);
    await first.outbox.abandon();
    const second = await open(QUICK);
    await until(() => second.told.batches.known > 0 && second.told.waiting.segments === 0, 'an empty outbox');
    expect(await counted()).toBe(2);
    expect(second.told.batches).toEqual({ written: 1, known: 1, late: 0, failed: 0 });
    expect(second.told.log).toContain('sending usage that another process left');
    expect(files(directory)).toHaveLength(1);
  });

  test('of several processes that start at once, one sends it', async () => {
    const first = await open();
    faulty.rest = 'refuses';
    for (let index = 0; index < 20; index += 1) {
      first.outbox.record(record());
      await first.outbox.flush();
    }
    await first.outbox.abandon();
    faulty.rest = 'none';
    faulty.seen.length = 0;
    const others = await Promise.all(Array.from({ length: 5 }, () => open(QUICK)));
    await until(async () => (await counted()) === 20, 'all requests');
    await until(() => others.every(({ told }) => told.waiting.segments === 0), 'empty outboxes');
    // One that found nothing to send may not have made its file yet.
    await until(() => files(directory).length === 5, 'a file of each');
    expect(others.reduce((sum, { told }) => sum + told.batches.known, 0)).toBe(0);
  });

  test('two processes share one directory', async () => {
    const [one, two] = [await open({ ...BY_HAND, scanMs: 5 }), await open({ ...BY_HAND, scanMs: 5 })];
    faulty.rest = 'refuses';
    for (const { outbox } of [one, two]) {
      outbox.record(record());
      await outbox.flush();
    }
    await new Promise((done) => setTimeout(done, 100));
    expect([one.told.waiting.segments, two.told.waiting.segments]).toEqual([1, 1]);
    faulty.rest = 'none';
    expect([await one.outbox.flush(), await two.outbox.flush()]).toEqual([true, true]);
    expect(await counted()).toBe(2);
  });

  test('a stopped process keeps its file', async () => {
    const { outbox } = await open();
    faulty.rest = 'refuses';
    outbox.record(record());
    await outbox.flush();
    const [name = ''] = files(directory);
    age(join(directory, name), 86_400_000);
    faulty.rest = 'none';
    const other = await open({ ...BY_HAND, scanMs: 5 });
    await new Promise((done) => setTimeout(done, 100));
    expect(other.told.waiting.segments).toBe(0);
    outbox.record(record());
    expect(await outbox.flush()).toBe(true);
    expect(await counted()).toBe(2);
  });

  test('a file of a version without teams is counted for the team and the tier of the present', async () => {
    const team = await store.organisation.addTeam(
      { id: 'team-1', name: 'search', terms: {} },
      { actor: null, reason: null, at: '2030-01-01T00:00:00.000Z' },
      {},
    );
    expect(team.kind).toBe('done');
    const holder = { ...newHolder('Pro'), id: 'holder-1', teamId: 'team-1' };
    await store.addKey(newKey('0123abcd'), holder, null);
    mkdirSync(directory, { recursive: true });
    const file = new DatabaseSync(join(directory, '1.000000000000.outbox'));
    file.exec(`
      create table batches (number integer primary key, id text not null unique, at integer not null) strict;
      create table usage_rows (
        batch integer not null references batches on delete cascade, holder text not null, cells text not null) strict;`);
    file.prepare('insert into batches values (1, ?, ?)').run('00000000000000aa', Date.now());
    const insert = file.prepare('insert into usage_rows values (1, ?, ?)');
    for (const row of [...cells(), ...cells()]) insert.run('holder-1', earlierCells(row));
    file.close();
    const { outbox } = await open();
    // On a machine that stalls, the file is taken over later than it is waited for.
    const pending = await until(async () => {
      const found = (await outbox.withPending({ kind: 'holder', id: 'holder-1' }, async () => 0)).pending;
      return found.length > 0 && found;
    }, 'the rows of the file');
    expect(pending).toMatchObject([
      { teamId: '', tier: '', target: '', endpoint: '', sums: { requests: 2 } },
    ]);
    expect(await outbox.flush()).toBe(true);
    expect(await store.usage.usageOf({ kind: 'team', id: 'team-1' }, '2030-01-02')).toMatchObject({
      requests_per_day: 2,
      tokens_per_month: 220,
    });
  });

  describe('a file of the former format', () => {
    test('is counted after its process ended, under the id of its batch', async () => {
      const path = writeOldFile(directory, '0123456789abcdef', line());
      writeFileSync(join(directory, `${FOREIGN}.alive`), '');
      const { told } = await open(QUICK);
      await new Promise((done) => setTimeout(done, 100));
      expect([existsSync(path), await counted()]).toEqual([true, 0]);
      age(path, 120_000);
      age(join(directory, `${FOREIGN}.alive`), 120_000);
      await until(async () => (await counted()) === 1, 'the request');
      await until(() => told.waiting.segments === 0, 'an empty outbox');
      expect(faulty.seen.map(({ id }) => id)).toEqual(['0123456789abcdef']);
      expect(readdirSync(directory).filter((name) => !name.includes('.outbox'))).toEqual([]);
    });

    test('is counted without a truncated last line and without an invalid line, which is set aside', async () => {
      age(writeOldFile(directory, '0000000000000001', line() + line().slice(0, -20)), 120_000);
      age(writeOldFile(directory, '0000000000000002', `${line()}what is this?\n${line()}`), 120_000);
      age(writeOldFile(directory, '0000000000000003', ''), 120_000);
      writeFileSync(join(directory, 'README'), 'not ours');
      const { told } = await open(QUICK);
      await until(async () => (await counted()) === 3, 'all that can be read');
      expect(readFileSync(join(directory, '0000000000000002.aside'), 'utf8')).toContain('what is this?');
      expect(told.log).toContain('failed to read parts of');
      expect(existsSync(join(directory, 'README'))).toBe(true);
    });

    test('that is too old for its batch id to be known is set aside and logged', async () => {
      age(writeOldFile(directory, '0000000000000001', line()), 7 * 86_400_000);
      const { told } = await open(QUICK);
      await until(() => existsSync(join(directory, '0000000000000001.aside')), 'the file');
      expect(told.dropped).toEqual({ too_old: 1 });
      expect(told.log).toContain('usage is not counted');
      expect(await counted()).toBe(0);
    });
  });

  describe('a damaged file', () => {
    /** A file with 40 batches of a process that has gone. */
    async function abandoned(): Promise<string> {
      const { outbox } = await open();
      faulty.rest = 'refuses';
      for (let index = 0; index < 40; index += 1) {
        for (let row = 0; row < 20; row += 1) outbox.record(record({ model: `m${index}-${row}` }));
        await outbox.flush();
      }
      await outbox.abandon();
      faulty.rest = 'none';
      const [name = ''] = files(directory);
      return join(directory, name);
    }

    test('with an unreadable page is counted without it, and kept', async () => {
      const path = await abandoned();
      const at = readFileSync(path).indexOf('"m20-10"');
      const handle = await openFile(path, 'r+');
      await handle.write(Buffer.alloc(4096, 0x55), 0, 4096, at - (at % 4096));
      await handle.close();
      const { told } = await open(QUICK);
      await until(() => told.log.includes('failed to read parts of'), 'the log line');
      await until(() => told.waiting.segments === 0, 'an empty outbox');
      const count = (await counted()) ?? 0;
      expect(count).toBeGreaterThan(700);
      expect(count).toBeLessThan(800);
      expect(existsSync(path.replace(/outbox$/, 'damaged'))).toBe(true);
    });

    test('without a valid header is kept, and the outbox works', async () => {
      const path = await abandoned();
      writeFileSync(path, 'this is no database, and never was one. '.repeat(1000));
      const { outbox, told } = await open(BY_HAND);
      expect(told.log).toContain('failed to read parts of');
      expect(existsSync(path.replace(/outbox$/, 'damaged'))).toBe(true);
      outbox.record(record());
      expect(await outbox.flush()).toBe(true);
      expect(await counted()).toBe(1);
    });

    test('with a truncated log is counted up to the last complete write', async () => {
      const { outbox } = await open();
      faulty.rest = 'refuses';
      for (let index = 0; index < 5; index += 1) {
        outbox.record(record());
        await outbox.flush();
      }
      const [name = ''] = files(directory);
      // As at the moment of a kill: SQLite itself leaves no log behind.
      for (const suffix of ['', '-wal'])
        copyFileSync(join(directory, name + suffix), join(dir.path, `copy.outbox${suffix}`));
      truncateSync(join(dir.path, 'copy.outbox-wal'), statSync(join(dir.path, 'copy.outbox-wal')).size - 100);
      await outbox.abandon();
      faulty.rest = 'none';
      directory = dir.path;
      await open(QUICK);
      await until(async () => (await counted()) === 4, 'four of five');
    });
  });

  test('a batch that the store never accepts is set aside and delays no other', async () => {
    const { outbox, told } = await open(QUICK);
    faulty.next.push('refuses');
    outbox.record(record());
    const bad = await until(() => faulty.seen[0]?.id, 'the first attempt');
    faulty.refused.add(bad);
    for (let index = 0; told.dropped['refused'] === undefined && index < 2000; index += 1) {
      outbox.record(record({ model: 'good' }));
      await new Promise((done) => setTimeout(done, 10));
    }
    expect(told.dropped).toEqual({ refused: 1 });
    // It is told first and moved then.
    await until(() => existsSync(join(directory, `${bad}.aside`)), 'the file kept aside');
    await until(() => told.waiting.segments === 0, 'an empty outbox');
  });

  test('a full directory drops its oldest batches, counted and logged', async () => {
    const { outbox, told } = await open({ ...BY_HAND, scanMs: 10, diskBytes: 200_000 });
    faulty.rest = 'refuses';
    let recorded = 0;
    await until(async () => {
      for (let index = 0; index < 50; index += 1) outbox.record(record({ model: `m${recorded + index}` }));
      recorded += 50;
      await outbox.flush();
      return (told.dropped['spool_full'] ?? 0) > 0;
    }, 'a drop');
    await until(() => told.waiting.bytes <= 200_000, 'a small file');
    faulty.rest = 'none';
    expect(await outbox.flush()).toBe(true);
    expect(((await counted()) ?? 0) + (told.dropped['spool_full'] ?? 0)).toBe(recorded);
    expect(told.log).toContain('usage is not counted');
  });

  test('an unusable directory is logged, and usage still reaches the store', async () => {
    writeFileSync(directory, 'a file');
    const { outbox, told } = await open();
    outbox.record(record());
    faulty.next.push('refuses');
    expect(await outbox.flush()).toBe(false);
    expect(await outbox.flush()).toBe(true);
    expect(await counted()).toBe(1);
    expect(told.log).toContain('in memory only');
  });

  test('without disk and store the memory is bounded; usage beyond is dropped, counted and logged', async () => {
    writeFileSync(directory, 'a file');
    const { outbox, told } = await open({ ...BY_HAND, memoryRows: 10 });
    faulty.rest = 'refuses';
    for (let index = 0; index < 30; index += 1) outbox.record(record({ model: `m${index}` }));
    expect(told.dropped).toEqual({ memory: 20 });
    // A row that is there takes no more memory.
    outbox.record(record({ model: 'm0' }));
    faulty.rest = 'none';
    expect(await outbox.flush()).toBe(true);
    expect(await counted()).toBe(11);
    outbox.record(record({ model: 'again' }));
    expect(await outbox.flush()).toBe(true);
    expect(await counted()).toBe(12);
  });

  test('a deleted file is replaced, and its usage is sent', async () => {
    const { outbox, told } = await open({ ...BY_HAND, scanMs: 5 });
    faulty.rest = 'refuses';
    outbox.record(record());
    expect(await outbox.flush()).toBe(false);
    const [deleted = ''] = files(directory);
    for (const suffix of ['', '-wal']) rmSync(join(directory, deleted + suffix));
    const [next = ''] = await until(
      () => (files(directory).length > 0 ? files(directory) : undefined),
      'another file',
    );
    outbox.record(record());
    expect(await outbox.flush()).toBe(false);
    expect(stored(join(directory, next))).toHaveLength(1);
    expect(
      (await outbox.withPending({ kind: 'holder', id: 'holder-1' }, async () => 0)).pending,
    ).toHaveLength(2);
    faulty.rest = 'none';
    expect(await outbox.flush()).toBe(true);
    expect([await counted(), told.dropped]).toEqual([2, {}]);
  });

  test('an invalid record is dropped', async () => {
    const { outbox, told } = await open();
    Reflect.apply(outbox.record, outbox, [{}]);
    expect(told.dropped).toEqual({ refused: 1 });
    outbox.record(record());
    expect(await outbox.flush()).toBe(true);
  });

  describe('closing', () => {
    test('sends the backlog, and nothing remains', async () => {
      const { outbox, told } = await open();
      outbox.record(record());
      await outbox.close(30_000);
      expect(await counted()).toBe(1);
      expect(readdirSync(directory)).toEqual([]);
      outbox.record(record());
      expect(told.dropped).toEqual({ closed: 1 });
    });

    test('ends in time without a store, and the next process sends the rest', async () => {
      const { outbox, told } = await open();
      faulty.rest = 'refuses';
      outbox.record(record());
      const begun = performance.now();
      await outbox.close(300);
      expect(performance.now() - begun).toBeLessThan(20_000);
      expect(files(directory)).toHaveLength(1);
      expect(told.log).toContain('remains in the spool');
      faulty.rest = 'none';
      await open(QUICK);
      await until(async () => (await counted()) === 1, 'the request');
    });

    test('without time keeps what was recorded during a write', async () => {
      const { outbox } = await open({ ...BY_HAND, writeMs: 1 });
      faulty.rest = 'refuses';
      outbox.record(record());
      const first = outbox.flush();
      outbox.record(record());
      await outbox.close(0);
      await first;
      faulty.rest = 'none';
      await open(QUICK);
      await until(async () => (await counted()) === 2, 'both');
    });

    test('with a store that never answers ends in time', async () => {
      const silent = { ...faulty, addUsage: () => new Promise<'written'>(() => {}) };
      const { outbox } = await openOutbox(Object.assign(Object.create(faulty), silent), directory, BY_HAND);
      outboxes.push(outbox);
      outbox.record(record());
      const begun = performance.now();
      await outbox.close(100);
      expect(performance.now() - begun).toBeLessThan(20_000);
      expect(files(directory)).toHaveLength(1);
    });
  });

  test('batch ids are deleted after a week', async () => {
    let now = Date.parse('2030-01-01T00:00:00Z');
    const { outbox } = await open(QUICK, () => now);
    outbox.record(record());
    await until(async () => (await counted()) === 1, 'the request');
    const [old] = faulty.seen;
    now += 8 * 86_400_000;
    await until(() => store.usage.forgetBatches('2030-01-05', 1).then((count) => count === 0), 'forgetting');
    if (old === undefined) throw new Error('no batch');
    expect(await store.usage.addUsage({ ...old, rows: [] })).toBe('written');
  });
});
