// Limits and budgets of keys, teams, models and holders with terms of their own, as clients meet them.
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Terms } from '../../src/config/terms.ts';
import { openStore } from '../../src/store/open.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { startFleet } from '../helpers/fleet.ts';
import { type Gateway, type GatewayOptions, runCommand, startGateway } from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';
import { field, listModels } from './holder.ts';

/** Each answer costs 1: a token of output does. */
const ONE = json(200, completion({ tokens: { prompt: 1, completion: 1 } }));
const PRICE = { input: 0, output: 1e6 };

let upstream: HostileUpstream;
beforeAll(async () => {
  upstream = await HostileUpstream.start({ script: ONE });
});
afterAll(() => upstream?.close());

type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };

/** Requests have no bound on their answers, so that their estimates reject none. */
const configOf = (
  tier: { readonly [name: string]: Json } = {},
  more: { readonly [name: string]: Json } = {},
) => ({
  currency: 'EUR',
  upstreams: { up: { base_url: upstream.baseUrl, max_concurrency: 1000 } },
  models: {
    m: { targets: [{ upstream: 'up', model: 'm' }], price: PRICE },
    'o/*': { targets: [{ upstream: 'up', model: '*' }], price: PRICE },
    free: { targets: [{ upstream: 'up', model: 'free' }] },
    ...Object(more['models']),
  },
  tiers: { Free: {}, Lite: tier, Pro: {} },
  ...Object(more['top']),
});

interface Owner {
  readonly terms?: Terms;
  readonly keyTerms?: Terms;
  readonly teamId?: string;
}

async function issue(gateway: Gateway, { terms, keyTerms, teamId }: Owner = {}): Promise<string> {
  const { key } = await gateway.app.issuer.issue({
    tier: 'Lite',
    ...(terms && { terms }),
    ...(teamId && { teamId }),
    ...(keyTerms && { key: { terms: keyTerms } }),
  });
  return key.reveal();
}

const ask = (gateway: Gateway, key: string, model = 'm') =>
  gateway.chat(chatRequest({ model, max_tokens: 1 }), { key });

/** How many of `times` requests get in, one after another. */
async function admitted(gateway: Gateway, key: string, times: number, model = 'm'): Promise<number> {
  let count = 0;
  for (let index = 0; index < times; index += 1)
    if ((await ask(gateway, key, model)).status === 200) count += 1;
  return count;
}

const errorOf = (response: RawResponse) => [
  response.status,
  field(response.json(), 'error', 'code'),
  field(response.json(), 'error', 'message'),
];

/** Runs a command of `tollgate` on the store of a gateway. */
async function command(gateway: Gateway, ...words: string[]): Promise<string> {
  const env = { TEST_DIR: gateway.directory.path };
  const { code, stdout, stderr } = await runCommand([...words, '--config', gateway.configFile], env);
  if (code !== 0) throw new Error(stderr);
  return stdout;
}

/** A team in the store of a gateway. */
async function addTeam(gateway: Gateway, name: string, ...limits: string[]): Promise<string> {
  await command(gateway, 'teams', 'add', name, ...limits);
  const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
  try {
    return (await store.organisation.findTeam({ name }))?.id ?? '';
  } finally {
    await store.close();
  }
}

async function usage(gateway: Gateway, key: string): Promise<unknown> {
  const response = await fetch(`${gateway.url}/admin/usage`, { headers: { authorization: `Bearer ${key}` } });
  return field(await response.json(), 'limits');
}

describe('on one gateway', () => {
  test('limits of a holder replace those of its tier', async () => {
    await using gateway = await startGateway({ config: configOf({ requests_per_day: 2 }) });
    expect(await admitted(gateway, await issue(gateway), 4)).toBe(2);
    const more = await issue(gateway, { terms: { limits: { requests_per_day: 3 } } });
    expect(await admitted(gateway, more, 5)).toBe(3);
    const none = await issue(gateway, { terms: { limits: { requests_per_day: null } } });
    expect(await admitted(gateway, none, 5)).toBe(5);
  });

  test('limits of a key are its own, beside those of its holder', async () => {
    await using gateway = await startGateway({ config: configOf({ requests_per_day: 5 }) });
    const first = await issue(gateway, { keyTerms: { limits: { requests_per_day: 2 } } });
    const prefix = first.slice(0, 8);
    const second = (await command(gateway, 'keys', 'issue', '--for', prefix)).trim();
    expect(await admitted(gateway, first, 4)).toBe(2);
    expect(errorOf(await ask(gateway, first))).toEqual([
      429,
      'rate_limit_exceeded',
      'The limit of 2 requests per day of the key is reached.',
    ]);
    // The other key has what the holder has left.
    expect(await admitted(gateway, second, 5)).toBe(3);
    // A rotated key continues.
    const headers = { authorization: `Bearer ${first}` };
    const rotated = await fetch(`${gateway.url}/admin/keys/rotate`, { method: 'POST', headers });
    expect((await ask(gateway, String(field(await rotated.json(), 'key')))).status).toBe(429);
  });

  test('limits of a team are shared by its holders, and a change of them holds within five seconds', async () => {
    await using gateway = await startGateway({ config: configOf() });
    const teamId = await addTeam(gateway, 'Search', '--limit', 'requests_per_day=4');
    const keys = [await issue(gateway, { teamId }), await issue(gateway, { teamId })];
    const [one = '', two = ''] = keys;
    expect([await admitted(gateway, one, 3), await admitted(gateway, two, 3)]).toEqual([3, 1]);
    expect(errorOf(await ask(gateway, one))).toEqual([
      429,
      'rate_limit_exceeded',
      'The limit of 4 requests per day of the team is reached.',
    ]);
    await command(gateway, 'teams', 'set', 'Search', '--limit', 'requests_per_day=6');
    const changedAt = performance.now();
    await until(async () => (await ask(gateway, two)).status === 200, 'the change', 5000);
    expect(performance.now() - changedAt).toBeLessThan(5000);
    expect(await admitted(gateway, one, 3)).toBe(1);
    // Others are not concerned.
    expect(await admitted(gateway, await issue(gateway), 3)).toBe(3);
    await command(gateway, 'teams', 'set', 'Search', '--limit', 'requests_per_day=none');
    await until(async () => (await ask(gateway, two)).status === 200, 'the removal', 5000);
  });

  test('limits of a model are of each holder with it, and patterns count all their models together', async () => {
    const models = {
      m: {
        targets: [{ upstream: 'up', model: 'm' }],
        limits: { Lite: { requests_per_day: 2 } },
      },
      'o/*': {
        targets: [{ upstream: 'up', model: '*' }],
        limits: { Lite: { requests_per_day: 3 }, Pro: { requests_per_day: 1 } },
      },
    };
    await using gateway = await startGateway({ config: configOf({}, { models }) });
    const key = await issue(gateway);
    expect(await admitted(gateway, key, 4)).toBe(2);
    expect(errorOf(await ask(gateway, key))).toEqual([
      429,
      'rate_limit_exceeded',
      'The limit of 2 requests per day of the model is reached.',
    ]);
    expect([await admitted(gateway, key, 2, 'o/a'), await admitted(gateway, key, 2, 'o/b')]).toEqual([2, 1]);
    expect(await admitted(gateway, key, 2, 'free')).toBe(2);
    expect(await admitted(gateway, await issue(gateway), 4)).toBe(2);
    const own = {
      model_limits: { m: { limits: { requests_per_day: 1 } }, free: { limits: { concurrency: 1 } } },
    };
    expect(await admitted(gateway, await issue(gateway, { terms: own }), 4)).toBe(1);
  });

  test('a budget that is spent says whose it is, and others go on', async () => {
    await using gateway = await startGateway({
      config: configOf({ budget: { per_month: 3, soft: [0.5] } }, { top: { retry: { attempts: 1 } } }),
    });
    const key = await issue(gateway);
    const answers = [await ask(gateway, key), await ask(gateway, key), await ask(gateway, key)];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    const models = await listModels(gateway.url, key);
    expect([
      models.header('x-tollgate-budget-remaining'),
      models.header('x-tollgate-budget-warning'),
      models.header('x-ratelimit-limit-requests'),
    ]).toEqual(['0', '100% of the monthly budget of the holder is used', undefined]);
    const refused = await ask(gateway, key);
    expect(errorOf(refused)).toEqual([
      429,
      'insufficient_quota',
      'The monthly budget of the holder is spent.',
    ]);
    expect(refused.header('x-should-retry')).toBe('false');
    expect(await admitted(gateway, await issue(gateway), 1)).toBe(1);
    const rich = await issue(gateway, { terms: { budget: { per_month: 5.5e9 } } });
    const first = await ask(gateway, rich);
    expect([first.status, first.header('x-tollgate-budget-warning')]).toEqual([200, undefined]);
    // Four, and one that begins with less than it costs.
    expect(await admitted(gateway, rich, 9)).toBeGreaterThanOrEqual(4);
  });

  test('the report of a key shows all its scopes as the limiter counts them', async () => {
    const models = {
      m: {
        targets: [{ upstream: 'up', model: 'm' }],
        price: PRICE,
        limits: { Lite: { requests_per_day: 7 } },
      },
    };
    await using gateway = await startGateway({
      config: configOf({ budget: { per_month: 30 } }, { models }),
    });
    const teamId = await addTeam(gateway, 'Search', '--limit', 'requests_per_day=9', '--budget', '20/day');
    const key = await issue(gateway, { teamId, keyTerms: { limits: { requests_per_day: 8 } } });
    expect(await admitted(gateway, key, 2)).toBe(2);
    expect(await usage(gateway, key)).toMatchObject([
      { limit: 'cost_per_month', max: 30, used: 2, remaining: 28 },
      { scope: 'key', limit: 'requests_per_day', max: 8, used: 2, remaining: 6 },
      { scope: 'team', limit: 'requests_per_day', max: 9, used: 2, remaining: 7 },
      { scope: 'team', limit: 'cost_per_day', max: 20, used: 2, remaining: 18 },
      { scope: 'model', model: 'm', limit: 'requests_per_day', max: 7, used: 2, remaining: 5 },
    ]);
  });
});

test('a budget that comes later counts what was used before it, and so does a restart', async () => {
  const models = {
    'o/*': { targets: [{ upstream: 'up', model: '*' }], price: PRICE },
    'o/exact': { targets: [{ upstream: 'up', model: 'x' }], price: PRICE },
  };
  const config = configOf({ requests_per_day: 1000 }, { models });
  await using gateway = await startGateway({ config });
  const teamId = await addTeam(gateway, 'Search');
  const keys = {
    holder: await issue(gateway),
    key: await issue(gateway),
    team: await issue(gateway, { teamId }),
    model: await issue(gateway),
  };
  const pattern = ['o/é', 'o/b', 'o/exact'];
  for (const key of [keys.holder, keys.key, keys.team]) expect(await admitted(gateway, key, 3)).toBe(3);
  for (const model of pattern) expect(await admitted(gateway, keys.model, 1, model)).toBe(1);
  const prefix = (key: string) => key.slice(0, 8);
  await command(gateway, 'holders', 'set', prefix(keys.holder), '--budget', '5/month');
  await command(gateway, 'keys', 'set', prefix(keys.key), '--budget', '5/month');
  await command(gateway, 'teams', 'set', 'Search', '--budget', '5/month');
  await command(gateway, 'holders', 'set', prefix(keys.model), '--model-budget', 'o/*:5/month');
  const limited = async (at: Gateway, key: string) => {
    const limits = await usage(at, key);
    return Array.isArray(limits) ? limits.find(({ limit }) => limit === 'cost_per_month')?.used : undefined;
  };
  for (const key of Object.values(keys))
    await until(async () => (await limited(gateway, key)) !== undefined, 'the budget', 5000);
  // The exact name is an entry of its own.
  expect(await Promise.all(Object.values(keys).map((key) => limited(gateway, key)))).toEqual([3, 3, 3, 2]);
  for (const key of [keys.holder, keys.key, keys.team]) expect(await admitted(gateway, key, 4)).toBe(2);
  expect(await admitted(gateway, keys.model, 4, 'o/c')).toBe(3);
  expect(await admitted(gateway, keys.model, 2, 'o/exact')).toBe(2);
  await gateway.app.close();
  const store = `sqlite:${gateway.directory.file('tollgate.db')}`;
  const spool = gateway.directory.file('usage');
  await using again = await startGateway({ config: { ...config, store, usage: { spool } } });
  for (const key of [keys.holder, keys.key, keys.team]) expect(await admitted(again, key, 1)).toBe(0);
  expect(await admitted(again, keys.model, 1, 'o/d')).toBe(0);
});

/** A receiver of messages; the first is answered 500. */
async function startReceiver() {
  const received: { readonly body: string; readonly signature: string }[] = [];
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const body = Buffer.concat(pieces).toString();
      received.push({ body, signature: String(request.headers['x-tollgate-signature']) });
      response.writeHead(received.length === 1 ? 500 : 204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : undefined;
  return {
    received,
    url: `http://127.0.0.1:${port}/budgets`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Lets each gateway check each key, so that no request waits for that. Models are free. */
async function meet(gateways: readonly Gateway[], keys: readonly string[]): Promise<void> {
  for (const { url } of gateways) for (const key of keys) await listModels(url, key);
}

function askOne(gateways: readonly Gateway[], keys: readonly string[], index: number): Promise<RawResponse> {
  const gateway = gateways[index % gateways.length];
  if (gateway === undefined) throw new Error('no gateway');
  return ask(gateway, keys[index % keys.length] ?? '');
}

/** A few at once: on a busy machine more could be late at Redis, and then replicas decide alone. */
async function inWaves<Result>(times: number, work: (index: number) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = [];
  for (let at = 0; at < times; at += 6)
    results.push(
      ...(await Promise.all(Array.from({ length: Math.min(6, times - at) }, (_, index) => work(at + index)))),
    );
  return results;
}

/** In this process: what they share is in Redis and in the database. */
const twoReplicas = (gateway: GatewayOptions) =>
  startFleet({ replicas: 2, postgres: 'shared', gateway: { ...gateway, process: false } });

describe('three holders of a team on two replicas', () => {
  test('share its limits to the last request', async () => {
    await using fleet = await twoReplicas({ config: configOf({ requests_per_day: 100 }) });
    const config = ['--config', fleet.configFile];
    const tollgate = async (...words: string[]) => {
      const { code, stdout, stderr } = await runCommand([...words, ...config]);
      if (code !== 0) throw new Error(stderr);
      return stdout.trim();
    };
    await tollgate('teams', 'add', 'Search', '--limit', 'requests_per_day=30');
    const keys = [0, 1, 2].map(() => tollgate('keys', 'issue', '--tier', 'Lite', '--team', 'Search'));
    const issued = await Promise.all(keys);
    const gateways = fleet.replicas.map(({ gateway }) => gateway);
    await meet(gateways, issued);
    const answers = await inWaves(60, (index) => askOne(gateways, issued, index));
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(30);
    expect(statuses.filter((status) => status === 429)).toHaveLength(30);
  }, 240_000);

  test('share its budget, and one signed message of the fleet says that it is used and spent', async () => {
    await using receiver = await startReceiver();
    const secret = 'the secret of the webhook';
    const top = { budgets: { webhook: { url: receiver.url, secret } } };
    await using fleet = await twoReplicas({ config: configOf({}, { top }) });
    const [one, two] = fleet.replicas.map(({ gateway }) => gateway);
    if (one === undefined || two === undefined) throw new Error('no replicas');
    await command(one, 'teams', 'add', 'Search', '--budget', '30/month', '--soft', '50%');
    const keys = await Promise.all(
      [0, 1, 2].map(() => command(one, 'keys', 'issue', '--tier', 'Lite', '--team', 'Search')),
    );
    const issued = keys.map((key) => key.trim());
    await meet([one, two], issued);
    const send = (times: number) => inWaves(times, (index) => askOne([one, two], issued, index));
    expect((await send(14)).map(({ status }) => status)).toEqual(Array(14).fill(200));
    expect((await send(2)).map(({ status }) => status)).toEqual([200, 200]);
    const messages = () => receiver.received.map(({ body }) => JSON.parse(body));
    await until(() => messages().length === 2, 'the message, and its repetition');
    expect(messages()[1]).toEqual(messages()[0]);
    expect(messages()[1]).toMatchObject({
      type: 'budget.threshold',
      scope: { kind: 'team', name: 'Search' },
      window: 'month',
      budget: '30',
      currency: 'EUR',
      threshold: 0.5,
    });
    const warned = await listModels(two.url, keys[0]?.trim() ?? '');
    expect(warned.header('x-tollgate-budget-warning')).toBe('53% of the monthly budget of the team is used');
    expect((await send(14)).map(({ status }) => status)).toEqual(Array(14).fill(200));
    // Of a request that is rejected earlier the message would say what is used without the last ones.
    await until(() => messages().length === 3, 'the second message');
    expect(messages()[2]).toMatchObject({ type: 'budget.spent', used: '30', threshold: 1 });
    for (const refused of await send(26))
      expect(errorOf(refused)).toEqual([
        429,
        'insufficient_quota',
        'The monthly budget of the team is spent.',
      ]);
    for (const { body, signature } of receiver.received) {
      const [, seconds = '', digest] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(signature) ?? [];
      expect(createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')).toBe(digest);
      expect(body).not.toContain(keys[0]?.trim());
    }
    // Both replicas have seen it, and one of them told.
    const lines = () =>
      [one, two].flatMap(({ logs }) => logs.filter(({ msg }) => String(msg).startsWith('a budget is')));
    await until(() => lines().length === 2, 'two lines of the log');
    await command(two, 'teams', 'set', 'Search', '--budget', '40/month');
    await until(
      async () => (await ask(one, keys[1]?.trim() ?? '')).status === 200,
      'the raised budget',
      5000,
    );
  }, 240_000);
});

describe('explain --key', () => {
  const models = {
    m: {
      targets: [{ upstream: 'up', model: 'm' }],
      price: PRICE,
      limits: { Lite: { requests_per_day: 7 } },
    },
  };
  const tier = { requests_per_minute: 50, budget: { per_month: 30 } };

  test('says the same as the limiter of a running gateway, by a key or by its holder', async () => {
    await using gateway = await startGateway({
      config: { ...configOf(tier, { models }), admin: { host: '127.0.0.1', port: await closedPort() } },
    });
    const teamId = await addTeam(gateway, 'Search', '--budget', '20/day');
    const { key, holderId } = await gateway.app.issuer.issue({ tier: 'Lite', teamId });
    const prefix = key.reveal().slice(0, 8);
    expect(await admitted(gateway, key.reveal(), 3)).toBe(3);
    const explained = async (whose: string) =>
      field(JSON.parse(await command(gateway, 'explain', 'm', '--key', whose, '--json')), 'key');
    const lines = [
      { limit: 'requests_per_minute', max: 50, used: 3, remaining: 47 },
      { limit: 'cost_per_month', max: 30, used: 3, remaining: 27 },
      { scope: 'team', limit: 'cost_per_day', max: 20, used: 3, remaining: 17 },
      { scope: 'model', model: 'm', limit: 'requests_per_day', max: 7, used: 3, remaining: 4 },
    ];
    expect(await explained(prefix)).toMatchObject({ tier: 'Lite', source: 'gateway', lines });
    expect(await explained(holderId)).toMatchObject({ source: 'gateway', lines });
    expect(await usage(gateway, key.reveal())).toMatchObject(lines);
    const text = await command(gateway, 'explain', 'm', '--key', prefix);
    expect(text).toContain('key         holder: requests per minute 50, used 3, left 47, resets in ');
    expect(text).toContain('team: budget per day 20, used 3, left 17, resets in ');
    await expect(command(gateway, 'explain', 'm', '--key', '01234567')).rejects.toThrow(
      'no key with this prefix',
    );
    await expect(command(gateway, 'explain', 'm', '--key', prefix, '--tier', 'Pro')).rejects.toThrow(
      'give either --tier or --key',
    );
    // Without the gateway the store knows days and months.
    await gateway.app.close();
    expect(await explained(prefix)).toMatchObject({
      source: 'store',
      lines: [{ used: 0 }, { limit: 'cost_per_month', used: 3 }, { scope: 'team', used: 3 }, { used: 3 }],
    });
  });

  test('says what replicas count together in Redis', async () => {
    await using fleet = await twoReplicas({ config: configOf(tier, { models }) });
    const [one, two] = fleet.replicas.map(({ gateway }) => gateway);
    if (one === undefined || two === undefined) throw new Error('no replicas');
    const key = (await command(one, 'keys', 'issue', '--tier', 'Lite')).trim();
    expect([(await ask(one, key)).status, (await ask(two, key)).status]).toEqual([200, 200]);
    await until(async () => {
      const { key: limited } = JSON.parse(
        await command(two, 'explain', 'm', '--key', key.slice(0, 8), '--json'),
      );
      return limited.source === 'redis' && limited.lines[1].used === 2 && limited;
    }, 'the settled cost');
  }, 240_000);
});
