// Purchases through Stripe, from the form to the key: one order per form, one key per order, and the rejections.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { commandsWith } from '../cli/commands.ts';
import { ask, bearer, codeOf, field, keyOnPage, orderByForm, statusOf, textField } from '../e2e/holder.ts';
import { pause } from '../helpers/wait.ts';
import { type Bought, cookieOf, Shop } from './shop.ts';

const GIVEN: string[] = [];

describe('buying', () => {
  let shop: Shop;

  beforeAll(async () => {
    shop = await Shop.open();
  });
  beforeEach(() => {
    shop.stripe.trouble = 'none';
    shop.stripe.before = undefined;
  });
  afterAll(() => shop?.[Symbol.asyncDispose]());

  const nonceOf = async () => {
    const page = (await ask(shop.url, { method: 'GET', target: '/pricing' })).text();
    return /name="nonce" value="([^"]+)"/.exec(page)?.[1] ?? '';
  };
  const byForm = (tier: string, nonce: string, headers: Record<string, string> = {}) =>
    orderByForm(shop.url, { tier, nonce }, { ...shop.elsewhere(), ...headers });
  const paid = async (tier = 'Lite'): Promise<Bought> => {
    const bought = await shop.buy(tier);
    await shop.tell(shop.stripe.pay(shop.sessionOf(bought)));
    return bought;
  };

  test('a form redirects to the payment page, which its policy allows', async () => {
    const page = await ask(shop.url, { method: 'GET', target: '/pricing' });
    expect(page.header('content-security-policy')).toContain(
      `form-action 'self' https://checkout.stripe.com ${shop.stripe.url};`,
    );
    const response = await byForm('Lite', await nonceOf());
    expect(response.status).toBe(303);
    expect(response.header('location')).toMatch(new RegExp(`^${shop.stripe.url}/pay/cs_test_`));
    expect(response.header('set-cookie')).toMatch(
      /^claim=[\w-]{43}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Lax$/,
    );
  });

  test('a form submitted twice, also at once, creates one session and one cookie', async () => {
    const nonce = await nonceOf();
    const before = shop.stripe.sessions.size;
    // So that all of them are there before the first is answered.
    shop.stripe.before = () => pause(100);
    const responses = await Promise.all(Array.from({ length: 5 }, () => byForm('Lite', nonce)));
    const again = await byForm('Lite', nonce);
    const targets = new Set([...responses, again].map((each) => each.header('location')));
    expect([targets.size, shop.stripe.sessions.size - before]).toEqual([1, 1]);
    expect(new Set([...responses, again].map(cookieOf)).size).toBe(1);
  });

  test('the same form for another tier creates another order', async () => {
    const nonce = await nonceOf();
    const [lite, pro] = [await byForm('Lite', nonce), await byForm('Pro', nonce)];
    expect(lite.header('location')).not.toBe(pro.header('location'));
  });

  test('a browser with two orders can claim both', async () => {
    const first = await byForm('Lite', await nonceOf());
    const second = await byForm('Pro', await nonceOf(), { cookie: cookieOf(first) });
    const cookie = cookieOf(second);
    for (const response of [first, second]) {
      const id = (response.header('location') ?? '').split('/pay/')[1] ?? '';
      const session = shop.stripe.sessions.get(id);
      if (session === undefined) throw new Error('no session');
      await shop.tell(shop.stripe.pay(session));
      expect((await shop.claim({ session: id, cookie })).status).toBe(201);
    }
  });

  test('the browser that ordered gets the key of a paid order, which works', async () => {
    const bought = await paid();
    const response = await shop.claim(bought);
    expect([response.status, field(response.json(), 'tier')]).toEqual([201, 'Lite']);
    expect(response.header('cache-control')).toBe('no-store');
    const key = textField(response.json(), 'key');
    GIVEN.push(key);
    expect(await statusOf(shop.url, key)).toBe(200);
    expect(codeOf(await shop.claim(bought))).toBe('order_closed');
  });

  test('the landing page detects the payment before any event', async () => {
    const bought = await shop.buy('Pro');
    shop.stripe.pay(shop.sessionOf(bought));
    const page = await shop.complete(bought);
    expect([page.status, page.header('cache-control')]).toEqual([200, 'no-store']);
    expect(page.header('referrer-policy')).toBe('same-origin');
    expect(page.header('refresh')).toBeUndefined();
    expect(page.text()).toContain('Show my key');
    expect(page.text()).toContain('action="claim"');
    const response = await ask(shop.url, {
      target: '/checkout/claim',
      headers: {
        'content-type': 'application/x-www-form-urlencoded',
        origin: new URL(shop.url).origin,
        'sec-fetch-site': 'same-origin',
        cookie: bought.cookie,
      },
      body: new URLSearchParams({ session_id: bought.session }).toString(),
    });
    expect(response.status).toBe(201);
    expect(response.text()).toContain('href="../pricing"');
    GIVEN.push(keyOnPage(response.text()));
  });

  test('the event can arrive after the claim, or before the browser returns', async () => {
    const bought = await shop.buy('Lite');
    const event = shop.stripe.pay(shop.sessionOf(bought));
    GIVEN.push(await shop.keyOf(bought));
    expect(await shop.tell(event)).toBe('applied');
    const page = (await shop.complete(bought)).text();
    expect(page).toContain('Show another key');
    // Nothing had to be asked of the provider.
    expect(page).not.toContain('cannot be reached');
  });

  test('viewing the page issues no key', async () => {
    const bought = await paid();
    const before = (await shop.gateway.app.issuer.list({ limit: 1000 })).length;
    for (let count = 0; count < 5; count += 1) await shop.complete(bought);
    expect((await shop.gateway.app.issuer.list({ limit: 1000 })).length).toBe(before);
  });

  test.each([
    ['without a cookie', ''],
    ['with a cookie of nobody', `claim=${'A'.repeat(43)}`],
    ['with a cookie that is noise', 'claim=; __Host-claim=x; claim==.'],
  ])('the URL of an order reveals nothing %s', async (_, cookie) => {
    const { session } = await paid();
    const response = await shop.claim({ session, cookie });
    expect([response.status, codeOf(response)]).toEqual([403, 'claim_forbidden']);
    const page = (await shop.complete({ session, cookie })).text();
    expect(page).not.toContain('Show my key');
    expect(page).toContain('help@example.com');
  });

  test('an unknown order is rejected like one of another buyer', async () => {
    const response = await shop.claim({ session: 'cs_test_none', cookie: `claim=${'A'.repeat(43)}` });
    expect([response.status, codeOf(response)]).toEqual([403, 'claim_forbidden']);
    expect((await shop.complete({ session: 'cs_test_none', cookie: '' })).status).toBe(404);
  });

  test('a page of another origin cannot claim for its visitor', async () => {
    const bought = await paid();
    const response = await ask(shop.url, {
      target: '/checkout/claim',
      headers: { cookie: bought.cookie, 'sec-fetch-site': 'cross-site', origin: 'https://evil.example' },
      body: { session_id: bought.session },
    });
    expect([response.status, codeOf(response)]).toEqual([403, 'cross_origin_form']);
  });

  test('fifty concurrent claims leave one key', async () => {
    const bought = await paid();
    const answers = await Promise.all(Array.from({ length: 50 }, () => shop.claim(bought)));
    const keys = new Set(
      answers.filter(({ status }) => status === 201).map((each) => textField(each.json(), 'key')),
    );
    const good = [];
    for (const key of keys) if ((await statusOf(shop.url, key)) === 200) good.push(key);
    expect(good).toHaveLength(1);
    GIVEN.push(...keys);
  });

  test('a key with a lost answer is replaced, and the first one ends', async () => {
    const bought = await paid();
    const [first, second] = [await shop.keyOf(bought), await shop.keyOf(bought)];
    GIVEN.push(first, second);
    expect(first).not.toBe(second);
    expect([await statusOf(shop.url, first), await statusOf(shop.url, second)]).toEqual([401, 200]);
    // The first try of the bad one was none of the key that is there.
    expect(codeOf(await shop.claim(bought))).toBe('order_closed');
  });

  test.each([
    ['price', { price: 'price_pro' }],
    ['amount', { amount: 1 }],
    ['currency', { currency: 'eur' }],
    ['mode', { mode: 'payment' }],
    ['live mode', { livemode: true }],
    ['quantity', { quantity: 2 }],
    ['reference', { reference: 'ord_somebody_else' }],
  ])('a payment with another %s is rejected, recorded and logged', async (_, difference) => {
    const bought = await shop.buy('Lite');
    const session = shop.sessionOf(bought);
    shop.stripe.pay(session);
    Object.assign(session, difference);
    await shop.complete(bought);
    expect(codeOf(await shop.claim(bought))).toBe('order_closed');
    await shop.gateway.logLine(
      (line) => line['order'] === bought.order && line['state'] === 'refused',
      'the warning',
    );
  });

  test('with TLS the cookie has the __Host- prefix', async () => {
    await using other = await Shop.open({ public_url: 'https://llm.example.com' });
    const response = await other.order('Lite');
    expect(response.header('set-cookie')).toMatch(
      /^__Host-claim=[\w-]{43}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Lax; Secure$/,
    );
    const { session, cookie } = {
      session: other.stripe.sessionOf(textField(response.json(), 'order')),
      cookie: cookieOf(response),
    };
    expect(session.successUrl).toBe(
      'https://llm.example.com/checkout/complete?session_id={CHECKOUT_SESSION_ID}',
    );
    await other.tell(other.stripe.pay(session));
    const plain = cookie.replace('__Host-', '');
    expect((await other.claim({ session: session.id, cookie: plain })).status).toBe(403);
    expect((await other.claim({ session: session.id, cookie })).status).toBe(201);
  });

  test('a different price at Stripe is detected before the payment', async () => {
    await using other = await Shop.open({
      tiers: {
        Free: {},
        Lite: { price: { amount: 800, currency: 'usd', interval: 'month' }, stripe_price: 'price_lite' },
      },
    });
    const response = await other.order('Lite');
    expect([response.status, codeOf(response), response.header('x-should-retry')]).toEqual([
      503,
      'payment_unavailable',
      'false',
    ]);
    expect([...other.stripe.sessions.values()].map(({ status }) => status)).toEqual(['expired']);
  });

  test('a later bank transfer is awaited', async () => {
    const bought = await shop.buy('Lite');
    const session = shop.sessionOf(bought);
    await shop.tell(shop.stripe.payLater(session));
    expect(codeOf(await shop.claim(bought))).toBe('order_not_paid');
    for (let looks = 0; looks < 2; looks += 1) {
      const page = await shop.complete(bought);
      expect([page.header('refresh'), page.text().includes('cannot be reached')]).toEqual(['4', false]);
    }
    await shop.tell(shop.stripe.transferArrives(session));
    expect((await shop.claim(bought)).status).toBe(201);
  });

  test('a failed bank transfer leaves nothing', async () => {
    const bought = await shop.buy('Lite');
    const session = shop.sessionOf(bought);
    await shop.tell(shop.stripe.payLater(session));
    await shop.tell(shop.stripe.transferFails(session));
    expect(codeOf(await shop.claim(bought))).toBe('order_closed');
    expect((await shop.complete(bought)).text()).toContain(
      'The payment did not go through, and nothing was charged.',
    );
  });

  test('an expired session leaves nothing, and its form creates a new order', async () => {
    const nonce = await nonceOf();
    const first = await byForm('Lite', nonce);
    const id = (first.header('location') ?? '').split('/pay/')[1] ?? '';
    const session = shop.stripe.sessions.get(id);
    if (session === undefined) throw new Error('no session');
    await shop.tell(shop.stripe.expire(session));
    const again = await byForm('Lite', nonce);
    expect(again.status).toBe(303);
    expect(again.header('location')).not.toBe(first.header('location'));
  });

  test('a refund reported before the payment leaves nothing', async () => {
    const bought = await shop.buy('Lite');
    const session = shop.sessionOf(bought);
    const completed = shop.stripe.pay(session);
    await shop.tell(shop.stripe.refund(session));
    await shop.tell(completed);
    expect(codeOf(await shop.claim(bought))).toBe('order_closed');
  });

  test('without Stripe an error page is shown, and the same form works when it is back', async () => {
    const nonce = await nonceOf();
    shop.stripe.trouble = 'gone';
    const refused = await byForm('Lite', nonce);
    expect([refused.status, refused.header('content-type')]).toEqual([503, 'text/html; charset=utf-8']);
    expect(Number(refused.header('retry-after'))).toBeGreaterThan(0);
    expect(refused.text()).toContain('payment_unavailable');
    // Its operator learns why there is no payment.
    const directory = { TEST_DIR: shop.gateway.directory.path };
    const orders = await commandsWith(() => shop.gateway.configFile, directory).json('orders', 'list');
    const pending = { state: 'pending', reason: 'the payment page could not be opened' };
    expect(orders).toContainEqual(expect.objectContaining(pending));
    shop.stripe.trouble = 'none';
    expect((await byForm('Lite', nonce)).status).toBe(303);
  });

  test('orders per address are limited', async () => {
    const headers = { 'x-forwarded-for': '192.0.2.7' };
    const statuses = [];
    for (let count = 0; count < 12; count += 1) {
      const response = await ask(shop.url, { target: '/checkout', headers, body: { tier: 'Lite' } });
      statuses.push(response.status);
    }
    expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(0);
    expect(statuses.filter((status) => status === 201).length).toBeGreaterThanOrEqual(10);
  });

  test('Free: a double click creates one key, which both answers show', async () => {
    const nonce = await nonceOf();
    const [first, second] = await Promise.all([byForm('Free', nonce), byForm('Free', nonce)]);
    const keys = [keyOnPage(first.text()), keyOnPage(second.text())];
    GIVEN.push(...keys);
    const third = keyOnPage((await byForm('Free', nonce)).text());
    expect(await statusOf(shop.url, third)).toBe(200);
    for (const key of keys) if (key !== third) expect(await statusOf(shop.url, key)).toBe(401);
  });

  test('Free: after the key was used, the same form creates another', async () => {
    const nonce = await nonceOf();
    const first = keyOnPage((await byForm('Free', nonce)).text());
    expect(await statusOf(shop.url, first)).toBe(200);
    const second = keyOnPage((await byForm('Free', nonce)).text());
    GIVEN.push(first, second);
    expect([await statusOf(shop.url, first), await statusOf(shop.url, second)]).toEqual([200, 200]);
  });

  test('an upgrade keeps holder and key and ends the old subscription', async () => {
    const { bought, key } = await shop.holder('Lite');
    GIVEN.push(key);
    const old = shop.sessionOf(bought).subscription;
    const upgrade = await shop.buy('Pro', key);
    expect(upgrade.cookie).toBe('');
    await shop.tell(shop.stripe.pay(shop.sessionOf(upgrade)));
    const response = await ask(shop.url, {
      target: '/checkout',
      headers: bearer(key),
      body: { tier: 'Pro' },
    });
    expect([response.status, codeOf(response)]).toEqual([409, 'already_entitled']);
    expect((await shop.complete({ session: upgrade.session, cookie: '' })).text()).toContain(
      'Pro is in force. Your key stays the same.',
    );
    expect(codeOf(await shop.claim({ ...upgrade, cookie: bought.cookie }))).toBe('claim_forbidden');
    await expect.poll(() => old?.status, { timeout: 20_000 }).toBe('canceled');
    await shop.gateway.app.billing.sweep();
    expect(
      (await shop.gateway.app.issuer.list({ limit: 1000 })).find((each) => key.startsWith(each.prefix))?.tier,
    ).toBe('Pro');
  });

  test('no issued key is in the store, the log or a metric', async () => {
    const { path } = shop.gateway.directory;
    const metrics = await shop.gateway.metrics();
    const files = readdirSync(path, { recursive: true, encoding: 'utf8', withFileTypes: true }).filter(
      (each) => each.isFile(),
    );
    expect(GIVEN.length).toBeGreaterThan(5);
    for (const key of GIVEN) {
      expect(shop.gateway.output).not.toContain(key);
      expect(metrics).not.toContain(key);
      for (const file of files) {
        expect(readFileSync(join(file.parentPath, file.name)).includes(key), file.name).toBe(false);
      }
    }
  });
});
