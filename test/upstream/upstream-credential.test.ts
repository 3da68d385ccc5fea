// The credential of one upstream with a token source of the test: what replacing it keeps, and what it forgets.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { UpstreamAuth, UpstreamConfig } from '../../src/config/schema/config-schema.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import type { TokenSource } from '../../src/upstream/tokens/token-source.ts';
import { UpstreamCredential } from '../../src/upstream/upstream-credential.ts';
import { load } from '../config/sample.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A source that answers when the test says so. */
class FakeSource {
  readonly auth: UpstreamAuth;
  readonly fetches: { resolve(value: string): void; reject(error: Error): void }[] = [];

  constructor(auth: UpstreamAuth) {
    this.auth = auth;
  }

  readonly fetch: TokenSource = () => {
    return new Promise((resolve, reject) => {
      this.fetches.push({
        resolve: (value) => resolve({ value, fetchedAt: Date.now(), expiresAt: Date.now() + 3_600_000 }),
        reject,
      });
    });
  };
}

const OAUTH2 = 'token_url: "https://issuer.test/token", client_id: client';

function configOf(fields: string): UpstreamConfig {
  const text = `
upstreams: { up: { base_url: "https://api.test/v1", ${fields} } }
models: { m: { targets: [{ upstream: up, model: m }] } }
`;
  const config = load(text, {}).dynamic.upstreams['up'];
  if (config === undefined) throw new TypeError('no upstream');
  return config;
}

const oauth2 = (secret: string, more = '', client = OAUTH2) =>
  configOf(`${more} auth: { oauth2: { ${client}, client_secret: ${secret} } }`);

function started(config: UpstreamConfig) {
  const sources: FakeSource[] = [];
  const metrics = createMetrics();
  const failures: Error[] = [];
  const credential = new UpstreamCredential({
    upstream: 'up',
    config,
    metrics,
    onChange: () => undefined,
    onFailure: (error) => failures.push(error),
    createSource: (auth) => {
      const source = new FakeSource(auth);
      sources.push(source);
      return source.fetch;
    },
  });
  credential.start();
  return {
    credential,
    sources,
    failures,
    metrics,
    /** Answers the last fetch of the last source. */
    async answer(value: string) {
      sources.at(-1)?.fetches.at(-1)?.resolve(value);
      await vi.advanceTimersByTimeAsync(0);
    },
    bearer: () => credential.headers['authorization'],
    gauges: async () =>
      (await metrics.registry.metrics()).match(/^tollgate_upstream_token_\w+_seconds\{.*$/gm),
  };
}

describe('a new secret', () => {
  test('keeps the token in force until one is fetched with it, so that no request waits', async () => {
    const up = started(oauth2('secret-of-client'));
    await up.answer('token-1');
    up.credential.replace(oauth2('secret-that-is-new'));
    expect(up.sources.map(({ fetches }) => fetches.length)).toEqual([1, 1]);
    expect(up.credential.ready()).toBeUndefined();
    expect(up.bearer()).toBe('Bearer token-1');
    await up.answer('token-2');
    expect(up.bearer()).toBe('Bearer token-2');
  });

  test('that the issuer rejects costs nothing while the token is valid', async () => {
    const up = started(oauth2('secret-of-client'));
    await up.answer('token-1');
    up.credential.replace(oauth2('secret-with-a-typo'));
    up.sources[1]?.fetches[0]?.reject(new Error('invalid_client'));
    await vi.advanceTimersByTimeAsync(0);
    expect(up.failures).toHaveLength(1);
    expect(up.credential.ready()).toBeUndefined();
    expect(up.bearer()).toBe('Bearer token-1');
  });

  test('is not undone by a fetch with the previous one that ends late', async () => {
    const up = started(oauth2('secret-of-client'));
    up.credential.replace(oauth2('secret-that-is-new'));
    await up.answer('token-2');
    up.sources[0]?.fetches[0]?.resolve('token-1');
    await vi.advanceTimersByTimeAsync(0);
    expect(up.bearer()).toBe('Bearer token-2');
  });

  test('keeps both tokens and both secrets out of what clients see', async () => {
    const up = started(oauth2('secret-of-client'));
    await up.answer('token-number-1');
    up.credential.replace(oauth2('secret-that-is-new'));
    await up.answer('token-number-2');
    for (const text of ['secret-of-client', 'secret-that-is-new', 'token-number-1', 'token-number-2'])
      expect(up.credential.areQuotedIn(`your ${text} is bad`)).toBe(true);
  });
});

test('another identity at the issuer starts without a token', async () => {
  const up = started(oauth2('secret-of-client'));
  await up.answer('token-1');
  const other = 'token_url: "https://issuer.test/token", client_id: another';
  up.credential.replace(oauth2('secret-of-client', '', other));
  expect(up.bearer()).toBeUndefined();
  expect(up.credential.ready()).toBeInstanceOf(Promise);
  await up.answer('token-2');
  expect(up.bearer()).toBe('Bearer token-2');
});

test('a header that changes beside the token is known as a credential after the next renewal', async () => {
  const up = started(oauth2('secret-of-client', 'headers: { x-key: header-value-one },'));
  await up.answer('token-1');
  up.credential.replace(oauth2('secret-of-client', 'headers: { x-key: header-value-two },'));
  expect(up.sources).toHaveLength(1);
  while ((up.sources[0]?.fetches.length ?? 0) < 2) await vi.advanceTimersByTimeAsync(1000);
  await up.answer('token-2');
  expect(up.bearer()).toBe('Bearer token-2');
  expect(up.credential.areQuotedIn('no header-value-two here')).toBe(true);
});

test('a credential of another object of the same upstream is taken over with its token and its time', async () => {
  const before = started(oauth2('secret-of-client'));
  await before.answer('token-1');
  const after = started(oauth2('secret-of-client'));
  const next = new UpstreamCredential({
    upstream: 'up',
    config: oauth2('secret-of-client'),
    metrics: after.metrics,
    onChange: () => undefined,
    onFailure: () => undefined,
    createSource: (auth) => new FakeSource(auth).fetch,
  });
  next.inherit(before.credential);
  before.credential.stop();
  next.start();
  expect(next.ready()).toBeUndefined();
  expect(next.headers['authorization']).toBe('Bearer token-1');
});

describe('the gauges of the token', () => {
  test('disappear when the upstream has an `api_key` instead', async () => {
    const up = started(oauth2('secret-of-client'));
    await up.answer('token-1');
    expect(await up.gauges()).toHaveLength(2);
    up.credential.replace(configOf('api_key: key-of-upstream,'));
    expect(await up.gauges()).toBeNull();
    expect(up.bearer()).toBe('Bearer key-of-upstream');
  });

  test('do not come back by a fetch that ends after the upstream was removed', async () => {
    const up = started(oauth2('secret-of-client'));
    up.credential.stop();
    await up.answer('token-1');
    expect(await up.gauges()).toBeNull();
    // A request that is still under way uses it.
    expect(up.bearer()).toBe('Bearer token-1');
  });
});
