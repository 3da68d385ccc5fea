// The page to which a buyer returns: the state of the order, and the button that claims its key. Viewing it only refreshes the
// facts of the payment, so that link scanners, reloads and other people with the URL do no harm.
import { wireKey } from '../../auth/rotation-endpoint.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answerJson } from '../../http/exchange/response-writer.ts';
import { readPageForm, requireSameOrigin } from '../../http/page-form.ts';
import { RecentMap } from '../../recent-map.ts';
import type { Order } from '../../store/billing-record.ts';
import { claimSecrets, opens } from '../claim-cookie.ts';
import type { Claims } from '../key-claims.ts';
import type { BillingParts } from '../payment-provider.ts';
import type { PaymentReconciliation } from '../payment-reconciliation.ts';
import { withErrorPage } from './answer-page.ts';
import { sendsForm } from './checkout.ts';
import { answerKeyPage } from './key-page.ts';
import { answerResult, asking, type Html, html, NOTHING } from './page-frame.ts';
import { localeOf, priceText } from './price-text.ts';

/** Minimum time between two calls to the provider for one order. */
const CHECK_EVERY_MS = 2000;
const REMEMBERED = 10_000;
/** A page that waits for a payment reloads after these seconds … */
const RELOAD_S = 4;
/** … until the order has this age. */
const RELOADS_MS = 10 * 60_000;
const SESSION = /^[A-Za-z0-9_-]{1,255}$/;

interface CompletePageOptions extends Pick<BillingParts, 'store' | 'config' | 'now'> {
  readonly reconciliation: PaymentReconciliation;
  readonly claims: Claims;
}

/** The `session_id` in the query. */
export function sessionIn({ target }: Exchange): string {
  return new URLSearchParams(target.split('?')[1] ?? '').get('session_id') ?? '';
}

export class CompletePage {
  readonly #parts: CompletePageOptions;
  readonly #checkedAt = new RecentMap<string, number>(REMEMBERED);

  constructor(parts: CompletePageOptions) {
    this.#parts = parts;
  }

  /**
   * `GET /checkout/complete?session_id=…`: a page, or JSON for clients that accept it and no HTML.
   * @throws GatewayError `unknown_order`, `store_unavailable`, for JSON
   */
  async show(exchange: Exchange): Promise<void> {
    const config = this.#parts.config();
    const accepts = exchange.request.headers.accept ?? '';
    const isPage = !accepts.includes('application/json') || accepts.includes('text/html');
    await withErrorPage(exchange, { isPage, config, up: '../' }, async () => {
      const session = sessionIn(exchange);
      const { order, isUnsure } = await this.#fresh(await this.#find(session));
      const isOwn = opens(claimSecrets(exchange, config.public_url), order.claim);
      if (!isPage) {
        const { id, tier, state, standing } = order;
        answerJson(exchange, 200, { order: id, tier, state, standing }, { 'cache-control': 'no-store' });
        return;
      }
      // An invoice takes days, and the page need not be open.
      const isWaiting =
        order.state === 'pending' &&
        order.provider !== 'none' &&
        this.#parts.now() - Date.parse(order.createdAt) < RELOADS_MS;
      const page = {
        title: titleOf(order),
        branding: config.branding,
        up: '../',
        hasForms: true,
        headers: isWaiting ? { refresh: String(RELOAD_S) } : {},
        body: html`${isUnsure ? html`<p class="notice bad">The payment provider cannot be reached at the moment. This is the last known state of the order.</p>` : NOTHING}
${this.#body(order, isOwn, config, localeOf(exchange))}`,
      } as const;
      answerResult(exchange, 200, page, html`Order <code translate="no">${order.id}</code>`);
    });
  }

  /** `GET /checkout/cancelled` */
  showCancelled(exchange: Exchange): void {
    answerResult(exchange, 200, {
      title: 'Not paid',
      branding: this.#parts.config().branding,
      up: '../',
      body: html`<p class="lead">The payment was not made, and nothing was charged. If you have a key, it is unchanged.</p>
<p class="actions"><a class="button" href="../pricing">Back to the tiers</a> <a class="button quiet" href="../account">Your key’s page</a></p>`,
    });
  }

  /**
   * `POST /checkout/claim` with `session_id`, from the browser that ordered: 201 with the key.
   * @throws GatewayError those of readPageForm, `cross_origin_form`, and for JSON those of `Claims.claim`
   */
  async claim(exchange: Exchange): Promise<void> {
    const config = this.#parts.config();
    const isPage = sendsForm(exchange);
    await withErrorPage(exchange, { isPage, config, up: '../' }, async () => {
      requireSameOrigin(exchange, new URL(config.public_url).origin);
      const form = await readPageForm(exchange);
      const secrets = claimSecrets(exchange, config.public_url);
      const isAllowed = (order: Order) => opens(secrets, order.claim);
      const found = await this.#parts.store.findOrder({ session: form.get('session_id') ?? '' });
      // The same error for an unknown order and for one of another buyer.
      if (found === undefined || !isAllowed(found)) throw new GatewayError('claim_forbidden');
      exchange.throwIfStopped();
      const { order } = await this.#fresh(found);
      const issued = await this.#parts.claims.claim(order.id, isAllowed);
      exchange.keyPrefix = issued.prefix;
      exchange.access.tier = issued.tier;
      if (isPage) answerKeyPage(exchange, issued, config, '../');
      else answerJson(exchange, 201, wireKey(issued), { 'cache-control': 'no-store' });
    });
  }

  async #find(session: string): Promise<Order> {
    const order = SESSION.test(session) ? await this.#parts.store.findOrder({ session }) : undefined;
    if (order === undefined) throw new GatewayError('unknown_order');
    return order;
  }

  /** Refreshes an order that waits for its payment, because the event may arrive later or never. */
  async #fresh(order: Order): Promise<{ readonly order: Order; readonly isUnsure: boolean }> {
    if (order.state !== 'pending') return { order, isUnsure: false };
    const now = this.#parts.now();
    if (now - (this.#checkedAt.get(order.id) ?? 0) < CHECK_EVERY_MS) return { order, isUnsure: false };
    this.#checkedAt.set(order.id, now);
    try {
      return { order: await this.#parts.reconciliation.settle(order.id), isUnsure: false };
    } catch (error) {
      if (error instanceof GatewayError && error.code === 'payment_unavailable')
        return { order, isUnsure: true };
      throw error;
    }
  }

  #body(order: Order, isOwn: boolean, { branding }: DynamicConfig, locale: string): Html {
    const ask = asking(branding, `Order ${order.id}`);
    const session = order.session ?? '';
    const button = (label: string) =>
      html`<form class="actions" method="post" action="claim"><input type="hidden" name="session_id" value="${session}"><button type="submit">${label}</button></form>`;
    switch (order.state) {
      case 'pending':
        if (order.provider === 'none')
          return html`<p class="lead" role="status">${order.tier} is paid by invoice, ${priceText(order, locale)}.</p>
<p class="notice"><strong>Ask for the invoice now:</strong> ${ask}, name the order below, and say to whom it is made out. ${
            order.holderId === null
              ? 'When it is paid, the key waits on this page, in this browser, for 30 days from today.'
              : 'When it is paid, your key has the tier.'
          }</p>
<p class="actions"><a class="button" href="complete?session_id=${session}">Look again</a></p>`;
        return html`<p class="lead" role="status">The payment is being confirmed. That takes a moment, with a bank transfer some days.</p>
<p class="actions"><a class="button" href="complete?session_id=${session}">Look again</a></p>
<p class="soft">This page can be closed and opened again in this browser: ${order.holderId === null ? 'the key waits here' : 'your key has the tier as soon as it is paid'}.</p>`;
      case 'paid':
        if (!isInForce(order)) return gone(ask);
        return isOwn
          ? html`<p class="lead">Thank you: ${order.tier} is paid. Your key is made when you ask for it, and shown once.</p>
${button('Show my key')}`
          : html`<p class="lead">${order.tier} is paid, and its key waits for the browser that ordered.</p>
<p class="notice">This browser is not the one, or it has lost its cookies. Open this page in the one that you ordered with; if you cannot, ${ask} and name the order below.</p>`;
      case 'claimed':
        if (!isInForce(order))
          return html`<p class="lead">This order was paid, and does not count at the moment. Your key’s page says why, and what to do.</p>
${ACCOUNT_LINK}`;
        if (order.keyPrefix === null)
          return html`<p class="lead">Thank you: ${order.tier} is in force. Your key stays the same.</p>
<p>Every program that uses it has the limits and the models of ${order.tier} from its next request on.</p>
${ACCOUNT_LINK}`;
        return isOwn && this.#parts.claims.canClaimAgain(order)
          ? html`<p class="lead">The key of this order was shown, and has not been used.</p>
<p>If you never saw it, it can be replaced: the one that was shown stops working.</p>
${button('Show another key')}`
          : html`<p class="lead">The key of this order was handed out. It cannot be shown again.</p>
<p>If you have lost it, ${ask} and name the order below.</p>
${ACCOUNT_LINK}`;
      case 'void':
        return html`<p class="lead">${ENDS[order.reason ?? ''] ?? `It ended: ${order.reason ?? 'nothing is known of why'}.`}</p>
<p class="actions"><a class="button" href="../pricing">Back to the tiers</a></p>`;
      case 'refused':
        return gone(ask);
    }
  }
}

const ACCOUNT_LINK = html`<p class="actions"><a class="button" href="../account">Your key’s page</a></p>`;

/** Texts for the buyer about an order that ended without a key, by its reason. */
const ENDS: Readonly<Record<string, string>> = {
  'never opened': 'It was not paid in time, and nothing was charged.',
  expired: 'It was not paid in time, and nothing was charged.',
  'payment failed': 'The payment did not go through, and nothing was charged.',
  'refunded in full': 'It was paid back in full.',
  'dispute lost': 'Its payment was taken back.',
  cancelled: 'It was cancelled before its key was asked for.',
};

function isInForce({ standing }: Order): boolean {
  return standing === 'active' || standing === 'past_due';
}

function gone(ask: Html): Html {
  return html`<p class="notice bad">Something about this order has to be looked at by a person. Please ${ask} and name the order below.</p>`;
}

function titleOf(order: Order): string {
  return (order.state === 'paid' || order.state === 'claimed') && !isInForce(order)
    ? TITLES.refused
    : TITLES[order.state];
}

const TITLES = {
  pending: 'Waiting for the payment',
  paid: 'Your order is paid',
  claimed: 'Your order is complete',
  void: 'This order is over',
  refused: 'This order is on hold',
} as const satisfies Record<Order['state'], string>;
