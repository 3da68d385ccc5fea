// The page *Now*: what the gateway does at the moment, and the upstreams.

import type { ServerResponse } from 'node:http';
import { html } from '../../billing/pages/page-frame.ts';
import { upstreamRecords } from '../api/api-records.ts';
import type { ConsolePage, ConsoleRequest } from '../console-page.ts';
import { budgetCard } from './budget-pages.ts';
import { FRAGMENTS } from './list-page.ts';
import { card } from './record-view.ts';
import { LIVE, LIVE_NOTE, upstreamTable } from './upstream-pages.ts';

const FIGURES = [
  ['requests', 'Requests a minute'],
  ['client', 'Errors of clients'],
  ['upstream', 'Errors of upstreams'],
  ['gateway', 'Errors of the gateway'],
  ['first', 'Time to first token'],
  ['tokens', 'Tokens a minute'],
  ['cost', 'Cost a minute'],
  ['flight', 'Requests in flight'],
  ['sessions', 'Realtime sessions'],
] as const;

/** After this time the stream ends; the page asks again, and its session is checked again. */
const LIVE_MS = 60_000;

export const NOW_PAGE: ConsolePage = {
  path: '/console',
  name: 'Now',
  isListed: true,
  role: 'viewer',
  scripts: [LIVE, FRAGMENTS],
  render: async (request) => {
    const { figures, desk } = request;
    const [now, upstreams, budgets] = await Promise.all([
      figures.current(),
      upstreamRecords(desk),
      budgetCard(request),
    ]);
    const parts = FIGURES.map(
      ([id, label]) => html`<div><dt>${label}</dt><dd id="now-${id}">${now[id] ?? '–'}</dd></div>`,
    );
    return html`<h1>Now</h1>
<p class="soft">The last minute of this gateway, as of <span id="now-at">${now['at'] ?? '–'}</span>. Without scripts, load the page again.</p>${LIVE_NOTE}
<dl class="card totals" aria-label="Figures of the last minute">${parts}</dl>
${card('upstreams', 'Upstreams', upstreamTable(request, upstreams, '/console'))}
${budgets}`;
  },
};

/** The figures as server-sent events, while the reader is there. */
export function sendLive({ figures, request }: ConsoleRequest, response: ServerResponse): void {
  const stop = figures.watch((frame) => {
    // A reader that is behind gets the next ones.
    if (!response.writableNeedDrain) response.write(frame);
  });
  const end = setTimeout(() => response.end(), LIVE_MS).unref();
  response.on('close', () => {
    stop();
    clearTimeout(end);
  });
  const headers = {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  };
  response.writeHead(200, headers).write('retry: 1000\n\n');
  if (request.method === 'HEAD') response.end();
}
