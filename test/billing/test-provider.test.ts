// The whole way with payments that are only played, as on a laptop: pay, decline, lapse, pay again.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ask, codeOf, keyOnPage, listModels, orderByForm, statusOf } from '../e2e/holder.ts';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { cookieOf } from './shop.ts';

const price = (amount: number, interval: string) => ({ price: { amount, currency: 'eur', interval } });

describe('with the test provider', () => {
  let gateway: Gateway;

  beforeAll(async () => {
    gateway = await startGateway({
      config: {
        billing: { provider: 'test', on_lapse: 'suspend' },
        tiers: { Free: {}, Lite: price(900, 'month'), Pro: price(4900, 'once') },
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

  test('who declines has nothing', async () => {
    const { cookie, session_id } = await choose('Lite');
    await post('/checkout/test', { session_id, button: 'decline' });
    // Once a button was pressed the other one does nothing.
    await post('/checkout/test', { session_id, button: 'pay' });
    const page = (await get(`/checkout/complete?session_id=${session_id}`, cookie)).text();
    expect(page).toContain('The payment did not go through, and nothing was charged.');
    expect((await post('/checkout/claim', { session_id }, cookie)).status).toBe(409);
    expect((await get('/checkout/cancelled')).status).toBe(200);
  });

  test('the months after are played on the command line', async () => {
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

  test('there is no such page for an order that does not exist, and no webhook', async () => {
    expect((await get('/checkout/test?session_id=none')).status).toBe(404);
    const response = await ask(gateway.url, { target: '/webhooks/stripe', body: '{}' });
    expect([response.status, codeOf(response)]).toEqual([404, 'unknown_url']);
  });
});
