// Several workers, as real processes on a real Redis: they serve as one, and the exit of one does not affect the others.
// TOLLGATE_LONG=1 adds one that hangs.

import { rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { callAdmin } from '../console/setting.ts';
import { LAUNCHER, Program } from '../e2e/program.ts';
import { standardAnswer } from '../helpers/conversation.ts';
import { configText, type Gateway, runCommand } from '../helpers/gateway.ts';
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
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { targetSample, upstreamSample } from '../helpers/upstream-states.ts';
import { tempDir, until, within } from '../helpers/wait.ts';
import { files, stored } from '../usage/samples.ts';
import {
  connectTo,
  connectToBoth,
  isAlive,
  openStreams,
  pidOf,
  readiness,
  startWorkers,
  workersOf,
} from './worker-setting.ts';

const PLAY = fileURLToPath(new URL('./children/primary.ts', import.meta.url));
/** Makes a process throw what nobody catches when it gets SIGUSR2. */
const FRAGILE = `data:text/javascript,process.on('SIGUSR2',()=>{throw new Error('thrown by the test')})`;
/** With `TOLLGATE_LONG=1`: what waits for deadlines of many seconds. */
const longTest: (name: string, run: () => Promise<void>) => void =
  process.env['TOLLGATE_LONG'] === '1' ? test : () => undefined;
const CHAT = 'tollgate_requests_total{route="/v1/chat/completions",status="200"}';

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
}, REDIS_TIMEOUT);
afterAll(() => redis?.stop());

/** Streams that begin at once and end when they are released. */
function heldStreams(): { step: Step; release: () => void } {
  let isReleased = false;
  const step: Step = async (c) => {
    await c.head(200, SSE_HEADERS);
    await c.chunk(frame(contentChunk('begun', { usage: null })));
    await c.waitFor(() => isReleased);
    const tokens = { prompt: 10, completion: 7 };
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

function exitCode({ child }: Gateway): Promise<number | null> {
  return until(
    () => (child.exitCode === null && child.signalCode === null ? undefined : [child.exitCode]),
    'the exit',
  ).then(([code]) => code ?? null);
}

/** Whether a process has written down usage that it has not sent yet. */
function hasUnsent({ directory }: Gateway, pid: number): boolean {
  const folder = directory.file('usage');
  return files(folder).some((name) => name.startsWith(`${pid}.`) && stored(join(folder, name)).length > 0);
}

async function usageOf(gateway: Gateway): Promise<Record<string, number>> {
  const words = ['usage', '--json', '--config', gateway.configFile];
  const { stdout } = await runCommand(words, { TEST_DIR: gateway.directory.path });
  const report: { totals: Record<string, number> } = JSON.parse(stdout);
  return report.totals;
}

describe('two workers', () => {
  let upstream: HostileUpstream;
  let gateway: Gateway;
  /** Client requests that ended with 200 in workers that were not killed under them. */
  let ended = 0;

  const steps: { readonly name: string; readonly run: () => Promise<void> }[] = [];
  /** A part of one life, which begins where the one before ended: they fail and are repeated together. */
  const step = (name: string, run: () => Promise<void>) => void steps.push({ name, run });

  step('have one console and API at the primary, whose changes reach both', async () => {
    const env = { TEST_DIR: gateway.directory.path };
    const add = ['operators', 'add', 'ann', '--role', 'admin', '--config', gateway.configFile];
    const token = (await runCommand(add, env)).stdout.trim();
    const call = (method: string, path: string, body?: unknown) =>
      callAdmin(gateway.adminUrl, method, `/api/v1${path}`, { token, body });
    expect((await call('GET', '/me')).json).toMatchObject({ name: 'ann' });
    expect((await call('GET', '/upstreams')).json).toMatchObject({
      items: [{ upstream: 'up', state: 'ok' }],
    });
    const issued = await call('POST', '/keys', { tier: 'Pro' });
    const key = String(Reflect.get(Object(issued.json), 'key'));
    const held = await connectToBoth(gateway);
    const statuses = async () =>
      Promise.all(
        held.map(async ({ client }) => {
          const headers = { authorization: `Bearer ${key}` };
          return (await client.ask({ method: 'GET', target: '/v1/models', headers })).status;
        }),
      );
    expect(await statuses()).toEqual([200, 200]);
    const revoked = await call('POST', `/keys/${key.slice(0, 8)}/revoke`, { reason: 'left' });
    expect(revoked.json).toMatchObject({
      record: { state: 'revoked' },
      replicas: { confirmed: 2, total: 2 },
    });
    expect(await statuses()).toEqual([401, 401]);
    for (const { client } of held) client.destroy();
  });

  step('serve on one port, share one metrics page, and are two replicas', async () => {
    const held = await connectToBoth(gateway);
    const { config_hash, uptime_s } = await readiness(gateway);
    // The gateway began after this file.
    expect(uptime_s).toBeLessThanOrEqual(performance.now() / 1000);
    expect(held.map(({ health }) => health.config_hash)).toEqual([config_hash, config_hash]);
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    for (const { client } of held) {
      const response = await client.ask({ target: '/v1/chat/completions', headers, body: chatRequest() });
      expect(response.status).toBe(200);
      ended += 1;
      client.destroy();
    }
    expect(await gateway.metric(CHAT)).toBe(ended);
    expect(await gateway.metric('tollgate_workers{state="serving"}')).toBe(2);
    expect(await gateway.metric('tollgate_redis_up')).toBe(1);
    expect(await gateway.metric('tollgate_connections_limit')).toBe(1000);
    const page = await gateway.metrics();
    const names = page.split('\n').filter((line) => line.startsWith('# TYPE '));
    expect(names).toEqual([...new Set(names)]);
    expect(page).toMatch(/^tollgate_build_info\{[^}]+\} 1$/m);
    expect(await redis.command('ZCARD', 'tollgate:replicas')).toBe(2);
    expect(gateway.output.match(/listening on/g)).toHaveLength(1);
    const upstreams = await (await fetch(`${gateway.adminUrl}/upstreams`)).json();
    expect(upstreams).toMatchObject([
      upstreamSample('up', [targetSample('upstream-model')], {
        max_concurrency: 400,
        credential: { kind: 'configured', since: expect.any(String), expires_at: null },
      }),
    ]);
  });

  step('have equally many kept connections soon, also where one had them all', async () => {
    // Those of one worker, as after a burst, or after a restart of the other.
    let held = await Promise.all(Array.from({ length: 24 }, () => connectTo(gateway)));
    const [first] = held;
    for (const { client, worker } of held) if (worker !== first?.worker) client.destroy();
    held = held.filter(({ worker }) => worker === first?.worker);
    while (held.length > 8) held.pop()?.client.destroy();
    while (held.length < 4) {
      const more = await connectTo(gateway);
      if (more.worker === first?.worker) held.push(more);
      else more.client.destroy();
    }
    const share = () => held.filter(({ worker }) => worker === 1).length / held.length;
    await until(async () => {
      held = await Promise.all(
        held.map(async (one) => {
          const response = await one.client.ask({ method: 'GET', target: '/health' });
          if (response.header('connection') !== 'close') return one;
          one.client.destroy();
          return await connectTo(gateway);
        }),
      );
      return Math.abs(share() - 0.5) < 0.2;
    }, 'even shares');
    for (const { client } of held) client.destroy();
  });

  step('receive a revocation, and the command waits for both', async () => {
    const key = await gateway.issueKey();
    const held = await connectToBoth(gateway);
    const headers = { authorization: `Bearer ${key}` };
    const ask = () =>
      Promise.all(held.map(({ client }) => client.ask({ method: 'GET', target: '/v1/models', headers })));
    expect((await ask()).map(({ status }) => status)).toEqual([200, 200]);
    const env = { TEST_DIR: gateway.directory.path };
    const words = ['keys', 'revoke', key.slice(0, 8), '--config', gateway.configFile];
    const { code, stdout, stderr } = await runCommand(words, env);
    expect(code, stdout + stderr).toBe(0);
    expect((await ask()).map(({ status }) => status)).toEqual([401, 401]);
    for (const { client } of held) client.destroy();
  });

  step('a new configuration reaches both; an invalid one is logged once and reported by both', async () => {
    const upstreams = { up: upstream.baseUrl };
    const before = (await readiness(gateway)).config_hash;
    const own = { redis: redis.url, workers: 2 };
    await gateway.writeConfig({ upstreams, config: { ...own, max_body: '1KiB' } });
    const line = await gateway.logLine((each) => each['result'] === 'applied');
    expect(line['config_hash']).not.toBe(before);
    const held = await connectToBoth(gateway);
    expect(held.map(({ health }) => health.config_hash)).toEqual([line['config_hash'], line['config_hash']]);
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const body = chatRequest({ user: 'x'.repeat(2000) });
    for (const { client } of held) {
      const response = await client.ask({ target: '/v1/chat/completions', headers, body });
      expect(response.status).toBe(413);
      client.destroy();
    }
    await writeFile(gateway.configFile, 'nonsense');
    gateway.child.kill('SIGHUP');
    await gateway.logLine((each) => each['level'] === 'error' && each['faults'] !== undefined);
    await until(async () => {
      const both = await connectToBoth(gateway);
      for (const { client } of both) client.destroy();
      return both.every(({ health }) => health.checks['config'] === 'degraded');
    }, 'both to show it');
    const report = await readiness(gateway);
    expect(report).toMatchObject({ status: 'degraded', config_hash: line['config_hash'] });
    expect(gateway.logs.filter((each) => each['faults'] !== undefined)).toHaveLength(1);
    expect(await gateway.metric('tollgate_config_reloads_total{result="rejected"}')).toBe(1);
    expect(await gateway.metric('tollgate_config_last_reload_successful')).toBe(0);
  });

  step('a killed one loses its streams, the other continues, and a new one takes the slot', async () => {
    const { step, release } = heldStreams();
    upstream.always(step);
    const [busy, ...held] = await connectToBoth(gateway, 4);
    if (busy === undefined) throw new Error('there are connections');
    await openStreams(gateway, held, 'begun');
    const killed = pidOf(gateway, 1);
    // Something that it has written down and not sent to the store yet.
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    await until(async () => {
      upstream.next(standardAnswer);
      const response = await busy.client.ask({
        target: '/v1/chat/completions',
        headers,
        body: chatRequest(),
      });
      expect(response.status).toBe(200);
      ended += 1;
      return await until(() => hasUnsent(gateway, killed), 'unsent usage', 700).catch(() => false);
    }, 'unsent usage');
    const counted = await gateway.metric(CHAT);
    process.kill(killed, 'SIGKILL');
    expect(counted).toBe(ended);
    busy.client.destroy();
    const cut = held.filter(({ worker }) => worker === 1);
    for (const { client } of cut) {
      await within(client.closed, 'the cut');
      const response = client.responses.at(-1);
      expect([response?.complete, response?.text().includes('[DONE]')]).toEqual([false, false]);
    }
    // The service goes on, and nothing that was counted is lost.
    const { client, health } = await connectTo(gateway);
    expect(health.status).toBe('degraded');
    client.destroy();
    expect(await gateway.metric(CHAT)).toBe(counted);
    release();
    for (const one of held.filter((each) => each.worker === 2)) {
      const response = await one.client.response();
      expect([response.complete, response.text().endsWith('[DONE]\n\n')]).toEqual([true, true]);
      ended += 1;
      one.client.destroy();
    }
    const line = await gateway.logLine((each) => each['signal'] === 'SIGKILL');
    expect(line).toMatchObject({ worker: 1, pid: killed, cause: 'signal' });
    await until(() => workersOf(gateway).length === 3, 'another worker');
    expect(await gateway.metric('tollgate_worker_restarts_total{cause="signal"}')).toBe(1);
    // It has the last good configuration, although the file is a bad one now, and shows that.
    const both = await connectToBoth(gateway);
    for (const one of both) {
      expect(one.health.config_hash).toBe((await readiness(gateway)).config_hash);
      expect(one.health.checks['config']).toBe('degraded');
      one.client.destroy();
    }
    expect(await gateway.metric(CHAT)).toBe(ended);
  });

  step('an uncaught exception drains its worker while a new one takes the slot', async () => {
    const { step, release } = heldStreams();
    upstream.always(step);
    const held = await connectToBoth(gateway);
    await openStreams(gateway, held, 'begun');
    const faulty = pidOf(gateway, 1);
    process.kill(faulty, 'SIGUSR2');
    const line = await gateway.logLine((each) => each['cause'] === 'fault');
    // It is the second end in a row, so that the wait is twice as long.
    expect(line['wait_ms']).toBeGreaterThanOrEqual(250);
    expect(line['wait_ms']).toBeLessThanOrEqual(500);
    await until(() => workersOf(gateway).length === 4, 'another worker');
    expect(isAlive(faulty)).toBe(true);
    release();
    for (const { client } of held) {
      const response = await client.response();
      expect([response.complete, response.text().endsWith('[DONE]\n\n')]).toEqual([true, true]);
      ended += 1;
      client.destroy();
    }
    await until(() => !isAlive(faulty), 'its end');
    expect(await gateway.metric(CHAT)).toBe(ended);
    expect(await gateway.metric('tollgate_worker_restarts_total{cause="fault"}')).toBe(1);
  });

  step(
    'SIGTERM to the process group drains both once, and the store has the usage that the upstream counted',
    async () => {
      // The command that reads the store reads the file, too.
      await gateway.writeConfig({
        upstreams: { up: upstream.baseUrl },
        config: { redis: redis.url, workers: 2 },
      });
      // What the killed worker had written down is another one's to count, in its own time.
      await until(async () => (await usageOf(gateway)).requests === ended, 'all that was used so far');
      const { step, release } = heldStreams();
      upstream.always(step);
      const held = await connectToBoth(gateway, 3);
      await openStreams(gateway, held, 'begun');
      const workers = [pidOf(gateway, 1), pidOf(gateway, 2)];
      const said = gateway.logs.length;
      const lines = (msg: string) => gateway.logs.slice(said).filter((line) => line['msg'] === msg);
      // As a terminal and a service manager do it.
      for (const pid of workers) process.kill(pid, 'SIGTERM');
      gateway.child.kill('SIGTERM');
      for (const pid of workers) process.kill(pid, 'SIGTERM');
      await until(() => lines('draining').length === 2, 'both workers to drain');
      expect((await readiness(gateway)).status).toBe('draining');
      release();
      for (const { client } of held) {
        const response = await client.response();
        expect([response.complete, response.text().endsWith('[DONE]\n\n')]).toEqual([true, true]);
        ended += 1;
      }
      expect(await exitCode(gateway)).toBe(0);
      expect(workers.map(isAlive)).toEqual([false, false]);
      expect(lines('drained')).toHaveLength(2);
      // Three streams ended with their worker, and nobody knows what they used. What it had written down is counted.
      const usage = await usageOf(gateway);
      expect(upstream.requests).toHaveLength(ended + 3);
      expect(usage).toMatchObject({ requests: ended, estimated: 0 });
    },
  );

  test('from their start to SIGTERM', async () => {
    ended = 0;
    upstream = await HostileUpstream.start();
    gateway = await startWorkers(redis, {
      upstreams: { up: upstream.baseUrl },
      config: { listen: { max_connections: 1000 } },
      env: { NODE_OPTIONS: `--import=${encodeURI(FRAGILE)}` },
    });
    try {
      for (const { name, run } of steps)
        await run().catch((cause: unknown) => {
          throw new Error(`it fails that two workers ${name}`, { cause });
        });
    } finally {
      await gateway.close();
      await upstream.close();
    }
  }, 600_000);
});

test('a new value of a referenced file reaches both workers, and one that starts when the file is gone', async () => {
  await using upstream = await HostileUpstream.start();
  await using secrets = await tempDir();
  const file = secrets.file('credential');
  await writeFile(file, 'credential-one');
  await using own = await startWorkers(redis, {
    upstreams: { up: upstream.baseUrl },
    config: { upstreams: { up: { api_key: `\${file:${file}}` } } },
  });
  const headers = { authorization: `Bearer ${await own.key()}` };
  const credentials = async () => {
    const held = await connectToBoth(own);
    const found: (string | undefined)[] = [];
    for (const { client } of held) {
      const asked = upstream.requests.length;
      await client.ask({ target: '/v1/chat/completions', headers, body: chatRequest() });
      found.push((await upstream.request(asked)).header('authorization'));
      client.destroy();
    }
    return found.join();
  };
  expect(await credentials()).toBe('Bearer credential-one,Bearer credential-one');
  await writeFile(file, 'credential-two');
  const both = 'Bearer credential-two,Bearer credential-two';
  await until(async () => (await credentials()) === both, 'the new credential in both');
  await rm(file);
  process.kill(pidOf(own, 1), 'SIGKILL');
  await until(() => workersOf(own).length === 3, 'another worker');
  expect(await credentials()).toBe(both);
});

describe('two workers without a primary', () => {
  test('drain and exit by themselves', async () => {
    await using upstream = await HostileUpstream.start();
    const { step, release } = heldStreams();
    upstream.always(step);
    await using gateway = await startWorkers(redis, { upstreams: { up: upstream.baseUrl } });
    const held = await connectToBoth(gateway, 2);
    await openStreams(gateway, held, 'begun');
    const workers = [pidOf(gateway, 1), pidOf(gateway, 2)];
    gateway.child.kill('SIGKILL');
    await until(async () => {
      try {
        (await gateway.connect()).destroy();
        return false;
      } catch {
        return true;
      }
    }, 'nobody to accept any more');
    expect(workers.map(isAlive)).toEqual([true, true]);
    release();
    for (const { client } of held) {
      const response = await client.response();
      expect([response.complete, response.text().endsWith('[DONE]\n\n')]).toEqual([true, true]);
    }
    await until(() => !workers.some(isAlive), 'the workers to end by themselves');
    expect((await usageOf(gateway))['requests']).toBe(4);
  });

  longTest('one hangs: others take what comes, and it is replaced', async () => {
    await using gateway = await startWorkers(redis);
    const hung = pidOf(gateway, 1);
    process.kill(hung, 'SIGSTOP');
    for (let time = 0; time < 8; time += 1) {
      const { client, worker } = await connectTo(gateway);
      expect(worker).toBe(2);
      client.destroy();
    }
    const line = await gateway.logLine((each) => each['cause'] === 'hung');
    expect(line).toMatchObject({ worker: 1, pid: hung });
    await until(() => workersOf(gateway).length === 3, 'another worker');
    for (const { client } of await connectToBoth(gateway)) client.destroy();
  });

  longTest('both are killed at once: others serve on the same port', async () => {
    await using gateway = await startWorkers(redis);
    for (const worker of [1, 2]) process.kill(pidOf(gateway, worker), 'SIGKILL');
    await until(async () => (await readiness(gateway)).status === 'failed', 'nobody to serve');
    expect(await gateway.metrics()).toMatch(/^tollgate_build_info\{[^}]+\} 1$/m);
    await until(() => workersOf(gateway).length === 4, 'both to be replaced');
    // The port was a free one, that the system chose.
    for (const { client } of await connectToBoth(gateway)) client.destroy();
    expect((await readiness(gateway)).status).toBe('ok');
  });

  longTest('are told twice to end: what runs is ended at once, and told so', async () => {
    await using upstream = await HostileUpstream.start(heldStreams().step);
    await using gateway = await startWorkers(redis, {
      upstreams: { up: upstream.baseUrl },
      config: { drain: { delay: '10m', timeout: '10m' } },
    });
    const held = await connectToBoth(gateway, 2);
    await openStreams(gateway, held, 'begun');
    gateway.child.kill('SIGTERM');
    await until(
      () => gateway.logs.filter((line) => line['msg'] === 'draining').length === 2,
      'both workers to drain',
    );
    gateway.child.kill('SIGTERM');
    for (const { client } of held) {
      const response = await client.response();
      expect([response.complete, response.text().includes('"code":"draining"')]).toEqual([false, true]);
    }
    expect(await exitCode(gateway)).toBe(0);
  });
});

describe('a start that fails or hangs', () => {
  async function attempt(config: Parameters<typeof configText>[0], port?: number) {
    await using directory = await tempDir();
    const file = directory.file('config.yaml');
    await writeFile(file, configText(config, [port ?? 0]));
    await using program = new Program([LAUNCHER, 'serve', '--config', file], {
      env: { TEST_DIR: directory.path },
    });
    return { ...(await program.end()), file };
  }

  /** A primary whose workers only play one. */
  async function play(behaviour: 'die' | 'hang' | 'chat') {
    const directory = await tempDir();
    const file = directory.file('config.yaml');
    await writeFile(file, configText({ config: { workers: 2, redis: redis.url } }));
    const program = new Program([PLAY, behaviour, file], { env: { TEST_DIR: directory.path } });
    return { program, directory };
  }

  test('without Redis it is rejected with its place, before anything starts', async () => {
    const { code, stderr, stdout, file } = await attempt({ config: { workers: 'auto' } });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`${file}:`);
    expect(stderr).toMatch(/:\d+:10: workers: needs `redis`/);
  });

  test('workers that exit at once are retried with backoff and given up in time', async () => {
    const { program, directory } = await play('die');
    await using _ = directory;
    await using ended = program;
    const { code, stdout } = await ended.end();
    expect(code).toBe(1);
    expect(stdout).toMatch(/failed: .*no worker serves after 4 s: it exited with code 3/);
    // Two places, and with the shortest waits five tries for each; a slow machine does less.
    const restarts = stdout.match(/worker exited; restarting it/g) ?? [];
    expect(restarts.length).toBeGreaterThanOrEqual(2);
    expect(restarts.length).toBeLessThanOrEqual(10);
  });

  test('a hung worker is killed and replaced', async () => {
    const { program, directory } = await play('hang');
    await using _ = directory;
    await using running = program;
    await running.wrote(/started/, 'stdout');
    await running.wrote(/worker is hung; killing it/, 'stdout');
    await running.wrote(/"signal":"SIGKILL","cause":"hung"/, 'stdout');
  });

  test('long lines of several workers do not mix', async () => {
    const { program, directory } = await play('chat');
    await using _ = directory;
    await using running = program;
    // The last one may be on its way.
    const lines = () => running.stdout.split('\n').slice(0, -1);
    const ofChat = () => lines().filter((line) => line.includes('é'));
    await until(() => ofChat().length >= 80, 'all lines');
    // Also without the start or the end of one.
    const broken = ofChat().filter((line) => {
      const text = `${Number.parseInt(line.slice('{"chat":"'.length), 10)}é`.repeat(9_000);
      return line !== JSON.stringify({ chat: text });
    });
    expect(broken.map((line) => line.slice(0, 50))).toEqual([]);
  });

  test('a taken port is reported once, as by a single process', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await until(() => server.listening, 'the other listener');
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : undefined;
    try {
      const { code, stderr } = await attempt({ config: { workers: 2, redis: redis.url } }, port);
      expect(code).toBe(1);
      expect(stderr.match(/is in use\. Set listen\.port/g)).toHaveLength(1);
    } finally {
      server.close();
    }
  });
});
