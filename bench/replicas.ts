// What a request costs when several replicas share a Redis and a PostgreSQL: in a replica, in Redis, in PostgreSQL, beside one
// process alone with SQLite. `node bench/replicas.ts`; `--help` says the rest. CPU time alone: a machine with few processors
// cannot show how much more two replicas answer than one.
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { query, startPostgres } from '../test/helpers/postgres.ts';
import { type RedisServer, startRedis } from '../test/helpers/redis.ts';
import { type Bench, CONCURRENCY, tell, warmUp, withBench } from './bench.ts';
import { cpuMicroseconds } from './cpu.ts';
import { rowsOf, type Sample } from './figures.ts';
import { circumstances, loadBefore } from './machine.ts';
import { wholeNumber } from './options.ts';
import type { Processes } from './processes.ts';
import { isWholeRun, publishSection } from './publish.ts';
import { requestRound } from './round.ts';
import { type Section, tableOf } from './section.ts';
import { type GatewaySubject, startGateway, usageWritten } from './subjects/gateway.ts';

const USAGE = `node bench/replicas.ts [--replicas N] [--rounds N] [--requests N] [--write]

  --replicas N  most replicas (default 3)
  --rounds N    rounds of each number of replicas (default 7)
  --requests N  least requests of a round to each process (default 25000)
  --write       also write the figures into docs/performance.md

Needs Linux, redis-server and PostgreSQL, which are installed where that is possible.
`;

/** Least length of a round, so that all end at about the same time. */
const ROUND_MS = 4_000;
/** The lengths of a run that counts. */
const WHOLE = { replicas: 3, rounds: 7, requests: 25_000 };
/** All are compared, so all are warm: with fewer, the threads of the compiler use more than what is compared. */
const WARM_UP_REQUESTS = 100_000;
const ALONE = 'one process, SQLite';
const SECRET = 'a secret of the bench';
const pids = z.array(z.object({ pid: z.number() }));

const nameOf = ({ length }: readonly unknown[]) => `${length} ${length === 1 ? 'replica' : 'replicas'}`;

/** What replicas share, and what it has used so far. */
interface Shared {
  readonly config: Readonly<Record<string, unknown>>;
  /** CPU microseconds of Redis and of PostgreSQL, and commands that Redis has had. */
  used(): Promise<{ readonly redis: number; readonly postgres: number; readonly commands: number }>;
}

async function openShared(stack: AsyncDisposableStack): Promise<Shared> {
  const redis = stack.use(await startRedis());
  const postgres = stack.use(await startPostgres());
  const store = await postgres.createDatabase();
  const redisPid = Number(await infoOf(redis, 'server', 'process_id'));
  return {
    config: { store, redis: redis.url, secret: SECRET },
    async used() {
      const backends = pids.parse(await query(store, 'select pid from pg_stat_activity'));
      // Whoever asked has ended.
      const postgresUsed = backends.map(({ pid }) => usedBy(pid)).reduce((sum, used) => sum + used, 0);
      const commands = Number(await infoOf(redis, 'stats', 'total_commands_processed'));
      return { redis: cpuMicroseconds(redisPid), postgres: postgresUsed, commands };
    },
  };
}

async function infoOf(redis: RedisServer, section: string, field: string): Promise<string | undefined> {
  return new RegExp(`^${field}:(\\d+)`, 'm').exec(String(await redis.command('INFO', section)))?.[1];
}

function usedBy(pid: number): number {
  try {
    return cpuMicroseconds(pid);
  } catch {
    return 0;
  }
}

interface Load {
  readonly connections: number;
  readonly requests: number;
}

/** Loads one gateway until its store has all usage: a round pays for what it causes, but not for an attempt that is repeated. */
async function loadOn(processes: Processes, gateway: GatewaySubject, load: Load) {
  const used = () => gateway.pids.reduce((sum, pid) => sum + cpuMicroseconds(pid), 0);
  const asked = { kind: 'closed', ms: ROUND_MS, pace: null, ...load } as const;
  const { requests, cpu_us } = await requestRound(processes, gateway, asked);
  const ended = used();
  await usageWritten(gateway);
  const answered = requests ?? 0;
  return { answered, cpu: answered * (cpu_us ?? Number.NaN) + used() - ended };
}

/** The same load on the process alone and on each replica, all at once, so that what else the machine does concerns all alike. */
async function round(
  { processes, gateway }: Bench,
  replicas: readonly GatewaySubject[],
  requests: number,
  shared: Shared,
): Promise<{ readonly alone: Sample; readonly fleet: Sample & { readonly of_one: number } }> {
  const load = { connections: Math.ceil(CONCURRENCY / replicas.length), requests };
  await Promise.all([gateway, ...replicas].map(usageWritten));
  const before = await shared.used();
  const [alone, ...ofReplicas] = await Promise.all([
    loadOn(processes, gateway, load),
    ...replicas.map((each) => loadOn(processes, each, load)),
  ]);
  const after = await shared.used();
  const answered = ofReplicas.reduce((sum, each) => sum + each.answered, 0);
  const aloneCpu = alone.cpu / alone.answered;
  const fleetCpu = ofReplicas.reduce((sum, { cpu }) => sum + cpu, 0) / answered;
  return {
    alone: { cpu_us: aloneCpu },
    fleet: {
      cpu_us: fleetCpu,
      of_one: fleetCpu / aloneCpu,
      redis_us: (after.redis - before.redis) / answered,
      postgres_us: (after.postgres - before.postgres) / answered,
      commands: (after.commands - before.commands) / answered,
    },
  };
}

interface Options {
  readonly replicas: number;
  readonly rounds: number;
  readonly requests: number;
}

async function measure(bench: Bench, { replicas: most, rounds, requests }: Options): Promise<Section> {
  await using stack = new AsyncDisposableStack();
  const shared = await openShared(stack);
  const warm = Math.min(WARM_UP_REQUESTS, 4 * requests);
  const replicas: GatewaySubject[] = [];
  for (let number = 1; number <= most; number += 1) {
    const [first] = replicas;
    const replica = await startGateway(bench.processes, {
      folder: join(bench.folder, `replica-${number}`),
      upstream: bench.upstream.port,
      largeUpstream: bench.largeUpstream.port,
      config: shared.config,
      ...(first === undefined ? {} : { key: first.key }),
    });
    replicas.push(replica);
  }
  for (const each of [bench.gateway, ...replicas]) await warmUp(bench.processes, each, warm);
  const fleets = replicas.map((_, index) => replicas.slice(0, index + 1));
  const results = new Map<string, Sample[]>([ALONE, ...fleets.map(nameOf)].map((name) => [name, []]));
  for (let number = 1; number <= rounds; number += 1) {
    for (const fleet of number % 2 === 1 ? fleets : fleets.toReversed()) {
      const measured = await round(bench, fleet, requests, shared);
      results.get(nameOf(fleet))?.push(measured.fleet);
      if (fleet.length === 1) results.get(ALONE)?.push(measured.alone);
      tell(
        `replicas ${number}/${rounds}  ${nameOf(fleet)}: ${measured.fleet.of_one.toFixed(2)} of one process`,
      );
    }
  }
  return {
    id: 'replicas',
    title: 'CPU time of a request',
    note: '',
    columns: [
      { field: 'cpu_us', heading: 'in a replica µs', digits: 1 },
      { field: 'of_one', heading: 'of one process', digits: 2, unit: 'x' },
      { field: 'redis_us', heading: 'in Redis µs', digits: 1 },
      { field: 'commands', heading: 'commands of Redis, with those in scripts', digits: 2 },
      { field: 'postgres_us', heading: 'in PostgreSQL µs', digits: 1 },
    ],
    rows: rowsOf(results),
  };
}

async function main(argv: string[]): Promise<void> {
  const { values } = parseArgs({
    args: argv,
    options: {
      replicas: { type: 'string', default: `${WHOLE.replicas}` },
      rounds: { type: 'string', default: `${WHOLE.rounds}` },
      requests: { type: 'string', default: `${WHOLE.requests}` },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const number = (name: keyof Options) => wholeNumber(name, values[name], 1_000_000);
  const options = { replicas: number('replicas'), rounds: number('rounds'), requests: number('requests') };
  const lengths = { rounds: options.rounds, seconds: 1 };
  const load = loadBefore();
  const section = await withBench({ ...lengths, peer: false, warmUpRequests: 64 }, (bench) =>
    measure(bench, options),
  );
  process.stdout.write(`\n${tableOf(section)}`);
  const command = ['node bench/replicas.ts', ...argv].join(' ');
  if (values.write)
    publishSection(section, { command, load }, circumstances(undefined), isWholeRun(options, WHOLE));
}

await main(process.argv.slice(2)).catch((error) => {
  tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
});
