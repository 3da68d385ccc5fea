// What a holder does with its subscription at the provider, and what support does for it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { main } from '../../src/main.ts';
import { collector } from '../cli/collector.ts';
import { ask, bearer, codeOf, field, statusOf } from '../e2e/holder.ts';
import { Shop } from './shop.ts';

let shop: Shop;

beforeAll(async () => {
  shop = await Shop.open({ tiers: { ...LIMITED } });
});
afterAll(() => shop?.[Symbol.asyncDispose]());

const price = (amount: number, interval: string, stripe_price: string) => ({
  price: { amount, currency: 'usd', interval },
  stripe_price,
});
const LIMITED = {
  Free: {},
  Lite: price(900, 'month', 'price_lite'),
  Pro: price(4900, 'once', 'price_pro'),
};

const post = (target: string, key: string | undefined, headers: Record<string, string> = {}) =>
  ask(shop.url, {
    target,
    headers: { ...shop.elsewhere(), ...(key === undefined ? {} : bearer(key)), ...headers },
    body: {},
  });

async function planOf(key: string): Promise<Record<string, unknown>> {
  const response = await ask(shop.url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });
  const plan = field(response.json(), 'plan');
  if (typeof plan !== 'object' || plan === null) throw new Error('no plan');
  return { ...plan };
}

async function tollgate(...words: string[]) {
  const [stdout, stderr] = [collector(), collector()];
  const io = { stdout: stdout.stream, stderr: stderr.stream, env: { TEST_DIR: shop.gateway.directory.path } };
  const code = await main(['orders', ...words, '--config', shop.gateway.configFile], io);
  return { code, stdout: stdout.text(), stderr: stderr.text() };
}

async function subscriber() {
  const { bought, key } = await shop.holder('Lite');
  const session = shop.sessionOf(bought);
  const { subscription } = session;
  if (subscription === null) throw new Error('no subscription');
  return { bought, key, session, subscription };
}

const iso = (seconds: number) => new Date(seconds * 1000).toISOString();

describe('the portal', () => {
  test('opens with the key for its own customer, and leads back to the account page', async () => {
    const { bought, key, session } = await subscriber();
    await subscriber();
    const opened = await post('/checkout/portal', key);
    expect([opened.status, opened.json()]).toEqual([
      201,
      { order: bought.order, url: `${shop.stripe.url}/portal/${session.customer}` },
    ]);
    expect(opened.header('cache-control')).toBe('no-store');
    expect(shop.stripe.returnUrl).toMatch(/^http:.*\/account\?from=portal$/);
    expect((await planOf(key))['portal']).toBe(true);
  });

  test('is refused without a subscription, without a key and from another site', async () => {
    for (const path of ['/checkout/portal', '/checkout/refresh']) {
      const free = await post(path, await shop.gateway.issueKey('Free'));
      expect([free.status, codeOf(free)]).toEqual([404, 'no_subscription']);
      const none = await post(path, undefined);
      expect([none.status, codeOf(none)]).toEqual([401, 'missing_api_key']);
      const { key } = await subscriber();
      const foreign = await post(path, key, {
        origin: 'https://evil.example',
        'sec-fetch-site': 'cross-site',
      });
      expect([foreign.status, codeOf(foreign)]).toEqual([403, 'cross_origin_form']);
      const named = await ask(shop.url, {
        target: path,
        host: 'evil.example',
        headers: bearer(key),
        body: {},
      });
      expect([named.status, codeOf(named)]).toEqual([421, 'unknown_host']);
    }
    const once = await shop.holder('Pro');
    expect(codeOf(await post('/checkout/portal', once.key))).toBe('no_subscription');
    expect(await planOf(once.key)).toMatchObject({ portal: false, interval: 'once', paid_until: null });
  });

  test('limits the calls of one address', async () => {
    const { key } = await subscriber();
    const from = { 'x-forwarded-for': '203.0.113.77' };
    const codes = new Set<number>();
    for (let call = 0; call < 21; call += 1) codes.add((await post('/checkout/portal', key, from)).status);
    expect([...codes]).toEqual([201, 429]);
  });

  test('is 503 while Stripe is away, and nothing changes', async () => {
    const { key } = await subscriber();
    shop.stripe.trouble = 429;
    const response = await post('/checkout/portal', key);
    shop.stripe.trouble = 'none';
    expect([response.status, codeOf(response)]).toEqual([503, 'payment_unavailable']);
    expect(await planOf(key)).toMatchObject({ standing: 'active', cancelled: false });
  });

  test.each([[false], [true]])(
    'a cancellation there and its undoing reach the holder by events, flexible billing %s',
    async (isFlexible) => {
      const { key, subscription } = await subscriber();
      const end = iso(subscription.end);
      expect(await planOf(key)).toMatchObject({
        cancelled: false,
        ends_at: null,
        paid_until: end,
        amount: 900,
        currency: 'usd',
        interval: 'month',
        paid_by: 'card',
      });
      await shop.tell(shop.stripe.cancelAtEnd(subscription, isFlexible));
      expect(await planOf(key)).toMatchObject({
        standing: 'active',
        cancelled: true,
        ends_at: end,
        resumable: true,
      });
      await shop.tell(shop.stripe.undoCancellation(subscription));
      expect(await planOf(key)).toMatchObject({ cancelled: false, ends_at: null, resumable: false });
      await shop.tell(shop.stripe.cancelAtEnd(subscription, isFlexible));
      await shop.tell(shop.stripe.cancel(subscription));
      expect(await planOf(key)).toMatchObject({ cancelled: true, ends_at: end, resumable: false });
    },
  );

  test('what changed there is asked for on return, without an event', async () => {
    const { key, subscription } = await subscriber();
    shop.stripe.cancelAtEnd(subscription);
    expect(await planOf(key)).toMatchObject({ cancelled: false });
    const refreshed = await post('/checkout/refresh', key);
    expect([refreshed.status, field(refreshed.json(), 'standing')]).toEqual([200, 'active']);
    expect(await planOf(key)).toMatchObject({ cancelled: true });
  });

  test('a failed payment says when it is tried again, beside the charge that was paid', async () => {
    const { key, session, subscription } = await subscriber();
    await shop.tell(shop.stripe.failRenewal(subscription));
    const retry = iso(subscription.invoice.next_payment_attempt ?? 0);
    expect(await planOf(key)).toMatchObject({ standing: 'past_due', retry_at: retry });
    // The failed charge is newer, and neither refunded nor what a refund is about.
    await shop.tell(shop.stripe.refund(session, 100));
    expect(await planOf(key)).toMatchObject({ standing: 'past_due' });
    await shop.tell(shop.stripe.renew(subscription));
    expect(await planOf(key)).toMatchObject({ standing: 'active', retry_at: null });
  });

  test('of several orders the deciding one is managed, and an older one stays to be looked at', async () => {
    const { bought, key } = await subscriber();
    const pro = await shop.buy('Pro', key);
    await shop.tell(shop.stripe.pay(shop.sessionOf(pro)));
    await expect.poll(async () => (await planOf(key))['tier'], { timeout: 20_000 }).toBe('Pro');
    // Pro was paid once; the invoices are those of the subscription before.
    const opened = await post('/checkout/portal', key);
    expect(field(opened.json(), 'order')).toBe(bought.order);
  });
});

describe('support', () => {
  test('cancels with the paid period, undoes it, and gets a link to the portal', async () => {
    const { bought, key, session, subscription } = await subscriber();
    const cancelled = await tollgate('cancel', bought.order, '--json');
    expect([cancelled.code, cancelled.stderr]).toEqual([0, '']);
    expect(JSON.parse(cancelled.stdout)).toMatchObject({
      standing: 'active',
      ends_at: iso(subscription.end),
    });
    expect(subscription.cancel_at_period_end).toBe(true);
    expect(await planOf(key)).toMatchObject({ cancelled: true, tier: 'Lite' });
    expect((await tollgate('list')).stdout).toContain(iso(subscription.end));
    expect((await tollgate('cancel', bought.order, '--undo')).code).toBe(0);
    expect(await planOf(key)).toMatchObject({ cancelled: false });
    const link = await tollgate('portal-link', bought.order);
    expect([link.code, link.stdout]).toEqual([0, `${shop.stripe.url}/portal/${session.customer}\n`]);
  });

  test('cancels at once: the tier ends with it, nothing is refunded, and it is final', async () => {
    const { bought, key, session, subscription } = await subscriber();
    const { code, stdout } = await tollgate('cancel', bought.order, '--now', '--json');
    expect([code, JSON.parse(stdout).standing]).toEqual([0, 'ended']);
    expect([subscription.status, shop.stripe.chargeOf(session).refunded]).toEqual(['canceled', false]);
    expect(await planOf(key)).toMatchObject({ tier: 'Lite', standing: 'ended', cancelled: true });
    const undone = await tollgate('cancel', bought.order, '--undo');
    expect([undone.code, undone.stderr]).toEqual([1, expect.stringContaining('final')]);
  });

  test('a period that was cancelled before can be ended at once', async () => {
    const { bought, key, subscription } = await subscriber();
    await shop.tell(shop.stripe.cancel(subscription));
    expect(await planOf(key)).toMatchObject({ standing: 'active' });
    await tollgate('cancel', bought.order, '--now');
    expect(await planOf(key)).toMatchObject({ standing: 'ended' });
  });

  test('refunds the last payment, which ends the subscription, and refunds nothing twice', async () => {
    const { bought, key, session, subscription } = await subscriber();
    await shop.tell(shop.stripe.renew(subscription));
    shop.stripe.failRenewal(subscription);
    const refunds = () => shop.stripe.requests.filter((line) => line === 'POST /v1/refunds').length;
    const before = refunds();
    const { code, stdout } = await tollgate('refund', bought.order, '--json');
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      expect.objectContaining({ standing: 'ended', reason: 'refunded in full', cancelled: true }),
    ]);
    const charges = shop.stripe.charges.filter(({ customer }) => customer === session.customer);
    expect(charges.map(({ paid, refunded }) => [paid, refunded])).toEqual([
      [true, false],
      [true, true],
      [false, false],
    ]);
    expect((await tollgate('refund', bought.order)).code).toBe(0);
    expect(refunds() - before).toBe(1);
    expect(await planOf(key)).toMatchObject({ standing: 'ended' });
  });

  test('refunds a payment that was made once; there is nothing to cancel', async () => {
    const { bought, key } = await shop.holder('Pro');
    const cancelled = await tollgate('cancel', bought.order);
    expect([cancelled.code, cancelled.stderr]).toEqual([1, expect.stringContaining('orders refund')]);
    expect((await tollgate('portal-link', bought.order)).code).toBe(1);
    expect((await tollgate('refund', bought.order)).code).toBe(0);
    expect(await planOf(key)).toMatchObject({ standing: 'ended' });
    expect(await statusOf(shop.url, key)).toBe(200);
  });

  test('cancels an order that is not paid yet, and refuses what makes no sense', async () => {
    const bought = await shop.buy('Lite');
    const nothing = await tollgate('refund', bought.order);
    expect([nothing.code, nothing.stderr]).toEqual([1, expect.stringContaining('nothing was paid')]);
    const undone = await tollgate('cancel', bought.order, '--undo');
    expect([undone.code, undone.stderr]).toEqual([1, expect.stringContaining('not paid yet')]);
    const { code, stdout } = await tollgate('cancel', bought.order, '--json');
    expect([code, JSON.parse(stdout).state]).toEqual([0, 'void']);
    expect((await tollgate('cancel', bought.order, '--now', '--undo')).code).toBe(2);
    const paid = await tollgate('paid', bought.order, '--until', '2099-01-31');
    expect([paid.code, paid.stderr]).toEqual([1, expect.stringContaining('by invoice')]);
  });
});
