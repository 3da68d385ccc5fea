// Prices as pages show them: by the conventions of the reader's language, with the currency's code where its symbol is ambiguous.
import type { IncomingMessage } from 'node:http';

export interface Price {
  /** In the smallest unit of the currency. */
  readonly amount: number;
  /** ISO 4217, in lower case. */
  readonly currency: string;
  readonly interval: 'month' | 'year' | 'once';
}

/** Symbols that several currencies have. A symbol with letters of a country, such as `CA$`, is not one of them. */
export const AMBIGUOUS = /^(?:[$¥￥£]|kr\.?|Rs\.?|R|K|L|D)$/;
/** Entries of `accept-language` that are read. */
const MAX_LANGUAGES = 10;

/** The best language of a request's `accept-language` (RFC 9110, 12.5.4) as a locale; English without one. */
export function localeOf({ request }: { readonly request: Pick<IncomingMessage, 'headers'> }): string {
  const ranges = (request.headers['accept-language'] ?? '').split(',', MAX_LANGUAGES).flatMap((range) => {
    const [, language = '', weight = '1'] =
      /^\s*([a-z]{2,3}(?:-[a-z0-9]{2,8})*)\s*(?:;\s*q=([01](?:\.\d{0,3})?))?\s*$/i.exec(range) ?? [];
    return language === '' || Number(weight) === 0 ? [] : [{ language, weight: Number(weight) }];
  });
  const [best] = ranges.sort((a, b) => b.weight - a.weight);
  return best === undefined || !isLocale(best.language) ? 'en' : best.language;
}

/** For dates in English text: the order of day and month that readers of a locale know. */
export function dateLocale(locale: string): string {
  return /^en(-US)?$/i.test(locale) ? 'en-US' : 'en-GB';
}

/** `$9 USD a month` */
export function priceText(price: Price, locale = 'en'): string {
  return `${amountText(price, locale)} ${intervalText(price, locale)}`;
}

export function amountText({ amount, currency }: Price, locale = 'en'): string {
  const format = formatOf(currency, locale);
  // The configuration counts in the currency's smallest unit, as payment providers do.
  const digits = format.resolvedOptions().maximumFractionDigits ?? 2;
  return format.format(amount / 10 ** digits);
}

/** `USD a month`; the code only where the symbol is ambiguous */
export function intervalText({ currency, interval }: Price, locale = 'en'): string {
  const symbol = formatOf(currency, locale)
    .formatToParts(0)
    .find(({ type }) => type === 'currency')?.value;
  const code = AMBIGUOUS.test(symbol ?? '') ? `${currency.toUpperCase()} ` : '';
  return `${code}${interval === 'once' ? 'once' : `a ${interval}`}`;
}

/** Digits are those of the text, which is English. */
function formatOf(currency: string, locale: string): Intl.NumberFormat {
  return new Intl.NumberFormat(locale, {
    style: 'currency',
    currency: currency.toUpperCase(),
    trailingZeroDisplay: 'stripIfInteger',
    numberingSystem: 'latn',
  });
}

function isLocale(text: string): boolean {
  try {
    return Intl.NumberFormat.supportedLocalesOf(text).length > 0;
  } catch {
    return false;
  }
}
