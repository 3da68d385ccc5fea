// What keys cost in a fleet: how soon a revoked key is refused everywhere, what a Redis that hangs adds to a request, what a
// flood of bad keys does to good ones, and how long an emptied Redis takes to warm. `node bench/keys.ts`; `--help` says the rest.

import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { isMainThread, Worker, workerData } from 'node:worker_threads';
import { Pool } from 'undici';
import { type Argon2, Hasher } from '../src/auth/hashing/hasher.ts';
import { openSecret } from '../src/auth/hashing/hashing-secret.ts';
import type { Key } from '../src/auth/key/key.ts';
import { KeyIssuer } from '../src/auth/key-issuer.ts';
import { revokeKey } from '../src/auth/key-revocation.ts';
import { KeyAnnouncer } from '../src/auth/records/key-broadcast.ts';
import { SharedRecords } from '../src/auth/records/shared-records.ts';
import { Fleet as Desk } from '../src/cli/fleet-action.ts';
import { loadConfig } from '../src/config/load-config.ts';
import { publish } from '../src/redis/broadcast.ts';
import { RedisClient } from '../src/redis/redis-client.ts';
import { openStore } from '../src/store/open.ts';
import type { Store } from '../src/store/store.ts';
import { createLogger } from '../src/telemetry/log/logger.ts';
import { createMetrics } from '../src/telemetry/metrics/all-metrics.ts';
import { type Fleet, startFleet } from '../test/helpers/fleet.ts';
import { pause } from '../test/helpers/wait.ts';
import { askCold } from './cold-fleet.ts';
import { wholeNumber } from './options.ts';

const USAGE = `node bench/keys.ts [--replicas N] [--revocations N] [--rounds N] [--json]

  --replicas N      gateway processes on one Redis and one PostgreSQL (default 3)
  --revocations N   (default 1000)
  --rounds N        pairs of phases without and with a flood of bad keys, 4 s each (default 5)
  --cold            only keys that no replica has seen, all at once, with an empty Redis
  --json            figures as JSON on stdout

Needs Linux, redis-server and PostgreSQL. Everything is on loopback and stopped at the end.
`;

const FLOOD_PER_SECOND = 2000;
const PHASE_MS = 4000;
/** After this time without use a key has to be confirmed. */
const STALE_MS = 5200;
const WARM_KEYS = 100;
const COLD_KEYS = 504;

interface Spread {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

function spread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) =>
    Number((sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN).toFixed(2));
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), max: at(1) };
}

/** Progress goes to stderr: stdout is for the figures. */
function tell(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** Status and milliseconds of `GET /v1/models`. */
async function ask(pool: Pool, key: string): Promise<{ readonly status: number; readonly ms: number }> {
  const began = performance.now();
  const { statusCode, body } = await pool.request({
    method: 'GET',
    path: '/v1/models',
    headers: { authorization: `Bearer ${key}` },
  });
  await body.dump();
  return { status: statusCode, ms: performance.now() - began };
}

/** Asks until the answer is another one than 503. */
async function settled(pool: Pool, key: string): Promise<number> {
  for (;;) {
    const { status } = await ask(pool, key);
    if (status !== 503) return status;
    await pause(5);
  }
}

/** One call each `everyMs`, whether or not the former have ended, until `work` has been called `count` times. */
async function paced<T>(count: number, everyMs: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const began = performance.now();
  const all: Promise<T>[] = [];
  for (let index = 0; index < count; index += 1) {
    const early = began + index * everyMs - performance.now();
    if (early > 0) await pause(early);
    all.push(work(index));
  }
  return await Promise.all(all);
}

/** The same hash for every key: for keys that no replica will have to prove. */
const UNPROVED: Argon2 = {
  hash: async () => '$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g',
  verify: async () => false,
};

interface Bench {
  readonly fleet: Fleet;
  readonly pools: Pool[];
  readonly store: Store;
  /** Keys that Redis knows as proved. @param kind `proved` ones can be proved again */
  issue(count: number, kind?: 'proved'): Promise<Key[]>;
}

/** In each process that it starts, bad keys are no reason to refuse the address: they stand for many addresses. */
async function open(stack: AsyncDisposableStack, replicas: number): Promise<Bench> {
  const fleet = stack.use(
    await startFleet({
      replicas,
      gateway: { env: { LOG_LEVEL: 'warn' }, config: { auth: { failures_per_minute: 1_000_000 } } },
    }),
  );
  const [first] = fleet.replicas;
  if (first === undefined) throw new Error('there is no replica');
  const { static: config } = await loadConfig(first.gateway.configFile, {
    TEST_DIR: first.gateway.directory.path,
  });
  const store = await openStore(config.store);
  stack.defer(() => store.close());
  const secret = await openSecret(config.secret, config.store, store);
  const redis = new RedisClient({ url: fleet.redis.url, logger: createLogger(undefined, 'silent') });
  stack.defer(() => redis.close());
  await redis.start();
  const metrics = createMetrics();
  const shared = new SharedRecords({ redis, secret, metrics });
  const announcer = new KeyAnnouncer({ redis, shared, send: (body) => publish(redis, { body }) });
  const issuers = {
    unproved: new KeyIssuer({ store, secret, hasher: new Hasher(metrics, UNPROVED), announcer }),
    proved: new KeyIssuer({ store, secret, hasher: new Hasher(metrics), announcer }),
  };
  const pools = fleet.replicas.map(({ gateway }) => poolOf(gateway.url, stack));
  return {
    fleet,
    pools,
    store,
    async issue(count, kind) {
      const keys: Key[] = [];
      for (let index = 0; index < count; index += 1) {
        keys.push((await issuers[kind ?? 'unproved'].issue({ tier: 'Pro' })).key);
      }
      return keys;
    },
  };
}

function poolOf(url: string, stack: AsyncDisposableStack): Pool {
  const pool = new Pool(new URL(url).origin, { connections: 64, pipelining: 1 });
  stack.defer(() => pool.destroy());
  return pool;
}

/** From the call that revokes until a replica refuses, as a client sees it that asks without pause; and as the command says it. */
async function revocations({ fleet, pools, store, issue }: Bench, count: number) {
  await using desk = await Desk.open(fleet.redis.url);
  const refused: number[] = [];
  const everywhere: number[] = [];
  const acknowledged: number[] = [];
  const returned: number[] = [];
  let unconfirmed = 0;
  let lateAccepts = 0;
  for (let done = 0; done < count; done += 1) {
    const [key] = await issue(1);
    if (key === undefined) throw new Error('no key');
    const text = key.reveal();
    for (const pool of pools) {
      const status = await settled(pool, text);
      if (status !== 200) throw new Error(`a good key is answered ${status}`);
    }
    let confirmedAt = Number.POSITIVE_INFINITY;
    const began = performance.now();
    const polls = pools.map(async (pool) => {
      for (;;) {
        const sentAt = performance.now();
        const { status } = await ask(pool, text);
        if (status === 401) return performance.now() - began;
        if (status === 200 && sentAt > confirmedAt) lateAccepts += 1;
      }
    });
    await revokeKey({ store, announcer: desk.confirmingAnnouncer() }, key.prefix);
    returned.push(performance.now() - began);
    const { result: told } = desk;
    if (told?.kind === 'sent' && told.confirmation.missing.length === 0) {
      confirmedAt = performance.now();
      acknowledged.push(Math.max(...told.confirmation.confirmed.map(({ ms }) => ms)));
    } else unconfirmed += 1;
    const times = await Promise.all(polls);
    refused.push(...times);
    everywhere.push(Math.max(...times));
    if ((done + 1) % 100 === 0) tell(`revocations ${done + 1}/${count}`);
  }
  return {
    refused_by_a_replica_ms: spread(refused),
    refused_by_all_ms: spread(everywhere),
    acknowledged_by_all_ms: spread(acknowledged),
    command_returned_ms: spread(returned),
    unconfirmed,
    accepted_after_acknowledgement: lateAccepts,
  };
}

/** Requests with a key that is known, and with keys that have to be confirmed, before and after Redis is stopped. */
async function pausedRedis({ fleet, pools, issue }: Bench) {
  const [pool] = pools;
  if (pool === undefined) throw new Error('there is no replica');
  const [hot, ...stale] = (await issue(301)).map((key) => key.reveal());
  if (hot === undefined) throw new Error('no key');
  for (const key of [hot, ...stale]) await settled(pool, key);
  await pause(STALE_MS);
  const statuses: Record<string, number> = {};
  const measure = async (from: number) => {
    const answers = await paced(100, 10, async (index) => ({
      cached: await ask(pool, hot),
      confirmed: await ask(pool, stale[from + index] ?? ''),
    }));
    for (const { cached, confirmed } of answers) {
      for (const { status } of [cached, confirmed]) statuses[status] = (statuses[status] ?? 0) + 1;
    }
    return {
      cached_ms: spread(answers.map(({ cached }) => cached.ms)),
      confirmed_ms: spread(answers.map(({ confirmed }) => confirmed.ms)),
    };
  };
  await ask(pool, hot);
  const before = await measure(0);
  fleet.redis.pause();
  try {
    const firstSecond = await measure(100);
    await pause(3000);
    const later = await measure(200);
    return { before, first_second: firstSecond, after_4_s: later, statuses };
  } finally {
    fleet.redis.resume();
  }
}

/** Good keys beside bad ones; phases alternate, so that what drifts hits both. */
async function flood({ fleet, pools, issue }: Bench, rounds: number) {
  const [pool] = pools;
  const url = fleet.replicas[0]?.gateway.url;
  if (pool === undefined || url === undefined) throw new Error('there is no replica');
  const keys = (await issue(50)).map((key) => key.reveal());
  for (const key of keys) await settled(pool, key);
  const verifications = () => fleet.metric('tollgate_argon2_runs_total{purpose="verify"}');
  const before = await verifications();
  const without: number[] = [];
  const beside: number[] = [];
  const goods: Record<string, number> = {};
  const measure = async (into: number[]) => {
    const answers = await paced(PHASE_MS / 10, 10, (index) => ask(pool, keys[index % keys.length] ?? ''));
    for (const { status, ms } of answers) {
      goods[status] = (goods[status] ?? 0) + 1;
      into.push(ms);
    }
  };
  const bad: Record<string, number> = {};
  for (let round = 1; round <= rounds; round += 1) {
    await measure(without);
    const worker = new Worker(new URL(import.meta.url), {
      workerData: { url, prefix: keys[0]?.slice(0, 8) },
    });
    const ended = new Promise<Record<string, number>>((resolve, reject) => {
      worker.once('error', reject);
      worker.on('message', (said: 'begun' | Record<string, number>) => said !== 'begun' && resolve(said));
    });
    await new Promise<void>((resolve) => worker.once('message', () => resolve()));
    await measure(beside);
    worker.postMessage('enough');
    for (const [status, count] of Object.entries(await ended)) bad[status] = (bad[status] ?? 0) + count;
    await worker.terminate();
    tell(`flood ${round}/${rounds}`);
  }
  const sent = Object.values(bad).reduce((sum, count) => sum + count, 0);
  return {
    without_ms: spread(without),
    beside_ms: spread(beside),
    good_statuses: goods,
    bad_statuses: bad,
    bad_per_second: Math.round(sent / ((rounds * PHASE_MS) / 1000)),
    argon2_runs: (await verifications()) - before,
  };
}

/** Sends bad keys at their rate until it is told to stop: random ones, with a prefix that is in use, and one and the same. */
async function runFlood(url: string, prefix: string): Promise<void> {
  const { parentPort } = await import('node:worker_threads');
  const pool = new Pool(new URL(url).origin, { connections: 64, pipelining: 1 });
  const statuses: Record<string, number> = {};
  const count = (status: string) => Object.assign(statuses, { [status]: (statuses[status] ?? 0) + 1 });
  const same = randomBytes(16).toString('hex');
  let isOver = false;
  parentPort?.once('message', () => {
    isOver = true;
  });
  const under = new Set<Promise<void>>();
  const began = performance.now();
  parentPort?.postMessage('begun');
  for (let sent = 0; !isOver; ) {
    // What cannot be sent in time is not sent later.
    const due = Math.floor(((performance.now() - began) / 1000) * FLOOD_PER_SECOND);
    for (; sent < due; sent += 1) {
      if (under.size >= 256) continue;
      const kinds = [randomBytes(16).toString('hex'), prefix + randomBytes(12).toString('hex'), same];
      const one = ask(pool, kinds[sent % 3] ?? same).then(
        ({ status }) => void count(`${status}`),
        () => void count('failed'),
      );
      under.add(one);
      void one.then(() => under.delete(one));
    }
    await pause(1);
  }
  await Promise.all(under);
  await pool.destroy();
  parentPort?.postMessage(statuses);
}

/** From FLUSHALL until every key was accepted once: by a replica that knew them, and by one that has just started. */
async function warming({ fleet, pools, issue }: Bench, stack: AsyncDisposableStack) {
  const keys = (await issue(WARM_KEYS, 'proved')).map((key) => key.reveal());
  const verifications = () => fleet.metric('tollgate_argon2_runs_total{purpose="verify"}');
  const warm = async (all: readonly Pool[]) => {
    const proofs = await verifications();
    const began = performance.now();
    await Promise.all(
      all.flatMap((pool) =>
        Array.from({ length: 4 }, async (_, lane) => {
          for (let index = lane; index < keys.length; index += 4) {
            const status = await settled(pool, keys[index] ?? '');
            if (status !== 200) throw new Error(`a good key is answered ${status}`);
          }
        }),
      ),
    );
    const ms = Math.round(performance.now() - began);
    return { ms, argon2_runs: (await verifications()) - proofs };
  };
  await warm(pools);
  await pause(STALE_MS);
  await fleet.redis.flush();
  const known = await warm(pools);
  const { gateway } = await fleet.join();
  const fresh = poolOf(gateway.url, stack);
  const fromRedis = await warm([fresh]);
  const { gateway: last } = await fleet.join();
  await fleet.redis.flush();
  const unknown = await warm([poolOf(last.url, stack)]);
  return { by_replicas_that_know_them: known, by_a_new_one_from_redis: fromRedis, by_a_new_one: unknown };
}

async function main(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      replicas: { type: 'string', default: '3' },
      revocations: { type: 'string', default: '1000' },
      rounds: { type: 'string', default: '5' },
      cold: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const number = (name: 'replicas' | 'revocations' | 'rounds') => wholeNumber(name, values[name], 100_000);
  await using stack = new AsyncDisposableStack();
  const bench = await open(stack, number('replicas'));
  tell('The fleet runs.');
  const cold = async () =>
    askCold(
      bench.fleet,
      (await bench.issue(COLD_KEYS, 'proved')).map((key) => key.reveal()),
    );
  const report = values.cold
    ? { replicas: number('replicas'), cold: await cold() }
    : {
        replicas: number('replicas'),
        revocation: await revocations(bench, number('revocations')),
        flood: await flood(bench, number('rounds')),
        paused_redis: await pausedRedis(bench),
        cold: await cold(),
        warming: await warming(bench, stack),
      };
  process.stdout.write(values.json ? `${JSON.stringify(report, null, 2)}\n` : lines(report).join('\n'));
  return 0;
}

/** A line for each figure. */
function lines(value: unknown, name = ''): string[] {
  if (typeof value !== 'object' || value === null) return [`${name.padEnd(58)}${String(value)}\n`.trimEnd()];
  const entries = Object.entries(value);
  if ('p99' in value) {
    return [`${name.padEnd(58)}${entries.map(([part, number]) => `${part} ${number}`).join('  ')}`];
  }
  return [
    ...entries.flatMap(([part, inner]) => lines(inner, name === '' ? part : `${name}.${part}`)),
    ...(name === '' ? [''] : []),
  ];
}

if (isMainThread) process.exitCode = await main(process.argv.slice(2));
else await runFlood(workerData.url, workerData.prefix);
