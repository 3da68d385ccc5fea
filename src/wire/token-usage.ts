// The usage that an upstream reports: the table of its token counts, and the members in which vendors write them.
import { memberOf } from './error-answer.ts';
import type { JsonScanner, Span } from './json/json.ts';
import { usualUsage } from './usual-usage.ts';

/**
 * The counts beyond `prompt` and `completion`. Each is a part of one of these: `name` in its details, or `alone` beside it;
 * Anthropic's API has `other` at either place.
 * Its column in the store has the same name: `store/usage-record.ts`.
 */
export const TOKEN_PARTS = {
  cached: {
    of: 'prompt',
    name: 'cached_tokens',
    alone: 'prompt_cache_hit_tokens',
    other: 'cache_read_input_tokens',
  },
  reasoning: {
    of: 'completion',
    name: 'reasoning_tokens',
    alone: 'reasoning_tokens',
    other: 'thinking_tokens',
  },
} as const satisfies Record<
  string,
  Record<'name' | 'alone' | 'other', string> & { of: 'prompt' | 'completion' }
>;

type TokenPart = keyof typeof TOKEN_PARTS;

/** Makes each part from its name. Written out, because it runs for every request and a loop is slower. */
export function eachTokenPart(of: (name: TokenPart) => number): Readonly<Record<TokenPart, number>> {
  return { cached: of('cached'), reasoning: of('reasoning') };
}

/** Parts that only prices distinguish, so that the store has no columns for them. A part is 0 where the report omits it. */
export interface TokenDetails {
  /** Of the prompt. */
  readonly cacheWrite: number;
  readonly audioInput: number;
  readonly imageInput: number;
  /** Of `cached`, and of `audioInput` and `imageInput`. */
  readonly cachedAudio: number;
  readonly cachedImage: number;
  /** Of the completion. */
  readonly audioOutput: number;
}

/** Token counts, whole numbers from 0. */
export interface Tokens extends Readonly<Record<TokenPart, number>> {
  readonly prompt: number;
  readonly completion: number;
  /** Absent where all are 0. */
  readonly details?: TokenDetails;
}

/** Above any real answer. It bounds what a broken upstream can add to the usage and the cost of a holder with one answer. */
export const MAX_TOKENS = 1e9;

/** Quantities that have prices and are no tokens, whole numbers from 0. An absent one is 0. */
export interface Quantities {
  readonly requests?: number;
  readonly images?: number;
  /** Of the text of speech. */
  readonly characters?: number;
  /** Of transcribed sound. */
  readonly milliseconds?: number;
  /** To rank, score or classify. */
  readonly documents?: number;
}

/** Of most requests. */
export const ONE_REQUEST: Quantities = { requests: 1 };

/** Token counts as the upstream reports them; a count that it omits is 0. */
export interface Usage extends Tokens {
  readonly total: number;
  /** The report has no count of the output, so it does not cover output beside it. Default false. */
  readonly isInputOnly?: boolean;
  /** What `prompt` is converted from, where no tokens are reported. */
  readonly measured?: Quantities;
}

export const NO_USAGE: Usage = { prompt: 0, completion: 0, total: 0, ...eachTokenPart(() => 0) };

/** Chat completions, Responses and the Realtime API name the details differently. */
const DETAILS = {
  prompt: ['prompt_tokens_details', 'input_tokens_details', 'input_token_details'],
  completion: ['completion_tokens_details', 'output_tokens_details', 'output_token_details'],
} as const;

/** Of the prompt, in its details or beside it. */
const CACHE_WRITES = ['cache_write_tokens', 'cache_creation_tokens', 'cache_creation_input_tokens'] as const;

/** The parts in a usage object of any API. */
export function tokenParts(usage: unknown): Omit<Tokens, 'prompt' | 'completion'> {
  const input = sideOf(usage, DETAILS.prompt);
  const output = sideOf(usage, DETAILS.completion);
  const parts = eachTokenPart((part) => {
    const { of, name, alone, other } = TOKEN_PARTS[part];
    const side = of === 'prompt' ? input : output;
    return count(side, name) || count(usage, alone) || count(side, other) || count(usage, other);
  });
  const cacheWrite = CACHE_WRITES.reduce(
    (found, name) => found || count(input, name) || count(usage, name),
    0,
  );
  const audioInput = count(input, 'audio_tokens');
  const imageInput = count(input, 'image_tokens');
  const audioOutput = count(output, 'audio_tokens');
  if (cacheWrite + audioInput + imageInput + audioOutput === 0) return parts;
  const cached = memberOf(input, 'cached_tokens_details');
  const [cachedAudio, cachedImage] = [count(cached, 'audio_tokens'), count(cached, 'image_tokens')];
  return { ...parts, details: { cacheWrite, audioInput, imageInput, cachedAudio, cachedImage, audioOutput } };
}

/** The details of one side: the first that are given. */
function sideOf(usage: unknown, names: readonly string[]): unknown {
  const given = names.map((name) => memberOf(usage, name));
  return given.find((details) => typeof details === 'object' && details !== null);
}

/**
 * Reads the `usage` of any endpoint, with what hosted tools used beside it.
 * @param span of a valid object
 * @param beside values in the same object, by `indexBeside`; may have holes
 */
export function parseUsage(bytes: Buffer, span: Span, beside: readonly Span[] = []): Usage {
  const usual = usualUsage(bytes, span);
  let usage: Usage = usual === undefined ? usageIn(valueAt(bytes, span)) : { ...NO_USAGE, ...usual };
  // Skips the holes.
  beside.forEach((each) => {
    for (const used of toolUsesIn(bytes, each).map(usageIn))
      usage = { ...usage, ...sumOfTokens(usage, used), total: usage.total + used.total };
  });
  return usage;
}

/**
 * Members beside `usage` with tokens that it leaves out: of images that a response made (`tool_usage.image_gen`), and of authors of SVG
 * (`svg_usage`, also in the items of `output`).
 */
const BESIDE_USAGE = ['tool_usage', 'svg_usage', 'output'] as const;
/** Its index among them. */
export const OUTPUT_BESIDE = BESIDE_USAGE.indexOf('output');

/** Their index by the key that the scanner has just read; -1 for any other. */
export function indexBeside(scanner: Pick<JsonScanner, 'keyIs'>): number {
  for (let index = 0; index < BESIDE_USAGE.length; index += 1)
    if (scanner.keyIs(BESIDE_USAGE[index] ?? '')) return index;
  return -1;
}

const SVG_USAGE = Buffer.from('"svg_usage"');
const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;

/** Objects with token counts. */
function toolUsesIn(bytes: Buffer, span: Span): readonly unknown[] {
  const first = bytes[span.start];
  if (first === OPEN_OBJECT) return [memberOf(valueAt(bytes, span), 'image_gen') ?? valueAt(bytes, span)];
  if (first !== OPEN_ARRAY || !bytes.subarray(span.start, span.end).includes(SVG_USAGE)) return [];
  const items = valueAt(bytes, span);
  return Array.isArray(items) ? items.map((item) => memberOf(item, 'svg_usage')) : [];
}

function valueAt(bytes: Buffer, { start, end }: Span): unknown {
  return JSON.parse(bytes.toString('utf8', start, end));
}

/** Reads a parsed `usage`: chat, completions and embeddings have `prompt_tokens`, the others `input_tokens`. */
export function usageIn(value: unknown): Usage {
  const usage = withIterations(value);
  const input = count(usage, 'prompt_tokens') || inputOf(usage);
  const isSound = input === 0 && memberOf(usage, 'type') === 'duration';
  const soundMs = isSound ? millisecondsOf(memberOf(usage, 'seconds')) : 0;
  const output = count(usage, 'completion_tokens') || count(usage, 'output_tokens');
  // Some vendors leave out the input, or all but the total, and some omit reasoning from the output.
  const rest = Math.max(0, count(usage, 'total_tokens') - input - output);
  const isTotalAlone = input === 0 && output === 0;
  const prompt = input || (isTotalAlone && Math.ceil(soundMs / SOUND_TOKEN_MS)) || rest;
  const completion = input === 0 ? output : output + rest;
  return {
    prompt,
    completion,
    total: prompt + completion,
    ...(completion === 0 && input > 0 ? { isInputOnly: true } : {}),
    ...(isTotalAlone && soundMs > 0 ? { measured: { milliseconds: soundMs } } : {}),
    ...tokenParts(usage),
  };
}

/** Counts of Anthropic's API that are billed, and not part of each other. */
const BILLED = [
  'input_tokens',
  'cache_read_input_tokens',
  'cache_creation_input_tokens',
  'output_tokens',
] as const;
/** Iterations that the totals of Anthropic's API leave out, although they are billed: compactions of the context, and advice of another model. */
const LEFT_OUT: ReadonlySet<unknown> = new Set(['compaction', 'advisor_message']);

/** Anthropic's `usage` with the iterations that its totals leave out. */
function withIterations(usage: unknown): unknown {
  const iterations = memberOf(usage, 'iterations');
  if (!Array.isArray(iterations)) return usage;
  const all = [usage, ...iterations.filter((each) => LEFT_OUT.has(memberOf(each, 'type')))];
  if (all.length === 1) return usage;
  const sums = BILLED.map((name) => [name, all.reduce((sum, each) => sum + count(each, name), 0)]);
  return Object.assign({}, usage, Object.fromEntries(sums));
}

/** `input_tokens`, with what Anthropic's API counts beside it: the tokens written to a cache and read from one. */
function inputOf(usage: unknown): number {
  const cache = count(usage, 'cache_read_input_tokens') + count(usage, 'cache_creation_input_tokens');
  return count(usage, 'input_tokens') + cache;
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
  const { measured } = sides.prompt;
  return {
    prompt,
    completion,
    total: prompt + completion,
    ...eachTokenPart((part) => sides[TOKEN_PARTS[part].of][part]),
    ...detailsOf(sides.prompt, sides.completion),
    ...(measured === undefined ? {} : { measured }),
    ...(isInputOnly ? { isInputOnly } : {}),
  };
}

/** As `laterUsage`, of totals that only grow: a side that is smaller than before was not reported in full. */
export function cumulativeUsage(earlier: Usage | null, later: Usage): Usage {
  if (earlier === null) return later;
  const prompt = later.prompt < earlier.prompt ? 0 : later.prompt;
  const completion = later.completion < earlier.completion ? 0 : later.completion;
  return laterUsage(earlier, { ...later, prompt, completion });
}

/** What two answers used together. */
export function sumOfTokens(one: Tokens, other: Tokens): Tokens {
  const sum = {
    prompt: one.prompt + other.prompt,
    completion: one.completion + other.completion,
    ...eachTokenPart((part) => one[part] + other[part]),
  };
  const [mine, others] = [one.details ?? NO_DETAILS, other.details ?? NO_DETAILS];
  if (mine === NO_DETAILS && others === NO_DETAILS) return sum;
  return { ...sum, details: eachDetail((name) => mine[name] + others[name]) };
}

/** The details of a report whose sides come from two. */
function detailsOf({ details: input }: Tokens, { details: output }: Tokens): Pick<Tokens, 'details'> {
  if (input === undefined && output === undefined) return {};
  return { details: { ...NO_DETAILS, ...input, audioOutput: output?.audioOutput ?? 0 } };
}

export const NO_DETAILS: TokenDetails = eachDetail(() => 0);

/** Makes each detail from its name. */
function eachDetail(of: (name: keyof TokenDetails) => number): TokenDetails {
  return {
    cacheWrite: of('cacheWrite'),
    audioInput: of('audioInput'),
    imageInput: of('imageInput'),
    cachedAudio: of('cachedAudio'),
    cachedImage: of('cachedImage'),
    audioOutput: of('audioOutput'),
  };
}

/** Sound that is billed by its duration counts as a token for this time, the rate of vendors that count tokens. */
export const SOUND_TOKEN_MS = 100;

/** @param value seconds of an answer, a number or its text. @returns whole milliseconds; 0 for what is no duration */
export function millisecondsOf(value: unknown): number {
  const isText = typeof value === 'string' && /^\d{1,9}(\.\d{1,9})?$/.test(value);
  const seconds = isText ? Number(value) : value;
  return typeof seconds === 'number' && seconds > 0 && seconds < 1e9 ? Math.round(seconds * 1000) : 0;
}

/** A token count, at most `MAX_TOKENS`; 0 for anything else. Some upstreams convert a fraction of a token from another unit. */
function count(value: unknown, key: string): number {
  const number = memberOf(value, key);
  const isCount = typeof number === 'number' && number > 0 && number <= Number.MAX_SAFE_INTEGER;
  return isCount ? Math.min(Math.ceil(number), MAX_TOKENS) : 0;
}
