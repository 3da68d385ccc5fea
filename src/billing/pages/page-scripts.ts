// The scripts of the pages: plain files, read once, put into the page and allowed by their hash. They are written as
// browsers run them, without a step in between, so that whoever opens the source of a page can read it.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

export interface Script {
  readonly text: string;
  /** As a source in a policy (CSP 3, 2.3.1): `sha256-…`. */
  readonly hash: string;
}

/** Buttons that copy. */
export const COPY = readScript('copy.js');
/** The page of a key that was just made. */
export const KEY = readScript('key.js');
/** The account page. */
export const ACCOUNT = readScript('charts.js', 'standing.js', 'account.js');

/** Several files become one script, in one scope. */
function readScript(...names: readonly string[]): Script {
  const read = (name: string) => readFileSync(new URL(`./browser/${name}`, import.meta.url), 'utf8');
  const text = `\n${names.map(read).join('\n')}`;
  return { text, hash: hashSource(text) };
}

/** The source that allows an inline text in a policy. */
export function hashSource(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
