// Makes the pictures of the pages: all of them, on both themes and both widths, into a directory of one's own, or the one of
// each that docs/pages.md shows. `node test/pages/pictures.ts [DIRECTORY]`
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launchBrowser } from '../helpers/browser.ts';
import { startGateway } from '../helpers/gateway.ts';
import { SHOP, sampleReport } from './sample.ts';
import { THEMES, Visit, WIDTHS } from './visit.ts';

/** In the documentation. */
const SHOWN = ['pricing', 'key', 'account'];
const DOCS = fileURLToPath(new URL('../../docs/pictures/', import.meta.url));

/** One file for each page: the pages in the order in which a holder sees them. */
async function take(name: (page: string) => string | undefined, visit: Visit): Promise<void> {
  const shoot = async (page: string): Promise<void> => {
    const path = name(page);
    if (path !== undefined)
      await visit.page.screenshot({ path, fullPage: page !== 'confirm', animations: 'disabled' });
  };
  await visit.page.goto('/pricing');
  await shoot('pricing');
  const key = await visit.takeFreeKey();
  await shoot('key');
  await visit.report((prefix) => sampleReport(prefix, ['gpt-4o-mini', 'gpt-4o', 'mistral-small']));
  await visit.page.goto('/account');
  await shoot('enter');
  await visit.page.getByLabel('API key').fill('not a key');
  await visit.page.getByRole('button', { name: 'Show usage' }).click();
  await shoot('complaint');
  await visit.enter(key);
  await shoot('account');
  await visit.page.getByRole('button', { name: 'Replace this key…' }).click();
  await shoot('confirm');
  await visit.page.getByRole('button', { name: 'Replace it now' }).click();
  await visit.page.locator('#fresh').waitFor();
  await shoot('rotated');
}

const [directory] = process.argv.slice(2);
await mkdir(directory ?? DOCS, { recursive: true });
await using gateway = await startGateway({ config: SHOP });
const browser = await launchBrowser();
try {
  for (const theme of THEMES) {
    for (const width of WIDTHS) {
      if (directory === undefined && (theme !== 'light' || width !== 1280)) continue;
      await using visit = await Visit.begin(browser, gateway.url, { theme, width });
      const name = (page: string): string | undefined => {
        if (directory !== undefined) return join(directory, `${page}-${theme}-${width}.png`);
        return SHOWN.includes(page) ? join(DOCS, `${page}.png`) : undefined;
      };
      await take(name, visit);
      if (visit.faults.length > 0) throw new Error(visit.faults.join('\n'));
    }
  }
} finally {
  await browser.close();
}
