// The frame that all pages share: HTML that works without scripts, its style, and the headers that keep it closed.
import { createHash } from 'node:crypto';
import { type AnswerHeaders, answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';

/** HTML that is safe to put into a page: made by `html` or `raw`, never by concatenation. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A template whose values are escaped unless they are Html already. */
export function html(
  parts: TemplateStringsArray,
  ...values: readonly (string | number | Html | readonly Html[])[]
): Html {
  let text = parts[0] ?? '';
  for (const [index, value] of values.entries()) text += render(value) + (parts[index + 1] ?? '');
  return new Html(text);
}

function render(value: string | number | Html | readonly Html[]): string {
  if (value instanceof Html) return value.text;
  if (typeof value === 'object') return value.map((item) => item.text).join('');
  return String(value).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

const STYLE = `
:root { color-scheme: light dark; --ink: #17202b; --soft: #566270; --line: #d5dbe2; --card: #fff; --page: #f5f7f9; --accent: #0b6b57; --on-accent: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8edf2; --soft: #a5b0bd; --line: #333e4a; --card: #1a222b; --page: #11171d; --accent: #58c9ad; --on-accent: #07251e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 2.5rem 1.25rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 0; }
p { margin: 0 0 1rem; } .soft { color: var(--soft); }
.tiers { display: grid; gap: 1.25rem; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); margin: 2rem 0; padding: 0; list-style: none; }
.tier { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: 1.5rem; display: flex; flex-direction: column; gap: 1rem; }
.tier ul { margin: 0; padding-left: 1.15rem; flex: 1; } .tier p { margin: 0; }
.price { font-size: 1.5rem; font-weight: 650; }
button { font: inherit; font-weight: 600; width: 100%; padding: .7rem 1rem; border: 0; border-radius: .5rem; background: var(--accent); color: var(--on-accent); cursor: pointer; }
button:focus-visible, a:focus-visible, pre:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; overflow-x: auto; font: .9rem/1.5 ui-monospace, monospace; margin: 0 0 1.25rem; }
pre.key { font-size: 1.1rem; user-select: all; border-color: var(--accent); }
a { color: var(--accent); }
`;

const STYLE_HASH = createHash('sha256').update(STYLE).digest('base64');

/** Nothing is loaded, framed or sent elsewhere; the one style is named by its hash. */
const POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${STYLE_HASH}'`,
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

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
<style>${new Html(STYLE)}</style>
</head>
<body>
<main>
${body}
</main>
</body>
</html>
`;
  answer(
    exchange,
    status,
    {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': POLICY,
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
      ...headers,
    },
    page.text,
  );
}
