// The limits of a tier, as clients meet them: how many get in, what the others are told, and what rotation and the death of a
// replica change about it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FLEET_TIMEOUT, type Fleet, startFleet } from '../helpers/fleet.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  HostileUpstream,
  json,
  type Script,
  silence,
  standardAnswer,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { startRedis } from '../helpers/redis.ts';
import { pause, until } from '../helpers/wait.ts';
import { ask, bearer, field, listModels, rotate, statusOf, textField } from './holder.ts';

const CHAT = chatRequest({ model: 'm', max_tokens: 10 });

let upstream: HostileUpstream;
beforeAll(async () => {
  upstream = await HostileUpstream.start();
});
afterAll(() => upstream?.close());

const configOf = (limits: { readonly [name: string]: number }) => ({
  upstreams: { up: { base_url: upstream.baseUrl, max_concurrency: 1000 } },
  models: { m: { targets: [{ upstream: 'up', model: 'm' }] } },
  tiers: { Free: limits, Lite: limits, Pro: {} },
});

const gatewayWith = (limits: { readonly [name: string]: number }) =>
  startGateway({ config: configOf(limits) });

async function count(responses: readonly RawResponse[]): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { status } of responses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

const many = (gateways: readonly Gateway[], times: number, key: string, body: object = CHAT) =>
  Promise.all(
    Array.from({ length: times }, (_, index) => {
      const gateway = gateways[index % gateways.length];
      if (gateway === undefined) throw new Error('no gateway');
      return gateway.chat(body, { key });
    }),
  );

function limitsIn(response: RawResponse): Record<string, string | undefined> {
  return Object.fromEntries(
    ['limit', 'remaining', 'reset'].flatMap((what) =>
      ['requests', 'tokens'].map((family) => [
        `${what}-${family}`,
        response.header(`x-ratelimit-${what}-${family}`),
      ]),
    ),
  );
}

describe('on one gateway', () => {
  test('of ten times as many at once exactly as many as allowed reach the upstream', async () => {
    await using gateway = await gatewayWith({ requests_per_minute: 12 });
    const key = await gateway.issueKey('Lite');
    const before = upstream.requests.length;
    expect(await count(await many([gateway], 120, key))).toEqual({ 200: 12, 429: 108 });
    expect(upstream.requests.length - before).toBe(12);
    // Others have limits of their own, and Pro has none.
    expect((await gateway.chat(CHAT, { key: await gateway.issueKey('Lite') })).status).toBe(200);
    const unlimited = await many([gateway], 30, await gateway.issueKey('Pro'));
    expect(await count(unlimited)).toEqual({ 200: 30 });
    expect(unlimited[0]?.header('x-ratelimit-limit-requests')).toBeUndefined();
  });

  test('a refusal says which limit it was, and when to come back', async () => {
    await using gateway = await gatewayWith({ requests_per_minute: 1, tokens_per_minute: 1000 });
    const key = await gateway.issueKey('Lite');
    const first = await gateway.chat(CHAT, { key });
    expect(limitsIn(first)).toMatchObject({
      'limit-requests': '1',
      'remaining-requests': '0',
      'limit-tokens': '1000',
    });
    const refused = await gateway.chat(CHAT, { key });
    expect([refused.status, field(refused.json(), 'error')]).toEqual([
      429,
      {
        message: 'The limit of 1 requests per minute is reached.',
        type: 'requests',
        param: null,
        code: 'rate_limit_exceeded',
      },
    ]);
    expect(limitsIn(refused)).toMatchObject({
      'remaining-requests': '0',
      'reset-requests': expect.stringMatching(/^(1m0s|\d+(\.\d+)?s)$/),
    });
    expect(refused.header('retry-after')).toMatch(/^([1-9]|[1-5]\d|60)$/);
    expect(refused.header('x-should-retry')).toBeUndefined();
    // To look at models is free, and says how things stand.
    const models = await listModels(gateway.url, key);
    expect([models.status, models.header('x-ratelimit-remaining-requests')]).toEqual([200, '0']);
  });

  test('an answer that never came to the limits says how they stand, and one without a key does not', async () => {
    await using gateway = await gatewayWith({ requests_per_minute: 7 });
    const key = await gateway.issueKey('Lite');
    for (const [body, status] of [
      ['{', 400],
      [chatRequest({ model: 'unknown' }), 404],
    ] as const) {
      const response = await gateway.chat(body, { key });
      expect([response.status, response.header('x-ratelimit-remaining-requests')]).toEqual([status, '7']);
    }
    const missing = await ask(gateway.url, {
      method: 'GET',
      target: '/v1/models/unknown',
      headers: bearer(key),
    });
    expect([missing.status, missing.header('x-ratelimit-limit-requests')]).toEqual([404, '7']);
    const stranger = await gateway.chat(CHAT, { key: '00112233445566778899aabbccddeeff' });
    expect([stranger.status, stranger.header('x-ratelimit-limit-requests')]).toEqual([401, undefined]);
  });

  test('tokens are reserved by what the answer may have, and settled by what it had', async () => {
    await using gateway = await gatewayWith({ tokens_per_minute: 400 });
    const key = await gateway.issueKey('Lite');
    // About 125 each, so that of ten at once three fit, though each of them will use 8.
    const body = chatRequest({ model: 'm', max_tokens: 100 });
    const refusals = () =>
      gateway.metric('tollgate_limits_refused_total{limit="tokens_per_minute",scope="holder",tier="Lite"}');
    const held: Script = async (c) => {
      await c.waitFor(async () => (await refusals()) === 7);
      await standardAnswer(c);
    };
    upstream.next(held, held, held);
    expect(await count(await many([gateway], 10, key, body))).toEqual({ 200: 3, 429: 7 });
    const after = await listModels(gateway.url, key);
    expect(after.header('x-ratelimit-remaining-tokens')).toBe(String(400 - 3 * 8));
    const refused = await gateway.chat(chatRequest({ model: 'm', max_tokens: 370 }), { key });
    expect(field(refused.json(), 'error')).toMatchObject({ type: 'tokens', code: 'rate_limit_exceeded' });
  });

  test('a request that is larger than the whole limit is refused as such', async () => {
    await using gateway = await gatewayWith({ tokens_per_minute: 400 });
    const key = await gateway.issueKey('Lite');
    const refused = await gateway.chat(chatRequest({ model: 'm', max_tokens: 5000 }), { key });
    expect([refused.status, refused.header('x-should-retry'), refused.header('retry-after')]).toEqual([
      429,
      'false',
      undefined,
    ]);
    expect(textField(refused.json(), 'error', 'message')).toMatch(
      /about 50\d\d tokens, and the limit is 400 tokens per minute/,
    );
    // What is only assumed of an answer refuses nobody.
    expect((await gateway.chat(chatRequest({ model: 'm' }), { key })).status).toBe(200);
  });

  test('a month that is spent is a matter of quota', async () => {
    await using gateway = await gatewayWith({ tokens_per_month: 60 });
    const key = await gateway.issueKey('Lite');
    upstream.next(json(200, completion({ tokens: { prompt: 40, completion: 20 } })));
    expect((await gateway.chat(chatRequest({ model: 'm' }), { key })).status).toBe(200);
    const refused = await gateway.chat(chatRequest({ model: 'm' }), { key });
    expect([
      refused.status,
      refused.header('x-should-retry'),
      field(refused.json(), 'error', 'code'),
    ]).toEqual([429, 'false', 'insufficient_quota']);
  });

  test('tokens of a day that are used up are a rate limit, also after a restart, and the headers are of the nearest limit', async () => {
    const limits = { tokens_per_minute: 1000, tokens_per_day: 60, tokens_per_month: 1000 };
    await using gateway = await gatewayWith(limits);
    const key = await gateway.issueKey('Lite');
    upstream.next(json(200, completion({ tokens: { prompt: 40, completion: 20 } })));
    const first = await gateway.chat(chatRequest({ model: 'm' }), { key });
    expect([first.status, limitsIn(first)['limit-tokens']]).toEqual([200, '60']);
    const check = (refused: RawResponse) => {
      expect([refused.status, refused.header('x-ratelimit-remaining-tokens')]).toEqual([429, '0']);
      expect(field(refused.json(), 'error')).toMatchObject({
        message: 'The limit of 60 tokens per day is reached.',
        type: 'tokens',
        code: 'rate_limit_exceeded',
      });
    };
    check(await gateway.chat(chatRequest({ model: 'm' }), { key }));
    await gateway.app.close();
    await using again = await startGateway({
      config: { ...configOf(limits), store: `sqlite:${gateway.directory.file('tollgate.db')}` },
    });
    check(await again.chat(chatRequest({ model: 'm' }), { key }));
  });

  test('a place is free again when its answer has ended, and rotation frees none', async () => {
    await using gateway = await gatewayWith({ concurrency: 1, requests_per_minute: 4 });
    const key = await gateway.issueKey('Lite');
    upstream.next(silence());
    using running = await gateway.open(CHAT, { key });
    await until(() => gateway.metric('tollgate_limit_leases'), 'the request to run');
    const refused = await gateway.chat(CHAT, { key });
    expect([refused.status, refused.header('retry-after')]).toEqual([429, '1']);
    const next = textField((await rotate(gateway.url, key)).json(), 'key');
    expect((await gateway.chat(CHAT, { key: next })).status).toBe(429);
    running.reset();
    await until(async () => (await gateway.metric('tollgate_limit_leases')) === 0, 'the end of it');
    const after = await gateway.chat(CHAT, { key: next });
    // Two were admitted, with two keys of one holder.
    expect([after.status, after.header('x-ratelimit-remaining-requests')]).toEqual([200, '2']);
  });

  test('day and month go on after a restart', async () => {
    const limits = { requests_per_day: 3, tokens_per_month: 1000 };
    await using gateway = await gatewayWith(limits);
    const key = await gateway.issueKey('Lite');
    expect(await count(await many([gateway], 2, key))).toEqual({ 200: 2 });
    await gateway.app.close();
    await using again = await startGateway({
      config: { ...configOf(limits), store: `sqlite:${gateway.directory.file('tollgate.db')}` },
    });
    const third = await again.chat(CHAT, { key });
    expect([third.status, third.header('x-ratelimit-remaining-requests')]).toEqual([200, '0']);
    expect((await again.chat(CHAT, { key })).status).toBe(429);
  });
});

test('what a day has used is known after Redis was emptied, though the gateway is held up', async () => {
  await using redis = await startRedis();
  const config = { ...configOf({ requests_per_day: 60 }), redis: redis.url, secret: 'a secret of the test' };
  await using gateway = await startGateway({ config });
  const key = await gateway.issueKey('Lite');
  expect(await count(await many([gateway], 60, key))).toEqual({ 200: 60 });
  for (let round = 0; round < 3; round += 1) {
    await redis.flush();
    const answers = many([gateway], 15, key);
    // As long as the gateway waits for the store, and longer.
    await pause(5);
    const end = performance.now() + 300;
    while (performance.now() < end);
    expect(await count(await answers)).toEqual({ 429: 15 });
  }
});

describe('on three replicas', () => {
  let fleet: Fleet;
  const limits = { requests_per_minute: 15, concurrency: 50 };

  beforeAll(async () => {
    const options = { config: configOf(limits), process: false };
    fleet = await startFleet({ replicas: 2, postgres: 'shared', gateway: options });
    // The one that is killed.
    await fleet.join({}, true);
  }, FLEET_TIMEOUT);
  afterAll(() => fleet?.[Symbol.asyncDispose]());

  const gateways = () => fleet.replicas.map(({ gateway }) => gateway);

  async function issue(): Promise<string> {
    const { stdout } = await fleet.keys('issue', '--tier', 'Lite');
    const key = stdout.trim();
    for (const gateway of gateways()) expect(await statusOf(gateway.url, key)).toBe(200);
    return key;
  }

  /**
   * Ten times as many as allowed, at all replicas at once. On a machine that stalls for longer than Redis is waited for, one of
   * them goes on by itself for a moment; then it is done again, with a new key.
   */
  async function crowd(): Promise<{ readonly key: string; readonly counts: Record<string, number> }> {
    for (let round = 1; ; round += 1) {
      const key = await issue();
      const before = await away();
      const counts = await count(await many(gateways(), 150, key));
      if (round === 5 || (await away()) === before) return { key, counts };
    }
  }

  /** Calls that Redis did not answer, or was not asked. */
  async function away(): Promise<number> {
    const calls = ['deadline', 'lost', 'away'].map((outcome) =>
      fleet.metric(`tollgate_redis_calls_total{outcome="${outcome}"}`),
    );
    return (await Promise.all(calls)).reduce((sum, each) => sum + each, 0);
  }

  test('of ten times as many at once exactly as many as allowed get in', async () => {
    const { key, counts } = await crowd();
    expect(counts).toEqual({ 200: 15, 429: 135 });
    const report = await ask(gateways()[1]?.url ?? '', {
      method: 'GET',
      target: '/admin/usage',
      headers: bearer(key),
    });
    expect(report.json()).toMatchObject({
      limits: [{ limit: 'requests_per_minute', max: 15, used: 15, remaining: 0 }, {}],
    });
  });

  test('with Redis away each goes on by itself with the same limits, says so, and comes back', async () => {
    const key = await issue();
    fleet.redis.pause();
    await until(async () => (await fleet.metric('tollgate_redis_up')) === 0, 'Redis to be away');
    expect(await count(await many(gateways(), 150, key))).toEqual({ 200: 45, 429: 105 });
    expect(await fleet.metric('tollgate_limits_degraded')).toBe(3);
    for (const { url } of gateways()) {
      expect(await (await fetch(new URL('/health', url))).json()).toMatchObject({ status: 'degraded' });
    }
    fleet.redis.resume();
    await until(async () => (await fleet.metric('tollgate_limits_degraded')) === 0, 'the limits of all');
    expect((await crowd()).counts).toEqual({ 200: 15, 429: 135 });
  });

  test('what a replica had reserved when it was killed is given back', async () => {
    const key = await issue();
    const [, second, killed] = fleet.replicas;
    upstream.always(silence());
    await until(async () => (await fleet.metric('tollgate_redis_up')) === 3, 'Redis in every replica');
    const clients = [await killed?.gateway.open(CHAT, { key }), await killed?.gateway.open(CHAT, { key })];
    const places = async () => {
      const report = await ask(second?.gateway.url ?? '', {
        method: 'GET',
        target: '/admin/usage',
        headers: bearer(key),
      });
      const states = field(report.json(), 'limits');
      return field(Array.isArray(states) ? states[1] : undefined, 'used');
    };
    await until(async () => (await places()) === 2, 'two places taken');
    killed?.gateway.child.kill('SIGKILL');
    await until(async () => (await places()) === 0, 'the places to be free again', 120_000);
    for (const client of clients) client?.destroy();
  }, 180_000);
});
