// A page with a search and the list that it finds, read by a route of the API.
import { type Html, html } from '../../billing/pages/page-frame.ts';
import type { ConsoleRequest } from '../console-page.ts';
import { readRoute } from './page-call.ts';
import { asOf, type Column, card, type Field, listOf, nextLink, searchForm, table } from './record-view.ts';

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
  const search = fields.length === 0 ? html`` : card('search', 'Search', searchForm(request, fields));
  return html`<h1>${title}</h1>${asOf(desk.now())}${search}
${card('found', 'Found', html`${table(title, columns, listOf(found, 'items'))}${nextLink(url, found)}`)}`;
}
