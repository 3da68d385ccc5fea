// From the tiers to a key in a real browser: with and without scripts, by keyboard alone, back and forward, and where the
// key must not be.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { listModels, statusOf } from '../e2e/holder.ts';
import type { Browser } from '../helpers/browser.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import { SHOP } from './sample.ts';
import { Visit } from './visit.ts';

let browser: Browser;
let gateway: Gateway;

beforeAll(async () => {
  // The address of the gateway itself is the public one, so that what is shown can be used.
  gateway = await startGateway({ config: { ...SHOP, public_url: null } });
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);

afterAll(async () => {
  await browser?.close();
  await gateway?.close();
});

/** How many keys the forms of this gateway have led to. */
const made = (): number =>
  gateway.logs.filter(
    (line) => line['msg'] === 'request' && line['route'] === '/checkout' && line['status'] === 201,
  ).length;

test('a key is copied by its button, and works', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { mayCopy: true });
  const { page } = visit;
  const key = await visit.takeFreeKey();
  await page.getByRole('button', { name: 'Copy API key' }).click();
  await page.getByRole('button', { name: 'Copied API key' }).waitFor();
  expect(await page.locator('#said').textContent()).toBe('Copied');
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe(key);
  await page.getByRole('button', { name: 'Copy In Python' }).click();
  await until(
    async () =>
      String(await page.evaluate('navigator.clipboard.readText()')).startsWith('from openai') || undefined,
    'the lines of Python to be copied',
  );
  await page.getByRole('button', { name: 'Copy API key' }).waitFor();
  expect(await statusOf(gateway.url, key)).toBe(200);
  expect(visit.faults).toEqual([]);
});

test('where the clipboard is not given, the text is selected and copied the old way', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { mayCopy: true });
  const { page } = visit;
  await page.addInitScript(`Object.defineProperty(navigator, 'clipboard', { value: undefined })`);
  const key = await visit.takeFreeKey();
  await page.getByRole('button', { name: 'Copy API key' }).click();
  await page.getByRole('button', { name: /^(Copied|Selected)/ }).waitFor();
  expect(await page.evaluate('String(getSelection())')).toBe(key);
});

test('without scripts there are no buttons of copying, and one click selects the key', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { scripts: false });
  const { page } = visit;
  const key = await visit.takeFreeKey();
  expect(key).toMatch(/^[0-9a-f]{32}$/);
  expect(await page.getByRole('button').count()).toBe(0);
  expect(await page.evaluate(`getComputedStyle(document.querySelector('pre.key')).userSelect`)).toBe('all');
  await page.goto('/account');
  expect(await page.locator('noscript').isVisible()).toBe(true);
  expect(await page.locator('noscript').textContent()).toContain('This page needs JavaScript');
  expect(await page.locator('form').isVisible()).toBe(false);
  expect(visit.faults).toEqual([]);
});

test('by keyboard alone: to the button, the key, and the page of the account', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { mayCopy: true });
  const { page } = visit;
  await page.goto('/pricing');
  const order: string[] = [];
  for (let press = 0; press < 20 && order.at(-1) !== 'Get a Free key'; press += 1) {
    await page.keyboard.press('Tab');
    order.push(String(await page.evaluate('document.activeElement.textContent')));
    // What has the focus can be seen to have it.
    expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).toBe('solid');
  }
  expect(order).toEqual(['Example Models', 'Tiers', 'Your key', 'Get a Free key']);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Your Free key' }).waitFor();
  const key = await page.locator('pre.key').textContent();
  for (let press = 0; press < 4; press += 1) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Copied API key' }).waitFor();
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe(key);
});

test.each([true, false])('going back and forward makes no second key; scripts: %s', async (scripts) => {
  await using visit = await Visit.begin(browser, gateway.url, { scripts });
  const { page } = visit;
  const key = await visit.takeFreeKey();
  const before = await until(() => made() || undefined, 'the access log line');
  if (scripts) expect(new URL(page.url()).pathname).toBe('/pricing');
  await page.goto('/account');
  for (const go of ['back', 'back', 'forward', 'forward'] as const) {
    // Without the script the browser asks before it sends a form again, or shows that the page is gone.
    await (go === 'back' ? page.goBack() : page.goForward()).catch(() => undefined);
  }
  if (scripts) {
    await page.goBack();
    await page.reload();
    await page.getByRole('heading', { name: 'Choose a tier' }).waitFor();
    expect(await page.content()).not.toContain(key);
  }
  // What was asked before is in the log by now.
  await gateway.accessLine(await listModels(gateway.url, key));
  expect(made()).toBe(before);
});

test('the key is in no address, no storage, no cookie, and on no later page', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  const key = await visit.takeFreeKey();
  await page.getByRole('link', { name: 'back to the tiers' }).click();
  await page.getByRole('heading', { name: 'Choose a tier' }).waitFor();
  expect(await page.content()).not.toContain(key);
  const kept = await page.evaluate(
    'JSON.stringify([{ ...localStorage }, { ...sessionStorage }, history.state, document.cookie, document.referrer])',
  );
  expect(kept).toBe('[{},{},null,"",""]');
  expect(await page.context().cookies()).toEqual([]);
  expect(visit.urls.join('\n')).not.toContain(key);
  expect(gateway.output).not.toContain(key);
});
