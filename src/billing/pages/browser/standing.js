// @ts-check
// Shows the notices about the holder's billing status and the tiers on offer, whose texts are in the page. It shares one scope
// with charts.js and account.js.

/**
 * @typedef {{ order: string, tier: string, standing: string, amount: number, currency: string, interval: string, paid_by: string, cancelled: boolean, paid_until: string | null, ends_at: string | null, retry_at: string | null, resumable: boolean, portal: boolean }} Plan
 */

/** A yearly renewal is announced this long before. */
const REMINDER_MS = 30 * 86_400_000;

const day = new Intl.DateTimeFormat(DATE_LOCALE, {
  day: 'numeric',
  month: 'long',
  year: 'numeric',
  timeZone: 'UTC',
});

/** @param {{ tier: string, standing: string, plan?: Plan }} report */
// biome-ignore lint/correctness/noUnusedVariables: account.js calls it.
function showStanding({ tier, standing, plan }) {
  const found = nameOf(standing === 'good', tier, plan);
  const [until, ends, retry] = [plan?.paid_until, plan?.ends_at, plan?.retry_at].map(dayText);
  const amount = plan === undefined ? '' : amountText(plan);
  const says = { now: tier, tier: plan?.tier ?? tier, order: plan?.order ?? '', until, ends, retry, amount };
  for (const [name, text = ''] of Object.entries(says))
    for (const place of document.querySelectorAll(`[data-says="${name}"]`)) place.textContent = text;
  const facts = {
    portal: plan?.portal === true,
    invoice: plan?.paid_by === 'invoice' && plan.interval !== 'once',
    retry: retry !== '',
    resumable: plan?.resumable === true && plan.portal,
    unpaid: plan?.portal === true && plan.standing === 'lapsed' && !plan.cancelled,
  };
  for (const [name, holds] of Object.entries(facts))
    for (const part of all(`[data-when="${name}"]`)) part.hidden = !holds;
  for (const panel of all('#subscription')) panel.hidden = !facts.portal && !facts.invoice;
  for (const notice of all('[data-standing]')) notice.hidden = notice.dataset['standing'] !== found;
  at('suspended').hidden = standing === 'good';
  at('renewal').textContent =
    plan?.standing === 'active' && found === '' ? renewalText(plan, until ?? '') : '';
  let count = 0;
  for (const offer of all('.offer')) {
    // A holder who is suspended for lack of payment may order the same tier again, or a lower one; one whose payment is under review
    // would pay twice for its tier.
    const least = found === 'held' ? (plan?.tier ?? tier) : tier;
    const isOpen = found === 'unpaid' || (offer.dataset['above'] ?? '').split(' ').includes(least);
    offer.hidden = !isOpen || found === 'stopped' || found === 'disputed';
    if (!offer.hidden) count += 1;
  }
  for (const place of all('#offers, #to-offers')) place.hidden = count === 0;
  for (const note of all('#replaces'))
    note.hidden = !until || (plan?.standing !== 'active' && plan?.standing !== 'past_due');
}

/** @param {string | null | undefined} time RFC 3339 */
function dayText(time) {
  return time ? day.format(new Date(time)) : '';
}

/** Currency symbols that need the currency's code beside them. */
const AMBIGUOUS = new RegExp(at('report').dataset['ambiguous'] ?? '');

/** `$9 USD`, as price-text.ts writes it. @param {Plan} plan */
function amountText({ amount, currency }) {
  const code = currency.toUpperCase();
  const options = /** @type {const} */ ({
    style: 'currency',
    currency: code,
    trailingZeroDisplay: 'stripIfInteger',
  });
  const format = new Intl.NumberFormat(LOCALE, { ...latin, ...options });
  const value = amount / 10 ** (format.resolvedOptions().maximumFractionDigits ?? 2);
  const symbol = format.formatToParts(value).find(({ type }) => type === 'currency')?.value ?? '';
  return `${format.format(value)}${AMBIGUOUS.test(symbol) ? ` ${code}` : ''}`;
}

/** @param {Plan} plan @param {string} until */
function renewalText(plan, until) {
  if (plan.interval === 'once') return `${plan.tier} is paid. It was paid once, and does not renew.`;
  if (until === '') return '';
  if (plan.paid_by === 'invoice')
    return `${plan.tier} is paid until ${until}. You get an invoice for the time after that.`;
  return `${plan.tier} renews on ${until} for ${amountText(plan)} a ${plan.interval}.`;
}

/**
 * The name of the notice that applies; empty for none.
 * @param {boolean} isGood @param {string} tier @param {Plan | undefined} plan
 */
function nameOf(isGood, tier, plan) {
  const isPaid = plan?.standing === 'active' || plan?.standing === 'past_due';
  if (!isGood) {
    // A paid order is no reason for a suspension, so the operator suspended the holder.
    if (plan === undefined || isPaid) return 'stopped';
    return plan.standing === 'held' ? 'disputed' : 'unpaid';
  }
  if (plan === undefined) return '';
  if (plan.standing === 'active' && !plan.cancelled) return isRenewingSoon(plan) ? 'renewing' : '';
  if (plan.standing === 'active') return 'ending';
  if (plan.standing === 'past_due') return plan.paid_by === 'invoice' ? 'invoice-due' : 'past-due';
  // Support gave the holder the tier of the order.
  if (plan.tier === tier) return '';
  return plan.standing === 'held' ? 'held' : 'lapsed';
}

/** @param {Plan} plan */
function isRenewingSoon({ interval, paid_by, paid_until, portal }) {
  const isYearly = interval === 'year' && paid_by !== 'invoice' && portal;
  return isYearly && Date.parse(paid_until ?? '') - Date.now() < REMINDER_MS;
}

/** @param {string} selector @returns {HTMLElement[]} */
function all(selector) {
  return [...document.querySelectorAll(selector)].filter((found) => found instanceof HTMLElement);
}
