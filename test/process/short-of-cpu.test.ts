// A gateway with a twentieth of a processor, and clients that open a connection for every request: it answers as many as it
// can, answers health checks, and serves all of them when the load has fallen. HIGH_SECONDS makes the load longer.
// Runs beside one other: it measures what more tests at the same time would change.
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { startGateway } from '../helpers/gateway.ts';
import { HostileUpstream } from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';
import { limitCpu } from './cpu-quota.ts';

const HIGH_MS = Number(process.env['HIGH_SECONDS'] ?? 6) * 1000;
const HIGH_RATE = 200;
const LOW_RATE = 50;
/** Then a client closes its connection. */
const CLIENT_MS = 2_000;
const PROBE_EVERY_MS = 500;
const PROBE_MS = 5_000;

interface Asked {
  readonly id: string;
  readonly at: number;
  /** Status, or why there was none. */
  outcome?: string;
  endedAt?: number;
}

class Clients {
  readonly all: Asked[] = [];
  readonly #port: number;

  constructor(url: string) {
    this.#port = Number(new URL(url).port);
  }

  /** One request on a connection of its own. */
  ask(text: (id: string) => string, ms: number): void {
    const asked: Asked = { id: `id-${this.all.length}-`, at: performance.now() };
    this.all.push(asked);
    const socket = connect(this.#port, '127.0.0.1').setNoDelay(true);
    const end = (outcome: string) => {
      clearTimeout(timer);
      if (asked.outcome !== undefined) return;
      asked.outcome = outcome;
      asked.endedAt = performance.now();
      socket.destroy();
    };
    const timer = setTimeout(() => end('none'), ms);
    let answer = '';
    socket.on('data', (bytes) => {
      answer += bytes.toString('latin1');
      const [, status] =
        /^(?:HTTP\/1\.1 102[\s\S]*?\r\n\r\n)*HTTP\/1\.1 (?!102)(\d+)[\s\S]*\}\s*$/.exec(answer) ?? [];
      if (status !== undefined) end(status);
    });
    socket.on('error', () => end('error')).on('close', () => end('closed'));
    socket.write(text(asked.id));
  }

  get done(): boolean {
    return this.all.every(({ outcome }) => outcome !== undefined);
  }
}

test('new connections of a process without enough CPU are answered or rejected, never served too late', async () => {
  await using upstream = await HostileUpstream.start();
  await using gateway = await startGateway({
    process: true,
    upstreams: { up: upstream.baseUrl },
    env: { LOG_LEVEL: 'info' },
  });
  const key = await gateway.key();
  const chat = (id: string) => {
    const body = JSON.stringify({ model: 'test-model', messages: [{ role: 'user', content: id }] });
    return (
      `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${key}\r\nconnection: close\r\n` +
      `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    );
  };
  const clients = new Clients(gateway.url);
  const probes = new Clients(gateway.url);
  const inVain: string[] = [];
  let judged = 0;
  /** Requests that reached the upstream though their client was gone. */
  const judge = async () => {
    for (; judged < upstream.requests.length; judged += 1) {
      const { body } = await upstream.request(judged);
      const [id = ''] = /id-\d+-/.exec(body.toString()) ?? [];
      const { outcome } = clients.all.find((asked) => asked.id === id) ?? {};
      if (outcome !== undefined && outcome !== '200') inVain.push(id);
    }
  };
  const pid = gateway.child.pid;
  if (pid === undefined) throw new Error('the gateway has a process');
  let by = '';
  let fellAt = 0;
  {
    await using quota = await limitCpu(pid, 0.05);
    by = quota.by;
    const start = performance.now();
    let probed = 0;
    let sent = 0;
    let isBack = false;
    fellAt = start + HIGH_MS;
    for (let now = start; now < fellAt || (!isBack && now < fellAt + 20_000); now = performance.now()) {
      const due = (Math.min(now - start, HIGH_MS) * HIGH_RATE + Math.max(0, now - fellAt) * LOW_RATE) / 1000;
      for (; sent < due; sent += 1) clients.ask(chat, CLIENT_MS);
      for (; probed <= (now - start) / PROBE_EVERY_MS; probed += 1)
        probes.ask(() => 'GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n', PROBE_MS);
      await judge();
      isBack = clients.all.some(({ at, outcome }) => at > fellAt && outcome === '200');
      await pause(2);
    }
    await until(() => clients.done && probes.done, 'all clients to end');
  }
  await judge();
  const count = (asked: readonly Asked[], outcome: string) =>
    asked.filter((each) => each.outcome === outcome).length;
  const back = clients.all.find(({ at, outcome }) => at > fellAt && outcome === '200')?.endedAt;
  const slowest = Math.max(...probes.all.map(({ at, endedAt = at }) => endedAt - at));
  console.log(
    `by ${by}: ${clients.all.length} requests, ${count(clients.all, '200')} answered, ` +
      `${count(clients.all, '503')} rejected, ${count(clients.all, 'none')} without an answer; first answer ` +
      `${back === undefined ? 'never' : `${Math.round(back - fellAt)} ms`} after the load fell; ` +
      `${count(probes.all, '200')} of ${probes.all.length} probes answered, the slowest in ${Math.round(slowest)} ms; ` +
      `${upstream.requests.length} requests sent, ${inVain.length} for clients that were gone`,
  );
  expect((back ?? Number.POSITIVE_INFINITY) - fellAt).toBeLessThan(5_000);
  expect(count(probes.all, '200') / probes.all.length).toBeGreaterThan(0.9);
  expect(inVain.length).toBeLessThanOrEqual(0.02 * clients.all.length);
  expect(await gateway.metric('tollgate_overload_refused_total{cause="accept_queue"}')).toBeGreaterThan(0);
  await gateway.logLine(({ msg, cause }) => String(msg).startsWith('overloaded') && cause === 'accept_queue');
}, 120_000);
