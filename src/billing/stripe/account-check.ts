// Compares a Stripe account with the configuration, for `tollgate check --credentials`: prices, mode, webhook endpoint, portal.
import type Stripe from 'stripe';
import { isLoopback } from '../../config/schema/addresses.ts';
import { type DynamicConfig, TIERS, type TierConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import { STRIPE_API_VERSION, type StripeCalls } from './stripe-calls.ts';

/** The events that the webhook endpoint has to receive. */
export const NEEDED_EVENTS = [
  'checkout.session.completed',
  'checkout.session.async_payment_succeeded',
  'checkout.session.async_payment_failed',
  'checkout.session.expired',
  'invoice.paid',
  'invoice.payment_failed',
  'customer.subscription.updated',
  'customer.subscription.deleted',
  'charge.refunded',
  'refund.failed',
  'charge.dispute.created',
  'charge.dispute.closed',
  'radar.early_fraud_warning.created',
] as const;

interface Finding {
  readonly isFault: boolean;
  readonly text: string;
}

const fault = (text: string): Finding => ({ isFault: true, text });
const note = (text: string): Finding => ({ isFault: false, text });

/** @param isLive whether the secret key is one of live mode. @returns what was found, faults and notes, in sentences */
export async function checkStripeAccount(
  config: DynamicConfig,
  calls: StripeCalls,
  isLive: boolean,
): Promise<readonly Finding[]> {
  const checks = [
    ...TIERS.map((tier) => checkPrice(`tiers.${tier}`, config.tiers[tier], calls, isLive)),
    checkWebhook(config, calls, isLive),
    checkPortal(calls),
  ];
  const found = await Promise.all(
    checks.map((check) => check.catch((error: unknown) => [fault(reasonOf(error))])),
  );
  return [note(`Stripe: API version ${STRIPE_API_VERSION}, ${modeName(isLive)} mode`), ...found.flat()];
}

async function checkPrice(
  path: string,
  { price, stripe_price: id }: TierConfig = {},
  calls: StripeCalls,
  isLive: boolean,
): Promise<readonly Finding[]> {
  if (price === undefined || id === undefined) return [];
  const found = await calls.call('check', (stripe) => stripe.prices.retrieve(id));
  if (found === undefined)
    return [fault(`${path}.stripe_price: Stripe has no price ${id} in ${modeName(isLive)} mode`)];
  const { recurring, unit_amount, currency, active, livemode, billing_scheme } = found;
  const own = `${price.amount} ${price.currency} ${price.interval}`;
  const interval = recurring === null ? 'once' : intervalText(recurring);
  const theirs = `${unit_amount} ${currency} ${interval}`;
  const faults = [
    ...(own === theirs ? [] : [`is ${theirs} at Stripe, and ${own} in the configuration`]),
    ...(active ? [] : ['is archived at Stripe']),
    ...(livemode === isLive ? [] : [`is of ${modeName(livemode)} mode`]),
    ...(billing_scheme === 'per_unit' ? [] : ['has tiers of its own at Stripe; it must have one amount']),
    ...(recurring?.usage_type === 'metered' ? ['is metered at Stripe; it must be licensed'] : []),
  ];
  if (faults.length === 0) return [note(`${path}.stripe_price: ${id} is ${theirs}`), ...versionFault(found)];
  return faults.map((text) => fault(`${path}.stripe_price: ${id} ${text}`));
}

/** Stripe answers in the version that was asked for, unless it no longer knows it. */
function versionFault({ lastResponse }: Partial<Stripe.Response<object>>): readonly Finding[] {
  const answered = lastResponse?.apiVersion;
  if (answered === undefined || answered === STRIPE_API_VERSION) return [];
  return [fault(`Stripe answered in API version ${answered}, and ${STRIPE_API_VERSION} was asked for`)];
}

function intervalText({ interval, interval_count }: Stripe.Price.Recurring): string {
  return interval_count === 1 ? interval : `every ${interval_count} ${interval}s`;
}

async function checkWebhook(
  { public_url }: DynamicConfig,
  calls: StripeCalls,
  isLive: boolean,
): Promise<readonly Finding[]> {
  const url = `${public_url}/webhooks/stripe`;
  const list = await calls.call('check', (stripe) => stripe.webhookEndpoints.list({ limit: 100 }));
  const own = (list?.data ?? []).filter((endpoint) => endpoint.url === url);
  const endpoint = own.find(({ status }) => status === 'enabled') ?? own[0];
  if (endpoint === undefined) {
    const text = `webhook: Stripe has no endpoint ${url} in ${modeName(isLive)} mode`;
    // On a developer's machine, `stripe listen` forwards events instead.
    return [isLoopback(new URL(public_url)) ? note(text) : fault(`${text}; events do not arrive`)];
  }
  const { enabled_events: events, status, livemode, api_version } = endpoint;
  const missing = events.includes('*') ? [] : NEEDED_EVENTS.filter((name) => !events.includes(name));
  const faults = [
    ...(status === 'enabled' ? [] : ['is disabled at Stripe']),
    ...(livemode === isLive ? [] : [`is of ${modeName(livemode)} mode`]),
    ...(missing.length === 0 ? [] : [`does not receive ${missing.join(', ')}`]),
  ];
  if (faults.length > 0) return faults.map((text) => fault(`webhook: ${url} ${text}`));
  // Only ids are read from events, so they may be of another version.
  const version = api_version === null ? 'the account’s default' : api_version;
  return [note(`webhook: ${url} receives the events that are needed, in API version ${version}`)];
}

async function checkPortal(calls: StripeCalls): Promise<readonly Finding[]> {
  const list = await calls.call('check', (stripe) =>
    stripe.billingPortal.configurations.list({ is_default: true, active: true, limit: 1 }),
  );
  const features = list?.data[0]?.features;
  if (features === undefined)
    return [fault('portal: the customer portal has no settings; save them once in Stripe’s dashboard')];
  const { subscription_cancel: cancel, subscription_update: update } = features;
  return [
    ...(update.enabled
      ? [fault('portal: it lets customers change plans; such a subscription no longer matches its order')]
      : []),
    note(
      cancel.enabled
        ? `portal: customers can cancel, ${cancel.mode === 'immediately' ? 'at once' : 'at the end of the period'}`
        : 'portal: customers cannot cancel',
    ),
  ];
}

const modeName = (isLive: boolean) => (isLive ? 'live' : 'test');

function reasonOf(error: unknown): string {
  if (!(error instanceof GatewayError)) throw error;
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : '';
  return `Stripe could not be asked${cause}`;
}
