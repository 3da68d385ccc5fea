// Budgets near their end: a part of *Now*, and a page of their own.
import { type Html, html } from '../../billing/pages/page-frame.ts';
import type { ConsolePage, ConsoleRequest } from '../console-page.ts';
import { FRAGMENTS } from './list-page.ts';
import { readRoute } from './page-call.ts';
import { asOf, card, link, listOf, member, shown, table } from './record-view.ts';

/** Of the part of *Now*; the page has all that are known. */
const NEAREST = 10;

/** @param most the number of budgets that are shown */
async function nearest(request: ConsoleRequest, most: number): Promise<Html> {
  const found = await readRoute(request, 'budgets.list');
  const items = listOf(found, 'items');
  const currency = String(member(found, 'currency') ?? '');
  const amount = (record: object, name: string) => html`${shown(member(record, name))} ${currency}`;
  const columns = [
    ['whose', budgetOwner],
    ['share', (record: object) => share(Number(member(record, 'share')))],
    ['used', (record: object) => amount(record, 'used')],
    ['budget', (record: object) => html`${amount(record, 'budget')} a ${String(member(record, 'window'))}`],
  ] as const;
  const more =
    items.length > most ? html`<p>${link('/console', 'budgets', `All ${items.length}`)}</p>` : html``;
  return html`<div id="near" data-follows="/console/budgets${most === NEAREST ? `?most=${most}` : ''}">${table('Budgets near their end', columns, items.slice(0, most))}${more}</div>`;
}

/** The owner of a budget, with a link to its record. */
export function budgetOwner(record: object): Html {
  const [scope, id, model] = ['scope', 'id', 'model'].map((name) => member(record, name));
  const kind = scope === 'model' ? 'holder' : String(scope);
  const text = member(record, 'name') ?? String(id).slice(0, 8);
  const what = scope === 'model' ? `holder, with ${String(model)}` : kind;
  return html`${link(`/console/${kind}s`, id, text)} <span class="soft">${what}</span>`;
}

function share(value: number): Html {
  const text = `${Math.floor(value * 100)} %`;
  return html`<span class="${value >= 1 ? 'badge bad' : 'badge'}">${text}</span>`;
}

/** The part of *Now*. */
export async function budgetCard(request: ConsoleRequest): Promise<Html> {
  return card('budgets', 'Budgets near their end', await nearest(request, NEAREST));
}

export const BUDGET_PAGE: ConsolePage = {
  path: '/console/budgets',
  name: 'Budgets',
  isListed: false,
  role: 'viewer',
  scripts: [FRAGMENTS],
  render: async (request) => {
    const most =
      request.url.searchParams.get('most') === String(NEAREST) ? NEAREST : Number.POSITIVE_INFINITY;
    return html`<h1>Budgets near their end</h1>${asOf(request.desk.now())}
${card('budgets', 'Of this day and this month', await nearest(request, most))}`;
  },
};
