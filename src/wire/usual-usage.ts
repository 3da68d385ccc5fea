// Reads the usage of most answers without building it: the members of chat completions, with plain numbers. token-usage.ts reads all others.
import { JsonScanner, type Span } from './json/json.ts';

/** Another part, once it has a column, is 0 here, and a report that has one is not usual. */
interface UsualUsage {
  readonly prompt: number;
  readonly completion: number;
  readonly total: number;
  readonly cached: number;
  readonly reasoning: number;
}

const DIGIT_0 = 0x30;
const LETTER_N = 0x6e;
/** Characters that make another number of the digits before them. */
const POINT = 0x2e;
const EXPONENT = 0x65;
/** Of a number below `MAX_TOKENS` of token-usage.ts. */
const MAX_DIGITS = 9;
const UNUSUAL = -1;

/** Parts that have no price of their own. */
const UNPRICED = ['text_tokens', 'accepted_prediction_tokens', 'rejected_prediction_tokens'] as const;

/** Shared, because reading is synchronous. */
const scanner = new JsonScanner();
const isKey = (name: string) => scanner.keyIs(name);

/**
 * What `usageIn` of token-usage.ts reads of the same object.
 * @param span of a valid object
 * @returns undefined for one with other members, unless they are 0 or null, or without prompt or completion
 */
export function usualUsage(bytes: Buffer, { start, end }: Span): UsualUsage | undefined {
  scanner.reset(bytes, start, end);
  scanner.enterObject();
  let prompt = 0;
  let completion = 0;
  let total = 0;
  let cached = 0;
  let reasoning = 0;
  while (scanner.nextMember()) {
    if (isKey('prompt_tokens')) prompt = numberAt(bytes);
    else if (isKey('completion_tokens')) completion = numberAt(bytes);
    else if (isKey('total_tokens')) total = numberAt(bytes);
    else if (isKey('prompt_tokens_details')) cached = partIn(bytes, 'cached_tokens');
    else if (isKey('completion_tokens_details')) reasoning = partIn(bytes, 'reasoning_tokens');
    else if (numberAt(bytes) !== 0) return undefined;
    if (Math.min(prompt, completion, total, cached, reasoning) === UNUSUAL) return undefined;
  }
  if (prompt === 0 || completion === 0) return undefined;
  // Some vendors omit reasoning from the output.
  completion = Math.max(completion, total - prompt);
  return { prompt, completion, total: prompt + completion, cached, reasoning };
}

/** The count of this name in the object at the scanner. All others are 0 or have no price. */
function partIn(bytes: Buffer, name: string): number {
  if (!scanner.enterObject()) return numberAt(bytes) === 0 ? 0 : UNUSUAL;
  let count = 0;
  while (scanner.nextMember()) {
    const isPart = isKey(name);
    const isOther = !isPart && !UNPRICED.some(isKey);
    const number = numberAt(bytes);
    if (number === UNUSUAL || (isOther && number !== 0)) return UNUSUAL;
    if (isPart) count = number;
  }
  return count;
}

/** Reads the digits at the scanner; null is 0. */
function numberAt(bytes: Buffer): number {
  const { pos } = scanner;
  if (bytes[pos] === LETTER_N) {
    scanner.skipValue();
    return 0;
  }
  let at = pos;
  let number = 0;
  let digit = (bytes[at] ?? 0) - DIGIT_0;
  while (digit >= 0 && digit <= 9) {
    number = number * 10 + digit;
    at += 1;
    digit = (bytes[at] ?? 0) - DIGIT_0;
  }
  const next = bytes[at] ?? 0;
  // Also an exponent in upper case.
  if (at === pos || at - pos > MAX_DIGITS || next === POINT || (next | 0x20) === EXPONENT) return UNUSUAL;
  scanner.pos = at;
  return number;
}
