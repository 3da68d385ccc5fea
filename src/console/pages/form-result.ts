// What came of a form: the page that says it is done, with the replicas that confirmed it, or why not and what is different now.

import { copyBox, type Html, html, NOTHING } from '../../billing/pages/page-frame.ts';
import { COPY, type Script } from '../../billing/pages/page-scripts.ts';
import { type GatewayError, wrapError } from '../../errors.ts';
import { ProblemError } from '../api/api-server.ts';
import type { ConsoleRequest } from '../console-page.ts';
import type { FormCall } from './form-body.ts';
import { changeRoute } from './page-call.ts';
import { member, shown, table } from './record-view.ts';

interface Result {
  readonly status: number;
  readonly title: string;
  readonly body: Html;
  readonly scripts?: readonly Script[];
}

/** Makes the change of a form. A form that is sent twice changes once. */
export async function formResult(caller: ConsoleRequest, name: string, form: FormCall): Promise<Result> {
  const { back, params, body, requestKey, ifMatch } = form;
  try {
    const answer = await changeRoute(caller, name, { params, body, requestKey, ifMatch });
    const key = member(answer, 'key');
    const shownKey =
      typeof key === 'string' ? copyBox('key', 'The key, which is shown once', key, 'key') : NOTHING;
    return {
      ...{ status: 200, title: 'Done', scripts: [COPY] },
      body: html`<section class="card outcome" aria-labelledby="outcome"><h1 id="outcome">Done</h1>
<p>${what(name, params)}${untilText(answer)}${confirmations(member(answer, 'replicas'))}</p>${shownKey}<p><a href="${back}">Back</a></p></section>`,
    };
  } catch (cause) {
    return { ...pageError(wrapError(cause, 'internal_error'), back), title: 'Not done' };
  }
}

function what(name: string, params: Readonly<Record<string, string>>): string {
  const [kind = '', action = ''] = name.split('.');
  return `${action} ${Object.values(params)[0] ?? kind}: done.`;
}

/** Until when a rotated key is valid. */
function untilText(answer: object): Html {
  const until = member(answer, 'old_key_expires_at');
  return typeof until === 'string' ? html` The old key is valid until ${shown(until)} UTC.` : NOTHING;
}

function confirmations(replicas: unknown): string {
  if (typeof replicas !== 'object' || replicas === null) return ' All replicas follow within a second.';
  const confirmed = Number(member(replicas, 'confirmed'));
  return ` ${confirmed} ${confirmed === 1 ? 'replica has' : 'replicas have'} confirmed it.`;
}

/** An error within the console, with the differences where somebody else was first. */
export function pageError(error: GatewayError, back = '/console'): Result {
  const more = error instanceof ProblemError ? error.more : {};
  const difference = member(more, 'difference');
  return {
    ...{ status: error.status, title: 'Error' },
    body: html`<section class="card outcome" aria-labelledby="outcome"><h1 id="outcome">${error.rule.message}</h1>
${error.message === error.rule.message ? NOTHING : html`<p>${error.message}</p>`}
${Array.isArray(difference) ? table('What is different now', ['field', 'now', 'yours'], difference) : NOTHING}
<p><a href="${back}">Back</a></p></section>`,
  };
}
