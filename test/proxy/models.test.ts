// The list of models and the single model, through a live gateway: what a key of each tier sees, under every spelling.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Tier } from '../../src/config/schema/config-schema.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import type { RawResponse } from '../helpers/raw-client.ts';

const NAMES = ['plain', 'org/model', 'hf.co/a/b:Q4_K_M', 'a b', 'a%2Fb', 'ünï😀', 'x?y', 'tail/'];
let gateway: Gateway;
const keys = new Map<Tier, string>();

beforeAll(async () => {
  const targets = [{ upstream: 'echo', model: 'echo' }];
  gateway = await startGateway({
    config: {
      upstreams: { echo: { builtin: 'echo' } },
      models: {
        ...Object.fromEntries(NAMES.map((name) => [name, { targets }])),
        'for-pro': { targets, tiers: ['Pro'] },
        'wild/*': { targets },
        'wild/*-pro': { targets, tiers: ['Pro'] },
      },
    },
  });
  for (const tier of ['Free', 'Pro'] as const) keys.set(tier, await gateway.issueKey(tier));
});

afterAll(async () => {
  await gateway?.close();
});

async function get(target: string, tier: Tier = 'Pro'): Promise<RawResponse> {
  using client = await gateway.connect();
  return await client.ask({ method: 'GET', target, headers: { authorization: `Bearer ${keys.get(tier)}` } });
}

const modelObject = (id: string) => ({ id, object: 'model', created: 1_704_067_200, owned_by: 'tollgate' });

test('the list has the exact names that the tier may use, and the patterns apart from them', async () => {
  const pro = await get('/v1/models');
  expect([pro.status, pro.header('content-type')]).toEqual([200, 'application/json']);
  expect(pro.json()).toEqual({
    object: 'list',
    data: [...NAMES, 'for-pro'].map(modelObject),
    patterns: ['wild/*-pro', 'wild/*'],
  });
  expect((await get('/v1/models?after=x', 'Free')).json()).toEqual({
    object: 'list',
    data: NAMES.map(modelObject),
    patterns: ['wild/*'],
  });
});

describe('a model', () => {
  const spellings = (name: string) => [
    encodeURIComponent(name),
    encodeURIComponent(name).replaceAll('%2F', '/').replaceAll('%3A', ':'),
    [...Buffer.from(name)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''),
  ];

  test.each(NAMES)('%s is found under every spelling', async (name) => {
    for (const spelling of spellings(name)) {
      const response = await get(`/v1/models/${spelling}`);
      expect([spelling, response.status, response.json()]).toEqual([spelling, 200, modelObject(name)]);
    }
  });

  test('whose name holds a percent sign is found under that name too', async () => {
    expect((await get('/v1/models/a%2Fb')).json()).toEqual(modelObject('a%2Fb'));
    expect((await get('/v1/models/a%252Fb')).json()).toEqual(modelObject('a%2Fb'));
  });

  test('of a pattern is found by a name that matches', async () => {
    expect((await get('/v1/models/wild/one')).json()).toEqual(modelObject('wild/one'));
  });

  test('is found with a query behind it', async () => {
    expect((await get('/v1/models/plain?x=1')).json()).toEqual(modelObject('plain'));
  });

  test.each(['nothing', 'Plain', 'org%252Fmodel', 'for%2Dpro', '%ff', '%', 'org', '__proto__', 'wild/'])(
    '%s is not found (for Free)',
    async (name) => {
      const response = await get(`/v1/models/${name}`, 'Free');
      expect([response.status, response.json()]).toEqual([
        404,
        {
          error: {
            message: expect.any(String),
            type: 'invalid_request_error',
            param: null,
            code: 'model_not_found',
          },
        },
      ]);
    },
  );

  test('is not told to a caller without a key', async () => {
    using client = await gateway.connect();
    for (const target of ['/v1/models', '/v1/models/plain', '/v1/models/nothing']) {
      expect((await client.ask({ method: 'GET', target })).status).toBe(401);
    }
  });
});
