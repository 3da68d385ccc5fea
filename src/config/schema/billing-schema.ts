// The fields of `billing`, which billing-check.ts checks against tiers and addresses, of `branding`, with which its pages are shown, and
// of budgets.
import { z } from 'zod';
import { invisibleFault } from '../invisible-characters.ts';
import { readWebUrl } from './addresses.ts';
import {
  address,
  credential,
  duration,
  optional,
  section,
  share,
  shortLeaf,
  text,
  withDefault,
} from './field-kinds.ts';
import { currency, readCurrency } from './price-schema.ts';
import { accepted, readAmount, rejected, type ScalarResult } from './units.ts';

/** Scheme, host and port, as `https://api.stripe.com`. */
function readApiBase(value: string): ScalarResult<string> {
  const reading = readWebUrl(value);
  if (!reading.ok) return reading;
  return reading.value.pathname === '/' && !value.includes('?')
    ? accepted(reading.value.origin)
    : rejected('must be scheme, host and port, without a path');
}

export const billing = section({
  provider: z
    .enum(['stripe', 'invoice', 'test'])
    .describe(
      'Payment provider. `invoice`: the operator sends invoices, and support marks orders as paid. `test` is a payment page of the gateway itself on which no money moves, for loopback only.',
    ),
  secret_key: optional(credential()).describe('Secret or restricted Stripe API key. Required for `stripe`.'),
  webhook_secret: optional(credential()).describe(
    'Signing secret of the Stripe webhook, `whsec_…`. Required for `stripe`.',
  ),
  api_base: optional(text(readApiBase)).describe(
    'Alternative to https://api.stripe.com, for tests. Only with a test key.',
  ),
  on_lapse: withDefault(z.enum(['downgrade', 'suspend']), 'downgrade').describe(
    'What happens to a holder whose payment ended, was refunded in full or is disputed: `downgrade` returns it to the Free tier, `suspend` rejects its requests until it pays again.',
  ),
  grace: withDefault(duration('0s', '60d'), '7d').describe(
    'How long a holder keeps its tier after the payment for the next period has failed.',
  ),
});

/** @param what kind of text, such as `a name` @param max in characters */
const visibleText = (what: string, max: number) =>
  text((value) => {
    const invisible = invisibleFault(value);
    if (invisible !== undefined) return rejected(`has ${invisible}`);
    const isShown = value.trim() !== '' && [...value].length <= max;
    return isShown ? accepted(value) : rejected(`must be ${what} of 1 to ${max} visible characters`);
  });

/** It becomes a link on the pages: without user and password. */
function readPage(value: string, forms = ''): ScalarResult<string> {
  if (!/^https?:\/\/[^\s"'<>\\@]+$/.test(value))
    return rejected(`must be ${forms}the address of a page that begins with https:// or http://`);
  const reading = readWebUrl(value.replace(/#.*/, ''));
  return reading.ok ? accepted(value) : reading;
}

const page = (what: string) =>
  text((value) => readPage(value))
    .exactOptional()
    .describe(`URL of the page with ${what}; every page links to it.`);

function readContact(value: string): ScalarResult<string> {
  const isMail = /^[\w.+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$/.test(value);
  return isMail ? accepted(value) : readPage(value, 'a mail address, or ');
}

export const branding = section({
  name: withDefault(visibleText('a name', 60), 'Tollgate').describe(
    'Name on the pages, at most 60 characters.',
  ),
  color: text((value) =>
    /^#[0-9a-fA-F]{6}$/.test(value)
      ? accepted(value)
      : rejected('must be a colour such as "#1a7f5a", in quotes'),
  )
    .exactOptional()
    .describe(
      'Main colour of the pages, `"#rrggbb"` in quotes. It is darkened or lightened where text would be unreadable.',
    ),
  contact: optional(text(readContact)).describe(
    'Contact for people, such as for a key that the pages do not offer: a mail address, or the URL of a page.',
  ),
  terms: page('the terms of service'),
  privacy: page('the privacy policy'),
  imprint: page('the imprint (legal notice)'),
  tax: visibleText('a sentence', 200)
    .exactOptional()
    .describe('Sentence about tax below prices, such as `Prices include VAT.`'),
});

function readWebhook(value: string): ScalarResult<string> {
  const reading = readWebUrl(value);
  return reading.ok ? accepted(value) : reading;
}

/** `budgets.webhook` */
export const budgetWebhook = section({
  url: address(readWebhook, '^https?://').describe('Receives a POST with JSON for each notice.'),
  secret: credential().describe('Signs the messages: HMAC-SHA-256, in the header `x-tollgate-signature`.'),
});

/** The largest budget, in units of the currency: its billionths are below 2^53. */
export const MAX_BUDGET = 9_000_000;

/** An amount, and its currency before or behind it, where one is named. */
const BUDGET = /^([a-z]*)\s*(-?[\d.,]*)\s*([a-z]*)$/i;

/** A budget as it is written, in billionths of the currency. */
interface WrittenBudget {
  readonly billionths: number;
  /** By ISO 4217, in upper case. */
  readonly currency?: string;
}

/** @returns a budget of `12`, `0.5`, `1234.567891`, `500 EUR`, `eur 500` */
export function readBudget(value: string): ScalarResult<WrittenBudget> {
  const [, before = '', digits = '', after = ''] = BUDGET.exec(value) ?? [];
  const amount = readAmount(digits);
  if (!amount.ok) return amount;
  if (before !== '' && after !== '') return rejected('names a currency twice');
  const named = `${before}${after}`;
  const currency = readCurrency(named);
  if (named !== '' && !currency.ok)
    return rejected(
      'must be an amount in digits, with nothing beside it but a currency of ISO 4217, such as EUR',
    );
  if (amount.value === 0) return rejected('must be more than 0');
  if (amount.value > MAX_BUDGET * 1e6) return rejected(`must be at most ${MAX_BUDGET}`);
  return accepted({
    billionths: amount.value * 1000,
    ...(currency.ok && { currency: currency.value }),
  });
}

const budgetAmount = () =>
  shortLeaf(
    `amount, 0 to ${MAX_BUDGET}, also with its currency`,
    {
      anyOf: [
        { type: 'number', minimum: 0, maximum: MAX_BUDGET },
        { type: 'string', pattern: '^([A-Za-z]{3} *)?\\d+(\\.\\d{1,6})?( *[A-Za-z]{3})?$|\\$\\{' },
      ],
    },
    (text) => {
      const reading = readBudget(text);
      return reading.ok ? accepted(reading.value.billionths) : reading;
    },
  );

/** The most shares of a budget. */
const MAX_SHARES = 5;

/** Shares of a budget in ascending order, each once. @returns undefined where they are none, too many, or one of them is no share */
export function sortedShares(shares: readonly number[]): readonly number[] | undefined {
  const areShares = shares.every((each) => each >= 0.000_001 && each <= 0.999_999);
  if (!areShares || shares.length === 0 || shares.length > MAX_SHARES) return undefined;
  return [...new Set(shares.map((each) => Number(each.toFixed(6))))].sort((a, b) => a - b);
}

/** Of a tier, or of a tier with one model. */
export const budget = section({
  per_month: optional(budgetAmount()).describe('Cost in a calendar month (UTC).'),
  per_day: optional(budgetAmount()).describe('Cost in a day (UTC).'),
  currency: optional(currency).describe(
    'Currency of this budget, as a check: it must be the `currency` of the configuration.',
  ),
  soft: z
    .union([share(), z.array(share()).min(1)])
    .transform((given, context): readonly number[] => {
      const shares = sortedShares([given].flat());
      if (shares !== undefined) return shares;
      context.addIssue({ code: 'custom', message: `has more than ${MAX_SHARES} shares` });
      return z.NEVER;
    })
    .exactOptional()
    .describe(
      'Share of the budget from which clients and operators are warned, such as `0.8`, or a list such as `[0.5, 0.8]`.',
    ),
});

/** Limits of cost, and from which shares of them on there are warnings. */
export function budgetLimits({ per_day, per_month, soft }: z.output<typeof budget>) {
  return {
    ...(per_day !== undefined && { cost_per_day: per_day }),
    ...(per_month !== undefined && { cost_per_month: per_month }),
    ...(soft !== undefined && { soft }),
  };
}
