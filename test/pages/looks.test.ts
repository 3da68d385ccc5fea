// Every page in a real browser, on both themes and at both widths: whole, readable, clean for axe, and without a word of
// the browser about its policy. Pictures of all of them are kept where PICTURES names a directory.
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Browser } from '../helpers/browser.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import { sampleReport, TEST_SHOP } from './sample.ts';
import { tourAccount, tourFree, tourOrder, tourPortal, tourUpgrade } from './tour.ts';
import { THEMES, Visit, WIDTHS } from './visit.ts';

const PICTURES = process.env['PICTURES'] ?? '';

let browser: Browser;
let gateway: Gateway;
let bare: Gateway;

beforeAll(async () => {
  gateway = await startGateway({ config: TEST_SHOP });
  // Everything at its most: long names, a colour that is hard to read, no limits, many models, none to ask.
  bare = await startGateway({
    config: {
      branding: { name: 'W'.repeat(60), color: '#ffee00' },
      models: Object.fromEntries(
        Array.from({ length: 30 }, (_, index) => [
          `${'a-very-long-name/'.repeat(6)}${index}`,
          { targets: [{ upstream: 'echo', model: 'echo' }] },
        ]),
      ),
      tiers: { Free: {}, Pro: { tokens_per_month: Number.MAX_SAFE_INTEGER } },
      free_keys: { per_ip_per_day: 1000 },
    },
  });
  if (PICTURES !== '') await mkdir(PICTURES, { recursive: true });
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);

afterAll(async () => {
  await browser?.close();
  await gateway?.close();
  await bare?.close();
});

const EVERYWHERE: ReadonlySet<string> = new Set(['pricing', 'key', 'account', 'complete-paid']);

const VIEWS = THEMES.flatMap((theme) => WIDTHS.map((width) => ({ theme, width })));

describe.each(VIEWS)('$theme, $width wide', (view) => {
  /** Holds the page as it stands against all that must be so, axe last because it leaves traces. */
  async function inspect(visit: Visit, name: string): Promise<void> {
    if (PICTURES !== '') {
      const path = join(PICTURES, `${name}-${view.theme}-${view.width}.png`);
      await visit.page.screenshot({ path, fullPage: true, animations: 'disabled' });
    }
    // The browser itself notes the status of an answer that is a refusal.
    const faults = visit.faults.filter((fault) => !/the server responded with a status of [45]/.test(fault));
    expect([name, faults]).toEqual([name, []]);
    expect([name, await visit.overflow()]).toEqual([name, 0]);
    // Axe judges colours and structure, which are the same at both widths: most pages are judged once in each theme.
    if (EVERYWHERE.has(name) || (view.theme === 'light') === (view.width === 390))
      expect([name, await visit.axe()]).toEqual([name, []]);
    visit.faults.length = 0;
  }

  test('the tiers, a key, and the refusal of one', async () => {
    await using visit = await Visit.begin(browser, gateway.url, view);
    await tourFree(visit, (name) => inspect(visit, name));
  });

  test('an order and its payment, from each step to each end', async () => {
    await using visit = await Visit.begin(browser, gateway.url, view);
    await tourOrder(visit, gateway, (name) => inspect(visit, name));
  });

  test('the account, with each standing of its holder, and a new key', async () => {
    await using visit = await Visit.begin(browser, gateway.url, view);
    await tourAccount(visit, gateway, (name) => inspect(visit, name));
  });

  test('the portal of a subscription, and back', async () => {
    await using visit = await Visit.begin(browser, gateway.url, view);
    await tourPortal(visit, (name) => inspect(visit, name), await gateway.issueKey('Free'));
  });

  test('another tier for a key', async () => {
    await using visit = await Visit.begin(browser, gateway.url, view);
    const key = await tourUpgrade(visit, gateway, (name) => inspect(visit, name));
    await visit.enter(key);
    expect(await visit.page.locator('#tier').textContent()).toBe('Pro');
    await inspect(visit, 'account-upgraded');
  });

  test('with everything at its most, and nothing at all', async () => {
    await using visit = await Visit.begin(browser, bare.url, view);
    const { page } = visit;
    await page.goto('/pricing');
    await page.getByText('22 more').first().click();
    await inspect(visit, 'pricing-most');
    const key = await visit.takeFreeKey();
    await inspect(visit, 'key-most');
    const names = Array.from({ length: 9 }, (_, index) => `${'long-name/'.repeat(10)}${index}`);
    await visit.report((prefix) => sampleReport(prefix, names, false));
    await visit.enter(key);
    await page.getByText('Show the table').click();
    await inspect(visit, 'account-most');
    await page.unroute('**/admin/usage*');
    await visit.report((prefix) => ({ ...sampleReport(prefix, []), limits: [] }));
    await page.getByRole('button', { name: 'Refresh' }).click();
    await page.getByText('No usage in this time').waitFor();
    await inspect(visit, 'account-empty');
  });
});

test('what must not be is noticed: a button without a name, a style in place, a request to elsewhere', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  await page.goto('/pricing');
  expect(visit.faults).toEqual([]);
  await page.evaluate(`document.body.setAttribute('style', 'color: red')`);
  await page.evaluate(`fetch('http://127.0.0.1:9/').catch(() => 0)`);
  await until(() => visit.faults.length > 1 || undefined, 'the browser to say something');
  expect(visit.faults.join('\n')).toMatch(/style-src[\s\S]*connect|connect[\s\S]*style-src/);
  await page.evaluate(`document.querySelector('button').textContent = ''`);
  await page.evaluate(`document.querySelector('main').append('x'.repeat(1000))`);
  expect((await visit.axe()).join('\n')).toMatch(/^button-name: /);
  expect(await visit.overflow()).toBeGreaterThan(0);
});
