// What a holder used while the store does not have it: every record exactly once, in memory, in files or on its way.
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { modelScope, type UsageScope } from '../../src/store/usage-record.ts';
import { HolderUsage } from '../../src/usage/holder-usage.ts';
import { OutboxDisk } from '../../src/usage/outbox/outbox-disk.ts';
import type { UsageOutboxLimits } from '../../src/usage/outbox/outbox-limits.ts';
import type { UsageOutbox } from '../../src/usage/usage-outbox.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { newKey } from '../store/samples.ts';
import { STORE_KINDS, type StoreSource } from '../store/stores.ts';
import { FAULTS, FaultyStore } from './faulty-store.ts';
import { AT, BY_HAND, open as openOutbox, QUICK, record } from './samples.ts';

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let store: Store;
  let faulty: FaultyStore;
  let dir: TempDir;
  let outboxes: UsageOutbox[];

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
    outboxes = [];
  });
  afterEach(async () => {
    await Promise.all(outboxes.map((outbox) => outbox.abandon()));
    await dir.remove();
  });

  let holders = 0;
  const newHolder = (): string => {
    holders += 1;
    return `holder-${holders}`;
  };

  async function open(limits: Partial<UsageOutboxLimits> = BY_HAND, directory = dir.path) {
    const { outbox, told } = await openOutbox(faulty, directory, limits);
    outboxes.push(outbox);
    return { outbox, told, usage: new HolderUsage(outbox, faulty, () => AT) };
  }

  const seen = async (usage: HolderUsage, holderId: string) => {
    const { requests_per_day, tokens_per_month } = await usage.totalsOf({ kind: 'holder', id: holderId });
    const { totals } = await usage.reportOf(holderId, 1);
    expect([totals.requests, totals.prompt + totals.completion]).toEqual([
      requests_per_day,
      tokens_per_month,
    ]);
    return requests_per_day;
  };

  test('rows of many batches, in the file and in memory, are counted', async () => {
    const { outbox, told, usage } = await open();
    const [holderId, other] = [newHolder(), newHolder()];
    faulty.rest = 'refuses';
    for (let index = 0; index < 79; index += 1) {
      outbox.record(record({ holderId: index % 4 === 0 ? other : holderId, model: `m${index}` }));
      if (index % 4 === 3) await outbox.flush();
    }
    expect(told.waiting.segments).toBeGreaterThan(3);
    expect([await seen(usage, holderId), await seen(usage, other), await seen(usage, newHolder())]).toEqual([
      59, 20, 0,
    ]);
    const { pending } = await outbox.withPending({ kind: 'holder', id: holderId }, async () => 0);
    expect(new Set(pending.map(({ model }) => model)).size).toBe(59);
    faulty.rest = 'none';
    expect(await outbox.flush()).toBe(true);
    expect([await seen(usage, holderId), await seen(usage, other)]).toEqual([59, 20]);
  });

  test('totals of a team, a lineage of keys and a model include what is pending, and no more', async () => {
    const { outbox, usage } = await open();
    const [first, second] = [newKey(), newKey()];
    const added = await store.addKey(first, { kind: 'new', id: newHolder(), tier: 'Lite' }, null);
    if (added.kind !== 'added') throw new Error(added.kind);
    const { holderId } = added.record;
    await store.rotateKey(added.record, second);
    const teamId = `team of ${holderId}`;
    outbox.record(record({ holderId, prefix: first.prefix, teamId }));
    expect(await outbox.flush()).toBe(true);
    faulty.rest = 'refuses';
    // In the file.
    outbox.record(record({ holderId, prefix: second.prefix, teamId, model: 'a "model",[1]' }));
    await outbox.flush();
    // In memory: another key and another team.
    outbox.record(record({ holderId, prefix: 'ffff0000', teamId: 'elsewhere' }));
    outbox.record(record({ holderId: newHolder(), prefix: 'eeee0000', teamId }));
    const requests = async (scope: UsageScope) => (await usage.totalsOf(scope)).requests_per_day;
    const seen = async () => [
      await requests({ kind: 'holder', id: holderId }),
      await requests({ kind: 'team', id: teamId }),
      await requests({ kind: 'key', lineage: first.prefix }),
      await requests({ kind: 'model', holderId, model: 'a "model",[1]' }),
      await requests({ kind: 'model', holderId, model: 'gpt' }),
      await requests(modelScope(holderId, '*', ['gpt', '*'])),
    ];
    expect(await seen()).toEqual([3, 3, 2, 1, 2, 1]);
    faulty.rest = 'none';
    await until(() => outbox.flush(), 'the store to take it');
    expect(await seen()).toEqual([3, 3, 2, 1, 2, 1]);
    // Not the successor's own: the scope is the first key of the lineage.
    expect(await requests({ kind: 'key', lineage: second.prefix })).toBe(1);
  });

  test('totals of many holders are read together, each with what is pending of it', async () => {
    const { outbox, usage } = await open();
    const [first, second, stranger] = [newHolder(), newHolder(), newHolder()];
    for (const holderId of [first, second, second]) outbox.record(record({ holderId }));
    expect(await outbox.flush()).toBe(true);
    // Committed without an answer, then in the file alone, then in memory.
    faulty.next.push('commits and fails', 'refuses');
    outbox.record(record({ holderId: first }));
    await outbox.flush();
    outbox.record(record({ holderId: first, model: 'other' }));
    await outbox.flush();
    outbox.record(record({ holderId: second }));
    const reads = vi.spyOn(faulty, 'usageOfHolders');
    const together = await Promise.all(
      [first, second, stranger, first].map((id) => usage.totalsTogether(id)),
    );
    expect(together.map(({ requests_per_day }) => requests_per_day)).toEqual([3, 3, 0, 3]);
    expect(reads).toHaveBeenCalledTimes(1);
    const each = [first, second, stranger, first].map((id) => usage.totalsOf({ kind: 'holder', id }));
    expect(together).toEqual(await Promise.all(each));
    faulty.onRead = () => Promise.reject(new Error('away'));
    await expect(usage.totalsTogether(first)).rejects.toThrow('away');
  });

  test.each(FAULTS)(
    'a batch that the store %s is counted once, before and after it is known',
    async (fault) => {
      const { outbox, usage } = await open();
      const holderId = newHolder();
      outbox.record(record({ holderId }));
      faulty.next.push(fault);
      await outbox.flush();
      expect(await seen(usage, holderId)).toBe(1);
      await Promise.all(faulty.late);
      expect(await seen(usage, holderId)).toBe(1);
      outbox.record(record({ holderId }));
      expect(await seen(usage, holderId)).toBe(2);
      await until(() => outbox.flush(), 'the store to take it');
      expect(await seen(usage, holderId)).toBe(2);
    },
  );

  test('a batch that is committed during the read is counted once', async () => {
    const { outbox, usage } = await open();
    const holderId = newHolder();
    outbox.record(record({ holderId }));
    faulty.next.push('refuses');
    expect(await outbox.flush()).toBe(false);
    const [batch] = faulty.seen;
    if (batch === undefined) throw new Error('nothing was sent');
    let reads = 0;
    faulty.onRead = async () => {
      reads += 1;
      // Somebody who has a copy of the file, or the server that finishes what it was asked before.
      if (reads === 1) await store.usage.addUsage(batch);
    };
    expect((await usage.totalsOf({ kind: 'holder', id: holderId })).requests_per_day).toBe(1);
    expect(reads).toBe(2);
  });

  test('usage that another process left is counted once, whether the store has it or not', async () => {
    const first = await open();
    const holderId = newHolder();
    for (const fault of ['commits and fails', 'refuses'] as const) {
      first.outbox.record(record({ holderId }));
      faulty.next.push(fault, 'refuses');
      await first.outbox.flush();
    }
    await first.outbox.abandon();
    const second = await open();
    expect(second.told.waiting.segments).toBe(2);
    expect(await seen(second.usage, holderId)).toBe(2);
  });

  test('every report is right while a backlog drains and more is recorded', async () => {
    const { outbox, told, usage } = await open(QUICK);
    const holderId = newHolder();
    faulty.rest = 'refuses';
    for (let index = 0; index < 60; index += 1) {
      outbox.record(record({ holderId, model: `m${index}` }));
      if (index % 3 === 0) await outbox.flush();
    }
    expect(await seen(usage, holderId)).toBe(60);
    faulty.rest = 'none';
    let recorded = 60;
    await until(async () => {
      const before = recorded;
      const found = (await usage.totalsOf({ kind: 'holder', id: holderId })).requests_per_day;
      expect(found).toBe(before);
      if (recorded < 90) {
        outbox.record(record({ holderId, model: `n${recorded}` }));
        recorded += 1;
      }
      return recorded === 90 && told.waiting.segments === 0;
    }, 'an empty outbox');
    expect(await seen(usage, holderId)).toBe(90);
  });

  test('a report that batches disturbed makes the next batches wait', async () => {
    const { outbox, told, usage } = await open();
    const holderId = newHolder();
    faulty.rest = 'refuses';
    for (let index = 0; index < 150; index += 1) {
      outbox.record(record({ holderId, model: `m${index}` }));
      await outbox.flush();
    }
    expect(told.waiting.segments).toBeGreaterThan(12);
    faulty.rest = 'none';
    const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));
    const adding = vi.spyOn(faulty, 'addUsage').mockImplementation(async (batch) => {
      await pause(20);
      return store.usage.addUsage(batch);
    });
    faulty.onRead = () => pause(25);
    const draining = outbox.flush();
    await until(() => adding.mock.calls.length > 0, 'the first batch');
    for (let report = 0; report < 3; report += 1)
      expect((await usage.totalsOf({ kind: 'holder', id: holderId })).requests_per_day).toBe(150);
    expect(await draining).toBe(true);
  });

  test('usage that is being written to the file is counted once', async () => {
    const { outbox, usage } = await open({ ...BY_HAND, writeMs: 5 });
    const holderId = newHolder();
    const { call } = OutboxDisk.prototype;
    let go = () => {};
    const writing = new Promise<void>((resolve) => (go = resolve));
    const calls = vi.spyOn(OutboxDisk.prototype, 'call').mockImplementation(async function (
      this: OutboxDisk,
      ...args
    ) {
      if (args[0] === 'add') await writing;
      return call.apply(this, args);
    });
    outbox.record(record({ holderId }));
    await until(() => calls.mock.calls.some(([name]) => name === 'add'), 'the write');
    expect(await seen(usage, holderId)).toBe(1);
    const during = seen(usage, holderId);
    go();
    expect(await during).toBe(1);
    await until(
      async () =>
        (await outbox.withPending({ kind: 'holder', id: holderId }, async () => 0)).pending.length === 1,
      'the row',
    );
    calls.mockRestore();
  });

  test('a report that cannot be read in time is an error, and delays no other', async () => {
    const { outbox, usage } = await open({ ...BY_HAND, readMs: 50 });
    const holderId = newHolder();
    outbox.record(record({ holderId }));
    faulty.onRead = () => new Promise(() => {});
    await expect(usage.totalsOf({ kind: 'holder', id: holderId })).rejects.toMatchObject({
      code: 'store_unavailable',
    });
    faulty.onRead = undefined;
    await until(() => outbox.flush(), 'the store to take it');
    await until(
      async () => (await usage.totalsOf({ kind: 'holder', id: holderId })).requests_per_day === 1,
      'the report',
    );
  });

  test('a report equals a simple count after any faults, kills and take-overs', async () => {
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
        let current = await open(BY_HAND, own.path);
        let [saved, fresh] = [0, 0];
        for (const each of actions) {
          if (each.kind === 'record') {
            // Beyond the bound of the memory a record is dropped, which is not what this is about.
            if (fresh >= 3) continue;
            current.outbox.record(
              record({ holderId: each.mine ? holderId : other, model: `m${each.model}` }),
            );
            if (each.mine) fresh += 1;
            else await current.outbox.flush();
            if (!each.mine) [saved, fresh] = [saved + fresh, 0];
          } else if (each.kind === 'flush') {
            faulty.next.splice(0, Infinity, each.fault);
            await current.outbox.flush();
            [saved, fresh] = [saved + fresh, 0];
          } else if (each.kind === 'kill') {
            await current.outbox.abandon();
            fresh = 0;
            current = await open(BY_HAND, own.path);
          }
          expect(await seen(current.usage, holderId)).toBe(saved + fresh);
        }
        await Promise.all(faulty.late);
        expect(await seen(current.usage, holderId)).toBe(saved + fresh);
        await current.outbox.abandon();
      }),
      { numRuns: Number(process.env['FUZZ_RUNS'] ?? 4) },
    );
  }, 120_000);
});
