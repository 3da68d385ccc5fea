// Large bodies and the limits of their holder: a place is taken before the body is read, a request that is refused for its tokens
// counts, and nothing is counted twice, however it ends.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FORM_TYPE, file, formBytes, field as formField, noise } from '../helpers/forms.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import type { RawClient, RawResponse } from '../helpers/raw-client.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { ask, bearer, field, textField } from './holder.ts';

const LIMITS = { requests_per_minute: 4, requests_per_day: 100, tokens_per_minute: 40_000, concurrency: 2 };
const MIB = 1024 * 1024;
const PATH = '/v1/chat/completions';
/** Far more than the limit of tokens. */
const HUGE = Buffer.from(JSON.stringify(chatRequest({ model: 'm', user: 'x'.repeat(2 * MIB) })));
/** Large, and within the limit. */
const GOOD = Buffer.from(
  JSON.stringify(chatRequest({ model: 'm', max_tokens: 10, user: 'x'.repeat(100_000) })),
);
const JSON_TYPE = { 'content-type': 'application/json' };

let upstream: HostileUpstream;
let redis: RedisServer;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  redis = await startRedis();
}, REDIS_TIMEOUT);
beforeEach(() => upstream.always(json(200, completion({ content: 'yes' }))));
afterAll(async () => {
  await upstream?.close();
  await redis?.stop();
});

describe.each(['in memory', 'in Redis'])('counted %s', (where) => {
  let gateway: Gateway;

  beforeAll(async () => {
    gateway = await startGateway({
      config: {
        ...(where === 'in Redis' ? { redis: redis.url, secret: 'a secret of the test' } : {}),
        upstreams: { up: { base_url: upstream.baseUrl } },
        models: { m: { targets: [{ upstream: 'up', model: 'm' }] } },
        max_body: '8MiB',
        tiers: { Free: LIMITS, Lite: LIMITS, Pro: {} },
      },
    });
  });
  afterAll(() => gateway?.close());

  const headers = (key: string, more: Record<string, string>) => ({ ...bearer(key), ...JSON_TYPE, ...more });

  /** The head of a request, and of its body as much as is given. */
  async function begin(key: string, more: Record<string, string>, body = ''): Promise<RawClient> {
    const client = await gateway.connect();
    await client.send({
      method: 'POST',
      target: PATH,
      headers: Object.entries(headers(key, more)),
      body: '',
    });
    if (body !== '') await client.write(body);
    return client;
  }

  const announced = (key: string, bytes: number) => begin(key, { 'content-length': String(bytes) });

  async function used(key: string, limit: string): Promise<unknown> {
    const report = await ask(gateway.url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });
    const states = field(report.json(), 'limits');
    const all: unknown[] = Array.isArray(states) ? states : [];
    return field(
      all.find((state) => field(state, 'limit') === limit),
      'used',
    );
  }

  /**
   * A request gives back its place, and the tokens that it did not use, after its answer; one that Redis answered late has reserved twice.
   * What an answer uses is a small part of what a large request reserves.
   */
  const settled = (key: string) =>
    until(
      async () =>
        (await used(key, 'concurrency')) === 0 && Number(await used(key, 'tokens_per_minute')) < 1000,
      'the places and the tokens to be free',
    );

  /** Of the day, because a minute may end meanwhile. Where Redis answered late, a request is counted twice until its first reservation is given back. */
  const counted = (key: string, requests: number) =>
    until(async () => {
      const now = await used(key, 'requests_per_day');
      if (now !== requests) throw new Error(`${now} are counted`);
      return true;
    }, `${requests} requests`);

  const codeOf = (response: RawResponse) => [
    response.status,
    textField(field(response.json(), 'error'), 'type'),
  ];

  test('one that is refused for its tokens counts, so that the next ones are not even read', async () => {
    const key = await gateway.issueKey('Lite');
    for (let number = 1; number <= 4; number += 1) {
      expect(codeOf(await gateway.chat(HUGE, { key }))).toEqual([429, 'tokens']);
      await counted(key, number);
    }
    expect([await used(key, 'tokens_per_minute'), await used(key, 'concurrency')]).toEqual([0, 0]);
    // None of its body is sent, and it is refused all the same; nobody is asked to go on.
    for (const more of [{}, { expect: '100-continue' }]) {
      using client = await begin(key, { 'content-length': String(7 * MIB), ...more });
      const refused = await client.responseHead();
      expect([refused.status, refused.interim]).toEqual([429, []]);
      expect(refused.header('retry-after')).toBeDefined();
    }
    // Without a length it is read as far as it is small.
    using chunked = await begin(key, { 'transfer-encoding': 'chunked' });
    const piece = `8000\r\n${' '.repeat(0x8000)}\r\n`;
    await chunked.write(piece);
    await chunked.write(piece);
    expect(chunked.responses).toHaveLength(0);
    await chunked.write(piece);
    expect((await chunked.responseHead()).status).toBe(429);
    expect(await used(key, 'requests_per_minute')).toBe(4);
  });

  test('one that is admitted has one place, is counted once, and with its real tokens', async () => {
    const key = await gateway.issueKey('Lite');
    for (const body of [GOOD, GOOD]) {
      const response = await gateway.chat(body, { key });
      expect(response.status).toBe(200);
      await settled(key);
    }
    const real = completion({ content: 'yes' });
    const tokens = Number(field(field(real, 'usage'), 'total_tokens'));
    await counted(key, 2);
    expect(await used(key, 'requests_per_day')).toBe(2);
    expect(await used(key, 'tokens_per_minute')).toBe(2 * tokens);
  });

  test('one without a length, and one that is compressed, likewise', async () => {
    const key = await gateway.issueKey('Lite');
    const client = await begin(key, { 'transfer-encoding': 'chunked' });
    await client.write(
      Buffer.concat([Buffer.from(`${GOOD.length.toString(16)}\r\n`), GOOD, Buffer.from('\r\n0\r\n\r\n')]),
    );
    expect((await client.response()).status).toBe(200);
    client.destroy();
    await settled(key);
    const { gzipSync } = await import('node:zlib');
    const response = await gateway.chat(gzipSync(GOOD), { key, headers: { 'content-encoding': 'gzip' } });
    expect(response.status).toBe(200);
    await settled(key);
    await counted(key, 2);
  });

  test('its place is taken while it is uploaded, and given back when the client leaves', async () => {
    const key = await gateway.issueKey('Lite');
    const first = await announced(key, MIB);
    const second = await announced(key, MIB);
    await until(async () => (await used(key, 'concurrency')) === 2, 'two places');
    using third = await announced(key, MIB);
    expect((await third.responseHead()).status).toBe(429);
    expect((await gateway.chat(chatRequest({ model: 'm', max_tokens: 1 }), { key })).status).toBe(429);
    first.destroy();
    second.destroy();
    await settled(key);
    await counted(key, 2);
    expect((await gateway.chat(GOOD, { key })).status).toBe(200);
  });

  // In memory a place is taken at once.
  if (where === 'in Redis')
    test('a client that leaves while its place is being taken holds none', async () => {
      const key = await gateway.issueKey('Lite');
      const piece = `8000\r\n${' '.repeat(0x8000)}\r\n`;
      const client = await begin(key, { 'transfer-encoding': 'chunked' });
      await client.write(piece + piece);
      redis.pause();
      try {
        await client.write(piece);
        client.destroy();
        await until(
          () => gateway.logs.some((line) => line['outcome'] === 'client_closed'),
          'the client to be gone',
        );
      } finally {
        redis.resume();
      }
      await counted(key, 1);
      await settled(key);
    });

  test.each([
    ['a model that is unknown', 404, chatRequest({ model: 'nothing', user: 'x'.repeat(100_000) })],
    ['no JSON', 400, `{"model": "m", ${' '.repeat(100_000)}`],
  ])('%s is counted once', async (_what, status, body) => {
    const key = await gateway.issueKey('Lite');
    const response = await gateway.chat(body, { key });
    expect([response.status, response.header('x-ratelimit-remaining-requests')]).toEqual([status, '3']);
    expect([await used(key, 'requests_per_minute'), await used(key, 'concurrency')]).toEqual([1, 0]);
    expect(await used(key, 'tokens_per_minute')).toBe(0);
  });

  test('a form takes its place before it is read, too', async () => {
    const key = await gateway.issueKey('Lite');
    const form = formBytes([formField('model', 'm'), file(noise(200_000))]);
    const target = '/v1/audio/transcriptions';
    const send = async (bytes: Buffer | undefined): Promise<RawResponse> => {
      using client = await gateway.connect();
      const more = { ...bearer(key), 'content-type': FORM_TYPE, 'content-length': String(form.length) };
      await client.send({ method: 'POST', target, headers: Object.entries(more), body: '' });
      if (bytes !== undefined) await client.write(bytes);
      return bytes === undefined ? await client.responseHead() : await client.response();
    };
    upstream.always(json(200, { text: 'heard' }));
    for (let number = 1; number <= 4; number += 1) expect((await send(form)).status).toBe(200);
    expect(await used(key, 'requests_per_minute')).toBe(4);
    expect((await send(undefined)).status).toBe(429);
  });

  test('small ones cost nothing when they are refused for their tokens', async () => {
    const key = await gateway.issueKey('Lite');
    const small = chatRequest({ model: 'm', max_tokens: 50_000 });
    expect(codeOf(await gateway.chat(small, { key }))).toEqual([429, 'tokens']);
    expect(await used(key, 'requests_per_minute')).toBe(0);
  });
});
