// Verifies events of Stripe and finds the order of an event. Only ids in an event are used; facts are read from Stripe.
import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { GatewayError } from '../../errors.ts';
import type { BillingStore, Order, OrderName } from '../../store/billing-record.ts';
import { stripeIdOf } from './stripe-facts.ts';
import { stripePackage } from './stripe-package.ts';
import type { StripeProvider } from './stripe-provider.ts';

/** Maximum age of a signature, in both directions; the package rejects old ones only. */
const TOLERANCE_S = 300;
/** Maximum length of the signature header. While a secret is rotated, there are two signatures. */
const MAX_HEADER = 2048;

const id = z.string().min(1).max(255);
const reference = z.union([id, z.object({ id })]).nullish();

/** The members of an event that are read. Everything else is ignored. */
const Event = z.object({
  id: z.string().regex(/^evt_[A-Za-z0-9_]{1,250}$/),
  type: z.string().min(1).max(100),
  livemode: z.boolean(),
  account: z.string().nullish(),
  data: z.object({
    object: z.looseObject({
      id: id.optional(),
      object: z.string().max(100),
      client_reference_id: z.string().max(255).nullish(),
      metadata: z.record(z.string(), z.string()).nullish(),
      charge: reference,
      payment_intent: reference,
      /** In invoices of API versions before 2025-03-31. */
      subscription: reference,
      parent: z
        .looseObject({
          subscription_details: z
            .looseObject({ subscription: reference, metadata: z.record(z.string(), z.string()).nullish() })
            .nullish(),
        })
        .nullish(),
    }),
  }),
});

export type StripeEvent = z.output<typeof Event>;

/**
 * @param body the raw bytes
 * @param header the `stripe-signature` header
 * @param now milliseconds since 1970
 * @throws GatewayError `invalid_signature`, `invalid_event`
 */
export function readStripeEvent(
  body: Buffer,
  header: string | readonly string[] | undefined,
  secret: string,
  now: number,
): StripeEvent {
  if (typeof header !== 'string' || header.length > MAX_HEADER) throw new GatewayError('invalid_signature');
  const times = header.split(',').filter((part) => /^\s*t\s*=/.test(part));
  const time = /^t=([1-9]\d{0,11})$/.exec(times[0] ?? '')?.[1];
  // Exactly one, in plain digits: the package would accept a time that is not a number.
  if (times.length !== 1 || time === undefined) throw new GatewayError('invalid_signature');
  if (Math.abs(Number(time) - now / 1000) > TOLERANCE_S) throw new GatewayError('invalid_signature');
  // The package removes a byte order mark and replaces invalid UTF-8, so other bytes would have the same signature.
  if (!isUtf8(body)) throw new GatewayError('invalid_signature');
  const Stripe = stripePackage();
  try {
    Stripe.webhooks.constructEvent(body.toString('utf8'), header, secret, TOLERANCE_S, undefined, now);
  } catch (error) {
    // No cause, because it quotes the payload.
    const isSigned = !(error instanceof Stripe.errors.StripeSignatureVerificationError);
    throw new GatewayError(isSigned ? 'invalid_event' : 'invalid_signature');
  }
  const event = parse(body);
  if (event === undefined) throw new GatewayError('invalid_event');
  return event;
}

function parse(body: Buffer): StripeEvent | undefined {
  try {
    return Event.safeParse(JSON.parse(body.toString('utf8'))).data;
  } catch {
    return undefined;
  }
}

/** Objects whose events can be about an order. */
const KINDS = {
  'checkout.session': 'session',
  subscription: 'subscription',
  invoice: 'invoice',
  charge: 'charge',
  refund: 'payment',
  dispute: 'payment',
  'radar.early_fraud_warning': 'payment',
} as const satisfies Record<string, string>;

/** Whether an event can be about an order. */
export function isOfInterest({ type, data: { object } }: StripeEvent): boolean {
  if (type === 'customer.subscription.trial_will_end' || type === 'invoice.upcoming') return false;
  return Object.hasOwn(KINDS, object.object);
}

/**
 * The order of an event: by the stored ids of Stripe's objects, else by the order id in Stripe's metadata. Settling the order
 * verifies that they belong together.
 *
 * @returns undefined when it belongs to no order of this gateway
 * @throws GatewayError `payment_unavailable`, `store_unavailable`
 */
export async function orderIdOf(
  { data: { object } }: StripeEvent,
  store: BillingStore,
  provider: StripeProvider,
): Promise<{ readonly order: Order; readonly session?: string } | undefined> {
  const kind = Object.entries(KINDS).find(([name]) => name === object.object)?.[1];
  const hinted = object.metadata?.['order'];
  switch (kind) {
    case 'session': {
      const { id: session, client_reference_id: reference } = object;
      const order = await firstOf(store, session && { session }, reference && { id: reference });
      return order && { order, ...(session === undefined ? {} : { session }) };
    }
    case 'subscription':
      return found(await firstOf(store, object.id && { subscription: object.id }, hinted && { id: hinted }));
    case 'invoice': {
      const details = object.parent?.subscription_details;
      const subscription = stripeIdOf(details?.subscription ?? object.subscription);
      const order = details?.metadata?.['order'];
      return found(await firstOf(store, subscription && { subscription }, order && { id: order }));
    }
    case 'charge':
    case 'payment': {
      const payment = stripeIdOf(object.payment_intent);
      const direct = await firstOf(store, payment && { payment }, hinted && { id: hinted });
      if (direct !== undefined) return { order: direct };
      const charge = kind === 'charge' ? object.id : stripeIdOf(object.charge);
      const traced = await provider.trace({ charge, payment });
      const { payment: paid, subscription, order } = traced;
      const names = [paid && { payment: paid }, subscription && { subscription }, order && { id: order }];
      return found(await firstOf(store, ...names));
    }
    case undefined:
      return undefined;
  }
}

/** @param names an unknown one is undefined or empty */
async function firstOf(
  store: BillingStore,
  ...names: readonly (OrderName | '' | null | undefined)[]
): Promise<Order | undefined> {
  for (const name of names) {
    const order = name ? await store.findOrder(name) : undefined;
    if (order !== undefined) return order;
  }
  return undefined;
}

const found = (order: Order | undefined) => (order === undefined ? undefined : { order });
