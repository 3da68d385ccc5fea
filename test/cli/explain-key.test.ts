// What `tollgate explain --key` says of a key, beside what a request with it really gets from a running gateway.
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { REDIS_TIMEOUT, startRedis } from '../helpers/redis.ts';
import { commandsWith } from './commands.ts';

const BODY = { model: 'gpt-4o', messages: [{ role: 'user', content: 'one two three' }], max_tokens: 5 };
const YAML = `
currency: EUR
auth: { max_rotation_overlap: 24h }
budgets: { unpriced: refuse }
upstreams: { demo: { builtin: echo } }
models:
  gpt-4o:
    targets: [{ upstream: demo, model: echo }]
    price: { input: 1, output: 1 }
    endpoints: [chat, embeddings]
    body: { refuse: [seed] }
  free: { targets: [{ upstream: demo, model: echo }], endpoints: [chat] }
  pro-only: { targets: [{ upstream: demo, model: echo }], tiers: [Pro], endpoints: [chat] }
tiers:
  Free: {}
  Lite: {}
  Pro: { endpoints: [chat] }
`;

let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({ yaml: YAML });
  // Commands ask the gateway at the port that it has.
  const { port } = new URL(gateway.adminUrl);
  const own = `store: sqlite:${gateway.directory.file('tollgate.db')}\nadmin: { port: ${port} }\n`;
  writeFileSync(gateway.directory.file('commands.yaml'), YAML + own);
  writeFileSync(gateway.directory.file('body.json'), JSON.stringify(BODY));
});
afterAll(() => gateway.close());

const { tollgate, done, json } = commandsWith(() => gateway.directory.file('commands.yaml'));

const issue = async (...options: string[]): Promise<string> =>
  (await done('keys', 'issue', ...(options.includes('--for') ? [] : ['--tier', 'Lite']), ...options)).trim();
const prefixOf = (key: string) => key.slice(0, 8);

/** The error of a real request; undefined where it is served. */
async function request(key: string, body: object = BODY, path = 'chat/completions', url = gateway.url) {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const response = await fetch(`${url}/v1/${path}`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  });
  const answer: unknown = await response.json();
  if (response.status === 200) return undefined;
  const { code, message } = Object(Reflect.get(Object(answer), 'error'));
  return { status: response.status, code, message };
}

/** What is explained. */
async function explained(whose: string, ...options: string[]) {
  const { code, out } = await tollgate('explain', ...options, '--key', whose, '--json');
  const { key } = JSON.parse(out);
  return { code, key };
}

const WITH_BODY = ['--body', 'BODY'];

describe.each<{
  readonly why: string;
  /** Changes the key. */
  readonly prepare: (key: string) => Promise<unknown>;
  readonly options?: readonly string[];
  readonly is: { readonly code: string; readonly whose: string; readonly detail?: unknown };
  readonly body?: object;
  readonly path?: string;
  /** Requests use the limit up. */
  readonly uses?: boolean;
}>([
  {
    why: 'whose holder is suspended',
    prepare: (key) => done('holders', 'suspend', prefixOf(key)),
    is: { code: 'billing_not_active', whose: 'holder' },
  },
  {
    why: 'that is revoked',
    prepare: (key) => done('keys', 'revoke', prefixOf(key)),
    is: { code: 'invalid_api_key', whose: 'key', detail: expect.stringMatching(/^revoked at 20/) },
  },
  {
    why: 'that was rotated',
    prepare: (key) => tollgate('keys', 'rotate', prefixOf(key)),
    is: {
      code: 'invalid_api_key',
      whose: 'key',
      detail: expect.stringMatching(/^rotated at 20.*; its successor is [0-9a-f]{8}$/),
    },
  },
  {
    why: 'that has expired, of a suspended holder',
    prepare: async (key) => {
      await done('keys', 'set', prefixOf(key), '--expires', '1ms');
      await done('holders', 'suspend', prefixOf(key));
    },
    is: { code: 'api_key_expired', whose: 'key' },
  },
  {
    why: 'whose tier does not have the model',
    prepare: async () => undefined,
    options: ['pro-only'],
    body: { ...BODY, model: 'pro-only' },
    is: { code: 'model_not_found', whose: 'tier' },
  },
  {
    why: 'whose holder may not use the model',
    prepare: (key) => done('holders', 'set', prefixOf(key), '--models', 'free'),
    is: { code: 'model_not_found', whose: 'holder' },
  },
  {
    why: 'that may not use the model itself',
    prepare: (key) => done('keys', 'set', prefixOf(key), '--models', 'free'),
    is: { code: 'model_not_found', whose: 'key' },
  },
  {
    why: 'that may not use the endpoint',
    prepare: (key) => done('keys', 'set', prefixOf(key), '--endpoints', 'chat'),
    options: ['gpt-4o', '--endpoint', 'embeddings'],
    body: { model: 'gpt-4o', input: 'x' },
    path: 'embeddings',
    is: { code: 'endpoint_not_offered', whose: 'key' },
  },
  {
    why: 'whose tier has not the endpoint',
    prepare: (key) => done('holders', 'tier', prefixOf(key), '--tier', 'Pro'),
    options: ['gpt-4o', '--endpoint', 'embeddings'],
    body: { model: 'gpt-4o', input: 'x' },
    path: 'embeddings',
    is: { code: 'endpoint_not_offered', whose: 'tier' },
  },
  {
    why: 'with a budget, for a model without a price',
    prepare: (key) => done('keys', 'set', prefixOf(key), '--budget', '5/month'),
    options: ['free'],
    body: { ...BODY, model: 'free' },
    is: { code: 'model_unpriced', whose: 'model' },
  },
  {
    why: 'whose holder has spent its budget of the month',
    prepare: (key) => done('holders', 'set', prefixOf(key), '--budget', '0.00002/month'),
    uses: true,
    is: { code: 'insufficient_quota', whose: 'holder' },
  },
  {
    why: 'that has spent its own budget of the day',
    prepare: (key) => done('keys', 'set', prefixOf(key), '--budget', '0.00002/day'),
    uses: true,
    is: { code: 'insufficient_quota', whose: 'key' },
  },
  {
    why: 'whose team has spent its budget',
    prepare: async (key) => {
      await done('teams', 'add', 'Search', '--budget', '0.00002/month');
      await done('holders', 'set', prefixOf(key), '--team', 'Search');
    },
    uses: true,
    is: { code: 'insufficient_quota', whose: 'team', detail: 'the team Search' },
  },
  {
    why: 'that has used its requests of the day',
    prepare: (key) => done('keys', 'set', prefixOf(key), '--limit', 'requests_per_day=2'),
    uses: true,
    is: { code: 'rate_limit_exceeded', whose: 'key' },
  },
  {
    why: 'whose holder has used the tokens of the day with the model',
    prepare: (key) => done('holders', 'set', prefixOf(key), '--model-limit', 'gpt-4o:tokens_per_day=20'),
    uses: true,
    is: { code: 'rate_limit_exceeded', whose: 'model' },
  },
  {
    why: 'for which the request is too large',
    prepare: (key) => done('keys', 'set', prefixOf(key), '--limit', 'tokens_per_day=3'),
    is: { code: 'rate_limit_exceeded', whose: 'key' },
  },
])('a key $why', ({ prepare, options = WITH_BODY, is, body, path, uses = false }) => {
  test('is explained with the error that a request gets', async () => {
    const key = await issue();
    await prepare(key);
    let error = await request(key, body, path);
    for (let count = 0; uses && error === undefined && count < 50; count += 1) error = await request(key);
    expect(error).toMatchObject({ code: is.code });
    const named = options.map((each) => (each === 'BODY' ? gateway.directory.file('body.json') : each));
    const { code, key: found } = await explained(prefixOf(key), ...named);
    expect([code, found.rejected]).toEqual([1, { detail: null, ...error, ...is }]);
    const { out } = await tollgate('explain', ...named, '--key', prefixOf(key));
    expect(out).toContain(
      `rejected    a request gets a ${error?.status} ${is.code}, because of the ${is.whose}: `,
    );
  });
});

describe('a key that is served', () => {
  test('is explained without an error', async () => {
    const key = await issue('--expires', '30d');
    expect(await request(key)).toBeUndefined();
    expect(await explained(prefixOf(key), 'gpt-4o')).toMatchObject({
      code: 0,
      key: { rejected: null, notes: [] },
    });
  });

  test('is explained with its end, where that is near', async () => {
    const key = await issue('--expires', '3d');
    const { code, key: found } = await explained(prefixOf(key), 'gpt-4o');
    expect([code, found.notes]).toEqual([0, [expect.stringMatching(/^expires soon, at 20\S+Z$/)]]);
  });

  test('is explained with its successor and its end during the overlap of a rotation', async () => {
    const key = await issue();
    const successor = prefixOf((await tollgate('keys', 'rotate', prefixOf(key), '--overlap', '1h')).out);
    expect(await request(key)).toBeUndefined();
    const { code, key: found } = await explained(prefixOf(key), 'gpt-4o');
    const note = new RegExp(`^was rotated to ${successor}, and is valid until 20\\S+Z$`);
    expect([code, found.notes]).toEqual([0, [expect.stringMatching(note)]]);
    expect((await tollgate('explain', 'gpt-4o', '--key', prefixOf(key))).out).toContain(
      `key         was rotated to ${successor}`,
    );
  });
});

test('a holder is explained as any of its keys, and without one', async () => {
  const key = await issue();
  const record = await json('keys', 'show', prefixOf(key));
  const holder = String(Reflect.get(Object(record), 'holder'));
  await done('holders', 'suspend', holder);
  expect(await explained(holder, 'gpt-4o')).toMatchObject({
    code: 1,
    key: { rejected: { status: 403, code: 'billing_not_active', whose: 'holder' }, notes: [] },
  });
  await done('holders', 'resume', holder);
  await done('keys', 'revoke', prefixOf(key));
  const { key: found } = await explained(holder, 'gpt-4o');
  expect(found).toMatchObject({ rejected: null, notes: ['the holder has no active key'] });
});

test('an error of the key comes before one of the body', async () => {
  const key = await issue();
  await done('holders', 'suspend', prefixOf(key));
  writeFileSync(gateway.directory.file('wrong.json'), JSON.stringify({ ...BODY, seed: 1 }));
  const options = ['--body', gateway.directory.file('wrong.json')];
  expect((await explained(prefixOf(key), ...options)).key).toMatchObject({
    rejected: { code: 'billing_not_active' },
  });
});

describe('an error of the key comes before', () => {
  const file = () => gateway.directory.file('wrong.json');
  const ask = (...argv: string[]) => tollgate('explain', ...argv, '--body', file());

  test.each([
    ['a body that is no JSON', '{"model":"gpt-4o"', 'invalid_json'],
    ['a body without a model', '{}', 'missing_required_parameter'],
    ['a model that is unknown', JSON.stringify({ ...BODY, model: 'gpt-5' }), undefined],
  ])('%s', async (_, body, code) => {
    writeFileSync(file(), body);
    const key = await issue();
    const good = await ask('--key', prefixOf(key));
    expect([good.code, good.err]).toEqual([1, expect.stringContaining(code ?? 'no model of ')]);
    expect(await ask('--key', '00000000')).toMatchObject({
      code: 1,
      err: expect.stringContaining('no key with this prefix'),
    });
    await done('keys', 'set', prefixOf(key), '--endpoints', 'chat');
    expect((await ask('--key', prefixOf(key), '--endpoint', 'embeddings')).err).toContain(
      'a request gets a 404 endpoint_not_offered, because of the key: ',
    );
    await done('keys', 'revoke', prefixOf(key));
    expect((await ask('--key', prefixOf(key))).err).toContain(
      'a request gets a 401 invalid_api_key, because of the key: ',
    );
    const { out } = await ask('--key', prefixOf(key), '--json');
    expect(JSON.parse(out)).toMatchObject({ rejected: { code: 'invalid_api_key', whose: 'key' } });
  });
});

test('what replicas count in Redis is what is explained', { timeout: REDIS_TIMEOUT }, async () => {
  await using redis = await startRedis();
  await using fleet = await startGateway({ yaml: `${YAML}redis: ${redis.url}\n` });
  const own = commandsWith(() => fleet.configFile, { TEST_DIR: fleet.directory.path });
  const key = (await own.done('keys', 'issue', '--tier', 'Lite', '--limit', 'requests_per_day=1')).trim();
  const ask = () => request(key, BODY, 'chat/completions', fleet.url);
  expect(await ask()).toBeUndefined();
  const error = await ask();
  const { code, out } = await own.tollgate('explain', 'gpt-4o', '--key', prefixOf(key), '--json');
  expect([code, JSON.parse(out).key]).toMatchObject([
    1,
    { source: 'redis', rejected: { ...error, code: 'rate_limit_exceeded', whose: 'key' } },
  ]);
});
