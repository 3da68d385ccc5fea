// One session of a program, directly at a scripted server and through the gateway in front of another one of its kind.
import { fleetingClock, startGateway } from '../../helpers/gateway.ts';
import { type Target, Unavailable } from './types.ts';

/** A server that keeps what it was sent. */
export interface PlayedServer<Sent> {
  /** Without a path. */
  readonly url: string;
  readonly sent: readonly Sent[];
  close(): Promise<void>;
}

export interface Session<T, Sent> {
  readonly result: T;
  readonly sent: readonly Sent[];
}

export interface Play<T, Sent> {
  readonly start: () => Promise<PlayedServer<Sent>>;
  readonly run: (target: Target) => Promise<T>;
  /** The names that clients use; the first is the target's. */
  readonly models: readonly [string, ...string[]];
  /** Of the upstream, beside its URL and key. */
  readonly upstream?: Readonly<Record<string, unknown>>;
  /** Of the base URL. Default: none. */
  readonly path?: string;
}

const VENDOR_KEY = 'key-of-the-vendor';

/** The session without the gateway. */
export async function playDirectly<T, Sent>({
  start,
  run,
  models,
  path = '',
}: Play<T, Sent>): Promise<Session<T, Sent>> {
  const server = await start();
  try {
    return { result: await run(targetOf(server.url + path, VENDOR_KEY, models)), sent: server.sent };
  } finally {
    await server.close();
  }
}

/** The same session through the gateway. */
export async function playThroughGateway<T, Sent>({
  start,
  run,
  models,
  upstream,
  path = '',
}: Play<T, Sent>): Promise<Session<T, Sent>> {
  const server = await start();
  try {
    await using gateway = await startGateway({
      now: fleetingClock(),
      config: {
        upstreams: { vendor: { base_url: `${server.url}/v1`, api_key: VENDOR_KEY, ...upstream } },
        models: Object.fromEntries(
          models.map((model) => [model, { targets: [{ upstream: 'vendor', model }] }]),
        ),
        // The retries of the gateway are its own feature; here those of the libraries are counted.
        retry: { attempts: 1 },
      },
    });
    return {
      result: await run(targetOf(gateway.url + path, await gateway.key(), models)),
      sent: server.sent,
    };
  } finally {
    await server.close();
  }
}

const targetOf = (baseUrl: string, apiKey: string, [model]: Play<unknown, unknown>['models']): Target => ({
  baseUrl,
  apiKey,
  model,
  embeddingModel: '',
});

/** What `prepare` installs; skips the test where it cannot. */
export async function available<T>(prepare: () => Promise<T>, skip: (why: string) => never): Promise<T> {
  try {
    return await prepare();
  } catch (error) {
    if (error instanceof Unavailable) skip(error.message);
    throw error;
  }
}
