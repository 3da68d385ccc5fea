// The pricing page: the tiers that the configuration offers, with what they cost, what they allow and which models they
// reach. Choosing one is checkout.ts.
import { type DynamicConfig, TIERS, type Tier, type TierConfig } from '../config/schema.ts';
import type { Exchange } from '../http/exchange.ts';
import { baseUrl } from './base-url.ts';
import { answerPage, copyBox, type Html, html } from './page.ts';

/** More models than this fold away: a page is for comparing tiers, `GET /v1/models` is for lists. */
const SHOWN_MODELS = 8;

/** `GET /pricing` */
export function answerPricing(exchange: Exchange, config: DynamicConfig): void {
  const offers = TIERS.flatMap((tier) => {
    const terms = config.tiers[tier];
    return terms === undefined ? [] : [offer(tier, terms, config)];
  });
  answerPage(
    exchange,
    200,
    'Choose a tier',
    html`<h1>Choose a tier</h1>
<p class="soft">Every tier speaks the OpenAI API: keep your SDK, and change the base URL and the key.</p>
${
  offers.length === 0
    ? html`<p class="notice">No tier is on offer here at the moment.</p>`
    : html`<ul class="tiers">
${offers}</ul>`
}
${copyBox('base-url', 'Base URL for every key', baseUrl(exchange, config), 'line')}
<p class="soft">The official OpenAI SDKs take it from the variable <code>OPENAI_BASE_URL</code>, and the key from <code>OPENAI_API_KEY</code>.</p>`,
  );
}

/**
 * Whether the page can lead to a key of this tier by itself: Free unless none are given out, and what can be paid for.
 * Otherwise a button would only lead to a refusal.
 */
export function isOrderable(tier: Tier, config: DynamicConfig): boolean {
  if (config.tiers[tier] === undefined) return false;
  return tier === 'Free' ? config.free_keys.per_ip_per_day > 0 : config.billing !== undefined;
}

/** The names a tier may ask for, patterns as they are written, in the configuration's order. */
export function modelsOf(tier: Tier, { models }: DynamicConfig): string[] {
  return Object.entries(models).flatMap(([name, model]) => (model.tiers.includes(tier) ? [name] : []));
}

function offer(tier: Tier, terms: TierConfig, config: DynamicConfig): Html {
  return html`<li class="tier">
<h2>${tier}</h2>
${priceLine(tier, terms)}
<h3 id="limits-${tier}">Limits</h3>
<ul class="limits" aria-labelledby="limits-${tier}">${limitLines(terms).map((line) => html`<li>${line}</li>`)}</ul>
<h3 id="models-${tier}">Models</h3>
${modelList(tier, modelsOf(tier, config))}
<div class="order">${order(tier, config)}</div>
</li>
`;
}

function order(tier: Tier, config: DynamicConfig): Html {
  if (!isOrderable(tier, config)) return html`<p>Ask the operator of this gateway for a key.</p>`;
  const label = tier === 'Free' ? 'Get a Free key' : `Choose ${tier}`;
  return html`<form method="post" action="/checkout"><input type="hidden" name="tier" value="${tier}"><button type="submit">${label}</button></form>`;
}

function priceLine(tier: Tier, { price }: TierConfig): Html {
  if (price === undefined)
    return html`<p class="price">${tier === 'Free' ? 'At no cost' : 'By arrangement'}</p>`;
  if (price.amount === 0) return html`<p class="price">At no cost</p>`;
  const currency = { style: 'currency', currency: price.currency.toUpperCase() } as const;
  const format = new Intl.NumberFormat('en', { ...currency, trailingZeroDisplay: 'stripIfInteger' });
  // The configuration counts in the currency's smallest unit, as payment providers do.
  const digits = format.resolvedOptions().maximumFractionDigits ?? 2;
  const text = format.format(price.amount / 10 ** digits);
  const interval = price.interval === 'once' ? 'once' : `a ${price.interval}`;
  return html`<p class="price">${text} <small>${interval}</small></p>`;
}

/** Limits in words: value, one, many. */
function limitLines(terms: TierConfig): string[] {
  const count = new Intl.NumberFormat('en');
  const line = (value: number | undefined, one: string, many: string) =>
    value === undefined ? [] : [`${count.format(value)} ${value === 1 ? one : many}`];
  const lines = [
    ...line(terms.requests_per_minute, 'request a minute', 'requests a minute'),
    ...line(terms.tokens_per_minute, 'token a minute', 'tokens a minute'),
    ...line(terms.requests_per_day, 'request a day', 'requests a day'),
    ...line(terms.tokens_per_month, 'token a month', 'tokens a month'),
    ...line(terms.concurrency, 'request at a time', 'requests at a time'),
  ];
  return lines.length === 0 ? ['No limits'] : lines;
}

function modelList(tier: Tier, names: readonly string[]): Html {
  if (names.length === 0) return html`<p class="soft">None yet</p>`;
  const items = (some: readonly string[]) =>
    some.map((name) => html`<li><code translate="no">${name}</code></li>`);
  const list = (some: readonly string[]) =>
    html`<ul class="models" aria-labelledby="models-${tier}">${items(some)}</ul>`;
  if (names.length <= SHOWN_MODELS) return list(names);
  const rest = names.slice(SHOWN_MODELS);
  return html`${list(names.slice(0, SHOWN_MODELS))}
<details><summary>${rest.length} more</summary>${list(rest)}</details>`;
}
