// Figures in the documentation: blocks between two comments, each filled by the command that stands beside it. What is
// outside of them is written by hand.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const PAGE = fileURLToPath(new URL('../docs/performance.md', import.meta.url));

/**
 * Replaces the content of blocks: what stands between `<!-- figures NAME -->` and the next `<!-- end -->`.
 * @param blocks name → content, in Markdown
 * @returns the page with them
 * @throws Error if the page has no such block
 */
export function withBlocks(page: string, blocks: Readonly<Record<string, string>>): string {
  let result = page;
  for (const [name, content] of Object.entries(blocks)) {
    const opening = `<!-- figures ${name} -->\n`;
    const start = result.indexOf(opening);
    const end = start === -1 ? -1 : result.indexOf('<!-- end -->', start);
    if (end === -1) throw new Error(`the page has no block of figures ${name}`);
    result = `${result.slice(0, start + opening.length)}\n${content.trim()}\n\n${result.slice(end)}`;
  }
  return result;
}

/** The same with docs/performance.md. */
export function fillBlocks(blocks: Readonly<Record<string, string>>): void {
  writeFileSync(PAGE, withBlocks(readFileSync(PAGE, 'utf8'), blocks));
}
