// A page with a search and the list that it finds, read by a route of the API.
import { type Html, html, NOTHING } from '../../billing/pages/page-frame.ts';
import { packageScript } from '../../billing/pages/page-scripts.ts';
import type { ConsoleRequest } from '../console-page.ts';
import { readRoute } from './page-call.ts';
import {
  asOf,
  type Column,
  card,
  type Field,
  listOf,
  member,
  nextLink,
  searchForm,
  table,
} from './record-view.ts';

/** Id of the part that a search replaces. */
export const LIST = 'list';
/** Replaces lists while somebody types, and parts that follow by themselves. */
export const FRAGMENTS = packageScript('console/pages/fragments.js');

/** What pages with a list have in common, and those of single records. */
export const LISTED = { isListed: true, role: 'viewer', scripts: [FRAGMENTS] } as const;
export const WITHIN = { isListed: false, role: 'viewer' } as const;

const ROWS = 50;
/** Pages of the API that one page reads at most: some tenths of a second among a million holders. */
const MAX_READS = 5;

interface ListPage {
  readonly title: string;
  /** Name of the route of the API. */
  readonly route: string;
  /** Of the search, by the names of the query. */
  readonly fields: readonly Field[];
  readonly columns: readonly Column[];
}

export async function listPage(
  request: ConsoleRequest,
  { title, route, fields, columns }: ListPage,
): Promise<Html> {
  const { desk, url } = request;
  const names = [...fields.map(({ name }) => name), 'cursor'];
  const query = Object.fromEntries(names.map((name) => [name, url.searchParams.get(name) ?? '']));
  const found = await readItems(request, route, query);
  const search =
    fields.length === 0 ? html`` : card('search', 'Search', searchForm(request, fields, 'Search', LIST));
  const part = foundPart(title, columns, found.items, nextLink(url, found, found.items.length < ROWS));
  return html`<h1>${title}</h1>${asOf(desk.now())}${search}
${card('found', 'Found', part)}`;
}

/** A page of a search may end before it is full, so some are read. */
async function readItems(
  request: ConsoleRequest,
  route: string,
  query: Readonly<Record<string, string>>,
): Promise<{ readonly items: readonly object[]; readonly next_cursor: unknown }> {
  const first = await readRoute(request, route, { query });
  const items = [...listOf(first, 'items')];
  let cursor = member(first, 'next_cursor');
  for (let reads = 1; reads < MAX_READS && typeof cursor === 'string' && items.length < ROWS; reads += 1) {
    const rest = { ...query, cursor, limit: String(ROWS - items.length) };
    const found = await readRoute(request, route, { query: rest });
    items.push(...listOf(found, 'items'));
    cursor = member(found, 'next_cursor');
  }
  return { items, next_cursor: cursor };
}

/** What a search finds, with the number of it for screen readers. */
export function foundPart(
  title: string,
  columns: readonly Column[],
  items: readonly object[],
  next = NOTHING,
): Html {
  return html`<p class="soft" id="count" role="status">${countText(items.length, next !== NOTHING)}</p>
<div id="${LIST}">${table(title, columns, items)}${next}</div>`;
}

function countText(count: number, hasMore: boolean): string {
  if (count === 0) return hasMore ? 'Nothing found so far.' : 'Nothing found.';
  if (!hasMore) return `${count} found.`;
  return count < ROWS ? `${count} found so far.` : `The first ${count}; there are more.`;
}
