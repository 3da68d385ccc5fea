// Prices as people read them, and the targets that have none.
import { decimalText, type ModelPrice, PRICE_KINDS, PriceBook, type Prices, priceAt } from '../prices.ts';
import type { DynamicConfig } from '../schema/config-schema.ts';

/** `2.5 in, 1.25 cached, 10 out per million tokens, 0.04 per image` */
function priceText(price: ModelPrice): string {
  const texts = (unit: 'million' | 'one'): string[] =>
    PRICE_KINDS.flatMap(({ name, unit: own, phrase }) => {
      const amount = price[name];
      return amount === undefined || own !== unit ? [] : [`${decimalText(amount)} ${phrase}`];
    });
  const tokens = texts('million');
  return [...(tokens.length === 0 ? [] : [`${tokens.join(', ')} per million tokens`]), ...texts('one')].join(
    ', ',
  );
}

/** The price in force, and those of later times. @param at milliseconds since 1970 */
export function describePrices(prices: Prices, at: number, currency: string | null = null): string {
  const price = priceAt(prices, at);
  const later = laterPrices(prices, at).map((each) => `from ${timeText(each.from)} ${priceText(each.price)}`);
  const text = [price === undefined ? 'none yet' : priceText(price), ...later].join('; ');
  return currency === null ? text : `${text} (${currency})`;
}

/** The earliest first. */
function laterPrices(prices: Prices, at: number): Prices[number][] {
  return prices.filter(({ from }) => from > at).reverse();
}

/** A day in UTC, or a time. */
function timeText(at: number): string {
  const text = new Date(at).toISOString();
  return text.replace(/T00:00:00\.000Z$/, '').replace(/\.000Z$/, 'Z');
}

/** The price in force, null without one, and those of later times. @param at milliseconds since 1970 */
export function explainPrices(prices: Prices | undefined, at: number) {
  const price = priceAt(prices, at);
  const later = prices === undefined ? [] : laterPrices(prices, at);
  return {
    price: price === undefined ? null : priceNumbers(price),
    later_prices: later.map((each) => ({ from: timeText(each.from), ...priceNumbers(each.price) })),
  };
}

/** In units of the currency. */
function priceNumbers(price: ModelPrice): Readonly<Record<string, number>> {
  return Object.fromEntries(
    PRICE_KINDS.flatMap(({ name }) => {
      const amount = price[name];
      return amount === undefined ? [] : [[name, Number(decimalText(amount))]];
    }),
  );
}

/**
 * The targets without a price in force, by model, where any price is configured.
 * @param at milliseconds since 1970
 * @returns model → `UPSTREAM: MODEL` of each such target, with the time from which it has a price
 */
export function unpricedTargets(
  { models, prices: listed }: Pick<DynamicConfig, 'models' | 'prices'>,
  at: number,
): ReadonlyMap<string, readonly string[]> {
  const book = new PriceBook(listed);
  const found = new Map<string, readonly string[]>();
  let isAnyPriced = listed !== undefined;
  for (const [name, model] of Object.entries(models)) {
    const targets = model.targets.flatMap(({ upstream, model: there, price }) => {
      const prices = price ?? model.price ?? book.find(upstream, there);
      if (prices !== undefined) isAnyPriced = true;
      if (priceAt(prices, at) !== undefined) return [];
      const first = prices?.at(-1);
      return [`${upstream}: ${there}${first === undefined ? '' : ` (until ${timeText(first.from)})`}`];
    });
    if (targets.length > 0) found.set(name, targets);
  }
  return isAnyPriced ? found : new Map();
}
