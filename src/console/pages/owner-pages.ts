// Pages of keys, holders and teams: search, one record with what can be changed, and the form that issues keys.
import { type Html, html } from '../../billing/pages/page-frame.ts';
import { TIERS } from '../../config/schema/config-schema.ts';
import { formatDuration } from '../../config/schema/units.ts';
import { BILLING_STATUSES } from '../../store/key-record.ts';
import type { ConsolePage, ConsoleRequest } from '../console-page.ts';
import { KEYS_OF_HOLDER, SHOWN_STATES } from '../owner-records.ts';
import { LISTED, listPage, WITHIN } from './list-page.ts';
import {
  expiryField,
  FORCE,
  labelsField,
  nameField,
  OF_HOLDER,
  OF_ITS_OWN,
  OF_NEW_HOLDER,
  OF_NEW_KEY,
  TERMS_REMOVED,
  teamField,
  termsInputs,
} from './owner-fields.ts';
import { readRoute } from './page-call.ts';
import {
  type Action,
  actionForm,
  asOf,
  card,
  type Field,
  facts,
  field,
  link,
  listOf,
  member,
  ORDER_COLUMNS,
  REASON,
  table,
} from './record-view.ts';

const ANY_TIER: Field = { name: 'tier', label: 'Tier', options: ['', ...TIERS] };
const OF_HOLDERS: readonly Field[] = [
  { name: 'name', label: 'Name of the holder', type: 'search' },
  { name: 'team', label: 'Team' },
  { name: 'label', label: 'Label', hint: 'NAME=VALUE' },
  ANY_TIER,
];

/** @param name of the member with the name; a holder without one is shown by the start of its id */
function holderLink(record: object, name: string): Html {
  const id = member(record, 'holder');
  return link('/console/holders', id, member(record, name) ?? String(id).slice(0, 8));
}

const KEY_COLUMNS = [
  ['prefix', (record: object) => link('/console/keys', member(record, 'prefix'))],
  'name',
  ['holder', (record: object) => holderLink(record, 'holder_name')],
  'tier',
  'state',
  'standing',
  'last_used',
  'expires_at',
  'created_at',
] as const;

async function keyPage(request: ConsoleRequest): Promise<Html> {
  const { id, desk } = request;
  const record = await readRoute(request, 'keys.show', { params: { prefix: id } });
  const back = `/console/keys/${id}`;
  const own = { role: 'support', params: { prefix: id }, back } as const;
  const isActive = member(record, 'state') === 'active';
  const expiry = String(member(record, 'expires_at') ?? '').slice(0, 10);
  const actions = [
    actionForm(request, 'keys.set', 'Change', {
      ...own,
      record,
      removes: TERMS_REMOVED,
      fields: [nameField(record), expiryField(expiry), ...termsInputs(record, OF_ITS_OWN), FORCE, REASON],
    }),
    issueFor(request, id, back),
    ...(member(record, 'replaced_by') === null ? [rotation(request, own, record)] : []),
    actionForm(request, 'keys.revoke', 'Revoke', {
      ...own,
      record,
      fields: [REASON],
      warning:
        'A revoked key is rejected for good, in all replicas. A reason that begins with “compromised” also ends its running requests.',
    }),
  ];
  return html`<h1>Key ${id}</h1>${asOf(desk.now())}
${card('facts', 'Facts', html`<p>${link('/console/holders', member(record, 'holder'), 'To the holder')}</p>${facts(record, ['prefix', 'events', 'orders'])}`)}
${isActive ? card('actions', 'Changes', actions) : html``}
${card('history', 'History', table('Events', ['at', 'kind', 'version', 'actor', 'reason'], listOf(record, 'events')))}
${card('orders', 'Orders', table('Orders', ORDER_COLUMNS, listOf(record, 'orders')))}`;
}

/** @param id of the holder, or the prefix of one of its keys */
function issueFor(request: ConsoleRequest, id: string, back: string): Html {
  return actionForm(request, 'keys.issue', 'Issue another key for this holder', {
    role: 'support',
    back,
    fields: [{ name: 'text.for', label: 'For the holder', value: id }, ...OF_NEW_KEY, REASON],
  });
}

function rotation(
  request: ConsoleRequest,
  own: Pick<Action, 'role' | 'params' | 'back'>,
  record: object,
): Html {
  const max = request.desk.config().dynamic.auth.max_rotation_overlap;
  const hint = `such as 30m, at most ${formatDuration(max)}; empty: it ends at once`;
  const overlap = field('text.overlap', 'The old key stays valid for', hint);
  return actionForm(request, 'keys.rotate', 'Rotate', {
    ...own,
    record,
    fields: [...(max === 0 ? [] : [overlap]), REASON],
    warning: `The new key has the name, the expiry and the limits of this one, and is shown once.${max === 0 ? ' This key ends at once, in all replicas.' : ''}`,
  });
}

async function holderPage(request: ConsoleRequest): Promise<Html> {
  const { id, desk } = request;
  const record = await readRoute(request, 'holders.show', { params: { holder: id } });
  const back = `/console/holders/${encodeURIComponent(id)}`;
  const own = { role: 'support', params: { holder: id }, record, back } as const;
  const isSuspended = member(record, 'standing') === 'suspended';
  const actions = [
    actionForm(request, 'holders.set', 'Change', {
      ...own,
      removes: { ...TERMS_REMOVED, labels: 'null' },
      fields: [
        nameField(record),
        teamField(record),
        labelsField(record),
        ...termsInputs(record, OF_HOLDER),
        FORCE,
        REASON,
      ],
    }),
    actionForm(request, 'holders.tier', 'Change the tier', {
      ...own,
      fields: [
        { name: 'text.tier', label: 'Tier', options: TIERS, value: String(member(record, 'tier')) },
        REASON,
      ],
    }),
    issueFor(request, id, back),
    isSuspended
      ? actionForm(request, 'holders.resume', 'Resume', { ...own, fields: [REASON] })
      : actionForm(request, 'holders.suspend', 'Suspend', {
          ...own,
          fields: [REASON],
          warning: 'All keys of the holder are answered with 403 until you resume it.',
        }),
  ];
  const keys = listOf(record, 'keys');
  const all = html`<a href="/console/keys?holder=${String(member(record, 'holder'))}">all of its keys</a>`;
  return html`<h1>${String(member(record, 'name') ?? `Holder ${id.slice(0, 8)}`)}</h1>${asOf(desk.now())}
${card('facts', 'Facts', facts(record, ['keys', 'events', 'orders']))}
${card('actions', 'Changes', actions)}
${card('keys', 'Keys', html`${keys.length < KEYS_OF_HOLDER ? html`` : html`<p class="soft">The first ${keys.length}; ${all}.</p>`}${table('Keys', KEY_COLUMNS, keys)}`)}
${card('history', 'History', table('Events', ['at', 'kind', 'keys', 'actor', 'reason'], listOf(record, 'events')))}
${card('orders', 'Orders', table('Orders', ORDER_COLUMNS, listOf(record, 'orders')))}`;
}

async function teamPage(request: ConsoleRequest): Promise<Html> {
  const { id, desk } = request;
  const record = await readRoute(request, 'teams.show', { params: { name: id } });
  const back = `/console/teams/${encodeURIComponent(id)}`;
  const own = { role: 'admin', params: { name: id }, record, back } as const;
  const actions = [
    actionForm(request, 'teams.set', 'Change', {
      ...own,
      removes: { limits: 'null', budget: 'null', labels: 'null' },
      fields: [
        // Without a name it is rejected.
        { ...nameField(record), hint: '' },
        labelsField(record),
        ...termsInputs(record, OF_ITS_OWN),
        REASON,
      ],
    }),
    actionForm(request, 'teams.remove', 'Remove', {
      ...own,
      back: '/console/teams',
      fields: [REASON],
      warning: 'Only a team without holders can be removed. Its usage stays.',
    }),
  ];
  return html`<h1>Team ${id}</h1>${asOf(desk.now())}
${card('facts', 'Facts', facts(record, ['events']))}
${card('holders', 'Holders', html`<p><a href="/console/holders?team=${encodeURIComponent(id)}">Its holders</a> · <a href="/console/keys?team=${encodeURIComponent(id)}">their keys</a></p>`)}
${card('actions', 'Changes', actions)}
${card('history', 'History', table('Events', ['at', 'what', 'actor', 'reason'], listOf(record, 'events')))}`;
}

const KEY_SEARCH: readonly Field[] = [
  ...OF_HOLDERS,
  { name: 'state', label: 'State', options: ['', ...SHOWN_STATES] },
  { name: 'unused_since', label: 'Not used since', type: 'date' },
  { name: 'expires_before', label: 'Expires before', type: 'date' },
  { name: 'holder', label: 'Id of the holder' },
];
const KEY_LIST = { title: 'Keys', route: 'keys.list', fields: KEY_SEARCH, columns: KEY_COLUMNS };
const HOLDER_LIST = {
  title: 'Holders',
  route: 'holders.list',
  fields: [...OF_HOLDERS, { name: 'standing', label: 'Standing', options: ['', ...BILLING_STATUSES] }],
  columns: [
    ['holder', (record: object) => holderLink(record, 'name')],
    'team',
    'tier',
    'standing',
    'keys',
    'labels',
    'last_used',
    'created_at',
  ] as const,
};
const TEAM_SEARCH: readonly Field[] = [
  { name: 'name', label: 'Name', type: 'search' },
  { name: 'label', label: 'Label', hint: 'NAME=VALUE' },
];
const TEAM_LIST = {
  title: 'Teams',
  route: 'teams.list',
  fields: TEAM_SEARCH,
  columns: [
    ['name', (record: object) => link('/console/teams', member(record, 'name'))],
    'holders',
    'labels',
    'limits',
    'budget',
    'created_at',
  ] as const,
};

async function keysPage(request: ConsoleRequest): Promise<Html> {
  const issue = actionForm(request, 'keys.issue', 'Issue a key', {
    role: 'support',
    back: '/console/keys',
    fields: [{ name: 'text.tier', label: 'Tier', options: TIERS }, ...OF_NEW_HOLDER, ...OF_NEW_KEY, REASON],
  });
  return html`${await listPage(request, KEY_LIST)}${issue.text === '' ? issue : card('issue', 'New key', issue)}`;
}

async function teamsPage(request: ConsoleRequest): Promise<Html> {
  const add = actionForm(request, 'teams.add', 'Add a team', {
    role: 'admin',
    back: '/console/teams',
    fields: [{ name: 'text.name', label: 'Name' }, labelsField({}), ...termsInputs({}, OF_ITS_OWN), REASON],
  });
  return html`${await listPage(request, TEAM_LIST)}${add.text === '' ? add : card('add', 'New team', add)}`;
}

export const OWNER_PAGES: readonly ConsolePage[] = [
  { ...LISTED, path: '/console/keys', name: 'Keys', render: keysPage },
  { ...WITHIN, path: '/console/keys/:id', name: 'Key', render: keyPage },
  {
    ...LISTED,
    path: '/console/holders',
    name: 'Holders',
    render: (request) => listPage(request, HOLDER_LIST),
  },
  { ...WITHIN, path: '/console/holders/:id', name: 'Holder', render: holderPage },
  { ...LISTED, path: '/console/teams', name: 'Teams', render: teamsPage },
  { ...WITHIN, path: '/console/teams/:id', name: 'Team', render: teamPage },
];
