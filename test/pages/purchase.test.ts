// Buying in a real browser: to the payment page of another site and back, and what a browser's own rules make of it.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Shop } from '../billing/shop.ts';
import { statusOf } from '../e2e/holder.ts';
import type { Browser } from '../helpers/browser.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { Visit } from './visit.ts';

let browser: Browser;
let shop: Shop;

beforeAll(async () => {
  shop = await Shop.open();
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);

afterAll(async () => {
  await browser?.close();
  await shop?.[Symbol.asyncDispose]();
});

test.each([
  ['at an origin that the policy names', undefined, true],
  ['under a name that nobody knew, without scripts', 'localhost', false],
])('a tier is paid %s, and its key shown once', async (_, host, scripts) => {
  shop.stripe.pages = host === undefined ? undefined : shop.stripe.url.replace('127.0.0.1', host);
  await using visit = await Visit.begin(browser, shop.url, { scripts });
  const { page } = visit;
  await page.goto('/pricing');
  await page.getByRole('button', { name: 'Choose Lite' }).click();
  await page.getByRole('button', { name: 'Pay' }).click();
  await page.getByRole('heading', { level: 1, name: 'Your order is paid' }).waitFor();
  if (scripts) expect(await visit.axe()).toEqual([]);
  const address = page.url();
  await page.getByRole('button', { name: 'Show my key' }).click();
  await page.getByRole('heading', { level: 1, name: 'Your Lite key' }).waitFor();
  const key = (await page.locator('pre.key').textContent()) ?? '';
  expect(await statusOf(shop.url, key)).toBe(200);
  if (scripts) {
    // In the history stands the page of the tiers, at the root and not below the address of the form.
    expect(new URL(page.url()).pathname).toBe('/pricing');
  }
  await page.goto(address);
  await page.getByText('It cannot be shown again').waitFor();
  const elsewhere = new URL(shop.stripe.pages ?? shop.stripe.url).origin;
  expect(visit.faults.filter((fault) => !fault.startsWith(`request to ${elsewhere}/pay/`))).toEqual([]);
});

test('another tier is ordered from the account and paid elsewhere; the key is in no address', async () => {
  shop.stripe.pages = undefined;
  await using visit = await Visit.begin(browser, shop.url, { width: 390 });
  const { page } = visit;
  const key = await shop.gateway.issueKey('Lite');
  await visit.enter(key);
  await page.getByRole('button', { name: 'Choose Pro' }).click();
  await page.getByRole('button', { name: 'Pay' }).click();
  await visit.title('Your order is complete');
  await page.getByText('Pro is in force. Your key stays the same.').waitFor();
  // Back to the account, which has forgotten the key.
  await page.goto('/account');
  expect(await page.locator('#report').isVisible()).toBe(false);
  await visit.enter(key);
  expect(await page.locator('#tier').textContent()).toBe('Pro');
  expect(visit.urls.join('\n')).not.toContain(key);
  const elsewhere = new URL(shop.stripe.url).origin;
  expect(visit.faults.filter((fault) => !fault.startsWith(`request to ${elsewhere}/pay/`))).toEqual([]);
});
