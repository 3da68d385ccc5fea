// A holder after its payment: renewed, failed, cancelled, refunded, disputed.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { main } from '../../src/main.ts';
import { openStore } from '../../src/store/open.ts';
import { collector } from '../cli/collector.ts';
import { ask, bearer, codeOf, field, listModels } from '../e2e/holder.ts';
import { Shop } from './shop.ts';

const DAY = 86_400;

/** Models that only a tier may use show which one a key has. */
const MODELS = Object.fromEntries(
  ['Free', 'Lite', 'Pro'].map((tier) => [
    `for-${tier}`,
    { targets: [{ upstream: 'echo', model: 'echo' }], tiers: [tier] },
  ]),
);

/** The tier of a key as its holder sees it, or the error. */
async function seen(shop: Shop, key: string): Promise<unknown> {
  const response = await listModels(shop.url, key);
  if (response.status !== 200) return codeOf(response);
  const data = field(response.json(), 'data');
  return Array.isArray(data) ? String(field(data[0], 'id')).replace('for-', '') : undefined;
}

/** What the holder is told of its order: the tier, how it stands, whether it was cancelled, and whether it is paid until a day. */
async function plan(shop: Shop, key: string): Promise<unknown> {
  const response = await ask(shop.url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });
  const told = field(response.json(), 'plan');
  if (told === undefined) return undefined;
  const until = field(told, 'paid_until');
  expect(typeof until === 'string' ? until : '2030-01-01T00:00:00.000Z').toMatch(/^\d{4}-\d\d-\d\dT.*Z$/);
  return [field(told, 'tier'), field(told, 'standing'), field(told, 'cancelled'), until !== null];
}

describe('a holder with on_lapse: downgrade', () => {
  let shop: Shop;

  beforeAll(async () => {
    shop = await Shop.open({ models: MODELS });
  });
  beforeEach(() => {
    shop.stripe.trouble = 'none';
  });
  afterAll(() => shop?.[Symbol.asyncDispose]());

  const subscriber = async (tier = 'Lite') => {
    const { bought, key } = await shop.holder(tier);
    const session = shop.sessionOf(bought);
    const { subscription } = session;
    if (subscription === null) throw new Error('no subscription');
    expect(await seen(shop, key)).toBe(tier);
    return { bought, key, session, subscription };
  };

  test('keeps its tier when a period is paid, and during the grace period when it is not', async () => {
    const { key, subscription } = await subscriber();
    await shop.tell(shop.stripe.renew(subscription));
    expect(await seen(shop, key)).toBe('Lite');
    expect(await plan(shop, key)).toEqual(['Lite', 'active', false, true]);
    await shop.tell(shop.stripe.failRenewal(subscription, 6 * DAY));
    expect(await seen(shop, key)).toBe('Lite');
    expect(await plan(shop, key)).toEqual(['Lite', 'past_due', false, true]);
    expect(await plan(shop, await shop.gateway.issueKey('Pro'))).toBeUndefined();
  });

  test('is Free after the grace period, and gets its tier back when it pays', async () => {
    const { key, subscription } = await subscriber();
    await shop.tell(shop.stripe.failRenewal(subscription, 7 * DAY + 60));
    expect(await seen(shop, key)).toBe('Free');
    expect(await plan(shop, key)).toEqual(['Lite', 'lapsed', false, true]);
    await shop.tell(shop.stripe.renew(subscription));
    expect(await seen(shop, key)).toBe('Lite');
  });

  test('keeps the paid period after a cancellation; nothing revives it afterwards', async () => {
    const { key, subscription } = await subscriber();
    await shop.tell(shop.stripe.cancel(subscription));
    expect(await seen(shop, key)).toBe('Lite');
    expect(await plan(shop, key)).toEqual(['Lite', 'active', true, true]);
    subscription.end = shop.stripe.now() - 1;
    // Told of an end that it has kept: the period was paid until later, as it heard first.
    const { subscription: other, key: second } = await subscriber();
    other.end = shop.stripe.now() - 1;
    await shop.tell(shop.stripe.cancel(other));
    expect(await seen(shop, second)).toBe('Free');
    other.status = 'active';
    other.end = shop.stripe.now() + 30 * DAY;
    await shop.tell(
      shop.stripe.event('customer.subscription.updated', { id: other.id, object: 'subscription' }),
    );
    expect(await seen(shop, second)).toBe('Free');
  });

  test('is Free at once after a full refund, and not after a partial one', async () => {
    const { key, session } = await subscriber();
    await shop.tell(shop.stripe.refund(session, 100));
    expect(await seen(shop, key)).toBe('Lite');
    await shop.tell(shop.stripe.refund(session));
    expect(await seen(shop, key)).toBe('Free');
    await shop.tell(shop.stripe.refundFails(session));
    expect(await seen(shop, key)).toBe('Lite');
  });

  test('loses its tier in a dispute, and gets it back only when the dispute is won', async () => {
    const { key, session } = await subscriber();
    await shop.tell(shop.stripe.dispute(session, 'warning_needs_response'));
    expect(await seen(shop, key)).toBe('Lite');
    await shop.tell(shop.stripe.dispute(session, 'needs_response'));
    expect(await seen(shop, key)).toBe('Free');
    const order = async (tier: string) => {
      const request = { target: '/checkout', headers: bearer(key), body: { tier } };
      const response = await ask(shop.url, request);
      return [response.status, codeOf(response)];
    };
    // It would be paid twice when the dispute is won.
    expect([await order('Lite'), await order('Pro')]).toEqual([
      [409, 'already_entitled'],
      [201, undefined],
    ]);
    await shop.tell(shop.stripe.dispute(session, 'won'));
    expect(await seen(shop, key)).toBe('Lite');
    await shop.tell(shop.stripe.dispute(session, 'lost'));
    expect(await seen(shop, key)).toBe('Free');
  });

  test('loses its tier after a fraud warning until support trusts the order', async () => {
    const { bought, key, session } = await subscriber();
    const early = await tollgate(shop, 'orders', 'trust', bought.order);
    expect([early.code, early.stderr]).toEqual([
      1,
      expect.stringContaining('no fraud warning holds the order'),
    ]);
    await shop.tell(shop.stripe.warn(session));
    expect(await seen(shop, key)).toBe('Free');
    const { code, stdout } = await tollgate(shop, 'orders', 'trust', bought.order);
    expect([code, stdout]).toEqual([0, expect.stringContaining('standing      active')]);
    await expect.poll(() => seen(shop, key), { timeout: 20_000 }).toBe('Lite');
  });

  test('is updated by the sweep when the event was lost', async () => {
    const { bought, key, session } = await subscriber();
    shop.stripe.refund(session);
    const store = await openStore({ kind: 'sqlite', path: shop.gateway.directory.file('tollgate.db') });
    const order = await store.billing.findOrder({ id: bought.order });
    if (order === null || order === undefined) throw new Error('no order');
    expect(Date.parse(order.dueAt ?? '')).toBeLessThanOrEqual(Date.now() + 25 * 3_600_000);
    await store.billing.changeOrder(order.id, order.version, { dueAt: order.createdAt }, order.createdAt);
    await store.close();
    expect(await shop.gateway.app.billing.sweep()).toBe(true);
    expect(await seen(shop, key)).toBe('Free');
    expect(await shop.gateway.metric('tollgate_billing_orders{state="claimed"}')).toBeGreaterThan(0);
  });

  test('appears in support commands with its orders', async () => {
    const { bought, key, session } = await subscriber('Pro');
    await shop.tell(shop.stripe.refund(session));
    const shown = await tollgate(shop, 'keys', 'show', key.slice(0, 8));
    expect(shown.stdout).toMatch(new RegExp(`${bought.order} Pro claimed, ended.*: refunded in full`));
    const { stdout } = await tollgate(shop, 'orders', 'show', bought.session, '--json');
    expect(JSON.parse(stdout)).toMatchObject({ order: bought.order, state: 'claimed', standing: 'ended' });
  });

  test('without the cookie gets the key from support, once', async () => {
    const bought = await shop.buy('Lite');
    await shop.tell(shop.stripe.pay(shop.sessionOf(bought)));
    const { code, stdout } = await tollgate(shop, 'keys', 'issue', '--order', bought.order);
    expect(code).toBe(0);
    expect(await seen(shop, stdout.trim())).toBe('Lite');
    const again = await tollgate(shop, 'keys', 'issue', '--order', bought.order);
    expect([again.code, again.stdout]).toEqual([1, '']);
  });
});

describe('a holder with on_lapse: suspend', () => {
  test('gets billing_not_active, pays for another order with the same key, and continues', async () => {
    await using shop = await Shop.open({ models: MODELS, billing: { on_lapse: 'suspend', grace: '0s' } });
    const { bought, key } = await shop.holder('Lite');
    const { subscription } = shop.sessionOf(bought);
    if (subscription === null) throw new Error('no subscription');
    await shop.tell(shop.stripe.failRenewal(subscription, 1));
    expect(await seen(shop, key)).toBe('billing_not_active');
    const again = await shop.buy('Lite', key);
    await shop.tell(shop.stripe.pay(shop.sessionOf(again)));
    expect(await seen(shop, key)).toBe('Lite');
    // The first one would go on trying to charge.
    await expect.poll(() => subscription.status, { timeout: 20_000 }).toBe('canceled');
    expect(await seen(shop, key)).toBe('Lite');
  });
});

describe('a tier that is paid once', () => {
  test('lasts until it is refunded', async () => {
    const once = { price: { amount: 900, currency: 'usd', interval: 'once' }, stripe_price: 'price_lite' };
    const { 'for-Pro': _none, ...models } = MODELS;
    await using shop = await Shop.open({
      models,
      tiers: { Free: {}, Lite: once },
    });
    const { bought, key } = await shop.holder('Lite');
    const session = shop.sessionOf(bought);
    expect([session.mode, session.subscription]).toEqual(['payment', null]);
    expect(await seen(shop, key)).toBe('Lite');
    await shop.tell(shop.stripe.refund(session));
    expect(await seen(shop, key)).toBe('Free');
  });
});

/** In this process: the command line itself is tested elsewhere, and a process takes its time. */
async function tollgate(shop: Shop, group: 'keys' | 'orders', ...words: string[]) {
  const [stdout, stderr] = [collector(), collector()];
  const io = { stdout: stdout.stream, stderr: stderr.stream, env: { TEST_DIR: shop.gateway.directory.path } };
  const argv = [...words, '--config', shop.gateway.configFile];
  const code = await main([group, ...argv], io);
  return { code, stdout: stdout.text(), stderr: stderr.text() };
}
