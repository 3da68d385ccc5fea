// The scripts of the pages: plain files without a build step, read once, inlined into the page and allowed by their hash.
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { packageFile } from '../../package-files.ts';

export interface Script {
  readonly text: string;
  /** As a source in a policy (CSP 3, 2.3.1): `sha256-…`. */
  readonly hash: string;
}

/** The copy buttons. */
export const COPY = readScript('copy.js');
/** The page of a new key. */
export const KEY = readScript('key.js');
export const ACCOUNT = readScript('charts.js', 'standing.js', 'account.js');

function readScript(...names: readonly string[]): Script {
  return packageScript(...names.map((name) => `billing/pages/browser/${name}`));
}

/** Joins several files to one script with one scope. @param paths from `src/` */
export function packageScript(...paths: readonly string[]): Script {
  const text = `\n${paths.map((path) => readFileSync(packageFile(path), 'utf8')).join('\n')}`;
  return { text, hash: hashSource(text) };
}

/** The source of an inline text for a content security policy. */
export function hashSource(text: string): string {
  return `sha256-${hash('sha256', text, 'base64')}`;
}
