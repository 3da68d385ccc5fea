// What a holder used while the store does not have it: every record exactly once, in memory, in files or on its way.
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { HolderUsage } from '../../src/usage/holder-usage.ts';
import { PhaseLock } from '../../src/usage/outbox/phase-lock.ts';
import type { UsageOutbox, UsageOutboxLimits } from '../../src/usage/usage-outbox.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { STORE_KINDS, type StoreSource } from '../store/stores.ts';
import { FAULTS, FaultyStore } from './faulty-store.ts';
import { AT, BY_HAND, open as openLedger, QUICK, record, segments } from './samples.ts';

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let store: Store;
  let faulty: FaultyStore;
  let dir: TempDir;
  let ledgers: UsageOutbox[];

  beforeAll(async () => {
    source = await start();
    store = await openStore(await source.fresh());
  }, timeout);
  afterAll(async () => {
    await store.close();
    await source[Symbol.asyncDispose]();
  });
  beforeEach(async () => {
    faulty = new FaultyStore(store.usage);
    dir = await tempDir();
    ledgers = [];
  });
  afterEach(async () => {
    await Promise.all(ledgers.map((ledger) => ledger.abandon()));
    await dir.remove();
  });

  let holders = 0;
  const newHolder = (): string => {
    holders += 1;
    return `holder-${holders}`;
  };

  async function open(limits: Partial<UsageOutboxLimits> = BY_HAND, directory = dir.path) {
    const { ledger } = await openLedger(faulty, directory, limits);
    ledgers.push(ledger);
    return { ledger, usage: new HolderUsage(ledger, faulty, () => AT) };
  }

  const seen = async (usage: HolderUsage, holderId: string) => {
    const { requests_per_day, tokens_per_month } = await usage.totalsOf(holderId);
    const { totals } = await usage.reportOf(holderId, 1);
    expect([totals.requests, totals.prompt + totals.completion]).toEqual([
      requests_per_day,
      tokens_per_month,
    ]);
    return requests_per_day;
  };

  test('rows whose memory was given up for their files are counted as well', async () => {
    // Four rows in memory at most, twenty segments of four.
    const { ledger, usage } = await open({ ...BY_HAND, memoryRows: 8, segmentRows: 4 });
    const [holderId, other] = [newHolder(), newHolder()];
    faulty.rest = 'refuses';
    for (let index = 0; index < 80; index += 1) {
      ledger.record(record({ holderId: index % 4 === 0 ? other : holderId, model: `m${index}` }));
      if (index % 4 === 3) await ledger.flush();
    }
    expect(segments(dir.path)).toHaveLength(20);
    expect([await seen(usage, holderId), await seen(usage, other), await seen(usage, newHolder())]).toEqual([
      60, 20, 0,
    ]);
    const { pending } = await ledger.withPending(holderId, async () => 0);
    expect(new Set(pending.map(({ model }) => model)).size).toBe(60);
    faulty.rest = 'none';
    expect(await ledger.flush()).toBe(true);
    expect([await seen(usage, holderId), await seen(usage, other)]).toEqual([60, 20]);
  });

  test.each(FAULTS)(
    'a batch that the store %s is counted once, before and after it is known',
    async (fault) => {
      const { ledger, usage } = await open();
      const holderId = newHolder();
      ledger.record(record({ holderId }));
      faulty.next.push(fault);
      await ledger.flush();
      expect(await seen(usage, holderId)).toBe(1);
      await Promise.all(faulty.late);
      expect(await seen(usage, holderId)).toBe(1);
      ledger.record(record({ holderId }));
      expect(await seen(usage, holderId)).toBe(2);
      await until(() => ledger.flush(), 'the store to take it');
      expect(await seen(usage, holderId)).toBe(2);
    },
  );

  test('a batch that is committed while it is asked for is counted once', async () => {
    const { ledger, usage } = await open();
    const holderId = newHolder();
    ledger.record(record({ holderId }));
    faulty.next.push('refuses');
    expect(await ledger.flush()).toBe(false);
    const [batch] = faulty.seen;
    if (batch === undefined) throw new Error('nothing was sent');
    let reads = 0;
    faulty.onRead = async () => {
      reads += 1;
      // Somebody who has a copy of the file, or the server that finishes what it was asked before.
      if (reads === 1) await store.usage.addUsage(batch);
    };
    expect((await usage.totalsOf(holderId)).requests_per_day).toBe(1);
    expect(reads).toBe(2);
  });

  test('what another process left, counted by the store or not, is counted once', async () => {
    const first = await open();
    const holderId = newHolder();
    for (const fault of ['commits and fails', 'refuses'] as const) {
      first.ledger.record(record({ holderId }));
      faulty.next.push(fault, 'refuses');
      await first.ledger.flush();
    }
    await first.ledger.abandon();
    const second = await open();
    expect(segments(dir.path)).toHaveLength(2);
    expect(await seen(second.usage, holderId)).toBe(2);
  });

  test('while a backlog drains, and more is recorded, no report is ever wrong', async () => {
    const { ledger, usage } = await open({ ...QUICK, segmentRows: 2, memoryRows: 20 });
    const holderId = newHolder();
    faulty.rest = 'refuses';
    for (let index = 0; index < 60; index += 1) {
      ledger.record(record({ holderId, model: `m${index}` }));
      if (index % 3 === 0) await ledger.flush();
    }
    expect(await seen(usage, holderId)).toBe(60);
    faulty.rest = 'none';
    let recorded = 60;
    await until(async () => {
      const before = recorded;
      const found = (await usage.totalsOf(holderId)).requests_per_day;
      expect(found).toBe(before);
      if (recorded < 90) {
        ledger.record(record({ holderId, model: `n${recorded}` }));
        recorded += 1;
      }
      return recorded === 90 && segments(dir.path).length === 0;
    }, 'an empty spool');
    expect(await seen(usage, holderId)).toBe(90);
  });

  test('what cannot be read in time is an error and no half of an answer, and holds up nobody', async () => {
    const { ledger, usage } = await open({ ...BY_HAND, readMs: 50 });
    const holderId = newHolder();
    ledger.record(record({ holderId }));
    faulty.onRead = () => new Promise(() => {});
    await expect(usage.totalsOf(holderId)).rejects.toMatchObject({ code: 'store_unavailable' });
    faulty.onRead = undefined;
    await until(() => ledger.flush(), 'the store to take it');
    await until(async () => (await usage.totalsOf(holderId)).requests_per_day === 1, 'the report');
  });

  test('with any faults, kills and takeovers a report has what a simple count has', async () => {
    const action = fc.oneof(
      {
        weight: 5,
        arbitrary: fc.record({ kind: fc.constant('record' as const), model: fc.nat(20), mine: fc.boolean() }),
      },
      {
        weight: 3,
        arbitrary: fc.record({ kind: fc.constant('flush' as const), fault: fc.constantFrom(...FAULTS) }),
      },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('kill' as const) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('look' as const) }) },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(action, { maxLength: 30 }), async (actions) => {
        await using own = await tempDir();
        const [holderId, other] = [newHolder(), newHolder()];
        const limits = { ...BY_HAND, memoryRows: 6 };
        let current = await open(limits, own.path);
        let [saved, fresh] = [0, 0];
        for (const each of actions) {
          if (each.kind === 'record') {
            // Beyond the bound of the memory a record is dropped, which is not what this is about.
            if (fresh >= 3) continue;
            current.ledger.record(
              record({ holderId: each.mine ? holderId : other, model: `m${each.model}` }),
            );
            if (each.mine) fresh += 1;
            else await current.ledger.flush();
            if (!each.mine) [saved, fresh] = [saved + fresh, 0];
          } else if (each.kind === 'flush') {
            faulty.next.splice(0, Infinity, each.fault);
            await current.ledger.flush();
            [saved, fresh] = [saved + fresh, 0];
          } else if (each.kind === 'kill') {
            await current.ledger.abandon();
            fresh = 0;
            current = await open(limits, own.path);
          }
          expect(await seen(current.usage, holderId)).toBe(saved + fresh);
        }
        await Promise.all(faulty.late);
        expect(await seen(current.usage, holderId)).toBe(saved + fresh);
        await current.ledger.abandon();
      }),
      { numRuns: 25 },
    );
  }, 120_000);
});

test('readers and one writer take turns, and never run together', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(fc.boolean(), fc.nat(3))), async (steps) => {
      const lock = new PhaseLock();
      const pause = async (turns: number) => {
        for (let turn = 0; turn < turns; turn += 1) await new Promise((done) => setImmediate(done));
      };
      let [readers, writers, done] = [0, 0, 0];
      let writing: Promise<unknown> = Promise.resolve();
      const reads: Promise<unknown>[] = [];
      for (const [isWrite, turns] of steps) {
        await pause(turns % 2);
        if (isWrite) {
          writing = writing.then(() =>
            lock.write(async () => {
              expect([readers, writers]).toEqual([0, 0]);
              writers += 1;
              await pause(turns);
              writers -= 1;
              done += 1;
            }),
          );
        } else {
          const read = lock.read(async () => {
            expect(writers).toBe(0);
            readers += 1;
            await pause(turns);
            readers -= 1;
            done += 1;
            if (turns === 3) throw new Error('one that fails lets others in too');
          });
          reads.push(read.catch(() => {}));
        }
      }
      await Promise.all([writing, ...reads]);
      expect(done).toBe(steps.length);
    }),
  );
});
