// The fields of `billing`, which billing-check.ts checks against tiers and addresses, and of `branding`, with which its pages are shown.
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

function readBrandName(value: string): ScalarResult<string> {
  const isName = value.trim() !== '' && [...value].length <= 60 && !/\p{C}/u.test(value);
  return isName ? accepted(value) : rejected('must be a name of 1 to 60 visible characters');
}

/** It becomes a link on the pages: only mail and web addresses, without user and password. */
function readContact(value: string): ScalarResult<string> {
  const isMail = /^[\w.+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$/.test(value);
  const isPage = /^https?:\/\/[^\s"'<>\\@]+$/.test(value) && URL.canParse(value);
  return isMail || isPage
    ? accepted(value)
    : rejected('must be a mail address, or the address of a page that begins with https:// or http://');
}

export const branding = section({
  name: text(readBrandName).prefault('Tollgate').describe('Name on the pages, at most 60 characters.'),
  color: text((value) =>
    /^#[0-9a-fA-F]{6}$/.test(value)
      ? accepted(value)
      : rejected('must be a colour such as "#1a7f5a", in quotes'),
  )
    .exactOptional()
    .describe(
      'Main colour of the pages, `"#rrggbb"` in quotes. It is darkened or lightened where text would be unreadable.',
    ),
  contact: text(readContact)
    .exactOptional()
    .describe(
      'Contact for people, such as for a key that the pages do not offer: a mail address, or the URL of a page.',
    ),
});
