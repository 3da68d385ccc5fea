// @ts-check
// What the account page says of the holder's standing and of other tiers. It shares one scope with charts.js and account.js; the
// words are in the page, and this shows those that are true.

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
    // Whoever is suspended for want of payment may choose the same tier again, or a smaller one.
    const isOpen = found === 'unpaid' || (offer.dataset['above'] ?? '').split(' ').includes(tier);
    offer.hidden = !isOpen || found === 'stopped' || found === 'disputed';
    if (!offer.hidden) count += 1;
  }
  for (const place of all('#offers, #to-offers')) place.hidden = count === 0;
  for (const note of all('#replaces'))
    note.hidden = !paidUntil || (plan?.standing !== 'active' && plan?.standing !== 'past_due');
}

/**
 * Which notice is true; an empty text for none.
 * @param {boolean} isGood @param {string} tier @param {Plan | undefined} plan
 */
function nameOf(isGood, tier, plan) {
  const isPaid = plan?.standing === 'active' || plan?.standing === 'past_due';
  if (!isGood) {
    // What is paid is no reason to be suspended: then it was the operator.
    if (plan === undefined || isPaid) return 'stopped';
    return plan.standing === 'held' ? 'disputed' : 'unpaid';
  }
  if (plan === undefined) return '';
  if (plan.standing === 'active') return plan.cancelled ? 'ending' : '';
  if (plan.standing === 'past_due') return 'past-due';
  // Support gave it the tier that it had paid for.
  if (plan.tier === tier) return '';
  return plan.standing === 'held' ? 'held' : 'lapsed';
}

/** @param {string} selector @returns {HTMLElement[]} */
function all(selector) {
  return [...document.querySelectorAll(selector)].filter((found) => found instanceof HTMLElement);
}
