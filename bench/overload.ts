// What is left of the gateway's work when it gets three times what it can do: answers a second that come whole and in time,
// at rising loads that do not wait for answers. `node bench/overload.ts [--seconds N]`; everything is on loopback.
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { ALIAS } from './load/traffic.ts';
import { Processes } from './processes.ts';
import { startUpstream } from './subjects/direct.ts';
import { startGateway } from './subjects/gateway.ts';

/** An answer that comes later is nobody's any more. */
const PATIENCE_MS = 2_000;
/** Sent with gzip: a thousand bytes for the one who sends, and half a megabyte for the gateway, who is to be the slower one. */
const BODY_BYTES = 512 * 1024;
/** Connections that may wait for an answer at once; what would need more is not sent, and counts as failed. */
const MAX_WAITING = 4_000;
const SATURATING = 64;
const STEPS = [0.5, 0.8, 1, 1.5, 3] as const;
const GOAL = 0.9;

interface Round {
  readonly sent: number;
  readonly good: number;
  readonly refused: number;
  readonly failed: number;
  /** Of the good ones, in milliseconds. */
  readonly p50: number;
  readonly p99: number;
}

class Load {
  readonly #target: http.RequestOptions;
  readonly #body: Buffer;
  readonly #agent = new http.Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY });
  #waiting = 0;

  constructor(url: string, key: string) {
    const { hostname, port, pathname } = new URL(url);
    const message = { role: 'user', content: 'x'.repeat(BODY_BYTES) };
    this.#body = gzipSync(JSON.stringify({ model: ALIAS, messages: [message] }));
    const headers = {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'content-encoding': 'gzip',
      'content-length': this.#body.length,
    };
    this.#target = { hostname, port, path: pathname, method: 'POST', headers, agent: this.#agent };
  }

  /** As many as come back from `connections` clients that each wait for their answer: what saturates it. */
  async closed(connections: number, ms: number): Promise<Round> {
    const tally = new Tally();
    const end = performance.now() + ms;
    const client = async () => {
      while (performance.now() < end) await this.#ask(tally);
    };
    await Promise.all(Array.from({ length: connections }, client));
    return tally.round();
  }

  /** `rate` a second, whatever comes back. */
  async open(rate: number, ms: number): Promise<Round> {
    const tally = new Tally();
    const started = performance.now();
    const asked: Promise<void>[] = [];
    for (let sent = 0; performance.now() - started < ms; ) {
      const due = ((performance.now() - started) / 1000) * rate;
      for (; sent < due; sent += 1) {
        if (this.#waiting < MAX_WAITING) asked.push(this.#ask(tally));
        else tally.failed += 1;
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await Promise.all(asked);
    return tally.round();
  }

  close(): void {
    this.#agent.destroy();
  }

  #ask(tally: Tally): Promise<void> {
    this.#waiting += 1;
    const begun = performance.now();
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: 'good' | 'refused' | 'failed') => {
        if (isOver) return;
        isOver = true;
        this.#waiting -= 1;
        if (outcome === 'good') tally.times.push(performance.now() - begun);
        tally[outcome] += 1;
        resolve();
      };
      const request = http.request(this.#target, (response) => {
        response.on('error', () => end('failed')).resume();
        response.once('end', () => {
          clearTimeout(timer);
          const { statusCode } = response;
          end(statusCode === 200 ? 'good' : statusCode === 503 ? 'refused' : 'failed');
        });
      });
      const timer = setTimeout(() => request.destroy(new Error('late')), PATIENCE_MS);
      request.on('error', () => {
        clearTimeout(timer);
        end('failed');
      });
      request.end(this.#body);
    });
  }
}

class Tally {
  good = 0;
  refused = 0;
  failed = 0;
  readonly times: number[] = [];

  round(): Round {
    const sorted = [...this.times].sort((a, b) => a - b);
    const at = (share: number) => Math.round(sorted[Math.floor(sorted.length * share)] ?? 0);
    const { good, refused, failed } = this;
    return { sent: good + refused + failed, good, refused, failed, p50: at(0.5), p99: at(0.99) };
  }
}

async function run(seconds: number): Promise<boolean> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'));
  const processes = new Processes();
  try {
    const { port } = await startUpstream(processes, 2 * MAX_WAITING);
    const ports = { upstream: port, largeUpstream: port };
    const gateway = await startGateway(processes, { folder: join(folder, 'gateway'), ...ports });
    const load = new Load(gateway.url, gateway.key);
    const ms = seconds * 1000;
    await load.closed(SATURATING, 2_000);
    const saturated = await load.closed(SATURATING, ms);
    const capacity = saturated.good / seconds;
    process.stdout.write(`${SATURATING} clients that wait: ${capacity.toFixed(0)} answers a second\n`);
    let peak = 0;
    let last = 0;
    for (const step of STEPS) {
      const rate = capacity * step;
      const { good, refused, failed, p50, p99 } = await load.open(rate, ms);
      last = good / seconds;
      peak = Math.max(peak, last);
      process.stdout.write(
        `${step}x, ${rate.toFixed(0)} a second: ${last.toFixed(0)} good (p50 ${p50} ms, p99 ${p99} ms), ` +
          `${(refused / seconds).toFixed(0)} refused, ${(failed / seconds).toFixed(0)} failed or late\n`,
      );
    }
    load.close();
    const share = last / peak;
    process.stdout.write(
      `at ${STEPS.at(-1)}x: ${(share * 100).toFixed(0)} % of the peak (goal ${GOAL * 100} %)\n`,
    );
    return share >= GOAL;
  } finally {
    await processes.stopAll();
    rmSync(folder, { recursive: true, force: true });
  }
}

const { values } = parseArgs({ options: { seconds: { type: 'string', default: '5' } } });
if (!(await run(Number(values.seconds)))) process.exitCode = 1;
