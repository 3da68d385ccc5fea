// The pricing page: the tiers that the configuration offers, with what they cost and allow.
import { type DynamicConfig, TIERS, type Tier } from '../config/schema.ts';
import type { Exchange } from '../http/exchange.ts';
import { answerPage, type Html, html } from './page.ts';

type TierConfig = NonNullable<DynamicConfig['tiers'][Tier]>;

/** `GET /pricing` */
export function answerPricing(exchange: Exchange, config: DynamicConfig): void {
  const offers = TIERS.flatMap((tier) => {
    const terms = config.tiers[tier];
    return terms === undefined ? [] : [offer(tier, terms, modelsOf(tier, config))];
  });
  answerPage(
    exchange,
    200,
    'Choose a tier',
    html`<h1>Choose a tier</h1>
<p class="soft">Every tier speaks the OpenAI API: keep your SDK, change the base URL and the key.</p>
<ul class="tiers">${offers}</ul>`,
  );
}

function offer(tier: Tier, terms: TierConfig, models: readonly string[]): Html {
  const limits = limitLines(terms).map((line) => html`<li>${line}</li>`);
  const names = models.length === 0 ? 'none yet' : models.join(', ');
  return html`<li class="tier">
<h2 id="tier-${tier}">${tier}</h2>
<p class="price">${priceLine(tier, terms)}</p>
<ul aria-label="Limits of ${tier}">${limits}<li>Models: ${names}</li></ul>
<form method="post" action="/checkout"><input type="hidden" name="tier" value="${tier}"><button aria-describedby="tier-${tier}">${
    tier === 'Free' ? 'Get a key' : `Choose ${tier}`
  }</button></form>
</li>`;
}

function priceLine(tier: Tier, { price }: TierConfig): string {
  if (price === undefined) return tier === 'Free' ? 'Free' : 'By arrangement';
  const amount = new Intl.NumberFormat('en', { style: 'currency', currency: price.currency.toUpperCase() });
  // The configuration counts in the currency's smallest unit, as payment providers do.
  const digits = amount.resolvedOptions().maximumFractionDigits ?? 2;
  const text = amount.format(price.amount / 10 ** digits);
  return price.interval === 'once' ? text : `${text} a ${price.interval}`;
}

function limitLines(terms: TierConfig): string[] {
  const count = new Intl.NumberFormat('en');
  const line = (value: number | undefined, unit: string) =>
    value === undefined ? [] : [`${count.format(value)} ${unit}`];
  const lines = [
    ...line(terms.requests_per_minute, 'requests a minute'),
    ...line(terms.tokens_per_minute, 'tokens a minute'),
    ...line(terms.requests_per_day, 'requests a day'),
    ...line(terms.tokens_per_month, 'tokens a month'),
    ...line(terms.concurrency, 'requests at once'),
  ];
  return lines.length === 0 ? ['No limits'] : lines;
}

function modelsOf(tier: Tier, config: DynamicConfig): string[] {
  return Object.entries(config.models).flatMap(([name, model]) =>
    model.tiers.includes(tier) && !name.includes('*') ? [name] : [],
  );
}
