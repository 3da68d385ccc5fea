// Prices as the gateway uses them: the kinds, which price is in force, and the prices of the lists by upstream and model.
// schema/price-schema.ts reads them; usage/records/token-price.ts makes costs of them.
import { NameTable } from './name-table.ts';

/** What has a price, in the order of docs and reports. */
export const PRICE_KINDS = [
  {
    name: 'input',
    unit: 'million',
    phrase: 'in',
    about:
      'Per million tokens of input. It and `output` are required unless only images, characters, minutes, documents or requests have a price.',
  },
  {
    name: 'cached_input',
    unit: 'million',
    phrase: 'cached',
    about: 'Per million tokens of input read from a cache. Default: as input of the same kind.',
  },
  {
    name: 'cache_write',
    unit: 'million',
    phrase: 'cache writes',
    about: 'Per million tokens of input written to a cache. Default: as input of the same kind.',
  },
  {
    name: 'audio_input',
    unit: 'million',
    phrase: 'audio in',
    about: 'Per million tokens of sound in the input. Default: `input`.',
  },
  {
    name: 'image_input',
    unit: 'million',
    phrase: 'images in',
    about: 'Per million tokens of images in the input. Default: `input`.',
  },
  { name: 'output', unit: 'million', phrase: 'out', about: 'Per million tokens of output.' },
  {
    name: 'reasoning',
    unit: 'million',
    phrase: 'reasoning',
    about: 'Per million tokens of reasoning. Default: `output`.',
  },
  {
    name: 'audio_output',
    unit: 'million',
    phrase: 'audio out',
    about: 'Per million tokens of sound in the output. Default: `output`.',
  },
  { name: 'image', unit: 'one', phrase: 'per image', about: 'Per image of the answer.' },
  {
    name: 'characters',
    unit: 'one',
    phrase: 'per million characters',
    about: 'Per million characters of the text of speech.',
  },
  { name: 'minute', unit: 'one', phrase: 'per minute', about: 'Per minute of transcribed sound.' },
  {
    name: 'document',
    unit: 'one',
    phrase: 'per document',
    about: 'Per document that a request asks to rank, score or classify.',
  },
  { name: 'request', unit: 'one', phrase: 'per request', about: 'Per request that an upstream answers.' },
] as const;

type PriceKind = (typeof PRICE_KINDS)[number]['name'];

/** In millionths of the unit of the currency. A kind that is absent has the price of the coarser one, or none. */
export type ModelPrice = { readonly [Kind in PriceKind]?: number };

/** A price and the time from which it is in force. */
export interface PricePeriod {
  /** Milliseconds since 1970; 0 for always. */
  readonly from: number;
  readonly price: ModelPrice;
}

/** The latest first. Never empty. */
export type Prices = readonly [PricePeriod, ...PricePeriod[]];

/** @returns the price in force at a time, in milliseconds since 1970; undefined before the first one */
export function priceAt(prices: Prices | undefined, at: number): ModelPrice | undefined {
  return prices?.find(({ from }) => from <= at)?.price;
}

/** The prices of the lists: upstream → model there, or a pattern with one `*` → prices. */
export type ListedPrices = Readonly<Record<string, Readonly<Record<string, Prices>>>>;

/** Finds the prices of a model in the lists: by its name, else by the longest pattern. */
export class PriceBook {
  readonly #upstreams: ReadonlyMap<string, NameTable<Prices>>;

  constructor(listed: ListedPrices = {}) {
    this.#upstreams = new Map(
      Object.entries(listed).map(([upstream, models]) => [upstream, new NameTable(Object.entries(models))]),
    );
  }

  /** @param model its name at the upstream */
  find(upstream: string, model: string): Prices | undefined {
    return this.#upstreams.get(upstream)?.find(model)?.value;
  }
}

/** An amount of money as decimal text. @param millionths a whole number; with `digits` it counts in 10^-digits */
export function decimalText(millionths: bigint | number, digits = 6): string {
  const text = String(millionths).padStart(digits + 1, '0');
  const point = text.length - digits;
  let end = text.length;
  while (end > point && text.charAt(end - 1) === '0') end -= 1;
  return end === point ? text.slice(0, point) : `${text.slice(0, point)}.${text.slice(point, end)}`;
}
