// `POST /checkout`: issues a Free key at once, or creates an order for a paid tier and sends the buyer to the payment page. Forms
// are answered with pages and programs with JSON. key-claims.ts issues the key of a paid order.

import { randomUUID } from 'node:crypto';
import { addressBlock } from '../../auth/address-block.ts';
import { FailureLimit } from '../../auth/failure-limits.ts';
import { identify, offeredKey } from '../../auth/identify.ts';
import type { IssuedKey } from '../../auth/key-issuer.ts';
import { wireKey } from '../../auth/rotation-endpoint.ts';
import { type DynamicConfig, TIERS, type Tier } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answerJson } from '../../http/exchange/response-writer.ts';
import { type PageForm, readPageForm, requireSameOrigin } from '../../http/page-form.ts';
import { singleFlight } from '../../single-flight.ts';
import type { Order, OrderChange, OrderTerms } from '../../store/billing-record.ts';
import { rootUrl } from '../base-url.ts';
import { claimDigest, formNames, isNonce, newNonce, storeClaimSecret } from '../claim-cookie.ts';
import { CLAIM_AGAIN_MS, type Claims } from '../key-claims.ts';
import { freeTerms, paidTerms } from '../new-order.ts';
import { isAbove, isLapsed, mismatchOf } from '../order-verdict.ts';
import type { BillingParts, PaymentProvider } from '../payment-provider.ts';
import { answerPaymentLink, withErrorPage } from './answer-page.ts';
import { answerKeyPage } from './key-page.ts';

/** Maximum orders of one address: each is a row in the store and a session at the provider. */
const ORDERS_PER_MINUTE = 10;
/** How long a form that is submitted again leads to the same session; an older session may have ended. */
const SAME_ORDER_MS = 10 * 60_000;
/** Maximum number of orders from one page. */
const MAX_GENERATIONS = 20;
/** Attempts to write an order; concurrent writers are few: the same form twice, an event. */
const WRITE_ATTEMPTS = 5;
/** Time until the first check of a session without an event. */
const FIRST_CHECK_MS = 10 * 60_000;

interface CheckoutOptions extends Omit<BillingParts, 'metrics'> {
  readonly claims: Claims;
}

type FreeOrder = Parameters<CheckoutOptions['issuer']['issueFree']>[0];

/** A holder who orders another tier for its key. */
interface Holder {
  readonly id: string;
  readonly baseTier: Tier;
}

export class Checkout {
  readonly #parts: CheckoutOptions;
  readonly #limit = new FailureLimit(
    () => ORDERS_PER_MINUTE,
    () => performance.now(),
    addressBlock,
  );
  /** By nonce: a form that is submitted twice at once gets one key. */
  readonly #freeOnce = singleFlight((nonce: string, order: FreeOrder) => this.#freeByForm(nonce, order));
  /** Stripe rejects a second request with an idempotency key while the first is in flight. */
  readonly #openOnce = singleFlight((_id: string, order: Order, provider: PaymentProvider, root: string) =>
    this.#open(order, provider, root),
  );

  constructor(parts: CheckoutOptions) {
    this.#parts = parts;
  }

  /**
   * `POST /checkout` with the field `tier`. Free: 201 with the key. Lite and Pro: 303 to the payment page for a form, 201 with
   * `{"order","url"}` for a program. A key in `authorization` makes it an upgrade of its holder. Errors of forms are pages.
   *
   * @throws GatewayError those of readPageForm, and for JSON `cross_origin_form`, `missing_required_parameter`, `invalid_value`,
   *   `checkout_not_configured`, `free_key_limit`, `order_limit`, `already_entitled`, `billing_not_active`, `payment_unavailable`,
   *   `store_unavailable` and the errors of a bad key
   */
  async answer(exchange: Exchange): Promise<void> {
    const config = this.#parts.config();
    const isPage = sendsForm(exchange);
    await withErrorPage(exchange, { isPage, config }, () => this.#answer(exchange, config, isPage));
  }

  async #answer(exchange: Exchange, config: DynamicConfig, isPage: boolean): Promise<void> {
    requireSameOrigin(exchange, new URL(config.public_url).origin);
    const form = await readPageForm(exchange);
    const tier = tierOf(form.get('tier'));
    const nonce = nonceOf(form);
    exchange.access.tier = tier;
    if (config.tiers[tier] === undefined) throw new GatewayError('checkout_not_configured');
    if (tier === 'Free') {
      exchange.throwIfStopped();
      const issued = await this.#free(exchange, config, nonce);
      exchange.keyPrefix = issued.prefix;
      if (isPage) answerKeyPage(exchange, issued, config);
      else answerJson(exchange, 201, wireKey(issued), { 'cache-control': 'no-store' });
      return;
    }
    const provider = this.#parts.provider();
    if (provider === undefined) throw new GatewayError('checkout_not_configured');
    this.#count(exchange.address);
    const holder = await this.#holder(exchange, tier);
    const order = await this.#place(exchange, tier, provider, nonce, holder);
    const root = provider.name === 'test' ? rootUrl(exchange, config) : config.public_url;
    const url = await this.#payment(order, provider, root);
    const isKnown = provider.origins.includes(new URL(url).origin) || url.startsWith(`${root}/`);
    if (!isPage) {
      answerJson(exchange, 201, { order: order.id, tier, url }, { 'cache-control': 'no-store' });
    } else answerPaymentLink(exchange, url, isKnown, config);
  }

  #count(address: string): void {
    const retryAfterMs = this.#limit.waitFor(address);
    if (retryAfterMs > 0) throw new GatewayError('order_limit', undefined, { retryAfterMs });
    this.#limit.record(address);
  }

  async #free(exchange: Exchange, config: DynamicConfig, nonce: string | undefined): Promise<IssuedKey> {
    const order = { address: exchange.address, perDay: config.free_keys.per_ip_per_day };
    return nonce === undefined ? this.#parts.issuer.issueFree(order) : this.#freeOnce(nonce, order);
  }

  /** A form that is submitted again, because its answer was lost, replaces its key if that was never used. */
  async #freeByForm(nonce: string, order: FreeOrder): Promise<IssuedKey> {
    const { issuer, store, claims } = this.#parts;
    for (let generation = 0; generation < MAX_GENERATIONS; generation += 1) {
      const names = formNames(nonce, 'Free', generation);
      const earlier = await store.findOrder({ nonce: names.nonce });
      if (earlier !== undefined) {
        if (claims.canClaimAgain(earlier)) return claims.claim(earlier.id, () => true);
        continue;
      }
      const grant = await issuer.freeGrant(order);
      const terms = freeTerms({ claim: claimDigest(names.secret), nonce: names.nonce }, this.#date());
      const holderId = randomUUID();
      const minted = await issuer.mint((key) => store.addFreeOrder(terms, holderId, key, grant));
      const { outcome } = minted;
      if (outcome.kind === 'free_limit') throw new GatewayError('free_key_limit');
      if (outcome.kind === 'known') return claims.claim(outcome.order.id, () => true);
      return claims.handOut({ key: minted.key, outcome });
    }
    throw new GatewayError('free_key_limit');
  }

  /** @returns undefined for a new buyer */
  async #holder(exchange: Exchange, tier: Tier): Promise<Holder | undefined> {
    if (offeredKey(exchange.request.headers) === undefined) return undefined;
    const { authenticator, store } = this.#parts;
    // Suspended holders are allowed, because paying ends the suspension.
    const principal = await identify(authenticator, exchange, 'any');
    if (principal.standing === 'good' && !isAbove(tier, principal.tier))
      throw new GatewayError('already_entitled');
    const orders = await store.ordersOf(principal.holderId);
    // It would pay twice for a tier that it gets back when the review ends well.
    const review = orders.find(
      (each) => each.state === 'claimed' && each.standing === 'held' && !isAbove(tier, each.tier),
    );
    if (review !== undefined)
      throw new GatewayError(
        'already_entitled',
        `The payment of this key's holder for ${review.tier} is under review. Ask the operator, and name the order ${review.id}.`,
      );
    // Suspended by support and not for lack of payment: paying would not end it.
    if (principal.standing !== 'good' && !isLapsed(orders)) throw new GatewayError('billing_not_active');
    const earlier = orders.find(({ state }) => state === 'claimed');
    return { id: principal.holderId, baseTier: earlier?.baseTier ?? principal.tier };
  }

  /** The order of this form: a new one, or the one of an earlier submission. */
  async #place(
    exchange: Exchange,
    tier: Tier,
    provider: PaymentProvider,
    nonce: string | undefined,
    holder: Holder | undefined,
  ): Promise<Order> {
    const { store, config } = this.#parts;
    const { public_url, tiers } = config();
    for (let generation = 0; generation < MAX_GENERATIONS; generation += 1) {
      const names = formNames(nonce ?? newNonce(), `${tier} ${holder?.id ?? ''}`, generation);
      const buyer = {
        claim: holder === undefined ? claimDigest(names.secret) : null,
        nonce: names.nonce,
        baseTier: holder?.baseTier ?? ('Free' as const),
      };
      const terms = paidTerms(tier, tiers[tier] ?? {}, provider, buyer, this.#date());
      if (terms === undefined) throw new GatewayError('checkout_not_configured');
      exchange.throwIfStopped();
      const { kind, order } = await store.addOrder(terms, holder?.id ?? null);
      if (kind === 'known' && !this.#isSame(order, terms)) continue;
      if (holder === undefined) storeClaimSecret(exchange, names.secret, public_url);
      return order;
    }
    throw new GatewayError('order_limit');
  }

  /** Whether an earlier order of the form is still the requested one. */
  #isSame(order: Order, terms: OrderTerms): boolean {
    const isOver = order.state === 'void' || order.state === 'refused';
    const age = this.#parts.now() - Date.parse(order.createdAt);
    const limit = order.state === 'claimed' ? CLAIM_AGAIN_MS : SAME_ORDER_MS;
    const isOffered = order.price === terms.price && order.amount === terms.amount;
    return !isOver && age < limit && isOffered && order.provider === terms.provider;
  }

  /** URL of the payment page; of the result page when the session has ended. */
  async #payment(order: Order, provider: PaymentProvider, root: string): Promise<string> {
    if (order.session !== null) {
      const page = order.state === 'pending' ? await provider.pageOf(order, root) : undefined;
      return page ?? `${root}/checkout/complete?session_id=${encodeURIComponent(order.session)}`;
    }
    return this.#openOnce(order.id, order, provider, root);
  }

  async #open(order: Order, provider: PaymentProvider, root: string): Promise<string> {
    const dueAt = new Date(this.#parts.now() + FIRST_CHECK_MS).toISOString();
    let opened: Awaited<ReturnType<PaymentProvider['open']>>;
    try {
      opened = await provider.open(order, root);
    } catch (error) {
      const failed = { reason: 'the payment page could not be opened', dueAt };
      await this.#note(order, failed).catch(() => undefined);
      throw error;
    }
    const { session, url } = opened;
    const wrong = mismatchOf(order, session);
    if (wrong === undefined) {
      await this.#note(order, { session: session.id, reason: null, dueAt });
      return url;
    }
    this.#parts.logger.error(
      { order: order.id, tier: order.tier, differs: wrong },
      'the payment session differs from the order; check the prices at the provider',
    );
    const reason = `not what was ordered: ${wrong}`;
    await this.#note(order, { state: 'refused', reason, session: session.id });
    await provider.end({ ...order, session: session.id }).catch(() => undefined);
    throw new GatewayError(
      'payment_unavailable',
      'The price at the payment provider differs from the price here. The operator has to act.',
      { cause: new Error(`the session differs in: ${wrong}`), retry: 'no' },
    );
  }

  /** Writes to an order that has no session yet, also after concurrent writes; does nothing once it has one. */
  async #note(order: Order, change: OrderChange): Promise<void> {
    const { store } = this.#parts;
    let current: Order | undefined = order;
    for (let left = WRITE_ATTEMPTS; left > 0 && current?.session === null; left -= 1) {
      const at = this.#date().toISOString();
      if ((await store.changeOrder(order.id, current.version, change, at)) !== undefined) return;
      current = await store.findOrder({ id: order.id });
    }
  }

  #date(): Date {
    return new Date(this.#parts.now());
  }
}

/** Whether the request is a browser's form and not a program's JSON. */
export function sendsForm({ request }: Exchange): boolean {
  return /^application\/x-www-form-urlencoded *(;|$)/i.test(request.headers['content-type'] ?? '');
}

function tierOf(text: string | undefined): Tier {
  if (text === undefined) {
    throw new GatewayError('missing_required_parameter', 'The field `tier` is missing.', { param: 'tier' });
  }
  const tier = TIERS.find((name) => name === text);
  if (tier === undefined) {
    throw new GatewayError('invalid_value', `The tier is one of ${TIERS.join(', ')}.`, { param: 'tier' });
  }
  return tier;
}

function nonceOf(form: PageForm): string | undefined {
  const nonce = form.get('nonce');
  if (nonce === undefined || isNonce(nonce)) return nonce;
  throw new GatewayError('invalid_value', 'The nonce is 43 characters of base64url.', { param: 'nonce' });
}
