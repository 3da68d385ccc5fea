// Orders without HTTP: a provider whose facts a test sets, and replicas that share only a store.
import { Authenticator } from '../../src/auth/authenticator.ts';
import { Hasher } from '../../src/auth/hashing/hasher.ts';
import { openSecret } from '../../src/auth/hashing/hashing-secret.ts';
import { KeyIssuer } from '../../src/auth/key-issuer.ts';
import { claimDigest } from '../../src/billing/claim-cookie.ts';
import { Claims } from '../../src/billing/key-claims.ts';
import { paidTerms } from '../../src/billing/new-order.ts';
import type {
  MoneyFacts,
  PaymentFacts,
  PaymentProvider,
  SubscriptionFacts,
} from '../../src/billing/payment-provider.ts';
import { NO_MONEY } from '../../src/billing/payment-provider.ts';
import { PaymentReconciliation } from '../../src/billing/payment-reconciliation.ts';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import type { BillingConfig, Tier } from '../../src/config/schema/config-schema.ts';
import type { BillingEvent, Order } from '../../src/store/billing-record.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { holderChanger, quickArgon2 } from '../auth/setting.ts';

export const DAY = 86_400_000;
export const SECRET = 'S'.repeat(43);

/** What is true of one payment at the provider. */
export interface Truth {
  status: 'open' | 'complete' | 'expired';
  payment: 'paid' | 'unpaid';
  hasFailed: boolean;
  subscription: SubscriptionFacts['status'] | 'none';
  paidUntil: number;
  unpaidSince: number | null;
  endsAt: number | null;
  retryAt: number | null;
  money: MoneyFacts;
}

/** A provider that says what the test set, as late as the test likes. */
export class SetProvider implements PaymentProvider {
  readonly name = 'stripe';
  readonly isLive = false;
  readonly origins = [];
  readonly truths = new Map<string, Truth>();
  readonly ended: string[] = [];
  looks = 0;
  /** Called between reading what is true and answering it. */
  during: (() => Promise<void>) | undefined;

  truthOf(id: string): Truth {
    const truth = this.truths.get(id) ?? {
      status: 'open',
      payment: 'unpaid',
      hasFailed: false,
      subscription: 'none',
      paidUntil: 0,
      unpaidSince: null,
      endsAt: null,
      retryAt: null,
      money: NO_MONEY,
    };
    this.truths.set(id, truth);
    return truth;
  }

  async open(): Promise<never> {
    throw new Error('not opened here');
  }

  async pageOf(): Promise<undefined> {
    return undefined;
  }

  async readFacts(order: Order): Promise<PaymentFacts> {
    this.looks += 1;
    const { subscription, money, ...truth } = { ...this.truthOf(order.id) };
    const id = `sub_${order.id}`;
    const facts: PaymentFacts = {
      session: {
        id: `cs_${order.id}`,
        status: truth.status,
        payment: truth.payment,
        hasFailed: truth.hasFailed,
        reference: order.id,
        price: order.price,
        amount: order.amount,
        currency: order.currency,
        mode: order.mode,
        isLive: false,
        subscription: subscription === 'none' ? null : id,
        payment_id: null,
        customer: null,
      },
      subscription:
        subscription === 'none'
          ? null
          : {
              id,
              status: subscription,
              price: order.price,
              isLive: false,
              paidUntil: truth.paidUntil,
              unpaidSince: truth.unpaidSince,
              endsAt: truth.endsAt,
              retryAt: truth.retryAt,
            },
      money,
    };
    await this.during?.();
    return facts;
  }

  async end({ id }: Order): Promise<void> {
    this.ended.push(id);
    this.truthOf(id).subscription = 'canceled';
  }

  async portal(): Promise<never> {
    throw new Error('not opened here');
  }

  async cancel(): Promise<never> {
    throw new Error('not cancelled here');
  }

  async refund(): Promise<never> {
    throw new Error('not refunded here');
  }
}

export interface Desk {
  readonly store: Store;
  readonly settlement: PaymentReconciliation;
  readonly claims: Claims;
  readonly issuer: KeyIssuer;
  readonly changeHolder: ReturnType<typeof holderChanger>;
  readonly authenticator: Authenticator;
}

/** One replica on a store of its own connections. */
export async function openDesk(
  address: StoreAddress,
  provider: PaymentProvider,
  options: { readonly config?: Partial<BillingConfig>; readonly now?: () => number } = {},
): Promise<Desk & AsyncDisposable> {
  const store = await openStore(address);
  const secret = await openSecret('a secret of the test', address, store);
  const metrics = createMetrics();
  const hasher = new Hasher(metrics, quickArgon2({ hashes: 0, verifies: 0 }));
  const authenticator = new Authenticator({
    store,
    secret,
    hasher,
    metrics,
    failuresPerMinute: () => 60,
    onFirstUse: (prefix) => store.billing.markFirstUse(prefix, new Date().toISOString()),
  });
  const issuer = new KeyIssuer({ store, secret, hasher, listener: authenticator });
  const now = options.now ?? Date.now;
  const config: BillingConfig = {
    provider: 'stripe',
    on_lapse: 'downgrade',
    grace: 7 * DAY,
    ...options.config,
  };
  const settlement = new PaymentReconciliation({
    store: store.billing,
    issuer,
    provider: () => provider,
    config: () => config,
    logger: createLogger(undefined, 'silent'),
    metrics,
    now,
  });
  const claims = new Claims({ store: store.billing, issuer, now });
  return {
    store,
    settlement,
    claims,
    issuer,
    changeHolder: holderChanger({ store, listener: authenticator }),
    authenticator,
    [Symbol.asyncDispose]: () => store.close(),
  };
}

/** A new order, of somebody new who has SECRET, or of a holder. */
export async function placeOrder(
  { store }: Desk,
  provider: PaymentProvider,
  options: {
    readonly tier?: Tier;
    readonly holder?: string;
    readonly interval?: 'month' | 'once';
    readonly at?: number;
  } = {},
): Promise<Order> {
  const { tier = 'Lite', holder, interval = 'month', at = Date.now() } = options;
  const price = { amount: 900, currency: 'usd', interval };
  const buyer = {
    claim: holder === undefined ? claimDigest(SECRET) : null,
    nonce: null,
    baseTier: 'Free',
  } as const;
  const terms = paidTerms(tier, { price, stripe_price: 'price' }, provider, buyer, new Date(at));
  if (terms === undefined) throw new Error('no terms');
  return (await store.billing.addOrder(terms, holder ?? null)).order;
}

let count = 0;

export function eventNamed(type: string): BillingEvent {
  count += 1;
  return { id: `evt_${count}`, type, at: new Date().toISOString() };
}

/** What of an order must not depend on the order in which things were heard of. */
export function essence({
  state,
  standing,
  reason,
  subscription,
  isCancelled,
  isReplaced,
  paidUntil,
  endsAt,
  retryAt,
}: Order) {
  return { state, standing, reason, subscription, isCancelled, isReplaced, paidUntil, endsAt, retryAt };
}

/** What may happen to a subscription that was paid, as its events are named. */
export const HAPPENINGS: Readonly<Record<string, (truth: Truth, now: number) => void>> = {
  'checkout.session.completed': (truth, now) => {
    truth.status = 'complete';
    truth.payment = 'paid';
    truth.subscription = truth.subscription === 'none' ? 'active' : truth.subscription;
    truth.paidUntil = Math.max(truth.paidUntil, now + 30 * DAY);
  },
  'invoice.paid': (truth) => {
    truth.paidUntil += 30 * DAY;
    truth.unpaidSince = null;
    truth.retryAt = null;
    if (truth.subscription === 'past_due') truth.subscription = 'active';
  },
  'invoice.payment_failed': (truth, now) => {
    if (truth.subscription !== 'active') return;
    truth.subscription = 'past_due';
    truth.unpaidSince = now;
    truth.retryAt = now + 3 * DAY;
  },
  'customer.subscription.updated': (truth) => {
    truth.endsAt = truth.endsAt === null ? truth.paidUntil : null;
  },
  'customer.subscription.deleted': (truth, now) => {
    truth.subscription = 'canceled';
    truth.paidUntil = now;
  },
  'charge.refunded': (truth) => {
    truth.money = { ...truth.money, refund: 'full' };
  },
  'refund.failed': (truth) => {
    truth.money = { ...truth.money, refund: 'none' };
  },
  'charge.dispute.created': (truth) => {
    truth.money = { ...truth.money, dispute: 'open' };
  },
  'charge.dispute.closed': (truth) => {
    if (truth.money.dispute === 'open') truth.money = { ...truth.money, dispute: 'won' };
  },
};

export function permutations<T>(items: readonly T[]): T[][] {
  if (items.length < 2) return [[...items]];
  return items.flatMap((item, index) =>
    permutations(items.filter((_, other) => other !== index)).map((rest) => [item, ...rest]),
  );
}

/** Stripe sends again what was answered 503; so does this. */
export const insist = async <T>(work: () => Promise<T>): Promise<T> => {
  for (let left = 20; ; left -= 1) {
    try {
      return await work();
    } catch (error) {
      if (left === 0) throw error;
    }
  }
};
