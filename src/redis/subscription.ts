// Messages of Redis, on a connection of its own. Redis keeps no message for who is not there, so what matters is to know
// when some may have been missed: the connection is pinged, and one that is silent is lost like one that has ended. What to
// do about missed messages is the caller's matter.
import type { Redis } from 'ioredis';
import { type RedisAddress, redisHosts } from '../config/schema/redis-address.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { createSubscriber, parseRedisUrl } from './open-redis.ts';
import { Backoff } from './reconnect-backoff.ts';
import { inTime, pause } from './redis-deadline.ts';
import { plainError } from './redis-fault.ts';

export interface SubscriptionOptions {
  /** In a form of `readRedisAddress`. */
  readonly url: string;
  readonly channels: readonly string[];
  /** A message, as text. It must not throw; what it throws is logged and changes nothing. */
  readonly onMessage: (channel: string, text: string) => void;
  /** From now on messages may be missed. Called once for each outage. */
  readonly onLost?: () => void;
  /** From now on none is missed; before, some may have been. Called after each outage, and when it is linked at first. */
  readonly onRestored?: () => void;
  /** A message was dropped because it is too long. */
  readonly onOversize?: (channel: string) => void;
  readonly logger: Logger;
  /** Time between two pings, in milliseconds. Default 1 s. */
  readonly pingMs?: number;
  /** Nothing was heard for so long: lost. Default 3 s. */
  readonly silenceMs?: number;
  /** Longest time for a connection, and for each answer until it is subscribed. Default 1 s. */
  readonly connectMs?: number;
  /** `start` waits no longer. Default 1 s. */
  readonly startMs?: number;
  /** First wait before another connection, doubled from try to try … Default 50 ms. */
  readonly firstRetryMs?: number;
  /** … up to this. Default 1 s. */
  readonly longestRetryMs?: number;
  /** Longest message in bytes of UTF-8. Default 64 KiB. */
  readonly maxBytes?: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** From 0 (included) to 1 (excluded). */
  readonly random?: () => number;
}

export class Subscription {
  readonly #options: SubscriptionOptions;
  readonly #address: RedisAddress;
  readonly #backoff: Backoff;
  readonly #now: () => number;
  readonly #closing = new AbortController();
  #isLinked = false;
  #running: Promise<void> | undefined;
  #firstLink: () => void = () => {};

  /** @throws Error when the URL has none of the forms; the text does not quote it */
  constructor(options: SubscriptionOptions) {
    this.#options = options;
    this.#address = parseRedisUrl(options.url);
    this.#now = options.now ?? (() => performance.now());
    this.#backoff = new Backoff({
      firstMs: options.firstRetryMs ?? 50,
      longestMs: options.longestRetryMs ?? 1000,
      calmMs: 10_000,
      now: this.#now,
      random: options.random ?? Math.random,
    });
  }

  /** Subscribed, and heard of lately. */
  get isLinked(): boolean {
    return this.#isLinked;
  }

  /** Begins to connect, for ever. Resolves when subscribed or after `startMs`; never rejects. Called once. */
  async start(): Promise<void> {
    if (this.#running !== undefined || this.#closing.signal.aborted) return;
    const linked = new Promise<void>((resolve) => {
      this.#firstLink = resolve;
    });
    this.#running = this.#run();
    await inTime(linked, 'Redis', this.#options.startMs ?? 1000, this.#closing.signal).catch(() => {});
  }

  /** Ends it at once, whatever Redis does. `onLost` is not called any more. */
  async close(): Promise<void> {
    this.#isLinked = false;
    if (!this.#closing.signal.aborted) this.#closing.abort(new Error('the subscription was closed'));
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    for (let isTold = false; !signal.aborted; ) {
      const limits = { connectMs: this.#options.connectMs ?? 1000, name: 'tollgate-subscription' };
      const redis = createSubscriber(this.#address, limits, this.#backoff.tries);
      const wasLinked = await this.#serve(redis, signal).catch((error: unknown) => {
        if (!isTold && !signal.aborted) this.#warn(error, 'cannot subscribe to Redis; trying on');
        isTold = true;
        return false;
      });
      redis.disconnect();
      if (wasLinked) isTold = false;
      await pause(this.#backoff.next(), signal);
    }
  }

  /**
   * Subscribes, and comes back when that is over.
   * @returns true when it was linked
   * @throws what kept it from being linked
   */
  async #serve(redis: Redis, signal: AbortSignal): Promise<boolean> {
    const ended = endOf(redis);
    const connectMs = this.#options.connectMs ?? 1000;
    const patience = this.#address.kind === 'single' ? connectMs : 3 * connectMs;
    try {
      await inTime(redis.connect(), 'Redis', patience, signal);
    } catch (error) {
      throw ended.cause() ?? error;
    }
    if (ended.cause() !== undefined) throw ended.cause();
    if (this.#address.kind === 'cluster') {
      // A node that is cut off from the others passes nothing on.
      const info = await inTime(redis.cluster('INFO'), 'Redis', connectMs, signal);
      if (!String(info).includes('cluster_state:ok'))
        throw new Error('this node is not in a working Cluster');
    }
    let heardAt = this.#now();
    const heard = () => {
      heardAt = this.#now();
    };
    redis.on('message', (channel: string, text: string) => {
      heard();
      this.#receive(channel, text);
    });
    await inTime(redis.subscribe(...this.#options.channels), 'Redis', connectMs, signal);
    heard();
    this.#link();
    const cause = await this.#watch(redis, ended.promise, signal, heard, () => this.#now() - heardAt);
    this.#unlink(cause);
    return true;
  }

  /** Pings until the connection has ended or been silent for too long. Gives the cause. */
  async #watch(
    redis: Redis,
    ended: Promise<Error>,
    signal: AbortSignal,
    heard: () => void,
    silentFor: () => number,
  ): Promise<Error> {
    const { pingMs = 1000, silenceMs = 3000 } = this.#options;
    let end: Error | undefined;
    const over = new AbortController();
    void ended.then((cause) => {
      end = cause;
      over.abort();
    });
    const stop = AbortSignal.any([signal, over.signal]);
    for (;;) {
      await pause(Math.min(pingMs, Math.max(1, silenceMs - silentFor())), stop);
      // What has come in while this process was busy is read first.
      await new Promise((resolve) => setImmediate(resolve));
      if (end !== undefined) return end;
      if (signal.aborted) return new Error('the subscription was closed');
      const silence = silentFor();
      if (silence >= silenceMs) return new Error(`nothing was heard for ${Math.round(silence)} ms`);
      // Most of `silenceMs` / `pingMs` of them are under way at a time: then the connection is given up with all of them.
      redis.ping().then(heard, () => {});
    }
  }

  #link(): void {
    if (this.#closing.signal.aborted) return;
    this.#isLinked = true;
    this.#backoff.succeeded();
    this.#options.logger.info({ redis: redisHosts(this.#address) }, 'subscribed to Redis');
    this.#call(() => this.#options.onRestored?.());
    this.#firstLink();
  }

  #unlink(cause: Error): void {
    if (!this.#isLinked) return;
    this.#isLinked = false;
    this.#warn(cause, 'the subscription to Redis is lost');
    this.#call(() => this.#options.onLost?.());
  }

  #receive(channel: string, text: string): void {
    // After a loss nothing of the old connection counts, and before the link nothing has been promised.
    if (!this.#isLinked) return;
    const { maxBytes = 65_536, onOversize, onMessage } = this.#options;
    const isTooLong = text.length > maxBytes || Buffer.byteLength(text) > maxBytes;
    this.#call(() => (isTooLong ? onOversize?.(channel) : onMessage(channel, text)));
  }

  #call(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#options.logger.error({ err: error }, 'a listener to the messages of Redis has failed');
    }
  }

  #warn(error: unknown, text: string): void {
    this.#options.logger.warn({ redis: redisHosts(this.#address), err: plainError(error) }, text);
  }
}

/** When and why a connection ended. */
function endOf(redis: Redis): { promise: Promise<Error>; cause(): Error | undefined } {
  let lastError: Error | undefined;
  // An 'error' that nobody listens to would end the process or be printed.
  redis.on('error', (error: unknown) => {
    lastError = plainError(error);
  });
  const promise = new Promise<Error>((resolve) => {
    redis.once('close', () => resolve(lastError ?? new Error('the connection ended')));
  });
  return { promise, cause: () => lastError };
}
