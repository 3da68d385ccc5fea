// The facts that the Stripe provider reads: each field that decides about money, from a real HTTP server with the objects of
// the test.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StripeCalls } from '../../src/billing/stripe/stripe-calls.ts';
import { stripeIdOf } from '../../src/billing/stripe/stripe-facts.ts';
import { StripeProvider } from '../../src/billing/stripe/stripe-provider.ts';
import type { Order } from '../../src/store/billing-record.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { orderSample } from './order-sample.ts';

type Json = Record<string, unknown>;

const list = (...data: readonly Json[]): Json => ({ object: 'list', data, has_more: false, url: '/' });

/** Answers each path with one object, 404 where there is none, and notes what was requested. */
class ScriptedStripe implements AsyncDisposable {
  readonly requests: string[] = [];
  readonly bodies: URLSearchParams[] = [];
  readonly answers = new Map<string, Json>();
  readonly #server = createServer(async (request, response) => {
    const path = `${request.method} ${decodeURIComponent(request.url ?? '')}`;
    this.requests.push(path);
    let body = '';
    for await (const chunk of request) body += String(chunk);
    this.bodies.push(new URLSearchParams(body));
    const [bare = ''] = path.split('?');
    const found = this.answers.get(path) ?? this.answers.get(bare);
    response.writeHead(found === undefined ? 404 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(found ?? { error: { type: 'invalid_request_error', message: 'none' } }));
  });
  url = '';

  async start(): Promise<this> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    this.url = `http://127.0.0.1:${address.port}`;
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

let stripe: ScriptedStripe;
let provider: StripeProvider;

beforeEach(async () => {
  stripe = await new ScriptedStripe().start();
  provider = providerOf('sk_test_1');
});
afterEach(() => stripe[Symbol.asyncDispose]());

function providerOf(secret_key: string, api_base: string | undefined = stripe.url): StripeProvider {
  return new StripeProvider(new StripeCalls({ secret_key, api_base }, createMetrics()), {
    secret_key,
    api_base,
  });
}

const ORDER: Order = orderSample({ mode: 'subscription', session: 'cs_1' });
const SESSION = 'GET /v1/checkout/sessions/cs_1';
const CHARGES = 'GET /v1/charges';

const session = (changed: Json = {}): Json => ({
  id: 'cs_1',
  object: 'checkout.session',
  status: 'complete',
  payment_status: 'paid',
  client_reference_id: ORDER.id,
  mode: 'subscription',
  amount_total: 900,
  currency: 'usd',
  livemode: false,
  customer: 'cus_1',
  url: null,
  payment_intent: null,
  subscription: null,
  line_items: list({ id: 'li', quantity: 1, price: { id: 'price_lite' } }),
  ...changed,
});

const subscription = (changed: Json = {}): Json => ({
  id: 'sub_1',
  status: 'active',
  livemode: false,
  start_date: 50,
  metadata: {},
  cancel_at: null,
  cancel_at_period_end: false,
  ended_at: null,
  items: list({
    quantity: 1,
    price: { id: 'price_lite' },
    current_period_start: 100,
    current_period_end: 200,
  }),
  latest_invoice: { id: 'in_1', status: 'paid', created: 90 },
  ...changed,
});

/** @param created seconds; the newest charge is the one of the present period */
const charge = (id: string, created: number, changed: Json = {}): Json => ({
  id,
  object: 'charge',
  created,
  paid: true,
  status: 'succeeded',
  refunded: false,
  amount_refunded: 0,
  disputed: false,
  ...changed,
});

async function look(changed: Json, order: Partial<Order> = {}, hinted?: string) {
  stripe.answers.set(SESSION, session(changed));
  return provider.readFacts({ ...ORDER, ...order }, hinted);
}

/** What is read of a paid session with these charges. */
async function moneyOf(...charges: readonly Json[]) {
  stripe.answers.set(CHARGES, list(...charges));
  return (await look({}))?.money;
}

function answerDisputes(charge: string, ...statuses: readonly string[]): void {
  const disputes = statuses.map((status, at) => ({ id: `du_${at}`, object: 'dispute', status }));
  stripe.answers.set(`GET /v1/disputes?charge=${charge}&limit=10`, list(...disputes));
}

function answerWarnings(charge: string, ...actionable: readonly boolean[]): void {
  const warnings = actionable.map((each, at) => ({ id: `issfr_${at}`, actionable: each }));
  stripe.answers.set(`GET /v1/radar/early_fraud_warnings?charge=${charge}&limit=10`, list(...warnings));
}

describe('a charge without money decides nothing', () => {
  const refundedInFull = { refunded: true, amount_refunded: 900 };

  test.each([
    ['failed, though `paid` is said', { paid: true, status: 'failed' }],
    ['pending and not paid', { paid: false, status: 'pending' }],
    ['succeeded, and not paid', { paid: false, status: 'succeeded' }],
    ['failed and not paid', { paid: false, status: 'failed' }],
  ])('%s: the previous paid one decides', async (_, unpaid) => {
    const newest = charge('ch_new', 9, { ...unpaid, ...refundedInFull, disputed: true });
    answerDisputes('ch_new', 'lost');
    answerWarnings('ch_new', true);
    expect(await moneyOf(newest, charge('ch_old', 1))).toEqual({
      refund: 'none',
      dispute: 'none',
      isSuspect: false,
    });
    expect(await moneyOf(newest, charge('ch_old', 1, { amount_refunded: 1 }))).toMatchObject({
      refund: 'partial',
    });
  });

  test('a failed one alone: nothing was paid, and nothing more is read', async () => {
    expect(await moneyOf(charge('ch', 1, { status: 'failed', ...refundedInFull }))).toMatchObject({
      refund: 'none',
    });
    expect(stripe.requests.filter((line) => /disputes|warnings/.test(line))).toEqual([]);
  });

  test('one that is pending and paid counts', async () => {
    expect(await moneyOf(charge('ch', 1, { status: 'pending', ...refundedInFull }))).toMatchObject({
      refund: 'full',
    });
  });
});

describe('money', () => {
  test('the refund is that of the newest charge, in any order of the list', async () => {
    const [old, newest] = [charge('a', 1, { refunded: true, amount_refunded: 900 }), charge('b', 2)];
    expect(await moneyOf(old, newest)).toMatchObject({ refund: 'none' });
    expect(await moneyOf(newest, old)).toMatchObject({ refund: 'none' });
    expect(await moneyOf(charge('a', 1), charge('b', 2, { amount_refunded: 1 }))).toMatchObject({
      refund: 'partial',
    });
  });

  test.each([
    [['warning_needs_response'], 'none'],
    [['warning_closed'], 'none'],
    [['won'], 'won'],
    [['prevented'], 'won'],
    [['lost'], 'lost'],
    [['needs_response'], 'open'],
    [['under_review'], 'open'],
    [['won', 'needs_response'], 'open'],
    [['needs_response', 'lost', 'won'], 'lost'],
    [[], 'none'],
  ] as const)('disputes %j are %s', async (statuses, dispute) => {
    answerDisputes('ch', ...statuses);
    expect(await moneyOf(charge('ch', 1, { disputed: true }))).toMatchObject({ dispute });
  });

  test('a charge without a dispute at Stripe has none', async () => {
    expect(await moneyOf(charge('ch', 1, { disputed: true }))).toMatchObject({ dispute: 'none' });
  });

  test('a dispute of an older charge counts, and other charges are not looked up', async () => {
    answerDisputes('a', 'lost');
    answerDisputes('b', 'lost');
    expect(await moneyOf(charge('a', 1, { disputed: true }), charge('b', 2))).toMatchObject({
      dispute: 'lost',
    });
    expect(stripe.requests.filter((line) => line.includes('/disputes'))).toHaveLength(1);
  });

  test('actionable fraud warnings count for the three newest charges', async () => {
    const four = [charge('a', 1), charge('b', 2), charge('c', 3), charge('d', 4)];
    answerWarnings('a', true);
    answerWarnings('b', false, false);
    expect(await moneyOf(...four)).toMatchObject({ isSuspect: false });
    answerWarnings('b', false, true);
    expect(await moneyOf(...four)).toMatchObject({ isSuspect: true });
  });

  test('charges are listed by customer for a subscription, and by payment otherwise', async () => {
    await look({});
    expect(stripe.requests).toContain(`${CHARGES}?customer=cus_1&limit=100`);
    await look({ mode: 'payment', payment_intent: { id: 'pi_1', status: 'succeeded' } });
    expect(stripe.requests).toContain(`${CHARGES}?payment_intent=pi_1&limit=100`);
  });

  test.each([
    ['a subscription without a customer', { customer: null, payment_intent: 'pi_1' }],
    ['a payment without its name', { mode: 'payment', payment_intent: null }],
  ])('%s has no charges to list', async (_, changed) => {
    expect(await look(changed)).toMatchObject({ money: { refund: 'none' } });
    expect(stripe.requests.filter((line) => line.startsWith(CHARGES))).toEqual([]);
  });

  test.each([
    ['paid', null, true],
    ['no_payment_required', null, true],
    ['unpaid', null, false],
    // A transfer that was paid and is taken back says `unpaid` again.
    ['unpaid', '2030-01-01T00:00:00.000Z', true],
  ])('%s, paid before at %s: the request is for %s', async (payment_status, paidAt, isAsked) => {
    await look({ payment_status }, { paidAt });
    expect(stripe.requests.some((line) => line.startsWith(CHARGES))).toBe(isAsked);
  });
});

describe('a session', () => {
  test.each([
    ['open', 'open'],
    ['complete', 'complete'],
    ['expired', 'expired'],
  ])('%s is %s', async (status, expected) => {
    expect(await look({ status })).toMatchObject({ session: { status: expected } });
  });

  test.each([
    ['paid', 'paid'],
    ['no_payment_required', 'not_required'],
    ['unpaid', 'unpaid'],
  ])('payment status %s is %s', async (payment_status, payment) => {
    expect(await look({ payment_status })).toMatchObject({ session: { payment } });
  });

  test.each<[string, Json, boolean]>([
    [
      'complete, its payment wants another method',
      { payment_intent: { id: 'pi', status: 'requires_payment_method' } },
      true,
    ],
    ['complete, its payment was given up', { payment_intent: { id: 'pi', status: 'canceled' } }, true],
    ['complete, its payment is under way', { payment_intent: { id: 'pi', status: 'processing' } }, false],
    ['complete, its payment not expanded', { payment_intent: 'pi' }, false],
    ['complete, neither payment nor subscription', {}, false],
    [
      'complete, its subscription never began',
      { subscription: subscription({ status: 'incomplete_expired' }) },
      true,
    ],
    ['complete, its subscription has ended', { subscription: subscription({ status: 'canceled' }) }, true],
    ['complete, its subscription runs', { subscription: subscription() }, false],
    ['complete, its subscription not expanded', { subscription: 'sub_1' }, false],
    [
      'open, its payment wants a method',
      { status: 'open', payment_intent: { id: 'pi', status: 'requires_payment_method' } },
      false,
    ],
  ])('%s: failure is detected', async (_, changed, hasFailed) => {
    expect(await look(changed)).toMatchObject({ session: { hasFailed } });
  });

  test.each<[string, Json, string | null]>([
    ['one line', {}, 'price_lite'],
    ['no line', { line_items: list() }, null],
    [
      'two lines',
      { line_items: list({ quantity: 1, price: { id: 'price_lite' } }, { quantity: 1, price: { id: 'x' } }) },
      null,
    ],
    [
      'more lines than were listed',
      { line_items: { ...list({ quantity: 1, price: { id: 'price_lite' } }), has_more: true } },
      null,
    ],
    ['two of it', { line_items: list({ quantity: 2, price: { id: 'price_lite' } }) }, null],
    ['no price', { line_items: list({ quantity: 1, price: null }) }, null],
    ['no list', { line_items: undefined }, null],
  ])('with %s: the price is read, or null', async (_, changed, price) => {
    expect(await look(changed)).toMatchObject({ session: { price } });
  });

  test('ids are read from expanded and plain references', async () => {
    expect(await look({ subscription: 'sub_1', payment_intent: 'pi_1' })).toMatchObject({
      session: { subscription: 'sub_1', payment_id: 'pi_1', customer: 'cus_1' },
      subscription: null,
    });
    expect(
      await look({
        subscription: null,
        payment_intent: { id: 'pi_1', status: 'succeeded' },
        customer: { id: 'cus_2' },
      }),
    ).toMatchObject({ session: { subscription: null, payment_id: 'pi_1', customer: 'cus_2' } });
    expect([
      stripeIdOf(null),
      stripeIdOf(undefined),
      stripeIdOf({}),
      stripeIdOf({ id: 'x' }),
      stripeIdOf('y'),
    ]).toEqual([undefined, undefined, undefined, 'x', 'y']);
  });

  test('from an event must refer to the order; the order’s own is always checked', async () => {
    const foreign = { client_reference_id: 'ord_other' };
    expect(await look(foreign, { session: null }, 'cs_1')).toBeUndefined();
    expect(await look(foreign)).toMatchObject({ session: { reference: 'ord_other' } });
    expect(await look({}, { session: null }, 'cs_1')).toMatchObject({ session: { reference: ORDER.id } });
    expect(await look({}, { session: null })).toBeUndefined();
  });

  test('unknown to Stripe is undefined', async () => {
    expect(await provider.readFacts({ ...ORDER, session: 'cs_unknown' })).toBeUndefined();
  });
});

describe('a subscription', () => {
  const facts = async (changed: Json) => (await look({ subscription: subscription(changed) }))?.subscription;

  test.each([
    ['active', 'active'],
    ['trialing', 'active'],
    ['past_due', 'past_due'],
    ['unpaid', 'past_due'],
    ['canceled', 'canceled'],
    ['incomplete_expired', 'canceled'],
    ['incomplete', 'incomplete'],
    ['paused', 'incomplete'],
    ['something new', 'incomplete'],
  ])('that is %s counts as %s', async (status, expected) => {
    expect(await facts({ status })).toMatchObject({ status: expected });
  });

  test.each<[string, unknown, number, number | null]>([
    ['paid', { status: 'paid', created: 90 }, 200_000, null],
    ['open', { status: 'open', created: 90 }, 100_000, 90_000],
    ['uncollectible', { status: 'uncollectible', created: 90 }, 100_000, 90_000],
    ['void', { status: 'void', created: 90 }, 100_000, null],
    ['a draft, of a period that has just begun', { status: 'draft', created: 90 }, 100_000, null],
    ['not expanded', 'in_1', 200_000, null],
    ['missing', null, 200_000, null],
  ])('with the last invoice %s: the paid period', async (_, latest_invoice, paidUntil, unpaidSince) => {
    expect(await facts({ latest_invoice })).toMatchObject({ paidUntil, unpaidSince });
  });

  test.each<[string, Json, number | null]>([
    ['nothing', {}, null],
    ['the end of its period', { cancel_at_period_end: true }, 200_000],
    ['a time', { cancel_at: 150 }, 150_000],
    ['both', { cancel_at: 200, cancel_at_period_end: true }, 200_000],
  ])('cancelled at %s ends then', async (_, changed, endsAt) => {
    expect(await facts(changed)).toMatchObject({ endsAt });
  });

  test('with an open invoice is charged again when Stripe says so', async () => {
    const invoice = { status: 'open', created: 90, next_payment_attempt: 300 };
    expect(await facts({ latest_invoice: invoice })).toMatchObject({ retryAt: 300_000 });
    expect(await facts({ latest_invoice: { ...invoice, next_payment_attempt: null } })).toMatchObject({
      retryAt: null,
    });
    expect(await facts({ latest_invoice: { ...invoice, status: 'paid' } })).toMatchObject({ retryAt: null });
  });

  test('that support ended is paid until then, and another one until the end of its period', async () => {
    const ended = { status: 'canceled', ended_at: 120 };
    expect(await facts(ended)).toMatchObject({ paidUntil: 200_000 });
    expect(await facts({ ...ended, metadata: { ended: 'now' } })).toMatchObject({ paidUntil: 120_000 });
    // Marked, and not ended yet.
    expect(await facts({ metadata: { ended: 'now' } })).toMatchObject({ paidUntil: 200_000 });
  });

  test.each<[string, Json, string | null]>([
    ['one price', list({ quantity: 1, price: { id: 'price_lite' } }), 'price_lite'],
    ['a price without a quantity', list({ price: { id: 'price_lite' } }), 'price_lite'],
    ['two of it', list({ quantity: 2, price: { id: 'price_lite' } }), null],
    [
      'two prices',
      list({ quantity: 1, price: { id: 'price_lite' } }, { quantity: 1, price: { id: 'x' } }),
      null,
    ],
    ['nothing', list(), null],
  ])('with %s: the price is read, or null', async (_, items, price) => {
    // Without a period it is paid until it began.
    expect(await facts({ items })).toMatchObject({ price, paidUntil: 50_000, isLive: false });
  });
});

describe('opening, showing and ending', () => {
  const CREATE = 'POST /v1/checkout/sessions';

  test('a session without a URL cannot be opened', async () => {
    stripe.answers.set(CREATE, session({ status: 'open', url: null }));
    await expect(provider.open(ORDER, 'http://root')).rejects.toMatchObject({ code: 'payment_unavailable' });
    stripe.answers.delete(CREATE);
    await expect(provider.open(ORDER, 'http://root')).rejects.toMatchObject({ code: 'payment_unavailable' });
    stripe.answers.set(CREATE, session({ status: 'open', url: 'https://pay' }));
    expect(await provider.open(ORDER, 'http://root')).toMatchObject({ url: 'https://pay' });
  });

  test.each([
    ['subscription', 'subscription'],
    ['payment', 'payment'],
  ] as const)('an order of the mode %s is created unchanged, in its own currency', async (mode, expected) => {
    stripe.answers.set(CREATE, session({ status: 'open', url: 'https://pay' }));
    await provider.open({ ...ORDER, mode }, 'http://root');
    const body = Object.fromEntries(stripe.bodies.at(-1) ?? []);
    const named =
      mode === 'subscription'
        ? { 'subscription_data[metadata][order]': ORDER.id }
        : { 'payment_intent_data[metadata][order]': ORDER.id, customer_creation: 'always' };
    expect(body).toEqual({
      mode: expected,
      client_reference_id: ORDER.id,
      'line_items[0][price]': 'price_lite',
      'line_items[0][quantity]': '1',
      'metadata[order]': ORDER.id,
      ...named,
      'adaptive_pricing[enabled]': 'false',
      success_url: 'http://root/checkout/complete?session_id={CHECKOUT_SESSION_ID}',
      cancel_url: 'http://root/checkout/cancelled',
      'expand[0]': 'line_items',
    });
  });

  test('a session unknown to Stripe has no page and nothing to end', async () => {
    expect(await provider.pageOf({ ...ORDER, session: 'cs_unknown' })).toBeUndefined();
    await provider.end({ ...ORDER, session: 'cs_unknown' });
    expect(stripe.requests.filter((line) => !line.startsWith('GET'))).toEqual([]);
  });

  test.each<[Json, string | undefined]>([
    [{ status: 'open', url: 'https://pay' }, 'https://pay'],
    [{ status: 'open', url: null }, undefined],
    [{ status: 'expired', url: 'https://pay' }, undefined],
  ])('the page of %j is %s', async (changed, page) => {
    stripe.answers.set(SESSION, session(changed));
    expect(await provider.pageOf(ORDER)).toBe(page);
    expect(await provider.pageOf({ ...ORDER, session: null })).toBeUndefined();
  });

  test('ends once: the subscription if there is one, else the open session', async () => {
    const ended = () => stripe.requests.filter((line) => !line.startsWith('GET'));
    const own = { ...ORDER, subscription: 'sub_1' };
    stripe.answers.set('DELETE /v1/subscriptions/sub_1', subscription({ status: 'canceled' }));
    stripe.answers.set('POST /v1/checkout/sessions/cs_1/expire', session({ status: 'expired' }));
    await provider.end(own); // Stripe does not know it.
    stripe.answers.set('GET /v1/subscriptions/sub_1', subscription({ status: 'canceled' }));
    await provider.end(own);
    stripe.answers.set(SESSION, session());
    await provider.end(ORDER);
    await provider.end({ ...ORDER, session: null });
    expect(ended()).toEqual([]);
    stripe.answers.set('GET /v1/subscriptions/sub_1', subscription());
    await provider.end(own);
    stripe.answers.set(SESSION, session({ status: 'open' }));
    await provider.end(ORDER);
    expect(ended()).toEqual([
      'DELETE /v1/subscriptions/sub_1?prorate=false&invoice_now=false',
      'POST /v1/checkout/sessions/cs_1/expire',
    ]);
  });

  test('the portal is for the customer of a subscription, and leads back to the account', async () => {
    const own = { ...ORDER, subscription: 'sub_1', customer: 'cus_1' };
    expect(await provider.portal({ ...own, customer: null }, 'http://root')).toBeUndefined();
    expect(await provider.portal({ ...own, subscription: null }, 'http://root')).toBeUndefined();
    expect(stripe.requests).toEqual([]);
    stripe.answers.set('POST /v1/billing_portal/sessions', { url: 'https://portal' });
    expect(await provider.portal(own, 'http://root')).toBe('https://portal');
    expect(Object.fromEntries(stripe.bodies.at(-1) ?? [])).toEqual({
      customer: 'cus_1',
      return_url: 'http://root/account?from=portal',
    });
  });

  test.each<[string, Json, 'period_end' | 'never', Json | undefined]>([
    ['runs', {}, 'period_end', { cancel_at_period_end: 'true' }],
    ['runs', {}, 'never', undefined],
    ['is ending', { cancel_at_period_end: true }, 'period_end', undefined],
    ['is ending', { cancel_at_period_end: true, cancel_at: 200 }, 'never', { cancel_at_period_end: 'false' }],
    ['ends at a time', { cancel_at: 200 }, 'never', { cancel_at: '' }],
    ['ends at a time', { cancel_at: 200 }, 'period_end', undefined],
    ['is over', { status: 'canceled' }, 'period_end', undefined],
    ['is over', { status: 'canceled', cancel_at_period_end: true }, 'never', undefined],
  ])('a subscription that %s (%j) and is cancelled at %s: %j is sent', async (_, changed, when, sent) => {
    stripe.answers.set('GET /v1/subscriptions/sub_1', subscription(changed));
    stripe.answers.set('POST /v1/subscriptions/sub_1', subscription(changed));
    await provider.cancel({ ...ORDER, subscription: 'sub_1' }, when);
    const bodies = stripe.bodies.filter((_body, index) => stripe.requests[index]?.startsWith('POST'));
    expect(bodies.map((body) => Object.fromEntries(body))).toEqual(sent === undefined ? [] : [sent]);
  });

  test('a refund takes the last payment that went through, once, and ends the subscription', async () => {
    const writes = () => stripe.requests.filter((line) => !line.startsWith('GET'));
    const own = { ...ORDER, subscription: 'sub_1' };
    stripe.answers.set(SESSION, session({ subscription: subscription() }));
    stripe.answers.set('GET /v1/subscriptions/sub_1', subscription());
    stripe.answers.set('POST /v1/subscriptions/sub_1', subscription());
    stripe.answers.set('DELETE /v1/subscriptions/sub_1', subscription({ status: 'canceled' }));
    stripe.answers.set('POST /v1/refunds', { id: 're_1' });
    const failed = charge('ch_failed', 300, { paid: false, status: 'failed' });
    stripe.answers.set('GET /v1/charges', list(charge('ch_old', 100), failed, charge('ch_last', 200)));
    await provider.refund(own);
    expect(writes()).toEqual([
      'POST /v1/refunds',
      'POST /v1/subscriptions/sub_1',
      'DELETE /v1/subscriptions/sub_1?prorate=false&invoice_now=false',
    ]);
    const [refund, mark] = stripe.bodies.filter((_, index) => stripe.requests[index]?.startsWith('POST'));
    expect(refund?.get('charge')).toBe('ch_last');
    expect(mark?.get('metadata[ended]')).toBe('now');
    stripe.answers.set('GET /v1/charges', list(charge('ch_last', 200, { refunded: true })));
    stripe.requests.length = 0;
    await provider.refund({ ...own, subscription: null });
    expect(writes()).toEqual([]);
  });

  test.each([
    ['sk_test_1', false],
    ['rk_test_1', false],
    ['sk_live_1', true],
    ['rk_live_1', true],
    ['not_sk_test_1', true],
  ])('money moves with %s: %s', (key, isLive) => {
    expect(providerOf(key).isLive).toBe(isLive);
    expect(providerOf(key).origins).toEqual(['https://checkout.stripe.com', stripe.url]);
    const calls = new StripeCalls({ secret_key: key }, createMetrics());
    expect(new StripeProvider(calls, { secret_key: key }).origins).toEqual(['https://checkout.stripe.com']);
  });
});

describe('tracing a charge or a payment to its order', () => {
  const PAID = 'GET /v1/invoice_payments';
  const CHARGE = 'GET /v1/charges/ch_1';
  const invoice = (details: unknown): Json =>
    list({
      invoice: { id: 'in_1', parent: { type: 'subscription_details', subscription_details: details } },
    });

  test('a charge names its order', async () => {
    stripe.answers.set(CHARGE, { id: 'ch_1', payment_intent: 'pi_1', metadata: { order: 'ord_1' } });
    expect(await provider.trace({ charge: 'ch_1' })).toEqual({ order: 'ord_1', payment: 'pi_1' });
    stripe.answers.set(CHARGE, { id: 'ch_1', payment_intent: null, metadata: { order: 'ord_1' } });
    expect(await provider.trace({ charge: 'ch_1' })).toEqual({ order: 'ord_1' });
    expect(await provider.trace({ charge: 'ch_1', payment: 'pi_2' })).toEqual({
      order: 'ord_1',
      payment: 'pi_2',
    });
  });

  test('a charge of a renewal is traced by its invoice', async () => {
    stripe.answers.set(CHARGE, { id: 'ch_1', payment_intent: 'pi_1', metadata: {} });
    stripe.answers.set(PAID, invoice({ subscription: 'sub_1', metadata: { order: 'ord_1' } }));
    const expected = { order: 'ord_1', payment: 'pi_1', subscription: 'sub_1' };
    expect(await provider.trace({ charge: 'ch_1' })).toEqual(expected);
    expect(stripe.requests.some((line) => line.includes('payment[payment_intent]=pi_1'))).toBe(true);
    stripe.answers.set(PAID, invoice({ subscription: { id: 'sub_1' }, metadata: null }));
    expect(await provider.trace({ payment: 'pi_1' })).toEqual({ payment: 'pi_1', subscription: 'sub_1' });
  });

  test.each<[string, Json]>([
    ['none', list()],
    ['one that is not expanded', list({ invoice: 'in_1' })],
    ['one without a parent', list({ invoice: { id: 'in_1' } })],
    ['one of no subscription', list({ invoice: { id: 'in_1', parent: null } })],
  ])('with an invoice that is %s only the payment is known', async (_, paid) => {
    stripe.answers.set(PAID, paid);
    expect(await provider.trace({ payment: 'pi_1' })).toEqual({ payment: 'pi_1' });
  });

  test('without ids nothing is found', async () => {
    expect(await provider.trace({ payment: 'pi_unknown' })).toEqual({ payment: 'pi_unknown' });
    stripe.requests.length = 0;
    expect(await provider.trace({})).toEqual({});
    expect(await provider.trace({ charge: 'ch_unknown' })).toEqual({});
    expect(stripe.requests).toEqual(['GET /v1/charges/ch_unknown']);
  });
});
