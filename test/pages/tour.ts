// The way through every page, in the order in which people come to them: for pictures, and for tests that look at each.

import type { OrderChange } from '../../src/store/billing-record.ts';
import { openStore } from '../../src/store/open.ts';
import { statusOf } from '../e2e/holder.ts';
import type { Gateway } from '../helpers/gateway.ts';
import { reportOfBuyer, sampleReport } from './sample.ts';
import type { Visit } from './visit.ts';

/** Called on each page. @param name of the page, for its picture */
export type Look = (name: string) => Promise<void>;

const MODELS = ['gpt-4o-mini', 'gpt-4o', 'mistral-small'];

/** The start, a page that is not there, the tiers, a Free key, and the refusal of one. */
export async function tourFree(visit: Visit, look: Look): Promise<void> {
  const { page } = visit;
  await page.goto('/');
  await look('start');
  await page.goto('/a/page/that/is/not/there');
  await look('unknown');
  // The link is relative to the root, however deep the page would be.
  await page.getByRole('link', { name: 'See the tiers' }).click();
  await visit.title('Choose a tier');
  await page.goto('/pricing');
  await look('pricing');
  await visit.takeFreeKey();
  await look('key');
  // A form that was open when the configuration changed.
  await page.goto('/pricing');
  await page.evaluate(`document.querySelector('input[name="tier"]').value = 'Gold'`);
  await page.getByRole('button', { name: 'Get a Free key' }).click();
  await visit.title('That did not work');
  await look('refused');
}

/** An order, from its payment to each of its ends. The gateway has the test provider and is in this process. */
export async function tourOrder(visit: Visit, gateway: Gateway, look: Look): Promise<void> {
  const { page } = visit;
  const payment = await visit.choose('Lite');
  await look('test-payment');
  await page.getByRole('link', { name: 'Leave without paying' }).click();
  await visit.title('Not paid');
  await look('cancelled');
  const order = payment.replace('/test?', '/complete?');
  // It comes again by itself, which is in the way of whoever looks at it.
  await page.route('**/checkout/complete?*', async (route) => {
    const response = await route.fetch();
    const { refresh: _, ...headers } = response.headers();
    await route.fulfill({ response, headers });
  });
  await page.goto(order);
  await visit.title('Waiting for the payment');
  await look('complete-waiting');
  await page.unroute('**/checkout/complete?*');
  await page.goto(payment);
  await visit.press('Pay', 'Your order is paid');
  await look('complete-paid');
  const cookies = await page.context().cookies();
  await page.context().clearCookies();
  await page.reload();
  await look('complete-elsewhere');
  await page.context().addCookies(cookies);
  await page.reload();
  await page.getByRole('button', { name: 'Show my key' }).click();
  await visit.title('Your Lite key');
  const key = (await page.locator('pre.key').textContent()) ?? '';
  await page.goto(order);
  await page.getByRole('button', { name: 'Show another key' }).waitFor();
  await look('complete-shown');
  await statusOf(gateway.url, key);
  await page.reload();
  await page.getByText('It cannot be shown again').waitFor();
  await look('complete-used');
  await visit.choose('Pro');
  await visit.press('Decline', 'This order is over');
  await look('complete-declined');
  const other = (await visit.choose('Pro')).replace('/test?', '/complete?');
  await change(gateway, other, { state: 'refused', reason: 'not what was ordered: amount' });
  await page.goto(other);
  await visit.title('This order is on hold');
  await look('complete-refused');
}

/** The account, from the question for the key to a new one, and each way in which a holder may stand. */
export async function tourAccount(visit: Visit, gateway: Gateway, look: Look): Promise<void> {
  const { page } = visit;
  let reportOf = (prefix: string) => sampleReport(prefix, MODELS);
  const again = async (words: string): Promise<void> => {
    await page.getByRole('button', { name: 'Refresh' }).click();
    await page.getByText(words).first().waitFor();
  };
  await visit.report((prefix) => reportOf(prefix));
  await page.goto('/account');
  await look('enter');
  await page.getByLabel('API key').fill('something else');
  await page.getByRole('button', { name: 'Show usage' }).click();
  await look('complaint');
  await visit.enter(await gateway.issueKey('Lite'));
  await look('account');
  reportOf = (prefix) =>
    reportOfBuyer(prefix, 'good', { standing: 'past_due', retry_at: '2026-10-17T09:00:00.000Z' });
  await again('It is tried again on October 17, 2026.');
  await look('account-past-due');
  reportOf = (prefix) => reportOfBuyer(prefix, 'suspended', { standing: 'lapsed' });
  await again('Suspended: Lite is no longer paid.');
  await look('account-unpaid');
  reportOf = (prefix) => ({ ...sampleReport(prefix, []), standing: 'suspended' });
  await again('Suspended by the operator.');
  await look('account-stopped');
  const soon = new Date(Date.now() + 12 * 86_400_000).toISOString();
  reportOf = (prefix) => reportOfBuyer(prefix, 'good', { amount: 9900, interval: 'year', paid_until: soon });
  await again('for another year');
  await look('account-renewing');
  reportOf = (prefix) =>
    reportOfBuyer(prefix, 'good', { standing: 'past_due', paid_by: 'invoice', portal: false });
  await again('the next invoice, $9 USD, is not paid');
  await look('account-invoice');
  reportOf = (prefix) => ({
    ...reportOfBuyer(prefix, 'good', {}),
    limits: sampleReport('', []).limits.slice(0, 1),
  });
  await again('Lite renews on October 14, 2026 for $9 USD a month.');
  await look('account-paid');
  reportOf = (prefix) =>
    reportOfBuyer(prefix, 'good', { cancelled: true, ends_at: '2026-10-14T00:00:00.000Z', resumable: true });
  await again('Lite was cancelled and ends on October 14, 2026.');
  await page.getByText('Show the table').click();
  await look('account-ending');
  await page.getByRole('button', { name: 'Replace this key…' }).click();
  await look('confirm');
  await page.getByRole('button', { name: 'Replace it now' }).click();
  await page.locator('#fresh').waitFor();
  await look('rotated');
}

/** A better tier for the key that somebody has. @returns the key */
export async function tourUpgrade(visit: Visit, gateway: Gateway, look: Look): Promise<string> {
  const { page } = visit;
  const key = await gateway.issueKey('Free');
  await visit.enter(key);
  await look('account-new');
  await page.getByRole('button', { name: 'Choose Pro' }).click();
  await visit.title('Test payment');
  await visit.press('Pay', 'Your order is complete');
  await look('complete-upgraded');
  return key;
}

/** A holder with a subscription, through its portal and back. The key is on the account page. */
export async function tourPortal(visit: Visit, look: Look, key: string): Promise<void> {
  const { page } = visit;
  await visit.enter(key);
  await page.getByRole('button', { name: 'Choose Lite' }).click();
  await visit.title('Test payment');
  await visit.press('Pay', 'Your order is complete');
  await visit.enter(key);
  await look('subscription');
  await page.getByRole('button', { name: 'Manage subscription' }).click();
  await visit.title('Test portal');
  await look('portal');
  await page.getByRole('button', { name: 'Cancel at the end of the period' }).click();
  await page.getByText('cancelled, and ends with its period').waitFor();
  await look('portal-cancelled');
  await page.getByRole('link', { name: 'Return to your key’s page' }).click();
  await page.getByText('You are back from the payment provider.').waitFor();
  await look('returned');
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Show usage' }).click();
  await page.getByText('Lite was cancelled').waitFor();
  await look('subscription-cancelled');
}

/** Something that only happens at a provider, or by an operator. @param address of the page of the order */
async function change(gateway: Gateway, address: string, to: OrderChange): Promise<void> {
  const session = new URL(address).searchParams.get('session_id') ?? '';
  const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
  try {
    const order = await store.billing.findOrder({ session });
    if (order === undefined) throw new Error(`no order has the session ${session}`);
    await store.billing.changeOrder(order.id, order.version, to, new Date().toISOString());
  } finally {
    await store.close();
  }
}
