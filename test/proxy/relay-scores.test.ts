// Ranking, scoring, classifying and counting of texts, in the shapes of Jina, Cohere and vLLM: where requests go, which bytes they have,
// and what they cost.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import { HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  const targets = [{ upstream: 'up', model: 'there' }];
  gateway = await startGateway({
    now: fleetingClock(),
    config: {
      upstreams: {
        up: { base_url: upstream.baseUrl, api_key: 'credential-of-up' },
        prefixed: { base_url: `${upstream.url}/proxy/v1/`, query: { a: 'b' } },
        bare: { base_url: upstream.url },
        echo: { builtin: 'echo' },
      },
      models: {
        m: { targets, price: { input: 1, output: 0 } },
        counted: { targets, price: { document: 0.002 } },
        both: { targets, price: { input: 1, output: 0, document: 0.002, request: 0.5 } },
        prefixed: { targets: [{ upstream: 'prefixed', model: 'there' }] },
        bare: { targets: [{ upstream: 'bare', model: 'there' }] },
        echo: { targets: [{ upstream: 'echo', model: 'echo' }] },
        other: { targets, endpoints: ['rerank'] },
      },
      tiers: { Free: { endpoints: ['chat'] }, Pro: {} },
      retry: { attempts: 1 },
    },
  });
});
afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

/** Sends a request, and returns the answer, the request at the upstream, and what the holder then has used. */
async function post(path: string, body: object | string, answer: object, tier: 'Pro' | 'Free' = 'Pro') {
  upstream.always(json(200, answer));
  const at = upstream.requests.length;
  const key = await gateway.issueKey(tier);
  const headers = { authorization: `Bearer ${key}` };
  const response = await fetch(gateway.url + path, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await response.text();
  await until(() => gateway.app.inFlight === 0, 'the end of the request');
  const usage = await fetch(`${gateway.url}/admin/usage`, { headers });
  const { totals } = JSON.parse(await usage.text());
  return { status: response.status, text, sent: upstream.requests[at], totals };
}

const JINA = {
  model: 'there',
  object: 'list',
  usage: { total_tokens: 38 },
  results: [{ index: 1, relevance_score: 0.9, document: { text: 'b' } }],
};
const VLLM = {
  id: 'rerank-1',
  model: 'there',
  usage: { prompt_tokens: 56, total_tokens: 56 },
  results: [{ index: 1, document: { text: 'b' }, relevance_score: 0.99 }],
};
const COHERE = {
  id: '07734bd2',
  results: [{ index: 1, relevance_score: 0.99 }],
  meta: { api_version: { version: '2' }, billed_units: { search_units: 1 } },
};
const SCORES = {
  id: 'score-1',
  object: 'list',
  created: 1_700_000_000,
  model: 'there',
  data: [{ index: 0, object: 'score', score: 0.5 }],
  usage: { prompt_tokens: 17, total_tokens: 17, completion_tokens: 0, prompt_tokens_details: null },
};
const CLASSES = {
  id: 'classify-1',
  object: 'list',
  created: 1_700_000_000,
  model: 'there',
  data: [{ index: 0, label: 'Default', probs: [0.5, 0.5], num_classes: 2 }],
  usage: { prompt_tokens: 10, total_tokens: 10, completion_tokens: 0, prompt_tokens_details: null },
};
const RERANK = { model: 'm', query: 'q', documents: ['a', { text: 'b' }, 'c'], top_n: 1 };
/** As the usage of a report without tokens: one for four bytes. */
const bytesOf = (body: object): number => Math.ceil(JSON.stringify(body).length / 4);

test.each<[path: string, body: object, answer: object, target: string, tokens: number]>([
  ['/v1/rerank', RERANK, JINA, '/v1/rerank', 38],
  ['/v1/rerank', RERANK, VLLM, '/v1/rerank', 56],
  ['/v2/rerank', RERANK, COHERE, '/v1/rerank', bytesOf(RERANK)],
  ['/rerank', RERANK, JINA, '/v1/rerank', 38],
  ['/v1/score', { model: 'm', text_1: 'q', text_2: ['a', 'b'] }, SCORES, '/v1/score', 17],
  ['/score', { model: 'm', queries: 'q', documents: ['a', 'b'] }, SCORES, '/v1/score', 17],
  ['/v1/classify', { model: 'm', input: ['a', 'b'] }, CLASSES, '/v1/classify', 10],
  ['/classify', { model: 'm', input: 'a' }, CLASSES, '/classify', 10],
  [
    '/tokenize',
    { model: 'm', prompt: 'Hello', add_special_tokens: false },
    { count: 1, max_model_len: 8192, tokens: [9906] },
    '/tokenize',
    0,
  ],
  [
    '/tokenize',
    { model: 'm', messages: [{ role: 'user', content: 'a' }] },
    { count: 3, max_model_len: 8192, tokens: [1, 2, 3], token_strs: null },
    '/tokenize',
    0,
  ],
  ['/detokenize', { model: 'm', tokens: [9906] }, { prompt: 'Hello' }, '/detokenize', 0],
])('POST %s, with %j', async (path, body, answer, target, tokens) => {
  const { status, text, sent, totals } = await post(path, body, answer);
  expect([status, text]).toEqual([200, JSON.stringify(answer).replace('"there"', '"m"')]);
  expect([sent?.target, sent?.body.toString()]).toEqual([
    target,
    JSON.stringify(body).replace('"m"', '"there"'),
  ]);
  expect(sent?.header('authorization')).toBe('Bearer credential-of-up');
  expect(totals).toMatchObject({
    requests: 1,
    prompt_tokens: tokens,
    completion_tokens: 0,
    cost: tokens / 1e6,
  });
});

describe('where vLLM has no /v1, it is left out of the base URL', () => {
  test.each([
    ['prefixed', '/proxy/tokenize?a=b', '/proxy/v1/rerank?a=b'],
    ['bare', '/tokenize', '/rerank'],
  ])('of %s', async (model, tokenize, rerank) => {
    const counted = await post('/tokenize', { model, prompt: 'a' }, { count: 1, tokens: [1] });
    const ranked = await post('/v1/rerank', { ...RERANK, model }, JINA);
    expect([counted.sent?.target, ranked.sent?.target]).toEqual([tokenize, rerank]);
  });
});

describe('a document has a price', () => {
  const many = (count: number, text = 'a') => Array.from({ length: count }, () => text);
  test.each<[what: string, path: string, body: object, answer: object, cost: number]>([
    ['three of them', '/v1/rerank', { ...RERANK, model: 'counted' }, COHERE, 0.006],
    ['three of them, beside tokens', '/v1/rerank', { ...RERANK, model: 'both' }, VLLM, 0.506056],
    ['150 of them', '/v2/rerank', { ...RERANK, model: 'counted', documents: many(150) }, COHERE, 0.3],
    [
      '40 in a large body',
      '/v1/rerank',
      { documents: many(40, 'x'.repeat(5_000)), model: 'counted', query: 'q' },
      COHERE,
      0.08,
    ],
    ['none', '/v1/rerank', { ...RERANK, model: 'counted', documents: [] }, COHERE, 0.002],
    ['pairs', '/v1/score', { model: 'counted', text_1: ['q', 'r'], text_2: ['a', 'b'] }, SCORES, 0.004],
    ['one text', '/v1/score', { model: 'counted', text_1: 'q', text_2: 'a' }, SCORES, 0.002],
    [
      'objects of a score',
      '/v1/score',
      { model: 'counted', queries: 'q', documents: [{ text: 'a' }] },
      SCORES,
      0.002,
    ],
    ['inputs of a class', '/v1/classify', { model: 'counted', input: many(5) }, CLASSES, 0.01],
    ['tokens of one input', '/v1/classify', { model: 'counted', input: [1, 2, 3] }, CLASSES, 0.002],
    ['no tokens to count', '/tokenize', { model: 'both', prompt: 'a' }, { count: 1, tokens: [1] }, 0],
  ])('%s', async (_what, path, body, answer, cost) => {
    const { status, totals } = await post(path, body, answer);
    expect([status, totals.cost]).toEqual([200, cost]);
  });
});

test.each([
  ['another tier', '/v1/rerank', RERANK, 'Free', 404, 'endpoint_not_offered'],
  [
    'another endpoint of the model',
    '/v1/score',
    { model: 'other', text_1: 'a', text_2: 'b' },
    'Pro',
    404,
    'endpoint_not_offered',
  ],
  ['no model', '/tokenize', { prompt: 'a' }, 'Pro', 400, 'missing_required_parameter'],
  [
    'documents twice',
    '/v1/rerank',
    '{"model":"m","documents":["a"],"documents":["b"]}',
    'Pro',
    400,
    'duplicate_parameter',
  ],
  ['another spelling', '/v1/rerank', '{"model":"m","Documents":["a"]}', 'Pro', 400, 'invalid_value'],
  ['no object', '/v1/rerank', '[]', 'Pro', 400, 'invalid_body'],
] as const)('with %s, %s is refused and asks no upstream', async (_what, path, body, tier, status, code) => {
  const answer = await post(path, body, JINA, tier);
  expect([answer.status, JSON.parse(answer.text)]).toMatchObject([status, { error: { code } }]);
  expect(answer.sent).toBeUndefined();
});

test('the built-in model answers', async () => {
  const ask = async (path: string, body: object) =>
    JSON.parse((await post(path, { model: 'echo', ...body }, {})).text);
  const documents = ['a cat', 'the blue sky', { text: 'blue' }];
  const ranked = await ask('/v1/rerank', { query: 'blue sky', documents, top_n: 2 });
  expect(ranked.results.map(({ index }: { index: number }) => index)).toEqual([1, 2]);
  expect(ranked.usage.total_tokens).toBeGreaterThan(0);
  const scores = await ask('/v1/score', { text_1: 'blue', text_2: ['a cat', 'blue'] });
  expect(scores.data.map(({ score }: { score: number }) => score)).toEqual([0, 1]);
  expect(await ask('/score', { queries: ['a', 'b'], documents: ['a', 'c'] })).toMatchObject({
    data: [{ score: 1 }, { score: 0 }],
  });
  expect((await ask('/v1/classify', { input: ['good', 'bad'] })).data).toMatchObject([
    { label: 'good' },
    { label: 'other' },
  ]);
  const { count, tokens } = await ask('/tokenize', { prompt: 'Grüße 🌤' });
  expect([count, await ask('/detokenize', { tokens })]).toEqual([7, { prompt: 'Grüße 🌤' }]);
  expect((await ask('/detokenize', { tokens: ['a'] })).error.param).toBe('tokens');
});
