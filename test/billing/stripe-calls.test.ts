// Calls to Stripe: the circuit breaker, the bound on concurrency, and the deadline.
import { expect, test } from 'vitest';
import { StripeCalls } from '../../src/billing/stripe/stripe-calls.ts';
import { stripePackage } from '../../src/billing/stripe/stripe-package.ts';
import { GatewayError } from '../../src/errors.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { SECRET_KEY, StripeStandIn } from './stripe-stand-in.ts';

const Stripe = stripePackage();

function open(api_base?: string) {
  let now = 0;
  const calls = new StripeCalls({ secret_key: SECRET_KEY, api_base }, createMetrics(), () => now);
  const advance = (ms: number) => {
    now += ms;
  };
  return { calls, advance };
}

const gone = () => Promise.reject(new Stripe.errors.StripeConnectionError({ message: 'gone' }));

test('after five consecutive failures no call is made for ten seconds, then one probe', async () => {
  const { calls, advance } = open();
  let asked = 0;
  const ask = (work: () => Promise<unknown>) =>
    calls.call('read', () => {
      asked += 1;
      return work();
    });
  for (let count = 0; count < 5; count += 1)
    await expect(ask(gone)).rejects.toMatchObject({ code: 'payment_unavailable' });
  await expect(ask(gone)).rejects.toMatchObject({ retryAfterMs: 10_000 });
  expect(asked).toBe(5);
  advance(10_001);
  const both = await Promise.allSettled([ask(gone), ask(gone)]);
  expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(asked).toBe(6);
  advance(10_001);
  expect(await ask(async () => 'there')).toBe('there');
  expect(await ask(async () => 'again')).toBe('again');
});

test('a rejection by Stripe is no failure, and its text is not passed on', async () => {
  const { calls } = open();
  const refuse = () =>
    Promise.reject(
      new Stripe.errors.StripeInvalidRequestError({
        type: 'invalid_request_error',
        message: `No such price; key ${SECRET_KEY}`,
        statusCode: 400,
      }),
    );
  for (let count = 0; count < 8; count += 1) {
    const error: unknown = await calls.call('open', refuse).catch((each: unknown) => each);
    expect(error).toMatchObject({ code: 'payment_unavailable', retry: 'no' });
    expect(String(error instanceof Error ? error.cause : '')).not.toContain(SECRET_KEY);
  }
  expect(await calls.call('read', async () => 1)).toBe(1);
});

test('beyond 64 concurrent calls buyers get a growing retry-after, and calls continue when one ends', async () => {
  const { calls } = open();
  const held: (() => void)[] = [];
  const hold = () => calls.call('read', () => new Promise<void>((resolve) => held.push(resolve)));
  const running = Array.from({ length: 64 }, hold);
  const told: number[] = [];
  for (let count = 0; count < 500; count += 1) {
    const error: unknown = await hold().catch((each: unknown) => each);
    expect(error).toMatchObject({ code: 'payment_unavailable', retry: 'wait' });
    if (error instanceof GatewayError) told.push(error.retryAfterMs);
  }
  expect(Math.min(...told)).toBeGreaterThanOrEqual(1000);
  expect(Math.max(...told)).toBeLessThanOrEqual(30_000);
  expect(Math.min(...told.slice(-20))).toBeGreaterThan(Math.max(...told.slice(0, 20)));
  for (const end of held) end();
  await Promise.all(running);
  expect(await calls.call('read', async () => 'there')).toBe('there');
});

// Two tries of four seconds.
test('a call to a silent Stripe ends at its deadline', async () => {
  await using standIn = await StripeStandIn.start([]);
  standIn.trouble = 'slow';
  const { calls } = open(standIn.url);
  await expect(calls.call('read', (stripe) => stripe.charges.retrieve('ch_1'))).rejects.toMatchObject({
    code: 'payment_unavailable',
  });
});
