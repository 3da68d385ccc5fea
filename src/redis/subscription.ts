// A Redis pub/sub subscription on its own connection. Redis does not store messages for absent subscribers, so this detects
// when some may have been missed: it pings, and treats a silent connection like a closed one. Callers recover missed messages.
import type { Redis } from 'ioredis';
import { type RedisAddress, redisHosts } from '../config/schema/redis-address.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { createSingle, parseRedisUrl } from './open-redis.ts';
import { Backoff, CONNECTION_TIMES, type ConnectionTimes } from './reconnect-backoff.ts';
import { inTime, pause } from './redis-deadline.ts';
import { plainError } from './redis-fault.ts';

export interface SubscriptionOptions extends Partial<ConnectionTimes> {
  /** In a form of `readRedisAddress`. */
  readonly url: string;
  readonly channel: string;
  /** Called with each message as text. It must not throw; errors are logged. */
  readonly onMessage: (text: string) => void;
  /** Called once per outage: messages may be missed from now on. */
  readonly onLost?: () => void;
  /** Called after the first subscription and after each outage: none is missed from now on; earlier ones may have been. */
  readonly onRestored?: () => void;
  readonly logger: Logger;
  /** Ping interval, in milliseconds. */
  readonly pingMs?: number;
  /** Idle time after which the connection counts as lost, in milliseconds. */
  readonly silenceMs?: number;
}

const DEFAULTS = { ...CONNECTION_TIMES, pingMs: 1000, silenceMs: 3000 };
/** Maximum message size in bytes of UTF-8; longer ones are dropped. */
const MAX_BYTES = 65_536;

export class Subscription {
  readonly #options: typeof DEFAULTS & SubscriptionOptions;
  readonly #address: RedisAddress;
  readonly #backoff: Backoff;
  readonly #closing = new AbortController();
  #isLinked = false;
  /** When the server last sent something, by `now`. */
  #activeAt = 0;
  #running: Promise<void> | undefined;
  readonly #firstLink = Promise.withResolvers<void>();

  /** @throws Error for an invalid URL; the message does not quote it */
  constructor(options: SubscriptionOptions) {
    this.#options = { ...DEFAULTS, ...options };
    this.#address = parseRedisUrl(options.url);
    const { firstRetryMs: firstMs, maxRetryMs: maxMs, now, random } = this.#options;
    this.#backoff = new Backoff({ firstMs, maxMs, resetMs: 10_000, now, random });
  }

  /** Whether it is subscribed and the connection is live. */
  get isLinked(): boolean {
    return this.#isLinked;
  }

  /** Starts to connect and keeps trying until `close`. Resolves when subscribed or after `startMs`; never rejects. Call it once. */
  async start(): Promise<void> {
    if (this.#running !== undefined || this.#closing.signal.aborted) return;
    this.#running = this.#run();
    await inTime(this.#firstLink.promise, 'Redis', this.#options.startMs, this.#closing.signal).catch(
      () => {},
    );
  }

  /** Closes the connection at once. `onLost` is not called afterwards. */
  async close(): Promise<void> {
    this.#isLinked = false;
    if (!this.#closing.signal.aborted) this.#closing.abort(new Error('the subscription was closed'));
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    for (let isLogged = false; !signal.aborted; ) {
      const limits = { connectMs: this.#options.connectMs, name: 'tollgate-subscription' };
      const redis = await createSingle(this.#address, limits, this.#backoff.tries);
      const wasLinked = await this.#serve(redis, signal).catch((error: unknown) => {
        if (!isLogged && !signal.aborted) this.#warn(error, 'cannot subscribe to Redis; retrying');
        isLogged = true;
        return false;
      });
      redis.disconnect();
      if (wasLinked) isLogged = false;
      await pause(this.#backoff.next(), signal);
    }
  }

  /**
   * Subscribes, and returns when the connection is lost.
   * @returns true after a subscription that worked
   * @throws the cause when it could not subscribe
   */
  async #serve(redis: Redis, signal: AbortSignal): Promise<boolean> {
    const ended = observeEnd(redis);
    const { connectMs, channel } = this.#options;
    const timeoutMs = this.#address.kind === 'single' ? connectMs : 3 * connectMs;
    try {
      await inTime(redis.connect(), 'Redis', timeoutMs, signal);
    } catch (error) {
      throw ended.cause() ?? error;
    }
    if (ended.cause() !== undefined) throw ended.cause();
    if (this.#address.kind === 'cluster') {
      // A partitioned node forwards no messages.
      const info = await inTime(redis.cluster('INFO'), 'Redis', connectMs, signal);
      if (!String(info).includes('cluster_state:ok'))
        throw new Error('this node is not in a working Cluster');
    }
    redis.on('message', (_channel: string, text: string) => {
      this.#touch();
      this.#receive(text);
    });
    await inTime(redis.subscribe(channel), 'Redis', connectMs, signal);
    this.#touch();
    this.#link();
    const cause = await this.#watch(redis, ended.promise, signal);
    this.#unlink(cause);
    return true;
  }

  /** Pings until the connection is closed or silent for too long. @returns the cause */
  async #watch(redis: Redis, ended: Promise<Error>, signal: AbortSignal): Promise<Error> {
    const { pingMs, silenceMs, now } = this.#options;
    const silentFor = () => now() - this.#activeAt;
    let end: Error | undefined;
    const over = new AbortController();
    void ended.then((cause) => {
      end = cause;
      over.abort();
    });
    const stop = AbortSignal.any([signal, over.signal]);
    for (;;) {
      await pause(Math.min(pingMs, Math.max(1, silenceMs - silentFor())), stop);
      // Read what arrived while this process was busy.
      await new Promise((resolve) => setImmediate(resolve));
      if (end !== undefined) return end;
      if (signal.aborted) return new Error('the subscription was closed');
      const silence = silentFor();
      if (silence >= silenceMs) return new Error(`nothing was received for ${Math.round(silence)} ms`);
      // At most `silenceMs` / `pingMs` pings are in flight; a lost connection fails all of them.
      redis.ping().then(
        () => this.#touch(),
        () => {},
      );
    }
  }

  #touch(): void {
    this.#activeAt = this.#options.now();
  }

  #link(): void {
    if (this.#closing.signal.aborted) return;
    this.#isLinked = true;
    this.#backoff.succeeded();
    this.#options.logger.info({ redis: redisHosts(this.#address) }, 'subscribed to Redis');
    this.#call(() => this.#options.onRestored?.());
    this.#firstLink.resolve();
  }

  #unlink(cause: Error): void {
    if (!this.#isLinked) return;
    this.#isLinked = false;
    this.#warn(cause, 'the subscription to Redis was lost; messages may be missed until it is restored');
    this.#call(() => this.#options.onLost?.());
  }

  #receive(text: string): void {
    // Ignore messages of a lost connection and those before `onRestored`.
    if (!this.#isLinked) return;
    if (text.length > MAX_BYTES || Buffer.byteLength(text) > MAX_BYTES) return;
    this.#call(() => this.#options.onMessage(text));
  }

  #call(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#options.logger.error({ err: error }, 'a listener for messages of Redis failed');
    }
  }

  #warn(error: unknown, text: string): void {
    this.#options.logger.warn({ redis: redisHosts(this.#address), err: plainError(error) }, text);
  }
}

/** Observes when and why a connection closes. */
function observeEnd(redis: Redis): { promise: Promise<Error>; cause(): Error | undefined } {
  let lastError: Error | undefined;
  // An 'error' event without a listener would end the process or be printed.
  redis.on('error', (error: unknown) => {
    lastError = plainError(error);
  });
  const promise = new Promise<Error>((resolve) => {
    redis.once('close', () => resolve(lastError ?? new Error('the connection was closed')));
  });
  return { promise, cause: () => lastError };
}
