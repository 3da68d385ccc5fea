// Payments in the store, played or by invoice, over months of a clock of the test.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FakeProvider } from '../../src/billing/fake-provider.ts';
import { InvoiceProvider } from '../../src/billing/invoice-provider.ts';
import { paidTerms } from '../../src/billing/new-order.ts';
import type { Order } from '../../src/store/billing-record.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { SQLITE_KIND, type StoreSource } from '../store/stores.ts';

const DAY = 86_400_000;
const BEGIN = Date.parse('2030-01-01T00:00:00Z');

let source: StoreSource;
let store: Store;
let now = BEGIN;

beforeAll(async () => {
  source = await SQLITE_KIND.start();
  store = await openStore(await source.fresh());
});
beforeEach(() => {
  now = BEGIN;
});
afterAll(async () => {
  await store?.close();
  await source?.[Symbol.asyncDispose]();
});

async function placed(
  provider: FakeProvider | InvoiceProvider,
  interval: 'month' | 'year' | 'once',
): Promise<Order> {
  const price = { amount: 900, currency: 'usd', interval };
  const buyer = { claim: null, nonce: null, baseTier: 'Free' } as const;
  const terms = paidTerms('Lite', { price }, provider, buyer, new Date(now));
  if (terms === undefined) throw new Error('no terms');
  const { order } = await store.billing.addOrder(terms, null);
  await provider.open(order, 'http://root');
  return order;
}

/** Status, and days from the beginning to the end of what is paid and to the end of the subscription. */
async function state(provider: FakeProvider | InvoiceProvider, order: Order) {
  const facts = (await provider.readFacts(order))?.subscription;
  if (facts == null) return undefined;
  const days = (at: number | null) => at && (at - BEGIN) / DAY;
  return [facts.status, days(facts.paidUntil), days(facts.endsAt)];
}

describe('a played subscription', () => {
  let provider: FakeProvider;
  beforeAll(() => {
    provider = new FakeProvider(store.billing, () => now);
  });
  test('renews each period, and is renewed early by a button', async () => {
    const order = await placed(provider, 'month');
    expect(await state(provider, order)).toBeUndefined();
    await provider.press(order, 'pay');
    expect(await state(provider, order)).toEqual(['active', 30, null]);
    now += 61 * DAY;
    expect(await state(provider, order)).toEqual(['active', 90, null]);
    await provider.simulate(order, 'renewed');
    expect(await state(provider, order)).toEqual(['active', 120, null]);
    now += 60 * DAY;
    expect(await state(provider, order)).toEqual(['active', 150, null]);
  });

  test('ends with its period when it is cancelled, unless that is undone before', async () => {
    const order = await placed(provider, 'year');
    await provider.press(order, 'pay');
    await provider.cancel(order, 'period_end');
    expect(await state(provider, order)).toEqual(['active', 365, 365]);
    await provider.cancel(order, 'never');
    now += 366 * DAY;
    expect(await state(provider, order)).toEqual(['active', 730, null]);
    await provider.cancel(order, 'period_end');
    now += 365 * DAY;
    expect(await state(provider, order)).toEqual(['canceled', 730, null]);
    await provider.cancel(order, 'never');
    await provider.simulate(order, 'renewed');
    expect((await state(provider, order))?.[0]).toBe('canceled');
  });

  test('that fails is paid until then and tried again, and cancelled it is over', async () => {
    const order = await placed(provider, 'month');
    await provider.press(order, 'pay');
    now += 10 * DAY;
    await provider.simulate(order, 'failed');
    expect(await state(provider, order)).toEqual(['past_due', 10, null]);
    expect((await provider.readFacts(order))?.subscription).toMatchObject({ retryAt: now + 3 * DAY });
    now += DAY;
    await provider.cancel(order, 'period_end');
    expect(await state(provider, order)).toEqual(['canceled', 11, null]);
  });

  test('that is refunded again ended with the first refund', async () => {
    const order = await placed(provider, 'month');
    await provider.press(order, 'pay');
    now += DAY;
    await provider.refund(order);
    now += DAY;
    await provider.refund(order);
    expect(await state(provider, order)).toEqual(['canceled', 1, null]);
  });

  test('that another order replaces stays paid, and one that is ended does not', async () => {
    const order = await placed(provider, 'month');
    await provider.press(order, 'pay');
    now += 5 * DAY;
    await provider.end(order);
    expect(await state(provider, order)).toEqual(['canceled', 30, null]);
    await provider.cancel(order, 'now');
    expect(await state(provider, order)).toEqual(['canceled', 5, null]);
  });

  test('has a portal, and a payment that was made once has none', async () => {
    const order = await placed(provider, 'month');
    expect(await provider.portal(order, 'http://root')).toBeUndefined();
    await provider.press(order, 'pay');
    expect(await provider.portal(order, 'http://root')).toMatch(
      /^http:\/\/root\/checkout\/test\?session_id=/,
    );
    const once = await placed(provider, 'once');
    await provider.press(once, 'pay');
    expect(await provider.portal(once, 'http://root')).toBeUndefined();
    expect(await provider.simulate(once, 'paid')).toBe(false);
    expect(await provider.simulate(once, 'renewed')).toBe(false);
    expect(await state(provider, once)).toBeUndefined();
    await provider.refund(once);
    expect((await provider.readFacts(once))?.money.refund).toBe('full');
  });
});

describe('an order by invoice', () => {
  let provider: InvoiceProvider;
  beforeAll(() => {
    provider = new InvoiceProvider(store.billing, () => now);
  });

  test('is paid until a day, then past due since then, and paid again', async () => {
    const order = await placed(provider, 'month');
    await provider.markPaid(order, BEGIN + 40 * DAY);
    expect(await state(provider, order)).toEqual(['active', 40, null]);
    now += 40 * DAY - 1;
    expect(await state(provider, order)).toEqual(['active', 40, null]);
    now += 1;
    expect(await state(provider, order)).toEqual(['past_due', 40, null]);
    now += DAY;
    expect(await state(provider, order)).toEqual(['past_due', 40, null]);
    await provider.markPaid(order, BEGIN + 80 * DAY);
    expect(await state(provider, order)).toEqual(['active', 80, null]);
    await provider.cancel(order, 'period_end');
    expect(await state(provider, order)).toEqual(['active', 80, 80]);
    now += 40 * DAY;
    expect(await state(provider, order)).toEqual(['canceled', 80, null]);
  });

  test('that is past due ends when it is cancelled', async () => {
    const order = await placed(provider, 'month');
    await provider.markPaid(order, BEGIN + 5 * DAY);
    now += 6 * DAY;
    await provider.cancel(order, 'period_end');
    expect(await state(provider, order)).toEqual(['canceled', 6, null]);
  });

  test('has no portal, and expires unpaid after thirty days', async () => {
    const order = await placed(provider, 'month');
    expect(await provider.portal(order, 'http://root')).toBeUndefined();
    now += 30 * DAY - 1;
    expect((await provider.readFacts(order))?.session.status).toBe('open');
    now += 1;
    expect((await provider.readFacts(order))?.session.status).toBe('expired');
    // Paid after all.
    await provider.markPaid(order, BEGIN + 90 * DAY);
    expect((await provider.readFacts(order))?.session).toMatchObject({ status: 'complete', payment: 'paid' });
  });
});
