// The frame that all pages share: HTML that works without scripts, and the headers that keep it closed. What stands on a
// page is pricing.ts and checkout.ts; how it looks is style.ts.
import { createHash } from 'node:crypto';
import { type AnswerHeaders, answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { STYLE } from './style.ts';

/** HTML that is safe to put into a page: made by the tag `html`, never by concatenation. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What may stand in a template: Html as it is, anything else escaped. */
export type HtmlValue = string | number | Html | readonly Html[];

/** A template whose values are escaped unless they are Html already. Attribute values have to be quoted in it. */
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

/** Text to be copied: in a typewriter face, reachable by keyboard because it may scroll, and not for translators. */
export function copyBox(id: string, label: string, text: string, kind: 'key' | 'line'): Html {
  return html`<h2 id="${id}">${label}</h2>
<pre class="${kind}" role="group" aria-labelledby="${id}" tabindex="0" translate="no">${text}</pre>`;
}

const STYLE_HASH = createHash('sha256').update(STYLE).digest('base64');

/** Nothing is loaded, framed or sent elsewhere; the one style is named by its hash. */
const POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${STYLE_HASH}'`,
  // For the empty icon that keeps browsers from asking for /favicon.ico.
  'img-src data:',
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

const HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': POLICY,
  // Under `no-referrer` a browser sends the pages' own forms with `Origin: null` (Fetch, 3.2), as if from a stranger.
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
} as const;

/**
 * Answers with a page.
 * @param title plain text
 */
export function answerPage(
  exchange: Exchange,
  status: number,
  title: string,
  body: Html,
  headers: AnswerHeaders = {},
): void {
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="data:,">
<style>${new Html(STYLE)}</style>
</head>
<body>
<main>
${body}
</main>
</body>
</html>
`;
  answer(exchange, status, { ...HEADERS, ...headers }, page.text);
}
