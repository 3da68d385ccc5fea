// The frame of all pages: safe HTML, and the security headers. Other files have the contents; page-style.ts and theme.ts have
// the style.
import type { Exchange } from '../../http/exchange/exchange.ts';
import { type AnswerHeaders, answer } from '../../http/exchange/response-writer.ts';
import type { Script } from './page-scripts.ts';
import { type Branding, brandName, contactHref, themeOf } from './theme.ts';

/** Safe HTML. Only the tag `html` makes it. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A value in a template. */
type HtmlValue = string | number | Html | readonly Html[];

/** Escapes all values except Html. Quote attribute values in the template. */
export function html(parts: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  let text = parts[0] ?? '';
  for (const [index, value] of values.entries()) text += render(value) + (parts[index + 1] ?? '');
  return new Html(text);
}

function render(value: HtmlValue): string {
  if (value instanceof Html) return value.text;
  if (typeof value === 'object') return value.map((item) => item.text).join('');
  return String(value).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

export const NOTHING = new Html('');

/** A text to copy: monospace, focusable because it may scroll, and not translated. */
export function textBox(
  id: string,
  label: string,
  text: string,
  kind: 'key' | 'line',
  button = NOTHING,
): Html {
  return html`<div class="copy-head"><h2 id="${id}">${label}</h2>${button}</div>
<pre class="${kind}" id="${id}-text" role="group" aria-labelledby="${id}" tabindex="0" translate="no">${text}</pre>`;
}

/** The same with a button, for pages with the copy script. Without scripts, a click selects the text. */
export function copyBox(id: string, label: string, text: string, kind: 'key' | 'line'): Html {
  return textBox(id, label, text, kind, copyButton(id, label));
}

/** Copies the text of the box with this id. Hidden until the copy script runs. */
export function copyButton(id: string, label: string): Html {
  return html`<button type="button" class="quiet small" data-copies="${id}-text" hidden>Copy<span class="unseen"> ${label}</span></button>`;
}

/** Answers with a short page: its title as a heading, a result and the next step. @param foot details for support */
export function answerResult(
  exchange: Exchange,
  status: number,
  parts: PageOptions,
  foot: Html = NOTHING,
): void {
  const body = html`<section class="card outcome" aria-labelledby="outcome"><h1 id="outcome">${parts.title}</h1>
${parts.body}
${foot === NOTHING ? NOTHING : html`<p class="foot">${foot}</p>`}</section>`;
  answerPage(exchange, status, { ...parts, body });
}

/** The contact as a link; undefined when none is configured. */
export function contactLink(branding: Branding | undefined, subject: string): Html | undefined {
  const contact = branding?.contact;
  if (contact === undefined) return undefined;
  return html`<a href="${contactHref(contact, subject)}" rel="noreferrer">${contact.replace(/^https?:\/\//, '')}</a>`;
}

/** `write to the contact`, within a sentence. */
export function asking(branding: Branding | undefined, subject: string): Html {
  const contact = contactLink(branding, subject);
  return contact === undefined ? html`ask the operator of this gateway` : html`write to ${contact}`;
}

export interface PageOptions {
  /** Plain text without the gateway's name. */
  readonly title: string;
  /** The entry of the navigation that is this page. */
  readonly path?: 'pricing' | 'account';
  readonly body: Html;
  readonly branding: Branding | undefined;
  readonly scripts?: readonly Script[];
  /** The page has forms. Browsers send their real `origin` only when the referrer policy allows it (Fetch, 3.2). */
  readonly hasForms?: boolean;
  /** Origins to which answers to these forms redirect: Chromium applies `form-action` to redirects. */
  readonly formTargets?: readonly string[] | undefined;
  /** Relative path to the root of the gateway. Default: the page is there. */
  readonly up?: string;
  /** Whether its scripts call the gateway. */
  readonly calls?: boolean;
  readonly headers?: AnswerHeaders;
}

/** Answers with a page. Links are relative, so that they work when a proxy publishes the gateway below a path. */
export function answerPage(exchange: Exchange, status: number, parts: PageOptions): void {
  const { title, body, branding, scripts = [], headers = {}, up = '' } = parts;
  const name = brandName(branding);
  const theme = themeOf(branding?.color);
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · ${name}</title>
<link rel="icon" href="data:,">
<style>${new Html(theme.style)}</style>
</head>
<body>
<header class="top">
<a class="brand" href="${up}pricing">${name}</a>
<nav aria-label="Pages">${link('pricing', 'Tiers', parts)} ${link('account', 'Your key', parts)}</nav>
</header>
<main>
${body}
</main>
${footer(branding)}
${scripts.map(({ text }) => html`<script type="module">${new Html(text)}</script>`)}
</body>
</html>
`;
  answer(exchange, status, { ...headersOf(parts, theme.hash), ...headers }, page.text);
}

/** The contact, and the operator's own pages. */
function footer(branding: Branding | undefined): Html {
  const contact = contactLink(branding, `Question about ${brandName(branding)}`);
  const pages = (['terms', 'privacy', 'imprint'] as const).flatMap((name) => {
    const url = branding?.[name];
    return url === undefined ? [] : [html`<a href="${url}" rel="noreferrer">${FOOTER_NAMES[name]}</a> `];
  });
  if (contact === undefined && pages.length === 0) return NOTHING;
  const question = contact === undefined ? NOTHING : html`<span>Questions? ${contact}</span> `;
  return html`<footer><p>${question}${pages}</p></footer>`;
}

const FOOTER_NAMES = { terms: 'Terms', privacy: 'Privacy', imprint: 'Imprint' } as const;

/** The operator's sentence about tax, below prices. */
export function taxLine(branding: Branding | undefined): Html {
  return branding?.tax === undefined ? NOTHING : html`<p class="soft">${branding.tax}</p>`;
}

function link(path: 'pricing' | 'account', name: string, { path: here, up = '' }: PageOptions): Html {
  return here === path
    ? html`<a href="${up}${path}" aria-current="page">${name}</a>`
    : html`<a href="${up}${path}">${name}</a>`;
}

/**
 * The type of a page and its policy, which forbids loading, framing and sending anything elsewhere; hashes allow the style and the scripts.
 * @param calls whether scripts call the gateway
 * @param forms sources of `form-action`
 */
export function contentHeaders(
  styleHash: string,
  scripts: readonly Script[],
  calls: boolean,
  forms: readonly string[],
) {
  const policy = [
    "default-src 'none'",
    `style-src '${styleHash}'`,
    ...(scripts.length === 0 ? [] : [`script-src ${scripts.map(({ hash }) => `'${hash}'`).join(' ')}`]),
    ...(calls ? ["connect-src 'self'"] : []),
    // For the empty icon that keeps browsers from asking for /favicon.ico.
    'img-src data:',
    `form-action ${forms.join(' ')}`,
    "base-uri 'none'",
    "frame-ancestors 'none'",
    // The browser rejects assignments that would turn text into markup.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ];
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policy.join('; '),
  };
}

function headersOf(
  { scripts = [], hasForms, formTargets = [], calls = false }: PageOptions,
  styleHash: string,
): AnswerHeaders {
  const forms = hasForms === true ? ["'self'", ...formTargets] : ["'none'"];
  return {
    ...contentHeaders(styleHash, scripts, calls, forms),
    'referrer-policy': hasForms === true ? 'same-origin' : 'no-referrer',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
  };
}
