// What the holder of a key may know about its own orders: the one that decides how it stands, without names of the provider's.
import type { Order, OrderBillingStatus } from '../store/billing-record.ts';
import { decisiveOf } from './order-verdict.ts';

/** As it stands in the holder's report. */
interface CurrentOrder {
  /** By which support finds it. */
  readonly order: string;
  readonly tier: string;
  readonly standing: OrderBillingStatus;
  /** It ends with what is paid, and is not renewed. */
  readonly cancelled: boolean;
  /** RFC 3339, UTC; null where it is paid once. */
  readonly paid_until: string | null;
}

/** @returns undefined for a holder without an order that was ever paid */
export function currentOrderOf(orders: readonly Order[]): CurrentOrder | undefined {
  const order = decisiveOf(orders);
  if (order === undefined) return undefined;
  const { id, tier, standing, isCancelled, paidUntil } = order;
  return { order: id, tier, standing, cancelled: isCancelled, paid_until: paidUntil };
}
