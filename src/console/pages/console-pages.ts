// The pages of the console, in the order of the navigation, and which one a path leads to.
import type { ConsolePage } from '../console-page.ts';
import { BUDGET_PAGE } from './budget-pages.ts';
import { NOW_PAGE } from './now-page.ts';
import { OPERATOR_PAGES } from './operator-pages.ts';
import { OWNER_PAGES } from './owner-pages.ts';
import { REPORT_PAGES } from './report-pages.ts';
import { UPSTREAM_PAGES } from './upstream-pages.ts';

export const CONSOLE_PAGES: readonly ConsolePage[] = [
  NOW_PAGE,
  BUDGET_PAGE,
  ...UPSTREAM_PAGES,
  ...OWNER_PAGES,
  ...REPORT_PAGES,
  ...OPERATOR_PAGES,
];

/** The page of a path, and the last segment of one that ends with `:id`; undefined for other paths. */
export function findPage(path: string): { readonly page: ConsolePage; readonly id: string } | undefined {
  const bare = path.length > 1 ? path.replace(/\/$/, '') : path;
  const at = bare.lastIndexOf('/');
  const page = CONSOLE_PAGES.find((each) => each.path === bare || each.path === `${bare.slice(0, at)}/:id`);
  if (page === undefined) return undefined;
  try {
    return { page, id: page.path.endsWith('/:id') ? decodeURIComponent(bare.slice(at + 1)) : '' };
  } catch {
    return undefined;
  }
}
