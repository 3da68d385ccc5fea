// The cost of what a request used, in whole billionths of the unit of the currency, so that sums are exact. All arithmetic is of
// integers.
import { type ModelPrice, type Prices, priceAt } from '../../config/prices.ts';
import { MAX_TOKENS, type Quantities, type Tokens } from '../../wire/token-usage.ts';

/** What has a price: of one request at one upstream. */
export interface PricedUse {
  readonly tokens: Tokens;
  readonly quantities?: Quantities | undefined;
  /** The upstream counts tokens. Otherwise prices of images, characters, minutes and documents replace those of tokens. Default true. */
  readonly isCounted?: boolean | undefined;
}

/**
 * Costs are calculated in parts of a unit: a third of 10^-12. Then a token at a price of a millionth per million is 3, a millisecond at
 * a millionth per minute is 50, and no division remains.
 */
const PER_MILLION = 3;
const PER_MILLISECOND = 50;
const PER_ONE = 3_000_000;
const PER_BILLIONTH = 3000;
const MAX = Number.MAX_SAFE_INTEGER;

/** A sum of products, exact at any size: of numbers as long as they are exact, else of BigInts. */
class ExactSum {
  #whole = 0;
  #rest = 0n;

  add(count: number, price: number, scale: number): void {
    const product = count * price * scale;
    // Above 2^53 the product of the numbers is not below it, so a smaller one is exact.
    if (this.#whole + product <= MAX) this.#whole += product;
    else this.#rest += BigInt(count) * BigInt(price) * BigInt(scale);
  }

  /** In billionths, rounded half up; at most 2^53 - 1. */
  rounded(): number {
    if (this.#rest === 0n && this.#whole <= MAX - PER_BILLIONTH) {
      const half = this.#whole + PER_BILLIONTH / 2;
      return (half - (half % PER_BILLIONTH)) / PER_BILLIONTH;
    }
    const half = BigInt(this.#whole) + this.#rest + BigInt(PER_BILLIONTH / 2);
    const billionths = half / BigInt(PER_BILLIONTH);
    return Number(billionths > BigInt(MAX) ? MAX : billionths);
  }
}

/**
 * Each token has one price: that of the finest kind that has one.
 *
 * @param at time of the end of the request, in milliseconds since 1970
 * @returns billionths, rounded half up once, at most 2^53 - 1; undefined where no price is in force
 */
export function costOf(prices: Prices | undefined, use: PricedUse, at: number): number | undefined {
  const price = priceAt(prices, at);
  if (price === undefined) return undefined;
  const { tokens, quantities = {}, isCounted = true } = use;
  const { images = 0, characters = 0, milliseconds = 0, documents = 0, requests = 0 } = quantities;
  const sum = new ExactSum();
  const isOfQuantities =
    (price.image !== undefined && images > 0) ||
    (price.characters !== undefined && characters > 0) ||
    (price.minute !== undefined && milliseconds > 0) ||
    (price.document !== undefined && documents > 0);
  if (isCounted || !isOfQuantities) addTokens(sum, price, tokens);
  sum.add(images, price.image ?? 0, PER_ONE);
  sum.add(characters, price.characters ?? 0, PER_MILLION);
  sum.add(milliseconds, price.minute ?? 0, PER_MILLISECOND);
  sum.add(documents, price.document ?? 0, PER_ONE);
  sum.add(requests, price.request ?? 0, PER_ONE);
  return sum.rounded();
}

/** @returns the highest cost of an estimate among these targets, in billionths; 0 where none has a price in force */
export function estimateOf(
  targets: Iterable<{ readonly price?: Prices | undefined }>,
  use: PricedUse,
  at: number,
): number {
  let highest = 0;
  let last: Prices | undefined;
  for (const { price } of targets) {
    // Targets without a price of their own share the one of their model.
    if (price !== last) highest = Math.max(highest, costOf(price, use, at) ?? 0);
    last = price;
  }
  return highest;
}

function addTokens(sum: ExactSum, price: ModelPrice, tokens: Tokens): void {
  const { input = 0, output = 0 } = price;
  const parts = partsOf(tokens, price);
  sum.add(parts.text, input, PER_MILLION);
  sum.add(parts.audio, price.audio_input ?? input, PER_MILLION);
  sum.add(parts.image, price.image_input ?? input, PER_MILLION);
  sum.add(parts.cached, price.cached_input ?? 0, PER_MILLION);
  sum.add(parts.written, price.cache_write ?? 0, PER_MILLION);
  sum.add(parts.answer, output, PER_MILLION);
  sum.add(parts.speech, price.audio_output ?? output, PER_MILLION);
  sum.add(parts.reasoning, price.reasoning ?? output, PER_MILLION);
}

/**
 * Divides the tokens into parts that do not overlap, each with one price. Parts never exceed their whole, whatever an upstream reports.
 * Tokens of a cache without a price of its own stay text, sound or images.
 */
export function partsOf(
  { prompt, completion, cached, reasoning: thought, details }: Tokens,
  price: Pick<ModelPrice, 'cached_input' | 'cache_write'>,
) {
  const input = Math.min(prompt, MAX_TOKENS);
  const output = Math.min(completion, MAX_TOKENS);
  const sound = Math.min(details?.audioInput ?? 0, input);
  const pictures = Math.min(details?.imageInput ?? 0, input - sound);
  const fresh = { text: input - sound - pictures, audio: sound, image: pictures };
  const { cacheWrite = 0, cachedAudio, cachedImage } = details ?? {};
  const read = price.cached_input === undefined ? 0 : take(fresh, cached, cachedAudio, cachedImage);
  const written = price.cache_write === undefined ? 0 : take(fresh, cacheWrite);
  const speech = Math.min(details?.audioOutput ?? 0, output);
  const reasoning = Math.min(thought, output - speech);
  return { ...fresh, cached: read, written, answer: output - speech - reasoning, speech, reasoning };
}

/**
 * Takes tokens out of the fresh ones: known sound and images, then text, then the rest.
 * @returns how many there were
 */
function take(
  fresh: Record<'text' | 'audio' | 'image', number>,
  count: number,
  audio = 0,
  image = 0,
): number {
  if (count === 0) return 0;
  let left = count;
  const from = (kind: keyof typeof fresh, max: number): void => {
    const taken = Math.min(left, max, fresh[kind]);
    fresh[kind] -= taken;
    left -= taken;
  };
  from('audio', audio);
  from('image', image);
  from('text', left);
  from('audio', left);
  from('image', left);
  return count - left;
}
