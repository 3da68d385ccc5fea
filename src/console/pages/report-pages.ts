// Pages of usage, models, orders and events.
import { type Html, html } from '../../billing/pages/page-frame.ts';
import { TIERS } from '../../config/schema/config-schema.ts';
import { ORDER_STATES } from '../../store/billing-record.ts';
import { argvOf, done } from '../command-runner.ts';
import type { ConsolePage, ConsoleRequest } from '../console-page.ts';
import { foundPart, LIST, LISTED, listPage, WITHIN } from './list-page.ts';
import { readRoute } from './page-call.ts';
import {
  actionForm,
  asOf,
  bars,
  card,
  type Field,
  facts,
  field,
  link,
  listOf,
  member,
  ORDER_COLUMNS,
  REASON,
  searchForm,
  table,
  titleOf,
} from './record-view.ts';

/** Lines of usage on a page; the CSV has all. */
const MAX_LINES = 500;
const USAGE_FIELDS: readonly Field[] = [
  { name: 'since', label: 'Since', value: '7d', hint: 'such as 7d or 2030-01-31' },
  { name: 'until', label: 'Until' },
  { name: 'month', label: 'Month', hint: 'in place of both: 2030-01' },
  { name: 'by', label: 'By', value: 'day', hint: 'such as team,model' },
  { name: 'team', label: 'Team' },
  { name: 'model', label: 'Model' },
];

function usageQuery(url: URL): Record<string, string> {
  const given = Object.fromEntries(
    USAGE_FIELDS.map(({ name, value = '' }) => [name, url.searchParams.get(name) ?? value]),
  );
  if (given['month'] !== '') return { ...given, since: '', until: '' };
  return given;
}

/** The report as CSV, as `tollgate usage --csv` prints it. */
export async function usageCsv({ desk, url }: Pick<ConsoleRequest, 'desk' | 'url'>): Promise<string> {
  const query = Object.fromEntries(Object.entries(usageQuery(url)).filter(([, value]) => value !== ''));
  return (await done(desk, argvOf(['usage'], null, { ...query, csv: true }))).stdout;
}

async function usagePage(request: ConsoleRequest): Promise<Html> {
  const { url, desk } = request;
  const query = usageQuery(url);
  const report = await readRoute(request, 'usage.report', { query: { ...query, limit: String(MAX_LINES) } });
  const rows = listOf(report, 'lines');
  const totals: unknown = member(report, 'totals');
  const columns = Object.keys(rows[0] ?? {});
  const csv = new URLSearchParams(query).toString();
  const isCut = member(report, 'truncated') === true;
  return html`<h1>Usage</h1>${asOf(desk.now())}
${card('period', 'Period', searchForm(request, USAGE_FIELDS, 'Show'))}
${card(
  'sums',
  'Sums',
  html`${typeof totals === 'object' && totals !== null ? facts(totals) : html``}
${bars('Requests', rows, 'requests')}${bars('Cost', rows, 'cost')}
${isCut ? html`<p class="soft">The first ${rows.length} lines; the sums above include all, and the CSV has them.</p>` : html``}
${table('Usage', columns, rows)}<p><a href="/console/usage.csv?${csv}">As CSV</a></p>`,
)}`;
}

const MODEL_SEARCH: readonly Field[] = [{ name: 'name', label: 'Name of the model', type: 'search' }];

async function modelsPage(request: ConsoleRequest): Promise<Html> {
  // Of the two forms only the other one can be rejected.
  const { rejected: _rejected, ...plain } = request;
  const { url, desk } = request;
  const routes = await readRoute(request, 'routes.list');
  const model = url.searchParams.get('model') ?? '';
  const tier = url.searchParams.get('tier') ?? '';
  const key = url.searchParams.get('key') ?? '';
  const argv = argvOf(['explain'], null, { model, ...(tier !== '' && { tier }), ...(key !== '' && { key }) });
  const explained = model === '' ? undefined : (await done(desk, argv)).stdout;
  const wanted = (url.searchParams.get('name') ?? '').toLowerCase();
  const models = listOf(routes, 'items').filter((each) =>
    String(member(each, 'model')).toLowerCase().includes(wanted),
  );
  const columns = [
    'model',
    'tiers',
    'endpoints',
    ['targets', (record: object) => targets(member(record, 'targets'))],
    [
      'explain',
      (record: object) =>
        html`<a href="/console/models?model=${encodeURIComponent(String(member(record, 'model')))}">Explain</a>`,
    ],
  ] as const;
  return html`<h1>Models</h1>${asOf(desk.now())}
${card(
  'explain',
  'Where would a request go?',
  html`${searchForm(
    request,
    [
      { name: 'model', label: 'Model' },
      { name: 'tier', label: 'Tier', options: ['', ...TIERS] },
      { name: 'key', label: 'Key or holder', hint: 'a prefix or an id, in place of the tier' },
    ],
    'Explain',
  )}${explained === undefined ? html`` : html`<pre tabindex="0">${explained}</pre>`}`,
)}
${card('routes', 'Routes', html`${searchForm(plain, MODEL_SEARCH, 'Search', LIST)}${foundPart('Routes', columns, models)}`)}`;
}

function targets(value: unknown): Html {
  const each = (Array.isArray(value) ? value : []).map(
    (target: object) =>
      html`<li>${String(member(target, 'upstream'))}: ${String(member(target, 'model'))}, weight ${String(member(target, 'weight'))}, priority ${String(member(target, 'priority'))}</li>`,
  );
  return html`<ul class="plain">${each}</ul>`;
}

async function orderPage(request: ConsoleRequest): Promise<Html> {
  const { id, desk } = request;
  const record = await readRoute(request, 'orders.show', { params: { order: id } });
  const back = `/console/orders/${encodeURIComponent(id)}`;
  const own = { role: 'support', params: { order: id }, record, back } as const;
  const actions = [
    actionForm(request, 'orders.check', 'Ask the provider again', { ...own }),
    actionForm(request, 'orders.paid', 'Mark as paid', {
      ...own,
      fields: [
        field('text.until', 'Until', 'such as 2030-01-31; empty: for good, where it is paid once'),
        REASON,
      ],
    }),
    actionForm(request, 'orders.cancel', 'Cancel', {
      ...own,
      fields: [
        { name: 'flag.now', label: 'At once', type: 'checkbox' },
        { name: 'flag.undo', label: 'Undo a cancellation', type: 'checkbox' },
        REASON,
      ],
      warning: 'The subscription ends with its period.',
    }),
    actionForm(request, 'orders.refund', 'Refund', {
      ...own,
      fields: [REASON],
      warning: 'The payment goes back, and the holder falls to Free.',
    }),
  ];
  return html`<h1>Order ${id}</h1>${asOf(desk.now())}
${card('facts', 'Facts', html`<p>${link('/console/holders', member(record, 'holder'), 'To the holder')}</p>${facts(record)}`)}
${card('actions', 'Changes', actions)}`;
}

const ORDER_LIST = {
  title: 'Orders',
  route: 'orders.list',
  columns: ORDER_COLUMNS,
  fields: [{ name: 'state', label: 'State', options: ['', ...ORDER_STATES] }],
};
const EVENT_LIST = {
  title: 'Events',
  route: 'events.list',
  fields: ['actor', 'what', 'target'].map((name) => ({ name, label: titleOf(name) })),
  columns: ['at', 'actor', 'address', 'what', 'target', 'reason', 'status'],
};

export const REPORT_PAGES: readonly ConsolePage[] = [
  { path: '/console/usage', name: 'Usage', isListed: true, role: 'viewer', render: usagePage },
  { ...LISTED, path: '/console/models', name: 'Models', render: modelsPage },
  { ...LISTED, path: '/console/orders', name: 'Orders', render: (request) => listPage(request, ORDER_LIST) },
  { ...WITHIN, path: '/console/orders/:id', name: 'Order', render: orderPage },
  {
    ...LISTED,
    path: '/console/events',
    name: 'Events',
    role: 'support',
    render: (request) => listPage(request, EVENT_LIST),
  },
];
