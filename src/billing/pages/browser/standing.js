// @ts-check
// Shows the notices about the holder's billing status and the tiers on offer, whose texts are in the page. It shares one scope
// with charts.js and account.js.

/**
 * @typedef {{ order: string, tier: string, standing: string, cancelled: boolean, paid_until: string | null }} Plan
 */

const day = new Intl.DateTimeFormat('en', { day: 'numeric', month: 'long', year: 'numeric' });

/** @param {{ tier: string, standing: string, plan?: Plan }} report */
// biome-ignore lint/correctness/noUnusedVariables: account.js calls it.
function showStanding({ tier, standing, plan }) {
  const found = nameOf(standing === 'good', tier, plan);
  const paidUntil = plan?.paid_until ? day.format(new Date(plan.paid_until)) : '';
  const says = { now: tier, tier: plan?.tier ?? tier, order: plan?.order ?? '', until: paidUntil };
  for (const [name, text] of Object.entries(says))
    for (const place of document.querySelectorAll(`[data-says="${name}"]`)) place.textContent = text;
  for (const notice of all('[data-standing]')) notice.hidden = notice.dataset['standing'] !== found;
  at('suspended').hidden = standing === 'good';
  const isRunning = plan?.standing === 'active' && found === '' && paidUntil !== '';
  at('renewal').textContent = isRunning ? `${plan.tier} is paid until ${paidUntil}.` : '';
  let count = 0;
  for (const offer of all('.offer')) {
    // A holder who is suspended for lack of payment may order the same tier again, or a lower one.
    const isOpen = found === 'unpaid' || (offer.dataset['above'] ?? '').split(' ').includes(tier);
    offer.hidden = !isOpen || found === 'stopped' || found === 'disputed';
    if (!offer.hidden) count += 1;
  }
  for (const place of all('#offers, #to-offers')) place.hidden = count === 0;
  for (const note of all('#replaces'))
    note.hidden = !paidUntil || (plan?.standing !== 'active' && plan?.standing !== 'past_due');
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
  if (plan.standing === 'active') return plan.cancelled ? 'ending' : '';
  if (plan.standing === 'past_due') return 'past-due';
  // Support gave the holder the tier of the order.
  if (plan.tier === tier) return '';
  return plan.standing === 'held' ? 'held' : 'lapsed';
}

/** @param {string} selector @returns {HTMLElement[]} */
function all(selector) {
  return [...document.querySelectorAll(selector)].filter((found) => found instanceof HTMLElement);
}
