// What a second worker adds: one process, two workers and two replicas, each serving process with the same small part of a processor, so
// that a machine with two processors is enough. All are loaded at the same time: the compiler's state, the caches and what else the
// machine does concern all alike, which rounds one after the other do not achieve. And how evenly workers are loaded.
// `node bench/workers.ts`; `--help` says the rest.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { startRedis } from '../test/helpers/redis.ts';
import { limitCpu, PERIOD_MS } from '../test/process/cpu-quota.ts';
import { type Bench, tell, withBench } from './bench.ts';
import { childrenOf, cpuMicroseconds } from './cpu.ts';
import { rowsOf, type Sample } from './figures.ts';
import { circumstances, loadBefore } from './machine.ts';
import { wholeNumber } from './options.ts';
import { isWholeRun, publishSection } from './publish.ts';
import { requestRound } from './round.ts';
import { type Section, tableOf } from './section.ts';
import { type GatewaySubject, startGateway } from './subjects/gateway.ts';

const USAGE = `node bench/workers.ts [--rounds N] [--seconds N] [--share N] [--warm N] [--write]

  --rounds N   rounds (default 5)
  --seconds N  length of a round (default 6)
  --share N    percent of a processor that each serving process gets (default 20)
  --warm N     seconds of load on all, without a quota, before the first round (default 60)
  --write      also write the figures into docs/performance.md

Needs Linux, redis-server, and the right to make control groups (root).
`;

/** The lengths of a run that counts. */
const WHOLE = { rounds: 5, seconds: 6, share: 20, warm: 60 };
const ONE = 'one process';
const FEW = { connections: 8, requests: 200 };
/** For each serving process. Two workers accept all of theirs at once: more may be rejected, as too many that wait are. */
const CONNECTIONS = 24;
/** A process that uses less of its quota was short of something else: other programs, the load generator, the upstream. */
const MIN_USED = 0.9;
/** Of load during which the quotas begin: the periods of a process that rests end. */
const LIMITING_SECONDS = 2;
/** Rounds, of each that counts, after which the machine is too busy. */
const MAX_TRIES = 3;

/** Gateways that are compared with others. */
interface Kind {
  readonly name: string;
  readonly members: readonly GatewaySubject[];
  readonly serving: readonly number[];
  /** Primaries, which serve nobody and have no quota. */
  readonly others: readonly number[];
}

async function startKinds(bench: Bench, stack: AsyncDisposableStack): Promise<Kind[]> {
  const redis = stack.use(await startRedis());
  const start = async (name: string, workers: number): Promise<GatewaySubject> => {
    const gateway = await startGateway(bench.processes, {
      folder: join(bench.folder, name),
      upstream: bench.upstream.port,
      largeUpstream: bench.largeUpstream.port,
      // Whoever waits for its quota is late, and is to serve all the same.
      config: { redis: redis.url, workers, overload: { event_loop_delay: 'off' } },
    });
    // The key is hashed once, before many ask with it.
    await requestRound(bench.processes, gateway, { ...FEW, kind: 'closed', ms: 0, pace: null });
    return gateway;
  };
  const one = await start('one', 1);
  const two = await start('two', 2);
  const replicas = [await start('first', 1), await start('second', 1)];
  const workers = two.pids.flatMap(childrenOf);
  if (workers.length !== 2) throw new Error(`there are ${workers.length} workers`);
  return [
    { name: ONE, members: [one], serving: one.pids, others: [] },
    { name: 'two workers', members: [two], serving: workers, others: two.pids },
    { name: 'two replicas', members: replicas, serving: replicas.flatMap(({ pids }) => pids), others: [] },
  ];
}

/**
 * Gives each its share in another part of the quotas' period. If all used theirs at the same time, they would take processors from each other
 * and from the load generator, and the cost of a request would depend on whose share begins first.
 */
async function limitInTurn(
  pids: readonly number[],
  share: number,
  stack: AsyncDisposableStack,
): Promise<void> {
  const started = performance.now();
  for (const [index, pid] of pids.entries()) {
    await sleep(started + (PERIOD_MS * (index + 1)) / pids.length - performance.now());
    stack.use(await limitCpu(pid, share));
  }
}

/** Every serving process gets as many connections: a larger batch of requests costs less for each. */
async function round({ processes, folder }: Bench, kind: Kind, seconds: number): Promise<Sample> {
  const { members, serving, others } = kind;
  const connections = (CONNECTIONS * serving.length) / members.length;
  const asked = { kind: 'closed', connections, ms: seconds * 1000, requests: 1, pace: null } as const;
  const before = [...serving, ...others].map(cpuMicroseconds);
  const samples = await Promise.all(members.map((member) => requestRound(processes, member, asked)));
  const used = [...serving, ...others].map((pid, index) => cpuMicroseconds(pid) - (before[index] ?? 0));
  const sum = (field: string) => samples.reduce((total, sample) => total + (sample[field] ?? 0), 0);
  return {
    per_second: sum('per_second'),
    cpu_us: used.reduce((total, each) => total + each) / sum('requests'),
    used_percent: (100 * Math.min(...used.slice(0, serving.length))) / (seconds * 1e6),
    p50_ms: Math.max(...samples.map((sample) => sample['p50_ms'] ?? Number.NaN)),
    p99_ms: Math.max(...samples.map((sample) => sample['p99_ms'] ?? Number.NaN)),
    busier_percent:
      others.length === 0 ? undefined : busierShare(readFileSync(join(folder, 'two', 'access.log'), 'utf8')),
  };
}

/** Kinds with a process that used less of a processor than its quota allows: the round says nothing about them. */
export function starvedKinds(samples: ReadonlyMap<string, Sample>, share: number): string[] {
  return Array.from(samples)
    .filter(([, sample]) => (sample['used_percent'] ?? 0) < share * MIN_USED)
    .map(([name]) => name);
}

/** Percent of the requests of an access log that the busier of two workers answered. */
export function busierShare(log: string): number {
  const counts = [0, 0];
  for (const [, worker] of log.matchAll(/"worker":([12])\b/g)) {
    const index = Number(worker) - 1;
    counts[index] = (counts[index] ?? 0) + 1;
  }
  const [first = 0, second = 0] = counts;
  return (100 * Math.max(first, second)) / (first + second);
}

interface Options {
  readonly rounds: number;
  readonly seconds: number;
  readonly share: number;
  readonly warm: number;
}

async function measure(bench: Bench, { rounds, seconds, share, warm }: Options): Promise<Section> {
  await using stack = new AsyncDisposableStack();
  const kinds = await startKinds(bench, stack);
  // All until the same moment: those that rested after their warm-up compiled again in the first rounds.
  await Promise.all(kinds.map((kind) => round(bench, kind, warm)));
  const pids = kinds.flatMap(({ serving }) => serving);
  const load = kinds.map((kind) => round(bench, kind, LIMITING_SECONDS));
  await Promise.all([limitInTurn(pids, share / 100, stack), ...load]);
  const results = new Map<string, Sample[]>(kinds.map(({ name }) => [name, []]));
  let tries = 0;
  for (let number = 1; number <= rounds; ) {
    if (++tries > rounds * MAX_TRIES) throw new Error('this machine is too busy: see the rounds left out');
    const samples = new Map(
      await Promise.all(kinds.map(async (kind) => [kind.name, await round(bench, kind, seconds)] as const)),
    );
    const starved = starvedKinds(samples, share);
    if (starved.length > 0) {
      tell(`workers: a round is left out, because of ${starved.join(' and ')} less than the quota was used`);
      continue;
    }
    const one = samples.get(ONE)?.['per_second'] ?? Number.NaN;
    for (const [name, sample] of samples) {
      const of_one = name === ONE ? undefined : (sample['per_second'] ?? Number.NaN) / one;
      results.get(name)?.push({ ...sample, of_one });
      tell(`workers ${number}/${rounds}  ${name}  ${sample['per_second']?.toFixed(0)} a second`);
    }
    number += 1;
  }
  return {
    id: 'workers',
    title: `${share} % of a processor each`,
    note: '',
    columns: [
      { field: 'per_second', heading: 'requests/s', digits: 0 },
      { field: 'of_one', heading: 'of one process', digits: 2, unit: 'x' },
      { field: 'cpu_us', heading: 'CPU µs/request', digits: 0 },
      { field: 'busier_percent', heading: 'requests of the busier worker', digits: 0, unit: ' %' },
      { field: 'p50_ms', heading: 'p50 ms', digits: 0 },
      { field: 'p99_ms', heading: 'p99 ms', digits: 0 },
    ],
    rows: rowsOf(results),
  };
}

async function main(argv: string[]): Promise<void> {
  const { values } = parseArgs({
    args: argv,
    options: {
      rounds: { type: 'string', default: `${WHOLE.rounds}` },
      seconds: { type: 'string', default: `${WHOLE.seconds}` },
      share: { type: 'string', default: `${WHOLE.share}` },
      warm: { type: 'string', default: `${WHOLE.warm}` },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const number = (name: 'rounds' | 'seconds' | 'share' | 'warm') => wholeNumber(name, values[name], 1_000);
  const options = {
    rounds: number('rounds'),
    seconds: number('seconds'),
    share: number('share'),
    warm: number('warm'),
  };
  const load = loadBefore();
  const section = await withBench({ ...options, peer: false, warmUpRequests: 64 }, (bench) =>
    measure(bench, options),
  );
  process.stdout.write(`\n${tableOf(section)}`);
  const command = ['node bench/workers.ts', ...argv].join(' ');
  if (values.write)
    publishSection(section, { command, load }, circumstances(undefined), isWholeRun(options, WHOLE));
}

if (import.meta.main) {
  await main(process.argv.slice(2)).catch((error) => {
    tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  });
}
