// Every call to Stripe is accepted by stripe-mock, which checks requests against Stripe's own description of its API. It is a
// program in Go: of the variable STRIPE_MOCK, or built once where there is `go` and the module proxy can be reached.
import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkStripeAccount } from '../../src/billing/stripe/account-check.ts';
import { STRIPE_API_VERSION, StripeCalls } from '../../src/billing/stripe/stripe-calls.ts';
import { StripeProvider } from '../../src/billing/stripe/stripe-provider.ts';
import { openStore } from '../../src/store/open.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { GO_BUILD_MS, goProgram } from '../helpers/go-program.ts';
import { until } from '../helpers/wait.ts';
import { Shop } from './shop.ts';
import { SECRET_KEY } from './stripe-stand-in.ts';

const STRIPE_MOCK = 'github.com/stripe/stripe-mock@v0.203.0';

let mock: ChildProcess | undefined;
let url = '';

beforeAll(async () => {
  const path = await goProgram(STRIPE_MOCK, 'STRIPE_MOCK');
  if (path === undefined) return;
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  mock = spawn(path, ['-http-addr', `127.0.0.1:${port}`], { stdio: 'ignore' });
  await until(
    () =>
      fetch(url).then(
        () => true,
        () => undefined,
      ),
    'stripe-mock to listen',
  );
}, GO_BUILD_MS);
afterAll(() => void mock?.kill());

/** It reports no port of its own, so one is picked that was free a moment ago. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

/** @returns status and message of the answer to a call */
async function replay({ method, url: path, body }: { method: string; url: string; body: string }) {
  const response = await fetch(url + path, {
    method,
    headers: {
      // stripe-mock wants a key without underscores in its end.
      authorization: 'Bearer sk_test_123',
      'stripe-version': STRIPE_API_VERSION,
      'content-type': 'application/x-www-form-urlencoded',
    },
    ...(body === '' ? {} : { body }),
  });
  const text = await response.text();
  return response.status === 200 ? 200 : `${response.status} ${method} ${path} ${body}: ${text}`;
}

test('accepts every call that is made in the life of an order', async ({ skip }) => {
  if (mock === undefined) skip('stripe-mock is not there, and could not be built');
  await using shop = await Shop.open({
    tiers: {
      Free: {},
      Lite: { price: { amount: 900, currency: 'usd', interval: 'month' }, stripe_price: 'price_lite' },
      Pro: { price: { amount: 4900, currency: 'usd', interval: 'once' }, stripe_price: 'price_pro' },
    },
  });
  const { stripe } = shop;
  const calls = new StripeCalls({ secret_key: SECRET_KEY, api_base: stripe.url }, createMetrics());
  const provider = new StripeProvider(calls, { secret_key: SECRET_KEY });
  const store = await openStore({ kind: 'sqlite', path: shop.gateway.directory.file('tollgate.db') });
  const orderOf = async (id: string) => {
    const order = await store.billing.findOrder({ id });
    if (order === undefined) throw new Error('no order');
    return order;
  };
  try {
    const { bought } = await shop.holder('Lite');
    const session = shop.sessionOf(bought);
    const { subscription } = session;
    if (subscription === null) throw new Error('no subscription');
    await shop.tell(stripe.dispute(session, 'needs_response'));
    await shop.tell(stripe.dispute(session, 'won'));
    await shop.tell(stripe.warn(session));
    // A charge that only its invoice connects with the order.
    stripe.renew(subscription);
    await provider.trace({ charge: stripe.chargeOf(session).id });
    const lite = await orderOf(bought.order);
    await provider.portal(lite, 'https://llm.example.com');
    await provider.cancel(lite, 'period_end');
    await provider.cancel(lite, 'never');
    stripe.cancelAtEnd(subscription, true);
    await provider.cancel(lite, 'never');
    await provider.refund(lite);
    const pro = await shop.holder('Pro');
    await provider.refund(await orderOf(pro.bought.order));
    await provider.end(await orderOf((await shop.buy('Lite')).order));
    await checkStripeAccount(shop.gateway.app.config.dynamic, calls, false);
  } finally {
    calls.close();
    await store.close();
  }
  const unique = new Map(stripe.sent.map((each) => [JSON.stringify(each), each]));
  const made = new Set(
    [...unique.values()].map(
      ({ method, url: path }) => `${method} ${path.split('?')[0]?.replace(/_?\w*_\d+|price_\w+/g, ':id')}`,
    ),
  );
  // What is replayed is all that stripe-provider.ts and account-check.ts ask for.
  expect([...made].sort()).toEqual([
    'DELETE /v1/subscriptions/:id',
    'GET /v1/billing_portal/configurations',
    'GET /v1/charges',
    'GET /v1/charges/:id',
    'GET /v1/checkout/sessions/:id',
    'GET /v1/disputes',
    'GET /v1/invoice_payments',
    'GET /v1/prices/:id',
    'GET /v1/radar/early_fraud_warnings',
    'GET /v1/subscriptions/:id',
    'GET /v1/webhook_endpoints',
    'POST /v1/billing_portal/sessions',
    'POST /v1/checkout/sessions',
    'POST /v1/checkout/sessions/:id/expire',
    'POST /v1/refunds',
    'POST /v1/subscriptions/:id',
  ]);
  const answers = await Promise.all([...unique.values()].map(replay));
  expect(answers.filter((answer) => answer !== 200)).toEqual([]);
});

test('rejects a member that Stripe does not know', async ({ skip }) => {
  if (mock === undefined) skip('stripe-mock is not there, and could not be built');
  const wrong = { method: 'POST', url: '/v1/billing_portal/sessions', body: 'customer=cus_1&return_to=x' };
  expect(await replay(wrong)).toMatch(/^400 .*return_to/);
});
