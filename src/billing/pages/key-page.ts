// The page that shows a new key once, with examples.
import type { IssuedKey } from '../../auth/key-issuer.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { baseUrl } from '../base-url.ts';
import { answerPage, copyBox, html, NOTHING, type PageOptions } from './page-frame.ts';
import { COPY, KEY } from './page-scripts.ts';
import { modelsOf } from './pricing-page.ts';

/** The model in the examples of a tier that has only patterns. */
const PLACEHOLDER = 'MODEL';

/** 201 with the key. @param up relative path to the root of the gateway */
export function answerKeyPage(
  exchange: Exchange,
  issued: IssuedKey,
  config: DynamicConfig,
  up: NonNullable<PageOptions['up']> = '',
): void {
  const key = issued.key.reveal();
  const base = baseUrl(exchange, config);
  const { names, patterns } = modelsOf(issued.tier, config);
  const example = { base, key, model: names[0] ?? PLACEHOLDER };
  answerPage(exchange, 201, {
    title: `Your ${issued.tier} key`,
    branding: config.branding,
    up,
    scripts: [COPY, KEY],
    body: html`<h1>Your ${issued.tier} key</h1>
<p class="notice"><strong>Copy it now: it is shown only this once.</strong> The gateway keeps no copy of it. Reloading this page does not bring it back.</p>
${copyBox('key', 'API key', key, 'key')}
${copyBox('base-url', 'Base URL', base, 'line')}
<p class="soft">The official OpenAI SDKs take both from the variables <code>OPENAI_API_KEY</code> and <code>OPENAI_BASE_URL</code>. Keep the key out of version control. Support identifies it by its first eight characters, <code translate="no">${issued.prefix}</code>.</p>
${
  names.length > 0
    ? NOTHING
    : html`<p class="notice">Put the name of a model in place of <code translate="no">${PLACEHOLDER}</code> below. ${
        patterns.length === 0
          ? 'At the moment this tier has none.'
          : html`This tier takes names of the form <code translate="no">${patterns[0] ?? ''}</code>.`
      }</p>`
}
${copyBox('example', 'Try it in a shell', curlLines(example), 'line')}
<div class="pair"><div>${copyBox('python', 'In Python', pythonLines(example), 'line')}</div>
<div>${copyBox('javascript', 'In JavaScript', javaScriptLines(example), 'line')}</div></div>
<p><a href="${up}account">See the usage of the key</a>, or go <a href="${up}pricing">back to the tiers</a>.</p>
<p class="unseen" role="status" id="said"></p>`,
  });
}

interface Example {
  readonly base: string;
  readonly key: string;
  readonly model: string;
}

/** A first request for a POSIX shell, safe for any model name. */
function curlLines({ base, key, model }: Example): string {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] });
  return `curl ${quoted(`${base}/chat/completions`)} \\
  -H 'Authorization: Bearer ${key}' \\
  -H 'Content-Type: application/json' \\
  -d ${quoted(body)}`;
}

/** Quotes a text as one word of a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** With the official package. A JSON string is a valid Python string. */
export function pythonLines({ base, key, model }: Example): string {
  return `from openai import OpenAI

client = OpenAI(
    base_url=${JSON.stringify(base)},
    api_key=${JSON.stringify(key)},
)
answer = client.chat.completions.create(
    model=${JSON.stringify(model)},
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.choices[0].message.content)`;
}

/** With the official package, as a module. */
export function javaScriptLines({ base, key, model }: Example): string {
  return `import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: ${JSON.stringify(base)},
  apiKey: ${JSON.stringify(key)},
});
const answer = await client.chat.completions.create({
  model: ${JSON.stringify(model)},
  messages: [{ role: 'user', content: 'Hello' }],
});
console.log(answer.choices[0].message.content);`;
}
