// Where a buyer comes back to: how the order stands, and the button that hands out its key. Looking at it changes nothing but
// what is known of the payment, so that scanners of links, reloads and other people who have the address do no harm.
import { wireKey } from '../../auth/rotation-endpoint.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answerJson } from '../../http/exchange/response-writer.ts';
import { readPageForm, requireSameOrigin } from '../../http/page-form.ts';
import { RecentMap } from '../../recent-map.ts';
import type { BillingStore, Order } from '../../store/billing-record.ts';
import { claimSecrets, opens } from '../claim-cookie.ts';
import type { Claims } from '../key-claims.ts';
import type { PaymentReconciliation } from '../payment-reconciliation.ts';
import { answerErrorPage } from './answer-page.ts';
import { sendsForm } from './checkout.ts';
import { answerKeyPage } from './key-page.ts';
import { answerPage, contactLink, type Html, html, NOTHING, resultPage } from './page-frame.ts';

/** Whoever reloads does not make the gateway ask the provider more often than this. */
const LOOK_EVERY_MS = 2000;
const REMEMBERED = 10_000;
/** A page that waits for a payment comes again by itself, in seconds, … */
const RELOAD_S = 4;
/** … for as long as somebody may be sitting before it. */
const RELOADS_MS = 10 * 60_000;
const SESSION = /^[A-Za-z0-9_-]{1,255}$/;

interface CompletePageOptions {
  readonly store: BillingStore;
  readonly reconciliation: PaymentReconciliation;
  readonly claims: Claims;
  readonly config: () => DynamicConfig;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

export class CompletePage {
  readonly #parts: CompletePageOptions;
  readonly #now: () => number;
  readonly #lookedAt = new RecentMap<string, number>(REMEMBERED);

  constructor(parts: CompletePageOptions) {
    this.#parts = parts;
    this.#now = parts.now ?? Date.now;
  }

  /**
   * `GET /checkout/complete?session_id=…`: a page; for who accepts `application/json` and no HTML, the same in short.
   * @throws GatewayError `unknown_order`, `store_unavailable`, for JSON
   */
  async show(exchange: Exchange): Promise<void> {
    const config = this.#parts.config();
    const accepts = exchange.request.headers.accept ?? '';
    const isPage = !accepts.includes('application/json') || accepts.includes('text/html');
    try {
      const session = new URLSearchParams(exchange.target.split('?')[1] ?? '').get('session_id') ?? '';
      const { order, isUnsure } = await this.#fresh(await this.#find(session));
      const isOwn = opens(claimSecrets(exchange, config.public_url), order.claim);
      if (!isPage) {
        const { id, tier, state, standing } = order;
        answerJson(exchange, 200, { order: id, tier, state, standing }, { 'cache-control': 'no-store' });
        return;
      }
      const isWaiting = order.state === 'pending' && this.#now() - Date.parse(order.createdAt) < RELOADS_MS;
      answerPage(exchange, 200, {
        title: titleOf(order),
        branding: config.branding,
        up: '../',
        hasForms: true,
        headers: isWaiting ? { refresh: String(RELOAD_S) } : {},
        body: resultPage(
          titleOf(order),
          html`${isUnsure ? html`<p class="notice bad">The payment provider cannot be reached at the moment. This is how the order stood when it last could.</p>` : NOTHING}
${this.#body(order, isOwn, config)}`,
          html`Order <code translate="no">${order.id}</code>`,
        ),
      });
    } catch (error) {
      if (!isPage || !(error instanceof GatewayError) || error.code === 'internal_error') throw error;
      answerErrorPage(exchange, error, config, '../');
    }
  }

  /** `GET /checkout/cancelled` */
  showCancelled(exchange: Exchange): void {
    answerPage(exchange, 200, {
      title: 'Not paid',
      branding: this.#parts.config().branding,
      up: '../',
      body: resultPage(
        'Not paid',
        html`<p class="lead">The payment was not made, and nothing was charged. If you have a key, it is as it was.</p>
<p class="actions"><a class="button" href="../pricing">Back to the tiers</a> <a class="button quiet" href="../account">Your key’s page</a></p>`,
      ),
    });
  }

  /**
   * `POST /checkout/claim` with `session_id`, from the browser that ordered: 201 with the key.
   * @throws GatewayError what readForm throws, `cross_origin_form`, and for JSON what `Claims.claim` throws
   */
  async claim(exchange: Exchange): Promise<void> {
    const config = this.#parts.config();
    const isPage = sendsForm(exchange);
    try {
      requireSameOrigin(exchange, new URL(config.public_url).origin);
      const form = await readPageForm(exchange);
      const secrets = claimSecrets(exchange, config.public_url);
      const isAllowed = (order: Order) => opens(secrets, order.claim);
      const found = await this.#parts.store.findOrder({ session: form.get('session_id') ?? '' });
      // The same for an order that does not exist, and for one of somebody else.
      if (found === undefined || !isAllowed(found)) throw new GatewayError('claim_forbidden');
      exchange.throwIfStopped();
      const { order } = await this.#fresh(found);
      const issued = await this.#parts.claims.claim(order.id, isAllowed);
      exchange.keyPrefix = issued.prefix;
      exchange.access.tier = issued.tier;
      if (isPage) answerKeyPage(exchange, issued, config, '../');
      else answerJson(exchange, 201, wireKey(issued), { 'cache-control': 'no-store' });
    } catch (error) {
      if (!isPage || !(error instanceof GatewayError) || error.code === 'internal_error') throw error;
      answerErrorPage(exchange, error, config, '../');
    }
  }

  async #find(session: string): Promise<Order> {
    const order = SESSION.test(session) ? await this.#parts.store.findOrder({ session }) : undefined;
    if (order === undefined) throw new GatewayError('unknown_order');
    return order;
  }

  /** An order that waits for its payment is looked at again: the event about it may come later, or never. */
  async #fresh(order: Order): Promise<{ readonly order: Order; readonly isUnsure: boolean }> {
    if (order.state !== 'pending') return { order, isUnsure: false };
    const now = this.#now();
    if (now - (this.#lookedAt.get(order.id) ?? 0) < LOOK_EVERY_MS) return { order, isUnsure: false };
    this.#lookedAt.set(order.id, now);
    try {
      return { order: await this.#parts.reconciliation.settle(order.id), isUnsure: false };
    } catch (error) {
      if (error instanceof GatewayError && error.code === 'payment_unavailable')
        return { order, isUnsure: true };
      throw error;
    }
  }

  #body(order: Order, isOwn: boolean, { branding }: DynamicConfig): Html {
    const contact = contactLink(branding, `Order ${order.id}`);
    const ask = contact === undefined ? html`ask the operator of this gateway` : html`write to ${contact}`;
    const session = order.session ?? '';
    const button = (label: string) =>
      html`<form class="actions" method="post" action="claim"><input type="hidden" name="session_id" value="${session}"><button type="submit">${label}</button></form>`;
    switch (order.state) {
      case 'pending':
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

/** How an order may have ended that gave no key, for who made it; by the reason that support reads. */
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
