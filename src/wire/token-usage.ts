// The usage that an upstream reports: the table of its token counts, and the members in which vendors write them.
import { memberOf } from './error-answer.ts';
import type { Span } from './json.ts';

/**
 * The counts beyond `prompt` and `completion`. Each is a part of one of these: `name` in its details, or `alone` beside it.
 * Its column in the store has the same name: `store/usage-record.ts`.
 */
export const TOKEN_PARTS = {
  cached: { of: 'prompt', name: 'cached_tokens', alone: 'prompt_cache_hit_tokens' },
  reasoning: { of: 'completion', name: 'reasoning_tokens', alone: 'reasoning_tokens' },
} as const satisfies Record<string, { of: 'prompt' | 'completion'; name: string; alone: string }>;

type TokenPart = keyof typeof TOKEN_PARTS;

/** Makes each part from its name. Written out, because it runs for every request and a loop is slower. */
export function eachTokenPart(of: (name: TokenPart) => number): Readonly<Record<TokenPart, number>> {
  return { cached: of('cached'), reasoning: of('reasoning') };
}

/** Token counts, whole numbers from 0. */
export interface Tokens extends Readonly<Record<TokenPart, number>> {
  readonly prompt: number;
  readonly completion: number;
}

/** Token counts as the upstream reports them; a count that it omits is 0. */
export interface Usage extends Tokens {
  readonly total: number;
  /** The report has no count of the output, so it does not cover output beside it. Default false. */
  readonly isInputOnly?: boolean;
}

export const NO_USAGE: Usage = { prompt: 0, completion: 0, total: 0, ...eachTokenPart(() => 0) };

/** Chat completions, Responses and the Realtime API name the details differently. */
const DETAILS = {
  prompt: ['prompt_tokens_details', 'input_tokens_details', 'input_token_details'],
  completion: ['completion_tokens_details', 'output_tokens_details', 'output_token_details'],
} as const;

/** The parts in a usage object of any API. */
export function tokenParts(usage: unknown): Readonly<Record<TokenPart, number>> {
  return eachTokenPart((part) => {
    const { of, name, alone } = TOKEN_PARTS[part];
    for (const details of DETAILS[of]) {
      const found = count(memberOf(usage, details), name);
      if (found > 0) return found;
    }
    return count(usage, alone);
  });
}

/**
 * Reads the `usage` of any endpoint: chat, completions and embeddings have `prompt_tokens`, the others `input_tokens`.
 * @param span of a valid object
 */
export function parseUsage(bytes: Buffer, span: Span): Usage {
  const usage: unknown = JSON.parse(bytes.toString('utf8', span.start, span.end));
  const input = count(usage, 'prompt_tokens') || count(usage, 'input_tokens');
  const sound = input === 0 ? soundTokens(usage) : 0;
  const output = count(usage, 'completion_tokens') || count(usage, 'output_tokens');
  // Some vendors report the total only, and some omit reasoning from the output.
  const rest = Math.max(0, count(usage, 'total_tokens') - input - output);
  const isTotalAlone = input === 0 && output === 0;
  const prompt = isTotalAlone ? sound || rest : input;
  const completion = isTotalAlone ? 0 : output + rest;
  return {
    prompt,
    completion,
    total: prompt + completion,
    ...(completion === 0 && input > 0 ? { isInputOnly: true } : {}),
    ...tokenParts(usage),
  };
}

/**
 * Merges two reports about one answer: the later one, completed by the earlier one. Some vendors report the input first and the
 * output last.
 */
export function laterUsage(earlier: Usage | null, later: Usage): Usage {
  if (earlier === null || (later.prompt > 0 && later.completion > 0)) return later;
  const sides = {
    prompt: later.prompt > 0 ? later : earlier,
    completion: later.completion > 0 ? later : earlier,
  };
  const [{ prompt }, { completion }] = [sides.prompt, sides.completion];
  const isInputOnly = later.isInputOnly === true && completion === 0;
  return {
    prompt,
    completion,
    total: prompt + completion,
    ...eachTokenPart((part) => sides[TOKEN_PARTS[part].of][part]),
    ...(isInputOnly ? { isInputOnly } : {}),
  };
}

/** Tokens of audio that is billed by duration: one for a tenth of a second, the rate of vendors that count tokens. */
function soundTokens(usage: unknown): number {
  const seconds = memberOf(usage, 'type') === 'duration' ? memberOf(usage, 'seconds') : undefined;
  return typeof seconds === 'number' && seconds > 0 && seconds < 1e9 ? Math.ceil(seconds * 10) : 0;
}

/** A token count; 0 for anything else. */
function count(value: unknown, key: string): number {
  const number = memberOf(value, key);
  return typeof number === 'number' && Number.isSafeInteger(number) && number > 0 ? number : 0;
}
