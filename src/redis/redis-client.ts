// The Redis client for commands: one connection, a deadline for every call, and fail-fast while Redis is unavailable. A late
// answer suspends calls until background probes are answered in time; a connection that stays late or fails is replaced. No
// call waits for a reconnect, and none is sent twice.
import { type RedisAddress, redisHosts } from '../config/schema/redis-address.ts';
import { startDeadline } from '../deadline.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { parseRedisUrl } from './open-redis.ts';
import { Backoff, CONNECTION_TIMES, type ConnectionTimes } from './reconnect-backoff.ts';
import { DeadlinePassed, inTime, pause } from './redis-deadline.ts';
import { classifyError, plainError, RedisUnavailable } from './redis-fault.ts';
import { type RedisCommands, RedisLink } from './redis-link.ts';
import { type RedisScript, redisScript, type ScriptOptions } from './redis-script.ts';

export { RedisCommandError, RedisUnavailable } from './redis-fault.ts';

/** The result of a call: `ok`, `error` (Redis rejected the command), or a reason of `RedisUnavailable`. */
export type CallResult = 'ok' | 'error' | RedisUnavailable['reason'];

export interface RedisClientOptions extends Partial<ConnectionTimes> {
  /** In a form of `readRedisAddress`. */
  readonly url: string;
  readonly logger: Logger;
  readonly metrics?: {
    /** Called once at the start (false), then at each change. */
    onState(up: boolean): void;
    onCall(outcome: CallResult): void;
  };
  /** Deadline of a call and of a probe, in milliseconds. */
  readonly commandMs?: number;
  /** A connection that stays late for this long, in milliseconds, is replaced. Default: ten times `commandMs`. */
  readonly lateMs?: number;
  /** Interval of probes while the connection is up, in milliseconds: they find an outage before a request does. */
  readonly heartbeatMs?: number;
  /** An outage this long after the last one, in milliseconds, starts the backoff over. */
  readonly resetMs?: number;
  /** Maximum number of calls in flight; more are rejected. */
  readonly maxCalls?: number;
}

/** For this long after a late answer, in milliseconds, Redis counts as slow and not as down. */
const LATE_ANSWER_MS = 3000;
/** Maximum number of consecutive probes in time before calls resume after repeated lateness. */
const MAX_PROBES = 5;

const DEFAULTS = {
  ...CONNECTION_TIMES,
  commandMs: 100,
  heartbeatMs: 1000,
  resetMs: 10_000,
  maxCalls: 10_000,
};

export class RedisClient {
  readonly #address: RedisAddress;
  readonly #options: Required<Omit<RedisClientOptions, 'metrics'>> & Pick<RedisClientOptions, 'metrics'>;
  readonly #backoff: Backoff;
  readonly #upListeners = new Set<() => void>();
  readonly #downListeners = new Set<() => void>();
  readonly #closing = new AbortController();
  /** Calls in flight on the current connection. A call that is not in this set has ended. */
  readonly #calls = new Set<(error: RedisUnavailable) => void>();
  #link: RedisLink | undefined;
  /** The connection is open, and an answer is late. */
  #isOverdue = false;
  /** Number of recent late answers, and the time of the last one. */
  #overdue = { times: 0, at: Number.NEGATIVE_INFINITY };
  #lateAnswerAt = Number.NEGATIVE_INFINITY;
  #cause: Error = new Error('not connected yet');
  #heartbeat: NodeJS.Timeout | undefined;
  #connecting: Promise<void> | undefined;

  /** @throws Error for an invalid URL; the message does not quote it */
  constructor(options: RedisClientOptions) {
    this.#address = parseRedisUrl(options.url);
    this.#options = { ...DEFAULTS, lateMs: 10 * (options.commandMs ?? DEFAULTS.commandMs), ...options };
    const { firstRetryMs: firstMs, maxRetryMs: maxMs, resetMs, now, random } = this.#options;
    this.#backoff = new Backoff({ firstMs, maxMs, resetMs, now, random });
  }

  /** Whether calls are sent to Redis. */
  get isUp(): boolean {
    return this.#link !== undefined && !this.#isOverdue;
  }

  /** Whether Redis answers, but too late: calls are rejected. */
  get isLate(): boolean {
    return this.#link === undefined
      ? this.#options.now() - this.#lateAnswerAt < LATE_ANSWER_MS
      : this.#isOverdue;
  }

  /** Adds a listener for each time that calls become possible, including the first. @returns a function that removes it */
  onUp(listener: () => void): () => void {
    this.#upListeners.add(listener);
    return () => this.#upListeners.delete(listener);
  }

  /** Adds a listener for each time that Redis becomes late or unavailable. @returns a function that removes it */
  onDown(listener: () => void): () => void {
    this.#downListeners.add(listener);
    return () => this.#downListeners.delete(listener);
  }

  /** Starts to connect and keeps trying until `close`. Resolves when connected or after `startMs`; never rejects. */
  async start(): Promise<void> {
    if (this.#connecting === undefined && !this.#closing.signal.aborted) {
      this.#options.metrics?.onState(false);
      this.#connecting = this.#connect(0);
    }
    await inTime(this.#connecting ?? Promise.resolve(), 'Redis', this.#options.startMs).catch(() => {});
  }

  /**
   * Runs `work` with the commands of Redis. All its commands share one deadline. Errors of `work` itself pass through.
   * @throws RedisUnavailable at once while Redis is late or unavailable, otherwise within `commandMs`
   * @throws RedisCommandError when Redis rejects a command
   */
  run<T>(work: (redis: RedisCommands) => Promise<T>): Promise<T> {
    const link = this.#link;
    const { commandMs, maxCalls, metrics } = this.#options;
    if (link === undefined || this.#isOverdue) return Promise.reject(this.#unavailableError());
    if (this.#calls.size >= maxCalls) {
      metrics?.onCall('overload');
      return Promise.reject(new RedisUnavailable('overload', 'too many calls to Redis are in flight'));
    }
    return new Promise<T>((resolve, reject) => {
      const end = (outcome: CallResult, settle: () => void) => {
        if (!this.#calls.delete(fail)) return;
        stop();
        metrics?.onCall(outcome);
        settle();
      };
      const fail = (error: RedisUnavailable) => end(error.reason, () => reject(error));
      const stop = startDeadline(commandMs, () => void this.#onLateAnswer(link));
      this.#calls.add(fail);
      const onError = (error: unknown) => {
        // The loss of the connection may have ended the call already.
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

  /** See `redisScript`. */
  script(options: ScriptOptions): RedisScript {
    return redisScript((work) => this.run(work), options);
  }

  /** Rejects new calls, waits for calls in flight until their deadline, and closes the connection. */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new RedisUnavailable('closed', 'the Redis client was closed'));
    const link = this.#link;
    this.#link = undefined;
    clearInterval(this.#heartbeat);
    if (link !== undefined) {
      this.#options.metrics?.onState(false);
      const until = performance.now() + this.#options.commandMs;
      while (this.#calls.size > 0 && performance.now() < until) await pause(5);
      this.#endCalls(new RedisUnavailable('closed', 'the Redis client was closed'));
      link.destroy();
    }
    await this.#connecting;
  }

  #endCalls(error: RedisUnavailable): void {
    for (const fail of [...this.#calls]) fail(error);
  }

  #unavailableError(): RedisUnavailable {
    const isClosed = this.#closing.signal.aborted;
    this.#options.metrics?.onCall(isClosed ? 'closed' : 'away');
    if (isClosed) return new RedisUnavailable('closed', 'the Redis client was closed');
    return new RedisUnavailable('away', 'Redis is unavailable', this.#cause);
  }

  /** Opens connections until one passes the probe. The first attempt starts after `waitMs`. */
  async #connect(waitMs: number): Promise<void> {
    const { signal } = this.#closing;
    const { connectMs, commandMs } = this.#options;
    let isLogged = waitMs > 0;
    for (let wait = waitMs; ; wait = this.#backoff.next()) {
      await pause(wait, signal);
      if (signal.aborted) return;
      let isConnected = false;
      const onConnected = () => {
        isConnected = true;
      };
      try {
        const [address, attempt] = [this.#address, this.#backoff.tries];
        const link = await RedisLink.open({ address, connectMs, commandMs, attempt, signal, onConnected });
        if (signal.aborted) link.destroy();
        else this.#use(link);
        return;
      } catch (error) {
        if (isConnected && error instanceof DeadlinePassed) this.#noteLateAnswer();
        this.#cause = plainError(error);
        if (!isLogged && !signal.aborted) this.#warn('cannot connect to Redis');
        isLogged = true;
      }
    }
  }

  #use(link: RedisLink): void {
    const { heartbeatMs, commandMs } = this.#options;
    this.#link = link;
    this.#isOverdue = false;
    this.#backoff.succeeded();
    link.onEnd((cause) => this.#lose(link, 'lost', cause));
    // `onEnd` reports at once a connection that has already closed.
    if (this.#link !== link) return;
    this.#heartbeat = setInterval(() => {
      if (this.#isOverdue) return;
      inTime(link.probe(), 'Redis', commandMs).catch((error: unknown) => {
        if (error instanceof DeadlinePassed) void this.#onLateAnswer(link);
        else this.#lose(link, 'lost', plainError(error));
      });
    }, heartbeatMs).unref();
    this.#options.metrics?.onState(true);
    this.#options.logger.info({ redis: redisHosts(this.#address) }, 'connected to Redis');
    this.#notify(this.#upListeners);
  }

  /**
   * Handles a late answer: ends all calls in flight and sends none until probes are answered in time. Repeated lateness
   * requires more probes.
   */
  async #onLateAnswer(link: RedisLink): Promise<void> {
    if (this.#link !== link || this.#isOverdue) return;
    const { commandMs, lateMs, resetMs } = this.#options;
    const since = this.#options.now();
    const isAgain = since - this.#overdue.at < resetMs;
    this.#overdue = { times: isAgain ? this.#overdue.times + 1 : 1, at: since };
    this.#isOverdue = true;
    const cause = new DeadlinePassed('Redis', commandMs);
    this.#endCalls(new RedisUnavailable('deadline', cause.message, cause));
    this.#notify(this.#downListeners);
    let probes = Math.min(this.#overdue.times, MAX_PROBES);
    while (this.#link === link) {
      const probe = link.probe();
      try {
        await inTime(probe, 'Redis', commandMs);
        probes -= 1;
        if (probes === 0) break;
        await pause(commandMs / 4, this.#closing.signal);
      } catch (error) {
        if (!(error instanceof DeadlinePassed)) this.#lose(link, 'lost', plainError(error));
        else if (this.#options.now() - since >= lateMs) this.#lose(link, 'deadline', error);
        // A late answer shows that Redis is slow and not down.
        else probe.then(this.#noteLateAnswer).catch(() => {});
        probes = Math.min(this.#overdue.times, MAX_PROBES);
      }
    }
    if (this.#link !== link) return;
    this.#isOverdue = false;
    this.#notify(this.#upListeners);
  }

  readonly #noteLateAnswer = (): void => {
    this.#lateAnswerAt = this.#options.now();
  };

  /** Handles a lost connection: ends all calls in flight and sends none until a new connection passes the probe. */
  #lose(link: RedisLink, reason: 'deadline' | 'lost', cause: Error): void {
    if (this.#link !== link) return;
    this.#link = undefined;
    this.#isOverdue = false;
    this.#cause = plainError(cause);
    clearInterval(this.#heartbeat);
    link.destroy();
    this.#options.metrics?.onState(false);
    const message = reason === 'lost' ? 'the connection to Redis was lost' : cause.message;
    this.#endCalls(new RedisUnavailable(reason, message, cause));
    this.#warn('Redis is unavailable');
    this.#notify(this.#downListeners);
    this.#connecting = this.#connect(this.#backoff.next());
  }

  #warn(text: string): void {
    const meaning = 'until it is back, limits are counted per process, and a revoked key may work for 5 s';
    this.#options.logger.warn({ redis: redisHosts(this.#address), err: this.#cause }, `${text}; ${meaning}`);
  }

  #notify(listeners: ReadonlySet<() => void>): void {
    for (const listener of [...listeners]) {
      try {
        listener();
      } catch (error) {
        this.#options.logger.error({ err: error }, 'a listener for the state of Redis failed');
      }
    }
  }
}
