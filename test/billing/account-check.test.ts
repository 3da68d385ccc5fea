// `tollgate check --credentials` with a Stripe account that agrees with the configuration, and with ones that do not.
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { NEEDED_EVENTS } from '../../src/billing/stripe/account-check.ts';
import { STRIPE_API_VERSION } from '../../src/billing/stripe/stripe-calls.ts';
import { tryCredentials } from '../../src/cli/check-command.ts';
import { collector } from '../cli/collector.ts';
import { configText } from '../helpers/gateway.ts';
import { tempDir } from '../helpers/wait.ts';
import { PRICES, SHOP_TIERS, shopConfig } from './shop.ts';
import { PORTAL, SECRET_KEY, StripeStandIn } from './stripe-stand-in.ts';

const URL_OF_HOOK = 'https://llm.example.com/webhooks/stripe';
const ENDPOINT = {
  id: 'we_1',
  url: URL_OF_HOOK,
  status: 'enabled',
  livemode: false,
  api_version: '2025-01-27.acacia',
  enabled_events: [...NEEDED_EVENTS],
};

let stripe: StripeStandIn;

beforeAll(async () => {
  stripe = await StripeStandIn.start(PRICES);
});
beforeEach(() => {
  Object.assign(stripe.dashboard, { prices: {}, endpoints: [ENDPOINT], portals: [PORTAL] });
  stripe.trouble = 'none';
});
afterAll(() => stripe?.[Symbol.asyncDispose]());

async function check(config: Parameters<typeof shopConfig>[1] = {}) {
  await using folder = await tempDir();
  const file = folder.file('config.yaml');
  const listen = { port: 8080 };
  const shop = shopConfig(stripe, { public_url: 'https://llm.example.com', ...config });
  await writeFile(file, configText({ config: { listen, ...shop } }));
  const [stdout, stderr] = [collector(), collector()];
  const io = { stdout: stdout.stream, stderr: stderr.stream };
  const code = await tryCredentials(file, { TEST_DIR: folder.path }, io);
  expect(`${stdout.text()}${stderr.text()}`).not.toContain(SECRET_KEY);
  return { code, stdout: stdout.text(), stderr: stderr.text() };
}

test('an account that agrees is described', async () => {
  const { code, stdout, stderr } = await check();
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout.split('\n')).toEqual([
    `billing: Stripe: API version ${STRIPE_API_VERSION}, test mode`,
    'billing: tiers.Lite.stripe_price: price_lite is 900 usd month',
    'billing: tiers.Pro.stripe_price: price_pro is 4900 usd month',
    `billing: webhook: ${URL_OF_HOOK} receives the events that are needed, in API version 2025-01-27.acacia`,
    'billing: portal: customers can cancel, at the end of the period',
    '',
  ]);
  // Every call names the version.
  expect(stripe.sent.length).toBeGreaterThan(3);
  expect([...stripe.versions]).toEqual([STRIPE_API_VERSION]);
});

describe('a price', () => {
  const once = {
    Lite: { price: { amount: 900, currency: 'usd', interval: 'once' }, stripe_price: 'price_lite' },
  };

  test.each<[string, Record<string, unknown>, string]>([
    [
      'of another amount',
      { unit_amount: 1000 },
      'is 1000 usd month at Stripe, and 900 usd month in the configuration',
    ],
    ['of another currency', { currency: 'eur' }, 'is 900 eur month at Stripe, and 900 usd month'],
    [
      'of another interval',
      { recurring: { interval: 'year', interval_count: 1, usage_type: 'licensed' } },
      'is 900 usd year at Stripe',
    ],
    [
      'of several intervals',
      { recurring: { interval: 'month', interval_count: 3, usage_type: 'licensed' } },
      'is 900 usd every 3 months at Stripe',
    ],
    ['that does not recur', { recurring: null }, 'is 900 usd once at Stripe'],
    ['that is archived', { active: false }, 'is archived at Stripe'],
    ['of the other mode', { livemode: true }, 'is of live mode'],
    ['with tiers', { billing_scheme: 'tiered', unit_amount: null }, 'has tiers of its own at Stripe'],
    [
      'that is metered',
      { recurring: { interval: 'month', interval_count: 1, usage_type: 'metered' } },
      'is metered at Stripe',
    ],
  ])('%s is named', async (_, changed, words) => {
    stripe.dashboard.prices = { price_lite: changed };
    const { code, stderr } = await check();
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining(`billing: tiers.Lite.stripe_price: price_lite ${words}`),
    ]);
    expect(stderr).not.toContain('price_pro');
  });

  test('that Stripe does not have is named, with the mode', async () => {
    const Lite = { ...SHOP_TIERS.Lite, stripe_price: 'price_none' };
    const { code, stderr } = await check({ tiers: { Free: {}, Lite } });
    expect([code, stderr]).toEqual([
      1,
      'billing: tiers.Lite.stripe_price: Stripe has no price price_none in test mode\n',
    ]);
  });

  test('that is paid once agrees with one that does not recur', async () => {
    stripe.dashboard.prices = { price_lite: { recurring: null } };
    expect((await check({ tiers: { Free: {}, ...once } })).code).toBe(0);
    stripe.dashboard.prices = {};
    expect((await check({ tiers: { Free: {}, ...once } })).stderr).toContain(
      'and 900 usd once in the configuration',
    );
  });
});

describe('the webhook endpoint', () => {
  test('has to receive the events that the documentation has effects of', async () => {
    const page = await readFile('docs/billing.md', 'utf8');
    const [, table = ''] = /^## What an event does\n(.*?)\n## /ms.exec(page) ?? [];
    const cells = table.split('\n').map((line) => /^\| (`.*?) \|/.exec(line)?.[1] ?? '');
    const names = cells.flatMap((cell) => cell.split(', ').filter((name) => name !== ''));
    expect(names.map((name) => name.replaceAll('`', '')).sort()).toEqual([...NEEDED_EVENTS].sort());
  });

  test.each<[string, readonly object[], string]>([
    ['is missing', [], `Stripe has no endpoint ${URL_OF_HOOK} in test mode; events do not arrive`],
    [
      'is at another address',
      [{ ...ENDPOINT, url: 'https://other.example.com/webhooks/stripe' }],
      'has no endpoint',
    ],
    ['is disabled', [{ ...ENDPOINT, status: 'disabled' }], 'is disabled at Stripe'],
    ['is of the other mode', [{ ...ENDPOINT, livemode: true }], 'is of live mode'],
    [
      'does not receive two events',
      [{ ...ENDPOINT, enabled_events: NEEDED_EVENTS.slice(2) }],
      'does not receive checkout.session.completed, checkout.session.async_payment_succeeded\n',
    ],
  ])('%s', async (_, endpoints, words) => {
    stripe.dashboard.endpoints = endpoints.map((each) => ({ ...each }));
    const { code, stderr } = await check();
    expect([code, stderr]).toEqual([1, expect.stringContaining(words)]);
  });

  test('may receive all events, and be one of two', async () => {
    const all = { ...ENDPOINT, enabled_events: ['*'], api_version: null };
    stripe.dashboard.endpoints = [{ ...ENDPOINT, status: 'disabled' }, all];
    const { code, stdout } = await check();
    expect([code, stdout]).toEqual([0, expect.stringContaining('in API version the account’s default')]);
  });

  test('is not expected on a developer’s machine', async () => {
    stripe.dashboard.endpoints = [];
    const { code, stdout } = await check({ public_url: 'http://localhost:8080' });
    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining('Stripe has no endpoint http://localhost:8080'),
    ]);
  });
});

test('the portal without settings, and one that changes plans, are named', async () => {
  stripe.dashboard.portals = [];
  expect((await check()).stderr).toContain('portal: the customer portal has no settings');
  const features = { subscription_cancel: { enabled: false }, subscription_update: { enabled: true } };
  stripe.dashboard.portals = [{ features }];
  const { code, stdout, stderr } = await check();
  expect([code, stderr]).toEqual([1, expect.stringContaining('lets customers change plans')]);
  expect(stdout).toContain('customers cannot cancel');
});

test('a key that Stripe rejects is reported, without the key or Stripe’s words', async () => {
  stripe.trouble = 401;
  const { code, stderr } = await check();
  expect(code).toBe(1);
  expect(stderr).toMatch(/^(billing: Stripe could not be asked: Stripe: .* 401.*\n){4}$/);
  expect(stderr).not.toContain('quotes');
});

test('a version that Stripe no longer knows is reported', async () => {
  stripe.version = '2020-08-27';
  const { code, stderr } = await check();
  stripe.version = undefined;
  expect([code, stderr]).toEqual([1, expect.stringContaining(`${STRIPE_API_VERSION} was asked for`)]);
});
