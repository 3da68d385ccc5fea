// Orders without a payment provider: support sends an invoice and marks the order as paid.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { InvoiceProvider } from '../../src/billing/invoice-provider.ts';
import { paidTerms } from '../../src/billing/new-order.ts';
import { main } from '../../src/main.ts';
import { openStore } from '../../src/store/open.ts';
import { collector } from '../cli/collector.ts';
import { ask, bearer, codeOf, field, keyOnPage, orderByForm, textField } from '../e2e/holder.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { cookieOf } from './shop.ts';

const DAY = 86_400_000;
const price = (amount: number, interval: 'month' | 'once') => ({
  price: { amount, currency: 'chf', interval },
});

let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({
    config: {
      billing: { provider: 'invoice', grace: '7d' },
      branding: { contact: 'billing@example.com' },
      tiers: { Free: {}, Lite: price(900, 'month'), Pro: price(49_000, 'once') },
      listen: { trusted_proxies: ['127.0.0.1'] },
    },
  });
});
afterAll(() => gateway?.close());

async function tollgate(...words: string[]) {
  const [stdout, stderr] = [collector(), collector()];
  const io = { stdout: stdout.stream, stderr: stderr.stream, env: { TEST_DIR: gateway.directory.path } };
  const code = await main(['orders', ...words, '--config', gateway.configFile], io);
  return { code, stdout: stdout.text(), stderr: stderr.text() };
}

let count = 0;
const elsewhere = () => {
  count += 1;
  return { 'x-forwarded-for': `10.9.0.${count}` };
};

async function order(tier: string, key?: string) {
  const response = await ask(gateway.url, {
    target: '/checkout',
    headers: { ...elsewhere(), ...(key === undefined ? {} : bearer(key)) },
    body: { tier },
  });
  expect(response.status).toBe(201);
  const page = new URL(textField(response.json(), 'url'));
  expect(page.pathname).toBe('/checkout/complete');
  const session_id = page.searchParams.get('session_id') ?? '';
  return { id: textField(response.json(), 'order'), session_id, cookie: cookieOf(response) };
}

const pageOf = async ({ session_id, cookie }: { session_id: string; cookie: string }) =>
  (
    await ask(gateway.url, {
      method: 'GET',
      target: `/checkout/complete?session_id=${session_id}`,
      headers: { cookie, accept: 'text/html' },
    })
  ).text();

async function planOf(key: string): Promise<unknown> {
  const response = await ask(gateway.url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });
  return field(response.json(), 'plan');
}

/** Moves what is stored of an invoice into the past. */
async function age(id: string, ms: number): Promise<void> {
  const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
  try {
    const payment = await store.billing.storedPayment({ orderId: id });
    if (payment === undefined) throw new Error('no payment');
    const earlier = (time: string | null) => time && new Date(Date.parse(time) - ms).toISOString();
    const { paidUntil, endsAt } = payment;
    await store.billing.writeStoredPayment({
      ...payment,
      paidUntil: earlier(paidUntil),
      endsAt: earlier(endsAt),
    });
  } finally {
    await store.close();
  }
}

async function buyer(until: string) {
  const bought = await order('Lite');
  expect((await tollgate('paid', bought.id, '--until', until)).code).toBe(0);
  const claimed = await ask(gateway.url, {
    target: '/checkout/claim',
    headers: { cookie: bought.cookie },
    body: { session_id: bought.session_id },
  });
  expect(claimed.status).toBe(201);
  return { ...bought, key: textField(claimed.json(), 'key') };
}

describe('an order by invoice', () => {
  test('says how it is paid, waits without reloading, and gives its key when support marks it as paid', async () => {
    const response = await orderByForm(gateway.url, { tier: 'Lite' });
    expect(response.status).toBe(303);
    const location = new URL(response.header('location') ?? '', gateway.url);
    const session_id = location.searchParams.get('session_id') ?? '';
    const bought = { session_id, cookie: cookieOf(response) };
    const page = await ask(gateway.url, {
      method: 'GET',
      target: `/checkout/complete?session_id=${session_id}`,
    });
    expect(page.header('refresh')).toBeUndefined();
    expect(page.text()).toMatch(/Lite is paid by invoice, CHF\s9 a month\./);
    expect(page.text()).toContain('mailto:billing@example.com');
    const early = await ask(gateway.url, {
      target: '/checkout/claim',
      headers: { cookie: bought.cookie },
      body: { session_id },
    });
    expect(codeOf(early)).toBe('order_not_paid');
    const { code, stdout } = await tollgate('paid', session_id, '--until', '2099-01-31', '--json');
    expect(code).toBe(0);
    // The day counts to its end.
    expect(JSON.parse(stdout)).toMatchObject({
      state: 'paid',
      standing: 'active',
      provider: 'none',
      paid_until: '2099-01-31T23:59:59.999Z',
    });
    expect(await pageOf(bought)).toContain('Show my key');
    const claimed = await ask(gateway.url, {
      target: '/checkout/claim',
      headers: {
        cookie: bought.cookie,
        'content-type': 'application/x-www-form-urlencoded',
        origin: new URL(gateway.url).origin,
        'sec-fetch-site': 'same-origin',
      },
      body: new URLSearchParams({ session_id }).toString(),
    });
    expect(await planOf(keyOnPage(claimed.text()))).toMatchObject({
      tier: 'Lite',
      standing: 'active',
      paid_by: 'invoice',
      portal: false,
      paid_until: '2099-01-31T23:59:59.999Z',
    });
  });

  test('is past due, lapses after the grace period, and is paid again', async () => {
    const { id, key } = await buyer('40d');
    await age(id, 43 * DAY);
    await tollgate('check', id);
    expect(await planOf(key)).toMatchObject({ standing: 'past_due' });
    await age(id, 7 * DAY);
    const { stdout } = await tollgate('check', id, '--json');
    expect(JSON.parse(stdout)).toMatchObject({ standing: 'lapsed', reason: 'invoice not paid' });
    expect(await planOf(key)).toMatchObject({ standing: 'lapsed' });
    expect((await tollgate('paid', id, '--until', '30d')).code).toBe(0);
    expect(await planOf(key)).toMatchObject({ standing: 'active', cancelled: false });
  });

  test('is cancelled with its period, resumed, ended at once and then is final', async () => {
    const { id, key } = await buyer('40d');
    await tollgate('cancel', id);
    expect(await planOf(key)).toMatchObject({ standing: 'active', cancelled: true, resumable: false });
    await tollgate('cancel', id, '--undo');
    expect(await planOf(key)).toMatchObject({ cancelled: false, ends_at: null });
    await tollgate('cancel', id);
    await age(id, 41 * DAY);
    await tollgate('check', id);
    expect(await planOf(key)).toMatchObject({ standing: 'ended', cancelled: true });
    const again = await tollgate('paid', id, '--until', '30d');
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('final')]);
    const other = await buyer('40d');
    await tollgate('cancel', other.id, '--now');
    expect(await planOf(other.key)).toMatchObject({ standing: 'ended' });
    const refunded = await buyer('40d');
    await tollgate('refund', refunded.id);
    expect(await planOf(refunded.key)).toMatchObject({ standing: 'ended' });
  });

  test('of a holder gives its tier to the key, and replaces a subscription that is not higher', async () => {
    const { id, key } = await buyer('40d');
    const pro = await order('Pro', key);
    expect(await pageOf(pro)).toContain('When it is paid, your key has the tier.');
    const wrong = await tollgate('paid', pro.id, '--until', '30d');
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('paid once')]);
    await tollgate('paid', pro.id);
    expect(await planOf(key)).toMatchObject({ tier: 'Pro', interval: 'once', paid_until: null });
    await tollgate('check', id);
    expect(JSON.parse((await tollgate('show', id, '--json')).stdout)).toMatchObject({
      replaced: true,
      cancelled: true,
    });
  });

  test('needs a time to come, and a cookie to be claimed', async () => {
    const bought = await order('Lite');
    for (const words of [[], ['--until', '2001-01-01'], ['--until', 'soon'], ['--until', '2030-02-31']])
      expect((await tollgate('paid', bought.id, ...words)).code).toBe(2);
    await tollgate('paid', bought.id, '--until', '30d');
    const claimed = await ask(gateway.url, {
      target: '/checkout/claim',
      body: { session_id: bought.session_id },
    });
    expect(codeOf(claimed)).toBe('claim_forbidden');
  });

  test('that nobody paid ends after thirty days, and is forgotten thirty days later', async () => {
    const { id } = await order('Lite');
    const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
    try {
      const old = new Date(Date.now() - 31 * DAY);
      const buyer = { claim: null, nonce: null, baseTier: 'Free' } as const;
      const terms = paidTerms('Lite', price(900, 'month'), { name: 'none', isLive: false }, buyer, old);
      if (terms === undefined) throw new Error('no terms');
      const { order: unpaid } = await store.billing.addOrder({ ...terms, id: 'ord_old' }, null);
      const { session } = await new InvoiceProvider(store.billing).open(unpaid, gateway.url);
      await store.billing.changeOrder('ord_old', 1, { session: session.id }, terms.createdAt);
      const { stdout } = await tollgate('check', 'ord_old', '--json');
      expect(JSON.parse(stdout)).toMatchObject({ state: 'void', reason: 'expired' });
      const later = new Date(Date.now() + DAY).toISOString();
      await store.billing.forget(later, later, 100);
      expect(await store.billing.findOrder({ id: 'ord_old' })).toBeUndefined();
      expect(await store.billing.storedPayment({ orderId: 'ord_old' })).toBeUndefined();
      expect(await store.billing.findOrder({ id })).toBeDefined();
    } finally {
      await store.close();
    }
  });
});
