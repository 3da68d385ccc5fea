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
import { Visit } from './visit.ts';

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

/** Every width in both themes, in the order of the fewest changes. Axe judges colours, which are the same at any width, in one of the dark views and all rules in a light one. */
const VIEWS = [
  { theme: 'light', width: 1280, rules: undefined },
  { theme: 'light', width: 390, rules: 'all' },
  { theme: 'dark', width: 390, rules: undefined },
  { theme: 'dark', width: 1280, rules: 'colours' },
] as const;

/**
 * Holds the page as it stands against all that must be so, in each view. It is loaded in one: only its style depends on the
 * view (`scripts.test.ts`).
 */
async function inspect(visit: Visit, name: string): Promise<void> {
  // The browser itself notes the status of an answer that is a refusal.
  const faults = visit.faults.filter((fault) => !/the server responded with a status of [45]/.test(fault));
  expect([name, faults]).toEqual([name, []]);
  for (const { theme, width, rules } of VIEWS) {
    await visit.look(theme, width);
    if (PICTURES !== '') {
      const path = join(PICTURES, `${name}-${theme}-${width}.png`);
      await visit.page.screenshot({ path, fullPage: true, animations: 'disabled' });
    }
    expect([name, theme, width, await visit.overflow()]).toEqual([name, theme, width, 0]);
    if (rules !== undefined)
      expect([name, theme, width, await visit.axe(rules)]).toEqual([name, theme, width, []]);
  }
  visit.faults.length = 0;
}

describe('in both themes and at both widths', () => {
  /** On a phone, where a button is most easily out of reach. */
  const begin = (at: Gateway) => Visit.begin(browser, at.url, { theme: 'light', width: 390 });

  test('the tiers, a key, and the refusal of one', async () => {
    await using visit = await begin(gateway);
    await tourFree(visit, (name) => inspect(visit, name));
  });

  test('an order and its payment, from each step to each end', async () => {
    await using visit = await begin(gateway);
    await tourOrder(visit, gateway, (name) => inspect(visit, name));
  });

  test('the account, with each standing of its holder, and a new key', async () => {
    await using visit = await begin(gateway);
    await tourAccount(visit, gateway, (name) => inspect(visit, name));
  });

  test('the portal of a subscription, and back', async () => {
    await using visit = await begin(gateway);
    await tourPortal(visit, (name) => inspect(visit, name), await gateway.issueKey('Free'));
  });

  test('another tier for a key', async () => {
    await using visit = await begin(gateway);
    const key = await tourUpgrade(visit, gateway, (name) => inspect(visit, name));
    await visit.enter(key);
    expect(await visit.page.locator('#tier').textContent()).toBe('Pro');
    await inspect(visit, 'account-upgraded');
  });

  test('with everything at its most, and nothing at all', async () => {
    await using visit = await begin(bare);
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

/** Numbers of the page that begin on one line and end on another. */
const BROKEN_NUMBERS = `(() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const broken = [];
  while (texts.nextNode()) {
    const { data, parentElement } = texts.currentNode;
    if (parentElement === null || !parentElement.checkVisibility()) continue;
    for (const { 0: number, index } of data.matchAll(/[\\d][\\d.,\\u00a0\\u202f]*\\d/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, index);
      range.setEnd(texts.currentNode, index + number.length);
      const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
      if (lines.size > 1) broken.push(number);
    }
  }
  return broken;
})()`;

/** The extremes, on both sides of the one width at which the style changes. Axe judges all rules at 390, too, where pages are inspected. */
const EXTREMES = [
  { width: 320, theme: 'light' },
  { width: 1920, theme: 'dark' },
] as const;

test('at any width nothing breaks inside a number or is wider than the window', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  const base = sampleReport('', ['gpt-4o-mini']);
  const most = {
    ...base.totals,
    requests: 1_234_567_890,
    prompt_tokens: 9_007_199_254_740_991,
    cost: 123_456,
  };
  await visit.report((prefix) => ({ ...sampleReport(prefix, ['gpt-4o-mini']), totals: most }));
  for (const [name, open] of [
    ['account', async () => visit.enter(await gateway.issueKey('Lite'))],
    ['pricing', () => page.goto('/pricing')],
    ['start', () => page.goto('/')],
  ] as const) {
    await open();
    for (let width = 320; width <= 1920; width += width < 1000 ? 56 : 184) {
      await page.setViewportSize({ width, height: 900 });
      expect([name, width, await page.evaluate(BROKEN_NUMBERS)]).toEqual([name, width, []]);
      expect([name, width, await visit.overflow()]).toEqual([name, width, 0]);
    }
    for (const { width, theme } of EXTREMES) {
      await visit.look(theme, width);
      expect([name, width, await visit.axe()]).toEqual([name, width, []]);
    }
  }
});

test('a single limit is as wide as its bar, on a wide screen too', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { width: 1920 });
  const { page } = visit;
  await visit.report((prefix) => {
    const report = sampleReport(prefix, []);
    return { ...report, limits: report.limits.slice(0, 1) };
  });
  await visit.enter(await gateway.issueKey('Lite'));
  const right = (selector: string) =>
    page.evaluate(`Math.round(document.querySelector('${selector}').getBoundingClientRect().right)`);
  expect(await right('.gauges strong')).toBe(await right('.gauges svg'));
});

test('printed, charts keep their legends and cards are whole, in light colours', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { theme: 'dark' });
  const { page } = visit;
  await visit.report((prefix) => sampleReport(prefix, ['gpt-4o-mini', 'gpt-4o']));
  await visit.enter(await gateway.issueKey('Lite'));
  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  const style = (selector: string, name: string) =>
    page.evaluate(
      `[...new Set([...document.querySelectorAll('${selector}')].map((each) => getComputedStyle(each)['${name}']))]`,
    );
  expect(await style('.legend i', 'printColorAdjust')).toEqual(['exact']);
  expect(await style('.card', 'breakInside')).toEqual(['avoid']);
  expect(await style('button', 'display')).toEqual(['none']);
  expect(await style('.card', 'backgroundColor')).toEqual(['rgb(255, 255, 255)']);
  // Two pages of A4 with the table folded.
  const pdf = await page.pdf({ format: 'A4' });
  expect(pdf.toString('latin1').match(/\/Type \/Page\b/g)?.length).toBeLessThanOrEqual(2);
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
