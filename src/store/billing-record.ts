// Records of orders, of events of the payment provider, and of payments that no provider keeps. billing/ has the rules for them.
import type { Tier } from '../config/schema/config-schema.ts';
import type { BillingStatus, FreeGrant, KeyRecord, NewKey, Prefix } from './key-record.ts';

export const ORDER_STATES = ['pending', 'paid', 'claimed', 'void', 'refused'] as const;

/**
 * - `pending`: not paid, or payment not confirmed yet.
 * - `paid`: the buyer has not claimed the key yet.
 * - `claimed`: the key was delivered, or the ordering holder has the tier. Final.
 * - `void`: expired, failed, or withdrawn before it was claimed.
 * - `refused`: the payment does not match the order; support has to review it.
 */
export type OrderState = (typeof ORDER_STATES)[number];

export const ORDER_BILLING_STATUSES = ['none', 'active', 'past_due', 'held', 'lapsed', 'ended'] as const;

/**
 * The billing status of an order. `active` and `past_due` (grace period after a failed payment) grant its tier, the others
 * nothing. `held` is a dispute or a fraud warning; `lapsed` can be paid again; `ended` is final.
 */
export type OrderBillingStatus = (typeof ORDER_BILLING_STATUSES)[number];

/** `free` costs nothing, `payment` is paid once, `subscription` recurs. */
export type OrderMode = 'free' | 'payment' | 'subscription';
export type OrderInterval = 'month' | 'year' | 'once';
/** `none`: a Free key, or an order that is paid by invoice. */
export type ProviderName = 'none' | 'stripe' | 'test';

/** The immutable terms of an order. */
export interface OrderTerms {
  /** Public: it appears in URLs and grants no access. */
  readonly id: string;
  readonly tier: Tier;
  /** The provider's id of the price; null when it has none. */
  readonly price: string | null;
  /** Price of one interval in the smallest unit of the currency. */
  readonly amount: number;
  readonly currency: string;
  readonly mode: OrderMode;
  readonly interval: OrderInterval;
  readonly provider: ProviderName;
  /** Whether real money is charged. */
  readonly isLive: boolean;
  /** SHA-256 of the claim secret; null when a holder ordered, who has a key. */
  readonly claim: Uint8Array | null;
  /** SHA-256 of the order form's nonce, which makes submitting it idempotent. */
  readonly nonce: Uint8Array | null;
  /** The tier that the holder returns to; Free for a new holder. */
  readonly baseTier: Tier;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

export interface Order extends OrderTerms {
  readonly state: OrderState;
  readonly standing: OrderBillingStatus;
  /** Explanation of the state for support; null when the state is enough. */
  readonly reason: string | null;
  /** Id of the provider's checkout session. */
  readonly session: string | null;
  readonly subscription: string | null;
  /** Id of the payment of an order that is paid once. */
  readonly payment: string | null;
  /** The provider's id of the buyer. */
  readonly customer: string | null;
  /** The subscription has ended at the provider, which is final. */
  readonly isCancelled: boolean;
  /** Support has decided that fraud warnings do not hold it. */
  readonly isTrusted: boolean;
  /** Another order replaced it: its subscription has to be cancelled at the provider. */
  readonly isReplaced: boolean;
  readonly holderId: string | null;
  readonly keyPrefix: Prefix | null;
  readonly keyUsedAt: string | null;
  readonly claimedAt: string | null;
  readonly paidAt: string | null;
  /** End of the paid period. */
  readonly paidUntil: string | null;
  /** When the subscription ends although it is paid: its holder or support has cancelled it. */
  readonly endsAt: string | null;
  /** When the provider tries a failed payment again. */
  readonly retryAt: string | null;
  /** When it has to be checked again without an event. */
  readonly dueAt: string | null;
  readonly updatedAt: string;
  /** Every write raises it. */
  readonly version: number;
}

/** A change of an order. Omitted fields stay unchanged. */
export type OrderChange = Partial<
  Omit<Order, keyof OrderTerms | 'holderId' | 'keyPrefix' | 'keyUsedAt' | 'updatedAt' | 'version'>
>;

/** The identifiers by which an order can be found. */
export type OrderName =
  | { readonly id: string }
  | { readonly session: string }
  | { readonly subscription: string }
  | { readonly payment: string }
  | { readonly nonce: Uint8Array };

/** An event of the provider, deduplicated by its id. */
export interface BillingEvent {
  readonly id: string;
  readonly type: string;
  /** RFC 3339, UTC. */
  readonly at: string;
}

/** Tier and standing of a holder that follow from all its orders. An omitted standing stays unchanged. */
export interface HolderTarget {
  readonly tier: Tier;
  readonly standing?: BillingStatus;
}

export interface SettleRequest {
  /** The order before the request to the provider: its version must still be current. */
  readonly before: Order;
  readonly change: OrderChange;
  /** Recorded in the same transaction. Nothing is written when all are known. */
  readonly events: readonly BillingEvent[];
  readonly at: string;
  /**
   * Computes tier and standing of the holder from all its orders before and after this change; undefined for no change. It is
   * called within the transaction.
   */
  readonly targetOf: (before: readonly Order[], after: readonly Order[]) => HolderTarget | undefined;
  /** Ids of the orders that the settled one replaces. */
  readonly replacedBy: (settled: Order, orders: readonly Order[]) => readonly string[];
}

export type SettleResult =
  | {
      readonly kind: 'settled';
      readonly order: Order;
      /** Active keys of the holder if its tier or standing has changed, otherwise empty. */
      readonly changed: readonly KeyRecord[];
    }
  /** Every event was already recorded. */
  | { readonly kind: 'known' }
  /** The order has changed since it was read, so the new data may be outdated. */
  | { readonly kind: 'stale' };

/** Why an order yields no key. */
export type ClaimRejection =
  | 'unknown'
  /** The claim secret is wrong. */
  | 'forbidden'
  | 'unpaid'
  | 'held'
  /** Void, refused or ended. */
  | 'closed'
  /** Its key was delivered, and was used or is too old to be claimed again. */
  | 'claimed';

export type ClaimResult =
  | { readonly kind: 'claimed'; readonly record: KeyRecord; readonly replaced: Prefix | null }
  | { readonly kind: 'refused'; readonly why: ClaimRejection }
  | { readonly kind: 'prefix_taken' };

/** The state of a payment that no provider keeps: a test payment, or an invoice that support marks as paid. */
export interface StoredPayment {
  readonly session: string;
  readonly orderId: string;
  readonly payment: 'open' | 'paid' | 'declined' | 'expired';
  readonly subscription: 'none' | 'active' | 'past_due' | 'canceled';
  readonly refund: 'none' | 'partial' | 'full';
  readonly dispute: 'none' | 'open' | 'won' | 'lost';
  /** When `subscription` last changed, RFC 3339, UTC. */
  readonly since: string;
  /** End of the period that was paid last; null for one that began at `since`. */
  readonly paidUntil: string | null;
  /** When a cancelled subscription ends. */
  readonly endsAt: string | null;
}

export interface ClaimRequest {
  readonly id: string;
  /** Why the order yields no key; undefined when it is paid, or claimed and still replaceable. Called within the transaction. */
  readonly rejectionOf: (order: Order) => ClaimRejection | undefined;
  readonly key: NewKey;
  readonly holderId: string;
  readonly at: string;
}

export type FreeOrderResult =
  | ClaimResult
  | { readonly kind: 'free_limit' }
  /** The form was already submitted. */
  | { readonly kind: 'known'; readonly order: Order };

/** Orders in the store. The guarantees of `Store` apply to its methods. */
export interface BillingStore {
  /** Stores a new order; idempotent by its nonce: a known form returns the order that was stored for it. */
  addOrder(
    terms: OrderTerms,
    holderId: string | null,
  ): Promise<{ readonly kind: 'added' | 'known'; readonly order: Order }>;

  /** Stores an order for a Free key and the key, in one transaction. @param holderId id of the new holder */
  addFreeOrder(terms: OrderTerms, holderId: string, key: NewKey, grant: FreeGrant): Promise<FreeOrderResult>;

  findOrder(name: OrderName): Promise<Order | undefined>;

  /** Paid orders of a holder, oldest first; at most 1000. */
  ordersOf(holderId: string): Promise<readonly Order[]>;

  /** Orders that cost something, oldest first. @param filter.limit 1 to 1000 */
  listOrders(filter: {
    readonly state?: OrderState | undefined;
    readonly after?: Pick<Order, 'createdAt' | 'id'> | undefined;
    readonly limit: number;
  }): Promise<readonly Order[]>;

  /** Orders that are due for a check, earliest first. @param at RFC 3339, UTC */
  dueOrders(at: string, limit: number): Promise<readonly Order[]>;

  /** Number of orders that cost something, by state. */
  countOrders(): Promise<ReadonlyMap<OrderState, number>>;

  isEventKnown(id: string): Promise<boolean>;

  /** Records an event that changes nothing. */
  addEvent(event: BillingEvent): Promise<void>;

  /** Writes a change without effect on a holder. @returns undefined when the order's version is no longer `version` */
  changeOrder(id: string, version: number, change: OrderChange, at: string): Promise<Order | undefined>;

  /** Writes a change of an order, its events and the resulting change of the holder in one transaction. */
  settle(request: SettleRequest): Promise<SettleResult>;

  /** Issues the key of a paid order, or replaces a claimed key that was never used, in one transaction. */
  claimOrder(request: ClaimRequest): Promise<ClaimResult>;

  /** Records the first use of a key. Call it before any process first accepts the key. Resolves when durable. */
  markFirstUse(prefix: Prefix, at: string): Promise<void>;

  /**
   * Deletes events, and orders that were never paid.
   * @param eventsBefore @param ordersBefore RFC 3339, UTC
   * @param limit maximum number of each in this call
   */
  forget(eventsBefore: string, ordersBefore: string, limit: number): Promise<void>;

  /** Takes a lease on a task for the whole fleet, or renews it. @returns whether `owner` has it until `until` */
  takeTask(name: string, owner: string, now: string, until: string): Promise<boolean>;

  storedPayment(
    name: { readonly session: string } | { readonly orderId: string },
  ): Promise<StoredPayment | undefined>;

  writeStoredPayment(payment: StoredPayment): Promise<void>;
}
