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
import { isWholeRun, publishSection } from './publish.ts';
import { requestRound } from './round.ts';
import { type Section, tableOf } from './section.ts';
import { type GatewaySubject, startGateway } from './subjects/gateway.ts';

const USAGE = `node bench/replicas.ts [--replicas N] [--rounds N] [--requests N] [--write]

  --replicas N  most replicas (default 3)
  --rounds N    rounds of each number of replicas (default 7)
  --requests N  requests of a round to each replica (default 8000)
  --write       also write the figures into docs/performance.md

Needs Linux, redis-server and PostgreSQL, which are installed where that is possible.
`;

/** The lengths of a run that counts. */
const WHOLE = { replicas: 3, rounds: 7, requests: 8_000 };
/** All are compared, so all are warm: what is compiled in a replica runs in the process alone, too. */
const WARM_UP_REQUESTS = 50_000;
const ALONE = 'one process, SQLite';
const SECRET = 'a secret of the bench';
const pids = z.array(z.object({ pid: z.number() }));

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

/** The same load on all of them at once. */
async function round(
  { processes }: Bench,
  replicas: readonly GatewaySubject[],
  requests: number,
  shared: Shared | undefined,
): Promise<Sample> {
  const before = await shared?.used();
  const asked = { kind: 'closed', ms: 0, requests, pace: null } as const;
  const connections = Math.ceil(CONCURRENCY / replicas.length);
  const samples = await Promise.all(
    replicas.map((replica) => requestRound(processes, replica, { ...asked, connections })),
  );
  const after = await shared?.used();
  const answered = samples.reduce((sum, sample) => sum + (sample['requests'] ?? 0), 0);
  const costs = samples.reduce((sum, sample) => sum + (sample['cpu_us'] ?? 0), 0);
  const each = (part: 'redis' | 'postgres' | 'commands') =>
    before === undefined || after === undefined ? undefined : (after[part] - before[part]) / answered;
  return {
    cpu_us: costs / replicas.length,
    redis_us: each('redis'),
    postgres_us: each('postgres'),
    commands: each('commands'),
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
  const warm = Math.min(WARM_UP_REQUESTS, 10 * requests);
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
    await warmUp(bench.processes, replica, warm);
    replicas.push(replica);
  }
  await warmUp(bench.processes, bench.gateway, warm);
  const fleets = replicas.map((_, index) => ({
    name: `${index + 1} ${index === 0 ? 'replica' : 'replicas'}`,
    members: replicas.slice(0, index + 1),
    shared,
  }));
  const all = [{ name: ALONE, members: [bench.gateway], shared: undefined }, ...fleets];
  const results = new Map<string, Sample[]>(all.map(({ name }) => [name, []]));
  for (let number = 1; number <= rounds; number += 1) {
    const samples = new Map<string, Sample>();
    for (const { name, members, shared: used } of number % 2 === 1 ? all : all.toReversed()) {
      samples.set(name, await round(bench, members, requests, used));
      tell(`replicas ${number}/${rounds}  ${name}`);
    }
    const alone = samples.get(ALONE)?.['cpu_us'] ?? Number.NaN;
    for (const [name, sample] of samples) {
      const of_one = name === ALONE ? undefined : (sample['cpu_us'] ?? Number.NaN) / alone;
      results.get(name)?.push({ ...sample, of_one });
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
  const number = (name: 'replicas' | 'rounds' | 'requests') => wholeNumber(name, values[name], 1_000_000);
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
