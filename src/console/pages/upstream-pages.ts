// Pages of the upstreams: all of them, and one with its history. Their states follow by themselves.
import { type Html, html, NOTHING } from '../../billing/pages/page-frame.ts';
import { packageScript } from '../../billing/pages/page-scripts.ts';
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
  REASON,
  table,
} from './record-view.ts';

/** Shows figures as the gateway sends them, by the ids of their elements. */
export const LIVE = packageScript('console/pages/live.js');
/** The script shows it when no figures come. */
export const LIVE_NOTE = html`<p class="alert" id="now-stale" role="alert" hidden>The gateway sends no figures at the moment. If you were signed out, load the page again.</p>`;

/** What the pages show of the states, by the ids of the elements: texts, and which form of `service` is there. */
export function stateFigures(records: readonly object[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    records.flatMap((record) => {
      const name = String(member(record, 'upstream'));
      return [
        [`state-${name}`, String(member(record, 'state'))],
        [`flight-${name}`, String(member(record, 'in_flight') ?? '–')],
        [`failure-${name}`, failure(record)],
        [`service-${name}`, member(record, 'drained') === null ? 'drain' : 'resume'],
      ];
    }),
  );
}

function badge(record: object): Html {
  const state = String(member(record, 'state'));
  const kind = state === 'ok' ? 'badge' : 'badge bad';
  return html`<span class="${kind}" id="now-state-${String(member(record, 'upstream'))}">${state}</span>`;
}

/** Drains or resumes an upstream: the form for it, and the other one for when the state changes. */
function service(request: ConsoleRequest, record: object, back: string): Html {
  const name = String(member(record, 'upstream'));
  const isDrained = member(record, 'drained') !== null;
  const own = { role: 'admin', back, params: { name } } as const;
  const drain = actionForm(request, 'upstreams.drain', 'Drain', { ...own, fields: [REASON] });
  const resume = actionForm(request, 'upstreams.resume', 'Resume', { ...own });
  if (drain === NOTHING) return NOTHING;
  const hidden = html` hidden`;
  return html`<div data-service="${name}"${isDrained ? hidden : NOTHING}>${drain}</div>
<div data-service="${name}" data-drained${isDrained ? NOTHING : hidden}>${resume}</div>`;
}

export function upstreamTable(request: ConsoleRequest, records: readonly object[], back: string): Html {
  const live = (kind: string, record: object, text: string) =>
    html`<span id="now-${kind}-${String(member(record, 'upstream'))}">${text}</span>`;
  return table(
    'Upstreams',
    [
      ['upstream', (record) => link('/console/upstreams', member(record, 'upstream'))],
      ['state', (record) => badge(record)],
      ['in_flight', (record) => live('flight', record, String(member(record, 'in_flight') ?? '–'))],
      ['last_failure', (record) => live('failure', record, failure(record))],
      ['service', (record) => service(request, record, back)],
    ],
    records,
  );
}

function failure(record: object): string {
  const last = member(record, 'last_failure');
  if (typeof last !== 'object' || last === null) return '–';
  return `${member(last, 'code')} ${String(member(last, 'at')).slice(0, 16).replace('T', ' ')}`;
}

const EVENTS = ['at', 'upstream', 'model', 'what', 'reason', 'replica', 'actor'];

export const UPSTREAM_PAGES: readonly ConsolePage[] = [
  {
    path: '/console/upstreams',
    name: 'Upstreams',
    isListed: true,
    role: 'viewer',
    scripts: [LIVE],
    render: async (request) => {
      const { desk, url } = request;
      const query = { cursor: url.searchParams.get('cursor') ?? '' };
      const [records, events] = await Promise.all([
        upstreamRecords(desk),
        readRoute(request, 'upstreams.events', { query }),
      ]);
      return html`<h1>Upstreams</h1>${asOf(desk.now())}${LIVE_NOTE}
${card('states', 'States', upstreamTable(request, records, '/console/upstreams'))}
${card('history', 'History', html`${table('Changes of states', EVENTS, listOf(events, 'items'))}${nextLink(url, events)}`)}`;
    },
  },
  {
    path: '/console/upstreams/:id',
    name: 'Upstream',
    isListed: false,
    role: 'viewer',
    scripts: [LIVE],
    render: async (request) => {
      const { desk, url, id } = request;
      const query = { upstream: id, cursor: url.searchParams.get('cursor') ?? '' };
      const record = await readRoute(request, 'upstreams.show', { params: { name: id } });
      const events = await readRoute(request, 'upstreams.events', { query });
      const back = `/console/upstreams/${encodeURIComponent(id)}`;
      return html`<h1>${id}</h1>${asOf(desk.now())}${LIVE_NOTE}
${card('state', 'State', html`<p>${badge(record)}</p>${facts(record, ['targets', 'upstream', 'state'])}${service(request, record, back)}`)}
${card('targets', 'Targets', table('Targets', ['model', 'state', 'breaker', 'cool_down', 'in_flight', 'latency_ms', 'last_failure'], listOf(record, 'targets')))}
${card('history', 'History', html`${table('Changes of states', EVENTS, listOf(events, 'items'))}${nextLink(url, events)}`)}`;
    },
  },
];
