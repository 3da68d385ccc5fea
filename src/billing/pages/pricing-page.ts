// The pricing page: the configured tiers with their prices, limits and models. checkout.ts handles the choice.
import { limitTexts } from '../../config/limit-table.ts';
import { type DynamicConfig, TIERS, type Tier, type TierConfig } from '../../config/schema/config-schema.ts';
import { BUDGET_LIMITS } from '../../config/terms.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { baseUrl } from '../base-url.ts';
import { newNonce } from '../claim-cookie.ts';
import type { PaymentProvider } from '../payment-provider.ts';
import { answerPage, type Html, html, NOTHING, taxLine, textBox } from './page-frame.ts';
import { amountText, intervalText, localeOf } from './price-text.ts';
import { contactHref } from './theme.ts';

/** More models than this are folded away: the page compares tiers, and `GET /v1/models` lists models. */
const SHOWN_MODELS = 8;
/** Further models are only counted. */
const LISTED_MODELS = 100;
const SHOWN_PATTERNS = 8;

/** `GET /pricing` @param provider the payment provider, when there is one */
export function answerPricing(
  exchange: Exchange,
  config: DynamicConfig,
  provider: Pick<PaymentProvider, 'origins'> | undefined,
): void {
  const nonce = newNonce();
  const locale = localeOf(exchange);
  const offers = TIERS.flatMap((tier) => {
    const terms = config.tiers[tier];
    return terms === undefined ? [] : [offer(tier, terms, config, { nonce, locale })];
  });
  answerPage(exchange, 200, {
    title: 'Choose a tier',
    path: 'pricing',
    branding: config.branding,
    hasForms: true,
    formTargets: provider?.origins,
    body: html`<h1>Choose a tier</h1>
<p class="lead">Every tier speaks the OpenAI API: keep your SDK, and change the base URL and the key.</p>
${
  offers.length === 0
    ? html`<p class="notice">No tier is on offer here at the moment.</p>`
    : html`<ul class="tiers">
${offers}</ul>${TIERS.some((tier) => config.tiers[tier]?.price !== undefined) ? taxLine(config.branding) : NOTHING}`
}
${textBox('base-url', 'Base URL for every key', baseUrl(exchange, config), 'line')}
<p class="soft">The official OpenAI SDKs take it from the variable <code>OPENAI_BASE_URL</code>, and the key from <code>OPENAI_API_KEY</code>. Once you have a key, <a href="account">your key’s page</a> shows its usage${
      config.billing === undefined ? NOTHING : ', and changes its tier while the key stays the same'
    }.</p>`,
  });
}

/**
 * Whether a key of this tier can be ordered: Free when free keys are enabled, others when billing is configured. Without it a
 * button would only lead to an error.
 */
export function isOrderable(tier: Tier, config: DynamicConfig): boolean {
  if (config.tiers[tier] === undefined) return false;
  return tier === 'Free' ? config.free_keys.per_ip_per_day > 0 : config.billing !== undefined;
}

/** The models of a tier, in the configuration's order: exact names, and patterns as written. */
export function modelsOf(
  tier: Tier,
  { models }: DynamicConfig,
): { readonly names: readonly string[]; readonly patterns: readonly string[] } {
  const all = Object.entries(models).flatMap(([name, model]) => (model.tiers.includes(tier) ? [name] : []));
  return {
    names: all.filter((name) => !name.includes('*')),
    patterns: all.filter((name) => name.includes('*')),
  };
}

function offer(
  tier: Tier,
  terms: TierConfig,
  config: DynamicConfig,
  { nonce, locale }: { readonly nonce: string; readonly locale: string },
): Html {
  return html`<li class="tier">
<h2>${tier}</h2>
${priceLine(tier, terms, locale)}
<h3 id="limits-${tier}">Limits</h3>
<ul class="limits" aria-labelledby="limits-${tier}">${limitLines(terms, locale, config.currency)}</ul>
<h3 id="models-${tier}">Models</h3>
<div>${modelList(tier, config)}</div>
<div class="order">${order(tier, config, nonce)}</div>
</li>
`;
}

function order(tier: Tier, config: DynamicConfig, nonce: string): Html {
  if (isOrderable(tier, config)) {
    const label = tier === 'Free' ? 'Get a Free key' : `Choose ${tier}`;
    return html`<form method="post" action="checkout"><input type="hidden" name="tier" value="${tier}"><input type="hidden" name="nonce" value="${nonce}"><button type="submit">${label}</button></form>`;
  }
  const contact = config.branding?.contact;
  if (contact === undefined) return html`<p>Ask the operator of this gateway for a key.</p>`;
  const href = contactHref(contact, `A ${tier} key`);
  return html`<a class="button quiet" href="${href}" rel="noreferrer">Ask for a ${tier} key</a>`;
}

export function priceLine(tier: Tier, { price }: TierConfig, locale: string): Html {
  if (price === undefined)
    return html`<p class="price">${tier === 'Free' ? 'At no cost' : 'By arrangement'}</p>`;
  if (price.amount === 0) return html`<p class="price">At no cost</p>`;
  return html`<p class="price">${amountText(price, locale)} <small>${intervalText(price, locale)}</small></p>`;
}

/** Limits and the budget in words. */
export function limitLines(terms: TierConfig, locale: string, currency = ''): readonly Html[] {
  const count = new Intl.NumberFormat(locale, { numberingSystem: 'latn' });
  const lines = limitTexts(terms, count.format).map(
    ({ max, text }) => html`<li><strong>${max}</strong> ${text}</li>`,
  );
  const budgets = BUDGET_LIMITS.flatMap(({ limit, window }) => {
    const max = terms[limit];
    if (max === undefined) return [];
    const amount = new Intl.NumberFormat(locale, { numberingSystem: 'latn', maximumFractionDigits: 6 });
    const text = `${amount.format(max / 1e9)} ${currency}`.trimEnd();
    return [html`<li><strong>${text}</strong> budget a ${window}</li>`];
  });
  return lines.length + budgets.length === 0 ? [html`<li>No limits</li>`] : [...lines, ...budgets];
}

function modelList(tier: Tier, config: DynamicConfig): Html {
  const { names, patterns } = modelsOf(tier, config);
  if (names.length === 0 && patterns.length === 0) return html`<p class="soft">None yet</p>`;
  const list = (some: readonly string[]) =>
    html`<ul class="models" aria-labelledby="models-${tier}">${some.map((name) => html`<li><code translate="no">${name}</code></li>`)}</ul>`;
  const rest = names.slice(SHOWN_MODELS, LISTED_MODELS);
  const uncounted = Math.max(0, names.length - LISTED_MODELS);
  return html`${names.length === 0 ? NOTHING : list(names.slice(0, SHOWN_MODELS))}${
    rest.length === 0
      ? NOTHING
      : html`
<details><summary>${names.length - SHOWN_MODELS} more</summary>${list(rest)}${
          uncounted === 0
            ? NOTHING
            : html`<p class="soft">and ${uncounted} more, which <code translate="no">GET /v1/models</code> lists</p>`
        }</details>`
  }${patterns.length === 0 ? NOTHING : families(patterns, names.length > 0)}`;
}

/** Patterns in words, because buyers need not know the meaning of `*`. */
function families(patterns: readonly string[], hasNames: boolean): Html {
  const lines = patterns.slice(0, SHOWN_PATTERNS).map((pattern) => {
    const star = pattern.indexOf('*');
    const [start, end] = [pattern.slice(0, star), pattern.slice(star + 1)];
    const begins = html`begins with <code translate="no">${start}</code>`;
    const ends = html`ends with <code translate="no">${end}</code>`;
    if (start === '' && end === '') return html`<li>${hasNames ? 'any other name' : 'any name'}</li>`;
    if (start === '') return html`<li>any name that ${ends}</li>`;
    return html`<li>any name that ${begins}${end === '' ? NOTHING : html` and ${ends}`}</li>`;
  });
  const more = patterns.length - lines.length;
  return html`
<ul class="families">${lines}${more > 0 ? html`<li>and ${more} more families of names</li>` : NOTHING}</ul>`;
}
