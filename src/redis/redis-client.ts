// Redis for commands: every call ends within its deadline, and while Redis is away calls are refused at once. There is one
// connection at a time. When an answer is late, no request waits for further ones until Redis has proved in the background that it is
// in time again; a connection that stays late, or fails, is given up as a whole, and another one is made and proven. No call
// waits for that, and none is sent twice. What is kept in Redis is the callers' matter.
import { createHash } from 'node:crypto';
import { type RedisAddress, redisHosts } from '../config/schema/redis-address.ts';
import { startDeadline } from '../deadline.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { parseRedisUrl } from './open-redis.ts';
import { Backoff } from './reconnect-backoff.ts';
import { DeadlinePassed, inTime, pause } from './redis-deadline.ts';
import { classifyError, plainError, RedisUnavailable } from './redis-fault.ts';
import { type RedisCommands, RedisLink } from './redis-link.ts';

export { RedisCommandError, RedisUnavailable } from './redis-fault.ts';
export type { RedisCommands } from './redis-link.ts';

/** How a call ended: `ok`, `error` (Redis refused this command), or a reason of `RedisUnavailable`. */
export type CallResult = 'ok' | 'error' | RedisUnavailable['reason'];

/** Where the client counts. */
interface RedisMetrics {
  /** Once at the start (false), then at each change. */
  onState(up: boolean): void;
  onCall(outcome: CallResult): void;
}

export interface RedisClientOptions {
  /** In a form of `readRedisAddress`. */
  readonly url: string;
  readonly logger: Logger;
  readonly metrics?: RedisMetrics;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** From 0 (included) to 1 (excluded). */
  readonly random?: () => number;
  /** Deadline of a call, and of the write that proves a connection, in milliseconds. Default 100. */
  readonly commandMs?: number;
  /** Longest time for a connection to be accepted. Default 1 s. */
  readonly connectMs?: number;
  /** `start` waits no longer. Default 1 s. */
  readonly startMs?: number;
  /** Wait before the first try of an outage, doubled from try to try … Default 50 ms. */
  readonly firstRetryMs?: number;
  /** … up to this. Default 1 s. */
  readonly longestRetryMs?: number;
  /** A connection that is late for so long is given up, in milliseconds. Default: ten deadlines of a call. */
  readonly lateMs?: number;
  /** How often a connection is proven again while it is up, so that an outage is known before a request meets it. Default 1 s. */
  readonly heartbeatMs?: number;
  /** An outage so long after the last one begins with the first wait again. Default 10 s. */
  readonly calmMs?: number;
  /** Most calls under way; more are refused. Default 10,000. */
  readonly maxCalls?: number;
}

interface ScriptOptions {
  /** For errors: it is not sent. */
  readonly name: string;
  readonly lua: string;
  /** How many keys it takes. */
  readonly keys: number;
}

/**
 * Runs a script as one call of `run`, with the same errors. What it gives is for the caller to narrow: Lua's `nil` and `false`
 * come as null, `true` as 1, numbers as integers.
 */
export type RedisScript = (keys: readonly string[], args?: readonly (string | number)[]) => Promise<unknown>;

/** An answer that was late tells for so long that Redis is there, in milliseconds. */
const HEARD_MS = 3000;
/** Most answers in time, one after the other, until a Redis that was late now and then is believed to be in time. */
const MAX_PROOFS = 5;

/** A call under way. */
type End = (error: RedisUnavailable) => void;

export class RedisClient {
  readonly #address: RedisAddress;
  readonly #logger: Logger;
  readonly #metrics: RedisMetrics | undefined;
  readonly #backoff: Backoff;
  readonly #now: () => number;
  readonly #limits: Readonly<
    Record<'commandMs' | 'connectMs' | 'startMs' | 'lateMs' | 'heartbeatMs' | 'calmMs' | 'maxCalls', number>
  >;
  readonly #upListeners = new Set<() => void>();
  readonly #downListeners = new Set<() => void>();
  readonly #closing = new AbortController();
  /** Those of the present connection. Whoever leaves this set has ended. */
  readonly #calls = new Set<End>();
  /** Undefined: Redis is away. */
  #link: RedisLink | undefined;
  /** The connection is there, and an answer was late. */
  #isOverdue = false;
  /** How often that happened of late, and when it did last. */
  #overdue = { times: 0, at: Number.NEGATIVE_INFINITY };
  /** When an answer came last that was late. */
  #heardAt = Number.NEGATIVE_INFINITY;
  #cause: Error = new Error('not connected yet');
  #heartbeat: NodeJS.Timeout | undefined;
  /** Ends when connected, or closed. */
  #connecting: Promise<void> | undefined;

  /** @throws Error when the URL has none of the forms; the text does not quote it */
  constructor(options: RedisClientOptions) {
    this.#address = parseRedisUrl(options.url);
    this.#logger = options.logger;
    this.#metrics = options.metrics;
    const commandMs = options.commandMs ?? 100;
    this.#now = options.now ?? (() => performance.now());
    this.#limits = {
      commandMs,
      lateMs: options.lateMs ?? 10 * commandMs,
      calmMs: options.calmMs ?? 10_000,
      connectMs: options.connectMs ?? 1000,
      startMs: options.startMs ?? 1000,
      heartbeatMs: options.heartbeatMs ?? 1000,
      maxCalls: options.maxCalls ?? 10_000,
    };
    this.#backoff = new Backoff({
      firstMs: options.firstRetryMs ?? 50,
      longestMs: options.longestRetryMs ?? 1000,
      calmMs: options.calmMs ?? 10_000,
      now: this.#now,
      random: options.random ?? Math.random,
    });
  }

  /** Calls are being let through. */
  get isUp(): boolean {
    return this.#link !== undefined && !this.#isOverdue;
  }

  /** Redis answers, but not in time: it is known to be there, and calls are refused. */
  get isLate(): boolean {
    return this.#link === undefined ? this.#now() - this.#heardAt < HEARD_MS : this.#isOverdue;
  }

  /** Called each time Redis takes calls again, the first time included. Returns what ends that. */
  onUp(listener: () => void): () => void {
    this.#upListeners.add(listener);
    return () => this.#upListeners.delete(listener);
  }

  /** Called each time Redis turns out to be late or away after it took calls. Returns what ends that. */
  onDown(listener: () => void): () => void {
    this.#downListeners.add(listener);
    return () => this.#downListeners.delete(listener);
  }

  /** Begins to connect, for ever. Resolves when connected or after `startMs`; never rejects. */
  async start(): Promise<void> {
    if (this.#connecting === undefined && !this.#closing.signal.aborted) {
      this.#metrics?.onState(false);
      this.#connecting = this.#connect(0);
    }
    await inTime(this.#connecting ?? Promise.resolve(), 'Redis', this.#limits.startMs).catch(() => {});
  }

  /**
   * Lets `work` ask Redis. All that it asks has one deadline together. What `work` itself throws is passed on.
   * @throws RedisUnavailable at once while Redis is late or away, and at the latest after `commandMs`
   * @throws RedisCommandError when Redis refuses a command of it
   */
  run<T>(work: (redis: RedisCommands) => Promise<T>): Promise<T> {
    const link = this.#link;
    if (link === undefined || this.#isOverdue) return Promise.reject(this.#refuse());
    if (this.#calls.size >= this.#limits.maxCalls) {
      this.#metrics?.onCall('overload');
      return Promise.reject(new RedisUnavailable('overload', 'too many calls to Redis are under way'));
    }
    return new Promise<T>((resolve, reject) => {
      const { commandMs } = this.#limits;
      const end = (outcome: CallResult, settle: () => void) => {
        if (!this.#calls.delete(fail)) return;
        stop();
        this.#metrics?.onCall(outcome);
        settle();
      };
      const fail: End = (error) => end(error.reason, () => reject(error));
      const stop = startDeadline(commandMs, () => void this.#isLateOn(link));
      this.#calls.add(fail);
      const onError = (error: unknown) => {
        // It may have been ended already, together with its connection.
        if (!this.#calls.has(fail)) return;
        const verdict = classifyError(error);
        if (verdict.kind === 'away') this.#lose(link, 'lost', verdict.cause);
        else end('error', () => reject(verdict.kind === 'command' ? verdict.error : error));
      };
      try {
        work(link.commands).then((value) => end('ok', () => resolve(value)), onError);
      } catch (error) {
        onError(error);
      }
    });
  }

  /** A script of Lua, sent by its digest, and in full where Redis does not know it (yet, or any more). */
  script({ name, lua, keys: count }: ScriptOptions): RedisScript {
    const digest = createHash('sha1').update(lua).digest('hex');
    return async (keys, args = []) => {
      if (keys.length !== count) throw new TypeError(`the script ${name} takes ${count} keys`);
      return await this.run(async (redis) => {
        try {
          return await redis.evalsha(digest, count, ...keys, ...args);
        } catch (error) {
          const verdict = classifyError(error);
          // It has not run, so that this is no second time.
          if (verdict.kind !== 'command' || verdict.error.code !== 'NOSCRIPT') throw error;
          return await redis.eval(lua, count, ...keys, ...args);
        }
      });
    };
  }

  /** Refuses further calls, lets those under way end, which they do within their deadline, and gives up the connection. */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new RedisUnavailable('closed', 'the Redis client was closed'));
    const link = this.#link;
    this.#link = undefined;
    clearInterval(this.#heartbeat);
    if (link !== undefined) {
      this.#metrics?.onState(false);
      await this.#drain();
      link.destroy();
    }
    await this.#connecting;
  }

  /** Resolves when no call is under way, or their deadline is over. */
  async #drain(): Promise<void> {
    const { commandMs } = this.#limits;
    const until = performance.now() + commandMs;
    while (this.#calls.size > 0 && performance.now() < until) await pause(5);
    this.#endCalls(new RedisUnavailable('closed', 'the Redis client was closed'));
  }

  #endCalls(error: RedisUnavailable): void {
    for (const fail of [...this.#calls]) fail(error);
  }

  #refuse(): RedisUnavailable {
    const isClosed = this.#closing.signal.aborted;
    this.#metrics?.onCall(isClosed ? 'closed' : 'away');
    return isClosed
      ? new RedisUnavailable('closed', 'the Redis client was closed')
      : new RedisUnavailable('away', 'Redis is away', this.#cause);
  }

  /** Makes connections until one is proven, the first one after `waitMs`. */
  async #connect(waitMs: number): Promise<void> {
    const { signal } = this.#closing;
    const { connectMs, commandMs } = this.#limits;
    let isTold = waitMs > 0;
    for (let wait = waitMs; ; wait = this.#backoff.next()) {
      await pause(wait, signal);
      if (signal.aborted) return;
      let isHeard = false;
      const onHeard = () => {
        isHeard = true;
      };
      try {
        const turn = this.#backoff.tries;
        const link = await RedisLink.open({
          address: this.#address,
          connectMs,
          commandMs,
          turn,
          signal,
          onHeard,
        });
        if (signal.aborted) link.destroy();
        else this.#use(link);
        return;
      } catch (error) {
        if (isHeard && error instanceof DeadlinePassed) this.#heardAt = this.#now();
        this.#cause = plainError(error);
        if (!isTold && !signal.aborted) this.#warn('Redis cannot be reached; trying on');
        isTold = true;
      }
    }
  }

  #use(link: RedisLink): void {
    const { heartbeatMs, commandMs } = this.#limits;
    this.#link = link;
    this.#isOverdue = false;
    this.#backoff.succeeded();
    link.onEnd((cause) => this.#lose(link, 'lost', cause));
    // The connection may have ended in the meantime.
    if (this.#link !== link) return;
    this.#heartbeat = setInterval(() => {
      if (this.#isOverdue) return;
      inTime(link.prove(), 'Redis', commandMs).catch((error: unknown) => {
        if (error instanceof DeadlinePassed) void this.#isLateOn(link);
        else this.#lose(link, 'lost', plainError(error));
      });
    }, heartbeatMs).unref();
    this.#metrics?.onState(true);
    this.#logger.info({ redis: redisHosts(this.#address) }, 'Redis is up');
    this.#tell(this.#upListeners);
  }

  /**
   * An answer is late: whatever is under way ends now, and nothing is sent until answers are in time. Each time that this
   * happens again, more of them are asked for.
   */
  async #isLateOn(link: RedisLink): Promise<void> {
    if (this.#link !== link || this.#isOverdue) return;
    const { commandMs, lateMs, calmMs } = this.#limits;
    const since = this.#now();
    const isAgain = since - this.#overdue.at < calmMs;
    this.#overdue = { times: isAgain ? this.#overdue.times + 1 : 1, at: since };
    this.#isOverdue = true;
    const cause = new DeadlinePassed('Redis', commandMs);
    this.#endCalls(new RedisUnavailable('deadline', cause.message, cause));
    this.#tell(this.#downListeners);
    let proofs = Math.min(this.#overdue.times, MAX_PROOFS);
    while (this.#link === link) {
      const proof = link.prove();
      try {
        await inTime(proof, 'Redis', commandMs);
        proofs -= 1;
        if (proofs === 0) break;
        await pause(commandMs / 4, this.#closing.signal);
      } catch (error) {
        if (!(error instanceof DeadlinePassed)) this.#lose(link, 'lost', plainError(error));
        else if (this.#now() - since >= lateMs) this.#lose(link, 'deadline', error);
        // Late, but there.
        else
          proof.then(
            () => {
              this.#heardAt = this.#now();
            },
            () => {},
          );
        proofs = Math.min(this.#overdue.times, MAX_PROOFS);
      }
    }
    if (this.#link !== link) return;
    this.#isOverdue = false;
    this.#tell(this.#upListeners);
  }

  /** Redis is away: whatever is under way ends now, and nothing is sent until another connection is proven. */
  #lose(link: RedisLink, reason: 'deadline' | 'lost', cause: Error): void {
    if (this.#link !== link) return;
    this.#link = undefined;
    this.#isOverdue = false;
    this.#cause = cause;
    clearInterval(this.#heartbeat);
    link.destroy();
    this.#metrics?.onState(false);
    this.#endCalls(new RedisUnavailable(reason, reason === 'lost' ? 'Redis was lost' : cause.message, cause));
    this.#warn('Redis is away');
    this.#tell(this.#downListeners);
    this.#connecting = this.#connect(this.#backoff.next());
  }

  #warn(text: string): void {
    this.#logger.warn({ redis: redisHosts(this.#address), err: this.#cause }, text);
  }

  #tell(listeners: ReadonlySet<() => void>): void {
    for (const listener of [...listeners]) {
      try {
        listener();
      } catch (error) {
        this.#logger.error({ err: error }, 'a listener to the state of Redis has failed');
      }
    }
  }
}
