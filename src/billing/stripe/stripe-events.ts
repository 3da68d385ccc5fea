// Events of Stripe: that one is genuine, and which order it is about. Beyond ids nothing in it is believed.
import { isUtf8 } from 'node:buffer';
import Stripe from 'stripe';
import { z } from 'zod';
import { GatewayError } from '../../errors.ts';
import type { BillingStore, Order } from '../../store/billing-record.ts';
import type { StripeProvider } from './stripe-provider.ts';

/** Older or newer signatures are refused; the package looks at old ones alone. */
const TOLERANCE_S = 300;
/** While a secret is replaced there are two signatures; ten would not be read. */
const MAX_HEADER = 2048;

const id = z.string().min(1).max(255);
const reference = z.union([id, z.object({ id })]).nullish();

/** What is read of an event and of the object in it. Everything else may be as it likes. */
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
      /** Of an invoice, at endpoints with a version of the API before 2025-03-31. */
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
 * @param body the bytes as they came
 * @param header of the request, `stripe-signature`
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
  // Exactly one, in plain digits: what is not a number would be neither too old nor too new to the package.
  if (times.length !== 1 || time === undefined) throw new GatewayError('invalid_signature');
  if (Math.abs(Number(time) - now / 1000) > TOLERANCE_S) throw new GatewayError('invalid_signature');
  // The package would drop a byte order mark, and replace what is no UTF-8: other bytes would have the same signature.
  if (!isUtf8(body)) throw new GatewayError('invalid_signature');
  try {
    Stripe.webhooks.constructEvent(body.toString('utf8'), header, secret, TOLERANCE_S, undefined, now);
  } catch (error) {
    // Without the cause: it quotes the payload.
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

/** Which events say something about orders, by the object in them. */
const KINDS = {
  'checkout.session': 'session',
  subscription: 'subscription',
  invoice: 'invoice',
  charge: 'charge',
  refund: 'payment',
  dispute: 'payment',
  'radar.early_fraud_warning': 'payment',
} as const satisfies Record<string, string>;

/** Whether an event may be about an order at all: others need no asking. */
export function isOfInterest({ type, data: { object } }: StripeEvent): boolean {
  if (type === 'customer.subscription.trial_will_end' || type === 'invoice.upcoming') return false;
  return Object.hasOwn(KINDS, object.object);
}

/**
 * The order that an event is about: by the names that the order has at Stripe, else by the name that Stripe was given for it.
 * That it really is this order's is found out when the order is settled.
 *
 * @returns undefined for what belongs to no order of this gateway
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
      const order = await firstOf(store, [
        { session: object.id },
        { id: object.client_reference_id ?? undefined },
      ]);
      return order && { order, ...(object.id === undefined ? {} : { session: object.id }) };
    }
    case 'subscription':
      return found(await firstOf(store, [{ subscription: object.id }, { id: hinted }]));
    case 'invoice': {
      const details = object.parent?.subscription_details;
      const subscription = nameOf(details?.subscription ?? object.subscription);
      return found(await firstOf(store, [{ subscription }, { id: details?.metadata?.['order'] }]));
    }
    case 'charge':
    case 'payment': {
      const payment = nameOf(object.payment_intent);
      const direct = await firstOf(store, [{ payment }, { id: hinted }]);
      if (direct !== undefined) return { order: direct };
      const charge = kind === 'charge' ? object.id : nameOf(object.charge);
      const traced = await provider.trace({ charge, payment });
      return found(
        await firstOf(store, [
          { payment: traced.payment },
          { subscription: traced.subscription },
          { id: traced.order },
        ]),
      );
    }
    case undefined:
      return undefined;
  }
}

type MaybeName =
  | { readonly id: string | undefined }
  | { readonly session: string | undefined }
  | { readonly subscription: string | undefined }
  | { readonly payment: string | undefined };

async function firstOf(store: BillingStore, names: readonly MaybeName[]): Promise<Order | undefined> {
  for (const name of names) {
    const order = await findBy(store, name);
    if (order !== undefined) return order;
  }
  return undefined;
}

async function findBy(store: BillingStore, name: MaybeName): Promise<Order | undefined> {
  if ('id' in name) return name.id === undefined ? undefined : store.findOrder({ id: name.id });
  if ('session' in name)
    return name.session === undefined ? undefined : store.findOrder({ session: name.session });
  if ('subscription' in name) {
    const { subscription } = name;
    return subscription === undefined ? undefined : store.findOrder({ subscription });
  }
  return name.payment === undefined ? undefined : store.findOrder({ payment: name.payment });
}

const found = (order: Order | undefined) => (order === undefined ? undefined : { order });

function nameOf(reference: string | { readonly id: string } | null | undefined): string | undefined {
  return typeof reference === 'string' ? reference : reference?.id;
}
