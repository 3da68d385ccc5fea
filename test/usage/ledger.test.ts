// From a record to the store: counted once whatever fails on the way, and in the spool as long as the store does not have it.
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { writeLine } from '../../src/usage/outbox/outbox-line.ts';
import { rowsOf } from '../../src/usage/records/request-usage.ts';
import type { UsageOutbox } from '../../src/usage/usage-outbox.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { STORE_KINDS, type StoreSource } from '../store/stores.ts';
import { FaultyStore } from './faulty-store.ts';
import { BY_HAND, open as openLedger, QUICK, record, segments, sums } from './samples.ts';

/** A name as a process gives it that was on another machine. */
const FOREIGN = 'aaaaaaaaaaaa.123.bbbbbbbbbbbb';

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let store: Store;
  let faulty: FaultyStore;
  let dir: TempDir;
  let spool: string;
  let ledgers: UsageOutbox[];

  beforeAll(async () => {
    source = await start();
  }, timeout);

  afterAll(() => source[Symbol.asyncDispose]());

  beforeEach(async () => {
    store = await openStore(await source.fresh());
    faulty = new FaultyStore(store.usage);
    dir = await tempDir();
    spool = dir.file('spool');
    ledgers = [];
  });

  afterEach(async () => {
    await Promise.all(ledgers.map((ledger) => ledger.abandon()));
    await store.close();
    await dir.remove();
  });

  async function open(limits = BY_HAND, clock?: () => number) {
    const opened = await openLedger(faulty, spool, limits, clock);
    ledgers.push(opened.ledger);
    return opened;
  }

  const counted = async () => (await sums(store.usage))?.requests;

  test('what is recorded is in the store soon, in few batches, and nowhere else then', async () => {
    const { ledger, told } = await open(QUICK);
    for (let index = 0; index < 1000; index += 1) ledger.record(record({ model: `m${index % 7}` }));
    await until(async () => (await counted()) === 1000, 'all requests');
    await until(() => segments(spool).length === 0, 'an empty spool');
    expect(await sums(store.usage)).toMatchObject({ prompt: 100_000, cost: 7_000_000, ttft_count: 1000 });
    expect(told.batches.written).toBeLessThan(10);
    expect(told.dropped).toEqual({});
  });

  test('the spool holds a record before the store does, and is for this user alone', async () => {
    const { ledger } = await open({ ...BY_HAND, writeMs: 5 });
    ledger.record(record());
    await until(() => segments(spool).some((name) => statSync(join(spool, name)).size > 0), 'a line');
    expect(await counted()).toBe(0);
    expect((statSync(spool).mode & 0o777).toString(8)).toBe('700');
    for (const name of segments(spool)) {
      expect((statSync(join(spool, name)).mode & 0o777).toString(8)).toBe('600');
      expect(readFileSync(join(spool, name), 'utf8')).toBe(writeLine(rowsOf(record())));
    }
  });

  test.each(['refuses', 'forgets to answer', 'commits and fails', 'is late'] as const)(
    'a store that %s is asked again, and counts once',
    async (fault) => {
      const { ledger, told } = await open();
      faulty.next.push(fault, fault);
      ledger.record(record());
      expect(await ledger.flush()).toBe(false);
      expect(segments(spool)).toHaveLength(1);
      expect(await ledger.flush()).toBe(false);
      await Promise.all(faulty.late);
      expect(await ledger.flush()).toBe(true);
      expect(await counted()).toBe(1);
      expect(segments(spool)).toEqual([]);
      expect(told.batches.failed).toBe(2);
      expect(told.log).toContain('the store does not take it');
    },
  );

  test('while the store is away the spool grows by few files, and drains when it is back', async () => {
    const { ledger, told } = await open(QUICK);
    faulty.rest = 'refuses';
    for (let index = 0; index < 40; index += 1) {
      ledger.record(record());
      await new Promise((done) => setTimeout(done, 5));
    }
    await until(() => told.batches.failed > 3, 'several attempts');
    expect(segments(spool).length).toBeLessThan(10);
    expect(await counted()).toBe(0);
    faulty.rest = 'none';
    await until(async () => (await counted()) === 40, 'all requests');
    await until(() => segments(spool).length === 0, 'an empty spool');
  });

  test('what a process left behind is sent by the next one, whether the store had it or not', async () => {
    const first = await open({ ...BY_HAND, writeMs: 5 });
    faulty.next.push('commits and fails');
    first.ledger.record(record());
    expect(await first.ledger.flush()).toBe(false);
    first.ledger.record(record());
    await until(() => segments(spool).length === 2, 'the second segment');
    await until(() => segments(spool).every((name) => statSync(join(spool, name)).size > 0), 'its line');
    await first.ledger.abandon();
    const second = await open(QUICK);
    await until(() => segments(spool).length === 0, 'an empty spool');
    expect(await counted()).toBe(2);
    expect(second.told.batches).toEqual({ written: 1, known: 1, failed: 0 });
    expect(readdirSync(spool).filter((name) => name.endsWith('.alive'))).toHaveLength(1);
  });

  test('of several that start at once, one sends what was left', async () => {
    const first = await open();
    faulty.rest = 'refuses';
    for (let index = 0; index < 20; index += 1) {
      first.ledger.record(record());
      await first.ledger.flush();
    }
    await first.ledger.abandon();
    faulty.rest = 'none';
    faulty.seen.length = 0;
    const others = await Promise.all(Array.from({ length: 5 }, () => open(QUICK)));
    await until(() => segments(spool).length === 0, 'an empty spool');
    expect(await counted()).toBe(20);
    expect(faulty.seen).toHaveLength(20);
    expect(others.reduce((sum, { told }) => sum + told.batches.known, 0)).toBe(0);
  });

  test('two on one directory leave each other alone', async () => {
    const [one, two] = [await open({ ...BY_HAND, scanMs: 5 }), await open({ ...BY_HAND, scanMs: 5 })];
    faulty.rest = 'refuses';
    for (const { ledger } of [one, two]) {
      ledger.record(record());
      await ledger.flush();
    }
    const before = segments(spool);
    await new Promise((done) => setTimeout(done, 100));
    expect(segments(spool)).toEqual(before);
    faulty.rest = 'none';
    expect([await one.ledger.flush(), await two.ledger.flush()]).toEqual([true, true]);
    expect(await counted()).toBe(2);
  });

  test('a file that another process takes over counts there, and what comes later counts here', async () => {
    const { ledger, told } = await open({ ...BY_HAND, writeMs: 5 });
    ledger.record(record());
    await until(() => segments(spool).some((name) => statSync(join(spool, name)).size > 0), 'a line');
    // As if this process had been stopped for long, and another one had found it silent.
    const [name = ''] = segments(spool);
    const id = name.split('.').at(-2);
    const taken = join(spool, `${FOREIGN}.${id}.jsonl`);
    writeFileSync(taken, readFileSync(join(spool, name)));
    rmSync(join(spool, name));
    const other = await open(QUICK);
    await until(async () => (await counted()) === 1, 'the first request');
    ledger.record(record());
    expect(await ledger.flush()).toBe(true);
    expect(other.told.batches).toMatchObject({ written: 1, known: 0 });
    expect(told.batches).toMatchObject({ written: 1, known: 1 });
    expect(await counted()).toBe(2);
  });

  test('an owner on another machine has gone when its beats are a minute old', async () => {
    mkdirSync(spool);
    writeFileSync(join(spool, `${FOREIGN}.0123456789abcdef.jsonl`), writeLine(rowsOf(record())));
    const alive = join(spool, `${FOREIGN}.alive`);
    writeFileSync(alive, '');
    await open(QUICK);
    await new Promise((done) => setTimeout(done, 100));
    expect(segments(spool)).toHaveLength(1);
    const past = Date.now() / 1000 - 120;
    utimesSync(alive, past, past);
    await until(async () => (await counted()) === 1, 'the request');
    await until(() => !existsSync(alive), 'the end of the beats');
  });

  test('a last line that was cut is left out; a wrong line is kept aside, and all others count', async () => {
    mkdirSync(spool);
    const line = writeLine(rowsOf(record()));
    writeFileSync(join(spool, `${FOREIGN}.0000000000000001.jsonl`), line + line.slice(0, -20));
    const wrong = `${line}what is this?\n${line}`;
    writeFileSync(join(spool, `${FOREIGN}.0000000000000002.jsonl`), wrong);
    writeFileSync(join(spool, `${FOREIGN}.0000000000000003.jsonl`), '');
    writeFileSync(join(spool, 'README'), 'not ours');
    const { told } = await open(QUICK);
    await until(() => segments(spool).length === 0, 'an empty spool');
    expect(await counted()).toBe(3);
    expect(readFileSync(join(spool, '0000000000000002.aside'), 'utf8')).toBe(wrong);
    expect(told.log).toContain('could not be read');
    expect(existsSync(join(spool, 'README'))).toBe(true);
  });

  test('what is so old that its batch may be forgotten is kept aside, loudly', async () => {
    mkdirSync(spool);
    const path = join(spool, `${FOREIGN}.0000000000000001.jsonl`);
    writeFileSync(path, writeLine(rowsOf(record())));
    const past = Date.now() / 1000 - 7 * 86_400;
    utimesSync(path, past, past);
    const { told } = await open(QUICK);
    await until(() => existsSync(join(spool, '0000000000000001.aside')), 'the file');
    expect(told.dropped).toEqual({ too_old: 1 });
    expect(told.log).toContain('usage is not counted');
    expect(await counted()).toBe(0);
  });

  test('a batch that the store never takes is kept aside and holds up nobody', async () => {
    const { ledger, told } = await open(QUICK);
    faulty.next.push('refuses');
    ledger.record(record());
    const bad = await until(() => faulty.seen[0]?.id, 'the first attempt');
    faulty.refused.add(bad);
    for (let index = 0; told.dropped['refused'] === undefined && index < 2000; index += 1) {
      ledger.record(record({ model: 'good' }));
      await new Promise((done) => setTimeout(done, 10));
    }
    expect(told.dropped).toEqual({ refused: 1 });
    // It is told first and moved then.
    await until(() => existsSync(join(spool, `${bad}.aside`)), 'the file kept aside');
    await until(() => segments(spool).length === 0, 'an empty spool');
  });

  test('a spool that is full drops its oldest, counted and told', async () => {
    const { ledger, told } = await open({ ...BY_HAND, scanMs: 10, spoolBytes: 1000 });
    faulty.rest = 'refuses';
    for (let index = 0; index < 10; index += 1) {
      ledger.record(record({ model: `m${index}` }));
      await ledger.flush();
    }
    await until(() => (told.dropped['spool_full'] ?? 0) > 0, 'a drop');
    await until(() => told.waiting.bytes <= 1000, 'a small spool');
    const files = segments(spool).reduce((sum, name) => sum + statSync(join(spool, name)).size, 0);
    expect(files).toBeLessThanOrEqual(1000);
    faulty.rest = 'none';
    expect(await ledger.flush()).toBe(true);
    expect(((await counted()) ?? 0) + (told.dropped['spool_full'] ?? 0)).toBe(10);
    expect(told.log).toContain('usage is not counted');
  });

  test('a directory that cannot be used is told, and the store counts all the same', async () => {
    writeFileSync(spool, 'a file');
    const { ledger, told } = await open();
    ledger.record(record());
    faulty.next.push('refuses');
    expect(await ledger.flush()).toBe(false);
    expect(await ledger.flush()).toBe(true);
    expect(await counted()).toBe(1);
    expect(told.log).toContain('in memory alone');
  });

  test('with neither disk nor store the memory has a bound; what is beyond is dropped, counted and told', async () => {
    writeFileSync(spool, 'a file');
    const { ledger, told } = await open({ ...BY_HAND, memoryRows: 10, segmentRows: 4 });
    faulty.rest = 'refuses';
    for (let index = 0; index < 30; index += 1) ledger.record(record({ model: `m${index}` }));
    expect(told.dropped).toEqual({ memory: 20 });
    // A row that is there takes no more memory.
    ledger.record(record({ model: 'm0' }));
    faulty.rest = 'none';
    expect(await ledger.flush()).toBe(true);
    expect(await counted()).toBe(11);
    ledger.record(record({ model: 'again' }));
    expect(await ledger.flush()).toBe(true);
    expect(await counted()).toBe(12);
  });

  test('a record that is none is dropped and does no harm', async () => {
    const { ledger, told } = await open();
    Reflect.apply(ledger.record, ledger, [{}]);
    expect(told.dropped).toEqual({ refused: 1 });
    ledger.record(record());
    expect(await ledger.flush()).toBe(true);
  });

  describe('closing', () => {
    test('sends what is left, and nothing remains', async () => {
      const { ledger, told } = await open();
      ledger.record(record());
      await ledger.close(30_000);
      expect(await counted()).toBe(1);
      expect(readdirSync(spool)).toEqual([]);
      ledger.record(record());
      expect(told.dropped).toEqual({ closed: 1 });
    });

    test('ends in time without a store, and the next process sends the rest', async () => {
      const { ledger, told } = await open();
      faulty.rest = 'refuses';
      ledger.record(record());
      const begun = performance.now();
      await ledger.close(300);
      expect(performance.now() - begun).toBeLessThan(20_000);
      expect(segments(spool)).toHaveLength(1);
      expect(told.log).toContain('left in the spool');
      faulty.rest = 'none';
      await open(QUICK);
      await until(async () => (await counted()) === 1, 'the request');
    });

    test('with a store that never answers ends in time too', async () => {
      const silent = { ...faulty, addUsage: () => new Promise<'written'>(() => {}) };
      const { ledger } = await openLedger(Object.assign(Object.create(faulty), silent), spool, BY_HAND);
      ledgers.push(ledger);
      ledger.record(record());
      const begun = performance.now();
      await ledger.close(100);
      expect(performance.now() - begun).toBeLessThan(20_000);
      expect(segments(spool)).toHaveLength(1);
    });
  });

  test('ids of batches are forgotten after a week', async () => {
    let now = Date.parse('2030-01-01T00:00:00Z');
    const { ledger } = await open(QUICK, () => now);
    ledger.record(record());
    await until(async () => (await counted()) === 1, 'the request');
    const [old] = faulty.seen;
    now += 8 * 86_400_000;
    await until(() => store.usage.forgetBatches('2030-01-05', 1).then((count) => count === 0), 'forgetting');
    if (old === undefined) throw new Error('no batch');
    expect(await store.usage.addUsage({ ...old, rows: [] })).toBe('written');
  });
});
