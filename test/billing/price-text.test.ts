// Prices by the conventions of the reader: every language that a browser may send, and every currency.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { billingNotices } from '../../src/billing/pages/account-offers.ts';
import { amountText, dateLocale, localeOf, priceText } from '../../src/billing/pages/price-text.ts';
import { extended } from '../config/sample.ts';

function localeFor(header: string | undefined): string {
  const headers = header === undefined ? {} : { 'accept-language': header };
  // Only this header is read.
  return localeOf({ request: { headers } });
}

describe('the language of a request', () => {
  test.each([
    [undefined, 'en'],
    ['', 'en'],
    ['*', 'en'],
    ['de', 'de'],
    ['de-CH,de;q=0.9,en;q=0.8', 'de-CH'],
    ['en;q=0.1, fr;q=0.9', 'fr'],
    [' pt-BR ; q=1.0 ', 'pt-BR'],
    ['de;q=0, sv;q=0.001', 'sv'],
    ['xx-nowhere, de', 'en'],
    ['de;q=much', 'en'],
    ['<script>', 'en'],
    ['de-DE-u-nu-arab', 'en'],
  ])('%j is %s', (header, expected) => {
    expect(localeFor(header)).toBe(expected);
  });

  test('any header gives a locale that formats', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 300 }), (header) => {
        const locale = localeFor(header);
        expect(priceText({ amount: 900, currency: 'usd', interval: 'month' }, locale)).toContain('9');
      }),
    );
  });
});

describe('a price', () => {
  const price = (amount: number, currency: string) => ({ amount, currency, interval: 'month' }) as const;

  test.each([
    ['en', 'usd', '$1,234.50 USD a month'],
    ['en-CA', 'usd', 'US$1,234.50 a month'],
    ['en-CA', 'cad', '$1,234.50 CAD a month'],
    ['en', 'eur', '€1,234.50 a month'],
    ['en-GB', 'gbp', '£1,234.50 GBP a month'],
    ['de', 'eur', '1.234,50 € a month'],
    ['fr', 'eur', '1 234,50 € a month'],
    ['sv', 'sek', '1 234,50 kr SEK a month'],
    ['nb', 'nok', '1 234,50 kr NOK a month'],
    ['en', 'chf', 'CHF 1,234.50 a month'],
    ['hi', 'inr', '₹1,234.50 a month'],
    ['ar-EG', 'eur', '1,234.50 € a month'],
  ])('in %s of %s is %s', (locale, currency, expected) => {
    // Whatever kind of space and direction marks the locale has.
    const text = priceText(price(123_450, currency), locale).replace(/[\u00a0\u202f]/g, ' ');
    expect(text.replace(/[\u200e\u200f\u061c]/g, '')).toBe(expected);
  });

  test('counts in the smallest unit of its currency, and breaks nowhere inside the number', () => {
    expect(amountText(price(900, 'jpy'))).toBe('¥900');
    expect(amountText(price(9000, 'kwd'))).toMatch(/^KWD\s9$/);
    for (const locale of ['en', 'de', 'fr', 'sv', 'pl', 'cs', 'hu', 'pt-BR', 'de-CH'])
      for (const currency of ['usd', 'eur', 'sek', 'pln', 'chf'])
        expect(amountText(price(123_456_789, currency), locale)).not.toContain(' ');
  });

  test('has dates beside it with the day where the reader expects it', () => {
    expect(['en', 'en-US', 'en-GB', 'de', 'fr-CH'].map(dateLocale)).toEqual([
      'en-US',
      'en-US',
      'en-GB',
      'en-GB',
      'en-GB',
    ]);
  });
});

test.each([
  ['0s', '0 days'],
  ['1h', '1 hour'],
  ['90m', '2 hours'],
  ['1d', '1 day'],
  ['36h', '36 hours'],
  ['7d', '7 days'],
])('a grace period of %s is named in whole days or hours', (grace, text) => {
  const { dynamic } = extended(`
branding: { contact: help@example.com }
billing: { provider: invoice, grace: ${grace} }
tiers: { Free: {}, Lite: { price: { amount: 900, currency: usd, interval: month } } }`);
  expect(billingNotices(dynamic).text).toContain(`You keep your tier for up to ${text} after that day.`);
});
