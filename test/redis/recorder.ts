// Records the log, events and counts of a client or a subscription, with options for a slow machine.
import { Writable } from 'node:stream';
import { type CallResult, RedisClient, type RedisClientOptions } from '../../src/redis/redis-client.ts';
import { Subscription, type SubscriptionOptions } from '../../src/redis/subscription.ts';
import { createLogger, type Logger } from '../../src/telemetry/log/logger.ts';

/** A deadline that only a Redis which does not answer misses, in milliseconds. */
export const PATIENT = 20_000;

export interface RecordedClient extends AsyncDisposable {
  readonly client: RedisClient;
  /** States in order; the first one is false. */
  readonly states: readonly boolean[];
  readonly outcomes: Readonly<Record<CallResult, number>>;
  log(): string;
}

/** A client that has begun. Its calls are patient, its tries come quickly, and nothing beats in the background. */
export async function startClient(
  url: string,
  options: Partial<RedisClientOptions> = {},
): Promise<RecordedClient> {
  const states: boolean[] = [];
  const outcomes = { ok: 0, error: 0, away: 0, overload: 0, deadline: 0, lost: 0, closed: 0 };
  const { logger, log } = record();
  const client = new RedisClient({
    url,
    logger,
    metrics: {
      onState: (up) => states.push(up),
      onCall: (outcome) => {
        outcomes[outcome] += 1;
      },
    },
    commandMs: PATIENT,
    firstRetryMs: 5,
    maxRetryMs: 50,
    heartbeatMs: 2 ** 30,
    ...options,
  });
  await client.start();
  return { client, states, outcomes, log, [Symbol.asyncDispose]: () => client.close() };
}

export interface RecordedSubscription extends AsyncDisposable {
  readonly subscription: Subscription;
  /** `channel: text` of messages, `lost` and `restored`, in order. */
  readonly events: readonly string[];
  log(): string;
}

/** A subscription to the channel `news` that has begun. It is patient, and its tries come quickly. */
export async function startSubscription(
  url: string,
  options: Partial<SubscriptionOptions> = {},
): Promise<RecordedSubscription> {
  const events: string[] = [];
  const { logger, log } = record();
  const subscription = new Subscription({
    url,
    channel: 'news',
    logger,
    onMessage: (text) => events.push(`news: ${text}`),
    onLost: () => events.push('lost'),
    onRestored: () => events.push('restored'),
    pingMs: 50,
    silenceMs: PATIENT,
    firstRetryMs: 5,
    maxRetryMs: 50,
    ...options,
  });
  await subscription.start();
  return { subscription, events, log, [Symbol.asyncDispose]: () => subscription.close() };
}

function record(): { logger: Logger; log: () => string } {
  let text = '';
  const sink = new Writable({
    write(bytes, _encoding, done) {
      text += String(bytes);
      done();
    },
  });
  return { logger: createLogger(sink, 'trace'), log: () => text };
}

/** What a promise is rejected with. */
export async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    () => {
      throw new Error('this should have been rejected');
    },
    (error: unknown) => error,
  );
}
