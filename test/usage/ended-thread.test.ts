// The thread of the outbox file ends at each step of its calls: each request still counts once.
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { MessageChannel } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import { OutboxDisk } from '../../src/usage/outbox/outbox-disk.ts';
import { serveOutbox } from '../../src/usage/outbox/outbox-thread.ts';
import { UsageOutbox } from '../../src/usage/usage-outbox.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir, until, within } from '../helpers/wait.ts';
import { row } from './losses.ts';
import { BY_HAND, record, sums, Told } from './samples.ts';

const STEPS = ['before it', 'before the reply', 'after the reply'];

let dir: TempDir;
let store: Store;

beforeEach(async () => {
  dir = await tempDir();
  store = await openNewStore(dir.file('keys.db'));
});

afterEach(async () => {
  await store.close();
  await dir.remove();
});

async function openEnding(moment: string) {
  const directory = dir.file('usage');
  const file = `${directory}.moment`;
  writeFileSync(file, moment);
  const thread = new URL('./children/ending-thread.ts', import.meta.url);
  const told = new Told();
  const outbox = await UsageOutbox.open({
    store: store.usage,
    directory,
    disk: new OutboxDisk(directory, thread),
    logger: told.logger,
    events: told,
    // A thread that ended before its first reply is replaced by the next scan.
    limits: { ...BY_HAND, scanMs: 30 },
  });
  return { outbox, told, directory, hasEnded: () => !existsSync(file) };
}

test.each([
  ...['add', 'next', 'remove', 'takeOver'].flatMap((name) => STEPS.map((step) => `${name} ${step}`)),
  'add before the commit',
])('a request counts once when the thread of the outbox ends in: %s', async (moment) => {
  const { outbox, told, directory, hasEnded } = await openEnding(moment);
  outbox.record(record());
  outbox.record(record({ model: 'other' }));
  await until(() => outbox.flush(), 'an empty outbox');
  await until(hasEnded, 'the end of the thread');
  outbox.record(record());
  await until(() => outbox.flush(), 'an empty outbox');
  await outbox.close(30_000);
  expect((await sums(store.usage))?.requests).toBe(3);
  expect(told.dropped).toEqual({});
  await until(() => readdirSync(directory).length === 0, 'an empty directory');
});

describe('what a thread has written is in reports, and counts, though', () => {
  row('the thread of the outbox ends', async () => {
    const { outbox, hasEnded } = await openEnding('rowsOf before it');
    const add = vi.spyOn(store.usage, 'addUsage').mockRejectedValue(new Error('away'));
    outbox.record(record());
    expect(await outbox.flush()).toBe(false);
    const filter = { kind: 'holder', id: 'holder-1' } as const;
    const pending = async () => (await outbox.withPending(filter, async () => 0)).pending.length;
    await expect(pending()).rejects.toThrow();
    expect(hasEnded()).toBe(true);
    expect(await pending()).toBe(1);
    add.mockRestore();
    await outbox.close(30_000);
    expect((await sums(store.usage))?.requests).toBe(1);
  });
});

test('a file whose size cannot be read does not end the thread', async () => {
  const { port1, port2 } = new MessageChannel();
  const added = new Float64Array(new SharedArrayBuffer(8));
  serveOutbox(port2, { directory: dir.file('usage'), added });
  const ask = async (number: number, name: string, ...args: unknown[]) => {
    const reply = new Promise((resolve) => port1.once('message', resolve));
    port1.postMessage({ number, name, args });
    return within(reply, `the reply of ${name}`);
  };
  await ask(1, 'takeOver', 0, 1e9);
  const { prepare } = DatabaseSync.prototype;
  vi.spyOn(DatabaseSync.prototype, 'prepare').mockImplementation(function (this: DatabaseSync, sql) {
    if (sql === 'pragma page_count') throw new Error('disk I/O error');
    return prepare.call(this, sql);
  });
  expect(await ask(2, 'add', 0, [['h', '{}', '[""]']])).toMatchObject({ number: 2, value: undefined });
  expect(added[0]).toBe(2);
  vi.restoreAllMocks();
  expect(await ask(3, 'close')).toMatchObject({ number: 3 });
});
