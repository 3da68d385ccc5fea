// The section `billing`: its fields. What they mean together with tiers and addresses is in billing-check.ts.
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
      'Who takes the payments. `test`: a payment page of the gateway’s own on which no money moves, for loopback only.',
    ),
  secret_key: credential()
    .exactOptional()
    .describe('Secret or restricted key of the API of Stripe. Required for `stripe`.'),
  webhook_secret: credential()
    .exactOptional()
    .describe('Secret that the events of Stripe are signed with, `whsec_…`. Required for `stripe`.'),
  api_base: text(readApiBase)
    .exactOptional()
    .describe('Another host than https://api.stripe.com, for tests. Only with a test key.'),
  on_lapse: z
    .enum(['downgrade', 'suspend'])
    .prefault('downgrade')
    .describe(
      'What becomes of a holder whose payment ended, was refunded in full or disputed: back to the tier before (Free), or refused until it is paid again.',
    ),
  grace: duration('0s', '60d')
    .prefault('7d')
    .describe('How long a tier goes on after a payment for its next period has failed.'),
});
