// What admitting and settling a request costs, in one scope and in four, each with all limits and budgets: in memory in nanoseconds, in
// Redis as a multiple of one bare round trip in the same run, and the CPU time of both processes; and what two shards of a Cluster carry
// of many holders: `node bench/admission.ts`. Medians of many samples, taken in turns; in memory the least, too.
import type { TierLimits } from '../src/config/limit-table.ts';
import { eachLimit, eachTotal } from '../src/config/limit-table.ts';
import { InitialTotals } from '../src/limits/initial-totals.ts';
import type { Admission } from '../src/limits/limiter.ts';
import { MemoryLimiter } from '../src/limits/memory/memory-limiter.ts';
import { RedisLimiter } from '../src/limits/redis-limiter.ts';
import { makeScope, makeScopes, type Scopes } from '../src/limits/scope.ts';
import { RedisClient } from '../src/redis/redis-client.ts';
import { createLogger } from '../src/telemetry/log/logger.ts';
import { createMetrics } from '../src/telemetry/metrics/all-metrics.ts';
import { type RedisServer, startCluster, startRedis } from '../test/helpers/redis.ts';

/** None is ever reached, so that every request does all of the work. */
const LIMITS: TierLimits = eachLimit(() => 1e12);
const NONE = { set() {}, inc() {}, dec() {} };
const METRICS = {
  limitHolders: NONE,
  limitLeases: createMetrics().requestsInFlight.child({}),
  limitSeedFailures: NONE,
  limitSettlementsDropped: NONE,
};
const AMOUNTS = { tokens: 1000, cost: 1000 };

type ScopesOf = (id: string) => Scopes;

const oneScope: ScopesOf = (id) => makeScopes(id, [makeScope({ kind: 'holder', id }, LIMITS)]);

/** Of a team, with limits of the key and the model. */
const fourScopes: ScopesOf = (id) => {
  const team = `team-${id}`;
  return makeScopes(team, [
    makeScope({ kind: 'holder', id }, LIMITS),
    makeScope({ kind: 'key', lineage: id }, LIMITS),
    makeScope({ kind: 'team', id: team }, LIMITS),
    makeScope({ kind: 'model', holderId: id, model: 'm' }, LIMITS),
  ]);
};

const ONE = oneScope('holder');
const FOUR = fourScopes('member');

function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[sorted.length >> 1] ?? Number.NaN;
}

function settle(admission: Admission): void {
  if (admission.kind === 'refused') throw new Error('the limits of this measurement are never reached');
  admission.lease.settle({ tokens: 900, cost: 900 });
}

const initialTotals = new InitialTotals({
  read: async () => eachTotal(() => 0),
  metrics: METRICS,
});

/** Nanoseconds to admit and settle, in one scope and in four, in short turns, so that what else runs slows both. */
async function inMemory(holders: number): Promise<readonly [number[], number[]]> {
  const sides = [oneScope, fourScopes].map((scopesOf) => ({
    limiter: new MemoryLimiter({ initialTotals, metrics: METRICS }),
    all: Array.from({ length: holders }, (_, number) => scopesOf(`holder-${number}`)),
    samples: Array.of<number>(),
    next: 0,
  }));
  for (const { limiter, all } of sides) for (const each of all) settle(await limiter.admit(each, AMOUNTS));
  const repeats = 2000;
  for (let round = 0; round < 600; round += 1) {
    for (const side of sides) {
      const { limiter, all, samples } = side;
      const start = process.hrtime.bigint();
      for (let number = 0; number < repeats; number += 1, side.next += 1) {
        const admission = limiter.admit(all[side.next % holders] ?? ONE, AMOUNTS);
        if (admission instanceof Promise) throw new Error('every holder of this measurement is known');
        settle(admission);
      }
      if (round >= 100) samples.push(Number(process.hrtime.bigint() - start) / repeats);
    }
  }
  const [one, four] = sides;
  return [one?.samples ?? [], four?.samples ?? []];
}

/** Medians in µs of one call of each, one call at a time, in turns. */
async function compare(works: (() => Promise<unknown>)[]): Promise<number[]> {
  const samples: number[][] = works.map(() => []);
  for (let round = 0; round < 3000; round += 1) {
    for (const [index, work] of works.entries()) {
      const start = process.hrtime.bigint();
      await work();
      if (round >= 500) samples[index]?.push(Number(process.hrtime.bigint() - start) / 1000);
    }
  }
  return samples.map(median);
}

/** The same with 100 under way at once: µs a call. */
async function compareMany(works: (() => Promise<unknown>)[]): Promise<number[]> {
  const samples: number[][] = works.map(() => []);
  for (let round = 0; round < 150; round += 1) {
    for (const [index, work] of works.entries()) {
      const start = process.hrtime.bigint();
      await Promise.all(Array.from({ length: 100 }, work));
      if (round >= 30) samples[index]?.push(Number(process.hrtime.bigint() - start) / 100_000);
    }
  }
  return samples.map(median);
}

async function connect(url: string): Promise<RedisClient> {
  const client = new RedisClient({
    url,
    logger: createLogger(process.stderr, 'warn'),
    commandMs: 5000,
    startMs: 10_000,
  });
  await client.start();
  return client;
}

for (const holders of [1, 1000, 20_000]) {
  const [one, four] = await inMemory(holders);
  for (const [name, of] of [
    ['least', (samples: readonly number[]) => Math.min(...samples)],
    ['median', median],
  ] as const)
    console.log(
      `in memory, ${holders} holders, ${name}: to admit and settle ${of(one).toFixed(0)} ns in one scope, ` +
        `${of(four).toFixed(0)} ns in four: ${(of(four) / of(one)).toFixed(2)}`,
    );
}

await using server = await startRedis();
const client = await connect(server.url);
const limiter = new RedisLimiter({ redis: client, initialTotals, metrics: METRICS });
const ping = () => client.run((redis) => redis.get('nothing'));
const admitIn = async (scopes: Scopes) => settle(await limiter.admit(scopes, AMOUNTS));
const look = () => limiter.peek(ONE);
await admitIn(ONE);
await admitIn(FOUR);
for (const [name, measure] of [
  ['one at a time', compare],
  ['100 at once', compareMany],
] as const) {
  const whole = (scopes: Scopes) => async () => {
    await admitIn(scopes);
    await limiter.settled();
  };
  const [bare = 0, peek = 0, one = 0, four = 0] = await measure([ping, look, whole(ONE), whole(FOUR)]);
  console.log(
    `in Redis, ${name}: a bare GET ${bare.toFixed(0)} µs; a look at the limits ${(peek / bare).toFixed(2)} of it; ` +
      `to admit and, after that, settle ${(one / bare).toFixed(2)} of it in one scope, ${(four / bare).toFixed(2)} in four`,
  );
}

/** CPU time of a server so far, in microseconds. */
async function redisTime(server: RedisServer): Promise<number> {
  const info = String(await server.command('INFO', 'cpu'));
  const seconds = (name: string) => Number(new RegExp(`${name}:([0-9.]+)`).exec(info)?.[1] ?? Number.NaN);
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1e6;
}

const BATCH = 1000;
interface Times {
  readonly scopes: Scopes;
  readonly redis: number[];
  readonly replica: number[];
}

const times = [ONE, FOUR].map((scopes): Times => ({ scopes, redis: [], replica: [] }));
for (let round = 0; round < 15; round += 1) {
  for (const { scopes, redis, replica } of times) {
    const [before, own] = [await redisTime(server), process.cpuUsage()];
    for (let done = 0; done < BATCH; done += 50) {
      await Promise.all(Array.from({ length: 50 }, () => admitIn(scopes)));
      await limiter.settled();
    }
    const { user, system } = process.cpuUsage(own);
    if (round < 3) continue;
    redis.push(((await redisTime(server)) - before) / BATCH);
    replica.push((user + system) / BATCH);
  }
}
for (const { scopes, redis, replica } of times) {
  console.log(
    `in Redis, ${scopes.list.length} of a request's scopes: ${median(redis).toFixed(1)} µs of redis-server, ${median(replica).toFixed(1)} µs of the replica`,
  );
}
await limiter.close();
await client.close();

await using cluster = await startCluster(2);
const clusterClient = await connect(cluster.url);
const clusterLimiter = new RedisLimiter({ redis: clusterClient, initialTotals, metrics: METRICS });

/** Holders of each of the two shards. */
async function holdersByShard(): Promise<readonly [Scopes[], Scopes[]]> {
  const shards: [Scopes[], Scopes[]] = [[], []];
  const [node] = cluster.nodes;
  for (let number = 0; shards.some(({ length }) => length < BATCH); number += 1) {
    const slot = Number(await node?.command('CLUSTER', 'KEYSLOT', `holder-${number}`));
    shards[slot < 8192 ? 0 : 1].push(oneScope(`holder-${number}`));
  }
  return shards;
}

/** CPU time of a request in the busier shard. @param together how many are under way at once */
async function inBusierShard(holders: readonly Scopes[], together: number): Promise<number> {
  const before = await Promise.all(cluster.nodes.map(redisTime));
  for (let start = 0; start < holders.length; start += together) {
    const some = holders.slice(start, start + together);
    await Promise.all(some.map(async (scopes) => settle(await clusterLimiter.admit(scopes, AMOUNTS))));
    await clusterLimiter.settled();
  }
  const after = await Promise.all(cluster.nodes.map(redisTime));
  return Math.max(...after.map((time, index) => time - (before[index] ?? 0))) / holders.length;
}

const [first, second] = await holdersByShard();
const spread = first.slice(0, BATCH / 2).flatMap((scopes, index) => [scopes, second[index] ?? scopes]);
const busier: readonly [number[], number[]] = [[], []];
for (let round = 0; round < 15; round += 1) {
  // Each shard has as many at once.
  const [alone, both] = [await inBusierShard(first.slice(0, BATCH), 50), await inBusierShard(spread, 100)];
  if (round < 3) continue;
  busier[0].push(alone);
  busier[1].push(both);
}
const [alone, both] = [median(busier[0]), median(busier[1])];
console.log(
  `in a Cluster, ${BATCH} holders, each request a call: ${alone.toFixed(1)} µs of the shard that has all of them, ` +
    `${both.toFixed(1)} µs of the busier of two, which carry ${(alone / both).toFixed(2)} times as many requests`,
);
await clusterLimiter.close();
await clusterClient.close();
