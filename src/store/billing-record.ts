// What the store keeps of orders, of the events of a payment provider, and of the payments that are only played. Rules about
// them are above it, in billing/.
import type { Tier } from '../config/schema/config-schema.ts';
import type { BillingStatus, FreeGrant, KeyRecord, NewKey, Prefix } from './key-record.ts';

export const ORDER_STATES = ['pending', 'paid', 'claimed', 'void', 'refused'] as const;

/**
 * - `pending`: not paid, or not yet known to be.
 * - `paid`: waits for its buyer to fetch the key.
 * - `claimed`: the key was handed out, or the holder who ordered has the tier. Nothing leaves it.
 * - `void`: expired, failed, or taken back before it was claimed.
 * - `refused`: what was paid is not what was ordered; somebody has to look.
 */
export type OrderState = (typeof ORDER_STATES)[number];

const ORDER_BILLING_STATUSES = ['none', 'active', 'past_due', 'held', 'lapsed', 'ended'] as const;

/**
 * What an order entitles to at the moment: `active` and `past_due` (the grace after a failed payment) to its tier, the others
 * to nothing. `held` is a dispute or a warning of fraud; `lapsed` may be paid again; `ended` is for good.
 */
export type OrderBillingStatus = (typeof ORDER_BILLING_STATUSES)[number];

/** `free` costs nothing, `payment` is paid once, `subscription` again and again. */
export type OrderMode = 'free' | 'payment' | 'subscription';
export type OrderInterval = 'month' | 'year' | 'once';
export type ProviderName = 'none' | 'stripe' | 'test';

/** What was ordered. It never changes. */
export interface OrderTerms {
  /** Public: it stands in addresses, and is no authority. */
  readonly id: string;
  readonly tier: Tier;
  /** The provider's name of the price; null where it has none. */
  readonly price: string | null;
  /** In the smallest unit of the currency, for one interval. */
  readonly amount: number;
  readonly currency: string;
  readonly mode: OrderMode;
  readonly interval: OrderInterval;
  readonly provider: ProviderName;
  /** Whether money moves. */
  readonly isLive: boolean;
  /** SHA-256 of the secret that claims it; null where a holder ordered, who has a key. */
  readonly claim: Uint8Array | null;
  /** SHA-256 of the form that ordered, so that sending it twice is one order. */
  readonly nonce: Uint8Array | null;
  /** The tier to which the holder returns; for a new one Free. */
  readonly baseTier: Tier;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

export interface Order extends OrderTerms {
  readonly state: OrderState;
  readonly standing: OrderBillingStatus;
  /** Why it is so, in words for support; null where the state says it all. */
  readonly reason: string | null;
  /** The session of payment at the provider. */
  readonly session: string | null;
  readonly subscription: string | null;
  /** The payment of an order that is paid once. */
  readonly payment: string | null;
  /** Who the provider knows the buyer as. */
  readonly customer: string | null;
  /** The subscription has ended at the provider: nothing revives it. */
  readonly isCancelled: boolean;
  /** Support has decided that warnings of fraud are not to hold it. */
  readonly isTrusted: boolean;
  /** Another order took its place: its subscription is to be ended at the provider. */
  readonly isReplaced: boolean;
  readonly holderId: string | null;
  readonly keyPrefix: Prefix | null;
  /** First use of the key that was claimed. */
  readonly keyUsedAt: string | null;
  readonly claimedAt: string | null;
  readonly paidAt: string | null;
  /** Until when it is paid. */
  readonly paidUntil: string | null;
  /** When it has to be looked at again though nobody says so. */
  readonly dueAt: string | null;
  readonly updatedAt: string;
  /** Grows with every writing. */
  readonly version: number;
}

/** What can be known anew about an order. Fields that are left out remain. */
export type OrderChange = Partial<
  Pick<
    Order,
    | 'state'
    | 'standing'
    | 'reason'
    | 'session'
    | 'subscription'
    | 'payment'
    | 'customer'
    | 'isCancelled'
    | 'isTrusted'
    | 'isReplaced'
    | 'paidAt'
    | 'paidUntil'
    | 'dueAt'
    | 'claimedAt'
  >
>;

/** By what an order may be asked for. */
export type OrderName =
  | { readonly id: string }
  | { readonly session: string }
  | { readonly subscription: string }
  | { readonly payment: string }
  | { readonly nonce: Uint8Array };

/** An event of the provider, remembered by its id. */
export interface BillingEvent {
  readonly id: string;
  readonly type: string;
  /** RFC 3339, UTC. */
  readonly at: string;
}

/** How a holder is to stand, for all orders together. Without a standing, it keeps the one that it has. */
export interface HolderTarget {
  readonly tier: Tier;
  readonly standing?: BillingStatus;
}

export interface SettleRequest {
  /** As it was read before the provider was asked: its version must still be this one. */
  readonly before: Order;
  readonly change: OrderChange;
  /** Remembered in the same transaction. Where all are known already, nothing is written. */
  readonly events: readonly BillingEvent[];
  readonly at: string;
  /**
   * How the holder is to stand, from all its orders before and after this change; undefined where it remains as it is.
   * Asked within the transaction.
   */
  readonly targetOf: (before: readonly Order[], after: readonly Order[]) => HolderTarget | undefined;
  /** Ids of those that the settled one replaces. */
  readonly replacedBy: (settled: Order, orders: readonly Order[]) => readonly string[];
}

export type SettleResult =
  | {
      readonly kind: 'settled';
      readonly order: Order;
      /** Active keys of the holder, where it stands otherwise than before. */
      readonly changed: readonly KeyRecord[];
    }
  /** Every event was remembered before. */
  | { readonly kind: 'known' }
  /** Somebody wrote since it was read: what was found out may be old. */
  | { readonly kind: 'stale' };

/** Why no key is handed out for an order. */
export type ClaimRejection =
  | 'unknown'
  /** Nobody who has its secret asks. */
  | 'forbidden'
  | 'unpaid'
  | 'held'
  /** Void, refused or ended. */
  | 'closed'
  /** Its key was handed out, and was used or that was too long ago. */
  | 'claimed';

export type ClaimResult =
  | { readonly kind: 'claimed'; readonly record: KeyRecord; readonly replaced: Prefix | null }
  | { readonly kind: 'refused'; readonly why: ClaimRejection }
  | { readonly kind: 'prefix_taken' };

/** What a played payment is at: the test provider's own memory. */
export interface TestPayment {
  readonly session: string;
  readonly orderId: string;
  readonly payment: 'open' | 'paid' | 'declined' | 'expired';
  readonly subscription: 'none' | 'active' | 'past_due' | 'canceled';
  readonly refund: 'none' | 'partial' | 'full';
  readonly dispute: 'none' | 'open' | 'won' | 'lost';
  /** RFC 3339, UTC: when `subscription` became what it is. */
  readonly since: string;
}

export interface ClaimRequest {
  readonly id: string;
  /** Whether who asks has the secret of the order. */
  readonly isAllowed: (order: Order) => boolean;
  readonly key: NewKey;
  /** For a new holder. */
  readonly holderId: string;
  readonly at: string;
  /** A key that was claimed before this is not claimed again. */
  readonly since: string;
}

export type FreeOrderResult =
  | ClaimResult
  | { readonly kind: 'free_limit' }
  /** The form was sent before. */
  | { readonly kind: 'known'; readonly order: Order };

/** The part of the store that keeps orders. The contract of `Store` holds for its methods. */
export interface BillingStore {
  /** Stores a new order, unless its form was sent before: then the order that was stored for it. */
  addOrder(
    terms: OrderTerms,
    holderId: string | null,
  ): Promise<{ readonly kind: 'added' | 'known'; readonly order: Order }>;

  /** The same for a Free key, with the key: all in one transaction. @param holderId of the new holder */
  addFreeOrder(terms: OrderTerms, holderId: string, key: NewKey, grant: FreeGrant): Promise<FreeOrderResult>;

  findOrder(name: OrderName): Promise<Order | undefined>;

  /** Paid orders of a holder, oldest first; at most 1000. */
  ordersOf(holderId: string): Promise<readonly Order[]>;

  /** Orders that cost something, by id. @param filter.limit 1 to 1000 */
  listOrders(filter: {
    readonly state?: OrderState;
    readonly after?: string;
    readonly limit: number;
  }): Promise<readonly Order[]>;

  /** Orders to be looked at, the longest due first. @param at RFC 3339, UTC */
  dueOrders(at: string, limit: number): Promise<readonly Order[]>;

  /** How many orders that cost something are in each state. */
  countOrders(): Promise<ReadonlyMap<OrderState, number>>;

  isEventKnown(id: string): Promise<boolean>;

  /** Remembers an event that changes nothing. */
  addEvent(event: BillingEvent): Promise<void>;

  /** Writes what changes no holder. @returns undefined when somebody wrote since the version was read */
  changeOrder(id: string, version: number, change: OrderChange, at: string): Promise<Order | undefined>;

  /** Writes what was found out of an order, with its events and with what it means for the holder: all or nothing. */
  settle(request: SettleRequest): Promise<SettleResult>;

  /** Hands out the key of a paid order, or another one in the place of a key that was never used: all or nothing. */
  claimOrder(request: ClaimRequest): Promise<ClaimResult>;

  /** To be called before a key is taken for good for the first time, by whichever process. Resolves when it is durable. */
  markFirstUse(prefix: Prefix, at: string): Promise<void>;

  /**
   * Forgets events, and orders that were never paid.
   * @param eventsBefore @param ordersBefore RFC 3339, UTC
   * @param limit most of each in this call
   */
  forget(eventsBefore: string, ordersBefore: string, limit: number): Promise<void>;

  /** Whether `owner` is the one of the fleet to do a task until a time. It may take it again before that. */
  takeTask(name: string, owner: string, now: string, until: string): Promise<boolean>;

  testPayment(
    name: { readonly session: string } | { readonly orderId: string },
  ): Promise<TestPayment | undefined>;

  writeTestPayment(payment: TestPayment): Promise<void>;
}
