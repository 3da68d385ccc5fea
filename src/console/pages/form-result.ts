// Answers a form: the page that says it is done and names the replicas as they confirm it, or why not and what is different now.

import { randomUUID } from 'node:crypto';
import { copyBox, type Html, html, NOTHING } from '../../billing/pages/page-frame.ts';
import { COPY, type Script } from '../../billing/pages/page-scripts.ts';
import { wrapError } from '../../errors.ts';
import type { ConsoleRequest, PageStream } from '../console-page.ts';
import { backOf, type FormCall, readFormCall } from './form-body.ts';
import { changeRoute } from './page-call.ts';
import { FOCUSED, pageError, shownAgain } from './page-result.ts';
import { hiddenFields, listOf, member, shown } from './record-view.ts';

/** Changes of the records that replicas hold; made again, they change nothing and tell the replicas again. */
const CAN_BE_REPEATED = /^(?:keys\.(?:set|revoke)|holders\.\w+)$/;

/**
 * Makes the change of a form, and answers. A form that is sent twice changes once. Without replicas the answer is sent whole; with
 * some it begins when the change is in the store.
 * @param open the page for the answer
 */
export async function answerChange(
  caller: ConsoleRequest,
  name: string,
  form: URLSearchParams,
  open: (own: {
    readonly title: string;
    readonly here: string;
    readonly scripts: readonly Script[];
  }) => PageStream,
): Promise<void> {
  const back = backOf(form);
  const page = open({ title: 'Done', here: back, scripts: [COPY] });
  let isBegun = false;
  try {
    const call = readFormCall(form);
    const desk: ConsoleRequest['desk'] = {
      ...caller.desk,
      onProgress: (progress) => {
        if (progress.kind === 'waiting' && progress.ids.length === 0) return;
        if (progress.kind === 'confirmed') page.write(confirmed(progress));
        else
          page.write(html`${opening(name, call)}<p>Waiting for ${replicaCount(progress.ids.length)}: ${progress.ids.join(', ')}</p>
<ul class="plain" role="log" aria-label="Replicas that have confirmed it">`);
        isBegun = true;
      },
    };
    const { params, body, requestKey, ifMatch } = call;
    const answer = await changeRoute({ ...caller, desk }, name, { params, body, requestKey, ifMatch });
    const closing = html`${isBegun ? html`</ul>` : opening(name, call)}${confirmations(answer, isBegun)}
${again(name, form, answer)}${newSecret(answer)}<p><a href="${backTo(name, back, answer)}">Back</a></p></section>`;
    page.end(200, { title: 'Done', body: closing, scripts: [COPY] });
  } catch (cause) {
    const error = wrapError(cause, 'internal_error');
    const call = { route: name, params: paramsOf(form) };
    const formAgain = isBegun ? undefined : await shownAgain(back, caller, { call, values: form, error });
    if (formAgain !== undefined) return page.end(formAgain.status, formAgain);
    const { status, ...own } = pageError(error, back);
    const body = isBegun ? html`</ul></section>${own.body}` : own.body;
    page.end(status, { ...own, title: 'Not done', body });
  }
}

/** A team has its page at its name, which the form may have changed. */
function backTo(name: string, back: string, answer: object): string {
  const team: unknown = Reflect.get(Object(member(answer, 'record')), 'name');
  return name === 'teams.set' && typeof team === 'string'
    ? `/console/teams/${encodeURIComponent(team)}`
    : back;
}

function paramsOf(form: URLSearchParams): Readonly<Record<string, string>> {
  return Object.fromEntries(
    [...form].flatMap(([name, value]) => (name.startsWith('param.') ? [[name.slice(6), value]] : [])),
  );
}

function opening(name: string, { params }: FormCall): Html {
  const [kind = '', action = ''] = name.split('.');
  return html`<section class="card outcome" aria-labelledby="outcome"><h1 id="outcome" aria-describedby="what"${FOCUSED}>Done</h1>
<p id="what">${action} ${Object.values(params)[0] ?? kind}: done.</p>`;
}

function confirmed({ id, ms }: { readonly id: string; readonly ms: number }): Html {
  return html`<li>${id} has confirmed it after ${Math.ceil(ms)} ms</li>`;
}

/** @param isNamed whether the page has those that confirmed it already */
function confirmations(answer: object, isNamed: boolean): Html {
  const replicas = member(answer, 'replicas');
  // What replicas do not hold.
  if (replicas === undefined) return NOTHING;
  if (typeof replicas !== 'object' || replicas === null)
    return html`<p>All replicas follow within a second.</p>`;
  if (member(replicas, 'total') === 0) return html`<p>No replica is running.</p>`;
  const [count, total] = [Number(member(replicas, 'confirmed')), Number(member(replicas, 'total') ?? 0)];
  const names = listOf(replicas, 'confirmed_by').map((each) =>
    confirmed({ id: String(member(each, 'id')), ms: Number(member(each, 'ms')) }),
  );
  const problems: unknown = member(replicas, 'problems');
  const missing = Array.isArray(problems) ? problems.map((each) => html`<li>${String(each)}</li>`) : [];
  const bound = member(replicas, 'bound');
  return html`${isNamed || names.length === 0 ? NOTHING : html`<ul class="plain">${names}</ul>`}
${total === 0 ? NOTHING : html`<p>${count} of ${replicaCount(total)} ${count === 1 ? 'has' : 'have'} confirmed it.</p>`}
${missing.length === 0 ? NOTHING : html`<div class="alert" role="alert"><ul>${missing}</ul>${typeof bound === 'string' ? html`<p>${bound} Stop one that does not follow.</p>` : NOTHING}</div>`}`;
}

const replicaCount = (count: number) => `${count} ${count === 1 ? 'replica' : 'replicas'}`;

/** The same form again, where a replica has not confirmed the change. */
function again(name: string, form: URLSearchParams, answer: object): Html {
  const replicas = member(answer, 'replicas');
  const isWhole = typeof replicas !== 'object' || replicas === null || !Object.hasOwn(replicas, 'problems');
  if (isWhole || !CAN_BE_REPEATED.test(name)) return NOTHING;
  const others = [...form].filter(([field]) => field !== 'if_match' && field !== 'request_key');
  return html`<form method="post" action="/console/do/${name}">${hiddenFields([...others, ['request_key', randomUUID()]])}<button class="quiet small">Tell the replicas again</button></form>`;
}

/** A key or a token that was made, and until when the key is valid that it replaces. */
function newSecret(answer: object): Html {
  const kind = Object.hasOwn(answer, 'token') ? 'token' : 'key';
  const [secret, until] = [member(answer, kind), member(answer, 'old_key_expires_at')];
  const old =
    typeof until === 'string' ? html`<p>The old key is valid until ${shown(until)} UTC.</p>` : NOTHING;
  const box =
    typeof secret === 'string' ? copyBox('key', `The ${kind}, which is shown once`, secret, 'key') : NOTHING;
  if (secret === null)
    return html`${old}<p class="alert">The ${kind} was in the answer when this form was first sent, and is nowhere else. If you do not have it, replace it.</p>`;
  return html`${old}${box}`;
}
