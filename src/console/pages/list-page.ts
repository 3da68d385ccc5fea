// A page with a search and the list that it finds, read by a route of the API.
import { type Html, html, NOTHING } from '../../billing/pages/page-frame.ts';
import { packageScript } from '../../billing/pages/page-scripts.ts';
import type { ConsoleRequest } from '../console-page.ts';
import { readRoute } from './page-call.ts';
import { asOf, type Column, card, type Field, listOf, nextLink, searchForm, table } from './record-view.ts';

/** Id of the part that a search replaces. */
export const LIST = 'list';
/** Replaces lists while somebody types, and parts that follow by themselves. */
export const FRAGMENTS = packageScript('console/pages/fragments.js');

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
  const found = await readRoute(request, route, { query });
  const search =
    fields.length === 0 ? html`` : card('search', 'Search', searchForm(request, fields, 'Search', LIST));
  const part = foundPart(title, columns, listOf(found, 'items'), nextLink(url, found));
  return html`<h1>${title}</h1>${asOf(desk.now())}${search}
${card('found', 'Found', part)}`;
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
  if (count === 0) return 'Nothing found.';
  return hasMore ? `The first ${count}; there are more.` : `${count} found.`;
}
