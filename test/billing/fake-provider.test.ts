// A purchase with the fake provider: pay, decline, lapse, pay again.
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  ask,
  bearer,
  codeOf,
  keyOnPage,
  listModels,
  orderByForm,
  statusOf,
  textField,
} from '../e2e/holder.ts';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { readPage } from './markup.ts';
import { cookieOf } from './shop.ts';

const price = (amount: number, interval: string) => ({ price: { amount, currency: 'eur', interval } });

/** An address of this machine that is not loopback, where it has one. What is sent there does not leave the machine. */
const OUTSIDE = Object.values(networkInterfaces())
  .flat()
  .find((each) => each?.family === 'IPv4' && !each.internal)?.address;

const TIERS = { Free: {}, Lite: price(900, 'month'), Pro: price(4900, 'once') };

interface Bought {
  readonly session_id: string;
  readonly cookie: string;
}

async function buy(url: string): Promise<Bought> {
  const ordered = await ask(url, {
    target: '/checkout',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ tier: 'Pro' }),
  });
  expect(ordered.status).toBe(201);
  const page = new URL(textField(ordered.json(), 'url'), 'http://localhost');
  return { session_id: page.searchParams.get('session_id') ?? '', cookie: cookieOf(ordered) };
}

/** Whether somebody who calls in this way gets a paid key for nothing. */
async function pays(
  url: string,
  { session_id, cookie }: Bought,
  given: Readonly<Record<string, string>>,
): Promise<boolean> {
  const { host = new URL(url).host, ...headers } = given;
  const shown = await ask(url, {
    method: 'GET',
    host,
    target: `/checkout/test?session_id=${session_id}`,
    headers,
  });
  const pressed = await ask(url, {
    host,
    target: '/checkout/test',
    headers: { ...headers, 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ session_id, button: 'pay' }).toString(),
  });
  const claimed = await ask(url, {
    target: '/checkout/claim',
    headers: { 'content-type': 'application/json', cookie },
    body: JSON.stringify({ session_id }),
  });
  // Neither half of it answers where the other does not.
  const expected = claimed.status === 201 ? [200, 303, 201] : [404, 404, 409];
  expect([shown.status, pressed.status, claimed.status]).toEqual(expected);
  if (claimed.status !== 201)
    expect([codeOf(shown), codeOf(pressed)]).toEqual(['unknown_url', 'unknown_url']);
  return claimed.status === 201;
}

describe('a remote client', () => {
  let gateway: Gateway;
  let proxied: Gateway;
  /** Orders that stay open, because nobody can pay them: one address may make ten in a minute. */
  let open: Bought;
  let openBehindProxy: Bought;

  beforeAll(async () => {
    const config = { billing: { provider: 'test' }, tiers: TIERS };
    gateway = await startGateway({ config });
    proxied = await startGateway({
      config: { ...config, listen: { trusted_proxies: ['127.0.0.1', '10.0.0.0/8'] } },
    });
    open = await buy(gateway.url);
    openBehindProxy = await buy(proxied.url);
  });
  afterAll(async () => {
    await gateway?.close();
    await proxied?.close();
  });

  test('is told apart from a local one', async () => {
    expect(await pays(gateway.url, await buy(gateway.url), {})).toBe(true);
    const { port } = new URL(gateway.url);
    for (const name of ['localhost', 'LocalHost', 'gate.localhost', '[::1]', '127.0.0.2'])
      expect(await pays(gateway.url, await buy(gateway.url), { host: `${name}:${port}` })).toBe(true);
  });

  test.each<[string, Record<string, string>]>([
    ['a name of his own for this machine', { host: 'evil.example' }],
    ['a name that begins like this machine', { host: '127.0.0.1.evil.example:80' }],
    ['an address of the network', { host: '192.168.1.7' }],
    ['a report of a proxy that nobody trusts', { 'x-forwarded-for': '203.0.113.9' }],
    ['a report that lies', { 'x-forwarded-for': '127.0.0.1' }],
    ['an empty report', { 'x-forwarded-for': '' }],
    ['a standard report', { forwarded: 'for=127.0.0.1' }],
    ['a report of nginx', { 'x-real-ip': '127.0.0.1' }],
    ['a report of a CDN', { 'cf-connecting-ip': '203.0.113.9' }],
    ['the scheme of a tunnel alone', { 'x-forwarded-proto': 'https' }],
    ['a proxy that names itself', { via: '1.1 tunnel' }],
  ])('cannot pay by %s', async (_, headers) => {
    expect(await pays(gateway.url, open, headers)).toBe(false);
  });

  test.each<[string, Record<string, string>, boolean]>([
    ['one who is here', { 'x-forwarded-for': '127.0.0.1' }, true],
    ['one who is here, in IPv6', { 'x-forwarded-for': '::1', 'x-forwarded-proto': 'http' }, true],
    ['one who is here, mapped and with a port', { 'x-forwarded-for': '::ffff:127.0.0.1, [::1]:80' }, true],
    ['one elsewhere', { 'x-forwarded-for': '203.0.113.9' }, false],
    ['one elsewhere who says that he is here', { 'x-forwarded-for': '127.0.0.1, 203.0.113.9' }, false],
    ['one elsewhere, before a proxy here', { 'x-forwarded-for': '203.0.113.9, 127.0.0.1' }, false],
    ['a trusted proxy elsewhere', { 'x-forwarded-for': '10.1.2.3' }, false],
    ['nobody who could be read', { 'x-forwarded-for': 'unknown' }, false],
    [
      'one whom another header places elsewhere',
      { 'x-forwarded-for': '127.0.0.1', 'x-real-ip': '203.0.113.9' },
      false,
    ],
    ['one of whom it tells the scheme alone', { 'x-forwarded-proto': 'https' }, false],
  ])('of whom a trusted proxy says that it is %s pays or not', async (_, headers, expected) => {
    const order = expected ? await buy(proxied.url) : openBehindProxy;
    expect(await pays(proxied.url, order, headers)).toBe(expected);
  });

  test.skipIf(OUTSIDE === undefined)(
    'cannot pay on a listener that a reload switched to test payments',
    async () => {
      await using own = await startGateway({ config: { listen: { host: '0.0.0.0' }, tiers: TIERS } });
      const { port } = new URL(own.url);
      const [here, outside] = [`http://127.0.0.1:${port}`, `http://${OUTSIDE}:${port}`];
      await own.writeConfig({
        config: {
          listen: { host: '127.0.0.1' },
          public_url: here,
          billing: { provider: 'test' },
          tiers: TIERS,
        },
      });
      await own.app.reload();
      const order = await buy(here);
      expect(await pays(outside, order, {})).toBe(false);
      expect(await pays(outside, order, { host: `127.0.0.1:${port}` })).toBe(false);
      expect(await pays(outside, order, { host: 'localhost', 'x-forwarded-for': '127.0.0.1' })).toBe(false);
      expect(await pays(here, order, {})).toBe(true);
    },
  );
});

describe('with the test provider', () => {
  let gateway: Gateway;

  beforeAll(async () => {
    gateway = await startGateway({
      config: {
        billing: { provider: 'test', on_lapse: 'suspend' },
        tiers: TIERS,
      },
    });
  });
  afterAll(() => gateway?.close());

  const get = (target: string, cookie = '') =>
    ask(gateway.url, { method: 'GET', target, headers: cookie === '' ? {} : { cookie } });
  const post = (target: string, fields: Record<string, string>, cookie = '') =>
    ask(gateway.url, {
      target,
      headers: {
        'content-type': 'application/x-www-form-urlencoded',
        origin: new URL(gateway.url).origin,
        'sec-fetch-site': 'same-origin',
        ...(cookie === '' ? {} : { cookie }),
      },
      body: new URLSearchParams(fields).toString(),
    });
  const choose = async (tier: string) => {
    const response = await orderByForm(gateway.url, { tier });
    expect(response.status).toBe(303);
    const page = new URL(response.header('location') ?? '', gateway.url);
    return { page, cookie: cookieOf(response), session_id: page.searchParams.get('session_id') ?? '' };
  };
  const where = (response: RawResponse) =>
    new URL(response.header('location') ?? '', `${gateway.url}/checkout/`);

  test.each(['Lite', 'Pro'])('%s is chosen, paid and claimed', async (tier) => {
    const { page, cookie, session_id } = await choose(tier);
    const shown = await get(`${page.pathname}${page.search}`);
    expect(shown.text()).toContain('No money moves');
    expect(shown.text()).toContain(tier === 'Lite' ? '€9 a month' : '€49 once');
    const paid = await post('/checkout/test', { session_id, button: 'pay' });
    expect(paid.status).toBe(303);
    const complete = where(paid);
    expect(complete.pathname).toBe('/checkout/complete');
    expect((await get(`${complete.pathname}${complete.search}`, cookie)).text()).toContain('Show my key');
    const key = keyOnPage((await post('/checkout/claim', { session_id }, cookie)).text());
    expect(await statusOf(gateway.url, key)).toBe(200);
  });

  test('a declined payment gives nothing', async () => {
    const { cookie, session_id } = await choose('Lite');
    await post('/checkout/test', { session_id, button: 'decline' });
    // Once a button was pressed the other one does nothing.
    await post('/checkout/test', { session_id, button: 'pay' });
    const page = (await get(`/checkout/complete?session_id=${session_id}`, cookie)).text();
    expect(page).toContain('The payment did not go through, and nothing was charged.');
    expect((await post('/checkout/claim', { session_id }, cookie)).status).toBe(409);
    expect((await get('/checkout/cancelled')).status).toBe(200);
  });

  test('events that do not happen to an order are an error of the command', async () => {
    const { session_id } = await choose('Lite');
    const config = ['--config', gateway.configFile];
    const play = (event: string) =>
      runCommand(['orders', 'lapse', session_id, '--as', event, ...config], {
        TEST_DIR: gateway.directory.path,
      });
    const refused = [1, expect.stringContaining('does not happen to this order at present')];
    for (const event of ['paid', 'renewed', 'failed', 'refunded', 'disputed', 'cancelled']) {
      const { code, stderr } = await play(event);
      expect([code, stderr]).toEqual(refused);
    }
    await post('/checkout/test', { session_id, button: 'pay' });
    expect((await play('failed')).code).toBe(0);
    const { code, stderr } = await play('renewed');
    expect([code, stderr]).toEqual(refused);
  });

  test('later months are simulated on the command line', async () => {
    const { cookie, session_id } = await choose('Lite');
    await post('/checkout/test', { session_id, button: 'pay' });
    const key = keyOnPage((await post('/checkout/claim', { session_id }, cookie)).text());
    const play = async (...words: string[]) => {
      const result = await runCommand(
        ['orders', 'lapse', session_id, ...words, '--config', gateway.configFile],
        {
          TEST_DIR: gateway.directory.path,
        },
      );
      expect([result.code, result.stderr]).toEqual([0, '']);
    };
    const code = async () => {
      const response = await listModels(gateway.url, key);
      return response.status === 200 ? 'good' : codeOf(response);
    };
    expect(await code()).toBe('good');
    await play();
    await expect.poll(code, { timeout: 20_000 }).toBe('billing_not_active');
    await play('--as', 'paid');
    await expect.poll(code, { timeout: 20_000 }).toBe('good');
  });

  test('what happens to a payment is played with the buttons of its portal, on this machine alone', async () => {
    const { cookie, session_id } = await choose('Lite');
    const early = await post('/checkout/test', { session_id, button: 'renewed' });
    expect([early.status, early.text()]).toEqual([400, expect.stringContaining('not one of this page')]);
    await post('/checkout/test', { session_id, button: 'pay' });
    const key = keyOnPage((await post('/checkout/claim', { session_id }, cookie)).text());
    const opened = await ask(gateway.url, { target: '/checkout/portal', headers: bearer(key), body: {} });
    expect(opened.status).toBe(201);
    const portal = new URL(textField(opened.json(), 'url'));
    expect(portal.searchParams.get('session_id')).toBe(session_id);
    const page = async () => (await get(`${portal.pathname}${portal.search}`)).text();
    expect(await page()).toContain('Test portal');
    const { elements } = readPage(await page());
    const buttons = elements.filter(({ tag }) => tag === 'button').map(({ text }) => text.trim());
    // Each says what happens, in words of its own.
    expect([buttons.includes(''), new Set(buttons).size]).toEqual([false, 10]);
    const stateAfter = async (button: string) => {
      const pressed = await post('/checkout/test', { session_id, button });
      expect([button, pressed.status, where(pressed).pathname]).toEqual([button, 303, '/checkout/test']);
      return /<dt>State<\/dt><dd>([^<]*)<\/dd>/.exec(await page())?.[1];
    };
    expect(await stateAfter('cancelling')).toBe('active: cancelled, and ends with its period');
    expect(await stateAfter('resumed')).toBe('active');
    expect(await stateAfter('renewed')).toBe('active');
    expect(await stateAfter('failed')).toBe('past_due: payment failed');
    expect(await statusOf(gateway.url, key)).toBe(200);
    expect(await stateAfter('paid')).toBe('active');
    expect(await stateAfter('disputed')).toBe('held: disputed');
    expect(codeOf(await listModels(gateway.url, key))).toBe('billing_not_active');
    expect(await stateAfter('won')).toBe('active');
    expect(await statusOf(gateway.url, key)).toBe(200);
    // Another machine gets neither the page nor the buttons.
    const remote = { 'x-forwarded-for': '203.0.113.9' };
    const shown = await ask(gateway.url, {
      method: 'GET',
      target: `${portal.pathname}${portal.search}`,
      headers: remote,
    });
    const pressed = await ask(gateway.url, {
      target: '/checkout/test',
      headers: { ...remote, 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ session_id, button: 'cancelled' }).toString(),
    });
    expect([shown.status, pressed.status]).toEqual([404, 404]);
    expect(await statusOf(gateway.url, key)).toBe(200);
    expect(await stateAfter('refunded')).toBe('ended: refunded in full');
    expect(await stateAfter('cancelled')).toBe('ended: refunded in full');
  });

  test('an unknown order has no page, and there is no webhook', async () => {
    expect((await get('/checkout/test?session_id=none')).status).toBe(404);
    const response = await ask(gateway.url, { target: '/webhooks/stripe', body: '{}' });
    expect([response.status, codeOf(response)]).toEqual([404, 'unknown_url']);
  });
});
