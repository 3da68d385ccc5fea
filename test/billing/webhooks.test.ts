// Stripe's events at the gateway: their signatures, their deduplication, and failures of Stripe or the store.
import { createHmac } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { EventSlots } from '../../src/billing/stripe/webhook-endpoint.ts';
import { codeOf, field } from '../e2e/holder.ts';
import { type Bought, Shop } from './shop.ts';
import { SECRET_KEY, signatureOf, WEBHOOK_SECRET } from './stripe-stand-in.ts';

const seconds = () => Math.floor(Date.now() / 1000);

describe('webhooks', () => {
  let shop: Shop;
  let bought: Bought;

  beforeAll(async () => {
    shop = await Shop.open();
    bought = await shop.buy('Lite');
  });
  beforeEach(() => {
    shop.stripe.trouble = 'none';
  });
  afterAll(() => shop?.[Symbol.asyncDispose]());

  const somebodysEvent = () =>
    shop.stripe.event('checkout.session.completed', {
      id: 'cs_test_x',
      object: 'checkout.session',
      client_reference_id: 'somebody',
    });

  test.each([
    ['of another secret', { secret: 'whsec_other' }],
    ['that is missing', { header: null }],
    ['that is empty', { header: '' }],
    ['of five minutes and a second ago', { timestamp: seconds() - 303 }],
    ['from ten minutes ahead', { timestamp: seconds() + 600 }],
    ['of v0 alone', { header: 'v0' }],
    ['with a time that is no number', { header: 'NaN' }],
    ['with a time in hexadecimal', { header: 'hex' }],
    ['without a time', { header: 'no t' }],
    ['with two times', { header: 'two t' }],
    ['that is huge', { header: 'huge' }],
    ['that is noise', { header: 'hello' }],
  ])('a signature %s is rejected', async (_, delivery) => {
    const event = somebodysEvent();
    const payload = JSON.stringify(event, null, 2);
    const good = signatureOf(payload);
    const v1 = good.split('v1=')[1] ?? '';
    const headers: Record<string, string> = {
      v0: good.replace('v1=', 'v0='),
      NaN: `t=NaN,v1=${hmac(`NaN.${payload}`)}`,
      hex: `t=0x10,v1=${hmac(`0.${payload}`)}`,
      'no t': `v1=${v1}`,
      'two t': `t=${seconds() - 9000},${good}`,
      huge: `${good}${',v1=0'.repeat(1000)}`,
      hello: 'hello',
    };
    const header = 'header' in delivery && delivery.header !== null ? headers[delivery.header] : undefined;
    const response = await shop.deliver(event, {
      ...delivery,
      ...('header' in delivery ? { header: header ?? delivery.header } : {}),
    });
    expect([response.status, codeOf(response)]).toEqual([400, 'invalid_signature']);
  });

  test.each([
    ['serialised again', (payload: string) => JSON.stringify(JSON.parse(payload))],
    ['with one byte changed', (payload: string) => payload.replace('completed', 'completef')],
    ['behind a byte order mark', (payload: string) => `\ufeff${payload}`],
    ['with a line more', (payload: string) => `${payload}\n`],
  ])('a body %s is rejected', async (_, change) => {
    const event = somebodysEvent();
    const response = await shop.deliver(event, { body: change(JSON.stringify(event, null, 2)) });
    expect([response.status, codeOf(response)]).toEqual([400, 'invalid_signature']);
  });

  test('a compressed body is rejected, even with a signature of its content', async () => {
    const event = somebodysEvent();
    const response = await shop.deliver(event, {
      body: gzipSync(JSON.stringify(event, null, 2)),
      headers: { 'content-encoding': 'gzip' },
    });
    expect([response.status, codeOf(response)]).toEqual([415, 'unsupported_content_encoding']);
  });

  test('a body of more than 256 KiB is rejected', async () => {
    const event = { ...somebodysEvent(), noise: 'x'.repeat(257 * 1024) };
    const response = await shop.deliver(event);
    expect([response.status, codeOf(response)]).toEqual([413, 'request_too_large']);
  });

  test('one of two signatures is enough, as during a rotation of the secret', async () => {
    const event = somebodysEvent();
    const good = signatureOf(JSON.stringify(event, null, 2));
    const response = await shop.deliver(event, { header: good.replace('v1=', `v1=${'0'.repeat(64)},v1=`) });
    expect([response.status, field(response.json(), 'outcome')]).toEqual([200, 'foreign']);
  });

  test('an event of live mode is rejected with a test key', async () => {
    const response = await shop.deliver({ ...somebodysEvent(), livemode: true });
    expect([response.status, codeOf(response)]).toEqual([400, 'invalid_event']);
  });

  test('a signed body that is no event is rejected', async () => {
    const response = await shop.deliver({ id: 'evt_1', object: 'v2.core.event', type: 'thin' });
    expect([response.status, codeOf(response)]).toEqual([400, 'invalid_event']);
  });

  test('events of other objects are acknowledged without a call', async () => {
    const before = shop.stripe.requests.length;
    expect(await shop.tell(somebodysEvent())).toBe('foreign');
    expect(await shop.tell(shop.stripe.event('customer.created', { id: 'cus_x', object: 'customer' }))).toBe(
      'ignored',
    );
    expect(
      await shop.tell({
        ...shop.stripe.event('checkout.session.completed', {
          id: bought.session,
          object: 'checkout.session',
        }),
        account: 'acct_connected',
      }),
    ).toBe('ignored');
    expect(shop.stripe.requests.length).toBe(before);
  });

  test('an event alone changes nothing: an order that is unpaid at Stripe stays unpaid', async () => {
    const event = shop.stripe.event('checkout.session.completed', {
      id: bought.session,
      object: 'checkout.session',
      payment_status: 'paid',
      client_reference_id: bought.order,
    });
    expect(await shop.tell(event)).toBe('applied');
    expect(codeOf(await shop.claim(bought))).toBe('order_not_paid');
  });

  test('a repeated event is known and causes no call', async () => {
    const event = somebodysEvent();
    await shop.tell(event);
    const before = shop.stripe.requests.length;
    expect(await shop.tell(event)).toBe('known');
    expect(shop.stripe.requests.length).toBe(before);
  });

  test('fifty concurrent copies have one effect', async () => {
    const own = await shop.buy('Lite');
    const event = shop.stripe.pay(shop.sessionOf(own));
    const changes = 'tollgate_billing_transitions_total{state="paid",standing="active"}';
    const before = await shop.gateway.metric(changes);
    const answers = await Promise.all(Array.from({ length: 50 }, () => shop.deliver(event)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect((await shop.gateway.metric(changes)) - before).toBe(1);
  });

  test('an invoice of an older API version is read', async () => {
    const { bought: own } = await shop.holder('Lite');
    const { subscription } = shop.sessionOf(own);
    const invoice = { id: 'in', object: 'invoice', subscription: subscription?.id };
    expect(await shop.tell(shop.stripe.event('invoice.paid', invoice))).toBe('applied');
  });

  test.each(['gone', 500, 429, 409, 401] as const)(
    'with Stripe failing (%s) an event is not acknowledged, and is applied when repeated',
    async (trouble) => {
      const own = await shop.buy('Lite');
      const event = shop.stripe.pay(shop.sessionOf(own));
      shop.stripe.trouble = trouble;
      const response = await shop.deliver(event);
      expect([response.status, codeOf(response)]).toEqual([503, 'payment_unavailable']);
      shop.stripe.trouble = 'none';
      expect(await shop.tell(event)).toBe('applied');
      expect((await shop.claim(own)).status).toBe(201);
    },
  );

  test('no log, metric or answer contains secrets of Stripe', async () => {
    shop.stripe.trouble = 401;
    const response = await shop.order('Lite');
    expect([response.status, response.header('x-should-retry')]).toEqual([503, 'false']);
    await shop.gateway.accessLine(response);
    for (const text of [response.text(), shop.gateway.output, await shop.gateway.metrics()]) {
      expect(text).not.toContain(SECRET_KEY);
      expect(text).not.toContain(WEBHOOK_SECRET);
    }
    expect(await shop.gateway.metric('tollgate_billing_events_total{outcome="known"}')).toBeGreaterThan(0);
  });
});

test('more events than there are slots are refused with a wait, until one ends', async () => {
  const slots = new EventSlots(2);
  const steps = Array.from({ length: 2 }, () => Promise.withResolvers<number>());
  const [first, second] = steps.map(({ promise }) => slots.run(() => promise));
  const busy = { code: 'payment_unavailable', retryAfterMs: 5000 };
  await expect(slots.run(async () => 0)).rejects.toMatchObject(busy);
  steps[0]?.resolve(1);
  expect(await first).toBe(1);
  steps[1]?.reject(new Error('away'));
  await expect(second).rejects.toThrow('away');
  for (let taken = 0; taken < 2; taken += 1) void slots.run(() => new Promise(() => undefined));
  await expect(slots.run(async () => 0)).rejects.toMatchObject(busy);
});

function hmac(text: string): string {
  return createHmac('sha256', WEBHOOK_SECRET).update(text).digest('hex');
}
