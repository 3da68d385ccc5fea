// Makes the pictures of the pages: all of them, on both themes and both widths, into a directory of one's own, or those that
// docs/pages.md shows, as small WebP. `node test/pages/pictures.ts [DIRECTORY]`
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launchBrowser, type Page } from '../helpers/browser.ts';
import { startGateway } from '../helpers/gateway.ts';
import { TEST_SHOP } from './sample.ts';
import { type Look, tourAccount, tourFree, tourOrder, tourPortal, tourUpgrade } from './tour.ts';
import { THEMES, Visit, WIDTHS } from './visit.ts';
import { asWebp } from './webp.ts';

/** In the documentation: light and wide, … */
const SHOWN = [
  'pricing',
  'key',
  'test-payment',
  'complete-paid',
  'cancelled',
  'account',
  'subscription',
  'portal',
  'portal-cancelled',
  'subscription-cancelled',
];
/** … and dark on a phone, by a name of its own. */
const SHOWN_ON_PHONE = ['pricing'];
const EXAMPLE = '0123456789abcdef'.repeat(2);
const DOCS = fileURLToPath(new URL('../../docs/pictures/', import.meta.url));

/** No key that was ever one is in a picture that is kept. */
async function hideKeys(page: Page): Promise<void> {
  await page.evaluate(`(() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      text.data = text.data.replace(/\\b[0-9a-f]{32}\\b/g, '${EXAMPLE}');
    }
  })()`);
}

const [directory] = process.argv.slice(2);
await mkdir(directory ?? DOCS, { recursive: true });
await using gateway = await startGateway({ config: TEST_SHOP });
const browser = await launchBrowser();
const encoder = await browser.newPage();
try {
  for (const theme of THEMES) {
    for (const width of WIDTHS) {
      const pathOf = (page: string): string | undefined => {
        if (directory !== undefined) return join(directory, `${page}-${theme}-${width}.png`);
        if (theme === 'light' && width === 1280 && SHOWN.includes(page)) return join(DOCS, `${page}.webp`);
        if (theme === 'dark' && width === 390 && SHOWN_ON_PHONE.includes(page))
          return join(DOCS, `${page}-phone.webp`);
        return undefined;
      };
      await using visit = await Visit.begin(browser, gateway.url, { theme, width });
      const look: Look = async (page) => {
        const path = pathOf(page);
        if (path === undefined) return;
        // The documentation shows a page of few words without the emptiness below it.
        const isShort = directory === undefined && (await visit.page.locator('.outcome').count()) > 0;
        if (directory === undefined) await hideKeys(visit.page);
        await visit.page.setViewportSize({ width, height: isShort ? 560 : 900 });
        const png = await visit.page.screenshot({ fullPage: page !== 'confirm', animations: 'disabled' });
        await writeFile(path, directory === undefined ? await asWebp(encoder, png) : png);
      };
      await tourFree(visit, look);
      await tourOrder(visit, gateway, look);
      await tourAccount(visit, gateway, look);
      await visit.page.unroute('**/admin/usage*');
      await tourUpgrade(visit, gateway, look);
      await tourPortal(visit, look, await gateway.issueKey('Free'));
      const faults = visit.faults.filter((fault) => !/responded with a status of [45]/.test(fault));
      if (faults.length > 0) throw new Error(faults.join('\n'));
    }
  }
} finally {
  await browser.close();
}
