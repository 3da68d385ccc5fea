// What a second worker adds: throughput of one worker, of two workers and of two replicas, each with the same part of a processor, so that load
// generator and upstream do not compete with them and a machine with two processors is enough; and how evenly workers are loaded.
// `node bench/workers.ts`; `--help` says the rest.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startRedis } from '../test/helpers/redis.ts';
import { limitCpu } from '../test/process/cpu-quota.ts';
import { type Bench, CONCURRENCY, tell, warmUp, withBench } from './bench.ts';
import { fillBlocks } from './blocks.ts';
import { childrenOf } from './cpu.ts';
import { rowsOf, type Sample } from './figures.ts';
import { circumstances, describe } from './machine.ts';
import { wholeNumber } from './options.ts';
import { requestRound } from './round.ts';
import { type Section, tableOf } from './section.ts';
import { type GatewaySubject, startGateway } from './subjects/gateway.ts';

const USAGE = `node bench/workers.ts [--rounds N] [--seconds N] [--share N] [--write]

  --rounds N   rounds of each kind (default 5)
  --seconds N  length of a round (default 4)
  --share N    percent of a processor that each worker or replica gets (default 30)
  --write      also write the figures into docs/performance.md

Needs Linux, redis-server, and the right to make control groups (root).
`;

const WARM_UP = 20_000;
const ONE = 'one process';

/** Gateways that are asked together. */
interface Kind {
  readonly name: string;
  readonly members: readonly GatewaySubject[];
  /** Without the primary, which serves nobody. */
  readonly serving: readonly number[];
}

/** @returns the kinds, each serving process with its part of a processor */
async function startKinds(bench: Bench, stack: AsyncDisposableStack, share: number): Promise<Kind[]> {
  const redis = stack.use(await startRedis());
  const start = async (name: string, workers: number, key?: string): Promise<GatewaySubject> => {
    const gateway = await startGateway(bench.processes, {
      folder: join(bench.folder, name),
      upstream: bench.upstream.port,
      largeUpstream: bench.largeUpstream.port,
      config: { redis: redis.url, workers },
      ...(key === undefined ? {} : { key }),
    });
    await warmUp(bench.processes, gateway, WARM_UP * workers);
    return gateway;
  };
  const one = await start('one', 1);
  const two = await start('two', 2);
  const replicas = [one, await start('other', 1)];
  const workers = two.pids.flatMap(childrenOf);
  if (workers.length !== 2) throw new Error(`there are ${workers.length} workers`);
  const all = [...replicas.flatMap(({ pids }) => pids), ...workers];
  for (const pid of all) stack.use(await limitCpu(pid, share / 100));
  return [
    { name: ONE, members: [one], serving: one.pids },
    { name: 'two workers', members: [two], serving: workers },
    { name: 'two replicas, even connections', members: replicas, serving: all.slice(0, 2) },
  ];
}

async function round({ processes, folder }: Bench, kind: Kind, seconds: number): Promise<Sample> {
  const connections = CONCURRENCY / kind.members.length;
  const asked = { kind: 'closed', connections, ms: seconds * 1000, requests: 1, pace: null } as const;
  const samples = await Promise.all(
    kind.members.map(({ pids: _all, ...member }) =>
      requestRound(processes, { ...member, pids: kind.serving }, asked),
    ),
  );
  const sum = (field: string) => samples.reduce((total, sample) => total + (sample[field] ?? 0), 0);
  const [member] = kind.members;
  return {
    per_second: sum('per_second'),
    p50_ms: Math.max(...samples.map((sample) => sample['p50_ms'] ?? Number.NaN)),
    p99_ms: Math.max(...samples.map((sample) => sample['p99_ms'] ?? Number.NaN)),
    busier_percent:
      kind.serving.length === 2 && kind.members.length === 1 && member !== undefined
        ? busierShare(readFileSync(join(folder, 'two', 'access.log'), 'utf8'))
        : undefined,
  };
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
}

async function measure(bench: Bench, { rounds, seconds, share }: Options): Promise<Section> {
  await using stack = new AsyncDisposableStack();
  const kinds = await startKinds(bench, stack, share);
  const results = new Map<string, Sample[]>(kinds.map(({ name }) => [name, []]));
  for (let number = 1; number <= rounds; number += 1) {
    const samples = new Map<string, Sample>();
    for (const kind of number % 2 === 1 ? kinds : kinds.toReversed()) {
      const sample = await round(bench, kind, seconds);
      samples.set(kind.name, sample);
      tell(`workers ${number}/${rounds}  ${kind.name}  ${sample['per_second']?.toFixed(0)} a second`);
    }
    const one = samples.get(ONE)?.['per_second'] ?? Number.NaN;
    for (const [name, sample] of samples) {
      const of_one = name === ONE ? undefined : (sample['per_second'] ?? Number.NaN) / one;
      results.get(name)?.push({ ...sample, of_one });
    }
  }
  return {
    id: 'workers',
    title: `${share} % of a processor each`,
    note: '',
    columns: [
      { field: 'per_second', heading: 'requests/s', digits: 0 },
      { field: 'of_one', heading: 'of one process', digits: 2, unit: 'x' },
      { field: 'busier_percent', heading: 'requests of the busier worker', digits: 0, unit: ' %' },
      { field: 'p50_ms', heading: 'p50 ms', digits: 1 },
      { field: 'p99_ms', heading: 'p99 ms', digits: 1 },
    ],
    rows: rowsOf(results),
  };
}

async function main(argv: string[]): Promise<void> {
  const { values } = parseArgs({
    args: argv,
    options: {
      rounds: { type: 'string', default: '5' },
      seconds: { type: 'string', default: '4' },
      share: { type: 'string', default: '30' },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const number = (name: 'rounds' | 'seconds' | 'share') => wholeNumber(name, values[name], 1_000);
  const options = { rounds: number('rounds'), seconds: number('seconds'), share: number('share') };
  const section = await withBench({ ...options, peer: false, warmUpRequests: 64 }, (bench) =>
    measure(bench, options),
  );
  process.stdout.write(`\n${tableOf(section)}`);
  if (values.write) {
    const command = ['node bench/workers.ts', ...argv].join(' ');
    fillBlocks({
      workers: `${tableOf(section)}\nFrom \`${command}\`: ${describe(circumstances(undefined))}.`,
    });
  }
}

if (import.meta.main) {
  await main(process.argv.slice(2)).catch((error) => {
    tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  });
}
