// Limiters for tests, in memory and on a real Redis, with one interface. The test sets the clock, also in Redis, where only the
// line that reads the time is replaced in the script. Counts and totals can be read.

import { eachTotal } from '../../src/config/limit-table.ts';
import { InitialTotals } from '../../src/limits/initial-totals.ts';
import { MemoryLimiter } from '../../src/limits/memory/memory-limiter.ts';
import { RedisLimiter, type RedisLimiterOptions } from '../../src/limits/redis-limiter.ts';
import type { Scope } from '../../src/limits/scope.ts';
import type { RedisClient } from '../../src/redis/redis-client.ts';
import type { HolderTotals } from '../../src/store/usage-record.ts';
import { type RedisServer, startRedis } from '../helpers/redis.ts';
import { type RecordedClient, startClient } from '../redis/recorder.ts';
import { type HolderAdmission, type HolderRejected, OfHolder } from './of-holder.ts';

/** Noon of a day in the middle of a month. */
export const NOON = Date.UTC(2027, 4, 17, 12);
export const DAY = 86_400_000;
export const NOTHING: HolderTotals = eachTotal(() => 0);

/** Totals, of which the rest is 0. */
export const totals = (some: Partial<HolderTotals>): HolderTotals => ({ ...NOTHING, ...some });

export class Counters {
  degraded = 0;
  holders = 0;
  leases = 0;
  seedFailures = 0;
  comparisonFailures = 0;
  readonly dropped: Record<string, number> = {};
  readonly limitsDegraded = {
    set: (value: number) => {
      this.degraded = value;
    },
  };
  readonly limitHolders = {
    set: (value: number) => {
      this.holders = value;
    },
  };
  readonly limitLeases = {
    add: (by: number) => {
      this.leases += by;
    },
  };
  readonly limitSeedFailures = {
    inc: ({ reading }: { reading: 'first' | 'compare' }) => {
      if (reading === 'compare') this.comparisonFailures += 1;
      else this.seedFailures += 1;
    },
  };
  readonly limitSettlementsDropped = {
    inc: ({ reason }: { reason: string }) => {
      this.dropped[reason] = (this.dropped[reason] ?? 0) + 1;
    },
  };
}

/** The usage store, as far as limiters see it. */
export class Store {
  /** By the id of the scope. */
  readonly totals = new Map<string, HolderTotals>();
  asked = 0;
  /** Instead of `totals`, by the id of the scope; may throw. */
  answer: ((id: string) => HolderTotals) | undefined;
  /** Instead of an answer. */
  trouble: (() => Promise<never>) | undefined;
  readonly read = async ({ id }: Scope): Promise<HolderTotals> => {
    this.asked += 1;
    if (this.trouble !== undefined) return await this.trouble();
    if (this.answer !== undefined) return this.answer(id);
    return this.totals.get(id) ?? NOTHING;
  };
}

export interface Rig extends AsyncDisposable {
  readonly limiter: OfHolder;
  readonly counters: Counters;
  readonly store: Store;
  /** After this time without renewal a lease is gone; nothing renews here. */
  readonly leaseMs: number;
  /** Lets time pass. */
  advance(ms: number): Promise<void>;
  /** Sets the clock on the wall: milliseconds since 1970. */
  setWall(ms: number): Promise<void>;
  /** All that was settled has been counted. */
  settled(): Promise<void>;
  /** What the store has said of late is counted. */
  learned(): Promise<void>;
  /** Redis forgets a holder. Only where there is a Redis. */
  readonly flush?: (holder: string) => Promise<void>;
}

export type MakeRig = () => Promise<Rig>;

export function seedsOf(store: Store, counters: Counters, now?: () => number): InitialTotals {
  return new InitialTotals({
    read: store.read,
    metrics: counters,
    deadlineMs: 20_000,
    ...(now ? { now } : {}),
  });
}

export async function memoryRig(
  checkMs = Number.POSITIVE_INFINITY,
): Promise<Rig & { readonly limiter: OfHolder<MemoryLimiter> }> {
  let [now, wall] = [1000, NOON];
  const [counters, store] = [new Counters(), new Store()];
  const initialTotals = seedsOf(store, counters, () => now);
  const limiter = new MemoryLimiter({
    initialTotals,
    metrics: counters,
    now: () => now,
    wallNow: () => wall,
    checkMs,
  });
  return {
    limiter: new OfHolder(limiter),
    counters,
    store,
    leaseMs: Number.POSITIVE_INFINITY,
    async advance(ms) {
      now += ms;
      wall += ms;
    },
    async setWall(ms) {
      wall = ms;
    },
    async settled() {},
    async learned() {
      await new Promise(setImmediate);
    },
    async [Symbol.asyncDispose]() {},
  };
}

export interface RedisRig extends Rig {
  readonly limiter: OfHolder<RedisLimiter>;
  readonly client: RedisClient;
}

const LEASE_MS = 30_000;

/** One server for a file of tests. */
export class RedisSetting {
  readonly server: RedisServer;
  readonly #recorded: RecordedClient;

  static async start(): Promise<RedisSetting> {
    const server = await startRedis();
    return new RedisSetting(server, await startClient(server.url));
  }

  private constructor(server: RedisServer, recorded: RecordedClient) {
    this.server = server;
    this.#recorded = recorded;
  }

  async stop(): Promise<void> {
    await this.#recorded.client.close();
    await this.server.stop();
  }

  async rig(options: Partial<RedisLimiterOptions> = {}): Promise<RedisRig> {
    const { client } = this.#recorded;
    let [now, wall] = [1000, NOON];
    const setWall = async (ms: number) => {
      wall = ms;
      const micros = `${Math.round((ms % 1000) * 1000)}`;
      await client.run((redis) => redis.mset('test:s', Math.floor(ms / 1000), 'test:us', micros));
    };
    await setWall(wall);
    const [counters, store] = [new Counters(), new Store()];
    const limiter = new RedisLimiter({
      redis: withClock(client),
      initialTotals: seedsOf(store, counters, () => now),
      metrics: counters,
      leaseMs: LEASE_MS,
      renewMs: 2 ** 30,
      ...options,
    });
    return {
      limiter: new OfHolder(limiter),
      client,
      counters,
      store,
      leaseMs: LEASE_MS,
      async advance(ms) {
        now += ms;
        await setWall(wall + ms);
      },
      setWall,
      settled: () => limiter.settled(),
      async learned() {
        await new Promise(setImmediate);
        // On one connection: what was asked before has been answered by then.
        await client.run((redis) => redis.ping());
        await new Promise(setImmediate);
      },
      async flush(holder) {
        const stem = `tollgate:limit:{${holder}}`;
        await client.run((redis) => redis.del(`${stem}:holder`, `${stem}:leases`));
      },
      [Symbol.asyncDispose]: () => limiter.close(),
    };
  }
}

export interface Replica extends AsyncDisposable {
  readonly limiter: OfHolder<RedisLimiter>;
  readonly client: RedisClient;
  readonly counters: Counters;
  readonly store: Store;
}

/** A process of a fleet, with a connection of its own and the clock of Redis. It renews nothing unless told to. */
export async function startReplica(
  url: string,
  options: Partial<RedisLimiterOptions> = {},
  commandMs = 20_000,
): Promise<Replica> {
  const { client } = await startClient(url, { commandMs });
  const [counters, store] = [new Counters(), new Store()];
  const initialTotals = seedsOf(store, counters);
  const limiter = new RedisLimiter({
    redis: client,
    initialTotals,
    metrics: counters,
    renewMs: 2 ** 30,
    ...options,
  });
  return {
    limiter: new OfHolder(limiter),
    client,
    counters,
    store,
    async [Symbol.asyncDispose]() {
      await limiter.close();
      await client.close();
    },
  };
}

/** The clock of Redis is two keys that the test sets. */
function withClock(client: RedisClient): RedisLimiterOptions['redis'] {
  return {
    get isUp() {
      return client.isUp;
    },
    run: (work) => client.run(work),
    onUp: (listener) => client.onUp(listener),
    script: ({ lua, ...rest }) => {
      const parts = lua.split("redis.call('TIME')");
      if (parts.length !== 2) throw new Error('the script asks for the time once');
      return client.script({ ...rest, lua: parts.join("redis.call('MGET', 'test:s', 'test:us')") });
    },
  };
}

export function unreachable(): never {
  throw new Error('this cannot be');
}

let holders = 0;

/** A holder that nobody has used yet. */
export function newHolder(): string {
  holders += 1;
  return `holder-${process.pid}-${holders}`;
}

export function admitted(admission: HolderAdmission) {
  if (admission.kind !== 'admitted') throw new Error(`refused by ${admission.limit}`);
  return admission;
}

export function refused(admission: HolderAdmission): HolderRejected {
  if (admission.kind !== 'refused') throw new Error('admitted');
  return admission;
}
