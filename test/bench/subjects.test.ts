// What the bench compares beside the gateway, and where it puts it: relays of bare Node change no byte, and a proxy is set apart from
// its load and back.
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { availableParallelism } from 'node:os';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { completion, UPSTREAM_MODEL } from '../../bench/load/traffic.ts';
import { findProgram, Processes } from '../../bench/processes.ts';
import { setApart } from '../../bench/processors.ts';
import { checkAnswer, requestRound, streamRound } from '../../bench/round.ts';
import { startBare } from '../../bench/subjects/bare.ts';
import { startUpstream, type Upstream } from '../../bench/subjects/direct.ts';
import { CHAT, type Subject } from '../../bench/subjects/subject.ts';

let processes: Processes;
let upstream: Upstream;
beforeEach(async () => {
  processes = new Processes();
  upstream = await startUpstream(processes, 1_000);
});
afterEach(() => processes.stopAll());

/** Of each thread, the main one first: the processors that it may use. */
function processorsOf(pid: number): string[] {
  const threads = readdirSync(`/proc/${pid}/task`).sort((a, b) => Number(a) - Number(b));
  return threads.map((thread) => {
    const status = readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8');
    return /^Cpus_allowed_list:\s*(.*)$/m.exec(status)?.[1] ?? '';
  });
}

test('relays of bare Node pass answers and streams on, byte for byte, and a server of bare Node answers the same', async () => {
  const subjects = await startBare(processes, upstream.port);
  expect(subjects.map(({ name }) => name)).toEqual(['Node, sockets', 'Node, server', 'Node, http-proxy-3']);
  for (const subject of subjects) {
    await checkAnswer(subject);
    // Throws where a byte differs.
    const pace = { frames: 20, every: 1, kind: 'exact' } as const;
    const asked = { kind: 'streams', concurrency: 8, times: 2, ramp_ms: 0, pace } as const;
    expect(await streamRound(processes, subject, asked)).toMatchObject({ streams: 16, peak: 8 });
  }
});

test('the main thread of a proxy has a processor to itself, what loads it has the others, and everything is put back', async () => {
  const [bare] = await startBare(processes, upstream.port);
  const proxies = bare?.pids ?? [];
  const [proxy = 0] = proxies;
  const before = [processorsOf(proxy), processorsOf(upstream.pid)];
  const apart = await setApart(processes, proxies, [upstream.pid]);
  if (availableParallelism() === 1 || findProgram('taskset') === undefined) {
    expect(apart).toBeUndefined();
    return;
  }
  const [its = '', ...helpers] = processorsOf(proxy);
  expect(its).toMatch(/^\d+$/);
  expect(helpers).toEqual(before[0]?.slice(1));
  const [rest = '', ...more] = new Set(processorsOf(upstream.pid));
  expect(more).toEqual([]);
  const [program = '', ...words] = apart?.among ?? [];
  const status = await processes.run(program, [...words, 'cat', '/proc/self/status'], 30_000);
  expect(status).toMatch(new RegExp(`^Cpus_allowed_list:\\s*${rest}$`, 'm'));
  // Together they are all of them.
  const whole = await processes.run(
    program,
    [...words, program, '-c', `${its},${rest}`, 'cat', '/proc/self/status'],
    30_000,
  );
  expect(/^Cpus_allowed_list:\s*(.*)$/m.exec(whole)?.[1]).toBe(before[1]?.[0]);
  expect(rest.split(/[-,]/)).not.toContain(its);
  await apart?.end();
  expect([processorsOf(proxy), processorsOf(upstream.pid)]).toEqual(before);
});

describe('a server that rejects', () => {
  /** Rejects the first `rejected` requests. */
  async function withServer<Result>(rejected: number, work: (subject: Subject) => Promise<Result>) {
    let seen = 0;
    const server = createServer((request, response) => {
      request.resume().once('end', () => {
        seen += 1;
        const isRejected = seen <= rejected;
        response.writeHead(isRejected ? 503 : 200, { 'content-type': 'application/json' });
        response.end(isRejected ? '{}' : completion(UPSTREAM_MODEL));
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = address !== null && typeof address === 'object' ? address.port : 0;
    try {
      return await work({ ...upstream.direct, url: `http://127.0.0.1:${port}${CHAT}` });
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }
  const asked = { kind: 'closed', connections: 1, ms: 0, requests: 5, pace: null } as const;

  test('once has its round repeated', async () => {
    const sample = await withServer(1, (subject) => requestRound(processes, subject, asked));
    expect(sample).toMatchObject({ requests: 5 });
  });

  test('again and again fails the round', async () => {
    const failing = withServer(100, (subject) => requestRound(processes, subject, asked));
    await expect(failing).rejects.toThrow(
      'load on direct failed: node failed (1): began\nan answer of status 503',
    );
  });
});
