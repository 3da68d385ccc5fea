// The table of losses in docs/usage.md: one test for each of its rows, named by the row, and that no row is without one. What needs
// whole gateways is in losses-process.test.ts.
import {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { open as openFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { writeLine } from '../../src/usage/outbox/outbox-line.ts';
import { rowsOf } from '../../src/usage/records/request-usage.ts';
import type { UsageOutbox, UsageOutboxLimits } from '../../src/usage/usage-outbox.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { startChild } from '../store/processes.ts';
import { FaultyStore } from './faulty-store.ts';
import { losses, row, tested } from './losses.ts';
import { BY_HAND, open as openLedger, QUICK, record, segments, sums } from './samples.ts';

const FOREIGN = 'aaaaaaaaaaaa.123.bbbbbbbbbbbb';
const DAY = 86_400_000;

let dir: TempDir;
let store: Store;
let faulty: FaultyStore;
let spool: string;
let ledgers: UsageOutbox[];

beforeEach(async () => {
  dir = await tempDir();
  spool = dir.file('spool');
  store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
  faulty = new FaultyStore(store.usage);
  ledgers = [];
});

afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(ledgers.map((ledger) => ledger.abandon()));
  await store.close();
  await dir.remove();
});

async function open(limits: Partial<UsageOutboxLimits> = BY_HAND, clock?: () => number) {
  const opened = await openLedger(faulty, spool, limits, clock);
  ledgers.push(opened.ledger);
  return opened;
}

/** Bytes of the spool's files that have a line of this holder. */
function written(holderId: string): number {
  const sizes = segments(spool).map((name) => {
    try {
      const text = readFileSync(join(spool, name), 'utf8');
      return text.includes(`"${holderId}"`) && text.endsWith('\n') ? text.length : 0;
    } catch {
      // Sent and removed meanwhile.
      return 0;
    }
  });
  return sizes.reduce((sum, size) => sum + size, 0);
}

const counted = async () => (await sums(store.usage))?.requests ?? 0;
const isSent = () => until(() => segments(spool).length === 0, 'an empty spool');
const write = (ledger: UsageOutbox, count: number, changed: Parameters<typeof record>[0] = {}) => {
  for (let index = 0; index < count; index += 1) ledger.record(record({ model: `m${index}`, ...changed }));
};

test('every row of docs/usage.md has a test, and every test a row', () => {
  expect(losses().length).toBeGreaterThan(15);
  expect(tested().toSorted()).toEqual(losses().toSorted());
});

describe('what happens', () => {
  row('a worker is killed', async () => {
    // To the spool a worker is a process, and its siblings are others on the same directory.
    await using child = startChild(fileURLToPath(new URL('./children/record.ts', import.meta.url)), [
      dir.file('keys.db'),
      spool,
      'killed',
    ]);
    const { ledger } = await open(QUICK);
    await until(() => written('killed') > 0, 'a line of the other');
    const taken = child.lines.length;
    child.process.kill('SIGKILL');
    await child.ended;
    write(ledger, 3, { holderId: 'sibling' });
    await until(() => readdirSync(spool).filter((name) => name.endsWith('.alive')).length === 1, 'one owner');
    await isSent();
    const of = async (holderId: string) =>
      (await store.usage.usageReport({ holderId, from: '2000', by: [], limit: 1 }))[0]?.sums.requests ?? 0;
    expect(await of('sibling')).toBe(3);
    // At least what a line held by then; at most all of it.
    expect(await of('killed')).toBeGreaterThan(0);
    expect(await of('killed')).toBeLessThanOrEqual(child.lines.length + 1);
    expect(taken).toBeGreaterThan(0);
  });

  row('the power fails', async () => {
    const handle = await openFile(dir.file('any'), 'w');
    const synced = vi.spyOn(Object.getPrototypeOf(handle), 'datasync');
    await handle.close();
    const { ledger } = await open();
    write(ledger, 1);
    expect(await ledger.flush()).toBe(true);
    // The store has it a second later, so the disk is not asked to hurry.
    expect(synced).not.toHaveBeenCalled();
    faulty.rest = 'refuses';
    // One that was closed before anybody knew, and those after it.
    for (let file = 1; file <= 3; file += 1) {
      synced.mockClear();
      write(ledger, 1);
      expect(await ledger.flush()).toBe(false);
      expect(synced).toHaveBeenCalled();
    }
  });

  row('the store is away, slow, or refuses', async () => {
    const { ledger, told } = await open({ ...QUICK, spoolBytes: 2000 });
    faulty.rest = 'refuses';
    write(ledger, 3);
    await until(() => told.batches.failed > 2, 'several attempts');
    faulty.rest = 'forgets to answer';
    write(ledger, 3);
    await until(() => told.batches.failed > 5, 'several attempts');
    faulty.rest = 'none';
    await until(async () => (await counted()) === 6, 'all of it');
    expect(told.dropped).toEqual({});
    // Beyond the bound the oldest files go, counted and logged.
    faulty.rest = 'refuses';
    await until(() => {
      write(ledger, 3);
      return (told.dropped['spool_full'] ?? 0) > 0;
    }, 'the bound');
    expect(told.log).toContain('usage is not counted');
  });

  row('nobody knows whether a batch was committed', async () => {
    let now = Date.parse('2030-01-01T00:00:00Z');
    const { ledger } = await open(BY_HAND, () => now);
    for (const fault of ['commits and fails', 'is late', 'forgets to answer'] as const) {
      write(ledger, 1);
      faulty.next.push(fault);
      await ledger.flush();
      await Promise.all(faulty.late);
    }
    now += 6 * DAY;
    expect(await ledger.flush()).toBe(true);
    expect(await counted()).toBe(3);
  });

  row('the store never takes one batch', async () => {
    const { ledger, told } = await open(QUICK);
    faulty.next.push('refuses');
    write(ledger, 1);
    const bad = await until(() => faulty.seen[0]?.id, 'the first attempt');
    faulty.refused.add(bad);
    let others = 0;
    await until(() => {
      ledger.record(record({ model: 'good' }));
      others += 1;
      return existsSync(join(spool, `${bad}.aside`));
    }, 'the file kept aside');
    expect(told.dropped).toEqual({ refused: 1 });
    await until(async () => (await counted()) === others, 'all others');
    // As the page says: renamed by hand, it counts after all.
    faulty.refused.clear();
    const text = readFileSync(join(spool, `${bad}.aside`));
    writeFileSync(join(spool, `000000000000.1.000000000000.${bad}.jsonl`), text);
    await until(async () => (await counted()) === others + 1, 'that one too');
  });

  row('the disk is full, or the directory cannot be written', async () => {
    writeFileSync(spool, 'a file where the directory belongs');
    const { ledger, told } = await open({ ...BY_HAND, memoryRows: 10 });
    write(ledger, 8);
    expect(await ledger.flush()).toBe(true);
    expect([await counted(), told.dropped]).toEqual([8, {}]);
    expect(told.log).toContain('in memory alone');
    faulty.rest = 'refuses';
    write(ledger, 15);
    // One that needs no other line has room.
    ledger.record(record({ model: 'm0' }));
    expect(told.dropped).toEqual({ memory: 5 });
    faulty.rest = 'none';
    expect(await ledger.flush()).toBe(true);
    expect(await counted()).toBe(8 + 11);
  });

  row('the directory of the spool is lost', async () => {
    const first = await open();
    write(first.ledger, 2);
    expect(await first.ledger.flush()).toBe(true);
    faulty.rest = 'refuses';
    write(first.ledger, 3);
    await first.ledger.flush();
    await first.ledger.abandon();
    rmSync(spool, { recursive: true });
    faulty.rest = 'none';
    const second = await open();
    write(second.ledger, 1);
    expect(await second.ledger.flush()).toBe(true);
    expect(await counted()).toBe(3);
  });

  row('a file of the spool is damaged', async () => {
    const { ledger } = await open();
    write(ledger, 1);
    expect(await ledger.flush()).toBe(true);
    const line = writeLine(rowsOf(record()));
    const id = '0000000000000001';
    appendFileSync(join(spool, `${FOREIGN}.${id}.jsonl`), `${line}damaged\n${line}${line.slice(0, 9)}`);
    const { told } = await open(QUICK);
    await until(() => existsSync(join(spool, `${id}.aside`)), 'the file kept aside');
    expect(await counted()).toBe(3);
    expect(told.log).toContain('could not be read');
  });

  row('a file is found after more than 6 days', async () => {
    const { ledger } = await open();
    write(ledger, 1);
    expect(await ledger.flush()).toBe(true);
    for (const [id, days] of [
      ['0000000000000001', 5.9],
      ['0000000000000002', 6.1],
    ] as const) {
      const path = join(spool, `${FOREIGN}.${id}.jsonl`);
      writeFileSync(path, writeLine(rowsOf(record())));
      const past = (Date.now() - days * DAY) / 1000;
      utimesSync(path, past, past);
    }
    const { told } = await open(QUICK);
    await isSent();
    expect([await counted(), told.dropped]).toEqual([2, { too_old: 1 }]);
    expect(existsSync(join(spool, '0000000000000002.aside'))).toBe(true);
  });

  row('the process was stopped for over a minute', async () => {
    const { ledger } = await open({ ...BY_HAND, writeMs: 5 });
    write(ledger, 1);
    await until(() => segments(spool).some((name) => readFileSync(join(spool, name)).length > 0), 'a line');
    // Another process took it for gone, and renamed its file, while it was stopped.
    const [name = ''] = segments(spool);
    const text = readFileSync(join(spool, name));
    rmSync(join(spool, name));
    writeFileSync(join(spool, `${FOREIGN}.${name.split('.').at(-2)}.jsonl`), text);
    await open(QUICK);
    await until(async () => (await counted()) === 1, 'the first one');
    // Awake again: what it still has of the segment counts once, and what comes later is its own.
    write(ledger, 2);
    expect(await ledger.flush()).toBe(true);
    expect(await counted()).toBe(3);
  });

  row('several processes share the spool', async () => {
    const three = [await open(QUICK), await open(QUICK), await open(QUICK)];
    faulty.rest = 'refuses';
    for (const { ledger } of three) write(ledger, 10);
    await until(() => three.every(({ told }) => told.batches.failed > 0), 'attempts of all');
    await three[0]?.ledger.abandon();
    faulty.rest = 'none';
    await isSent();
    expect(await counted()).toBe(30);
  });

  row('the clock jumps', async () => {
    let now = Date.parse('2030-01-02T03:59:59Z');
    const { ledger } = await open(BY_HAND, () => now);
    for (const jump of [0, 2 * 3_600_000, -5 * 3_600_000, 400 * DAY, -400 * DAY]) {
      now += jump;
      ledger.record(record({ at: now }));
      faulty.next.push('commits and fails');
      await ledger.flush();
      await until(() => ledger.flush(), 'the store to take it');
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

  row('an answer of more than a billion tokens', async () => {
    const { ledger } = await open();
    const usage = { prompt: 5e9, completion: Number.MAX_VALUE, cached: 2e9, reasoning: 0 };
    ledger.record(record({ usage }));
    expect(await ledger.flush()).toBe(true);
    expect(await sums(store.usage)).toMatchObject({ prompt: 1e9, completion: 1e9, cached: 1e9 });
  });

  row('a sum reaches 2^53 - 1', async () => {
    const { ledger } = await open();
    for (let index = 0; index < 3; index += 1) {
      ledger.record(record({ costNanos: Number.MAX_SAFE_INTEGER - 10 }));
      expect(await ledger.flush()).toBe(true);
    }
    expect(await sums(store.usage)).toMatchObject({ requests: 3, cost: Number.MAX_SAFE_INTEGER });
  });

  row('a record cannot be read', async () => {
    const { ledger, told } = await open();
    for (const wrong of [undefined, {}, { ...record(), model: undefined }])
      Reflect.apply(ledger.record, ledger, [wrong]);
    write(ledger, 1);
    expect(await ledger.flush()).toBe(true);
    expect([await counted(), told.dropped]).toEqual([1, { refused: 3 }]);
    expect(told.log).toContain('usage is not counted');
  });

  row('a record comes after the end', async () => {
    const { ledger, told } = await open();
    write(ledger, 2);
    await ledger.close(30_000);
    write(ledger, 1);
    expect([await counted(), told.dropped]).toEqual([2, { closed: 1 }]);
  });
});
