// The payment page of the fake provider: it states that no money moves, and has two buttons.
import type { IncomingMessage } from 'node:http';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answer } from '../../http/exchange/response-writer.ts';
import { readPageForm, requireSameOrigin } from '../../http/page-form.ts';
import type { Order } from '../../store/billing-record.ts';
import { FakeProvider } from '../fake-provider.ts';
import type { BillingParts } from '../payment-provider.ts';
import type { PaymentReconciliation } from '../payment-reconciliation.ts';
import { withErrorPage } from './answer-page.ts';
import { sessionIn } from './complete-page.ts';
import { answerPage, html } from './page-frame.ts';
import { priceText } from './price-text.ts';

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
      answerPage(exchange, 200, {
        title: 'Test payment',
        branding: config.branding,
        up: '../',
        hasForms: true,
        body: html`<section class="card outcome till" aria-labelledby="outcome"><h1 id="outcome">Test payment</h1>
<p class="notice bad"><strong>No money moves here, and no card is needed.</strong> This page replaces a payment provider while <code>billing.provider</code> is <code>test</code>. It is available on this machine only.</p>
<dl class="bill"><dt>${order.tier}</dt><dd>${priceText(order)}</dd></dl>
<form class="actions" method="post" action="test"><input type="hidden" name="session_id" value="${session}"><button type="submit" name="button" value="pay">Pay (test)</button> <button type="submit" class="quiet" name="button" value="decline">Decline (test)</button></form>
<p class="foot"><a href="cancelled">Leave without paying</a></p></section>`,
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
      if (button !== 'pay' && button !== 'decline')
        throw new GatewayError('invalid_value', '`button` must be `pay` or `decline`.', { param: 'button' });
      await provider.press(order, button);
      await this.#parts.reconciliation.settle(order.id);
      answer(exchange, 303, { location: `complete?session_id=${session}`, 'cache-control': 'no-store' }, '');
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
