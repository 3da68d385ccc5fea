// Rolling restarts under load: two processes behind a balancer are replaced one after the other, and no request fails. Two
// rounds here; TOLLGATE_LONG=1 makes it ten.
import { writeFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { LAUNCHER, Program } from '../e2e/program.ts';
import { configText, runCommand } from '../helpers/gateway.ts';
import { pause, tempDir, until } from '../helpers/wait.ts';
import { Balancer } from './balancer.ts';

const ROUNDS = process.env['TOLLGATE_LONG'] === '1' ? 10 : 2;
const CLIENTS = 8;

test(`${ROUNDS} rolling restarts under load: no request fails, and the store has every one`, async () => {
  await using directory = await tempDir();
  const file = directory.file('config.yaml');
  const env = { TEST_DIR: directory.path };
  await writeFile(file, configText({ config: { drain: { delay: '700ms', timeout: '20s' } } }));
  await using balancer = await Balancer.start();

  const running: { program: Program; leave: () => void }[] = [];
  const start = async () => {
    const program = new Program([LAUNCHER, 'serve', '--config', file], { env });
    const url = await program.listening();
    const [, adminUrl = ''] = await program.wrote(/metrics and probes +(http:\/\/[^/]+)/);
    const before = balancer.ready;
    running.push({ program, leave: balancer.add(url, adminUrl) });
    await until(() => balancer.ready > before, 'the new process to be ready');
  };
  try {
    await start();
    await start();
    const issued = await runCommand(['keys', 'issue', '--tier', 'Pro', '--config', file], env);
    const failures: string[] = [];
    let sent = 0;
    let isOver = false;
    const client = async () => {
      for (let stream = false; !isOver; stream = !stream) {
        sent += 1;
        try {
          const response = await fetch(`${balancer.url}/v1/chat/completions`, {
            method: 'POST',
            headers: { authorization: `Bearer ${issued.stdout.trim()}`, 'content-type': 'application/json' },
            body: JSON.stringify({
              model: 'test-model',
              stream,
              messages: [{ role: 'user', content: 'six words to say it back' }],
            }),
          });
          const text = await response.text();
          const isWhole = stream ? text.endsWith('data: [DONE]\n\n') : text.includes('You said: six words');
          if (response.status !== 200 || !isWhole) failures.push(`${response.status} ${text}`);
        } catch (error) {
          failures.push(String(error));
        }
        await pause(20);
      }
    };
    const clients = Array.from({ length: CLIENTS }, client);
    for (let round = 0; round < ROUNDS; round += 1) {
      await start();
      const oldest = running.shift();
      if (oldest === undefined) throw new Error('nobody is there to be replaced');
      oldest.program.child.kill('SIGTERM');
      const { code, signal } = await oldest.program.end();
      oldest.leave();
      expect([code, signal]).toEqual([0, null]);
    }
    isOver = true;
    await Promise.all(clients);
    expect(failures).toEqual([]);
    expect(sent).toBeGreaterThan(ROUNDS * CLIENTS);

    for (const { program } of running) program.child.kill('SIGTERM');
    for (const { program } of running) expect((await program.end()).code).toBe(0);
    const { stdout } = await runCommand(['usage', '--json', '--config', file], env);
    const report: { totals: Record<string, number> } = JSON.parse(stdout);
    expect(report.totals['requests']).toBe(sent);
    process.stderr.write(`${sent} requests over ${ROUNDS} restarts, none failed\n`);
  } finally {
    for (const { program } of running) await program[Symbol.asyncDispose]();
  }
});
