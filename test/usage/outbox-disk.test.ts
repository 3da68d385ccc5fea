// The thread of the outbox file, started before its file is needed.
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { expect, test, vi } from 'vitest';
import { startApp } from '../../src/app.ts';
import { OutboxDisk } from '../../src/usage/outbox/outbox-disk.ts';
import { configText } from '../helpers/gateway.ts';
import { tempDir } from '../helpers/wait.ts';

test('a thread that was started early makes no file before it takes over others', async () => {
  await using directory = await tempDir();
  const path = directory.file('usage');
  const disk = new OutboxDisk(path);
  disk.start();
  await disk.call('setSync', true);
  expect(existsSync(path)).toBe(false);
  await disk.call('takeOver', 0, 1);
  expect(existsSync(path)).toBe(true);
  await disk.call('close');
});

test('a gateway whose store is refused leaves no folder of an outbox and no thread', async () => {
  await using directory = await tempDir();
  const store = directory.file('keys.db');
  await writeFile(`${store}.secret`, 'of a store that is gone');
  const configFile = directory.file('config.yaml');
  const spool = directory.file('usage');
  await writeFile(configFile, configText({ config: { store: `sqlite:${store}`, usage: { spool } } }));
  const abandoned = vi.spyOn(OutboxDisk.prototype, 'abandon');
  await expect(startApp({ configFile, env: {} })).rejects.toThrow(/a store existed here before/);
  expect(abandoned).toHaveBeenCalledOnce();
  expect(existsSync(spool)).toBe(false);
});
