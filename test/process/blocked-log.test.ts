// A pipe of the log that nobody reads: requests are answered as before, and the process ends when it is told to.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { LAUNCHER } from '../e2e/program.ts';
import { configText } from '../helpers/gateway.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { tempDir, until, within } from '../helpers/wait.ts';

/** Far more lines than a pipe holds (64 KiB), at about 250 bytes each. */
const REQUESTS = 1_500;

test('answers every request and ends with 0 though nobody reads its log', async () => {
  await using directory = await tempDir();
  await writeFile(directory.file('config.yaml'), configText({}));
  const child = spawn(process.execPath, [LAUNCHER, 'serve', '--config', directory.file('config.yaml')], {
    env: { PATH: process.env['PATH'] ?? '', TEST_DIR: directory.path },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  try {
    let words = '';
    child.stderr.on('data', (bytes) => {
      words += String(bytes);
    });
    // Its stdout is never read.
    const url = await until(() => /listening on (http:\S+)/.exec(words)?.[1], 'the gateway to listen');
    for (let sent = 0; sent < REQUESTS; ) {
      using client = await RawClient.connect(url);
      for (let each = 0; each < 500; each += 1, sent += 1) {
        const response = await client.ask({ method: 'GET', target: '/pricing' }, 10_000);
        expect(response.status).toBe(200);
      }
    }
    // The pipe is full, or this would be no test.
    child.stdout.resume();
    let read = 0;
    child.stdout.on('data', (bytes: Buffer) => {
      read += bytes.length;
    });
    await until(() => read > 0);
    child.stdout.pause();
    const exit = once(child, 'exit');
    child.kill('SIGTERM');
    expect(await within(exit, 'the exit', 20_000)).toEqual([0, null]);
  } finally {
    child.kill('SIGKILL');
  }
});
