// Pages of the upstreams: all of them, and one with its history.
import { type Html, html } from '../../billing/pages/page-frame.ts';
import { upstreamRecords } from '../api/api-records.ts';
import type { ConsolePage, ConsoleRequest } from '../console-page.ts';
import { readRoute } from './page-call.ts';
import {
  actionForm,
  asOf,
  card,
  facts,
  link,
  listOf,
  member,
  nextLink,
  shown,
  table,
} from './record-view.ts';

/** The script of *Now* finds it by its id. */
function badge(record: object): Html {
  const state = String(member(record, 'state'));
  const kind = state === 'ok' ? 'badge' : 'badge bad';
  return html`<span class="${kind}" id="now-state-${String(member(record, 'upstream'))}">${state.replaceAll('_', ' ')}</span>`;
}

/** Drains or resumes an upstream. */
function service(request: ConsoleRequest, record: object, back: string): Html {
  const name = String(member(record, 'upstream'));
  const isDrained = member(record, 'drained') !== null;
  return actionForm(request, {
    ...{ route: isDrained ? 'upstreams.resume' : 'upstreams.drain', role: 'admin', back, params: { name } },
    label: isDrained ? 'Resume' : 'Drain',
    fields: isDrained ? [] : [{ name: 'text.reason', label: 'Reason' }],
  });
}

export function upstreamTable(request: ConsoleRequest, records: readonly object[], back: string): Html {
  return table(
    'Upstreams',
    [
      ['upstream', (record) => link('/console/upstreams', member(record, 'upstream'))],
      ['state', (record) => badge(record)],
      'in_flight',
      ['last_failure', (record) => failure(member(record, 'last_failure'))],
      ['service', (record) => service(request, record, back)],
    ],
    records,
  );
}

function failure(value: unknown): Html {
  if (typeof value !== 'object' || value === null) return html`–`;
  return html`${String(member(value, 'code'))} ${shown(member(value, 'at'))}`;
}

const EVENTS = ['at', 'upstream', 'model', 'what', 'reason', 'replica', 'actor'];

export const UPSTREAM_PAGES: readonly ConsolePage[] = [
  {
    path: '/console/upstreams',
    name: 'Upstreams',
    isListed: true,
    role: 'viewer',
    render: async (request) => {
      const { desk, url } = request;
      const query = { cursor: url.searchParams.get('cursor') ?? '' };
      const [records, events] = await Promise.all([
        upstreamRecords(desk),
        readRoute(request, 'upstreams.events', { query }),
      ]);
      return html`<h1>Upstreams</h1>${asOf(desk.now())}
${card('states', 'States', upstreamTable(request, records, '/console/upstreams'))}
${card('history', 'History', html`${table('Changes of states', EVENTS, listOf(events, 'items'))}${nextLink(url, events)}`)}`;
    },
  },
  {
    path: '/console/upstreams/:id',
    name: 'Upstream',
    isListed: false,
    role: 'viewer',
    render: async (request) => {
      const { desk, url, id } = request;
      const query = { upstream: id, cursor: url.searchParams.get('cursor') ?? '' };
      const record = await readRoute(request, 'upstreams.show', { params: { name: id } });
      const events = await readRoute(request, 'upstreams.events', { query });
      const back = `/console/upstreams/${encodeURIComponent(id)}`;
      return html`<h1>${id}</h1>${asOf(desk.now())}
${card('state', 'State', html`${facts(record, ['targets', 'upstream'])}${service(request, record, back)}`)}
${card('targets', 'Targets', table('Targets', ['model', 'state', 'breaker', 'cool_down', 'in_flight', 'latency_ms', 'last_failure'], listOf(record, 'targets')))}
${card('history', 'History', html`${table('Changes of states', EVENTS, listOf(events, 'items'))}${nextLink(url, events)}`)}`;
    },
  },
];
