// The fields of `billing`. billing-check.ts checks them against tiers and addresses.
import { z } from 'zod';
import { credential, duration, section, text } from './field-kinds.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';

/** Scheme, host and port, as `https://api.stripe.com`. */
function readApiBase(value: string): ScalarResult<string> {
  const isBase = /^https?:\/\/[^\s/?#\\@]+\/?$/.test(value) && URL.canParse(value);
  return isBase ? accepted(new URL(value).origin) : rejected('must be scheme, host and port, without a path');
}

export const billing = section({
  provider: z
    .enum(['stripe', 'test'])
    .describe(
      'Payment provider. `test` is a payment page of the gateway itself on which no money moves, for loopback only.',
    ),
  secret_key: credential()
    .exactOptional()
    .describe('Secret or restricted Stripe API key. Required for `stripe`.'),
  webhook_secret: credential()
    .exactOptional()
    .describe('Signing secret of the Stripe webhook, `whsec_…`. Required for `stripe`.'),
  api_base: text(readApiBase)
    .exactOptional()
    .describe('Alternative to https://api.stripe.com, for tests. Only with a test key.'),
  on_lapse: z
    .enum(['downgrade', 'suspend'])
    .prefault('downgrade')
    .describe(
      'What happens to a holder whose payment ended, was refunded in full or is disputed: `downgrade` returns it to the Free tier, `suspend` rejects its requests until it pays again.',
    ),
  grace: duration('0s', '60d')
    .prefault('7d')
    .describe('How long a holder keeps its tier after the payment for the next period has failed.'),
});
