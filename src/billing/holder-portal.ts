// What a holder does with its own subscription: `POST /checkout/portal` opens the customer portal of the payment provider, and
// `POST /checkout/refresh` asks the provider what was changed there. Both need the key as bearer token.
import { addressBlock } from '../auth/address-block.ts';
import { FailureLimit } from '../auth/failure-limits.ts';
import { identify } from '../auth/identify.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson } from '../http/exchange/response-writer.ts';
import { requireSameOrigin } from '../http/page-form.ts';
import type { Order } from '../store/billing-record.ts';
import { rootUrl } from './base-url.ts';
import { managedOf } from './order-verdict.ts';
import type { BillingParts } from './payment-provider.ts';
import type { PaymentReconciliation } from './payment-reconciliation.ts';

/** Maximum requests of one address: each is one or more calls to the provider. */
const CALLS_PER_MINUTE = 20;

interface HolderPortalOptions extends Omit<BillingParts, 'metrics' | 'issuer'> {
  readonly reconciliation: PaymentReconciliation;
}

export class HolderPortal {
  readonly #parts: HolderPortalOptions;
  readonly #limit = new FailureLimit(
    () => CALLS_PER_MINUTE,
    () => performance.now(),
    addressBlock,
  );

  constructor(parts: HolderPortalOptions) {
    this.#parts = parts;
  }

  /**
   * 201 with `{"order","url"}`
   * @throws GatewayError `no_subscription`, `order_limit`, `cross_origin_form`, `payment_unavailable`, `store_unavailable` and the
   *   errors of a bad key
   */
  async open(exchange: Exchange): Promise<void> {
    const config = this.#parts.config();
    const order = await this.#orderOf(exchange);
    const provider = this.#parts.provider();
    if (provider?.name !== order.provider) throw new GatewayError('no_subscription');
    const root = provider.name === 'test' ? rootUrl(exchange, config) : config.public_url;
    exchange.throwIfStopped();
    const url = await provider.portal(order, root);
    if (url === undefined) throw new GatewayError('no_subscription');
    answerJson(exchange, 201, { order: order.id, url }, { 'cache-control': 'no-store' });
  }

  /** 200 with `{"order","tier","state","standing"}` after the provider was asked. @throws GatewayError as `open` */
  async refresh(exchange: Exchange): Promise<void> {
    const order = await this.#orderOf(exchange);
    exchange.throwIfStopped();
    const { id, tier, state, standing } = await this.#parts.reconciliation.settle(order.id);
    answerJson(exchange, 200, { order: id, tier, state, standing }, { 'cache-control': 'no-store' });
  }

  async #orderOf(exchange: Exchange): Promise<Order> {
    requireSameOrigin(exchange, new URL(this.#parts.config().public_url).origin);
    const retryAfterMs = this.#limit.waitFor(exchange.address);
    if (retryAfterMs > 0) throw new GatewayError('order_limit', undefined, { retryAfterMs });
    this.#limit.record(exchange.address);
    // A suspended holder pays its open invoice there.
    const { holderId } = await identify(this.#parts.authenticator, exchange, 'any');
    const order = managedOf(await this.#parts.store.ordersOf(holderId));
    if (order === undefined) throw new GatewayError('no_subscription');
    return order;
  }
}
