// Slow, obvious answers to what the byte scanners answer, by other means: JSON.parse, regular expressions, strings.
import type { ChunkFacts } from '../../src/wire/chat-chunk.ts';
import type { Usage } from '../../src/wire/token-usage.ts';

export type Parsed = { readonly ok: true; readonly value: unknown } | { readonly ok: false };

export function parse(text: string): Parsed {
  try {
    const value: unknown = JSON.parse(text);
    return { ok: true, value };
  } catch {
    return { ok: false };
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether no object in the valid JSON `text` has a key twice: then `value` has as many keys as the text. */
export function hasUniqueKeys(text: string, value: unknown): boolean {
  const written = text.match(/"(?:[^"\\]|\\.)*"\s*:?/gs)?.filter((token) => token.endsWith(':')).length ?? 0;
  const count = (item: unknown): number => {
    if (Array.isArray(item)) return item.reduce<number>((sum, part) => sum + count(part), 0);
    if (!isObject(item)) return 0;
    return Object.values(item).reduce<number>((sum, part) => sum + 1 + count(part), 0);
  };
  return written === count(value);
}

/** The frames of a stream and what is left: lines by a regular expression, a frame ends with each empty one. */
export function framesOf(bytes: Buffer): { frames: Buffer[]; rest: Buffer } {
  const frames: Buffer[] = [];
  let start = 0;
  for (const match of bytes.toString('latin1').matchAll(/([^\r\n]*)(?:\r\n|\r|\n)/g)) {
    if (match[1] !== '') continue;
    const end = match.index + match[0].length;
    frames.push(bytes.subarray(start, end));
    start = end;
  }
  return { frames, rest: bytes.subarray(start) };
}

export interface SlowFacts extends Omit<ChunkFacts, 'modelSpan'> {
  readonly model: string | null;
}

/** The facts of a frame; undefined where two members have the same key and parsers may differ. */
export function factsOf(frame: Buffer): SlowFacts | undefined {
  const none = { model: null, hasOutput: false, finish: null, usage: null, usageOnly: false } as const;
  const lines = frame
    .toString('latin1')
    .replace(/^\u00ef\u00bb\u00bf/, '')
    .split(/\r\n|\r|\n/);
  const values = (name: string) =>
    lines.flatMap((line) => {
      const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
      return field === name ? [value ?? ''] : [];
    });
  const hasData = values('data').length > 0;
  const isField = !hasData && values('error').length > 0;
  const isErrorEvent = isField || values('event').at(-1) === 'error';
  const data = isField ? values('error').slice(-1) : values('data');
  if (!data.some((value) => /[!-\u00ff]/.test(value)))
    return { kind: 'comment', hasError: isErrorEvent, ...none };
  const text = Buffer.from(data.join('\n'), 'latin1').toString();
  if (text.startsWith('[DONE]')) return { kind: 'done', hasError: isErrorEvent, ...none };
  const parsed = parse(text);
  if (!parsed.ok || !isObject(parsed.value)) {
    const [first]: unknown[] = parsed.ok && Array.isArray(parsed.value) ? parsed.value : [];
    const isList = isObject(first) && Boolean(first['error']);
    return { kind: 'other', hasError: isErrorEvent || isList, ...none };
  }
  if (!hasUniqueKeys(text, parsed.value)) return undefined;
  const answer = answerOf(parsed.value);
  const hasError = isErrorEvent || Boolean(parsed.value['error']) || hasFailed(parsed.value);
  const { choices } = parsed.value;
  const noChoices =
    choices === undefined || choices === null || (Array.isArray(choices) && choices.length === 0);
  return { kind: 'json', hasError, ...answer, usageOnly: answer.usage !== null && noChoices && !hasError };
}

/** Whether a choice failed, and there is no output. */
export function hasFailed(chunk: Record<string, unknown>): boolean {
  const choices = Array.isArray(chunk['choices']) ? chunk['choices'] : [];
  const hasError = choices.some((choice) => isObject(choice) && Boolean(choice['error']));
  const { finish, hasOutput } = answerOf(chunk);
  return !hasOutput && (hasError || /^(?:error|insufficient_system_resource|abort)$/.test(finish ?? ''));
}

function answerOf(
  chunk: Record<string, unknown>,
): Pick<SlowFacts, 'model' | 'hasOutput' | 'finish' | 'usage'> {
  const { model, x_groq: groq } = chunk;
  const choices = (Array.isArray(chunk['choices']) ? chunk['choices'] : []).filter(isObject);
  const finishes = choices
    .map((choice) => choice['finish_reason'])
    .filter((reason) => typeof reason === 'string');
  const hasOutput = choices.some((choice) => {
    const parts = [choice['delta'], choice['message']]
      .filter(isObject)
      .flatMap((part) => Object.entries(part));
    const real = parts.filter(([name]) => name !== 'role').map(([, value]) => value);
    return [...real, choice['text']].some(isReal);
  });
  const groqUsage = isObject(groq) ? groq['usage'] : undefined;
  const choiceUsage = choices.map((choice) => choice['usage']).findLast(isObject);
  const usage = [chunk['usage'], groqUsage, choiceUsage].find(isObject);
  return {
    model: typeof model === 'string' ? model : null,
    hasOutput,
    finish: finishes.filter((reason) => reason !== '').at(-1) ?? null,
    usage: usage === undefined ? null : usageOf(usage),
  };
}

function isReal(value: unknown): boolean {
  if (value === undefined || value === null || value === false || value === '') return false;
  return typeof value !== 'object' || Object.keys(value).length > 0;
}

function usageOf(usage: Record<string, unknown>): Usage {
  const tokens = (value: unknown) =>
    typeof value === 'number' && value > 0 && value <= 2 ** 53 - 1 ? Math.min(Math.ceil(value), 1e9) : 0;
  const part = (details: unknown, name: string) => (isObject(details) ? tokens(details[name]) : 0);
  const input = tokens(usage['prompt_tokens']);
  const output = tokens(usage['completion_tokens']);
  const rest = Math.max(0, tokens(usage['total_tokens']) - input - output);
  const [prompt, completion] = input === 0 ? [rest, output] : [input, output + rest];
  return {
    prompt,
    completion,
    total: prompt + completion,
    ...(completion === 0 && input > 0 ? { isInputOnly: true } : {}),
    cached: part(usage['prompt_tokens_details'], 'cached_tokens') || tokens(usage['prompt_cache_hit_tokens']),
    reasoning:
      part(usage['completion_tokens_details'], 'reasoning_tokens') || tokens(usage['reasoning_tokens']),
  };
}
