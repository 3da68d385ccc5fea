// The browser of the bench asks the console for what Chromium asks for, and no more.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ConsoleBrowser, signIn } from '../../bench/load/console-browser.ts';
import type { Browser } from '../helpers/browser.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import { Visit } from '../pages/visit.ts';
import { type ConsoleSetting, startConsole } from './setting.ts';

let browser: Browser;
let setting: ConsoleSetting;
let cookie: string;

beforeAll(async () => {
  setting = await startConsole();
  cookie = await signIn(setting.gateway.adminUrl, await setting.operator('ann', 'admin'));
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);
afterAll(async () => {
  await browser?.close();
  await setting?.[Symbol.asyncDispose]();
});

/** What a browser asks for at first, and what it repeats. */
const shapeOf = (asked: readonly string[]) => ({
  first: asked.slice(0, 2),
  repeated: [...new Set(asked.slice(2))].sort(),
});

test('what is asked for by the page *Now* is the same', async () => {
  const { adminUrl } = setting.gateway;
  await using visit = await Visit.begin(browser, adminUrl);
  const { page, urls } = visit;
  const [name = '', value = ''] = cookie.split('=');
  await page.context().addCookies([{ name, value, url: adminUrl }]);
  await page.clock.install();
  await page.goto('/console');
  const shown = () => page.locator('#now-at').textContent();
  const before = await shown();
  await until(async () => (await shown()) !== before, 'an event');
  // Whatever repeats in a browser repeats within a minute.
  await page.clock.runFor(60_000);
  const scripted = new ConsoleBrowser(adminUrl, cookie, 50);
  try {
    await scripted.open();
    expect(scripted.events).toBeGreaterThan(0);
    const paths = () => urls.map((url) => url.slice(adminUrl.length));
    const wanted = shapeOf(paths());
    expect(wanted.first).toEqual(['/console', '/console/live']);
    await until(
      () => shapeOf(scripted.asked).repeated.length >= wanted.repeated.length,
      'the repeated requests',
    );
    expect(shapeOf(scripted.asked)).toEqual(wanted);
    // Each of them four times in that minute.
    const counts = wanted.repeated.map((path) => paths().filter((each) => each === path).length);
    expect(counts).toEqual(wanted.repeated.map(() => 4));
  } finally {
    scripted.close();
  }
});
