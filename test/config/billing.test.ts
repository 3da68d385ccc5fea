// The section `billing`, together with what it asks of tiers and addresses.

import { describe, expect, it } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { extended, placesBefore } from './sample.ts';

const PRICE = 'price: { amount: 900, currency: usd, interval: month }';
const TIERS = `tiers: { Free: {}, Lite: { ${PRICE}, stripe_price: price_1 } }`;
const KEYS = 'secret_key: sk_test_1, webhook_secret: whsec_1';

const OPEN_LISTENER =
  'billing.provider: `test` gives keys to everybody for nothing: it is refused where `listen.host` is not a loopback address, such as 127.0.0.1';

describe('the test provider', () => {
  const text = (host: string) =>
    `listen: { host: "${host}" }\npublic_url: http://localhost:8080\nbilling: { provider: test }\n${TIERS}`;

  it.each([
    '127.0.0.1',
    '127.8.9.10',
    '::1',
    '0:0:0:0:0:0:0:1',
    '::1%lo',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    'localhost',
    'LOCALHOST',
    'gate.localhost',
  ])('may listen on %s', (host) => {
    expect(extended(text(host)).static.listen.host).toBe(host);
  });

  it.each([
    '0.0.0.0',
    '::',
    '::%lo',
    '::ffff:0.0.0.0',
    '::ffff:192.0.2.1',
    '192.168.1.7',
    '10.0.0.1',
    '128.0.0.1',
    '169.254.1.1',
    'fe80::1%eth0',
    '2001:db8::1',
    'gate.example',
    'localhost.example',
    'notlocalhost',
    '127.0.0.1.example',
  ])('may not listen on %s', (host) => {
    expect(placesBefore(text(host)).map((each) => each.replace(/^\d+:\d+ /, ''))).toEqual([OPEN_LISTENER]);
  });
});

describe('billing', () => {
  it('with Stripe has a grace of a week and downgrades', () => {
    const { billing } = extended(`billing: { provider: stripe, ${KEYS} }\n${TIERS}`).dynamic;
    expect(billing).toEqual({
      provider: 'stripe',
      secret_key: 'sk_test_1',
      webhook_secret: 'whsec_1',
      on_lapse: 'downgrade',
      grace: 7 * 86_400_000,
    });
  });

  it('by invoice needs a contact and prices, and no price of Stripe', () => {
    const text = `billing: { provider: invoice }\nbranding: { contact: a@example.com }\ntiers: { Free: {}, Pro: { ${PRICE} } }`;
    const config = extended(text);
    expect(config.dynamic.billing?.provider).toBe('invoice');
    expect(describeConfig(config)).toContain('invoice (support marks orders as paid), downgrade after 7d');
  });

  it('with the test provider needs nothing else', () => {
    const text = `billing: { provider: test, on_lapse: suspend }\ntiers: { Pro: { ${PRICE} } }`;
    expect(extended(text).dynamic.billing?.provider).toBe('test');
  });

  it.each([
    [
      'no secrets',
      'billing: { provider: stripe }',
      [
        'billing.secret_key: is missing; `provider: stripe` needs it',
        'billing.webhook_secret: is missing; `provider: stripe` needs it',
      ],
    ],
    [
      'an empty webhook secret',
      'billing: { provider: stripe, secret_key: sk_test_1, webhook_secret: "" }',
      ['billing.webhook_secret: is a credential and must not be empty'],
    ],
    [
      'a webhook secret of spaces',
      'billing: { provider: stripe, secret_key: sk_test_1, webhook_secret: "  " }',
      ['billing.webhook_secret: is a credential and must not be empty'],
    ],
    [
      'a webhook secret from an empty variable',
      `billing: { provider: stripe, secret_key: sk_test_1, webhook_secret: "\${W:-}" }`,
      ['billing.webhook_secret: is a credential and must not be empty (from the environment: W)'],
    ],
    [
      'another host with a live key',
      'billing: { provider: stripe, secret_key: sk_live_1, webhook_secret: w, api_base: "https://stripe.example" }',
      ['billing.api_base: is not the host of Stripe, and `secret_key` is not a test key'],
    ],
    [
      'a host that only begins like Stripe’s',
      'billing: { provider: stripe, secret_key: sk_live_1, webhook_secret: w, api_base: "https://api.stripe.com.example" }',
      ['billing.api_base: is not the host of Stripe, and `secret_key` is not a test key'],
    ],
    [
      'Stripe’s host over plain http',
      'billing: { provider: stripe, secret_key: sk_live_1, webhook_secret: w, api_base: "http://api.stripe.com" }',
      ['billing.api_base: is not the host of Stripe, and `secret_key` is not a test key'],
    ],
    [
      'a test key over plain http to another machine',
      `billing: { provider: stripe, ${KEYS}, api_base: "http://stripe.example" }`,
      ['billing.api_base: would send the secret key over plain http to another machine'],
    ],
    [
      'a publishable key',
      'billing: { provider: stripe, secret_key: pk_test_1, webhook_secret: w }',
      ['billing.secret_key: is a publishable key; use the secret key'],
    ],
    [
      'an api_base with a path',
      `billing: { provider: stripe, ${KEYS}, api_base: "https://a.example/v1" }`,
      ['billing.api_base: must be scheme, host and port, without a path'],
    ],
    [
      'an address of plain http',
      `public_url: http://gate.example\nbilling: { provider: stripe, ${KEYS} }`,
      ['billing: needs a `public_url` with https: the cookie by which a buyer is known goes there'],
    ],
    [
      'the test provider for everybody',
      'public_url: https://gate.example\nbilling: { provider: test }',
      [
        'billing.provider: `test` gives keys to everybody for nothing: it is refused where `public_url` is not a loopback address',
      ],
    ],
    [
      'the test provider on all addresses',
      'listen: { host: 0.0.0.0 }\nbilling: { provider: test }',
      [OPEN_LISTENER],
    ],
    [
      'the test provider on all addresses, with a public_url of this machine',
      'listen: { host: 0.0.0.0 }\npublic_url: http://127.0.0.1:8080\nbilling: { provider: test }',
      [OPEN_LISTENER],
    ],
    [
      'the test provider on an address from the environment',
      `listen: { host: "\${HOST:-127.0.0.1}" }\npublic_url: http://localhost\nbilling: { provider: test }`,
      [OPEN_LISTENER],
    ],
    [
      'invoices that nobody can be asked for',
      'billing: { provider: invoice }',
      ['billing.provider: `invoice` needs `branding.contact`: buyers ask for the invoice there'],
    ],
    [
      'a secret of Stripe beside invoices',
      'billing: { provider: invoice, webhook_secret: w }\nbranding: { contact: a@example.com }',
      ['billing.webhook_secret: has no effect with `provider: invoice`; remove it'],
    ],
    [
      'secrets of Stripe beside the test provider',
      'billing: { provider: test, secret_key: sk_test_1 }',
      ['billing.secret_key: has no effect with `provider: test`; remove it'],
    ],
    [
      'a grace of half a year',
      `billing: { provider: stripe, ${KEYS}, grace: 180d }`,
      ['billing.grace: must be at most 60d'],
    ],
  ])('is refused with %s', (_, text, faults) => {
    const found = placesBefore(`${text}\n${TIERS}`, { W: '', HOST: '0.0.0.0' });
    expect(found.map((each) => each.replace(/^\d+:\d+ /, ''))).toEqual(faults);
  });

  it.each([
    [
      'without a price',
      'tiers: { Free: {}, Pro: {} }',
      [
        'tiers.Pro: needs a `price`, as there is `billing`',
        'tiers.Pro: needs a `stripe_price`, as there is `billing`',
      ],
    ],
    [
      'at no cost',
      'tiers: { Free: {}, Pro: { price: { amount: 0, currency: usd, interval: once }, stripe_price: p } }',
      ['tiers.Pro.price.amount: must be at least 1 where there is `billing`'],
    ],
    [
      'that nothing is left of after a lapse',
      `tiers: { Lite: { ${PRICE}, stripe_price: p } }`,
      ['billing.on_lapse: `downgrade` needs the tier `Free` on offer; or take `suspend`'],
    ],
  ])('is refused with a tier %s', (_, tiers, faults) => {
    const found = placesBefore(`billing: { provider: stripe, ${KEYS} }\n${tiers}`);
    expect(found.map((each) => each.replace(/^\d+:\d+ /, ''))).toEqual(faults);
  });

  it('warns of real payments that lead back to this machine', () => {
    const text = `billing: { provider: stripe, secret_key: sk_live_1, webhook_secret: w }\n${TIERS}`;
    expect(extended(text).warnings.map(({ message }) => message)).toEqual([
      'billing: takes real payments, and sends buyers back to a `public_url` of this machine',
    ]);
  });
});
