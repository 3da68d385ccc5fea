// The fields of usage and money: how long usage is kept, the currency, prices of models and targets, and the files with lists of prices.
// Amounts are read as whole millionths, so that no calculation rounds.
import { z } from 'zod';
import { invisibleFault } from '../invisible-characters.ts';
import { type ModelPrice, PRICE_KINDS, type PricePeriod, type Prices } from '../prices.ts';
import { amount, duration, mapping, name, optional, section, shortLeaf, text } from './field-kinds.ts';
import { accepted, readMoment, rejected, type ScalarResult } from './units.ts';
import { upstreamName } from './upstream-schema.ts';

/** In whole units of the currency. A million times as much is still an exact integer. */
const MAX_PRICE = 1_000_000_000;

const CURRENCIES: ReadonlySet<string> = new Set(Intl.supportedValuesOf('currency'));

/** ISO 4217, in any case. @returns it in upper case */
export function readCurrency(value: string): ScalarResult<string> {
  const code = value.toUpperCase();
  return CURRENCIES.has(code) ? accepted(code) : rejected('must be a currency code of ISO 4217, such as EUR');
}

/**
 * What is wrong with the currency of a price or a budget.
 * @param given of this place, as `readCurrency` returns it
 * @param main the `currency` of the configuration
 */
export function currencyFault(given: string, main: string | undefined): string | undefined {
  if (given === main) return undefined;
  return main === undefined
    ? `is ${given}, but the configuration has no \`currency\`: add \`currency: ${given}\` at its top`
    : `is ${given}, but the \`currency\` of the configuration is ${main}; all prices and budgets are in one`;
}

/** A day in UTC, or a time by RFC 3339. @returns milliseconds since 1970 */
function readTime(value: string): ScalarResult<number> {
  const at = readMoment(value);
  return at !== undefined && at >= 0
    ? accepted(at)
    : rejected('must be a day such as 2026-10-01 (UTC), or a time such as 2026-10-01T12:00:00Z');
}

/** A moment, read as milliseconds since 1970. */
const moment = () =>
  shortLeaf('day or time', { type: 'string', pattern: '^\\d{4}-\\d\\d-\\d\\d(T.+)?$|\\$\\{' }, readTime);

export const currency = shortLeaf(
  'code of ISO 4217',
  { type: 'string', pattern: '^[A-Za-z]{3}$|\\$\\{' },
  readCurrency,
);

const kinds = Object.fromEntries(
  PRICE_KINDS.map(({ name: kind, about }) => [kind, amount(MAX_PRICE).exactOptional().describe(about)]),
) as Record<keyof ModelPrice, z.ZodExactOptional<ReturnType<typeof amount>>>;

const period = section({
  ...kinds,
  from: optional(moment()).describe(
    'Day (UTC) or time (RFC 3339) from which this price is in force. Default: always.',
  ),
  currency: optional(currency).describe(
    'Currency of this price, as a check: it must be the `currency` of the configuration.',
  ),
}).superRefine((price, { addIssue }) => {
  const { from: _from, currency: _currency, ...given } = price;
  const isOfUnits = PRICE_KINDS.some(({ name: kind, unit }) => unit === 'one' && given[kind] !== undefined);
  const isOfTokens = PRICE_KINDS.some(({ name: kind, unit }) => unit !== 'one' && given[kind] !== undefined);
  if (isOfUnits && !isOfTokens) return;
  for (const kind of ['input', 'output'] as const) {
    if (given[kind] === undefined) addIssue({ code: 'custom', path: [kind], message: 'is missing' });
  }
});

/** One price, or a list of prices from different times. The output has the latest first. */
export const prices = z
  .union([
    period,
    z
      .array(period)
      .min(1)
      .superRefine((list, { addIssue }) => {
        for (const [index, { from }] of list.entries()) {
          const first = list.findIndex((other) => other.from === from);
          if (first === index) continue;
          const message =
            from === undefined
              ? 'needs `from`: only one price of a list can be without it'
              : `is the time of the price [${first}] too`;
          addIssue({ code: 'custom', path: from === undefined ? [index] : [index, 'from'], message });
        }
      }),
  ])
  .transform((given): Prices => {
    const [first, ...rest] = (Array.isArray(given) ? given : [given])
      .map(({ from = 0, currency: _, ...price }): PricePeriod => ({ from, price }))
      .sort((a, b) => b.from - a.from);
    return first === undefined ? [{ from: 0, price: {} }] : [first, ...rest];
  });

/** A name of a model or a pattern. Names appear in URLs and logs: no control characters, no white space at the ends. */
export const modelName = name(
  (key) => {
    const invisible = invisibleFault(key);
    if (invisible !== undefined) return `is not a model name: it has ${invisible}`;
    if (key === '' || key.length > 256 || key.trim() !== key)
      return 'is not a model name: use 1 to 256 visible characters';
    return key.indexOf('*') === key.lastIndexOf('*') ? undefined : 'has more than one `*`';
  },
  (key, empty) => !empty || !key.includes(':'),
);

/** A file with a list of prices. */
export const priceList = section({
  currency: currency.exactOptional(),
  upstreams: mapping(upstreamName, mapping(modelName, prices)),
});

/** `prices`: one file, or several. */
export const priceFiles = z
  .union([text(), z.array(text()).min(1)])
  .transform((given): readonly string[] => (typeof given === 'string' ? [given] : given));

export const usage = section({
  spool: optional(text()).describe(
    'Directory of the usage outbox, which holds usage until the store has it. Several processes may share it. Default: PATH.usage next to a SQLite store, otherwise ./data/usage.',
  ),
  keep_hours: optional(duration('40d', '36500d')).describe(
    'How long usage by the hour is kept, for reports by the hour. Default: 100d.',
  ),
  keep_days: optional(duration('100d', '36500d')).describe(
    'How long usage by the day is kept. Usage by the month is kept for ever. Default: 400d.',
  ),
});
