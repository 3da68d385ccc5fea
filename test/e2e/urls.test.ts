// Where a request goes and who may send it there: the URL, headers and credentials of an upstream as configured, and the one
// name by which a model is found, allowed and logged. From the client's socket to the upstream's.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Tier } from '../../src/config/schema/config-schema.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  HostileUpstream,
  json,
  type RecordedRequest,
  upstreamError,
} from '../helpers/hostile-upstream.ts';

let upstream: HostileUpstream;
beforeAll(async () => {
  upstream = await HostileUpstream.start({ script: json(200, completion()) });
});
afterAll(() => upstream.close());

/** The only request since `before`. */
async function only(before: number): Promise<RecordedRequest> {
  const request = await upstream.request(before);
  expect(upstream.requests).toHaveLength(before + 1);
  return request;
}

type Setting = Readonly<Record<string, string | Readonly<Record<string, string>>>>;

describe('the URL of an upstream', () => {
  const CHAT = '/chat/completions';
  const ROWS: readonly [string, Setting, string][] = [
    ['', {}, CHAT],
    ['/', {}, CHAT],
    ['/v1', {}, `/v1${CHAT}`],
    ['/v1/', {}, `/v1${CHAT}`],
    ['/v1///', {}, `/v1${CHAT}`],
    // Segments that look like the gateway's own are the upstream's all the same.
    ['/v1/v1', {}, `/v1/v1${CHAT}`],
    ['/v1/chat', {}, `/v1/chat${CHAT}`],
    ['/chat/completions/v2', {}, `/chat/completions/v2${CHAT}`],
    ['/a//b', {}, `/a//b${CHAT}`],
    ['/a/../b/./c', {}, `/b/c${CHAT}`],
    ['/a%2Fb/c%20d/%C3%A4', {}, `/a%2Fb/c%20d/%C3%A4${CHAT}`],
    ['/ä', {}, `/%C3%A4${CHAT}`],
    ['/a%2fb', {}, `/a%2fb${CHAT}`],
    ['/v1beta/openai/', {}, `/v1beta/openai${CHAT}`],
    ['/v1?key=a%20b&flag&sig=x%2By/z', {}, `/v1${CHAT}?key=a%20b&flag&sig=x%2By/z`],
    ['/v1/?a=1', {}, `/v1${CHAT}?a=1`],
    ['?a=1', {}, `${CHAT}?a=1`],
    ['/v1?', {}, `/v1${CHAT}`],
    ['/v1', { query: { 'api-version': '2024-10-21' } }, `/v1${CHAT}?api-version=2024-10-21`],
    ['/v1?a=1', { query: { b: '2', c: '3' } }, `/v1${CHAT}?a=1&b=2&c=3`],
    ['/v1', { query: { q: 'a&b=c#d?é' } }, `/v1${CHAT}?q=a%26b%3Dc%23d%3F%C3%A9`],
    [
      '/openai/deployments/dep%20loy%2Fment',
      { query: { 'api-version': '2024-10-21' } },
      `/openai/deployments/dep%20loy%2Fment${CHAT}?api-version=2024-10-21`,
    ],
  ];
  let gateway: Gateway;

  beforeAll(async () => {
    const names = ROWS.map((_, index) => `up-${index}`);
    gateway = await startGateway({
      config: {
        upstreams: Object.fromEntries(
          ROWS.map(([root, setting], index) => [
            names[index] ?? '',
            { base_url: `${upstream.url}${root}`, ...setting },
          ]),
        ),
        models: Object.fromEntries(
          names.map((name) => [name, { targets: [{ upstream: name, model: 'm' }] }]),
        ),
      },
    });
  });
  afterAll(() => gateway?.close());

  test.each(ROWS.map(([root, setting, target], index) => ({ root, setting, target, index })))(
    '$root with $setting is asked at $target, whatever the client wrote behind its own',
    async ({ target, index }) => {
      for (const query of ['', '?', '?api-version=mine&model=other&a=9', '?&&==%20;']) {
        const before = upstream.requests.length;
        using client = await gateway.connect();
        const headers = { authorization: `Bearer ${await gateway.key()}` };
        const own = `/v1/chat/completions${query}`;
        await client.send({ target: own, headers, body: chatRequest({ model: `up-${index}` }) });
        expect((await client.response()).status).toBe(200);
        expect((await only(before)).target).toBe(target);
      }
    },
  );
});

describe('how the gateway presents itself', () => {
  const SETTINGS: Readonly<Record<string, Setting>> = {
    bare: {},
    bearer: { api_key: 'credential-of-bearer' },
    azure: { headers: { 'Api-Key': 'credential-of-azure' } },
    both: { api_key: 'credential-of-both', headers: { 'x-project': 'p', 'OpenAI-Organization': 'o' } },
    scheme: { headers: { Authorization: 'Basic Y3JlZA==' } },
    host: { headers: { 'x-forwarded-for': '192.0.2.1', 'x-empty-ends': ' padded ' } },
  };
  let gateway: Gateway;

  beforeAll(async () => {
    const names = Object.keys(SETTINGS);
    gateway = await startGateway({
      config: {
        upstreams: Object.fromEntries(
          names.map((name) => [name, { base_url: upstream.baseUrl, ...SETTINGS[name] }]),
        ),
        models: Object.fromEntries(
          names.map((name) => [name, { targets: [{ upstream: name, model: 'm' }] }]),
        ),
      },
    });
  });
  afterAll(() => gateway?.close());

  test.each<[string, Readonly<Record<string, string | undefined>>]>([
    ['bare', { authorization: undefined, 'api-key': undefined, 'x-project': undefined }],
    ['bearer', { authorization: 'Bearer credential-of-bearer', 'api-key': undefined }],
    ['azure', { authorization: undefined, 'api-key': 'credential-of-azure' }],
    ['both', { authorization: 'Bearer credential-of-both', 'x-project': 'p', 'openai-organization': 'o' }],
    ['scheme', { authorization: 'Basic Y3JlZA==' }],
    ['host', { 'x-forwarded-for': '192.0.2.1', 'x-empty-ends': 'padded' }],
  ])('%s: what is configured and nothing of the client', async (model, expected) => {
    const before = upstream.requests.length;
    const key = await gateway.key();
    const response = await gateway.chat(chatRequest({ model }), {
      headers: {
        'api-key': key,
        'x-api-key': key,
        'x-project': 'of-the-client',
        'openai-organization': 'of-the-client',
        'x-forwarded-for': '203.0.113.9',
        cookie: `key=${key}`,
      },
    });
    expect(response.status).toBe(200);
    const request = await only(before);
    for (const [name, value] of Object.entries(expected))
      expect([name, request.header(name)]).toEqual([name, value]);
    expect(request.rawHead.toString('latin1')).not.toContain(key);
    expect(request.rawHead.toString('latin1')).not.toMatch(/of-the-client|203\.0\.113\.9/);
  });
});

describe('the name of a model', () => {
  let gateway: Gateway;
  const keys = new Map<Tier, string>();
  const OTHER = 'only-for-pro';

  beforeAll(async () => {
    const at = (...models: string[]) => ({
      targets: models.map((model, index) => ({ upstream: 'up', model, priority: index + 1 })),
    });
    gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: {
        models: {
          'for-all': at('upstream-for-all', OTHER),
          [OTHER]: { ...at('upstream-for-pro'), tiers: ['Pro'] },
          'Mixed-Case': at('upstream-mixed'),
          'with space': at('upstream-space'),
          'only-*': at('upstream-*'),
        },
      },
    });
    for (const tier of ['Free', 'Pro'] as const) keys.set(tier, await gateway.issueKey(tier));
  });
  afterAll(() => gateway?.close());
  let before = 0;
  beforeEach(() => {
    before = upstream.requests.length;
  });

  const ask = (body: object | string, tier: Tier = 'Free', headers: Record<string, string> = {}) =>
    gateway.chat(body, { key: keys.get(tier) ?? null, headers });
  /** The request of `chatRequest`, with the value of `model` as it is to stand in the JSON. */
  const spelled = (model: string) => JSON.stringify(chatRequest({ model: 'HERE' })).replace('"HERE"', model);

  async function expectNoModel(body: object | string, tier?: Tier): Promise<void> {
    const response = await ask(body, tier);
    expect([response.status, response.json()]).toMatchObject([404, { error: { code: 'model_not_found' } }]);
    expect(upstream.requests).toHaveLength(before);
  }

  test.each([
    'For-All',
    'FOR-ALL',
    'for-all ',
    ' for-all',
    'for-all\n',
    'for-all\u0000',
    'for-all\u200b',
    'for%2Dall',
    'for_all',
    'for-all/',
    'mixed-case',
    'with  space',
    'with%20space',
    'with+space',
    'ｆor-all',
    'up/for-all',
    'upstream-for-all',
    'only-',
    'Only-x',
  ])('%j is nobody’s', async (model) => {
    await expectNoModel(chatRequest({ model }), 'Pro');
  });

  test.each([
    ['"for-all"', 'for-all', 'upstream-for-all'],
    ['"\\u0066or-all"', 'for-all', 'upstream-for-all'],
    ['"with space"', 'with space', 'upstream-space'],
    ['"with\\u0020space"', 'with space', 'upstream-space'],
    ['"Mixed-Case"', 'Mixed-Case', 'upstream-mixed'],
    ['"only-x y"', 'only-x y', 'upstream-x y'],
  ])('%s is %s, and the log and the answer say so', async (text, name, sent) => {
    const response = await ask(spelled(text));
    expect([response.status, response.json()]).toMatchObject([200, { model: name }]);
    expect((await only(before)).json()).toMatchObject({ model: sent });
    expect(await gateway.accessLine(response)).toMatchObject({ model: name, upstream_model: sent });
  });

  test.each([
    ['as it is', JSON.stringify(OTHER)],
    ['in escapes', '"\\u006fnly-for-\\u0070ro"'],
  ])('of another tier %s is nobody’s, and no pattern lets it in', async (_, text) => {
    await expectNoModel(spelled(text));
    expect((await ask(spelled(text), 'Pro')).status).toBe(200);
  });

  test('is the one of the body: not of the path, the query or a header', async () => {
    const named = { 'x-model': OTHER, model: OTHER, 'openai-model': OTHER, 'x-litellm-model': OTHER };
    const response = await ask(chatRequest({ model: 'for-all' }), 'Free', named);
    expect(response.status).toBe(200);
    expect((await only(before)).json()).toMatchObject({ model: 'upstream-for-all' });
    const headers = { authorization: `Bearer ${keys.get('Free')}` };
    for (const target of [
      `/v1/${OTHER}/chat/completions`,
      `/v1/chat/completions/${OTHER}`,
      `/v1/models/${OTHER}`,
    ]) {
      using client = await gateway.connect();
      await client.send({ target, headers, body: chatRequest({ model: 'for-all' }) });
      expect([target, (await client.response()).status]).toEqual([
        target,
        expect.toSatisfy((s) => s >= 404 && s <= 405),
      ]);
    }
    expect(upstream.requests).toHaveLength(before + 1);
  });

  test.each([
    ['twice', `{"model":"for-all","model":"${OTHER}","messages":[]}`],
    ['twice, the other way round', `{"model":"${OTHER}","model":"for-all","messages":[]}`],
    ['twice, once in escapes', `{"model":"for-all","\\u006dodel":"${OTHER}","messages":[]}`],
  ])('%s is refused: two readers could read two', async (_, body) => {
    expect((await ask(body)).status).toBe(400);
    expect(upstream.requests).toHaveLength(before);
  });

  test('within another object names nothing', async () => {
    const metadata = { model: OTHER };
    const response = await ask(chatRequest({ model: 'for-all', metadata }));
    expect(response.status).toBe(200);
    expect((await only(before)).json()).toMatchObject({ model: 'upstream-for-all', metadata });
  });

  test('is what the grant is on: a target needs none, though its name is that of a model of another tier', async () => {
    upstream.next(json(503, upstreamError('away')));
    const response = await ask(chatRequest({ model: 'for-all' }));
    expect([response.status, response.json()]).toMatchObject([200, { model: 'for-all' }]);
    const models = upstream.requests.slice(before).map((request) => request.json());
    expect(models).toMatchObject([{ model: 'upstream-for-all' }, { model: OTHER }]);
    expect(await gateway.accessLine(response)).toMatchObject({ model: 'for-all', upstream_model: OTHER });
  });
});
