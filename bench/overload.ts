// What is left of the gateway's work when it gets three times what it can do: answers a second that come whole and in time,
// at loads that do not wait for answers, over kept connections and over a new one for each request. The gateway gets a fixed
// share of a processor: otherwise the sender, which works more at three times the load, would take CPU time from the gateway. Sender and
// upstream run before other processes of the machine: a sender that stands still for a second sends a burst, and then nothing.
// `node bench/overload.ts`; `--help` says the rest.
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { limitCpu, preferCpu } from '../test/process/cpu-quota.ts';
import { tell } from './bench.ts';
import { cpuMicroseconds } from './cpu.ts';
import { figureOf, rowsOf, type Sample } from './figures.ts';
import { sdkRequest } from './load/sdk-request.ts';
import { ALIAS } from './load/traffic.ts';
import { circumstances, loadBefore } from './machine.ts';
import { MISSED, wholeNumber } from './options.ts';
import { Processes } from './processes.ts';
import { isWholeRun, publishSection } from './publish.ts';
import { type Section, tableOf } from './section.ts';
import { startUpstream } from './subjects/direct.ts';
import { startGateway } from './subjects/gateway.ts';

/** An answer that comes later is nobody's any more. */
const PATIENCE_MS = 2_000;
/** Sent with gzip: a thousand bytes for the one who sends, and half a megabyte for the gateway, who is to be the slower one. */
const BODY_BYTES = 512 * 1024;
/** Connections that may wait for an answer at once; what would need more is not sent, and counts as failed. */
const MAX_WAITING = 4_000;
const SATURATING = 64;
/** Of each load before it is measured: queues have filled, bodies that waited since before are rejected, and what comes behind is not counted. */
const SETTLE_MS = 3_000;
/** Without a quota, once: until V8 has compiled what is used much, which costs an answer a tenth more. */
const WARM_MS = 15_000;
/** Times saturation. Below 1 nothing can be the peak. */
const LOADS = [1, 1.5, 3] as const;
/**
 * Of all loads in a run, in turn: what else the machine does makes the cost of an answer drift by a third within a minute. Of each load the
 * median counts, because the greatest of several noisy values is above what any load can do.
 */
const ROUNDS = 3;
/** Percent of the peak that is left, in every run. */
const GOAL = 95;
const WHOLE = { runs: 5, seconds: 3, share: 50 };
const KINDS = { 'kept connections': true, 'a new connection for each request': false } as const;

const USAGE = `node bench/overload.ts [--runs N] [--seconds N] [--share N] [--write]

  --runs N     runs of each kind, each of ${ROUNDS} rounds: saturation, then the loads from its rate (default 5)
  --seconds N  measured length of a load, after ${SETTLE_MS / 1000} s at its rate (default ${WHOLE.seconds})
  --share N    percent of a processor that the gateway gets (default ${WHOLE.share})
  --write      also write the figures into docs/performance.md

Needs Linux, and better the right to make control groups (root). Exit code 2 if in any run less than ${GOAL} % of the peak is left at ${LOADS.at(-1)} times saturation.
`;

interface Round {
  readonly good: number;
  readonly refused: number;
  readonly failed: number;
  /** Of the good ones, in milliseconds. */
  readonly p50: number;
  readonly p99: number;
  readonly maxDelayMs: number;
}

class Load {
  readonly #target: http.RequestOptions;
  readonly #body: Buffer;
  readonly #agent: http.Agent;
  #waiting = 0;

  constructor(url: string, key: string, keepAlive: boolean) {
    // Node keeps 256 idle connections otherwise, and an open load needs as many as requests wait for an answer.
    const unlimited = Number.POSITIVE_INFINITY;
    this.#agent = new http.Agent({ keepAlive, maxSockets: unlimited, maxFreeSockets: unlimited });
    const { hostname, port, pathname } = new URL(url);
    const message = { role: 'user', content: 'x'.repeat(BODY_BYTES) };
    this.#body = gzipSync(JSON.stringify({ model: ALIAS, messages: [message] }));
    const own = new Set(['host', 'connection']);
    const headers = {
      ...Object.fromEntries(sdkRequest().headers.filter(([name]) => !own.has(name))),
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'content-encoding': 'gzip',
      'content-length': this.#body.length,
    };
    this.#target = { hostname, port, path: pathname, method: 'POST', headers, agent: this.#agent };
  }

  /** As many as come back from `connections` clients that each wait for their answer: what saturates it. */
  async closed(connections: number, tally: Tally): Promise<Round> {
    const client = async () => {
      while (performance.now() < tally.end) await this.#ask(tally);
    };
    await Promise.all(Array.from({ length: connections }, client));
    return tally.round();
  }

  /** `rate` a second, whatever comes back. */
  async open(rate: number, tally: Tally): Promise<Round> {
    const started = performance.now();
    const asked: Promise<void>[] = [];
    for (let sent = 0; performance.now() < tally.end; ) {
      const due = ((performance.now() - started) / 1000) * rate;
      tally.maxDelayMs = Math.max(tally.maxDelayMs, ((due - sent) / rate) * 1000);
      for (; sent < due; sent += 1) {
        if (this.#waiting < MAX_WAITING) asked.push(this.#ask(tally));
        else tally.add('failed');
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
      const end = (outcome: Outcome) => {
        if (isOver) return;
        isOver = true;
        this.#waiting -= 1;
        tally.add(outcome, begun);
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

type Outcome = 'good' | 'refused' | 'failed';

/** What ends within `ms`, after a time in which it is not counted. */
class Tally {
  readonly #start = performance.now() + SETTLE_MS;
  readonly end: number;
  /** Longest time by which the sender was behind its plan: far below the patience, or the sender was short of CPU. */
  maxDelayMs = 0;
  readonly #counts = { good: 0, refused: 0, failed: 0 };
  readonly #times: number[] = [];

  constructor(ms: number) {
    this.end = this.#start + ms;
  }

  add(outcome: Outcome, begun = Number.NEGATIVE_INFINITY): void {
    const now = performance.now();
    if (now < this.#start || now >= this.end) return;
    // Timers of a busy sender are late, too.
    const isLate = outcome === 'good' && now - begun > PATIENCE_MS;
    this.#counts[isLate ? 'failed' : outcome] += 1;
    if (outcome === 'good' && !isLate) this.#times.push(now - begun);
  }

  round(): Round {
    const sorted = this.#times.toSorted((a, b) => a - b);
    const at = (share: number) => Math.round(sorted[Math.floor(sorted.length * share)] ?? 0);
    return { ...this.#counts, p50: at(0.5), p99: at(0.99), maxDelayMs: this.maxDelayMs };
  }
}

interface Options {
  readonly runs: number;
  readonly seconds: number;
  /** Percent. */
  readonly share: number;
}

/** One run of one kind: what saturates it, the most that it did at any load, and what it did at the highest, as medians of its rounds. */
async function measure(load: Load, name: string, seconds: number, pid: number): Promise<Sample> {
  const ms = seconds * 1000;
  const saturations: number[] = [];
  const rounds = new Map<number, (Round & { readonly cpu: number })[]>(LOADS.map((times) => [times, []]));
  for (let number = 1; number <= ROUNDS; number += 1) {
    const saturation = (await load.closed(SATURATING, new Tally(ms))).good / seconds;
    saturations.push(saturation);
    tell(`${name}, saturation: ${saturation.toFixed(0)} good a second`);
    for (const [times, those] of rounds) {
      const [before, started] = [cpuMicroseconds(pid), performance.now()];
      const round = await load.open(saturation * times, new Tally(ms));
      const cpu = (cpuMicroseconds(pid) - before) / 1000 / (performance.now() - started);
      those.push({ ...round, cpu });
      tell(
        `${name}, ${times}x: ${(round.good / seconds).toFixed(0)} good a second (p99 ${round.p99} ms), ` +
          `${(round.refused / seconds).toFixed(0)} refused, ${(round.failed / seconds).toFixed(0)} failed or late`,
      );
    }
  }
  const last = rounds.get(LOADS[LOADS.length - 1] ?? Number.NaN) ?? [];
  const medianOf = (field: keyof Round | 'cpu') => figureOf(last.map((round) => round[field])).median;
  const saturation = figureOf(saturations).median;
  const most = Array.from(
    rounds.values(),
    (those) => figureOf(those.map(({ good }) => good)).median / seconds,
  );
  const peak = Math.max(saturation, ...most);
  const good = medianOf('good') / seconds;
  return {
    saturation,
    peak,
    good,
    share: (100 * good) / peak,
    refused: medianOf('refused') / seconds,
    failed: medianOf('failed') / seconds,
    cpu: 100 * medianOf('cpu'),
    behind_ms: Math.max(...last.map(({ maxDelayMs }) => maxDelayMs)),
    p50_ms: medianOf('p50'),
    p99_ms: medianOf('p99'),
  };
}

async function run({ runs, seconds, share }: Options): Promise<Map<string, Sample[]>> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'));
  const processes = new Processes();
  try {
    const { port, pid: upstreamPid } = await startUpstream(processes, 2 * MAX_WAITING);
    const ports = { upstream: port, largeUpstream: port };
    const options = { folder: join(folder, 'gateway'), files: 2 * MAX_WAITING, ...ports };
    const gateway = await startGateway(processes, options);
    const [pid = 0] = gateway.pids;
    const warming = new Load(gateway.url, gateway.key, true);
    await warming.closed(SATURATING, new Tally(WARM_MS));
    warming.close();
    await using _sender = await preferCpu(process.pid);
    await using _upstream = await preferCpu(upstreamPid);
    await using quota = await limitCpu(pid, share / 100);
    tell(`the gateway gets ${share} % of a processor, by ${quota.by}`);
    const results = new Map<string, Sample[]>(Object.keys(KINDS).map((name) => [name, []]));
    for (let number = 1; number <= runs; number += 1) {
      for (const [name, keepAlive] of Object.entries(KINDS)) {
        const load = new Load(gateway.url, gateway.key, keepAlive);
        results.get(name)?.push(await measure(load, `${number}/${runs} ${name}`, seconds, pid));
        load.close();
      }
    }
    return results;
  } finally {
    await processes.stopAll();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @returns the exit code */
async function main(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      runs: { type: 'string', default: `${WHOLE.runs}` },
      seconds: { type: 'string', default: `${WHOLE.seconds}` },
      share: { type: 'string', default: `${WHOLE.share}` },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const number = (name: 'runs' | 'seconds' | 'share') => wholeNumber(name, values[name], 1_000);
  const options = { runs: number('runs'), seconds: number('seconds'), share: number('share') };
  const load = loadBefore();
  const rows = rowsOf(await run(options));
  const section: Section = {
    id: 'overload',
    title: `${LOADS.at(-1)} times saturation`,
    note: '',
    columns: [
      { field: 'saturation', heading: 'saturation, answers/s', digits: 0 },
      { field: 'peak', heading: 'peak at any load', digits: 0 },
      { field: 'good', heading: `in time at ${LOADS.at(-1)}x`, digits: 0 },
      { field: 'share', heading: 'of the peak', digits: 1, unit: ' %' },
      { field: 'refused', heading: 'refused/s', digits: 0 },
      { field: 'failed', heading: 'failed or late/s', digits: 0 },
      { field: 'p99_ms', heading: 'p99 ms', digits: 0 },
      { field: 'cpu', heading: 'of a processor', digits: 0, unit: ' %' },
      { field: 'behind_ms', heading: 'sender behind, ms', digits: 0 },
    ],
    rows,
  };
  process.stdout.write(`\n${tableOf(section)}`);
  const command = ['node bench/overload.ts', ...argv].join(' ');
  if (values.write)
    publishSection(section, { command, load }, circumstances(undefined), isWholeRun(options, WHOLE));
  return rows.every(({ figures }) => (figures['share']?.min ?? 0) >= GOAL) ? 0 : MISSED;
}

process.exitCode = await main(process.argv.slice(2)).catch((error) => {
  tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
  return 1;
});
