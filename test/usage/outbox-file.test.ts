// The outbox file by itself: which rows share a batch, and that each of them is in one.
import { expect, test } from 'vitest';
import { OutboxFile } from '../../src/usage/outbox/outbox-file.ts';
import { outboxColumns, readRows } from '../../src/usage/outbox/outbox-row.ts';
import { rowsOf } from '../../src/usage/records/request-usage.ts';
import { tempDir } from '../helpers/wait.ts';
import { AT, record } from './samples.ts';

const columns = (holderId: string) => rowsOf(record({ holderId })).map(outboxColumns);
/** Not in their order. */
const holders = (count: number) =>
  Array.from({ length: count }, (_, index) => `holder-${10_000 + ((index * 7919) % count)}`);

async function opened() {
  const dir = await tempDir();
  const file = new OutboxFile(dir.path);
  file.open();
  return {
    file,
    add: (ids: readonly string[]) => expect(file.add(AT, ids.flatMap(columns))).toBeUndefined(),
    next: () => {
      const { batch, cells } = file.next() ?? {};
      return { id: batch?.id ?? '', holders: readRows(cells ?? []).map(({ holderId }) => holderId) };
    },
    [Symbol.asyncDispose]: async () => {
      file.close();
      await dir.remove();
    },
  };
}

test('many holders are sent in batches of neighbours, to which more of them are added, and each row is in one', async () => {
  await using outbox = await opened();
  const all = holders(3000);
  for (const some of [all.slice(0, 500), all.slice(500, 1500), all.slice(1500)]) outbox.add(some);
  const batches: string[][] = [];
  for (let next = outbox.next(); next.id !== ''; next = outbox.next()) {
    outbox.file.remove(next.id);
    batches.push(next.holders.toSorted());
  }
  expect(batches).toHaveLength(8);
  expect(batches.flat()).toEqual(all.toSorted());
  for (const { length } of batches) expect(length).toBeLessThan(600);
});

test('few rows are one batch, and so are those that are added until it is sent', async () => {
  await using outbox = await opened();
  outbox.add(holders(20));
  outbox.add(holders(20));
  const { id, holders: first } = outbox.next();
  expect(first).toHaveLength(20);
  // It may be sent again: nothing is added to it.
  outbox.add(['late']);
  expect(outbox.next()).toMatchObject({ id, holders: first });
  outbox.file.remove(id);
  expect(outbox.next()).toMatchObject({ holders: ['late'] });
});

test('a batch of a range has a bound', async () => {
  await using outbox = await opened();
  outbox.add(holders(20));
  for (let round = 0; round < 5; round += 1) outbox.add(holders(1000));
  expect(outbox.file.state.batches).toBeGreaterThan(2);
  const counts = new Map<string, number>();
  for (let next = outbox.next(); next.id !== ''; next = outbox.next()) {
    outbox.file.remove(next.id);
    for (const holder of next.holders) counts.set(holder, (counts.get(holder) ?? 0) + 1);
    expect(next.holders.length).toBeLessThanOrEqual(1000);
  }
  expect(counts.size).toBe(1000);
});

test('a holder with many rows has one batch, though ranges begin with it', async () => {
  await using outbox = await opened();
  outbox.add(Array.from({ length: 300 }, () => 'the only one'));
  outbox.add(['before', 'the only one', 'x']);
  expect(outbox.file.state.batches).toBe(2);
});
