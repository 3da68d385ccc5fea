// SIGTERM under many live streams, in a process of its own: each is complete or ends with an explicit error, none is cut
// silently, and the store has the usage that the upstream counted. 150 streams here; TOLLGATE_LONG=1 makes it 1,000.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import { LAUNCHER } from '../e2e/program.ts';
import { configText, type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  SSE_HEADERS,
  type Step,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { tempDir, until, within } from '../helpers/wait.ts';

const STREAMS = process.env['TOLLGATE_LONG'] === '1' ? 1_000 : 150;

async function exitOf(child: ChildProcess): Promise<[number | null, NodeJS.Signals | null]> {
  if (child.exitCode === null && child.signalCode === null) await within(once(child, 'exit'), 'the exit');
  return [child.exitCode, child.signalCode];
}

/** What `tollgate usage` says after the process has ended. */
async function usageOf(gateway: Gateway): Promise<Record<string, number>> {
  const { stdout } = await runCommand(['usage', '--json', '--config', gateway.configFile], {
    TEST_DIR: gateway.directory.path,
  });
  const report: { totals: Record<string, number> } = JSON.parse(stdout);
  return report.totals;
}

/** A stream by the number in its request: even ones end when they are told to, odd ones go on for ever. */
function numberedStreams(): { step: Step; release: () => void } {
  let isReleased = false;
  const step: Step = async (c) => {
    const { user } = c.request.json() as { user: string };
    const tokens = { prompt: 10, completion: 7 };
    await c.head(200, SSE_HEADERS);
    await c.chunk(frame(contentChunk('begun', { usage: null })));
    await c.waitFor(() => isReleased && Number(user) % 2 === 0);
    await c.chunk(`${frame(finishChunk('stop', { usage: null }))}${frame(usageChunk(tokens))}${DONE}`);
    await c.lastChunk();
  };
  return {
    step,
    release: () => {
      isReleased = true;
    },
  };
}

async function openStreams(gateway: Gateway): Promise<RawClient[]> {
  const clients = await Promise.all(
    Array.from({ length: STREAMS }, (_, index) =>
      gateway.open(chatRequest({ stream: true, user: String(index) })),
    ),
  );
  await Promise.all(clients.map((client) => client.readUntil('begun')));
  return clients;
}

describe(`SIGTERM with ${STREAMS} live streams`, () => {
  test('half of which end in time and half never', async () => {
    await using upstream = await HostileUpstream.start();
    const { step, release } = numberedStreams();
    upstream.always(step);
    await using gateway = await startGateway({
      process: true,
      upstreams: { up: upstream.baseUrl },
      config: { drain: { timeout: '3s' }, upstreams: { up: { max_concurrency: 2_000 } } },
    });
    const clients = await openStreams(gateway);
    gateway.child.kill('SIGTERM');
    await gateway.logLine((line) => line['msg'] === 'draining');
    release();
    const responses = await Promise.all(clients.map((client) => client.response()));
    const ends = responses.map((response) => {
      const text = response.text();
      if (response.complete && text.includes('[DONE]') && text.includes('"stop"')) return 'whole';
      const isTold = text.includes('"code":"draining"') && !text.includes('[DONE]');
      return !response.complete && isTold ? 'told' : `cut: ${text}`;
    });
    expect(ends).toEqual(ends.map((_, index) => (index % 2 === 0 ? 'whole' : 'told')));
    expect(await exitOf(gateway.child)).toEqual([0, null]);
    expect(await gateway.logLine((line) => line['msg'] === 'drained')).toMatchObject({ cut: STREAMS / 2 });
    const usage = await usageOf(gateway);
    expect(upstream.requests).toHaveLength(STREAMS);
    expect(usage['requests']).toBe(STREAMS);
    // What the upstream said for the whole ones; the others are marked as estimates.
    expect(usage['estimated']).toBe(STREAMS / 2);
    expect(usage['completion_tokens']).toBeGreaterThanOrEqual((STREAMS / 2) * 7);
    for (const client of clients) client.destroy();
  });

  test('and a second SIGTERM end all streams at once, with an error frame', async () => {
    await using upstream = await HostileUpstream.start();
    upstream.always(numberedStreams().step);
    await using gateway = await startGateway({
      process: true,
      upstreams: { up: upstream.baseUrl },
      config: { drain: { delay: '10m', timeout: '10m' }, upstreams: { up: { max_concurrency: 2_000 } } },
    });
    const clients = await openStreams(gateway);
    gateway.child.kill('SIGTERM');
    await gateway.logLine((line) => line['msg'] === 'draining');
    // A reload has nothing to say to a process that is leaving, and does not harm it.
    gateway.child.kill('SIGHUP');
    await gateway.logLine((line) => String(line['msg']).includes('shutting down'));
    gateway.child.kill('SIGTERM');
    const responses = await Promise.all(clients.map((client) => client.response()));
    for (const response of responses) {
      expect([response.complete, response.text().includes('"code":"draining"')]).toEqual([false, true]);
    }
    expect(await exitOf(gateway.child)).toEqual([0, null]);
    expect((await usageOf(gateway))['requests']).toBe(STREAMS);
    for (const client of clients) client.destroy();
  });
});

describe('signals', () => {
  test('SIGHUP reloads the file, valid or not, and never ends the process', async () => {
    await using gateway = await startGateway({ process: true });
    gateway.child.kill('SIGHUP');
    await gateway.logLine((line) => line['result'] === 'unchanged');
    await writeFile(gateway.configFile, 'nonsense');
    gateway.child.kill('SIGHUP');
    const line = await gateway.logLine((each) => each['level'] === 'error');
    expect(String(line['faults'])).toMatch(/config\.yaml:1:1: /);
    await gateway.writeConfig({ config: { max_body: '1KiB' } });
    gateway.child.kill('SIGHUP');
    await gateway.logLine((each) => each['result'] === 'applied');
    expect((await gateway.chat(chatRequest({ user: 'x'.repeat(2000) }))).status).toBe(413);
  });

  test.each(['SIGTERM', 'SIGINT'] as const)(
    '%s during the start: it exits by itself with 0',
    async (signal) => {
      await using directory = await tempDir();
      await writeFile(directory.file('config.yaml'), configText({}));
      const child = spawn(process.execPath, [LAUNCHER, 'serve', '--config', directory.file('config.yaml')], {
        env: { PATH: process.env['PATH'] ?? '', TEST_DIR: directory.path },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let text = '';
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (bytes) => (text += String(bytes)));
      try {
        // The store is opened after signals are listened to and before anything is served.
        await until(() => existsSync(directory.file('tollgate.db')), 'the store to be made');
        child.kill('SIGHUP');
        child.kill(signal);
        expect(await exitOf(child)).toEqual([0, null]);
      } finally {
        child.kill('SIGKILL');
      }
      expect(text).not.toContain('    at ');
    },
  );
});
