// What clients see of keys that are restricted to models and endpoints, at each place where a model is named.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Terms } from '../../src/config/terms.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';

let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({
    yaml: `
upstreams:
  demo: { builtin: echo }
  # Never asked: the calls fail before.
  files: { base_url: 'http://127.0.0.1:9/v1', api_key: x }
models:
  one: { targets: [{ upstream: demo, model: one }] }
  two: { targets: [{ upstream: demo, model: two }] }
passthrough: { upstream: files, paths: [/v1/videos, /v1/files] }
`,
  });
});

afterAll(() => gateway[Symbol.asyncDispose]());

async function keyWith(terms: Terms, holderTerms: Terms = {}): Promise<string> {
  const { key } = await gateway.app.issuer.issue({ tier: 'Pro', terms: holderTerms, key: { terms } });
  return key.reveal();
}

async function ask(key: string, path: string, body?: object): Promise<readonly [number, unknown]> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const init = body === undefined ? { headers } : { headers, method: 'POST', body: JSON.stringify(body) };
  const response = await fetch(`${gateway.url}${path}`, init);
  const answer: unknown = await response.json();
  return [response.status, Object(Object(answer).error).code ?? answer];
}

const chat = (model: string) => ({ model, messages: [{ role: 'user', content: 'x' }] });

describe('a key for one model', () => {
  test.each([
    ['of its own', { models: ['one'] }, {}],
    ['of its holder', {}, { models: ['on*'] }],
  ])('by terms %s finds that one and no other, anywhere', async (_, terms, holderTerms) => {
    const key = await keyWith(terms, holderTerms);
    expect(await ask(key, '/v1/models')).toMatchObject([200, { data: [{ id: 'one' }] }]);
    expect((await ask(key, '/v1/models/one'))[0]).toBe(200);
    expect(await ask(key, '/v1/models/two')).toEqual([404, 'model_not_found']);
    expect((await ask(key, '/v1/chat/completions', chat('one')))[0]).toBe(200);
    expect(await ask(key, '/v1/chat/completions', chat('two'))).toEqual([404, 'model_not_found']);
    expect(await ask(key, '/v1/embeddings', { model: 'two', input: 'x' })).toEqual([404, 'model_not_found']);
  });

  test('makes no video, whose model the gateway does not see', async () => {
    const video = { prompt: 'A sea' };
    expect(await ask(await keyWith({ models: ['one'] }), '/v1/videos', video)).toEqual([
      404,
      'endpoint_not_offered',
    ]);
    expect((await ask(await keyWith({}), '/v1/videos', video))[1]).not.toBe('endpoint_not_offered');
  });
});

test('a key for some endpoints is told which, and keeps them after a rotation', async () => {
  const old = await keyWith({ endpoints: ['chat'] });
  const headers = { authorization: `Bearer ${old}` };
  const response = await fetch(`${gateway.url}/admin/keys/rotate`, { method: 'POST', headers });
  const key = String(Object(await response.json()).key);
  expect((await ask(key, '/v1/chat/completions', chat('one')))[0]).toBe(200);
  expect(await ask(key, '/v1/embeddings', { model: 'one', input: 'x' })).toEqual([
    404,
    'endpoint_not_offered',
  ]);
});
