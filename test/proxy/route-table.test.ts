// Which route a model name takes, and what a pattern makes of it.
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import type { DynamicConfig, Tier, UpstreamConfig } from '../../src/config/schema/config-schema.ts';
import { ENDPOINTS } from '../../src/config/schema/endpoint-names.ts';
import { GatewayError } from '../../src/errors.ts';
import type { Access } from '../../src/proxy/routes/access.ts';
import { RouteTable } from '../../src/proxy/routes/route-table.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { Upstream } from '../../src/upstream/upstream.ts';

const TIMEOUTS = { connect: 1, headers: 1, first_token: 1, idle: 1, total: 1 };
const ECHO: UpstreamConfig = {
  kind: 'builtin',
  builtin: 'echo',
  timeouts: TIMEOUTS,
  max_concurrency: 1,
  stream_usage: 'inject',
};
const metrics = createMetrics();
const upstreams = new Map(['up', 'other'].map((name) => [name, new Upstream(name, ECHO, 'test', metrics)]));

afterAll(async () => {
  await Promise.all([...upstreams.values()].map((upstream) => upstream.close()));
});

type Model = DynamicConfig['models'][string];

function model(targetModel: string, extra: Partial<Model> = {}): Model {
  return {
    targets: [{ upstream: 'up', model: targetModel, weight: 1, priority: 1 }],
    tiers: ['Free', 'Lite', 'Pro'],
    endpoints: [...ENDPOINTS],
    balance: 'weighted',
    fallback_on: [],
    response_model: 'alias',
    ...extra,
  };
}

const table = (models: Record<string, Model>) => new RouteTable(models, upstreams);
const resolved = (routes: RouteTable, name: string, tier: Tier = 'Pro') =>
  routes.resolve(name, { tier }).targets.map((target) => target.model);

function refusal(run: () => unknown): GatewayError {
  try {
    run();
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('a name', () => {
  const routes = table({
    'a/*-chat': model('chat:*'),
    'a/*': model('any:*'),
    'a/x-chat': model('exact'),
    'a.b': model('dot'),
    'a+b*': model('plus:*'),
    'a(b': model('paren'),
    '*': model('all:*'),
  });

  test.each([
    ['a/x-chat', 'exact'],
    ['a/y-chat', 'chat:y'],
    ['a/demo-chat-extra', 'any:demo-chat-extra'],
    ['a/b/c', 'any:b/c'],
    ['a/-chat', 'any:-chat'],
    ['a.b', 'dot'],
    ['axb', 'all:axb'],
    ['a+b1', 'plus:1'],
    ['aab1', 'all:aab1'],
    ['a(b', 'paren'],
    ['A/x-chat', 'all:A/x-chat'],
    ['a/$&-chat', 'chat:$&'],
    ['a/$1$$\\', 'any:$1$$\\'],
    ['a/*', 'any:*'],
    ['__proto__', 'all:__proto__'],
    ['constructor', 'all:constructor'],
    [' a.b', 'all: a.b'],
  ])('%s goes to %s', (name, target) => {
    expect(resolved(routes, name)).toEqual([target]);
    expect(routes.resolve(name, { tier: 'Pro' }).model).toBe(name);
  });

  test('of which the pattern leaves nothing for the `*` does not match it', () => {
    expect(resolved(routes, 'a/')).toEqual(['all:a/']);
    expect(refusal(() => table({ 'a/*': model('x') }).resolve('a/', { tier: 'Pro' })).code).toBe(
      'model_not_found',
    );
  });

  test('is told in the refusal, short and quoted', () => {
    const routes = table({ a: model('x') });
    for (const name of ['A', 'a ', '__proto__', 'toString', 'b']) {
      const error = refusal(() => routes.resolve(name, { tier: 'Pro' }));
      expect([error.code, error.status]).toEqual(['model_not_found', 404]);
      expect(error.message).toContain(JSON.stringify(name));
    }
    const long = refusal(() => routes.resolve(`x\n${'y'.repeat(10_000)}`, { tier: 'Pro' }));
    expect(long.message.length).toBeLessThan(250);
    expect(long.message).not.toContain('\n');
  });
});

test('of two equally long patterns the order of their names decides, not that of the file', () => {
  for (const names of [
    ['*-a', 'b-*'],
    ['b-*', '*-a'],
  ]) {
    const routes = table(
      Object.fromEntries(names.map((name) => [name, model(`${name}|*`.replace('*', '+'))])),
    );
    expect(resolved(routes, 'b-a')).toEqual(['+-a|b']);
  }
});

test('what matched is inserted once and untouched, for any name', () => {
  const routes = table({ 'p/*/s': model('<*>') });
  fc.assert(
    fc.property(fc.string({ minLength: 1, unit: 'binary' }), (middle) => {
      expect(resolved(routes, `p/${middle}/s`)).toEqual([`<${middle}>`]);
    }),
  );
});

describe('a tier', () => {
  const routes = table({
    all: model('x'),
    pro: model('x', { tiers: ['Pro'] }),
    'p-*': model('x', { tiers: ['Lite', 'Pro'] }),
  });

  test('sees its own models and no patterns', () => {
    expect([
      routes.names({ tier: 'Free' }),
      routes.names({ tier: 'Lite' }),
      routes.names({ tier: 'Pro' }),
    ]).toEqual([['all'], ['all'], ['all', 'pro']]);
  });

  test('is refused the others as if they did not exist', () => {
    expect(refusal(() => routes.resolve('pro', { tier: 'Free' })).message).toBe(
      refusal(() => table({}).resolve('pro', { tier: 'Free' })).message,
    );
    expect(refusal(() => routes.resolve('p-1', { tier: 'Free' })).code).toBe('model_not_found');
    expect(resolved(routes, 'p-1', 'Lite')).toEqual(['x']);
  });

  test('does not fall from an exact name that it may not use to a pattern that it may', () => {
    const routes = table({ 'a-1': model('exact', { tiers: ['Pro'] }), 'a-*': model('pattern') });
    expect(refusal(() => routes.resolve('a-1', { tier: 'Free' })).code).toBe('model_not_found');
  });
});

describe('a key with terms of its own or of its holder', () => {
  const routes = new RouteTable(
    {
      chat: model('x', { endpoints: ['chat'] }),
      pro: model('x', { tiers: ['Pro'] }),
      'p-*': model('x'),
      all: model('x'),
    },
    upstreams,
    { Free: { endpoints: ['chat', 'images'] } },
  );
  const code = (name: string, access: Access) => {
    try {
      routes.resolve(name, access);
      return 'ok';
    } catch (error) {
      return error instanceof GatewayError ? error.code : error;
    }
  };

  test('may use the models that both name, exactly or by a pattern, and sees no others', () => {
    const access: Access = {
      tier: 'Pro',
      holderTerms: { models: ['chat', 'p-*'] },
      terms: { models: ['p-1', 'all'] },
    };
    expect(['chat', 'pro', 'p-1', 'p-2', 'all'].map((name) => code(name, access))).toEqual([
      'model_not_found',
      'model_not_found',
      'ok',
      'model_not_found',
      'model_not_found',
    ]);
    expect(routes.names(access)).toEqual([]);
    expect(routes.names({ tier: 'Pro', terms: { models: ['pro', 'chat'] } })).toEqual(['chat', 'pro']);
    expect(routes.patterns({ tier: 'Pro', terms: { models: ['p-*'] } })).toEqual(['p-*']);
  });

  test('may use no model that its tier may not', () => {
    expect(code('pro', { tier: 'Free', terms: { models: ['pro'] } })).toBe('model_not_found');
  });

  test('has the endpoints that tier, holder and key share', () => {
    const access: Access = {
      tier: 'Free',
      holderTerms: { endpoints: ['chat', 'audio'] },
      terms: { endpoints: ['chat'] },
    };
    expect(() => routes.checkEndpoint(access, 'chat')).not.toThrow();
    expect(refusal(() => routes.checkEndpoint(access, 'images')).message).toBe(
      'This key has no images. It has: chat.',
    );
    expect(refusal(() => routes.checkEndpoint(access, 'audio')).message).toBe(
      'The tier of this key has no audio. It has: chat.',
    );
    expect(code('chat', { tier: 'Pro', terms: { endpoints: ['images'] } })).toBe('model_not_found');
    expect(routes.names({ tier: 'Pro', terms: { endpoints: ['images'] } })).toEqual(['pro', 'all']);
  });
});

test('targets are in order of priority, and in the order of the file within one', () => {
  const targets = [
    { upstream: 'up', model: 'c', weight: 1, priority: 2 },
    { upstream: 'up', model: 'a', weight: 1, priority: 1 },
    { upstream: 'other', model: 'd', weight: 1, priority: 2 },
    { upstream: 'other', model: 'b', weight: 1, priority: 1 },
  ];
  expect(resolved(table({ m: model('', { targets }) }), 'm')).toEqual(['a', 'b', 'c', 'd']);
});

test('a target of an upstream that is not there is a fault of the gateway', () => {
  const targets = [{ upstream: 'nowhere', model: 'x', weight: 1, priority: 1 }];
  expect(refusal(() => table({ m: model('', { targets }) })).code).toBe('internal_error');
});
