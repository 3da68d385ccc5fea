// A stand-in for Stripe's API: a real HTTP server with sessions, subscriptions, invoices, charges, disputes and warnings, which
// behave as Stripe's do for the gateway. The official package signs the events. It can be made to fail.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import Stripe from 'stripe';
import { ask } from '../e2e/holder.ts';
import type { RawResponse } from '../helpers/raw-client.ts';

export const SECRET_KEY = 'sk_test_stand_in_0123456789';
export const WEBHOOK_SECRET = 'whsec_stand_in_0123456789';
const DAY = 86_400;

type Json = Record<string, unknown>;

export interface StandInPrice {
  readonly id: string;
  readonly amount: number;
  readonly currency: string;
}

interface Charge {
  readonly id: string;
  readonly customer: string;
  readonly payment_intent: string;
  readonly created: number;
  readonly amount: number;
  amount_refunded: number;
  refunded: boolean;
  disputed: boolean;
  dispute: string | undefined;
  /** Whether it went through. */
  readonly paid: boolean;
  warning: boolean | undefined;
  readonly metadata: Json;
  readonly subscription: string | null;
}

interface Subscription {
  readonly id: string;
  status: string;
  price: string;
  livemode: boolean;
  start: number;
  end: number;
  invoice: { status: string; created: number; next_payment_attempt?: number | null };
  readonly metadata: Json;
  readonly customer: string;
  cancel_at: number | null;
  cancel_at_period_end: boolean;
  ended_at: number | null;
}

export interface Session {
  readonly id: string;
  status: string;
  payment_status: string;
  reference: string;
  mode: string;
  price: string;
  amount: number;
  currency: string;
  livemode: boolean;
  quantity: number;
  intent: { id: string; status: string } | null;
  subscription: Subscription | null;
  customer: string | null;
  readonly metadata: Json;
  readonly successUrl: string;
}

export type Trouble = 'none' | 'gone' | 'slow' | 500 | 409 | 429 | 401;

/** Settings of a portal in which customers can cancel and cannot change plans. */
export const PORTAL: Json = {
  features: {
    subscription_cancel: { enabled: true, mode: 'at_period_end' },
    subscription_update: { enabled: false },
  },
};

export class StripeStandIn implements AsyncDisposable {
  readonly #server = createServer((request, response) => void this.#answer(request, response));
  readonly sessions = new Map<string, Session>();
  readonly subscriptions = new Map<string, Subscription>();
  readonly charges: Charge[] = [];
  readonly #prices: Map<string, StandInPrice>;
  readonly #idempotent = new Map<string, { body: string; session: string }>();
  readonly #underWay = new Set<string>();
  /** `METHOD path` of every request. */
  readonly requests: string[] = [];
  /** Every request to the API, as it was sent. */
  readonly sent: { readonly method: string; readonly url: string; readonly body: string }[] = [];
  /** What is set in the dashboard. Changes of a price are by its id. */
  readonly dashboard: {
    prices: Readonly<Record<string, Json>>;
    endpoints: readonly Json[];
    portals: readonly Json[];
  } = { prices: {}, endpoints: [], portals: [PORTAL] };
  /** What every request is answered with, until it is `none` again. */
  trouble: Trouble = 'none';
  /** Origin of the payment pages, where it is another than that of the API. */
  pages: string | undefined;
  /** Called before a request is answered; a test can hold it up. */
  before: ((line: string) => Promise<void> | void) | undefined;
  /** Versions of the API that were asked for. */
  readonly versions = new Set<string>();
  /** The version in which it answers, where it is another than was asked for. */
  version: string | undefined;
  /** Where the last portal leads back to. */
  returnUrl = '';
  #url = '';
  #count = 0;
  /** Seconds since 1970. */
  now = () => Math.floor(Date.now() / 1000);

  private constructor(prices: readonly StandInPrice[]) {
    this.#prices = new Map(prices.map((price) => [price.id, price]));
  }

  static async start(prices: readonly StandInPrice[]): Promise<StripeStandIn> {
    const standIn = new StripeStandIn(prices);
    standIn.#server.listen(0, '127.0.0.1');
    await once(standIn.#server, 'listening');
    const address = standIn.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    standIn.#url = `http://127.0.0.1:${address.port}`;
    return standIn;
  }

  get url(): string {
    return this.#url;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  /** The one session of an order. */
  sessionOf(order: string): Session {
    const found = [...this.sessions.values()].filter(({ reference }) => reference === order);
    if (found.length !== 1 || found[0] === undefined) throw new Error(`${found.length} sessions of ${order}`);
    return found[0];
  }

  /** The buyer pays at once. @returns the session's event */
  pay(session: Session): Json {
    session.status = 'complete';
    session.payment_status = 'paid';
    this.#charge(session);
    return this.event('checkout.session.completed', sessionJson(session));
  }

  /** The buyer orders a transfer that takes its time. */
  payLater(session: Session): Json {
    session.status = 'complete';
    session.customer = this.#id('cus');
    session.intent = { id: this.#id('pi'), status: 'processing' };
    return this.event('checkout.session.completed', sessionJson(session));
  }

  transferArrives(session: Session): Json {
    session.payment_status = 'paid';
    this.#charge(session);
    return this.event('checkout.session.async_payment_succeeded', sessionJson(session));
  }

  transferFails(session: Session): Json {
    if (session.intent !== null) session.intent.status = 'requires_payment_method';
    return this.event('checkout.session.async_payment_failed', sessionJson(session));
  }

  expire(session: Session): Json {
    session.status = 'expired';
    return this.event('checkout.session.expired', sessionJson(session));
  }

  renew(subscription: Subscription): Json {
    subscription.start = subscription.end;
    subscription.end += 30 * DAY;
    subscription.status = 'active';
    subscription.invoice = { status: 'paid', created: this.now() };
    this.#addCharge(subscription.customer, this.#id('pi'), {}, subscription.id, 900);
    return this.event('invoice.paid', invoiceJson(subscription));
  }

  /** @param ago seconds since the invoice was made */
  failRenewal(subscription: Subscription, ago = 0): Json {
    subscription.start = this.now() - ago;
    subscription.end = subscription.start + 30 * DAY;
    subscription.status = 'past_due';
    const created = this.now() - ago;
    subscription.invoice = { status: 'open', created, next_payment_attempt: created + 3 * DAY };
    // A charge that failed, newer than the one that was paid.
    this.#addCharge(subscription.customer, this.#id('pi'), {}, subscription.id, 900, false);
    return this.event('invoice.payment_failed', invoiceJson(subscription));
  }

  /** What the holder does in the portal. @param isFlexible the time itself is set, as newer accounts do */
  cancelAtEnd(subscription: Subscription, isFlexible = false): Json {
    if (isFlexible) subscription.cancel_at = subscription.end;
    else subscription.cancel_at_period_end = true;
    return this.event('customer.subscription.updated', subscriptionJson(subscription));
  }

  undoCancellation(subscription: Subscription): Json {
    subscription.cancel_at = null;
    subscription.cancel_at_period_end = false;
    return this.event('customer.subscription.updated', subscriptionJson(subscription));
  }

  cancel(subscription: Subscription): Json {
    subscription.status = 'canceled';
    subscription.ended_at = this.now();
    subscription.cancel_at_period_end = false;
    return this.event('customer.subscription.deleted', subscriptionJson(subscription));
  }

  /** All of it, or a part. @param which counted from the newest */
  refund(session: Session, amount?: number): Json {
    const charge = this.chargeOf(session);
    charge.amount_refunded = amount ?? charge.amount;
    charge.refunded = charge.amount_refunded === charge.amount;
    return this.event('charge.refunded', chargeJson(charge));
  }

  refundFails(session: Session): Json {
    const charge = this.chargeOf(session);
    charge.amount_refunded = 0;
    charge.refunded = false;
    const { id, payment_intent } = charge;
    return this.event('refund.failed', { id: this.#id('re'), object: 'refund', charge: id, payment_intent });
  }

  dispute(session: Session, status: string): Json {
    const charge = this.chargeOf(session);
    charge.disputed = true;
    charge.dispute = status;
    const type = status === 'won' || status === 'lost' ? 'closed' : 'created';
    const { id, payment_intent } = charge;
    return this.event(`charge.dispute.${type}`, {
      id: this.#id('du'),
      object: 'dispute',
      charge: id,
      payment_intent,
      status,
    });
  }

  warn(session: Session): Json {
    const charge = this.chargeOf(session);
    charge.warning = true;
    const object = { id: this.#id('issfr'), object: 'radar.early_fraud_warning', charge: charge.id };
    return this.event('radar.early_fraud_warning.created', object);
  }

  /** The last charge that was paid. */
  chargeOf(session: Session): Charge {
    const charge = this.charges.filter(({ customer, paid }) => paid && customer === session.customer).at(-1);
    if (charge === undefined) throw new Error('nothing was charged');
    return charge;
  }

  event(type: string, object: Json, fields: Json = {}): Json {
    return {
      id: this.#id('evt'),
      object: 'event',
      api_version: '2026-10-28.endive',
      created: this.now(),
      livemode: false,
      pending_webhooks: 1,
      request: { id: null, idempotency_key: null },
      type,
      data: { object },
      ...fields,
    };
  }

  #id(kind: string): string {
    this.#count += 1;
    return `${kind}_${this.#count}`;
  }

  #charge(session: Session): void {
    session.customer ??= this.#id('cus');
    if (session.mode === 'subscription') {
      const subscription: Subscription = {
        id: this.#id('sub'),
        status: 'active',
        price: session.price,
        livemode: session.livemode,
        start: this.now(),
        end: this.now() + 30 * DAY,
        invoice: { status: 'paid', created: this.now() },
        metadata: { ...session.metadata },
        customer: session.customer,
        cancel_at: null,
        cancel_at_period_end: false,
        ended_at: null,
      };
      session.subscription = subscription;
      this.subscriptions.set(subscription.id, subscription);
      this.#addCharge(session.customer, this.#id('pi'), {}, subscription.id, session.amount);
      return;
    }
    session.intent = { id: session.intent?.id ?? this.#id('pi'), status: 'succeeded' };
    this.#addCharge(session.customer, session.intent.id, session.metadata, null, session.amount);
  }

  #addCharge(
    customer: string,
    payment_intent: string,
    metadata: Json,
    subscription: string | null,
    amount: number,
    paid = true,
  ): void {
    this.charges.push({
      id: this.#id('ch'),
      customer,
      payment_intent,
      created: this.now() + this.charges.length,
      amount,
      amount_refunded: 0,
      refunded: false,
      disputed: false,
      dispute: undefined,
      paid,
      warning: undefined,
      metadata,
      subscription,
    });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', url = '' } = request;
    const line = `${method} ${url.split('?')[0]}`;
    this.requests.push(line);
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    const body = Buffer.concat(chunks).toString();
    const version = String(request.headers['stripe-version']);
    if (url.startsWith('/v1/')) {
      this.sent.push({ method, url, body });
      this.versions.add(version);
    }
    const key =
      line === 'POST /v1/checkout/sessions' ? String(request.headers['idempotency-key']) : undefined;
    const isUnderWay = key !== undefined && this.#underWay.has(key);
    if (key !== undefined) this.#underWay.add(key);
    await this.before?.(line);
    if (!isUnderWay && key !== undefined) this.#underWay.delete(key);
    if (this.trouble === 'gone') return void request.socket.destroy();
    if (this.trouble === 'slow') return;
    const say = (status: number, value: Json) => {
      if (response.destroyed) return;
      response.writeHead(status, {
        'content-type': 'application/json',
        'request-id': this.#id('req'),
        'stripe-version': this.version ?? version,
      });
      response.end(JSON.stringify(value));
    };
    const fail = (status: number, type: string) =>
      say(status, { error: { type, message: `refused, and it quotes ${SECRET_KEY}` } });
    if (isUnderWay) return fail(409, 'idempotency_error');
    if (this.trouble !== 'none') return fail(this.trouble, 'api_error');
    const paying = this.sessions.get(/^\/pay\/(.+)$/.exec(url)?.[1] ?? '');
    if (paying !== undefined) return this.#payPage(paying, method, response);
    if (request.headers.authorization !== `Bearer ${SECRET_KEY}`) return fail(401, 'invalid_request_error');
    try {
      const found = this.#route(
        line,
        new URL(url, this.#url).searchParams,
        new URLSearchParams(body),
        request,
      );
      if (found === undefined) fail(404, 'invalid_request_error');
      else if (found === 'mismatch') fail(400, 'idempotency_error');
      else say(200, found);
    } catch (error) {
      say(500, { error: { type: 'api_error', message: String(error) } });
    }
  }

  /** The payment page as a browser sees it: a button, and the way back. */
  #payPage(session: Session, method: string, response: ServerResponse): void {
    if (method === 'POST') {
      this.pay(session);
      const location = session.successUrl.replace('{CHECKOUT_SESSION_ID}', session.id);
      response.writeHead(303, { location }).end();
      return;
    }
    const page =
      '<!doctype html><html lang="en"><title>Pay</title><link rel="icon" href="data:,"><form method="post"><button>Pay</button></form>';
    response.writeHead(200, { 'content-type': 'text/html' }).end(page);
  }

  #route(
    line: string,
    query: URLSearchParams,
    body: URLSearchParams,
    request: IncomingMessage,
  ): Json | 'mismatch' | undefined {
    const id = line.split('/')[line.includes('/checkout/') ? 4 : 3] ?? '';
    if (line === 'POST /v1/checkout/sessions') return this.#create(body, request);
    if (/^POST .*\/expire$/.test(line)) {
      const session = this.sessions.get(id);
      if (session === undefined) return undefined;
      session.status = 'expired';
      return sessionJson(session);
    }
    if (line.startsWith('GET /v1/checkout/sessions/')) {
      const session = this.sessions.get(id);
      return (
        session && { ...sessionJson(session), url: session.status === 'open' ? this.#page(session) : null }
      );
    }
    if (line.startsWith('GET /v1/subscriptions/') || line.startsWith('DELETE /v1/subscriptions/')) {
      const subscription = this.subscriptions.get(id);
      if (subscription === undefined) return undefined;
      if (line.startsWith('DELETE')) this.cancel(subscription);
      return subscriptionJson(subscription);
    }
    if (line.startsWith('POST /v1/subscriptions/')) {
      const subscription = this.subscriptions.get(id);
      return subscription && this.#update(subscription, body);
    }
    if (line === 'POST /v1/billing_portal/sessions') {
      const customer = body.get('customer');
      const isKnown = [...this.sessions.values()].some((each) => each.customer === customer);
      if (!isKnown) return undefined;
      this.returnUrl = body.get('return_url') ?? '';
      return {
        id: this.#id('bps'),
        object: 'billing_portal.session',
        url: `${this.#url}/portal/${customer}`,
      };
    }
    if (line.startsWith('GET /v1/prices/')) return this.#priceJson(id);
    if (line === 'GET /v1/webhook_endpoints') return list(this.dashboard.endpoints);
    if (line === 'GET /v1/billing_portal/configurations') return list(this.dashboard.portals);
    if (line === 'POST /v1/refunds') {
      const charge = this.charges.find((each) => each.id === body.get('charge'));
      if (charge === undefined || charge.refunded) return undefined;
      charge.amount_refunded = charge.amount;
      charge.refunded = true;
      return { id: this.#id('re'), object: 'refund', charge: charge.id, status: 'succeeded' };
    }
    if (line === 'GET /v1/charges') {
      const [customer, intent] = [query.get('customer'), query.get('payment_intent')];
      const mine = this.charges.filter((each) =>
        customer === null ? each.payment_intent === intent : each.customer === customer,
      );
      return list(mine.toReversed().map(chargeJson));
    }
    if (line.startsWith('GET /v1/charges/')) {
      const charge = this.charges.find((each) => each.id === id);
      return charge && chargeJson(charge);
    }
    if (line === 'GET /v1/disputes') {
      const charge = this.charges.find((each) => each.id === query.get('charge'));
      return list(
        charge?.dispute === undefined ? [] : [{ id: 'du', object: 'dispute', status: charge.dispute }],
      );
    }
    if (line === 'GET /v1/radar/early_fraud_warnings') {
      const charge = this.charges.find((each) => each.id === query.get('charge'));
      return list(charge?.warning === undefined ? [] : [{ id: 'issfr', actionable: charge.warning }]);
    }
    if (line === 'GET /v1/invoice_payments') {
      const charge = this.charges.find(
        (each) => each.payment_intent === query.get('payment[payment_intent]'),
      );
      const subscription = this.subscriptions.get(charge?.subscription ?? '');
      return list(subscription === undefined ? [] : [{ invoice: invoiceJson(subscription) }]);
    }
    return undefined;
  }

  #priceJson(id: string): Json | undefined {
    const price = this.#prices.get(id);
    if (price === undefined) return undefined;
    return {
      id,
      object: 'price',
      active: true,
      billing_scheme: 'per_unit',
      currency: price.currency,
      livemode: false,
      unit_amount: price.amount,
      recurring: { interval: 'month', interval_count: 1, usage_type: 'licensed' },
      ...this.dashboard.prices[id],
    };
  }

  #update(subscription: Subscription, body: URLSearchParams): Json {
    const atEnd = body.get('cancel_at_period_end');
    if (atEnd !== null && body.has('cancel_at')) throw new Error('Stripe takes one of both');
    if (subscription.status === 'canceled' && atEnd !== null) throw new Error('it is canceled');
    if (atEnd !== null) subscription.cancel_at_period_end = atEnd === 'true';
    if (body.get('cancel_at') === '') subscription.cancel_at = null;
    for (const [name, value] of body) {
      const member = /^metadata\[(.+)\]$/.exec(name)?.[1];
      if (member !== undefined) subscription.metadata[member] = value;
    }
    return subscriptionJson(subscription);
  }

  #create(body: URLSearchParams, request: IncomingMessage): Json | 'mismatch' {
    const key = String(request.headers['idempotency-key']);
    const known = this.#idempotent.get(key);
    if (known !== undefined && known.body !== body.toString()) return 'mismatch';
    const price = this.#prices.get(body.get('line_items[0][price]') ?? '');
    if (price === undefined) throw new Error('no such price');
    const session = this.sessions.get(known?.session ?? '') ?? {
      id: this.#id('cs_test'),
      status: 'open',
      payment_status: 'unpaid',
      reference: body.get('client_reference_id') ?? '',
      mode: body.get('mode') ?? '',
      price: price.id,
      amount: price.amount,
      currency: price.currency,
      livemode: false,
      quantity: Number(body.get('line_items[0][quantity]')),
      intent: null,
      subscription: null,
      customer: null,
      metadata: { order: body.get('metadata[order]') ?? '' },
      successUrl: body.get('success_url') ?? '',
    };
    this.sessions.set(session.id, session);
    this.#idempotent.set(key, { body: body.toString(), session: session.id });
    return { ...sessionJson(session), url: this.#page(session) };
  }

  #page({ id }: Session): string {
    return `${this.pages ?? this.#url}/pay/${id}`;
  }
}

const list = (data: readonly Json[]): Json => ({ object: 'list', data, has_more: false, url: '/' });

function sessionJson(session: Session): Json {
  const { id, status, payment_status, reference, mode, amount, currency, livemode, customer, metadata } =
    session;
  return {
    id,
    object: 'checkout.session',
    status,
    payment_status,
    client_reference_id: reference,
    mode,
    amount_total: amount,
    currency,
    livemode,
    customer,
    metadata,
    url: null,
    payment_intent: session.intent,
    subscription: session.subscription && subscriptionJson(session.subscription),
    line_items: list([{ id: 'li', quantity: session.quantity, price: { id: session.price } }]),
  };
}

function subscriptionJson(subscription: Subscription): Json {
  const { id, status, livemode, start, end, price, metadata, customer, invoice } = subscription;
  const { cancel_at, cancel_at_period_end, ended_at } = subscription;
  const item = {
    id: 'si',
    quantity: 1,
    price: { id: price },
    current_period_start: start,
    current_period_end: end,
  };
  return {
    id,
    object: 'subscription',
    status,
    livemode,
    metadata,
    customer,
    start_date: start,
    cancel_at,
    cancel_at_period_end,
    ended_at,
    items: list([item]),
    latest_invoice: { id: 'in', object: 'invoice', ...invoice },
  };
}

function invoiceJson({ id, metadata, invoice }: Subscription): Json {
  return {
    id: 'in',
    object: 'invoice',
    ...invoice,
    parent: { type: 'subscription_details', subscription_details: { subscription: id, metadata } },
  };
}

function chargeJson(charge: Charge): Json {
  const { dispute: _dispute, warning: _warning, subscription: _subscription, ...fields } = charge;
  return { ...fields, object: 'charge', status: charge.paid ? 'succeeded' : 'failed' };
}

export interface Delivery {
  readonly secret?: string;
  /** Seconds since 1970. */
  readonly timestamp?: number;
  /** Instead of the signature that belongs to it. */
  readonly header?: string | null;
  /** Instead of the bytes that were signed. */
  readonly body?: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

export function signatureOf(payload: string, { secret = WEBHOOK_SECRET, timestamp }: Delivery = {}): string {
  return Stripe.webhooks.generateTestHeaderString({
    payload,
    secret,
    ...(timestamp === undefined ? {} : { timestamp }),
  });
}

/** Sends an event as Stripe does. */
export function deliver(url: string, event: Json, delivery: Delivery = {}): Promise<RawResponse> {
  const payload = JSON.stringify(event, null, 2);
  const header = delivery.header === undefined ? signatureOf(payload, delivery) : delivery.header;
  return ask(url, {
    target: '/webhooks/stripe',
    headers: {
      'content-type': 'application/json; charset=utf-8',
      ...(header === null ? {} : { 'stripe-signature': header }),
      ...delivery.headers,
    },
    body: delivery.body ?? payload,
  });
}
