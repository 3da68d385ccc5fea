// A visit of the pages with a real browser: one profile, one theme, one width, and everything noted that must not happen on
// pages that load nothing and run only what they came with.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from '../helpers/browser.ts';
import type { Report } from './sample.ts';

export const THEMES = ['light', 'dark'] as const;
/** A phone and a wide screen, in CSS pixels. */
export const WIDTHS = [390, 1280] as const;

export interface VisitOptions {
  readonly theme?: (typeof THEMES)[number];
  readonly width?: number;
  /** Default true. */
  readonly scripts?: boolean;
  readonly mayCopy?: boolean;
  /** Language and region of the reader. */
  readonly locale?: string;
}

/** Minified, because each document that is judged compiles it anew. */
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let visits = 0;

export class Visit implements AsyncDisposable {
  readonly page: Page;
  /** Errors and warnings of the console, faults of scripts, requests to elsewhere. Violations of the policy are among them. */
  readonly faults: string[] = [];
  /** All URLs that were asked for. */
  readonly urls: string[] = [];

  #theme: (typeof THEMES)[number];

  private constructor(page: Page, origin: string, theme: (typeof THEMES)[number]) {
    this.page = page;
    this.#theme = theme;
    // What waits here waits for the browser to do its work; on a slow machine that has no deadline but the test's.
    page.setDefaultTimeout(0);
    page.setDefaultNavigationTimeout(0);
    page.on('console', (message) => {
      if (/^(error|warning)$/.test(message.type())) this.faults.push(`console: ${message.text()}`);
    });
    page.on('pageerror', (error) => void this.faults.push(`script: ${error.message}`));
    page.on('request', (request) => {
      this.urls.push(request.url());
      if (!/^(data|blob|about):/.test(request.url()) && new URL(request.url()).origin !== origin) {
        this.faults.push(`request to ${request.url()}`);
      }
    });
  }

  /** @param origin of the gateway */
  static async begin(browser: Browser, origin: string, options: VisitOptions = {}): Promise<Visit> {
    const { theme = 'light', width = 1280, scripts = true, mayCopy = false, locale = 'en-US' } = options;
    visits += 1;
    const context = await browser.newContext({
      baseURL: origin,
      colorScheme: theme,
      locale,
      viewport: { width, height: 900 },
      javaScriptEnabled: scripts,
      // Each visitor has an address of its own, for a gateway that believes it: orders of one address are limited. They are loopback
      // addresses, because test payments are for this machine alone.
      extraHTTPHeaders: { 'x-forwarded-for': `127.1.${visits >> 8}.${visits & 255}` },
      permissions: mayCopy ? ['clipboard-read', 'clipboard-write'] : [],
    });
    return new Visit(await context.newPage(), origin, theme);
  }

  /** Presses the button of the Free tier. */
  async takeFreeKey(): Promise<string> {
    const { page } = this;
    await page.goto('/pricing');
    await page.getByRole('button', { name: 'Get a Free key' }).click();
    await page.getByRole('heading', { level: 1, name: 'Your Free key' }).waitFor();
    return (await page.locator('pre.key').textContent()) ?? '';
  }

  /** Enters the key on the account page, which shows what it was used for. */
  async enter(key: string): Promise<void> {
    const { page } = this;
    await page.goto('/account');
    await page.getByLabel('API key').fill(key);
    await page.getByRole('button', { name: 'Show usage' }).click();
    await page.locator('#report').waitFor();
    // The facts of the key come after the report, and until then the page ignores its other buttons.
    await page.locator('#enter').waitFor({ state: 'hidden' });
  }

  /** Chooses a tier on the page of the tiers, and comes to the page where its payment is played. @returns its address */
  async choose(tier: string): Promise<string> {
    const { page } = this;
    await page.goto('/pricing');
    await page.getByRole('button', { name: `Choose ${tier}` }).click();
    await page.getByRole('heading', { level: 1, name: 'Test payment' }).waitFor();
    return page.url();
  }

  /** Presses a button of that page. @returns the address of the page of the order, which the browser is on now */
  async press(button: 'Pay' | 'Decline', heading: string): Promise<string> {
    await this.page.getByRole('button', { name: `${button} (test)` }).click();
    await this.title(heading);
    return this.page.url();
  }

  async title(text: string): Promise<void> {
    await this.page.getByRole('heading', { level: 1, name: text }).waitFor();
  }

  /** From now on the gateway seems to answer with this report, of whichever key asks. */
  async report(reportOf: (prefix: string) => Report): Promise<void> {
    await this.page.route('**/admin/usage*', async (route) => {
      const key = /^Bearer ([0-9a-f]{32})$/.exec(route.request().headers()['authorization'] ?? '')?.[1] ?? '';
      await route.fulfill({ json: reportOf(key.slice(0, 8)) });
    });
  }

  /** Shows the current page in another theme and at another width. Only what differs is set, because the browser draws all anew. */
  async look(theme: (typeof THEMES)[number], width: number): Promise<void> {
    if (this.#theme !== theme) await this.page.emulateMedia({ colorScheme: theme });
    this.#theme = theme;
    const size = this.page.viewportSize();
    if (size?.width !== width || size.height !== 900) await this.page.setViewportSize({ width, height: 900 });
  }

  /**
   * What axe finds, as `rule: element`. Nothing of it runs in the page under its policy.
   * @param rules all that axe has, or those of colours: what else axe judges is the same in both themes
   */
  async axe(rules: 'all' | 'colours' = 'all'): Promise<string[]> {
    if ((await this.page.evaluate('typeof axe')) === 'undefined') await this.page.evaluate(AXE);
    const runOnly = rules === 'all' ? undefined : { type: 'tag', values: ['cat.color'] };
    const results: unknown = await this.page.evaluate(
      `axe.run(document, ${JSON.stringify({ resultTypes: ['violations'], runOnly })}).then(({ violations }) => violations.flatMap(
        ({ id, nodes }) => nodes.map(({ target, failureSummary }) => id + ': ' + target.join(' ') + ': ' + failureSummary)))`,
    );
    return Array.isArray(results) ? results.map(String) : ['axe did not run'];
  }

  /** Whether something is wider than the window. */
  async overflow(): Promise<number> {
    return Number(
      await this.page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth'),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.page.context().close();
  }
}
