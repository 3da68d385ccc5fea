// What an operator sees: a page, or why not. A form that was rejected is shown again as it was sent.
import { type Html, html, NOTHING } from '../../billing/pages/page-frame.ts';
import type { Script } from '../../billing/pages/page-scripts.ts';
import { GatewayError, wrapError } from '../../errors.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import { ProblemError } from '../api/api-server.ts';
import { requireRole } from '../console-identity.ts';
import type { ConsolePage, ConsoleRequest } from '../console-page.ts';
import { findPage } from './console-pages.ts';
import { isCorrectable } from './form-rejection.ts';
import { member, table } from './record-view.ts';

interface Result {
  readonly status: number;
  readonly title: string;
  readonly body: Html;
  /** Path, for the navigation. */
  readonly here: string;
  readonly scripts?: readonly Script[];
}

/** Focus follows what happened, also without scripts. */
export const FOCUSED = html` tabindex="-1" autofocus`;

/** Renders a page; after a search that was rejected, with the error in its form. */
export async function pageResult(page: ConsolePage, request: ConsoleRequest): Promise<Result> {
  const { url } = request;
  const { name: title, scripts = [] } = page;
  try {
    requireRole(request.operator, page.role);
    requireSingle(url);
    return { status: 200, title, body: await page.render(request), here: url.pathname, scripts };
  } catch (cause) {
    const error = wrapError(cause, 'internal_error');
    const rejected = { values: url.searchParams, error };
    return (await shownAgain(url.pathname, request, rejected)) ?? { ...pageError(error), here: url.pathname };
  }
}

/** @throws GatewayError `invalid_value` where a parameter is given twice, as by the API: the page would show the first alone */
export function requireSingle({ searchParams }: URL): void {
  const names = [...searchParams.keys()];
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice === undefined) return;
  const shown = maskKeys(twice.slice(0, 100));
  throw new GatewayError('invalid_value', `The parameter \`${shown}\` is given twice.`, { param: shown });
}

/** The page with a rejected form as it was sent; undefined where the form is not the reason, or is not there any more. */
export async function shownAgain(
  path: string,
  request: ConsoleRequest,
  rejected: NonNullable<ConsoleRequest['rejected']>,
): Promise<Result | undefined> {
  const { error, values } = rejected;
  const found = findPage(path);
  if (found === undefined || !isCorrectable(error) || values.size === 0) return undefined;
  const { page, id } = found;
  try {
    requireRole(request.operator, page.role);
    const body = await page.render({ ...request, id, url: new URL(path, request.url), rejected });
    if (!body.text.includes(' id="rejection"')) return undefined;
    const { name, scripts = [] } = page;
    return { status: error.status, title: `Error: ${name}`, body, here: path, scripts };
  } catch {
    return undefined;
  }
}

/** An error within the console, with the differences where somebody else was first. */
export function pageError(error: GatewayError, back = '/console') {
  const more = error instanceof ProblemError ? error.more : {};
  const difference = member(more, 'difference');
  return {
    status: error.status,
    title: 'Error',
    body: html`<section class="card outcome" aria-labelledby="problem"><h1 id="problem"${FOCUSED}>${error.rule.message}</h1>
${error.message === error.rule.message ? NOTHING : html`<p>${error.message}</p>`}
${Array.isArray(difference) ? table('What is different now', ['field', 'now', 'yours'], difference) : NOTHING}
<p><a href="${back}">Back</a></p></section>`,
  };
}
