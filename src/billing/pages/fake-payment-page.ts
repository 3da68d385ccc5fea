// The pages of the fake provider, which state that no money moves: two buttons to pay an order or decline it, and a customer portal
// for a paid one, with buttons for everything that can happen to a payment later.
import type { IncomingMessage } from 'node:http';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answer } from '../../http/exchange/response-writer.ts';
import { readPageForm, requireSameOrigin } from '../../http/page-form.ts';
import type { Order } from '../../store/billing-record.ts';
import { FAKE_EVENTS, FakeProvider } from '../fake-provider.ts';
import type { BillingParts } from '../payment-provider.ts';
import type { PaymentReconciliation } from '../payment-reconciliation.ts';
import { withErrorPage } from './answer-page.ts';
import { sessionIn } from './complete-page.ts';
import { answerPage, type Html, html, NOTHING } from './page-frame.ts';
import { localeOf, priceText } from './price-text.ts';

interface FakePaymentPageOptions extends Pick<BillingParts, 'store' | 'provider' | 'config'> {
  readonly reconciliation: PaymentReconciliation;
  /** Whether a request was sent on this machine. */
  readonly isLocal: (request: IncomingMessage) => boolean;
}

export class FakePaymentPage {
  readonly #parts: FakePaymentPageOptions;

  constructor(parts: FakePaymentPageOptions) {
    this.#parts = parts;
  }

  /** `GET /checkout/test?session_id=…`. It exists only with the fake provider, and only for this machine. */
  async show(exchange: Exchange): Promise<void> {
    const config = this.#parts.config();
    this.#provider(exchange);
    await withErrorPage(exchange, { isPage: true, config, up: '../' }, async () => {
      const session = sessionIn(exchange);
      const order = await this.#find(session);
      const isPaid = order.paidAt !== null;
      const title = isPaid ? 'Test portal' : 'Test payment';
      answerPage(exchange, 200, {
        title,
        branding: config.branding,
        up: '../',
        hasForms: true,
        body: html`<section class="card outcome till" aria-labelledby="outcome"><h1 id="outcome">${title}</h1>
<p class="notice bad"><strong>No money moves here, and no card is needed.</strong> This page replaces a payment provider while <code>billing.provider</code> is <code>test</code>. It is available on this machine only.</p>
<dl class="bill"><dt>${order.tier}</dt><dd>${priceText(order, localeOf(exchange))}</dd></dl>
${isPaid ? portal(order, session) : payment(session)}</section>`,
      });
    });
  }

  /** `POST /checkout/test` */
  async press(exchange: Exchange): Promise<void> {
    const config = this.#parts.config();
    // Before the body is read.
    const provider = this.#provider(exchange);
    await withErrorPage(exchange, { isPage: true, config, up: '../' }, async () => {
      requireSameOrigin(exchange, new URL(config.public_url).origin);
      const form = await readPageForm(exchange);
      const session = form.get('session_id') ?? '';
      const order = await this.#find(session);
      const button = form.get('button');
      const event = FAKE_EVENTS.find((name) => name === button);
      if (button === 'pay' || button === 'decline') await provider.press(order, button);
      else if (event !== undefined && order.paidAt !== null) await provider.simulate(order, event);
      else throw new GatewayError('invalid_value', '`button` is not one of this page.', { param: 'button' });
      await this.#parts.reconciliation.settle(order.id);
      const page = event === undefined ? 'complete' : 'test';
      answer(exchange, 303, { location: `${page}?session_id=${session}`, 'cache-control': 'no-store' }, '');
    });
  }

  /** A payment here is free, so another machine must not reach it, whatever the configuration says. */
  #provider({ request }: Exchange): FakeProvider {
    const provider = this.#parts.provider();
    if (!(provider instanceof FakeProvider)) throw new GatewayError('unknown_url');
    if (this.#parts.isLocal(request)) return provider;
    throw new GatewayError(
      'unknown_url',
      'Test payments work only in a browser on the gateway’s own machine, at a loopback address.',
    );
  }

  async #find(session: string): Promise<Order> {
    const order = session === '' ? undefined : await this.#parts.store.findOrder({ session });
    if (order === undefined) throw new GatewayError('unknown_order');
    return order;
  }
}

function payment(session: string): Html {
  return html`<form class="actions" method="post" action="test"><input type="hidden" name="session_id" value="${session}"><button type="submit" name="button" value="pay">Pay (test)</button> <button type="submit" class="quiet" name="button" value="decline">Decline (test)</button></form>
<p class="foot"><a href="cancelled">Leave without paying</a></p>`;
}

/** What a customer does at a portal. */
const CHOICES = {
  cancelling: 'Cancel at the end of the period',
  resumed: 'Do not cancel',
  paid: 'Pay again',
} as const;

/** What happens without the customer. */
const HAPPENINGS = {
  renewed: 'The next period is paid',
  failed: 'The next payment fails',
  refunded: 'It is refunded',
  disputed: 'The bank disputes it',
  won: 'The dispute is won',
  lost: 'The dispute is lost',
  cancelled: 'It ends at once',
} as const;

function portal(order: Order, session: string): Html {
  const { standing, paidUntil, endsAt, reason } = order;
  const lines = [
    ['State', `${standing}${reason === null ? '' : `: ${reason}`}`],
    ['Paid until', paidUntil?.slice(0, 10) ?? 'for good'],
    ...(endsAt === null ? [] : [['Ends on', endsAt.slice(0, 10)]]),
  ];
  const buttons = (all: Readonly<Record<string, string>>) =>
    Object.entries(all).map(
      ([name, label]) =>
        html`<button type="submit" class="quiet small" name="button" value="${name}">${label}</button>
`,
    );
  const form = (all: Readonly<Record<string, string>>) =>
    html`<form class="row" method="post" action="test"><input type="hidden" name="session_id" value="${session}">${buttons(all)}</form>`;
  return html`<dl class="facts">${lines.map(([name = '', value = '']) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
${order.mode === 'subscription' ? html`<h2>What the customer does</h2>${form(CHOICES)}` : NOTHING}
<h2>What happens to the payment</h2>
${form(HAPPENINGS)}
<p class="foot"><a href="../account?from=portal">Return to your key’s page</a></p>`;
}
