// Calls of reserve.lua: what all of them have in common, and the second one where the script needs totals.
import { setTimeout } from 'node:timers/promises';
import { type RedisClient, RedisCommandError } from '../redis/redis-client.ts';
import type { RedisScript } from '../redis/redis-script.ts';
import type { InitialTotals } from './initial-totals.ts';
import type { TotalsReading } from './limiter.ts';
import { type ReserveAnswer, readReserveAnswer, unexpected } from './reserve-answer.ts';
import { initialTotalsArgs, LUA, scriptScopesOf } from './reserve-script.ts';
import type { Scopes } from './scope.ts';

/** Longer than a settlement waits for a reservation to go with. */
const SETTLED_MS = 500;

type ScriptArgs = readonly (string | number | Buffer)[];

interface ReserveCallsOptions {
  readonly redis: Pick<RedisClient, 'run' | 'script'>;
  readonly initialTotals: InitialTotals;
  /** In milliseconds, as in `RedisLimiterOptions`. */
  readonly windowMs: number;
  readonly leaseMs: number;
  readonly checkMs: number;
}

export class ReserveCalls {
  readonly #options: ReserveCallsOptions;
  readonly #script: RedisScript;
  #connections = 0;

  constructor(options: ReserveCallsOptions) {
    this.#options = options;
    this.#script = options.redis.script({ name: 'reserve', lua: LUA, isBinary: true });
  }

  /** @param again the arguments to which totals are added, where the script needs them */
  async complete(scopes: Scopes, reply: unknown, again: () => ScriptArgs): Promise<ReserveAnswer> {
    const { list } = scopes;
    const { initialTotals, windowMs } = this.#options;
    const answer = readReserveAnswer(reply, list.length, windowMs);
    if ('verdicts' in answer) {
      for (const [index, { isProvisional }] of answer.scopes.entries())
        if (isProvisional) this.#learn(scopes, index);
      return answer;
    }
    const totals = await Promise.all(
      answer.map(async (index) => initialTotalsArgs(index, await initialTotals.read(list[index] ?? list[0]))),
    );
    const seeded = await this.call(scopes, [...again(), ...totals.flat()]);
    const second = readReserveAnswer(seeded, list.length, windowMs);
    if (!('verdicts' in second)) throw unexpected();
    return second;
  }

  /** Redis is back. What was read of the store before may include what replicas have not delivered yet. */
  doubt(): void {
    this.#connections += 1;
  }

  /** Raises the totals of a scope to those of the store, while requests continue. Never throws. @param index of the scope */
  raise(scopes: Scopes, index: number): void {
    const [day, connections] = [dayNow(), this.#connections];
    this.#learn(scopes, index, 'compare', async () => {
      // What the store includes is settled by then.
      await setTimeout(Math.min(SETTLED_MS, this.#options.checkMs), undefined, { ref: false });
      // Totals of the day before must not count in the next one.
      return dayNow() === day && this.#connections === connections ? day : undefined;
    });
  }

  /**
   * Reads totals that were not available, while requests continue.
   * @param index of the scope
   * @param known see `initialTotalsArgs`
   */
  #learn(
    scopes: Scopes,
    index: number,
    reading: TotalsReading = 'first',
    known: () => Promise<number | undefined> = async () => 1,
  ): void {
    const scope = scopes.list[index] ?? scopes.list[0];
    if (this.#options.initialTotals.isBackingOff(scope)) return;
    void this.#options.initialTotals.read(scope, reading).then(async (totals) => {
      const how = totals && (await known());
      if (how === undefined) return;
      const { limits } = scriptScopesOf(scopes);
      const args = ['peek', '', 0, 0, limits, ...initialTotalsArgs(index, totals, how)];
      // A later request tries again.
      await this.call(scopes, args).catch(() => {});
    });
  }

  async call(scopes: Scopes, args: ScriptArgs): Promise<unknown> {
    const { keys } = scriptScopesOf(scopes);
    const { redis, windowMs, leaseMs } = this.#options;
    try {
      return await this.#script(keys, [windowMs, leaseMs, ...args]);
    } catch (error) {
      // A value of another type would stay there for ever.
      if (error instanceof RedisCommandError && error.code === 'WRONGTYPE') {
        await redis.run((commands) => commands.del(...keys)).catch(() => {});
      }
      throw error;
    }
  }
}

/** Since 1970, UTC. */
function dayNow(): number {
  return Math.floor(Date.now() / 86_400_000);
}
