// The pages of the console in a real browser: what they show, what their forms do, by whom, and how they look at three widths.
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Browser } from '../helpers/browser.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import { Visit } from '../pages/visit.ts';
import { batch, row } from '../store/usage-samples.ts';
import { type ConsoleSetting, startConsole } from './setting.ts';

const PICTURES = process.env['PICTURES'] ?? '';
const NAMES = [
  'Now',
  'Upstreams',
  'Keys',
  'Holders',
  'Teams',
  'Usage',
  'Models',
  'Orders',
  'Events',
  'Operators',
];

let browser: Browser;
let setting: ConsoleSetting;
let admin: string;
let key: string;

beforeAll(async () => {
  const target = { upstream: 'echo', model: 'upstream-model', price: { input: 1, output: 2 } };
  setting = await startConsole({
    config: { currency: 'USD', models: { 'test-model': { targets: [target] } } },
  });
  admin = await setting.operator('ann', 'admin');
  const { tollgate } = setting.commands;
  await tollgate('teams', 'add', 'search', '--label', 'env=prod');
  key = (
    await tollgate('keys', 'issue', '--tier', 'Pro', '--holder', 'Search service', '--team', 'search')
  ).out.trim();
  const answer = await fetch(`${setting.gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'test-model', messages: [{ role: 'user', content: 'hello' }] }),
  });
  expect([answer.status, await answer.text()]).toEqual([200, expect.any(String)]);
  if (PICTURES !== '') await mkdir(PICTURES, { recursive: true });
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);
afterAll(async () => {
  await browser?.close();
  await setting?.[Symbol.asyncDispose]();
});

async function signIn(token: string, options: Parameters<typeof Visit.begin>[2] = {}): Promise<Visit> {
  const visit = await Visit.begin(browser, setting.gateway.adminUrl, options);
  await visit.page.goto('/console');
  await visit.page.getByLabel('Token of an operator').fill(token);
  await visit.page.getByRole('button', { name: 'Sign in' }).click();
  await visit.page.getByRole('heading', { level: 1, name: 'Now' }).waitFor();
  return visit;
}

test('every page is whole in both themes at three widths, clean for axe, small, and without a word of the browser', async () => {
  await using visit = await signIn(admin);
  const { page } = visit;
  const prefix = key.slice(0, 8);
  const paths = [
    ...NAMES.map((name) => (name === 'Now' ? '/console' : `/console/${name.toLowerCase()}`)),
    `/console/keys/${prefix}`,
    `/console/holders/${prefix}`,
    '/console/teams/search',
    '/console/upstreams/echo',
    '/console/budgets',
    '/console/operators/ann',
    '/console/models?model=test-model&tier=Pro',
    '/console/usage?by=day,model&since=7d',
  ];
  for (const path of paths) {
    const answer = await page.goto(path);
    expect([path, answer?.status()]).toEqual([path, 200]);
    expect([path, await page.title()]).toEqual([
      path,
      expect.stringMatching(/^[A-Z][a-z]+ · Tollgate console$/),
    ]);
    expect((await answer?.body())?.length).toBeLessThan(100_000);
    // Only its style depends on the view, so it is loaded once.
    for (const [theme, widths] of [
      ['dark', [390, 768, 1280]],
      ['light', [1280, 768, 390]],
    ] as const) {
      for (const width of widths) {
        await visit.look(theme, width);
        expect([path, theme, width, await visit.overflow()]).toEqual([path, theme, width, 0]);
        if (PICTURES === '') continue;
        const name = `console${path.replace('/console', '').replaceAll(/[^a-z]+/g, '-')}-${theme}-${width}.png`;
        await page.screenshot({ path: join(PICTURES, name), fullPage: true });
      }
      const rules = theme === 'dark' ? 'colours' : 'all';
      expect([path, theme, await visit.axe(rules)]).toEqual([path, theme, []]);
    }
  }
  expect(visit.faults).toEqual([]);
});

test('long names of models, teams and keys stay within their cells, and an explanation within its box', async () => {
  const name = `${'a-long-name-'.repeat(5)}${'of_one_word_'.repeat(5)}`;
  const { tollgate } = setting.commands;
  await tollgate('teams', 'add', name);
  await tollgate('operators', 'add', name, '--role', 'viewer');
  await tollgate('keys', 'issue', '--tier', 'Pro', '--holder', name, '--name', name);
  for (const width of [390, 1280]) {
    await using visit = await signIn(admin, { width });
    for (const path of ['teams', 'operators', 'keys', 'holders', 'models?model=test-model&tier=Pro']) {
      await visit.page.goto(`/console/${path}`);
      const wide = await visit.page.evaluate<readonly string[]>(
        `[...document.querySelectorAll('td, pre')]
          .filter((each) => each.scrollWidth > each.clientWidth + 1)
          .map((each) => each.textContent.slice(0, 40))`,
      );
      expect([width, path, ...wide]).toEqual([width, path]);
    }
  }
  await tollgate('teams', 'remove', name);
  await tollgate('operators', 'remove', name);
});

test('an upstream is drained and resumed, and the page says so', async () => {
  await using visit = await signIn(admin);
  const { page } = visit;
  await page.goto('/console/upstreams/echo');
  await page.getByLabel('Reason').fill('its vendor asked');
  await page.getByRole('button', { name: 'Drain' }).click();
  await page.getByText('done.').waitFor();
  // Processes read drains every few seconds, and the page follows by itself.
  await page.goto('/console');
  const badge = page.locator('.records .badge');
  await until(async () => (await badge.textContent()) === 'drained' || undefined, 'the drain');
  expect(await badge.getAttribute('class')).toBe('badge bad');
  await page.goto('/console');
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('done.').waitFor();
  await page.goto('/console/upstreams/echo');
  expect(await page.locator('.records').last().textContent()).toMatch(
    /its vendor asked.*operator:ann|operator:ann.*its vendor asked/,
  );
});

test('a change of a record that was changed meanwhile is refused, and the page shows the difference', async () => {
  await using mine = await signIn(admin);
  await mine.page.goto('/console/teams/search');
  await setting.commands.tollgate('teams', 'set', 'search', '--label', 'env=test');
  await mine.page.getByLabel('Labels').fill('env=prod owner=ann');
  await mine.page.getByRole('button', { name: 'Change', exact: true }).click();
  await mine.page.getByRole('heading', { level: 1 }).waitFor();
  expect(await mine.page.locator('.records').textContent()).toMatch(/labels.*env=test.*env=prod/);
  expect((await setting.commands.tollgate('teams', 'show', 'search', '--json')).out).toContain(
    '"env": "test"',
  );
});

test('live figures arrive by events, and end with the page', async () => {
  await using visit = await signIn(admin);
  const before = await visit.page.locator('#now-at').textContent();
  const shown = () => visit.page.locator('#now-at').textContent();
  await until(async () => (await shown()) !== before || undefined, 'the next figures');
  expect(await visit.page.locator('#now-requests').textContent()).toMatch(/^[\d,]+$/);
  expect(visit.faults).toEqual([]);
});

describe('search', () => {
  test('replaces the list as one types, says how many there are, and keeps the address', async () => {
    for (const name of ['Maps north', 'Maps south'])
      await setting.commands.issue('--tier', 'Pro', '--holder', name);
    await using visit = await signIn(admin);
    const { page } = visit;
    for (const path of ['/console/keys', '/console/holders']) {
      await page.goto(path);
      const rows = page.locator('#list tbody tr');
      const field = page.getByLabel('Name of the holder');
      await field.pressSequentially('maps', { delay: 20 });
      await until(async () => (await rows.count()) === 2 || undefined, 'two rows');
      await page.getByRole('status').getByText('2 found.').waitFor();
      await field.pressSequentially(' s');
      await until(async () => (await rows.count()) === 1 || undefined, 'one row');
      expect([new URL(page.url()).search, await page.evaluate('document.activeElement.name')]).toEqual([
        '?name=maps+s',
        'name',
      ]);
      await page.reload();
      expect([await rows.count(), await field.inputValue()]).toEqual([1, 'maps s']);
      await field.fill('');
      await until(async () => (await rows.count()) > 2 || undefined, 'all rows');
      expect(new URL(page.url()).search).toBe('');
    }
    expect(visit.faults).toEqual([]);
  });

  test('says what is wrong with a field, and keeps the list until it is right', async () => {
    await using visit = await signIn(admin);
    const { page } = visit;
    await page.goto('/console/teams');
    await page.getByLabel('Label NAME=VALUE').first().fill('env');
    await page.getByText('A label is NAME=VALUE.').waitFor();
    expect(await page.locator('#list tbody tr').count()).toBe(1);
    await page.getByLabel('Label NAME=VALUE').first().fill('env=nothing');
    await page.getByText('Nothing found.').waitFor();
    expect(visit.faults.filter((fault) => !/400/.test(fault))).toEqual([]);
  });

  test('of two answers the one to the last letters stays', async () => {
    await using visit = await signIn(admin);
    const { page } = visit;
    await page.goto('/console/models');
    const held = Promise.withResolvers<void>();
    await page.route(/name=t$/, async (route) => {
      await held.promise;
      await route.continue().catch(() => {});
    });
    const field = page.getByLabel('Name of the model');
    await field.fill('t');
    await page.waitForRequest(/name=t$/);
    await field.fill('tx');
    await page.getByText('Nothing found.').waitFor();
    held.resolve();
    await page.waitForTimeout(300);
    expect([await page.locator('#list tbody tr').count(), new URL(page.url()).search]).toEqual([
      0,
      '?name=tx',
    ]);
  });

  test('goes to the sign-in when the session is over', async () => {
    await using visit = await signIn(admin);
    const { page } = visit;
    await page.goto('/console/keys');
    await page.context().clearCookies();
    await page.getByLabel('Name of the holder').fill('x');
    await page.getByLabel('Token of an operator').waitFor();
  });
});

test('of a usage report with many lines the page has the first, the sums of all, and the CSV', async () => {
  const store = await openStore({ kind: 'sqlite', path: setting.gateway.directory.file('tollgate.db') });
  const hour = '2026-01-31T10';
  const rows = Array.from({ length: 700 }, (_, n) => row({ hour, model: `model-${n}`, sums: {} }));
  await store.usage.addUsage(batch(rows));
  await store.close();
  const { cookie } = await setting.signIn(admin);
  const path = '/console/usage?month=2026-01&by=model';
  const { status, text } = await setting.call('GET', path, { cookie });
  expect([status, text.match(/<tr>/g)?.length, text.match(/<rect/g)?.length]).toEqual([200, 501, 500]);
  expect(text).toContain('The first 500 lines; the sums above include all, and the CSV has them.');
  expect(text).toMatch(/<dt>Requests<\/dt><dd>700</);
  const csv = await setting.call('GET', path.replace('usage?', 'usage.csv?'), { cookie });
  expect(csv.text.trim().split('\r\n')).toHaveLength(701);
});

test('budgets near their end are on *Now*, with a link to the record, and follow', async () => {
  const { tollgate, json } = setting.commands;
  const prefix = key.slice(0, 8);
  expect((await tollgate('holders', 'set', prefix, '--budget', '10/day')).code).toBe(0);
  const { holder } = Object(await json('holders', 'show', prefix));
  const path = setting.gateway.directory.file('tollgate.db');
  const store = await openStore({ kind: 'sqlite', path });
  const at = new Date().toISOString();
  const use = (units: number) => {
    const hour = at.slice(0, 13);
    return store.usage.addUsage(
      batch([row({ hour, holderId: holder, prefix, sums: { cost: units * 1e9 } })]),
    );
  };
  await use(9);
  await store.budgets.addNotice(
    { scope: holder, period: at.slice(0, 10), budget: 1e10, threshold: 0 },
    at,
    null,
  );
  await using visit = await signIn(admin);
  const { page } = visit;
  const line = page.locator('#near tbody tr');
  await until(async () => {
    await page.reload();
    return (await line.count()) === 1 || undefined;
  }, 'the budget');
  expect(await line.textContent()).toMatch(/Search service.*holder.*90 %.*9\.0\d* USD.*10 USD a day/);
  await store.close();
  // The part is another one after a while, without a new page.
  await page.clock.install();
  await page.reload();
  await page.evaluate("document.getElementById('near').dataset.old = ''");
  await page.clock.runFor(15_000);
  await until(async () => (await page.locator('#near[data-old]').count()) === 0 || undefined, 'the new part');
  expect(await line.count()).toBe(1);
  await line.getByRole('link').click();
  await page.getByRole('heading', { level: 1, name: 'Search service' }).waitFor();
  expect(visit.faults).toEqual([]);
  await tollgate('holders', 'set', prefix, '--budget', 'tier/day');
});

test('a page says when no figures come, and not any more when they do', async () => {
  await using visit = await signIn(admin);
  const { page } = visit;
  const note = page.getByText('The gateway sends no figures at the moment.');
  await page.clock.install();
  await page.route('**/console/live', (route) => route.fulfill({ status: 503 }));
  for (const path of ['/console', '/console/upstreams', '/console/upstreams/echo']) {
    await page.goto(path);
    expect([path, await note.isVisible()]).toEqual([path, false]);
    await page.clock.runFor(12_500);
    expect([path, await note.isVisible()]).toEqual([path, true]);
  }
  await page.unroute('**/console/live');
  await page.clock.runFor(5_500);
  await until(async () => !(await note.isVisible()), 'the next figures');
});

test('a button that is pressed again before its answer is there issues one key, which is shown', async () => {
  await using visit = await signIn(admin);
  const { page } = visit;
  await page.goto('/console/keys');
  await page.getByLabel('Name of the new holder').fill('Pressed twice');
  let sent = 0;
  // Again, after the gateway has answered and before the browser has the answer.
  let again = () => {};
  const pressedAgain = new Promise<void>((resolve) => {
    again = resolve;
  });
  await page.exposeFunction('pressedAgain', again);
  await page.evaluate(`addEventListener('submit', ({ target }) => setTimeout(() => {
    target.requestSubmit();
    pressedAgain();
  }, 200), { once: true })`);
  await page.route('**/console/do/keys.issue', async (route) => {
    sent += 1;
    const response = await route.fetch();
    await pressedAgain;
    await route.fulfill({ response }).catch(() => undefined);
  });
  await page.getByRole('button', { name: 'Issue a key' }).click();
  await visit.title('Done');
  expect(sent).toBe(1);
  expect(await page.locator('pre.key').textContent()).toMatch(/^[0-9a-f]{32}$/);
  const { out } = await setting.commands.tollgate('keys', 'list', '--holder', 'Pressed twice', '--json');
  expect(out.match(/"prefix"/g)?.length).toBe(1);
  expect(visit.faults).toEqual([]);
});

test('an admin makes an operator, gives it another token, and removes it; others see nothing of it', async () => {
  await using visit = await signIn(admin, { scripts: false });
  const { page } = visit;
  const me = async (token: string) => (await setting.call('GET', '/api/v1/me', { token })).status;
  const shownToken = async () => {
    await visit.title('Done');
    return (await page.locator('pre.key').textContent()) ?? '';
  };
  await page.getByRole('link', { name: 'Operators' }).click();
  await page.getByLabel('Name').fill('bea@example.com');
  await page.getByLabel('Role').selectOption('support');
  await page.getByLabel('Reason').fill('new here');
  await page.getByRole('button', { name: 'Add an operator' }).click();
  const first = await shownToken();
  expect([first, await me(first)]).toEqual([expect.stringMatching(/^tgo_[0-9a-f]{32}$/), 200]);
  const { cookie } = await setting.signIn(first);
  for (const path of ['/console/operators', '/console/operators/ann'])
    expect([path, (await setting.call('GET', path, { cookie })).status]).toEqual([path, 403]);
  expect((await setting.call('GET', '/console', { cookie })).text).not.toContain('/console/operators');
  await page.getByRole('link', { name: 'Back' }).click();
  await page.getByRole('link', { name: 'bea@example.com' }).click();
  expect(await page.locator('.facts').textContent()).toMatch(/support.*Last used *2/);
  await page.getByText('Replace the token …').click();
  await page.getByLabel('Expires').fill('30d');
  await page.getByRole('button', { name: 'Replace the token' }).click();
  const second = await shownToken();
  expect([await me(first), await me(second)]).toEqual([401, 200]);
  await page.getByRole('link', { name: 'Back' }).click();
  expect(await page.locator('pre.key').count()).toBe(0);
  await page.getByText('Remove …').click();
  await page.getByRole('button', { name: 'Remove' }).click();
  await visit.title('Done');
  expect(await me(second)).toBe(401);
  await page.goto('/console/events?target=bea@example.com');
  expect(await page.locator('.records tbody').textContent()).toMatch(
    /operators\.remove.*operators\.rotate.*operators\.add.*new here/,
  );
  expect((await page.content()).includes(first.slice(12))).toBe(false);
});

describe('by role', () => {
  test('a viewer sees no form that changes, and is refused one that was sent nevertheless', async () => {
    const token = await setting.operator('vic', 'viewer');
    const { cookie, csrf } = await setting.signIn(token);
    for (const path of [
      '/console',
      '/console/keys',
      `/console/keys/${key.slice(0, 8)}`,
      '/console/teams',
      '/console/upstreams',
    ]) {
      const { status, text } = await setting.call('GET', path, { cookie });
      expect([path, status, text.includes('/console/do/')]).toEqual([path, 200, false]);
    }
    const body = `csrf=${csrf}&param.name=echo`;
    expect((await setting.call('POST', '/console/do/upstreams.drain', { cookie, body })).status).toBe(403);
    expect((await setting.call('GET', '/console/events', { cookie })).status).toBe(403);
  });

  test('a form without the token of the page, or from elsewhere, changes nothing', async () => {
    const { cookie, csrf } = await setting.signIn(admin);
    const send = (body: string, headers = {}) =>
      setting.call('POST', '/console/do/upstreams.drain', { cookie, body, headers });
    expect((await send('param.name=echo')).status).toBe(403);
    expect((await send(`csrf=${csrf}&param.name=echo`, { origin: 'https://evil.example' })).status).toBe(403);
    expect((await setting.commands.tollgate('upstreams', 'show', 'echo', '--json')).out).toContain(
      '"drained": null',
    );
  });

  test('a form that is sent twice changes once', async () => {
    const { cookie, csrf } = await setting.signIn(admin);
    const body = `csrf=${csrf}&request_key=twice-1&text.tier=Pro&text.holder=Twice`;
    const send = () => setting.call('POST', '/console/do/keys.issue', { cookie, body });
    const [first, second] = [await send(), await send()];
    expect([first.status, second.status]).toEqual([200, 200]);
    expect(first.text).toMatch(/<pre class="key"/);
    expect(second.text).not.toMatch(/<pre class="key"/);
    const { out } = await setting.commands.tollgate('keys', 'list', '--holder', 'Twice', '--json');
    expect(out.match(/"prefix"/g)?.length).toBe(1);
  });

  test.each([
    ['/console/keys/00000000', 404],
    ['/console/keys/%E0%A4%A', 404],
    ['/console/holders/none', 404],
    ['/console/teams/nobody', 404],
    ['/console/orders/ord_nobody', 404],
    ['/console/upstreams/none', 404],
    ['/console/keys?cursor=x', 400],
    ['/console/usage?by=nothing', 400],
    ['/console/do/keys.issue', 404],
    ['/console/nowhere', 404],
  ])('%s is answered with %i and a page', async (path, status) => {
    const { cookie } = await setting.signIn(admin);
    const answer = await setting.call('GET', path, { cookie });
    expect([answer.status, answer.headers['content-type']]).toEqual([status, 'text/html; charset=utf-8']);
  });
});
