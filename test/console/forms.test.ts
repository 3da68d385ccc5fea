// Forms of the console as a hostile person, or an unlucky one, sends them: without a session, twice, at the same time as others, about
// nobody, with markup and with names that mean something to JavaScript.
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { API_ROUTES } from '../../src/console/api/api-routes.ts';
import { type ConsoleSetting, cookieFrom, csrfIn, startConsole } from './setting.ts';

let setting: ConsoleSetting;
let token: string;
let own: { readonly cookie: string; readonly csrf: string };
let key: string;
let holder: string;

const list = async (...words: string[]): Promise<object[]> =>
  JSON.parse((await setting.commands.tollgate(...words, '--json')).out);

beforeAll(async () => {
  const model = { targets: [{ upstream: 'echo', model: 'test-model' }], price: { input: 1, output: 1 } };
  const tiers = { Free: {}, Lite: {}, Pro: { tokens_per_day: 1000, budget: { per_month: 10 } } };
  setting = await startConsole({ config: { currency: 'EUR', tiers, models: { 'test-model': model } } });
  token = await setting.operator('ann', 'admin');
  own = await setting.signIn(token);
  key = (await setting.commands.tollgate('keys', 'issue', '--tier', 'Pro')).out.slice(0, 8);
  holder = String(Reflect.get((await list('keys', 'list'))[0] ?? {}, 'holder'));
});
afterAll(() => setting[Symbol.asyncDispose]());

const send = (route: string, fields: Readonly<Record<string, string>>, { cookie, csrf } = own) =>
  setting.call('POST', `/console/do/${route}`, {
    cookie,
    body: `${new URLSearchParams({ csrf, ...fields })}`,
  });
const get = (path: string, cookie = own.cookie) => setting.call('GET', path, { cookie });
/** Fields of the form of a route, as its page has them. @param types those of these, with `|` */
async function fieldsOf(path: string, route: string, types = 'hidden'): Promise<Record<string, string>> {
  const { text } = await get(path);
  const form = new RegExp(`<form[^>]* action="/console/do/${route}">.*?</form>`, 's').exec(text)?.[0] ?? '';
  expect(form).not.toBe('');
  return Object.fromEntries(
    [...form.matchAll(new RegExp(`<input type="(?:${types})" name="([^"]*)" value="([^"]*)">`, 'g'))].map(
      ([, name = '', value = '']) => [name, value.replaceAll('&#34;', '"')],
    ),
  );
}

describe('without a session', () => {
  test('a form changes nothing, and says so, whatever it has', async () => {
    const ended = await setting.signIn(token);
    await setting.call('POST', '/console/sign-out', { cookie: ended.cookie, body: `csrf=${ended.csrf}` });
    for (const each of [ended, { cookie: '', csrf: own.csrf }, { cookie: 'tollgate-console=x', csrf: '' }]) {
      const { status, text } = await send('teams.add', { 'text.name': 'ghost' }, each);
      expect([status, text]).toEqual([401, expect.stringContaining('nothing was changed')]);
    }
    expect(await list('teams', 'list')).toEqual([]);
  });

  test('a sign-in goes on with the page that was asked for, and with nothing else', async () => {
    const page = await get(`/console/keys/${key}`, '');
    expect(page.text).toContain(`name="back" value="/console/keys/${key}"`);
    const goesTo = async (back: string) =>
      (await setting.call('POST', '/console/sign-in', { body: `${new URLSearchParams({ token, back })}` }))
        .headers.location;
    for (const page of [
      `/console/keys/${key}`,
      `/console/teams/${encodeURIComponent("R&D (EU), it's *new*!")}`,
    ])
      expect(await goesTo(page)).toBe(page);
    for (const back of [
      '//evil.example',
      'https://evil.example',
      '/console//evil.example',
      '/\\evil.example',
      'x',
      '',
    ])
      expect([back, await goesTo(back)]).toEqual([back, '/console']);
    expect(await goesTo('/console\r\nset-cookie: a=b')).toBe('/console');
    // A wrong token does not lose it.
    const wrong = await setting.call('POST', '/console/sign-in', { body: 'token=x&back=/console/teams' });
    expect([wrong.status, wrong.text]).toEqual([
      401,
      expect.stringContaining('name="back" value="/console/teams"'),
    ]);
    expect((await get('/console/live', '')).text).toContain('name="back" value="/console"');
  });
});

test('a viewer is not led to pages of others, and is refused in the frame of the console', async () => {
  const { cookie } = await setting.signIn(await setting.operator('vic', 'viewer'));
  expect((await get('/console', cookie)).text).not.toContain('/console/events');
  const { status, text } = await get('/console/events', cookie);
  expect([status, text]).toEqual([403, expect.stringContaining('<nav aria-label="Console">')]);
});

test('of edits at the same time one is done, and the others learn what is different', async () => {
  const fields = await fieldsOf(`/console/holders/${holder}`, 'holders.set');
  const names = ['one', 'two', 'three', 'four'];
  const answers = await Promise.all(
    names.map((name) => send('holders.set', { ...fields, request_key: `edit-${name}`, 'null.name': name })),
  );
  const done = answers.flatMap(({ status }, index) => (status === 200 ? [names[index]] : []));
  expect([done.length, answers.map(({ status }) => status).sort()]).toEqual([1, [200, 412, 412, 412]]);
  const lost = answers.find(({ status }) => status === 412);
  expect(lost?.text.replaceAll(/<[^>]+>/g, ' ')).toMatch(new RegExp(`name\\s+${done[0]}\\s`));
  const shown = JSON.parse((await setting.commands.tollgate('holders', 'show', holder, '--json')).out);
  expect(shown).toMatchObject({ name: done[0] });
});

test('a form that warns is open where it is shown again, and folded before', async () => {
  const path = `/console/keys/${key}`;
  const folded = /<details( open)?><summary>Revoke …/;
  expect(folded.exec((await get(path)).text)?.[1]).toBeUndefined();
  const { status, text } = await send('keys.revoke', {
    ...(await fieldsOf(path, 'keys.revoke')),
    'text.reason': 'x'.repeat(10_000),
  });
  expect([status, folded.exec(text)?.[1]]).toEqual([400, ' open']);
});

test('lists have what their columns say, and links to the records', async () => {
  const team = 'in a list';
  expect((await send('teams.add', { 'text.name': team, 'text.reason': 'why' })).status).toBe(200);
  const prefix = (await setting.commands.done('keys', 'issue', '--tier', 'Pro', '--team', team)).slice(0, 8);
  /** The cells of the first row with this text, by the titles of their columns. */
  const rowWith = async (path: string, part: string) => {
    const { text } = await get(`/console${path}`);
    const list = [...text.matchAll(/<table.*?<\/table>/gs)].find(([each]) => each.includes(part))?.[0] ?? '';
    const titles = [...list.matchAll(/<th scope="col"[^>]*>([^<]*)/g)].map(([, title = '']) => title);
    const rows = [...list.matchAll(/<tr>(.*?)<\/tr>/gs)].map(([, row = '']) => row);
    const row = rows.find((each) => each.includes(part)) ?? '';
    const cells = [...row.matchAll(/<td[^>]*>(.*?)<\/td>/gs)].map(([, cell = '']) => cell);
    return Object.fromEntries(titles.map((title, index) => [title, cells[index]]));
  };
  const linkTo = (path: string, text: string) =>
    expect.stringContaining(`<a href="/console${path}">${text}</a>`);
  expect(await rowWith('/holders?team=in+a+list', team)).toMatchObject({
    Holder: expect.stringMatching(/^<a href="\/console\/holders\/[0-9a-f-]{36}">/),
    Team: team,
    Tier: 'Pro',
    Keys: '1',
  });
  expect(await rowWith('/keys?team=in+a+list', prefix)).toMatchObject({
    Prefix: linkTo(`/keys/${prefix}`, prefix),
    Tier: 'Pro',
  });
  expect(await rowWith('/teams', team)).toMatchObject({
    Name: linkTo('/teams/in%20a%20list', team),
    Holders: '1',
  });
  expect(await rowWith('/events', team)).toMatchObject({
    Actor: 'operator:ann',
    Address: '127.0.0.1',
    What: 'teams.add',
    Target: team,
    Reason: 'why',
    Status: '200',
  });
  expect(await rowWith('/upstreams', 'now-flight-echo')).toMatchObject({
    Upstream: linkTo('/upstreams/echo', 'echo'),
    'In flight': expect.stringContaining('>0<'),
  });
  expect(await rowWith('/models', 'test-model')).toMatchObject({
    Targets: expect.stringContaining('<li>echo: test-model, weight 1, priority 1</li>'),
    Explain: linkTo('/models?model=test-model', 'Explain'),
  });
});

test('a label with spaces stays as it is when something else is changed', async () => {
  const label = 'dept=Human Resources, EU env=prod';
  await setting.commands.tollgate('holders', 'set', holder, '--label', label);
  const path = `/console/holders/${holder}`;
  const { text } = await get(path);
  const labels = /name="map.labels" value="([^"]*)"/.exec(text)?.[1]?.replaceAll('&#34;', '"') ?? '';
  const fields = { ...(await fieldsOf(path, 'holders.set')), 'map.labels': labels, 'null.name': 'Renamed' };
  expect((await send('holders.set', fields)).status).toBe(200);
  expect(await setting.commands.json('holders', 'show', holder)).toMatchObject({
    name: 'Renamed',
    labels: { dept: 'Human Resources, EU env=prod' },
  });
});

test('a team is renamed, and the page that follows leads to its new page', async () => {
  await setting.commands.done('teams', 'add', 'Old name');
  const path = '/console/teams/Old%20name';
  const fields = await fieldsOf(path, 'teams.set', 'hidden|text');
  const nameless = await send('teams.set', { ...fields, 'null.name': '' });
  expect([nameless.status, nameless.text]).toEqual([
    400,
    expect.stringMatching(/name="null.name" value="" aria-invalid="true"/),
  ]);
  const renamed = await send('teams.set', { ...fields, 'null.name': 'R&D (EU)', request_key: 'rename' });
  expect([renamed.status, renamed.text]).toEqual([
    200,
    expect.stringContaining('<a href="/console/teams/R%26D%20(EU)">Back</a>'),
  ]);
  expect((await get('/console/teams/R%26D%20(EU)')).text).toContain('name Old name to R&#38;D (EU)');
  await setting.commands.done('teams', 'remove', 'R&D (EU)');
});

test('the page of a holder has its history, and issues a key also where none is active', async () => {
  const prefix = await setting.commands.issue('--tier', 'Pro', '--holder', 'Keyless');
  const id = String(Reflect.get(Object(await setting.commands.json('keys', 'show', prefix)), 'holder'));
  await setting.commands.done('keys', 'revoke', prefix, '--reason', 'leaked');
  await setting.commands.done('holders', 'suspend', id, '--reason', 'chargeback 4711');
  const path = `/console/holders/${id}`;
  const { text } = await get(path);
  expect(text).toMatch(/<label[^>]*>Expires/);
  for (const event of ['leaked', 'standing good to suspended: chargeback 4711'])
    expect(text).toContain(event);
  const { status } = await send('keys.issue', await fieldsOf(path, 'keys.issue', 'hidden|text'));
  expect([status, Object(await setting.commands.json('holders', 'show', id)).keys]).toEqual([
    200,
    [{}, expect.objectContaining({ state: 'active' })].map(() => expect.anything()),
  ]);
});

describe('an empty field', () => {
  /** Fields of the form of a route that it accepts empty: their labels with hints. */
  const hintsOf = async (path: string, route: string) => {
    const { text } = await get(path);
    const form = new RegExp(`<form[^>]* action="/console/do/${route}">.*?</form>`, 's').exec(text)?.[0] ?? '';
    const labels = form.matchAll(
      /<label class="field">([^<]*)(?:<span class="soft">([^<]*)<.span>)?<input type="text"/g,
    );
    return Object.fromEntries(Array.from(labels, ([, label = '', hint = '']) => [label, hint.trim()]));
  };
  const show = async (...words: string[]) =>
    JSON.parse((await setting.commands.tollgate(...words, '--json')).out);

  test('says what it means on each form of keys and holders', async () => {
    for (const [path, route] of [
      [`/console/keys/${key}`, 'keys.set'],
      ['/console/keys', 'keys.issue'],
      [`/console/holders/${holder}`, 'holders.set'],
    ] as const) {
      const { Reason: _, ...hints } = await hintsOf(path, route);
      expect(Object.keys(hints).length).toBeGreaterThan(3);
      for (const [label, hint] of Object.entries(hints))
        expect([label, hint]).toEqual([label, expect.stringMatching(/empty: |NAME=none ends one/)]);
    }
  });

  test('gives back what the tier has to a holder, and ends no limit of a key', async () => {
    const terms = ['--limit', 'requests_per_minute=5', '--budget', '3/month', '--models', 'test-model'];
    const issued = await setting.commands.tollgate(
      ...['keys', 'issue', '--tier', 'Pro', '--name', 'n', '--expires', '30d', ...terms],
    );
    const prefix = issued.out.slice(0, 8);
    const { holder: id } = await show('keys', 'show', prefix);
    await setting.commands.tollgate('holders', 'set', id, ...terms);
    const emptied = (...names: string[]) => Object.fromEntries(names.map((name) => [name, '  ']));
    const shown = await fieldsOf(`/console/keys/${prefix}`, 'keys.set');
    const others = emptied('null.name', 'null.expires', 'list.models', 'list.endpoints');
    for (const field of ['map.limits', 'map.budget']) {
      const refused = await send('keys.set', { ...shown, ...others, ...emptied(field) });
      expect([refused.status, refused.text]).toEqual([
        400,
        expect.stringContaining('must be a number or `none`'),
      ]);
    }
    expect((await send('keys.set', { ...shown, ...others })).status).toBe(200);
    expect(await show('keys', 'show', prefix)).toMatchObject({
      ...{ name: null, expires_at: null, models: null },
      ...{ limits: { requests_per_minute: 5 }, budget: { per_month: 3 } },
    });
    const ofHolder = await fieldsOf(`/console/holders/${id}`, 'holders.set');
    const all = emptied('map.limits', 'map.budget', 'list.models');
    expect((await send('holders.set', { ...ofHolder, ...all })).status).toBe(200);
    expect(await show('holders', 'show', id)).toMatchObject({
      ...{ limits: null, budget: null, models: null },
      ...{ tier_limits: { tokens_per_day: 1000 }, tier_budget: { per_month: 10 } },
    });
  });

  test('of a team ends no limit', async () => {
    await setting.commands.tollgate(
      'teams',
      'add',
      'bounded',
      '--limit',
      'requests_per_minute=5',
      '--budget',
      '3/month',
    );
    const path = '/console/teams/bounded';
    expect(await hintsOf(path, 'teams.set')).toMatchObject({
      Limits: expect.stringContaining('NAME=none ends one'),
      Budget: expect.stringContaining('NAME=none ends one'),
    });
    const shown = await fieldsOf(path, 'teams.set');
    for (const field of ['map.limits', 'map.budget'])
      expect((await send('teams.set', { ...shown, [field]: '' })).status).toBe(400);
    expect(await show('teams', 'show', 'bounded')).toMatchObject({
      limits: { requests_per_minute: 5 },
      budget: { per_month: 3 },
    });
    expect((await send('teams.set', { ...shown, 'map.limits': 'requests_per_minute=none' })).status).toBe(
      200,
    );
    expect(await show('teams', 'show', 'bounded')).toMatchObject({ limits: null });
  });
});

test('times of records are taken by the API, in searches and in changes', async () => {
  const prefix = await setting.commands.issue('--tier', 'Pro', '--expires', '30d');
  const record = await setting.commands.json('keys', 'show', prefix);
  const [expires, created] = ['expires_at', 'created_at'].map((name) =>
    String(Reflect.get(Object(record), name)),
  );
  for (const query of [
    `expires_before=${expires}`,
    `unused_since=${created}`,
    'expires_before=2098-01-31T02:00:00%2B02:00',
  ])
    expect([query, (await setting.call('GET', `/api/v1/keys?${query}`, { token })).status]).toEqual([
      query,
      200,
    ]);
  for (const [query, status] of [
    [`since=${created}`, 200],
    ['since=2098-01-01T00:00:00Z', 400],
  ])
    expect((await setting.call('GET', `/api/v1/usage?${query}`, { token })).status).toBe(status);
  const changed = await setting.call('PATCH', `/api/v1/keys/${prefix}`, { token, body: { expires } });
  expect([changed.status, changed.json]).toMatchObject([200, { record: { expires_at: expires } }]);
});

test('what would reject a key is explained by the page and by the API, not refused', async () => {
  const prefix = await setting.commands.issue('--tier', 'Pro');
  await setting.commands.done('holders', 'suspend', prefix);
  const { status, text } = await get(`/console/models?model=test-model&key=${prefix}`);
  expect([status, text]).toEqual([200, expect.stringContaining('403 billing_not_active')]);
  const answer = await setting.call('GET', `/api/v1/explain?model=test-model&key=${prefix}`, { token });
  expect([answer.status, answer.json]).toMatchObject([
    200,
    { key: { rejected: { code: 'billing_not_active' } } },
  ]);
});

test.each(['keys', 'holders', 'teams'])(
  'the form of %s changes nothing but what was touched in it',
  async (kind) => {
    const { commands, gateway } = setting;
    await commands.done('teams', 'add', 'Terms', '--budget', '5/month', '--soft', '80%', '--label', 'soft=x');
    const issued = ['--tier', 'Pro', '--team', 'Terms', '--expires', '90m', '--models', 'test-model'];
    const prefix = await commands.issue(...issued, '--budget', '5/month', '--soft', '50%');
    // More than the tier has, and a model that is not in the configuration any more.
    const own = ['--limit', 'tokens_per_day=none', '--budget', '20/month', '--soft', '60%', '--force'];
    await commands.done('holders', 'set', prefix, ...own, '--models', 'test-model', '--label', 'env=prod');
    const id = kind === 'teams' ? 'Terms' : prefix;
    const path = `/console/${kind}/${id}`;
    const { events: _before, version: _old, ...before } = Object(await commands.json(kind, 'show', id));
    const fields = await fieldsOf(path, `${kind}.set`, 'hidden|text');
    const touched = kind === 'teams' ? { 'map.labels': 'soft=x more=y' } : { 'null.name': 'touched' };
    const { status, text } = await send(`${kind}.set`, { ...fields, ...touched });
    expect([status, /id="rejection"[^>]*>([^<]*)/.exec(text)?.[1]]).toEqual([200, undefined]);
    const changed = kind === 'teams' ? { labels: { soft: 'x', more: 'y' } } : { name: 'touched' };
    const { events: _after, version: _new, ...after } = Object(await commands.json(kind, 'show', id));
    const keys = kind === 'holders' ? { keys: expect.anything() } : {};
    expect(after).toEqual({ ...before, ...changed, ...keys });
    // A form that was rejected does not take back what somebody else has changed meanwhile.
    const again = await fieldsOf(path, `${kind}.set`, 'hidden|text');
    await commands.done(kind, 'set', id, '--budget', '4/month');
    const wrong = await send(`${kind}.set`, { ...again, 'map.limits': 'requests_per_minutes=1' });
    expect(wrong.status).toBe(400);
    const shownAgain =
      /name="if_match" value="([^"]*)"/.exec(wrong.text)?.[1]?.replaceAll('&#34;', '"') ?? '';
    const mended = {
      ...again,
      if_match: shownAgain,
      'map.limits': 'requests_per_minute=1',
      request_key: 'again',
    };
    expect((await send(`${kind}.set`, mended)).status).toBe(412);
    await commands.tollgate('holders', 'set', prefix, '--no-team');
    await commands.done('teams', 'remove', 'Terms');
    expect(gateway.isRunning).toBe(true);
  },
);

test.each([
  'keys?state=active&state=revoked',
  'usage?by=day&by=team',
  'usage.csv?by=day&by=team',
  'models?model=a&model=b',
])('%s has a parameter twice, and is refused as by the API', async (path) => {
  const { status, text } = await get(`/console/${path}`);
  expect([status, text]).toEqual([400, expect.stringContaining('is given twice')]);
});

test('a form that is replayed changes nothing, in another session of the operator as well', async () => {
  const fields = { request_key: 'replay-1', 'text.tier': 'Pro', 'text.holder': 'Replayed' };
  const first = await send('keys.issue', fields);
  expect(first.text).toMatch(/<pre class="key"/);
  for (const each of [own, await setting.signIn(token)]) {
    const { status, text } = await send('keys.issue', fields, each);
    expect([status, text]).toEqual([200, expect.stringContaining('is nowhere else')]);
    expect(text).not.toMatch(/[0-9a-f]{32}</);
  }
  expect(await list('keys', 'list', '--holder', 'Replayed')).toHaveLength(1);
  const other = await send('keys.issue', { ...fields, 'text.holder': 'Another' });
  expect(other.status).toBe(422);
  expect(await list('keys', 'list', '--holder', 'Another')).toEqual([]);
});

describe('about nobody', () => {
  const changes = API_ROUTES.filter(
    ({ method, params, recordsItself }) =>
      method !== 'GET' && !recordsItself && Object.keys(params).length > 0,
  );
  const ids = [
    '00000000',
    '00000000-0000-0000-0000-000000000000',
    'nobody',
    '',
    '../..',
    '<b>',
    'x'.repeat(5000),
  ];

  test.each(changes.map(({ name }) => name))('%s is a page that says so', async (name) => {
    const route = changes.find((each) => each.name === name);
    const [param = ''] = Object.keys(route?.params ?? {});
    for (const id of ids) {
      const { status, headers, text } = await send(name, { [`param.${param}`]: id });
      const fault = [id.slice(0, 40), status, headers['content-type']];
      expect(fault).toEqual([id.slice(0, 40), expect.any(Number), 'text/html; charset=utf-8']);
      expect([400, 404]).toContain(status);
      expect(text).not.toContain('<b>');
    }
    // Without any parameter, and with one that is no own member of anything.
    for (const fields of [{}, { 'param.__proto__': '00000000' }, { 'param.constructor': 'x' }])
      expect([400, 404]).toContain((await send(name, fields)).status);
  });

  test.each(['', 'nothing', 'constructor', '__proto__', 'keys.list', 'keys.show', 'command.run'])(
    'the route %j is none',
    async (name) => {
      expect((await send(name, { 'param.prefix': key })).status).toBe(404);
    },
  );
});

test('markup is text on every page, wherever it was entered', async () => {
  const markup = `<img src=x onerror=alert(1)>"'&`;
  const fields = { 'text.tier': 'Pro', 'text.holder': markup, 'text.name': markup, 'text.reason': markup };
  expect((await send('teams.add', { 'text.name': markup, 'text.reason': markup })).status).toBe(200);
  const issued = await send('keys.issue', { ...fields, 'text.team': markup });
  const prefix = /<pre class="key"[^>]*>([0-9a-f]{8})/.exec(issued.text)?.[1] ?? '';
  const team = encodeURIComponent(markup);
  const label = await send('holders.set', {
    ...(await fieldsOf(`/console/holders/${prefix}`, 'holders.set')),
    'null.name': markup,
    'null.team': markup,
    'map.labels': 'env=<script>alert(1)</script>',
  });
  expect(label.status).toBe(200);
  await send('upstreams.drain', { 'param.name': 'echo', 'text.reason': markup });
  const paths = [
    '',
    '/upstreams',
    '/upstreams/echo',
    '/keys',
    `/keys/${prefix}`,
    `/holders/${prefix}`,
    '/holders',
    '/teams',
    `/teams/${team}`,
    '/usage',
    '/events',
    `/keys?name=${team}`,
    `/holders?team=${team}`,
    `/models?model=${team}`,
    `/usage?by=${team}`,
    `/keys/${team}`,
    `/keys?cursor=${team}&label=${team}`,
  ];
  for (const path of paths) {
    const { status, text } = await get(`/console${path}`);
    expect([path, status < 500, /<img|<script>alert|onerror=alert\(1\)>"/.test(text)]).toEqual([
      path,
      true,
      false,
    ]);
  }
  expect((await get(`/console/teams/${team}`)).text).toContain(
    '&#60;img src=x onerror=alert(1)&#62;&#34;&#39;&#38;',
  );
  await send('upstreams.resume', { 'param.name': 'echo' });
});

test.each([
  ['text.__proto__', 'x', 400],
  ['map.__proto__', 'reason=x', 400],
  ['map.constructor', 'a=b', 400],
  ['list.__proto__', 'a', 400],
  ['text.unknown', 'x', 400],
  ['text.', 'x', 400],
  ['text.reason.more', 'x', 200],
  ['unknown.reason', 'x', 200],
  ['was.limits.null', '__proto__,a', 200],
  ['shown.map.limits', '__proto__=1', 200],
  ['map.limits', '=1', 400],
  ['map.limits', '__proto__=1', 400],
  ['map.limits', 'requests_per_minute=1e400', 400],
  ['map.limits', 'requests_per_minute=99999999999999999999', 400],
  ['null.expires', '2000-01-01', 400],
  ['null.name', 'a\u0000b', 400],
  ['text.reason', '\u001b[2J', 400],
  ['request_key', 'not printable\n', 400],
  ['if_match', '"x:y', 412],
])('the field %s with %j is answered with %i', async (name, value, status) => {
  const answer = await send('keys.set', { 'param.prefix': key, 'null.name': 'a name', [name]: value });
  expect([answer.status, answer.headers['content-type']]).toEqual([status, 'text/html; charset=utf-8']);
  expect(Reflect.get({}, 'reason')).toBeUndefined();
});

test.each([
  ['multipart/form-data; boundary=x', 'x', 400],
  ['application/json', '{}', 400],
  ['text/plain', 'csrf=x', 400],
  ['application/x-www-form-urlencoded', `a=${'x'.repeat(70_000)}`, 413],
  ['application/x-www-form-urlencoded', '%', 403],
])('a form as %s is refused', async (type, body, status) => {
  const { cookie } = own;
  const answer = await setting.call('POST', '/console/do/keys.issue', {
    cookie,
    body,
    headers: { 'content-type': type },
  });
  expect([answer.status, answer.headers['content-type']]).toEqual([status, 'text/html; charset=utf-8']);
});

test('a copied cookie is of no use without the token of a page, and a token of no use without its session', async () => {
  const other = await setting.signIn(token);
  expect(csrfIn((await get('/console')).text)).toBe(own.csrf);
  for (const each of [
    { cookie: own.cookie, csrf: '' },
    { cookie: own.cookie, csrf: other.csrf },
    { cookie: other.cookie, csrf: own.csrf },
  ])
    expect((await send('teams.add', { 'text.name': 'stolen' }, each)).status).toBe(403);
  expect(cookieFrom(await get('/console'))).toBeUndefined();
});

test('the page of a holder with many keys has the first, and leads to all', async () => {
  const path = setting.gateway.directory.file('tollgate.db');
  const database = new DatabaseSync(path);
  database.exec(`with recursive n (n) as (select 1 union all select n + 1 from n where n < 1100)
    insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at)
    select substr('0000000' || n, -8), '${holder}', '$argon2id$x', zeroblob(32), 'active', 1, '2030' from n`);
  database.close();
  const { text } = await get(`/console/holders/${holder}`);
  expect([text.match(/href="\/console\/keys\/\w{8}"/g)?.length, text.includes('The first 1000;')]).toEqual([
    1000,
    true,
  ]);
  const list = await get(`/console/keys?holder=${holder}`);
  expect(text).toContain(`href="/console/keys?holder=${holder}"`);
  expect(list.text).toContain('The first 50; there are more.');
  expect((await get('/console/keys?holder=nobody')).text).toContain('Nothing found.');
});
