// The cost of tokens, in whole billionths of the unit of the configured prices, so that sums are exact.
import type { Tokens } from '../../wire/token-usage.ts';

/** `price` of a model in the configuration: per million tokens. */
export interface TokenPrice {
  readonly input: number;
  /** Default: `input`. */
  readonly cached_input?: number | undefined;
  readonly output: number;
}

/** A price per million tokens in millionths is a price per token in 10^-12. */
const SCALE = 1e6;
const PER_BILLIONTH = 1000n;

/**
 * Cached tokens are part of the prompt and have their own price. Reasoning tokens are part of the completion and have its price.
 *
 * @returns billionths, rounded half up once, over the whole request; at most 2^53 - 1
 */
export function costOf(price: TokenPrice, usage: Tokens): number {
  const cached = Math.min(usage.cached, usage.prompt);
  const fine =
    fineCost(usage.prompt - cached, price.input) +
    fineCost(cached, price.cached_input ?? price.input) +
    fineCost(usage.completion, price.output);
  const billionths = (fine + PER_BILLIONTH / 2n) / PER_BILLIONTH;
  return Number(billionths > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : billionths);
}

/** In units of 10^-12. Prices are rounded to six decimal places. */
function fineCost(tokens: number, price: number): bigint {
  return BigInt(tokens) * BigInt(Math.round(price * SCALE));
}
