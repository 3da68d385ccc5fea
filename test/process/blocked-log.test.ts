// A log pipe that nobody reads: requests are answered as before, and the process exits on SIGTERM.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, openSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { LAUNCHER } from '../e2e/program.ts';
import { configText } from '../helpers/gateway.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { tempDir, until, within } from '../helpers/wait.ts';

/** More lines than a pipe holds (64 KiB), at about 250 bytes each. */
const REQUESTS = 500;

test('answers every request and exits with 0 while nobody reads its log', async () => {
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

test.skipIf(!existsSync('/dev/full'))(
  'answers every request and exits with 0 with its log on a full disk',
  async () => {
    await using directory = await tempDir();
    await writeFile(directory.file('config.yaml'), configText({}));
    const child = spawn(process.execPath, [LAUNCHER, 'serve', '--config', directory.file('config.yaml')], {
      env: { PATH: process.env['PATH'] ?? '', TEST_DIR: directory.path },
      stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe'],
    });
    try {
      let words = '';
      child.stderr?.on('data', (bytes) => {
        words += String(bytes);
      });
      const url = await until(() => /listening on (http:\S+)/.exec(words)?.[1], 'the gateway to listen');
      const admin = await until(() => /metrics and probes +(http:\/\/[^/]+)/.exec(words)?.[1]);
      using client = await RawClient.connect(url);
      expect((await client.ask({ method: 'GET', target: '/pricing' })).status).toBe(200);
      await until(async () => {
        const text = await fetch(`${admin}/metrics`).then((response) => response.text());
        return /^tollgate_log_lines_dropped_total [1-9]/m.test(text);
      }, 'a dropped line to be counted');
      const exit = once(child, 'exit');
      child.kill('SIGTERM');
      expect(await within(exit, 'the exit', 20_000)).toEqual([0, null]);
    } finally {
      child.kill('SIGKILL');
    }
  },
);
