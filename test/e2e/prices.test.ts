// What requests of each kind cost, end to end, and from when a changed price counts: by its time, by a reload, and in a price list.
import { writeFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { FORM_TYPE, field, file, formBytes } from '../helpers/forms.ts';
import { fleetingClock, type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  SSE_HEADERS,
  type Step,
  send,
  sse,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

const TOKENS = { prompt: 1000, completion: 100 };

let upstream: HostileUpstream;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
});
afterAll(() => upstream?.close());

const models = (prices: Readonly<Record<string, object>>) =>
  Object.fromEntries(
    Object.entries(prices).map(([name, price]) => [
      name,
      { targets: [{ upstream: 'up', model: 'x' }], price },
    ]),
  );
const configOf = (config: object): GatewayOptions => ({
  config: { upstreams: { up: { base_url: upstream.baseUrl } }, ...JSON.parse(JSON.stringify(config)) },
});

async function costOf(gateway: Gateway, key: string): Promise<unknown> {
  await until(() => gateway.app.inFlight === 0, 'the end of the request');
  const answer = await fetch(`${gateway.url}/admin/usage`, { headers: { authorization: `Bearer ${key}` } });
  return Reflect.get(Object(Reflect.get(Object(await answer.json()), 'totals')), 'cost');
}

/** The sum over models and upstreams. */
async function costInMetrics(gateway: Gateway): Promise<number> {
  const samples = (await gateway.metrics()).matchAll(/^tollgate_cost_total\{.*\} (\S+)$/gm);
  return Array.from(samples, ([, value]) => Number(value)).reduce((sum, value) => sum + value, 0);
}

describe('a request costs', () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await startGateway({
      now: fleetingClock(),
      ...configOf({
        models: models({
          sound: {
            input: 1,
            output: 2,
            audio_input: 10,
            audio_output: 20,
            cached_input: 0.5,
            cache_write: 3,
            reasoning: 4,
          },
          image: { image: 0.04 },
          picture: { input: 1, image_input: 8, output: 40, image: 0.01 },
          speech: { characters: 15 },
          minute: { minute: 0.006, request: 0.1 },
          request: { input: 0, output: 0, request: 0.25 },
        }),
      }),
    });
  });
  afterAll(() => gateway?.close());

  async function costAfter(
    path: string,
    body: object | Buffer,
    answer: Parameters<HostileUpstream['always']>[0],
  ): Promise<unknown> {
    upstream.always(answer);
    const key = await gateway.issueKey();
    const type = Buffer.isBuffer(body) ? FORM_TYPE : 'application/json';
    const before = await costInMetrics(gateway);
    const answered = await fetch(`${gateway.url}/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': type },
      body: Buffer.isBuffer(body) ? body : JSON.stringify(body),
    });
    await answered.arrayBuffer();
    const cost = await costOf(gateway, key);
    expect((await costInMetrics(gateway)) - before).toBeCloseTo(Number(cost), 9);
    return cost;
  }

  test('what each kind of its tokens costs', async () => {
    const usage = {
      prompt_tokens: 1000,
      completion_tokens: 200,
      prompt_tokens_details: { cached_tokens: 100, audio_tokens: 300, cache_write_tokens: 50 },
      completion_tokens_details: { reasoning_tokens: 20, audio_tokens: 80 },
    };
    const cost = await costAfter(
      'chat/completions',
      chatRequest({ model: 'sound' }),
      json(200, { ...completion(), usage }),
    );
    // In millionths: text, sound, cache, written; then text, sound, reasoning.
    expect(cost).toBe((550 * 1 + 300 * 10 + 100 * 0.5 + 50 * 3 + 100 * 2 + 80 * 20 + 20 * 4) / 1e6);
  });

  test('what each image of the answer costs, however many were asked for', async () => {
    const data = [{ b64_json: 'aaaa' }, { b64_json: 'bbbb' }];
    const body = { model: 'image', prompt: 'a cat', n: 5 };
    expect(await costAfter('images/generations', body, json(200, { created: 1, data }))).toBe(0.08);
  });

  test('the same for an answer too large to be read at once', async () => {
    const data = Array.from({ length: 3 }, () => ({ b64_json: 'a'.repeat(100_000) }));
    const body = { model: 'image', prompt: 'a cat', n: 5 };
    expect(await costAfter('images/generations', body, json(200, { created: 1, data }))).toBe(0.12);
  });

  test('what each image of a stream costs, and its tokens', async () => {
    const usage = { input_tokens: 50, output_tokens: 100, input_tokens_details: { image_tokens: 40 } };
    const events = sse(
      [
        frame({ type: 'image_generation.partial_image', b64_json: 'a' }),
        frame({ type: 'image_generation.completed', b64_json: 'aa', usage }),
      ],
      { done: false },
    );
    const body = { model: 'picture', prompt: 'a cat', stream: true };
    expect(await costAfter('images/generations', body, events)).toBe(
      (10_000 + 10 * 1 + 40 * 8 + 100 * 40) / 1e6,
    );
  });

  test('the images that were asked for, where an upstream does not say how many there are', async () => {
    const body = { model: 'image', prompt: 'a cat', n: 2 };
    expect(await costAfter('images/generations', body, json(200, { object: 'images', output: [] }))).toBe(
      0.08,
    );
  });

  test('the characters of its text', async () => {
    const sound: Step[] = [head(200, { 'content-type': 'audio/mpeg', 'content-length': '4' }), send('abcd')];
    const body = { model: 'speech', input: 'Grüße 😀', voice: 'alloy' };
    expect(await costAfter('audio/speech', body, sound)).toBe((7 * 15) / 1e6);
  });

  const recording = (format: string) =>
    formBytes([file(Buffer.alloc(16_000 * 90)), field('model', 'minute'), field('response_format', format)]);

  test.each([
    ['its usage tells', 'json', json(200, { text: 'a', usage: { type: 'duration', seconds: 30 } }), 0.5],
    ['it tells beside usage', 'verbose_json', json(200, { text: 'a', duration: 45.0 }), 0.75],
    [
      'its answer tells, of a model that counts tokens',
      'verbose_json',
      json(200, {
        text: 'a',
        duration: 45,
        usage: { type: 'tokens', input_tokens: 5, output_tokens: 5, total_tokens: 10 },
      }),
      0.75,
    ],
  ])('the minutes that %s, and the request', async (_, format, answer, minutes) => {
    expect(await costAfter('audio/transcriptions', recording(format), answer)).toBeCloseTo(
      0.1 + minutes * 0.006,
      12,
    );
  });

  test('the minutes of the recording by its size, where the answer tells none', async () => {
    const text: Step[] = [head(200, { 'content-type': 'text/plain', 'content-length': '2' }), send('a\n')];
    const cost = Number(await costAfter('audio/transcriptions', recording('text'), text));
    expect(cost).toBeGreaterThan(0.1 + 1.5 * 0.006 - 1e-9);
    expect(cost).toBeLessThan(0.1 + 1.51 * 0.006);
  });

  test('its own price once, and nothing where the upstream refused it', async () => {
    const chat = chatRequest({ model: 'request' });
    expect(await costAfter('chat/completions', chat, json(200, completion()))).toBe(0.25);
    expect(await costAfter('chat/completions', chat, json(400, { error: { message: 'no' } }))).toBe(0);
  });

  test('nothing more for calls about a stored response', async () => {
    const stored = {
      id: 'resp_1',
      object: 'response',
      status: 'completed',
      model: 'x',
      output: [],
      usage: { input_tokens: 3, output_tokens: 5, total_tokens: 8 },
    };
    upstream.always(json(200, stored));
    const key = await gateway.issueKey();
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const body = JSON.stringify({ model: 'request', input: 'Hi' });
    const created = await fetch(`${gateway.url}/v1/responses`, { method: 'POST', headers, body });
    expect([created.status, await costOf(gateway, key)]).toEqual([200, 0.25]);
    const got = await fetch(`${gateway.url}/v1/responses/resp_1`, { headers });
    expect([got.status, await costOf(gateway, key)]).toEqual([200, 0.25]);
  });

  test('nothing for counting the input of a response', async () => {
    const answer = json(200, { object: 'response.input_tokens', input_tokens: 11 });
    expect(await costAfter('responses/input_tokens', { model: 'request', input: 'Hi' }, answer)).toBe(0);
  });
});

describe('with a budget', () => {
  const limited = (budgets: object) =>
    startGateway({
      now: fleetingClock(),
      ...configOf({
        tiers: { Pro: { budget: { per_day: 0.1 } } },
        budgets,
        models: {
          ...models({ image: { image: 0.04 }, cheap: { input: 0, output: 0 } }),
          free: { targets: [{ upstream: 'up', model: 'x' }] },
        },
      }),
    });

  test('a model without a price is refused or not, as the operator wants it', async () => {
    upstream.always(json(200, completion()));
    await using refusing = await limited({ unpriced: 'refuse' });
    const before = upstream.requests.length;
    const refused = await refusing.chat(chatRequest({ model: 'free' }));
    expect([refused.status, refused.json()]).toMatchObject([403, { error: { code: 'model_unpriced' } }]);
    expect(upstream.requests.length).toBe(before);
    expect((await refusing.chat(chatRequest({ model: 'cheap' }))).status).toBe(200);
    await using allowing = await limited({});
    expect((await allowing.chat(chatRequest({ model: 'free' }))).status).toBe(200);
  });

  test('the price of what a request asks for is reserved, and what its answer has is charged', async () => {
    await using gateway = await limited({});
    const data = [{ b64_json: 'aaaa' }];
    upstream.always(json(200, { created: 1, data }));
    const key = await gateway.issueKey();
    const draw = async (n: number): Promise<number> => {
      const { status } = await fetch(`${gateway.url}/v1/images/generations`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'image', prompt: 'a cat', n }),
      });
      await until(() => gateway.app.inFlight === 0, 'the end of the request');
      return status;
    };
    // Reserved: 0.12 of 0.1, then 0.08; charged: 0.04 each.
    expect([await draw(3), await draw(2), await draw(2), await draw(1), await draw(1)]).toEqual([
      429, 200, 429, 200, 429,
    ]);
    expect(await costOf(gateway, key)).toBe(0.08);
  });
});

describe('a price', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  test('counts from its minute on, for requests that end then', async () => {
    const start = Date.parse('2031-10-01T09:59:59.000Z');
    vi.useFakeTimers({ toFake: ['Date'], now: start });
    await using gateway = await startGateway(
      configOf({
        models: models({
          m: [
            { input: 2, output: 0 },
            { input: 3, output: 0, from: '2031-10-01T10:00:00Z' },
          ],
          later: { input: 3, output: 0, from: '2031-10-01T10:00:00Z' },
        }),
      }),
    );
    upstream.always(json(200, completion({ tokens: TOKENS })));
    const [before, during, after, unpriced] = await Promise.all([1, 2, 3, 4].map(() => gateway.issueKey()));
    if (before === undefined || during === undefined || after === undefined || unpriced === undefined)
      throw new Error('no key');
    await gateway.chat(chatRequest({ model: 'm' }), { key: before });
    await gateway.chat(chatRequest({ model: 'later' }), { key: unpriced });
    expect(await costOf(gateway, before)).toBe(0.002);
    expect((await costOf(gateway, unpriced)) ?? null).toBeNull();

    let go = (): void => {};
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    upstream.always([
      head(200, SSE_HEADERS),
      (c) => c.chunk(frame(contentChunk('a'))),
      async (c) => {
        await gate;
        await c.chunk(`${frame(finishChunk()) + frame(usageChunk(TOKENS))}data: [DONE]\n\n`);
      },
      lastChunk(),
    ]);
    using client = await gateway.open(chatRequest({ model: 'm', stream: true }), { key: during });
    await client.readUntil('data: ');
    vi.setSystemTime(start + 1000);
    go();
    await client.response();
    expect(await costOf(gateway, during)).toBe(0.003);
    upstream.always(json(200, completion({ tokens: TOKENS })));
    await gateway.chat(chatRequest({ model: 'm' }), { key: after });
    expect(await costOf(gateway, after)).toBe(0.003);
    // What was recorded before keeps its cost.
    expect(await costOf(gateway, before)).toBe(0.002);
  });

  test('changes with a reload for new requests, and not for those that run', async () => {
    const priced = (input: number) => configOf({ models: models({ m: { input, output: 0 } }) });
    await using gateway = await startGateway(priced(2));
    let go = (): void => {};
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    upstream.always([
      head(200, SSE_HEADERS),
      (c) => c.chunk(frame(contentChunk('a'))),
      async (c) => {
        await gate;
        await c.chunk(`${frame(finishChunk()) + frame(usageChunk(TOKENS))}data: [DONE]\n\n`);
      },
      lastChunk(),
    ]);
    const [running, next] = [await gateway.issueKey(), await gateway.issueKey()];
    using client = await gateway.open(chatRequest({ model: 'm', stream: true }), { key: running });
    await client.readUntil('data: ');
    await gateway.writeConfig(priced(5));
    await gateway.logLine((line) => line['msg'] === 'configuration reloaded', 'the reload');
    upstream.always(json(200, completion({ tokens: TOKENS })));
    await gateway.chat(chatRequest({ model: 'm' }), { key: next });
    expect(await fetchCost(gateway, next)).toBe(0.005);
    go();
    await client.response();
    expect(await costOf(gateway, running)).toBe(0.002);
  });

  /** While another request runs. */
  const fetchCost = async (gateway: Gateway, key: string): Promise<unknown> =>
    await until(async () => {
      const answer = await fetch(`${gateway.url}/admin/usage`, {
        headers: { authorization: `Bearer ${key}` },
      });
      return Reflect.get(Object(Reflect.get(Object(await answer.json()), 'totals')), 'cost');
    }, 'the cost');

  test('of a list is that of the file as it is now, and of its last good content where it is broken', async () => {
    const list = (input: string) =>
      `currency: EUR\nupstreams:\n  up:\n    "x*": { input: ${input}, output: 0 }\n`;
    const options = configOf({ currency: 'EUR' });
    const config = {
      ...options.config,
      models: {
        m: { targets: [{ upstream: 'up', model: 'x-1' }] },
        'p/*': { targets: [{ upstream: 'up', model: '*' }] },
        own: { targets: [{ upstream: 'up', model: 'x-1', price: { input: 50, output: 0 } }] },
        ofModel: { targets: [{ upstream: 'up', model: 'x-1' }], price: { input: 40, output: 0 } },
      },
    };
    await using start = await startGateway(configOf({ models: models({ m: { input: 0, output: 0 } }) }));
    const path = start.directory.file('prices.yaml');
    await writeFile(path, list('2'));
    await start.writeConfig({
      config: JSON.parse(JSON.stringify({ ...config, prices: path })),
    });
    await start.logLine((line) => line['msg'] === 'configuration reloaded', 'the reload');
    upstream.always(json(200, completion({ tokens: TOKENS })));
    const costFor = async (model: string): Promise<unknown> => {
      const key = await start.issueKey();
      await start.chat(chatRequest({ model }), { key });
      return await costOf(start, key);
    };
    expect(await costFor('m')).toBe(0.002);
    expect(await costFor('p/x-9')).toBe(0.002);
    expect((await costFor('p/y')) ?? null).toBeNull();
    expect(await costFor('own')).toBe(0.05);
    expect(await costFor('ofModel')).toBe(0.04);

    await writeFile(path, list('3'));
    await start.logLine(
      (line) => line['msg'] === 'the new value of a referenced file is in force',
      'the list',
    );
    expect(await costFor('m')).toBe(0.003);

    await writeFile(path, list('-1'));
    const rejected = await start.logLine(
      (line) => String(line['msg']).startsWith('a referenced file has a value'),
      'the broken list',
    );
    expect(String(rejected['faults'])).toBe(`${path}:4:20: upstreams.up["x*"].input: must be at least 0`);
    expect(await costFor('m')).toBe(0.003);

    await writeFile(path, list('4'));
    await start.logLine(
      (line) =>
        line['file'] === path &&
        line['msg'] === 'the new value of a referenced file is in force' &&
        start.logs.indexOf(line) > start.logs.indexOf(rejected),
      'the mended list',
    );
    expect(await costFor('m')).toBe(0.004);
  });
});
