// The pages of the console, in the order of the navigation.
import type { ConsolePage } from './console-page.ts';
import { NOW_PAGE } from './pages/now-page.ts';
import { OWNER_PAGES } from './pages/owner-pages.ts';
import { REPORT_PAGES } from './pages/report-pages.ts';
import { UPSTREAM_PAGES } from './pages/upstream-pages.ts';

export const CONSOLE_PAGES: readonly ConsolePage[] = [
  NOW_PAGE,
  ...UPSTREAM_PAGES,
  ...OWNER_PAGES,
  ...REPORT_PAGES,
];
