// The terms of a new order, from the offers in the configuration.
import { randomUUID } from 'node:crypto';
import type { Tier, TierConfig } from '../config/schema/config-schema.ts';
import type { OrderTerms } from '../store/billing-record.ts';
import type { PaymentProvider } from './payment-provider.ts';

/** The buyer of an order, and the digests that identify it later. */
interface Buyer {
  readonly claim: Uint8Array | null;
  readonly nonce: Uint8Array | null;
  readonly baseTier: Tier;
}

/** @returns undefined when the tier has no price */
export function paidTerms(
  tier: Tier,
  { price, stripe_price }: TierConfig,
  { name, isLive }: Pick<PaymentProvider, 'name' | 'isLive'>,
  buyer: Buyer,
  at: Date,
): OrderTerms | undefined {
  if (price === undefined) return undefined;
  const named = name === 'stripe' ? stripe_price : `${name === 'test' ? 'played' : 'invoiced'}_${tier}`;
  if (named === undefined) return undefined;
  return {
    id: `ord_${randomUUID()}`,
    tier,
    price: named,
    amount: price.amount,
    currency: price.currency,
    mode: price.interval === 'once' ? 'payment' : 'subscription',
    interval: price.interval,
    provider: name,
    isLive,
    ...buyer,
    createdAt: at.toISOString(),
  };
}

export function freeTerms(buyer: Omit<Buyer, 'baseTier'>, at: Date): OrderTerms {
  return {
    id: `ord_${randomUUID()}`,
    tier: 'Free',
    price: null,
    amount: 0,
    currency: 'xxx',
    mode: 'free',
    interval: 'once',
    provider: 'none',
    isLive: false,
    ...buyer,
    baseTier: 'Free',
    createdAt: at.toISOString(),
  };
}
