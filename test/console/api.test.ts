// The API of the admin listener: every route with every role, and every answer against the OpenAPI document.
import { randomUUID } from 'node:crypto';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ApiRoute } from '../../src/console/api/api-route.ts';
import { API_ROUTES } from '../../src/console/api/api-routes.ts';
import { openApiPath } from '../../src/console/api/openapi.ts';
import { openStore } from '../../src/store/open.ts';
import { ROLES, type Role } from '../../src/store/operator-record.ts';
import type { Store } from '../../src/store/store.ts';
import {
  addOrder,
  type ConsoleAnswer,
  type ConsoleCall,
  type ConsoleSetting,
  SALES,
  startConsole,
} from './setting.ts';

let setting: ConsoleSetting;
let store: Store;
let document: { readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>> };
const tokens = new Map<Role, string>();
const ajv = new Ajv2020({ strict: false });

beforeAll(async () => {
  setting = await startConsole({ config: SALES });
  store = await openStore({ kind: 'sqlite', path: setting.gateway.directory.file('tollgate.db') });
  for (const role of ROLES) tokens.set(role, await setting.operator(`the-${role}`, role));
  await setting.commands.done('teams', 'add', 'labelled', '--label', 'env=prod');
  document = (await admin('GET', '/openapi.json')).json as typeof document;
});
afterAll(async () => {
  await store.close();
  await setting[Symbol.asyncDispose]();
});

const as = (role: Role, method: string, path: string, call: ConsoleCall = {}) =>
  setting.call(method, `/api/v1${path}`, { token: tokens.get(role) ?? '', ...call });
const admin = (method: string, path: string, body?: unknown, headers = {}) =>
  as('admin', method, path, { ...(body !== undefined && { body }), headers });

const member = (value: unknown, ...names: readonly string[]): unknown =>
  names.reduce(
    (found: unknown, name) =>
      typeof found === 'object' && found !== null ? Reflect.get(found, name) : undefined,
    value,
  );

/** Fails where the document does not describe the answer. */
function requireDescribed(
  { method, path }: Pick<ApiRoute, 'method' | 'path'>,
  { status, headers, json }: ConsoleAnswer,
): void {
  const operation = document.paths[openApiPath(path)]?.[method.toLowerCase()];
  const [name, type] = status === 200 ? ['200', 'application/json'] : ['default', 'application/problem+json'];
  const schema = member(operation, 'responses', name, 'content', type, 'schema');
  expect(headers['content-type']).toBe(type);
  const validate = ajv.compile(schema as object);
  expect([path, status, validate(json), validate.errors ?? []]).toEqual([path, status, true, []]);
}

const newKey = async () =>
  String(member((await admin('POST', '/keys', { tier: 'Pro' })).json, 'record', 'prefix'));
const newHolder = async () =>
  String(member((await admin('POST', '/keys', { tier: 'Pro' })).json, 'record', 'holder'));
let count = 0;
const newTeam = async () => {
  count += 1;
  return String(member((await admin('POST', '/teams', { name: `team ${count}/é` })).json, 'record', 'name'));
};
const newOrder = () => addOrder(store);
async function paidOrder(): Promise<string> {
  const id = await newOrder();
  expect((await admin('POST', `/orders/${id}/paid`, { until: '2040-01-01' })).status).toBe(200);
  return id;
}

async function newOperator(): Promise<string> {
  const name = `op-${randomUUID()}`;
  expect((await admin('POST', '/operators', { name, role: 'viewer' })).status).toBe(200);
  return name;
}

/** A call of each route that succeeds: the id in its path, its query and its body. */
const SAMPLES: Readonly<
  Record<string, { id?: () => Promise<string>; query?: string; body?: () => unknown; status?: number }>
> = {
  openapi: {},
  me: {},
  'keys.list': { query: '?state=suspended&team=labelled&label=env=p*&unused_since=2030-01-01' },
  'keys.show': { id: newKey },
  'keys.issue': {
    body: () => ({
      tier: 'Pro',
      holder: 'Acme',
      labels: { env: 'prod' },
      limits: { requests_per_minute: 5 },
      expires: '90d',
    }),
  },
  'keys.set': {
    id: newKey,
    body: () => ({ name: 'ci', expires: null, limits: { tokens_per_day: 10 }, reason: 'new name' }),
  },
  'keys.rotate': { id: newKey, body: () => ({ reason: 'asked for' }) },
  'keys.revoke': { id: newKey, body: () => ({ reason: 'left' }) },
  'holders.list': { query: '?tier=Pro&limit=3' },
  'holders.show': { id: newHolder },
  'holders.set': {
    id: newHolder,
    body: () => ({ name: 'Acme', labels: { env: 'prod' }, limits: { requests_per_minute: 5 } }),
  },
  'holders.tier': { id: newHolder, body: () => ({ tier: 'Free' }) },
  'holders.suspend': { id: newHolder, body: () => ({}) },
  'holders.resume': { id: newHolder, body: () => ({}) },
  'teams.list': { query: '?name=te&label=env=*' },
  'teams.show': { id: newTeam },
  'teams.add': {
    body: () => ({ name: `added ${Math.random()}`, limits: { requests_per_minute: 9 }, labels: { a: 'b' } }),
  },
  'teams.set': { id: newTeam, body: () => ({ labels: { env: 'prod' }, limits: { requests_per_minute: 9 } }) },
  'teams.remove': { id: newTeam },
  'tiers.list': {},
  'routes.list': {},
  explain: { query: '?model=test-model&tier=Pro' },
  'budgets.list': {},
  'usage.report': { query: '?by=day,model&since=7d' },
  'usage.months': {},
  'upstreams.list': {},
  'upstreams.show': { id: async () => 'echo' },
  'upstreams.events': { query: '?upstream=echo' },
  'upstreams.drain': { id: async () => 'echo', body: () => ({ for: '1h', reason: 'maintenance' }) },
  'upstreams.resume': {
    id: async () => {
      await admin('POST', '/upstreams/echo/drain', {});
      return 'echo';
    },
    body: () => ({}),
  },
  'orders.list': { query: '?state=pending' },
  'orders.show': { id: newOrder },
  'orders.check': { id: newOrder, body: () => ({}) },
  'orders.cancel': { id: newOrder, body: () => ({}) },
  // An invoice is taken back by hand.
  'orders.refund': { status: 409, id: paidOrder, body: () => ({}) },
  'orders.paid': { id: newOrder, body: () => ({ until: '2040-01-01' }) },
  // Only an order with a warning is trusted by hand.
  'orders.trust': { status: 409, id: newOrder, body: () => ({}) },
  'events.list': { query: '?actor=operator:the-admin&limit=5' },
  'operators.list': {},
  'operators.show': { id: newOperator },
  'operators.add': {
    body: () => ({ name: `op-${randomUUID()}`, role: 'viewer', expires: '30d' }),
  },
  'operators.rotate': { id: newOperator, body: () => ({ expires: null, reason: 'lost' }) },
  'operators.remove': { id: newOperator },
  'commands.run': { body: () => ({ argv: ['keys', 'list', '--json'] }) },
};

/** @param id in place of that of a record of its own, for calls that are refused */
async function sampleOf({ name, path }: ApiRoute, given?: string): Promise<{ path: string; body?: unknown }> {
  const sample = SAMPLES[name];
  if (sample === undefined) throw new Error(`there is no sample of ${name}`);
  const id = encodeURIComponent(given ?? (await sample.id?.()) ?? '');
  return {
    path: `${path.replace(/:\w+/, id)}${sample.query ?? ''}`,
    ...(sample.body && { body: sample.body() }),
  };
}

test('keys are found by the states that the command line shows, and by their expiry', async () => {
  const { commands } = setting;
  const [expired, suspended] = [await newKey(), await newKey()];
  const found = async (query: string) => {
    const { json } = await admin('GET', `/keys?limit=500&${query}`);
    return JSON.stringify(member(json, 'items'));
  };
  await commands.done('holders', 'suspend', suspended);
  expect(await found('state=suspended')).toContain(suspended);
  expect(await found('state=suspended')).not.toContain(expired);
  await commands.done('keys', 'set', expired, '--expires', '1ms');
  expect(await found('state=expired')).toContain(expired);
  expect(await found('state=expired')).not.toContain(suspended);
  for (const time of ['2100-01-01', '2100-01-01T00:00:00Z'])
    expect(await found(`expires_before=${time}`)).toContain(expired);
  expect(await found('expires_before=2020-01-01')).toBe('[]');
});

test.each(['keys', 'holders', 'teams'])('%s are not searched by a label that nobody has', async (kind) => {
  await setting.commands.done('teams', 'set', await newTeam(), '--label', 'environment=prod');
  const answer = await admin('GET', `/${kind}?label=enviroment=prod`);
  expect([answer.status, member(answer.json, 'detail')]).toEqual([
    400,
    'No holder and no team has a label with this name; did you mean `environment`?',
  ]);
});

describe.each(API_ROUTES.map((route) => [route.method, route.path, route] as const))(
  '%s %s',
  (method, _path, route) => {
    test.each(ROLES)('as %s is allowed or forbidden, as the document says', async (role) => {
      const isAllowed = ROLES.indexOf(role) >= ROLES.indexOf(route.role);
      const { path, body } = await sampleOf(route, isAllowed ? undefined : 'someone');
      const answer = await as(role, method, path, { body });
      const { status = 200 } = SAMPLES[route.name] ?? {};
      expect([answer.status, isAllowed ? '' : member(answer.json, 'code')]).toEqual(
        isAllowed ? [status, ''] : [403, 'role_too_low'],
      );
      requireDescribed(route, answer);
      expect(answer.headers).toMatchObject({
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
      });
    });

    test('without an operator, or with a key of the public API, is a 401 and does nothing', async () => {
      const { path, body } = await sampleOf(route, 'someone');
      const before = await store.operators.events({ limit: 1 });
      for (const token of [undefined, 'x', await setting.gateway.issueKey()]) {
        const answer = await setting.call(method, `/api/v1${path}`, {
          ...(token !== undefined && { token }),
          body,
          from: '127.0.2.1',
        });
        expect([401, 429]).toContain(answer.status);
        // RFC 9110, 11.6.1.
        const challenge = answer.status === 401 ? 'Bearer realm="tollgate"' : undefined;
        expect(answer.headers['www-authenticate']).toBe(challenge);
        requireDescribed(route, answer);
      }
      expect(await store.operators.events({ limit: 1 })).toEqual(before);
    });

    test('with members or parameters that it does not know is a 400 that names them', async () => {
      const { path, body } = await sampleOf(route);
      const extra = `${path}${path.includes('?') ? '&' : '?'}wrong=1`;
      const answers = [await admin(method, extra, body)];
      if (route.body !== undefined)
        answers.push(await admin(method, path, { ...(body as object), wrong: 1 }));
      for (const answer of answers) {
        expect([answer.status, member(answer.json, 'code')]).toEqual([400, 'invalid_value']);
        expect(answer.text).toContain('wrong');
        requireDescribed(route, answer);
      }
    });
  },
);

test('the document names all routes, and no answer says that a member can be left out that it needs', () => {
  const described = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(described.sort()).toEqual(
    API_ROUTES.map(({ method, path }) => `${method} ${openApiPath(path)}`).sort(),
  );
});

describe('ids of nobody', () => {
  test.each(API_ROUTES.filter(({ path }) => path.includes(':')))('$method $path is a 404', async (route) => {
    const ids = [
      '00000000',
      '00000000-0000-4000-8000-000000000000',
      'nobody',
      '..%2F..%2Fetc',
      '%00',
      '__proto__',
      '-h',
      '--help',
      '--config=/etc/passwd',
      'a'.repeat(3000),
    ];
    for (const id of ids) {
      const answer = await admin(route.method, route.path.replace(/:\w+/, id), SAMPLES[route.name]?.body?.());
      expect([id.slice(0, 20), answer.status]).toEqual([id.slice(0, 20), 404]);
      requireDescribed(route, answer);
    }
  });
});

describe('a change', () => {
  test('is an event with actor, address, reason, before and after, and no key', async () => {
    const prefix = await newKey();
    await as('support', 'POST', `/keys/${prefix}/revoke`, { body: { reason: 'left the company' } });
    const { json } = await admin('GET', `/events?target=${prefix}`);
    const [event] = member(json, 'items') as object[];
    expect(event).toMatchObject({
      actor: 'operator:the-support',
      address: '127.0.0.1',
      what: 'keys.revoke',
      target: prefix,
      status: 200,
      reason: 'left the company',
      before: { state: 'active' },
      after: { record: { state: 'revoked' } },
    });
    expect(await store.historyOf(prefix as never)).toMatchObject([
      {},
      { kind: 'revoked', actor: 'operator:the-support', reason: 'left the company' },
    ]);
  });

  test('that is refused is no event', async () => {
    const prefix = await newKey();
    await admin('POST', `/keys/${prefix}/revoke`, {});
    const answer = await admin('PATCH', `/keys/${prefix}`, { name: 'x' });
    expect([answer.status, member(answer.json, 'detail')]).toEqual([
      409,
      'The key has ended: it is revoked.',
    ]);
    expect((await store.operators.events({ target: prefix, limit: 9 })).map(({ what }) => what)).toEqual([
      'keys.revoke',
    ]);
  });

  test.each([
    ['/keys', { tier: 'Gold' }, 'tier'],
    ['/keys', {}, 'exactly one of `tier`'],
    ['/keys', { tier: 'Pro', expires: '2020-01-01' }, '`expires` is in the past'],
    ['/keys', { tier: 'Pro', limits: { requests_per_minute: 101 } }, 'holder'],
    ['/keys', { tier: 'Pro', limits: { concurrency: '' } }, 'limits.concurrency: must be a number or `none`'],
    ['/teams', { name: 'x', budget: { per_day: 'tier' } }, 'budget.per_day: must be a number or `none`'],
    ['/teams', { name: 'x', soft: '' }, 'soft: must be a list or `none`'],
    ['/keys', { tier: 'Pro', name: 'a\u0000b' }, 'control character'],
    ['/keys', { tier: 'Pro', name: '--config=/etc/passwd' }, ''],
    ['/keys', { tier: 'Pro', models: ['echo,echo'] }, 'A name in a list'],
    ['/keys', { tier: 'Pro', models: ['all'] }, 'A name in a list'],
    ['/keys', [], 'must be a JSON object'],
    ['/teams', { name: '' }, 'name'],
    ['/teams', { name: 'x', labels: { 'a=b': 'c' } }, 'The name of a label has no `=`'],
    ['/keys', { tier: 'Pro', reason: 'x'.repeat(201) }, 'reason: must be at most 200 characters long'],
    ['/upstreams/echo/drain', { for: 'soon' }, '`for` is a duration'],
  ])('%s with %j', async (path, body, message) => {
    const answer = await admin('POST', path, body);
    if (message === '') expect(answer.status).toBe(200);
    else expect([answer.status, answer.text]).toEqual([400, expect.stringContaining(message)]);
  });

  test.each([
    ['text/plain', '{}', 'unsupported_content_type'],
    ['application/x-www-form-urlencoded', 'tier=Pro', 'unsupported_content_type'],
    ['application/json', '{"tier":', 'invalid_json'],
    ['application/json', `{"tier":"${'x'.repeat(70_000)}"}`, 'request_too_large'],
  ])('with a body of %s is refused', async (type, body, code) => {
    const answer = await as('admin', 'POST', '/keys', { body, headers: { 'content-type': type } });
    expect(member(answer.json, 'code')).toBe(code);
  });
});

describe('operators', () => {
  const call = (token: unknown) => setting.call('GET', '/api/v1/me', { token: String(token) });

  test('are made with a token that works, renewed and removed at once, each with one event and no token in it', async () => {
    const name = 'ann@example.com';
    const made = await admin('POST', '/operators', {
      name,
      role: 'support',
      expires: '30d',
      reason: 'new here',
    });
    const first = member(made.json, 'token');
    expect((await call(first)).json).toMatchObject({ name, role: 'support' });
    const path = `/operators/${encodeURIComponent(name)}`;
    const renewed = await admin('POST', `${path}/rotate`, { expires: null });
    expect(renewed.json).toMatchObject({ record: { name, expires_at: null } });
    const second = member(renewed.json, 'token');
    expect([(await call(first)).status, (await call(second)).status]).toEqual([401, 200]);
    expect((await admin('DELETE', path)).status).toBe(200);
    expect((await call(second)).status).toBe(401);
    const events = await admin('GET', `/events?target=${encodeURIComponent(name)}`);
    expect(member(events.json, 'items')).toMatchObject([
      { what: 'operators.remove', actor: 'operator:the-admin' },
      { what: 'operators.rotate', actor: 'operator:the-admin' },
      { what: 'operators.add', actor: 'operator:the-admin', reason: 'new here' },
    ]);
    expect(events.text).toContain('"address":"127.0.0.1"');
    for (const token of [first, second]) expect(events.text).not.toContain(String(token).slice(12));
  });

  test('are made and renewed once by a request that is repeated, and not from a record that has changed', async () => {
    const name = `op-${randomUUID()}`;
    const headers = { 'idempotency-key': name };
    const add = () => admin('POST', '/operators', { name, role: 'viewer' }, headers);
    const first = member((await add()).json, 'token');
    const again = await add();
    expect([again.status, again.headers['idempotency-replayed'], again.json]).toMatchObject([
      200,
      'true',
      { record: { name }, token: null },
    ]);
    const path = `/operators/${name}`;
    const etag = String((await admin('GET', path)).headers.etag);
    const rotate = () => admin('POST', `${path}/rotate`, {}, { 'if-match': etag });
    const second = member((await rotate()).json, 'token');
    expect((await rotate()).json).toMatchObject({ code: 'record_changed', current: { name } });
    expect([(await call(first)).status, (await call(second)).status]).toEqual([401, 200]);
  });

  test('and teams are found in any case, and events have their names', async () => {
    const [operator, team] = [await newOperator(), await newTeam()];
    const changes = [
      ['POST', `/operators/${operator.toUpperCase()}/rotate`, {}, operator],
      ['PATCH', `/teams/${encodeURIComponent(team.replace('team', 'TEAM'))}`, { labels: { a: 'b' } }, team],
      ['POST', '/commands', { argv: ['operators', 'remove', operator.toUpperCase()] }, operator],
    ] as const;
    for (const [method, path, body, target] of changes) {
      expect((await admin(method, path, body)).status).toBe(200);
      const { json } = await admin('GET', '/events?limit=1');
      expect(member(json, 'items')).toMatchObject([{ target }]);
    }
  });

  test('are removed for a reason, as teams are', async () => {
    const team = await newTeam();
    for (const path of [`/operators/${await newOperator()}`, `/teams/${encodeURIComponent(team)}`]) {
      expect((await admin('DELETE', `${path}?reason=left`)).status).toBe(200);
      const { json } = await admin('GET', '/events?limit=1');
      expect(json).toMatchObject({
        items: [{ reason: 'left', target: decodeURIComponent(path.split('/')[2] ?? '') }],
      });
    }
  });

  test.each([
    [{ name: 'x y', role: 'viewer' }, 400],
    [{ name: 'x', role: 'root' }, 400],
    [{ name: 'the-viewer', role: 'admin' }, 409],
    [{ name: 'x', role: 'viewer', expires: '2020-01-01' }, 400],
  ])('%j is a %i, and changes nothing', async (body, status) => {
    const before = (await store.operators.listOperators(999)).map((each) => each.name);
    expect((await admin('POST', '/operators', body)).status).toBe(status);
    expect((await store.operators.listOperators(999)).map((each) => each.name)).toEqual(before);
  });
});

describe('two operators', () => {
  test('of two changes of one record the second is refused with the difference, and changes nothing', async () => {
    const id = await newHolder();
    const { etag } = (await admin('GET', `/holders/${id}`)).headers;
    const first = await admin('PATCH', `/holders/${id}`, { name: 'First' }, { 'if-match': etag });
    expect(first.status).toBe(200);
    const second = await admin(
      'PATCH',
      `/holders/${id}`,
      { name: 'Second', labels: { a: 'b' } },
      { 'if-match': etag },
    );
    expect(second.status).toBe(412);
    expect(second.json).toMatchObject({
      code: 'record_changed',
      difference: [{ field: 'name', now: 'First', yours: 'Second' }],
      current: { name: 'First' },
    });
    expect(await admin('GET', `/holders/${id}`)).toMatchObject({ json: { name: 'First', labels: {} } });
    const again = await admin(
      'PATCH',
      `/holders/${id}`,
      { name: 'Second' },
      { 'if-match': first.headers.etag },
    );
    expect([again.status, member(again.json, 'record', 'name')]).toEqual([200, 'Second']);
  });

  test('of two changes at the same moment one is refused', async () => {
    const id = await newHolder();
    const { etag } = (await admin('GET', `/holders/${id}`)).headers;
    const names = ['A', 'B', 'C', 'D'];
    const answers = await Promise.all(
      names.map((name) => admin('PATCH', `/holders/${id}`, { name }, { 'if-match': etag })),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 412, 412, 412]);
  });

  test.each(['"x"', '""', 'garbage', 'W/"name:00000000"'])(
    'with the tag %s that no record has',
    async (tag) => {
      expect(
        (await admin('PATCH', `/holders/${await newHolder()}`, { name: 'x' }, { 'if-match': tag })).status,
      ).toBe(412);
    },
  );
});

describe('an Idempotency-Key', () => {
  const issue = (key: string, body: unknown = { tier: 'Pro', name: key }) =>
    admin('POST', '/keys', body, { 'idempotency-key': key });

  test('makes a repeated request answer as the first, without its key, and change nothing', async () => {
    const first = await issue('once');
    const second = await issue('once');
    expect([first.status, second.status, second.headers['idempotency-replayed']]).toEqual([200, 200, 'true']);
    expect(member(first.json, 'key')).toMatch(/^[0-9a-f]{32}$/);
    expect(second.json).toEqual({ ...(first.json as object), key: null });
    const listed = await admin('GET', '/keys?limit=500');
    expect(
      (member(listed.json, 'items') as { name: string }[]).filter(({ name }) => name === 'once'),
    ).toHaveLength(1);
  });

  test('sent many times at once makes one change', async () => {
    const answers = await Promise.all(Array.from({ length: 8 }, () => issue('many')));
    expect(answers.filter(({ status, json }) => status === 200 && member(json, 'key') !== null)).toHaveLength(
      1,
    );
    for (const { status } of answers) expect([200, 409]).toContain(status);
    const listed = await admin('GET', '/keys?limit=500');
    expect(
      (member(listed.json, 'items') as { name: string }[]).filter(({ name }) => name === 'many'),
    ).toHaveLength(1);
  });

  test('belongs to one request of one operator', async () => {
    await issue('mine');
    expect((await issue('mine', { tier: 'Free' })).status).toBe(422);
    const other = await as('support', 'POST', '/keys', {
      body: { tier: 'Pro', name: 'mine' },
      headers: { 'idempotency-key': 'mine' },
    });
    expect([other.status, other.headers['idempotency-replayed']]).toEqual([200, undefined]);
  });

  test('of a refused request can be used again', async () => {
    expect((await issue('again', { tier: 'Gold' })).status).toBe(400);
    expect((await issue('again', { tier: 'Pro', limits: { requests_per_minute: 1000 } })).status).toBe(400);
    expect((await issue('again')).status).toBe(200);
  });

  test.each(['', ' ', 'é', 'x'.repeat(256)])('has a form: %j', async (key) => {
    expect((await issue(Buffer.from(key).toString('latin1'))).status).toBe(400);
  });
});

describe('lists', () => {
  test('have pages that together are the whole, in their order, and each cursor belongs to its list', async () => {
    const { json } = await admin('GET', '/keys?limit=500');
    const all = (member(json, 'items') as { prefix: string }[]).map(({ prefix }) => prefix);
    expect([all.length > 5, member(json, 'next_cursor')]).toEqual([true, null]);
    const found: string[] = [];
    let cursor = '';
    for (;;) {
      const page = (await admin('GET', `/keys?limit=3${cursor && `&cursor=${cursor}`}`)).json;
      found.push(...(member(page, 'items') as { prefix: string }[]).map(({ prefix }) => prefix));
      const next = member(page, 'next_cursor');
      if (next === null) break;
      cursor = String(next);
    }
    expect(found).toEqual(all);
    for (const path of ['/holders', '/teams', '/orders', '/events', '/upstream-events'])
      expect([path, (await admin('GET', `${path}?cursor=${cursor}`)).status]).toEqual([path, 400]);
  });

  test.each(['0', '-1', '1.5', '501', 'x', ''])('refuse the limit %j', async (limit) => {
    expect((await admin('GET', `/keys?limit=${limit}`)).status).toBe(400);
  });
});

test('a browser changes something only with the CSRF token of its session, from our origin', async () => {
  const { cookie, csrf } = await setting.signIn(tokens.get('admin') ?? '');
  const { origin } = new URL(setting.gateway.adminUrl);
  const post = (headers: Record<string, string>) =>
    setting.call('POST', '/api/v1/keys', { cookie, headers, body: { tier: 'Free' } });
  expect((await setting.call('GET', '/api/v1/me', { cookie })).json).toEqual({
    name: 'the-admin',
    role: 'admin',
    via: 'session',
  });
  for (const headers of [
    {},
    { origin },
    { 'x-csrf-token': 'x' },
    { 'x-csrf-token': csrf, origin: 'https://evil.example' },
    { 'x-csrf-token': csrf, 'sec-fetch-site': 'cross-site' },
  ])
    expect([headers, (await post(headers)).status]).toEqual([headers, 403]);
  expect((await post({ 'x-csrf-token': csrf, origin })).status).toBe(200);
});

test('an unknown path is a 404 and another method a 405, both as problems', async () => {
  for (const path of ['', '/', '/nothing', '/keys/', '/keys/a/b/c', '/%zz'])
    expect([path, (await admin('GET', path)).status]).toEqual([path, 404]);
  const answer = await admin('PUT', '/keys');
  expect([answer.status, answer.headers.allow, answer.headers['content-type']]).toEqual([
    405,
    'GET, POST',
    'application/problem+json',
  ]);
});

test.each(['keys', 'holders', 'teams', 'usage'])(
  '%s are not searched by two values of one label',
  async (path) => {
    expect(await admin('GET', `/${path}?label=env=prod&label=env=test`)).toMatchObject({
      status: 400,
      json: { code: 'invalid_value', detail: expect.stringContaining('given twice') },
    });
  },
);

test('a parameter that is one text is not taken twice', async () => {
  for (const path of ['keys?name=a&name=b', 'keys?tier=Pro&tier=Pro', 'usage?month=2026-10&month=2026-09'])
    expect(await admin('GET', `/${path}`)).toMatchObject({ status: 400 });
});

test('a key is issued for a holder by its id', async () => {
  const holder = await newHolder();
  expect(await admin('POST', '/keys', { for: holder })).toMatchObject({
    status: 200,
    json: { record: { holder } },
  });
});
