// Security of operators on the admin listener: sessions, forged forms, foreign hosts, proxies, and limited attempts.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { OperatorSessions } from '../../src/console/operator-sessions.ts';
import { isPrefix } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import { tempDir } from '../helpers/wait.ts';
import { type ConsoleSetting, cookieFrom, csrfIn, openConsole, startConsole } from './setting.ts';

const PROXY = '127.0.0.9';
const SSO = {
  header: 'X-Forwarded-User',
  trusted_proxies: [PROXY],
  roles: { 'ann@example.com': 'admin', eve: 'viewer' },
};

let setting: ConsoleSetting;
let token: string;

beforeAll(async () => {
  setting = await startConsole({ config: { admin: { sso: SSO } } });
  token = await setting.operator('ann', 'admin');
});
afterAll(() => setting[Symbol.asyncDispose]());

const console_ = (cookie: string, headers = {}) => setting.call('GET', '/console', { cookie, headers });
const signedIn = '>ann (admin)<';

test('without operators the console says how to make the first one, and serves nothing else', async () => {
  await using fresh = await startConsole();
  for (const path of ['/console', '/console/keys', '/console/sign-in']) {
    const { status, text } = await fresh.call('GET', path);
    expect([status, text]).toEqual([
      403,
      expect.stringContaining('tollgate operators add NAME --role admin'),
    ]);
    expect(text).toContain('<title>Error');
  }
  const { status, json } = await fresh.call('GET', '/api/v1/keys');
  expect([status, json]).toEqual([403, expect.objectContaining({ code: 'no_operators', status: 403 })]);
  expect((await fresh.call('POST', '/console/sign-in', { body: 'token=x' })).status).toBe(403);
  expect((await fresh.call('GET', '/livez')).status).toBe(200);
  // It needs no restart.
  const first = await fresh.operator('ann', 'admin');
  expect((await fresh.call('GET', '/console')).text).toContain('Token of an operator');
  expect((await fresh.signIn(first)).csrf).not.toBe('');
});

describe('a session', () => {
  test('begins with a token and has an HttpOnly, SameSite cookie that no store has', async () => {
    const answer = await setting.call('POST', '/console/sign-in', { body: `token=${token}` });
    expect([answer.status, answer.headers.location]).toEqual([303, '/console']);
    expect(answer.headers['set-cookie']?.[0]).toMatch(
      /^tollgate-console=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/,
    );
    expect((await console_(cookieFrom(answer) ?? '')).text).toContain(signedIn);
  });

  test('has a Secure cookie that no other host can set where a proxy ended TLS', async () => {
    const headers = { 'x-forwarded-proto': 'https' };
    const answer = await setting.call('POST', '/console/sign-in', { body: `token=${token}`, headers });
    expect(answer.headers['set-cookie']?.[0]).toMatch(
      /^__Host-tollgate-console=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Secure$/,
    );
    const cookie = cookieFrom(answer) ?? '';
    expect((await console_(cookie, headers)).text).toContain(signedIn);
    expect((await console_(cookie)).text).not.toContain(signedIn);
  });

  test('ends by its form, for every copy of the cookie', async () => {
    const { cookie, csrf } = await setting.signIn(token);
    expect((await console_(cookie)).text).toContain('<form method="post" action="/console/sign-out">');
    const answer = await setting.call('POST', '/console/sign-out', { cookie, body: `csrf=${csrf}` });
    expect([answer.status, answer.headers['set-cookie']?.[0]]).toEqual([
      303,
      expect.stringContaining('Max-Age=0'),
    ]);
    expect((await console_(cookie)).text).toContain('Token of an operator');
  });

  test('does not end by a replayed or foreign form', async () => {
    const [mine, other] = [await setting.signIn(token), await setting.signIn(token)];
    for (const csrf of ['', 'x', other.csrf, `${mine.csrf}x`]) {
      const answer = await setting.call('POST', '/console/sign-out', {
        cookie: mine.cookie,
        body: `csrf=${csrf}`,
      });
      expect([csrf, answer.status]).toEqual([csrf, 403]);
    }
    expect((await console_(mine.cookie)).text).toContain(signedIn);
  });

  test('ends when the operator gets another token, and when it is removed', async () => {
    for (const action of ['rotate', 'remove']) {
      const name = `of-${action}`;
      const own = await setting.operator(name, 'viewer');
      const { cookie } = await setting.signIn(own);
      expect((await console_(cookie)).text).toContain(`>${name} (`);
      await setting.commands.tollgate('operators', action, name);
      expect((await console_(cookie)).text).toContain('Token of an operator');
      expect((await setting.call('POST', '/console/sign-in', { body: `token=${own}` })).status).toBe(401);
    }
  });

  test.each([
    '',
    'x',
    'tollgate-console',
    'tollgate-console=',
    `tollgate-console=${'A'.repeat(43)}`,
    `tollgate-console=${'A'.repeat(9000)}`,
    'tollgate-console=../../x; tollgate-console=y',
  ])('is not begun by the cookie %#', async (cookie) => {
    const answer = await console_(cookie);
    expect([answer.status, answer.headers['set-cookie']]).toEqual([200, undefined]);
    expect(answer.text).toContain('Token of an operator');
  });
});

describe('a form of another site', () => {
  test.each([
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: 'http://127.0.0.1:1' },
    { origin: 'http://127.0.0.1.evil.example' },
  ])('signs nobody in or out: %j', async (headers) => {
    const { cookie, csrf } = await setting.signIn(token);
    const forms = [
      setting.call('POST', '/console/sign-in', { headers, body: `token=${token}` }),
      setting.call('POST', '/console/sign-out', { headers, cookie, body: `csrf=${csrf}` }),
    ];
    for (const { status, headers: given } of await Promise.all(forms))
      expect([status, given['set-cookie']]).toEqual([403, undefined]);
  });

  test('is distinguished from one of ours, also below https and with the default port', async () => {
    const { host } = new URL(setting.gateway.adminUrl);
    for (const headers of [
      { origin: `http://${host}` },
      { origin: 'https://console', host: 'console' },
      { origin: 'http://console', host: 'console:80' },
      { 'sec-fetch-site': 'same-origin' },
      // Opened by the user, from a bookmark for example.
      { 'sec-fetch-site': 'none' },
    ]) {
      const answer = await setting.call('POST', '/console/sign-in', { headers, body: `token=${token}` });
      expect([headers, answer.status]).toEqual([headers, 303]);
    }
  });

  test('and a page under a foreign name for our address gets nothing', async () => {
    const { cookie } = await setting.signIn(token);
    expect((await console_(cookie, { host: 'rebound.example' })).status).toBe(421);
  });
});

test('pages may load, frame and send nothing elsewhere, and are not stored', async () => {
  const { cookie } = await setting.signIn(token);
  for (const { headers } of [await console_(cookie), await console_('')]) {
    const policy = headers['content-security-policy'] ?? '';
    expect(policy).toMatch(/^default-src 'none'; style-src 'sha256-/);
    for (const part of ["form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"])
      expect(policy).toContain(part);
    expect(policy).not.toMatch(/unsafe|\*/);
    expect(headers).toMatchObject({
      'cache-control': 'no-store',
      'x-frame-options': 'DENY',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
      'cross-origin-opener-policy': 'same-origin',
    });
  }
});

describe('an identity proxy', () => {
  const named = (name: string | readonly string[], from = PROXY) =>
    setting.call('GET', '/console', { from, headers: { 'x-forwarded-user': name } });

  test('names an operator, whose role is configured', async () => {
    expect((await named('ann@example.com')).text).toContain('>ann@example.com (admin)<');
    expect((await named('eve')).text).toContain('>eve (viewer)<');
    expect((await named('mallory')).status).toBe(403);
  });

  test('is the only one that names somebody', async () => {
    expect((await named('eve', '127.0.0.1')).text).toContain('Token of an operator');
  });

  test.each([
    [['eve', 'ann@example.com']],
    ['eve, ann@example.com'],
    ['constructor'],
    ['__proto__'],
    ['*'],
    [''],
  ])('does not get in as %j', async (name) => {
    const { status, text } = await named(name);
    expect([401, 403]).toContain(status);
    expect(text).not.toMatch(/\((?:viewer|support|admin)\)/);
  });
});

test('a person behind a proxy changes something only with the token of the page, and is not confused with an operator of that name', async () => {
  const headers = { 'x-forwarded-user': 'ann@example.com' };
  const page = await setting.call('GET', '/console', { from: PROXY, headers });
  const post = (more: Record<string, string>) =>
    setting.call('POST', '/api/v1/keys', {
      from: PROXY,
      headers: { ...headers, ...more },
      body: { tier: 'Free' },
    });
  expect((await post({})).status).toBe(403);
  expect((await post({ 'x-csrf-token': csrfIn(page.text), origin: 'https://evil.example' })).status).toBe(
    403,
  );
  expect((await post({ 'x-csrf-token': csrfIn(page.text) })).status).toBe(200);
  const events = await setting.call('GET', '/api/v1/events?what=keys.issue', { token });
  expect(events.json).toMatchObject({ items: [{ actor: 'sso:ann@example.com', address: PROXY }] });
  const other = await setting.call('GET', '/console', {
    from: PROXY,
    headers: { 'x-forwarded-user': 'eve' },
  });
  expect((await post({ 'x-csrf-token': csrfIn(other.text) })).status).toBe(403);
});

test('attempts are limited by address, and a token that was verified before is not affected', async () => {
  const from = '127.0.0.7';
  const { cookie } = await setting.signIn(token);
  const attempt = (text: string) => setting.call('POST', '/console/sign-in', { from, body: `token=${text}` });
  const statuses = (
    await Promise.all(Array.from({ length: 30 }, (_, i) => attempt(`tgo_${String(i).padStart(32, '0')}`)))
  ).map(({ status }) => status);
  expect(statuses.filter((status) => status === 401)).toHaveLength(20);
  const limited = await attempt('tgo_x');
  expect([limited.status, Number(limited.headers['retry-after']) > 0]).toEqual([429, true]);
  expect((await attempt(token)).status).toBe(303);
  expect((await setting.call('GET', '/console', { from, cookie })).text).toContain(signedIn);
  expect((await setting.call('POST', '/console/sign-in', { body: 'token=x' })).status).toBe(401);
});

test('attempts with one prefix are limited over all addresses', async () => {
  const fresh = await setting.operator('prefix-owner', 'viewer');
  const guess = `${fresh.slice(0, 12)}${'0'.repeat(24)}`;
  const attempt = (text: string, i: number) =>
    setting.call('POST', '/console/sign-in', { from: `127.0.1.${i % 10}`, body: `token=${text}` });
  const statuses = await Promise.all(Array.from({ length: 70 }, (_, i) => attempt(guess, i)));
  const limited = statuses.filter(({ status }) => status === 429).length;
  // On a slow machine some attempts come so late that they are allowed again.
  expect([limited > 0, limited <= 10]).toEqual([true, true]);
});

test('neither the log nor an answer has a token or a cookie', async () => {
  const { cookie } = await setting.signIn(token);
  const answer = await setting.call('POST', '/console/sign-in', { body: `token=${token}x` });
  const log = JSON.stringify(setting.gateway.logs);
  for (const secret of [token.slice(12), cookie.split('=')[1] ?? ''])
    for (const text of [answer.text, log, (await console_(cookie)).text]) expect(text).not.toContain(secret);
});

describe('the clock of a session', () => {
  const MINUTE = 60_000;

  async function begun() {
    const dir = await tempDir();
    const store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
    const prefix = '0000000a';
    if (!isPrefix(prefix)) throw new Error('not a prefix');
    const hashes = { argon2: '$argon2id$', hmac: Buffer.alloc(32) };
    const ann = {
      id: '1',
      name: 'ann',
      role: 'admin' as const,
      prefix,
      ...hashes,
      createdAt: '2030',
      expiresAt: null,
      usedAt: null,
    };
    const by = { at: '2030', actor: 'cli', address: null, what: 'add', target: null, reason: null };
    await store.operators.addOperator(ann, {
      ...by,
      before: null,
      after: null,
      status: null,
      requestKey: null,
      digest: null,
    });
    let now = Date.parse('2030-01-01');
    const sessions = new OperatorSessions(store.operators, () => now);
    return {
      sessions,
      store,
      secret: await sessions.begin(ann, '192.0.2.1'),
      find: async (secret: string) => sessions.find(secret, '192.0.2.1'),
      pass(ms: number) {
        now += ms;
      },
      async [Symbol.asyncDispose]() {
        await store.close();
        await dir.remove();
      },
    };
  }

  test('an idle session ends after half an hour, one in use only after twelve hours', async () => {
    await using idle = await begun();
    idle.pass(30 * MINUTE + 1);
    expect(await idle.find(idle.secret)).toBeUndefined();

    await using used = await begun();
    let { secret } = used;
    let minutes = 0;
    for (; minutes < 1000; minutes += 20) {
      used.pass(20 * MINUTE);
      const found = await used.find(secret);
      if (found === undefined) break;
      secret = found.replacement ?? secret;
    }
    expect(minutes).toBe(12 * 60);
  });

  test('the cookie is replaced after ten minutes, once for requests at the same time', async () => {
    await using given = await begun();
    expect((await given.find(given.secret))?.replacement).toBeUndefined();
    given.pass(10 * MINUTE + 1);
    const found = await Promise.all([given.find(given.secret), given.find(given.secret)]);
    const replacements = found.flatMap((each) => each?.replacement ?? []);
    expect([found.map((each) => each?.operator.name), replacements.length]).toEqual([['ann', 'ann'], 1]);
    given.pass(MINUTE - 1);
    expect((await given.find(given.secret))?.operator.name).toBe('ann');
    expect((await given.find(replacements[0] ?? ''))?.operator.name).toBe('ann');
  });

  test('a new secret reaches the browser with whatever is answered: pages, errors, figures, rejected forms', async () => {
    let now = Date.now();
    await using console = await openConsole(setting, { now: () => now });
    const begin = await console.call('POST', '/console/sign-in', { body: `token=${token}` });
    let cookie = cookieFrom(begin) ?? '';
    for (const [method, path, status] of [
      ['GET', '/console', 200],
      ['GET', '/console/nowhere', 404],
      ['GET', '/console/keys/00000000', 404],
      ['GET', '/console/usage.csv?by=x', 400],
      ['HEAD', '/console/live', 200],
      ['POST', '/console/do/keys.issue', 403],
      ['DELETE', '/console', 405],
      ['GET', '/api/v1/nowhere', 404],
    ] as const) {
      now += 10 * MINUTE + 1;
      const answer = await console.call(method, path, { cookie, ...(method === 'POST' && { body: 'a=b' }) });
      const next = cookieFrom(answer);
      expect([path, answer.status, next]).toEqual([path, status, expect.stringMatching(/=[\w-]{43}$/)]);
      expect(next).not.toBe(cookie);
      cookie = next ?? '';
    }
  });

  test('a replaced cookie that is sent later ends the session, also for the thief, and is an event', async () => {
    await using given = await begun();
    given.pass(10 * MINUTE + 1);
    const { replacement = '' } = (await given.find(given.secret)) ?? {};
    given.pass(MINUTE + 1);
    expect(await given.find(given.secret)).toBeUndefined();
    expect(await given.find(replacement)).toBeUndefined();
    const [event] = await given.store.operators.events({ limit: 1 });
    expect(event).toMatchObject({ what: 'session.end', actor: 'operator:ann', address: '192.0.2.1' });
  });
});
