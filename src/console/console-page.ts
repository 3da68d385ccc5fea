// The frame of the pages of the console: sign-in, errors, and the pages in the table of admin-console.ts.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { contentHeaders, Html, html, NOTHING } from '../billing/pages/page-frame.ts';
import { hashSource, packageScript, type Script } from '../billing/pages/page-scripts.ts';
import { themeOf } from '../billing/pages/theme.ts';
import type { GatewayError } from '../errors.ts';
import type { Role } from '../store/operator-record.ts';
import { begin, send, waitHeaders } from './console-answer.ts';
import type { ConsoleDesk } from './console-desk.ts';
import { CSRF_FIELD, hasRole, type Operator } from './console-identity.ts';
import { CONSOLE_STYLE } from './console-style.ts';
import type { LiveFigures } from './live-figures.ts';

const STYLE = `${themeOf(undefined).style}${CONSOLE_STYLE}`;
const STYLE_HASH = hashSource(STYLE);
const ONCE = packageScript('console/pages/once.js');

/** A form that was rejected: its page shows it again, as it was sent, with the error at the field that is wrong. */
interface RejectedForm {
  /** What it would have called: name of the route, and parameters of its path. Undefined for a search. */
  readonly call?: { readonly route: string; readonly params: Readonly<Record<string, string>> };
  readonly values: URLSearchParams;
  readonly error: GatewayError;
}

/** A request for a page, by an operator with the role of the page. */
export interface ConsoleRequest {
  readonly operator: Operator;
  readonly address: string;
  readonly request: IncomingMessage;
  /** Path and query. */
  readonly url: URL;
  readonly desk: ConsoleDesk;
  readonly figures: LiveFigures;
  /** The last segment of a path that ends with `:id`, decoded; else empty. */
  readonly id: string;
  readonly rejected?: RejectedForm;
}

/** A page of the console, answered to GET. Its forms go to `/console/do/ROUTE`, where ROUTE is the name of a route of the API. */
export interface ConsolePage {
  /** Such as `/console/keys`; a last segment `:id` takes anything. */
  readonly path: string;
  /** The title, and the name in the navigation. */
  readonly name: string;
  /** Whether it is in the navigation. */
  readonly isListed: boolean;
  readonly role: Role;
  readonly scripts?: readonly Script[];
  readonly render: (request: ConsoleRequest) => Promise<Html>;
}

interface FrameOptions {
  readonly title: string;
  readonly body: Html;
  readonly operator?: Operator;
  readonly pages?: readonly ConsolePage[];
  /** Path of the page, or of the one that its form was on, for the navigation. */
  readonly here?: string;
  readonly scripts?: readonly Script[];
  readonly headers?: Readonly<Record<string, string | undefined>>;
}

/** Answers with a page. */
export function sendPage(response: ServerResponse, status: number, options: FrameOptions): void {
  const { head, foot } = frameOf(options);
  send(response, status, `${head}${options.body.text}${foot}`, pageHeaders(options));
}

/** A page that is sent while its body becomes known: browsers show each part as it comes. Sends nothing before the first part. */
export class PageStream {
  readonly #response: ServerResponse;
  readonly #frame: Omit<FrameOptions, 'body'>;

  constructor(response: ServerResponse, frame: Omit<FrameOptions, 'body'>) {
    this.#response = response;
    this.#frame = frame;
  }

  write({ text }: Html): void {
    // The reader may have gone; the change goes on.
    if (this.#response.destroyed) return;
    const isFirst = !this.#response.headersSent;
    if (isFirst) begin(this.#response, 200, pageHeaders(this.#frame));
    this.#response.write(isFirst ? `${frameOf(this.#frame).head}${text}` : text);
  }

  /** The last part; it is a page of its own where nothing was sent before. */
  end(status: number, own: Pick<FrameOptions, 'title' | 'body' | 'scripts' | 'here'>): void {
    if (!this.#response.headersSent) sendPage(this.#response, status, { ...this.#frame, ...own });
    else this.#response.end(`${own.body.text}${frameOf(this.#frame).foot}`);
  }
}

/** Those of the page; with an operator there are forms. */
function scriptsOf({ operator, scripts = [] }: Pick<FrameOptions, 'operator' | 'scripts'>) {
  return operator === undefined ? scripts : [ONCE, ...scripts];
}

function frameOf(options: Omit<FrameOptions, 'body'>) {
  const { title, operator, pages = [], here } = options;
  const links = pages
    .filter(({ isListed, role }) => isListed && operator !== undefined && hasRole(operator.role, role))
    .map(({ path, name }) => html`<a href="${path}"${currentOf(path, here)}>${name}</a> `);
  const nav =
    operator === undefined ? NOTHING : html`<nav aria-label="Console">${links}</nav>${signOut(operator)}`;
  const csrf = operator?.csrf == null ? NOTHING : html`<meta name="csrf-token" content="${operator.csrf}">\n`;
  const head = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
${csrf}<title>${title} · Tollgate console</title>
<link rel="icon" href="data:,">
<style>${new Html(STYLE)}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><a class="brand" href="/console">Tollgate console</a>${nav}</header>
<main id="main" tabindex="-1">
`;
  const foot = html`
</main>
${scriptsOf(options).map(({ text }) => html`<script type="module">${new Html(text)}</script>`)}
</body>
</html>
`;
  return { head: head.text, foot: foot.text };
}

/** Whether a link of the navigation leads to this page, or to the list that its record is in. */
function currentOf(path: string, here = ''): Html {
  if (here === path) return html` aria-current="page"`;
  return path !== '/console' && here.startsWith(`${path}/`) ? html` aria-current="true"` : NOTHING;
}

function signOut({ name, role, csrf, via }: Operator): Html {
  const who = html`<span class="soft">${name} (${role})</span>`;
  if (via !== 'session' || csrf === null) return who;
  return html`<form method="post" action="/console/sign-out">${who}
<input type="hidden" name="${CSRF_FIELD}" value="${csrf}"><button class="quiet small">Sign out</button></form>`;
}

/**
 * The form that takes a token.
 * @param back page to go on with
 * @param error of the last attempt, or why somebody has to sign in again
 */
export function sendSignIn(response: ServerResponse, back: string, error?: GatewayError): void {
  const alert =
    error === undefined ? NOTHING : html`<p class="alert" role="alert" id="rejection">${error.message}</p>`;
  const isWrong = error !== undefined && error.code !== 'operator_required';
  const wrong = html`${isWrong ? html` aria-invalid="true"` : NOTHING}${error === undefined ? NOTHING : html` aria-describedby="rejection" autofocus`}`;
  const body = html`<section class="card enter" aria-labelledby="sign-in"><h1 id="sign-in">Sign in</h1>
${alert}<form method="post" action="/console/sign-in">
<label for="token">Token of an operator</label>
<div class="row"><input class="key-field" id="token" name="token" type="password" autocomplete="current-password" required${wrong}>
<input type="hidden" name="back" value="${back}"><button>Sign in</button></div>
</form>
<p class="soft">An administrator makes a token with <code>tollgate operators add NAME --role ROLE</code>.</p></section>`;
  sendPage(response, error?.status ?? 200, {
    title: 'Sign in',
    body,
    ...(error !== undefined && { headers: pageRetry(error) }),
  });
}

/** An error as a page. Without operators it says how to make the first one. */
export function sendErrorPage(response: ServerResponse, error: GatewayError): void {
  const body = html`<section class="card outcome" aria-labelledby="outcome"><h1 id="outcome">${error.rule.message}</h1>
<p>${error.message === error.rule.message ? '' : error.message}</p>${FIRST_STEPS(error)}</section>`;
  sendPage(response, error.status, { title: 'Error', body, headers: pageRetry(error) });
}

const FIRST_STEPS = ({ code }: GatewayError): Html =>
  code === 'no_operators'
    ? html`<p>Run this where the gateway's configuration is. It prints the token, once:</p>
<pre>tollgate operators add ${'NAME'} --role admin</pre>
<p>Then <a href="/console">open the console</a> and sign in with it.</p>`
    : html`<p><a href="/console">To the console</a></p>`;

/** Without `www-authenticate`, for which browsers open a dialog of their own. */
function pageRetry(error: GatewayError) {
  const { 'retry-after': after } = waitHeaders(error);
  return typeof after === 'string' ? { 'retry-after': after } : {};
}

function pageHeaders(options: Pick<FrameOptions, 'operator' | 'scripts' | 'headers'>) {
  const scripts = scriptsOf(options);
  return { ...contentHeaders(STYLE_HASH, scripts, scripts.length > 0, ["'self'"]), ...options.headers };
}
