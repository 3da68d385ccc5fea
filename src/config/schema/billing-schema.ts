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
    .enum(['stripe', 'invoice', 'test'])
    .describe(
      'Payment provider. `invoice`: the operator sends invoices, and support marks orders as paid. `test` is a payment page of the gateway itself on which no money moves, for loopback only.',
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

/** It becomes a link on the pages: without user and password. */
function isPageUrl(value: string): boolean {
  return /^https?:\/\/[^\s"'<>\\@]+$/.test(value) && URL.canParse(value);
}

const page = (what: string) =>
  text((value) =>
    isPageUrl(value)
      ? accepted(value)
      : rejected('must be the address of a page that begins with https:// or http://'),
  )
    .exactOptional()
    .describe(`URL of the page with ${what}; every page links to it.`);

function readContact(value: string): ScalarResult<string> {
  const isMail = /^[\w.+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$/.test(value);
  return isMail || isPageUrl(value)
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
  terms: page('the terms of service'),
  privacy: page('the privacy policy'),
  imprint: page('the imprint (legal notice)'),
  tax: text((value) =>
    value.trim() !== '' && [...value].length <= 200 && !/\p{C}/u.test(value)
      ? accepted(value)
      : rejected('must be a sentence of 1 to 200 visible characters'),
  )
    .exactOptional()
    .describe('Sentence about tax below prices, such as `Prices include VAT.`'),
});
