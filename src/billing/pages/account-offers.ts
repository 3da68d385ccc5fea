// The parts of the account page about billing: notices about the holder's billing status, and the tiers that it can order. All
// of them are in the page, hidden; browser/standing.js shows those that apply.
import { type DynamicConfig, TIERS } from '../../config/schema/config-schema.ts';
import { newNonce } from '../claim-cookie.ts';
import { asking, contactLink, type Html, html, NOTHING, taxLine } from './page-frame.ts';
import { isOrderable, limitLines, priceLine } from './pricing-page.ts';
import { contactHref } from './theme.ts';

const DAY = 86_400_000;
const HOUR = 3_600_000;

/** Placeholders that the script fills: tier, id, price and dates of the deciding order, and the tier of the key. */
const TIER = html`<span data-says="tier"></span>`;
const ORDER = html`<code translate="no" data-says="order"></code>`;
const UNTIL = html`<span data-says="until"></span>`;
const ENDS = html`<span data-says="ends"></span>`;
const RETRY = html`<span data-says="retry"></span>`;
const AMOUNT = html`<span data-says="amount"></span>`;
/** A link for holders with a customer portal. */
const MANAGE = html`<a href="#subscription-title">manage your subscription</a>`;

/** A part of a notice that only applies when the script says so. */
const when = (fact: string, text: Html): Html => html`<span data-when="${fact}" hidden>${text}</span>`;
const NOW = html`<span data-says="now"></span>`;

const OPEN_INVOICE = when('unpaid', html`If an invoice is open, you can pay it instead: ${MANAGE}.`);

/** Where the holder cancels, changes the card and sees invoices. */
export function subscriptionPanel({ branding, billing }: DynamicConfig): Html {
  if (billing === undefined) return NOTHING;
  const contact = contactLink(branding, 'My subscription');
  const ask = contact === undefined ? html`Ask the operator of this gateway` : html`Write to ${contact}`;
  return html`<section class="card panel panel-alone" id="subscription" aria-labelledby="subscription-title" hidden><h3 id="subscription-title" tabindex="-1">Your subscription</h3>
<p data-when="portal" hidden>At the payment provider you can cancel at the end of the paid period or undo that, change your card, your billing address and tax number, and see your invoices.</p>
<button type="button" class="quiet small" id="manage" data-when="portal" hidden>Manage subscription</button>
<p data-when="invoice" hidden>It is paid by invoice. ${ask} to cancel it, or about an invoice, and name the order ${ORDER}.</p></section>
`;
}

/** One notice for each billing status that needs the holder's attention. */
export function billingNotices(config: DynamicConfig): Html {
  const { branding, billing } = config;
  const ask = asking(branding, 'My key');
  const again =
    billing === undefined || !TIERS.some((tier) => tier !== 'Free' && isOrderable(tier, config))
      ? html`To get it back, ${ask}.`
      : html`To get it back, <a href="#offers-title">choose a tier below</a>: your key stays the same.`;
  const support = html`If you think that this is wrong, ${ask} and name the order ${ORDER}.`;
  const grace = billing === undefined ? '' : ` for up to ${lengthText(billing.grace)}`;
  const notices: readonly (readonly [string, 'bad' | '', Html])[] = [
    [
      'stopped',
      'bad',
      html`<strong>Suspended by the operator.</strong> Requests with your key are rejected until the suspension ends. You can still see your usage and replace your key. To end the suspension, ${ask} and name the key by its first eight characters.`,
    ],
    [
      'unpaid',
      'bad',
      html`<strong>Suspended: ${TIER} is no longer paid.</strong> Requests with your key are rejected. ${again} ${OPEN_INVOICE} ${support}`,
    ],
    [
      'disputed',
      'bad',
      html`<strong>Suspended: the payment for ${TIER} is under review.</strong> It was disputed, or the card’s bank issued a warning. Requests with your key are rejected until the review ends. Please ${ask} and name the order ${ORDER}.`,
    ],
    [
      'past-due',
      'bad',
      html`<strong>The last payment for ${TIER}, ${AMOUNT}, failed.</strong> ${when('retry', html`It is tried again on ${RETRY}.`)} Nothing changes yet: you keep your tier${grace} after the failure. ${when('portal', html`To pay the open invoice or to enter another card, ${MANAGE}.`)} If that does not help, ${ask} and name the order ${ORDER}.`,
    ],
    [
      'invoice-due',
      'bad',
      html`<strong>${TIER} was paid until ${UNTIL}, and the next invoice, ${AMOUNT}, is not paid.</strong> You keep your tier${grace} after that day. If you have no invoice, or have paid it, ${ask} and name the order ${ORDER}.`,
    ],
    [
      'held',
      'bad',
      html`<strong>The payment for ${TIER} is under review.</strong> It was disputed, or the card’s bank issued a warning. Until the review ends, your key has the tier ${NOW}. Please ${ask} and name the order ${ORDER}.`,
    ],
    [
      'lapsed',
      '',
      html`<strong>${TIER} is no longer paid.</strong> Your key has the tier ${NOW}. ${again} ${OPEN_INVOICE} ${support}`,
    ],
    [
      'ending',
      '',
      html`<strong>${TIER} was cancelled</strong> and ends on ${ENDS}. Until then nothing changes, and nothing more is charged. ${when('resumable', html`To keep it, ${MANAGE} before that day.`)}`,
    ],
    [
      'renewing',
      '',
      html`<strong>${TIER} renews on ${UNTIL} for another year</strong>, and ${AMOUNT} is charged. If you do not want that, ${MANAGE} and cancel before that day.`,
    ],
  ];
  return html`${notices.map(
    ([name, kind, text]) =>
      html`<p class="notice ${kind}" data-standing="${name}" hidden>${text}</p>
`,
  )}`;
}

/**
 * The tiers that cost something. The script shows those above the holder's tier.
 * @returns `NOTHING` when no such tier can be ordered or asked for
 */
export function tierOffers(config: DynamicConfig, locale: string): Html {
  const offers = TIERS.flatMap((tier, index) => {
    const terms = config.tiers[tier];
    if (terms === undefined || tier === 'Free') return [];
    const way = wayTo(tier, config);
    if (way === undefined) return [];
    // The tiers below this one.
    const above = TIERS.slice(0, index).join(' ');
    return [
      html`<li class="offer" data-above="${above}" hidden><div><h4>${tier}</h4>
${priceLine(tier, terms, locale)}
<ul class="limits" aria-label="Limits of ${tier}">${limitLines(terms, locale, config.currency)}</ul></div>
${way}</li>
`,
    ];
  });
  if (offers.length === 0) return NOTHING;
  return html`<section class="card panel panel-alone" id="offers" aria-labelledby="offers-title" data-nonce="${newNonce()}" hidden>
<h3 id="offers-title" tabindex="-1">Choose another tier</h3>
<p>Your key and your usage stay the same. <span id="replaces" hidden>Your current tier is cancelled when the new one is paid; the rest of its period is not refunded.</span> <a href="pricing">Compare the tiers</a></p>
<ul class="offers">
${offers}</ul>${taxLine(config.branding)}</section>`;
}

/** The command that does the same without scripts. */
export function upgradeCommand(url: string, config: DynamicConfig): string | undefined {
  const best = TIERS.findLast((tier) => tier !== 'Free' && isOrderable(tier, config));
  if (best === undefined) return undefined;
  return `curl -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' -d '{"tier":"${best}"}' ${url}`;
}

function wayTo(tier: (typeof TIERS)[number], config: DynamicConfig): Html | undefined {
  if (isOrderable(tier, config))
    return html`<button type="button" data-order="${tier}">Choose ${tier}</button>`;
  const contact = config.branding?.contact;
  if (contact === undefined) return undefined;
  return html`<a class="button quiet" href="${contactHref(contact, `${tier} for my key`)}" rel="noreferrer">Ask for ${tier}</a>`;
}

/** `7 days` */
function lengthText(ms: number): string {
  const [count, unit] = ms % DAY === 0 ? [ms / DAY, 'day'] : [Math.ceil(ms / HOUR), 'hour'];
  return `${count} ${unit}${count === 1 ? '' : 's'}`;
}
