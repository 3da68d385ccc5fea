// Pages of the operators: all of them with the form that makes one, and one with what replaces or ends its token.
import { type Html, html } from '../../billing/pages/page-frame.ts';
import { ROLES } from '../../store/operator-record.ts';
import type { ConsolePage, ConsoleRequest } from '../console-page.ts';
import { listPage } from './list-page.ts';
import { readRoute } from './page-call.ts';
import { actionForm, asOf, card, facts, field, link, member, REASON, shown } from './record-view.ts';

const PATH = '/console/operators';
const EXPIRES = field('text.expires', 'Expires', 'such as 30d or 2030-01-31; empty: 90d');

const expiry = (record: object) => member(record, 'expires_at') ?? 'never';

const OPERATOR_LIST = {
  title: 'Operators',
  route: 'operators.list',
  fields: [],
  columns: [
    ['name', (record: object) => link(PATH, member(record, 'name'))],
    'role',
    'prefix',
    'created_at',
    ['expires_at', (record: object) => shown(expiry(record))],
    'last_used',
  ] as const,
};

async function operatorsPage(request: ConsoleRequest): Promise<Html> {
  const add = actionForm(request, 'operators.add', 'Add an operator', {
    role: 'admin',
    back: PATH,
    fields: [
      field('text.name', 'Name', 'letters, digits and . _ @ + -'),
      { name: 'text.role', label: 'Role', options: ROLES },
      EXPIRES,
      REASON,
    ],
  });
  return html`${await listPage(request, OPERATOR_LIST)}${card('add', 'New operator', add)}`;
}

async function operatorPage(request: ConsoleRequest): Promise<Html> {
  const { id, desk } = request;
  const record = await readRoute(request, 'operators.show', { params: { name: id } });
  const own = { role: 'admin', params: { name: id }, record } as const;
  const back = `${PATH}/${encodeURIComponent(id)}`;
  const actions = [
    actionForm(request, 'operators.rotate', 'Replace the token', {
      ...own,
      back,
      fields: [EXPIRES, REASON],
      warning: 'The new token is shown once. The old one and the sessions of the operator end at once.',
    }),
    actionForm(request, 'operators.remove', 'Remove', {
      ...own,
      back: PATH,
      fields: [REASON],
      warning: 'The token and the sessions of the operator end at once. Events keep the name.',
    }),
  ];
  return html`<h1>Operator ${String(member(record, 'name'))}</h1>${asOf(desk.now())}
${card('facts', 'Facts', facts({ ...record, expires_at: expiry(record) }, ['name']))}
${card('actions', 'Changes', actions)}
<p><a href="/console/events?actor=${encodeURIComponent(`operator:${member(record, 'name')}`)}">What the operator did</a></p>`;
}

export const OPERATOR_PAGES: readonly ConsolePage[] = [
  { path: PATH, name: 'Operators', isListed: true, role: 'admin', render: operatorsPage },
  { path: `${PATH}/:id`, name: 'Operator', isListed: false, role: 'admin', render: operatorPage },
];
