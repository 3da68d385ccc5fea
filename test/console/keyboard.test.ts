// The console by the keyboard alone: Tab reaches everything of every page in the order seen, one sees where one is, Enter and Space work,
// and the focus is where one goes on after a form. Without scripts as with them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Browser, Page } from '../helpers/browser.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { Visit, type VisitOptions } from '../pages/visit.ts';
import { Keyboard, type Stop } from './keyboard.ts';
import { addOrder, type ConsoleSetting, SALES, startConsole } from './setting.ts';

let browser: Browser;
let setting: ConsoleSetting;
let token: string;
let cookie: string;
let prefix: string;
let paths: readonly string[];

beforeAll(async () => {
  setting = await startConsole({ config: SALES });
  token = await setting.operator('ann', 'admin');
  const { tollgate } = setting.commands;
  await tollgate('teams', 'add', 'search', '--label', 'env=prod');
  const issue = ['keys', 'issue', '--tier', 'Pro', '--holder', 'Search service', '--team', 'search'];
  prefix = (await tollgate(...issue)).out.slice(0, 8);
  const store = await openStore({ kind: 'sqlite', path: setting.gateway.directory.file('tollgate.db') });
  const order = await addOrder(store);
  await store.close();
  ({ cookie } = await setting.signIn(token));
  paths = [
    '',
    '/upstreams',
    '/upstreams/echo',
    '/models?model=test-model&tier=Pro',
    '/keys',
    `/keys/${prefix}`,
    '/holders',
    `/holders/${prefix}`,
    '/teams',
    '/teams/search',
    '/usage',
    '/orders',
    `/orders/${order}`,
    '/events',
    '/operators',
    '/operators/ann',
  ];
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);
afterAll(async () => {
  await browser?.close();
  await setting?.[Symbol.asyncDispose]();
});

/** A browser that has signed in. */
async function visitOf(options: VisitOptions = {}) {
  const visit = await Visit.begin(browser, setting.gateway.adminUrl, options);
  const [name = '', value = ''] = cookie.split('=');
  await visit.page.context().addCookies([{ name, value, url: setting.gateway.adminUrl }]);
  return visit;
}

/** Notes clicks and entries by the numbers of the stops, and keeps links and forms from leaving the page. */
const NOTE = `
globalThis.noted = [];
const note = (event) => {
  const each = event.target.closest('a, button, summary, input, select');
  noted.push(event.type + ' ' + each?.dataset.stop);
  if (each?.localName === 'a' || each?.localName === 'button') event.preventDefault();
};
for (const name of ['click', 'input']) addEventListener(name, note, true);
addEventListener('submit', (event) => event.preventDefault(), true);`;

/** The keys that use a stop of this kind, and what they cause. */
function usesOf({ tag, type }: Stop): readonly [keys: readonly string[], event: string, count: number] {
  if (tag === 'a') return [['Enter'], 'click', 1];
  if (tag === 'button') return [['Enter', 'Space'], 'click', 2];
  if (tag === 'summary') return [['Enter', 'Space', 'Enter'], 'click', 3];
  if (type === 'checkbox') return [['Space'], 'click', 1];
  // The first choice, or the last, changes once.
  if (tag === 'select') return [['ArrowDown', 'ArrowUp'], 'input', 1];
  if (/^(?:text|search|password)$/.test(type)) return [['x'], 'input', 1];
  return [[], 'none', 0];
}

function faultsOf({ tag, type, name, ring, contrast, cut, behind }: Stop): string[] {
  const says = `${tag} ${type} “${name}”`;
  return [
    ...(name === '' ? [`${says} has no name`] : []),
    ...(ring < 2 ? [`${says} has no outline`] : []),
    ...(contrast < 3 ? [`${says}: contrast of the outline ${contrast.toFixed(1)}`] : []),
    ...(cut.length > 0 ? [`${says}: its outline is cut at ${cut.join()}`] : []),
    ...(behind === '' ? [] : [`${says} is behind ${behind}`]),
  ];
}

/** What is wrong on a page for somebody who walks it by Tab. @param keys of each stop; returns those that were pressed in vain */
async function faultsOn(page: Page, press: (stop: Stop) => Promise<void>): Promise<readonly string[]> {
  const keyboard = new Keyboard(page);
  const stops = await keyboard.walk(press);
  expect(stops[0]?.name).toBe('Skip to the content');
  return [...stops.flatMap(faultsOf), ...(await keyboard.disorder())];
}

describe.each(['light', 'dark'] as const)('%s', (theme) => {
  test('every page is walked by Tab in the order seen, and everything on it works', async () => {
    await using visit = await visitOf({ theme });
    const { page } = visit;
    // The colors alone are different in the dark.
    for (const path of theme === 'light' ? paths : [`/keys/${prefix}`]) {
      await page.goto(`/console${path}`);
      await page.evaluate(NOTE);
      const wanted: [string, number][] = [];
      const faults = await faultsOn(page, async (stop) => {
        const [keys, event, count] = usesOf(stop);
        for (const key of keys) await page.keyboard.press(key);
        if (count > 0) wanted.push([`${event} ${stop.at}`, count]);
      });
      const noted = String(await page.evaluate('noted.join()')).split(',');
      const vain = wanted.filter(([event, count]) => noted.filter((each) => each === event).length < count);
      expect([path, faults, vain]).toEqual([path, [], []]);
    }
    // A search is refused while its words are not whole, and Chromium tells it.
    expect(visit.faults.filter((each) => !/status of 40[04]/.test(each))).toEqual([]);
  });
});

test('without scripts it is the same', async () => {
  await using visit = await visitOf({ scripts: false });
  const { page } = visit;
  let count = 0;
  for (const path of paths) {
    // Another page is the same document: the script that all have only counts what is sent.
    const text = (await (await page.goto(`/console${path}`))?.text()) ?? '';
    if (text.split('<script').length < 3) continue;
    count += 1;
    const faults = await faultsOn(page, async ({ tag }) => {
      if (tag === 'summary') await page.keyboard.press('Enter');
    });
    expect([path, faults]).toEqual([path, []]);
  }
  expect(count).toBeGreaterThan(0);
});

test('sign-in and the answer to a form are walked, too', async () => {
  await using visit = await Visit.begin(browser, setting.gateway.adminUrl);
  const { page } = visit;
  const keyboard = new Keyboard(page);
  await page.goto('/console/keys');
  expect(await faultsOn(page, async () => {})).toEqual([]);
  await page.goto('/console/keys');
  await keyboard.to('Token of an operator');
  await page.keyboard.type(token);
  await keyboard.enter();
  await keyboard.to('Issue a key');
  await keyboard.enter();
  // It begins at the message.
  const stops = await keyboard.walk(async () => {});
  expect(stops.map(({ name }) => name.replace(/^[0-9a-f]{32}$/, 'KEY'))).toEqual(['Copy', 'KEY', 'Back']);
  expect(stops.flatMap(faultsOf)).toEqual([]);
});

test('the link of the open page is the current one, that of its list where it is a record', async () => {
  const currentIn = async (path: string) => {
    const { text } = await setting.call('GET', `/console${path}`, { cookie });
    return [...text.matchAll(/<a href="([^"]*)" aria-current="(\w+)">/g)].map(
      ([, href, kind]) => `${href} ${kind}`,
    );
  };
  for (const path of paths) {
    const [list = '', record] = path.split('?')[0]?.slice(1).split('/') ?? [];
    const href = list === '' ? '/console' : `/console/${list}`;
    expect([path, await currentIn(path)]).toEqual([
      path,
      [`${href} ${record === undefined ? 'page' : 'true'}`],
    ]);
  }
});

test('a link leads past the navigation', async () => {
  await using visit = await visitOf({ scripts: false });
  const keyboard = new Keyboard(visit.page);
  await visit.page.goto('/console/keys');
  expect((await keyboard.press('Tab'))?.name).toBe('Skip to the content');
  await visit.page.keyboard.press('Enter');
  expect((await keyboard.press('Tab'))?.name).toMatch(/^Name of the holder/);
});

describe('after a form', () => {
  const fieldIn = (text: string) => {
    const tag = /<[^<>]+ autofocus[^<>]*>/.exec(text)?.[0] ?? '';
    return /(?:name|id)="([\w.-]+)"/.exec(tag)?.[1] ?? '';
  };

  test.each<[form: string, back: string, body: string, field: string, message: RegExp]>([
    ['keys.issue', '/keys', 'text.tier=Pro&text.team=nobody', 'text.team', /no team/],
    ['keys.issue', '/keys', 'text.tier=Pro&text.expires=soon', 'text.expires', /duration/],
    ['keys.set', '/keys/KEY', 'map.limits=10', 'map.limits', /NAME=VALUE/],
    ['keys.set', '/keys/KEY', 'map.limits=requests_per_minute=x', 'map.limits', /requests_per_minute/],
    ['keys.set', '/keys/KEY', 'map.budget=per_eon=1', 'map.budget', /per_eon/],
    ['keys.set', '/keys/KEY', 'list.models=nothing', 'list.models', /No model/],
    ['keys.set', '/keys/KEY', 'list.endpoints=nothing', 'list.endpoints', /Unknown endpoint/],
    ['holders.set', '/holders/KEY', 'null.team=nobody', 'null.team', /no team/],
    ['holders.set', '/holders/KEY', 'map.labels=<b>=1', 'map.labels', /A label has a name/],
    ['teams.add', '/teams', 'text.name=search', 'text.name', /already/],
    ['orders.paid', '/orders/ORDER', 'text.until=soon', 'text.until', /day/],
    ['operators.add', '/operators', 'text.name=a b&text.role=viewer', 'text.name', /letters/],
    ['operators.add', '/operators', 'text.name=ANN&text.role=viewer', 'text.name', /name already/],
    ['operators.rotate', '/operators/ann', 'text.expires=soon', 'text.expires', /duration/],
    // No field is wrong: the message has the focus.
    ['teams.remove', '/teams/search', '', 'rejection', /has holders/],
    ['orders.refund', '/orders/ORDER', '', 'rejection', /./],
  ])('%s on %s with %s is shown again with the focus on %s', async (route, path, entered, field, message) => {
    const order = paths.find((each) => each.startsWith('/orders/'))?.split('/')[2] ?? '';
    const back = path.replace('KEY', prefix).replace('ORDER', order);
    const own = await setting.signIn(token);
    const body = new URLSearchParams({
      csrf: own.csrf,
      back: `/console${back}`,
      'text.reason': 'a "<test>"',
      ...Object.fromEntries(new URLSearchParams(entered)),
    });
    const id = back.split('/')[2];
    const kind = {
      keys: 'prefix',
      holders: 'holder',
      orders: 'order',
      teams: 'name',
      operators: 'name',
    }[back.split('/')[1] ?? ''];
    if (id !== undefined) body.set(`param.${kind}`, id);
    const answer = await setting.call('POST', `/console/do/${route}`, {
      cookie: own.cookie,
      body: `${body}`,
    });
    expect([answer.status >= 400, fieldIn(answer.text)]).toEqual([true, field]);
    expect(/id="rejection"[^>]*>([^<]*)/.exec(answer.text)?.[1]).toMatch(message);
    expect(answer.text).toContain('<title>Error: ');
    // What was entered is kept.
    expect(answer.text).toContain('value="a &#34;&#60;test&#62;&#34;"');
  });

  test.each([
    ['/usage?by=nothing', 'by'],
    ['/usage?since=x', 'since'],
    ['/usage?month=2030-13', 'month'],
    ['/usage?team=nobody', 'team'],
    ['/keys?tier=Gold', 'tier'],
    ['/keys?label=x', 'label'],
    ['/keys?unused_since=x', 'unused_since'],
    ['/holders?team=nobody', 'team'],
    ['/orders?state=x', 'state'],
    ['/models?model=nothing', 'model'],
    ['/models?model=test-model&tier=Gold', 'tier'],
    ['/keys?cursor=x', 'rejection'],
    ['/upstreams?cursor=x', 'problem'],
    ['/keys/00000000', 'problem'],
  ])('the search %s is answered with the focus on %s', async (path, field) => {
    const { status, text } = await setting.call('GET', `/console${path}`, { cookie });
    expect([status >= 400, fieldIn(text)]).toEqual([true, field]);
  });

  test('a browser without scripts obeys: from a wrong token to a key that is revoked', async () => {
    await using visit = await Visit.begin(browser, setting.gateway.adminUrl, { scripts: false });
    const { page } = visit;
    const keyboard = new Keyboard(page);
    await page.goto('/console');
    await keyboard.to('Token of an operator');
    await page.keyboard.type('wrong');
    await keyboard.enter();
    expect(await keyboard.active()).toMatchObject({ name: 'Token of an operator', value: '' });
    await page.keyboard.type(token);
    await keyboard.enter();
    await keyboard.to('Keys');
    await keyboard.enter();
    await keyboard.to('Name of the new holder');
    await page.keyboard.type('<b>Maps</b>');
    await keyboard.to('Team');
    await page.keyboard.type('nobody');
    await keyboard.to('Issue a key');
    await keyboard.enter();
    // The error is at its field, and the rest is as it was.
    expect(await keyboard.active()).toMatchObject({ name: 'Team', value: 'nobody' });
    expect(await page.getByLabel('Name of the new holder').inputValue()).toBe('<b>Maps</b>');
    await page.keyboard.press('Control+a');
    await page.keyboard.press('Delete');
    await keyboard.to('Issue a key');
    await keyboard.enter();
    expect(await keyboard.active()).toMatchObject({ tag: 'h1', name: 'Done' });
    const issued = (await page.locator('pre.key').textContent()) ?? '';
    expect(issued).toMatch(/^[0-9a-f]{32}$/);
    await keyboard.to('Back');
    await keyboard.enter();
    await keyboard.to(/^Name of the holder/);
    await page.keyboard.type('<b>Ma');
    await keyboard.enter();
    expect(await page.locator('.records tbody tr').count()).toBe(1);
    await keyboard.to(issued.slice(0, 8));
    await keyboard.enter();
    await keyboard.to('Limits');
    await page.keyboard.type('requests_per_minute=3');
    await keyboard.to('Change');
    await keyboard.enter();
    expect(await keyboard.active()).toMatchObject({ tag: 'h1', name: 'Done' });
    expect((await setting.commands.tollgate('keys', 'show', issued.slice(0, 8), '--json')).out).toContain(
      '"requests_per_minute": 3',
    );
    await keyboard.to('Back');
    await keyboard.enter();
    await keyboard.to('Revoke …');
    await page.keyboard.press('Enter');
    await keyboard.to('Revoke');
    await keyboard.enter();
    expect(await keyboard.active()).toMatchObject({ tag: 'h1', name: 'Done' });
    const refused = await fetch(`${setting.gateway.url}/v1/models`, {
      headers: { authorization: `Bearer ${issued}` },
    });
    expect(refused.status).toBe(401);
    await keyboard.to('Events');
    await keyboard.enter();
    expect(await page.locator('.records tbody').textContent()).toMatch(/ann.*keys\.revoke/);
  });
});
