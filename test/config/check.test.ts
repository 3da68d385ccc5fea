import { describe, expect, it } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { load } from './sample.ts';

describe('the description of a configuration', () => {
  it('says what the file means, in the order in which things are tried', () => {
    const config = load(
      [
        'listen: { host: "::1", port: 0, trusted_proxies: [10.0.0.0/8] }',
        'secret: 0123456789abcdef',
        'upstreams:',
        '  openai: { base_url: https://api.example.com:8443/my-tenant/v1?x=y, api_key: sk-1, headers: { openai-project: p } }',
        '  local: { base_url: http://127.0.0.1:11434/v1, timeouts: { idle: 45s }, health: { path: "/up?key=hidden-1", interval: 20s } }',
        '  demo: { builtin: echo, max_concurrency: 5 }',
        'models:',
        '  m:',
        '    targets:',
        '      - { upstream: demo, model: last, priority: 3 }',
        '      - { upstream: openai, model: a, weight: 3 }',
        '      - { upstream: local, model: b }',
        '      - { upstream: local, model: c, priority: 2 }',
        '  "x/*": { targets: [{ upstream: openai, model: "*" }], tiers: [Pro], endpoints: [chat, embeddings], response_model: upstream }',
        'tiers:',
        '  Free: { requests_per_minute: 20, concurrency: 2, endpoints: [images, chat] }',
        '  Pro: { price: { amount: 900, currency: usd, interval: month } }',
      ].join('\n'),
    );
    const lines = describeConfig(config).split('\n');
    expect(lines.slice(0, 22)).toEqual([
      `config.yaml is valid (${config.hash})`,
      '  listen      [::1]:(any free port) behind 10.0.0.0/8',
      '  admin       127.0.0.1:9090',
      '  public_url  http://[::1]:(any free port)',
      '  store       SQLite, ./data/tollgate.db',
      '  workers     1: a single process',
      '  redis       none: a single process',
      '  secret      set',
      '  max_body    32MiB',
      '  retry       at most 3 upstream requests for one request, within 10m',
      '  drain       after 0s, for 30s',
      'upstreams',
      '  openai  https://api.example.com:8443/****/v1; api_key set; headers openai-project; at most 200 at once; connect 3s, idle 10m, total 1h',
      '  local   http://127.0.0.1:11434/v1; no api_key; at most 200 at once; connect 3s, idle 45s, total 1h; health check every 20s',
      '  demo    built in (echo); at most 5 at once; connect 3s, idle 10m, total 1h',
      'models',
      '  m    -> openai: a (75%), local: b (25%); then local: c; then demo: last (balance weighted)',
      '  x/*  -> openai: * [Pro only] (for chat, embeddings; responses keep the model name of the upstream)',
      'tiers',
      '  Free  20 requests a minute, 2 requests at a time, only chat and images',
      '  Pro   no limits, price 9.00 USD a month',
      'warnings',
    ]);
    expect(lines.slice(21)).toContain(
      'config.yaml:2:9: secret: is shorter than 32 characters; use a long random string',
    );
    expect(lines.join('\n')).not.toMatch(/sk-1|0123456789|x=y|hidden-1|my-tenant|\/up/);
  });

  const withModel = (model: string, rest = '') =>
    describeConfig(
      load(`upstreams: { up: { base_url: "https://a.example/v1" } }\nmodels:\n  m:\n    ${model}\n${rest}`),
    );

  it.each([
    ['targets: [{ upstream: up, model: a }, { upstream: up, model: b }]', ' (balance weighted)'],
    [
      'targets: [{ upstream: up, model: a }, { upstream: up, model: b }]\n    balance: least_requests',
      ' (balance least_requests)',
    ],
    [
      'targets: [{ upstream: up, model: a }, { upstream: up, model: b }]\n    balance: latency\n    hedge: { after: 800ms }\n    response_model: upstream',
      ' (balance latency; hedge after 800ms; responses keep the model name of the upstream)',
    ],
    [
      'targets: [{ upstream: up, model: a }, { upstream: up, model: b, priority: 2 }]\n    balance: latency\n    hedge: { after: p95 }',
      ' (hedge after p95)',
    ],
    ['targets: [{ upstream: up, model: a }, { upstream: up, model: b, weight: 0 }]', '(no requests)'],
    ['targets: [{ upstream: up, model: a }, { upstream: up, model: b, enabled: false }]', '(disabled)'],
    ['targets: [{ upstream: up, model: a }]', ''],
    ['targets: [{ upstream: up, model: a, weight: 0 }]', '(no requests)'],
    [
      'targets: [{ upstream: up, model: a, timeouts: { headers: 2m } }]\n    timeouts: { first_token: 3s, idle: 1m }',
      ' (headers 2m) (first token 3s, idle 1m)',
    ],
  ])('says how a model is balanced and hedged: %s', (model, expected) => {
    const line = withModel(model)
      .split('\n')
      .find((each) => each.startsWith('  m  -> '));
    expect(line?.replace(/^[^(]*(\(\d[^)]*\)[^(]*)*/, '')).toBe(expected.trimStart());
  });

  it.each([
    [
      '{ upstream: up, model: a, weight: 0 }',
      'targets: no target is in service (`enabled`, `weight`): requests for this model get a 503 upstream_out_of_service',
    ],
    [
      '{ upstream: up, model: a }, { upstream: up, model: b, weight: 0, priority: 2 }',
      'targets[1].weight: no target of priority 2 has a weight above 0: they get no requests',
    ],
    [
      '{ upstream: up, model: a, enabled: false }',
      'targets: no target is in service (`enabled`, `weight`): requests for this model get a 503 upstream_out_of_service',
    ],
    [
      '{ upstream: off, model: a }',
      'upstreams.up: is not used: no model has a target there',
      'targets: no target is in service (`enabled`, `weight`): requests for this model get a 503 upstream_out_of_service',
    ],
    ['{ upstream: off, model: a }, { upstream: up, model: a }'],
  ])('warns of targets that get no requests: %s', (targets, ...expected) => {
    const text = `upstreams:\n  up: { builtin: echo }\n  off: { builtin: echo, enabled: false }\nmodels: { m: { targets: [${targets}] } }`;
    const config = load(text);
    const warnings = config.warnings.map(({ message }) => message.replace('models.m.', ''));
    expect(warnings).toEqual(expected);
    expect(describeConfig(config)).toContain('  off  disabled; built in (echo)');
  });

  it.each([
    ['Bearer sk-abcdef', 'begins with `Bearer`, which the gateway adds itself; remove it'],
    ['bearer  sk-abcdef', 'begins with `Bearer`, which the gateway adds itself; remove it'],
    ['sk-$abc', undefined],
  ])('warns of an api_key that is none: %s', (key, expected) => {
    const upstreams = `{ up: { base_url: "https://a.example/v1", api_key: "${key}" } }`;
    const text = `upstreams: ${upstreams}\nmodels: { m: { targets: [{ upstream: up, model: a }] } }`;
    expect(load(text).warnings.map(({ message }) => message)).toEqual(
      expected === undefined ? [] : [`upstreams.up.api_key: ${expected}`],
    );
  });

  it('demands a secret where none can be generated', () => {
    const model =
      'upstreams: { up: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: up, model: a }] } }';
    expect(() => load(`store: postgres://u@h/db\n${model}`)).toThrow(
      /store: is no SQLite file, so `secret` has to be set/,
    );
    expect(load(`store: postgres://u@h/db\nsecret: ${'s'.repeat(32)}\n${model}`).warnings).toEqual([]);
  });

  it('says how long a request may be tried again', () => {
    expect(
      withModel('targets: [{ upstream: up, model: a }]', 'retry: { attempts: 5, deadline: 90s }'),
    ).toContain('  retry       at most 5 upstream requests for one request, within 90s\n');
  });
});

it.each([
  ['redis://:hidden@cache:6380/1', 'single, cache:6380'],
  ['redis-sentinel://:hidden@a:1,b:2/main', 'sentinel, a:1,b:2'],
  ['rediss-cluster://u:hidden@a:1,[::1]:2', 'cluster, a:1,[::1]:2'],
])('Redis is named by its hosts, without its password: %s', (url, shown) => {
  const text = describeConfig(
    load(
      `redis: ${url}\nupstreams: { one: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: one, model: m }] } }`,
    ),
  );
  expect(text).toContain(`  redis       ${shown}\n`);
  expect(text).not.toContain('hidden');
});
