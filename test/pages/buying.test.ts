// From the tiers through a payment that is played to a key that works, in a real browser: what the buyer of each path has in the
// end. How the pages look on the way is looks.test.ts, and payment at another origin is purchase.test.ts.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ask, bearer, field, listModels, statusOf } from '../e2e/holder.ts';
import type { Browser, Page } from '../helpers/browser.ts';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import { type Report, reportOfBuyer, sampleReport, TEST_SHOP } from './sample.ts';
import { tourPortal } from './tour.ts';
import { Visit } from './visit.ts';

const CHAT = { model: 'gpt-4o', messages: [{ role: 'user', content: 'Hello' }] };

let browser: Browser;
let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({ config: TEST_SHOP });
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);

afterAll(async () => {
  await browser?.close();
  await gateway?.close();
});

const keyOn = async (page: Page): Promise<string> => (await page.locator('pre.key').textContent()) ?? '';

const text = async (page: Page, selector: string): Promise<string> =>
  (await page.locator(selector).textContent()) ?? '';

/** Of the order whose page the browser is on. */
const orderOn = (page: Page): Promise<string> => text(page, '.foot code');

/** Support, or what would happen at a provider, by the command line. */
async function command(...words: string[]): Promise<void> {
  const env = { TEST_DIR: gateway.directory.path };
  const { code, stderr } = await runCommand([...words, '--config', gateway.configFile], env);
  expect([words, code, stderr]).toEqual([words, 0, '']);
}

/** Waits until the gateway has heard of what a command did. */
const answers = (key: string, status: number): Promise<true> =>
  until(async () => (await statusOf(gateway.url, key)) === status || undefined, `the status ${status}`);

/** What is kept where the key must not be. */
function expectUnseen(visit: Visit, ...keys: readonly string[]): void {
  for (const key of keys) {
    expect(visit.urls.join('\n')).not.toContain(key);
    expect(gateway.output).not.toContain(key);
  }
}

test('a tier is bought without scripts, and its key works', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { scripts: false, theme: 'dark' });
  const { page } = visit;
  await visit.choose('Lite');
  await visit.press('Pay', 'Your order is paid');
  await page.getByRole('button', { name: 'Show my key' }).click();
  await visit.title('Your Lite key');
  const key = await keyOn(page);
  // A model that Free has not.
  expect((await gateway.chat(CHAT, { key })).status).toBe(200);
  // The account needs scripts; the command that it shows instead leads to a payment, too.
  await page.goto('/account');
  const body = /-d '(\{[^']*\})'/.exec(await text(page, 'noscript'))?.[1] ?? '';
  const answer = await ask(gateway.url, {
    target: '/checkout',
    headers: { ...bearer(key), 'content-type': 'application/json' },
    body,
  });
  expect([answer.status, field(answer.json(), 'tier')]).toEqual([201, 'Pro']);
  expectUnseen(visit, key);
  expect(visit.faults).toEqual([]);
});

test('the answer with the key gets lost: the button gives another one, and the first ends', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { width: 390 });
  const { page } = visit;
  await visit.choose('Pro');
  const address = await visit.press('Pay', 'Your order is paid');
  let lost = '';
  await page.route('**/checkout/claim', async (route) => {
    lost = /[0-9a-f]{32}(?=<\/pre>)/.exec(await (await route.fetch()).text())?.[0] ?? '';
    await route.abort();
  });
  await page.getByRole('button', { name: 'Show my key' }).click({ noWaitAfter: true });
  await until(() => lost || undefined, 'the answer that gets lost');
  await page.unroute('**/checkout/claim');
  visit.faults.length = 0;
  await page.goto(address).catch(() => page.goto(address));
  await page.getByRole('button', { name: 'Show another key' }).click();
  await visit.title('Your Pro key');
  const key = await keyOn(page);
  expect([await statusOf(gateway.url, lost), await statusOf(gateway.url, key)]).toEqual([401, 200]);
  // Used by now: nothing more is given.
  await page.goto(address);
  await page.getByText('It cannot be shown again').waitFor();
  expect(await page.locator('main').getByRole('button').count()).toBe(0);
  expectUnseen(visit, lost, key);
  expect(visit.faults).toEqual([]);
});

test('a payment is declined, or left: nothing is given, and it can be tried again', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { theme: 'dark', width: 390 });
  const { page } = visit;
  const first = await visit.choose('Lite');
  await page.getByRole('link', { name: 'Leave without paying' }).click();
  await visit.title('Not paid');
  // Back to where it is paid, and there it is declined.
  await page.goBack();
  await visit.press('Decline', 'This order is over');
  expect(await text(page, 'main')).toContain('nothing was charged');
  await page.goto(first);
  await page.getByRole('button', { name: 'Pay (test)' }).click();
  await visit.title('This order is over');
  await page.getByRole('link', { name: 'Back to the tiers' }).click();
  await page.getByRole('button', { name: 'Choose Lite' }).click();
  await visit.title('Test payment');
  expect(page.url()).not.toBe(first);
  await visit.press('Pay', 'Your order is paid');
  expect(visit.faults).toEqual([]);
});

test('by keyboard alone: the tier, the payment, the key', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  const press = async (name: string): Promise<void> => {
    for (let tab = 0; tab < 20; tab += 1) {
      await page.keyboard.press('Tab');
      if ((await page.evaluate('document.activeElement.textContent')) !== name) continue;
      expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).toBe('solid');
      await page.keyboard.press('Enter');
      return;
    }
    throw new Error(`the focus does not come to ${name}`);
  };
  await page.goto('/pricing');
  await press('Choose Lite');
  await visit.title('Test payment');
  await press('Pay (test)');
  await visit.title('Your order is paid');
  await press('Show my key');
  await visit.title('Your Lite key');
  expect(await statusOf(gateway.url, await keyOn(page))).toBe(200);
});

test('another tier for a key: ordered from the account, the same key has it, and what was used', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { width: 390 });
  const { page } = visit;
  const key = await gateway.issueKey('Free');
  expect((await gateway.chat(CHAT, { key })).status).toBe(404);
  expect((await gateway.chat({ ...CHAT, model: 'gpt-4o-mini' }, { key })).status).toBe(200);
  await visit.enter(key);
  expect(await page.locator('.offer:visible h4').allTextContents()).toEqual(['Lite', 'Pro']);
  // Reached by keyboard from the head of the page.
  await page.getByRole('link', { name: 'Change tier' }).press('Enter');
  await page.keyboard.press('Tab');
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Compare the tiers');
  // An answer that gets lost, and the button pressed again: one order.
  let lost: unknown;
  await page.route('**/checkout', async (route) => {
    lost = field(await (await route.fetch()).json(), 'order');
    await route.abort();
  });
  await page.getByRole('button', { name: 'Choose Lite' }).click();
  await page.getByText('The gateway did not answer. Nothing was charged.').waitFor();
  await page.unroute('**/checkout');
  visit.faults.length = 0;
  await page.getByRole('button', { name: 'Choose Lite' }).click();
  await visit.title('Test payment');
  await visit.press('Pay', 'Your order is complete');
  expect(await text(page, 'main')).toContain('Lite is in force. Your key stays the same.');
  expect(await orderOn(page)).toBe(lost);
  await page.getByRole('link', { name: 'Your key’s page' }).click();
  await visit.enter(key);
  expect([await text(page, '#tier'), await text(page, '#prefix')]).toEqual(['Lite', key.slice(0, 8)]);
  expect(await text(page, '#renewal')).toMatch(
    /^Lite renews on [A-Z][a-z]+ \d+, \d{4} for \$9 USD a month\.$/,
  );
  expect(await text(page, '#totals dd:first-of-type >> nth=0')).toBe('1');
  expect(await page.locator('.offer:visible h4').allTextContents()).toEqual(['Pro']);
  expect((await gateway.chat(CHAT, { key })).status).toBe(200);
  expectUnseen(visit, key);
  expect(visit.faults).toEqual([]);
});

test('a holder who is suspended reads why, and pays again for the same key', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { theme: 'dark' });
  const { page } = visit;
  await visit.choose('Lite');
  await visit.press('Pay', 'Your order is paid');
  const order = await orderOn(page);
  await page.getByRole('button', { name: 'Show my key' }).click();
  await visit.title('Your Lite key');
  const key = await keyOn(page);
  await answers(key, 200);
  await command('orders', 'lapse', order);
  await answers(key, 403);
  await visit.enter(key);
  const notice = page.locator('.notice:visible');
  expect(await notice.allTextContents()).toEqual([
    expect.stringContaining('Suspended: Lite is no longer paid.'),
  ]);
  expect(await notice.textContent()).toContain(order);
  // By the notice, to the offers.
  await notice.getByRole('link', { name: 'choose a tier below' }).click();
  await page.getByRole('button', { name: 'Choose Lite' }).click();
  await visit.title('Test payment');
  await visit.press('Pay', 'Your order is complete');
  await answers(key, 200);
  // By the operator: then to pay would not help.
  await command('keys', 'suspend', key.slice(0, 8));
  await answers(key, 403);
  await visit.enter(key);
  expect(await notice.allTextContents()).toEqual([expect.stringContaining('Suspended by the operator.')]);
  expect(await page.locator('.offer:visible').count()).toBe(0);
  expect((await listModels(gateway.url, key)).status).toBe(403);
  expect(visit.faults).toEqual([]);
});

test('a holder cancels in the portal, returns, and undoes it', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { width: 390 });
  const { page } = visit;
  const key = await gateway.issueKey('Free');
  await tourPortal(visit, async () => undefined, key);
  expect(await text(page, '.notice:visible')).toMatch(
    /^Lite was cancelled and ends on [A-Z][a-z]+ \d+, \d{4}\. .*manage your subscription before that day\.$/,
  );
  expect(await page.locator('#subscription').isVisible()).toBe(true);
  await page.getByRole('button', { name: 'Manage subscription' }).click();
  await page.getByRole('button', { name: 'Do not cancel' }).click();
  await until(async () => !(await text(page, 'main')).includes('Ends on') || undefined, 'the undoing');
  await page.getByRole('link', { name: 'Return to your key’s page' }).click();
  // The whole header is taken, as people paste it.
  await page.getByLabel('API key').fill(`Authorization: Bearer ${key} `);
  await page.getByRole('button', { name: 'Show usage' }).click();
  await page.getByText(/^Lite renews on .* for \$9 USD a month\.$/).waitFor();
  expect(await page.locator('.notice:visible').count()).toBe(0);
  // In the tab's memory and nowhere else, also after the way there and back.
  expectUnseen(visit, key);
  expect(visit.faults).toEqual([]);
});

test('prices and dates follow the conventions of the reader', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { locale: 'de-DE' });
  const { page } = visit;
  await page.goto('/pricing');
  expect(await page.locator('.price').allTextContents()).toEqual([
    'At no cost',
    '9\u00a0$ USD a month',
    '49\u00a0$ USD a month',
  ]);
  expect(await text(page, '.limits >> nth=0')).toContain('40.000 tokens');
  await visit.report((prefix) => reportOfBuyer(prefix, 'good', {}));
  await visit.enter(await gateway.issueKey('Lite'));
  expect(await text(page, '#renewal')).toBe('Lite renews on 14 October 2026 for 9\u00a0$ USD a month.');
  expect(visit.faults).toEqual([]);
});

test('each way in which a holder may stand has its words and its offers', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  let report: Report = sampleReport('', []);
  await visit.report((prefix) => ({ ...report, prefix }));
  await visit.enter(await gateway.issueKey('Free'));
  const told: unknown[] = [];
  const days = (count: number) => new Date(Date.now() + count * 86_400_000).toISOString();
  const cases = [
    ['good', 'Free', undefined],
    ['good', 'Lite', { standing: 'active', paid_until: null }],
    ['good', 'Lite', { standing: 'active' }],
    ['good', 'Lite', { standing: 'active', cancelled: true }],
    ['good', 'Lite', { standing: 'active', interval: 'once', paid_until: null }],
    ['good', 'Lite', { standing: 'active', interval: 'year', paid_until: days(29) }],
    ['good', 'Lite', { standing: 'active', interval: 'year', paid_until: days(31) }],
    ['good', 'Lite', { standing: 'active', interval: 'year', paid_until: days(9), cancelled: true }],
    ['good', 'Lite', { standing: 'active', paid_by: 'invoice', portal: false }],
    ['good', 'Lite', { standing: 'past_due', paid_by: 'invoice', portal: false }],
    ['good', 'Lite', { standing: 'past_due' }],
    ['good', 'Free', { standing: 'held' }],
    ['good', 'Free', { standing: 'lapsed' }],
    ['good', 'Free', { standing: 'ended', cancelled: true }],
    // Support gave it what it had paid for.
    ['good', 'Lite', { standing: 'ended' }],
    ['suspended', 'Lite', undefined],
    ['suspended', 'Lite', { standing: 'active' }],
    ['suspended', 'Lite', { standing: 'held' }],
    ['suspended', 'Lite', { standing: 'lapsed' }],
    ['suspended', 'Pro', { tier: 'Pro', standing: 'ended' }],
  ] as const;
  for (const [index, [standing, tier, plan]] of cases.entries()) {
    const base =
      plan === undefined ? { ...sampleReport('', []), standing } : reportOfBuyer('', standing, plan);
    // A number by which the page can be seen to show this report, and no other.
    report = { ...base, tier, totals: { ...base.totals, requests: index + 1 } };
    await page.getByRole('button', { name: 'Refresh' }).click();
    await until(
      async () => (await text(page, '#totals dd >> nth=0')) === String(index + 1) || undefined,
      'it',
    );
    const notices = await page
      .locator('.notice:visible')
      .evaluateAll((found: { dataset: object }[]) =>
        found.map(({ dataset }) => Object.values(dataset).join()),
      );
    told.push([
      ...notices,
      await page.locator('.offer:visible h4').allTextContents(),
      (await text(page, '#renewal')) !== '',
      await page.locator('#replaces').isVisible(),
      await page.locator('#suspended').isVisible(),
    ]);
  }
  const both = ['Lite', 'Pro'];
  expect(told).toEqual([
    [both, false, false, false],
    [['Pro'], false, false, false],
    [['Pro'], true, true, false],
    ['ending', ['Pro'], false, true, false],
    [['Pro'], true, false, false],
    ['renewing', ['Pro'], false, true, false],
    [['Pro'], true, true, false],
    ['ending', ['Pro'], false, true, false],
    [['Pro'], true, true, false],
    ['invoice-due', ['Pro'], false, true, false],
    ['past-due', ['Pro'], false, true, false],
    ['held', ['Pro'], false, false, false],
    ['lapsed', both, false, false, false],
    ['lapsed', both, false, false, false],
    [['Pro'], false, false, false],
    ['stopped', [], false, false, true],
    ['stopped', [], false, false, true],
    ['disputed', [], false, false, true],
    ['unpaid', both, false, false, true],
    ['unpaid', both, false, false, true],
  ]);
  expect(visit.faults).toEqual([]);
});

test('what the gateway says of an order stands on the page: refused, too many, the provider away', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  await visit.enter(await gateway.issueKey('Free'));
  for (const [code, headers, words] of [
    ['already_entitled', {}, 'The reason.'],
    ['order_limit', { 'retry-after': '42' }, 'The reason. Try again in 42 seconds.'],
    ['payment_unavailable', { 'retry-after': '10' }, 'The reason. Try again in 10 seconds.'],
  ] as const) {
    await page.route('**/checkout', (route) =>
      route.fulfill({ status: 503, headers, json: { error: { code, message: 'The reason.' } } }),
    );
    await page.getByRole('button', { name: 'Choose Pro' }).click();
    await until(async () => (await text(page, '#problem')) === words || undefined, words);
    await page.unroute('**/checkout');
  }
  await page.route('**/checkout', (route) => route.fulfill({ json: { url: 'javascript:alert(1)' } }));
  await page.getByRole('button', { name: 'Choose Pro' }).click();
  await page.getByText('something that this page cannot read').waitFor();
});
