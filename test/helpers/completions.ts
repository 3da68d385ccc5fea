// OpenAI's chat completion shapes for scripts and assertions: chunks, completions, errors, SSE frames.

/** The frame that OpenAI ends a stream with. */
export const DONE = 'data: [DONE]\n\n';

const ID = 'chatcmpl-scripted';
const CREATED = 1_700_000_000;

export interface Shape {
  readonly model?: string;
  /** Default true of `chunkHead`: the same id on every chunk. */
  readonly id?: string;
}

/** `data: …` and the blank line. */
export function frame(data: object | string): string {
  return `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
}

/** A chunk with one choice; `delta` and `finishReason` as given. */
export function chunkOf(
  delta: object,
  options: Shape & { finishReason?: string | null; usage?: null } = {},
): object {
  return {
    id: options.id ?? ID,
    object: 'chat.completion.chunk',
    created: CREATED,
    model: options.model ?? 'upstream-model',
    choices: [{ index: 0, delta, logprobs: null, finish_reason: options.finishReason ?? null }],
    ...(options.usage === null ? { usage: null } : {}),
  };
}

export const roleChunk = (options?: Shape & { usage?: null }): object =>
  chunkOf({ role: 'assistant', content: '' }, options);

export const contentChunk = (content: string, options?: Shape & { usage?: null }): object =>
  chunkOf({ content }, options);

export const finishChunk = (finishReason = 'stop', options?: Shape & { usage?: null }): object =>
  chunkOf({}, { ...options, finishReason });

/** A piece of a tool call: with `id` and `name` it opens the call, without it continues the arguments. */
export function toolChunk(
  call: { index: number; id?: string; name?: string; arguments: string },
  options?: Shape,
): object {
  const part =
    call.id === undefined
      ? { index: call.index, function: { arguments: call.arguments } }
      : {
          index: call.index,
          id: call.id,
          type: 'function',
          function: { name: call.name, arguments: call.arguments },
        };
  return chunkOf({ tool_calls: [part] }, options);
}

export interface Tokens {
  readonly prompt: number;
  readonly completion: number;
}

const TOKENS: Tokens = { prompt: 3, completion: 5 };

export function usageOf(tokens: Tokens = TOKENS): object {
  return {
    prompt_tokens: tokens.prompt,
    completion_tokens: tokens.completion,
    total_tokens: tokens.prompt + tokens.completion,
  };
}

/** The extra last chunk of `include_usage`: no choices, the usage of the request. */
export function usageChunk(tokens: Tokens = TOKENS, options: Shape = {}): object {
  return {
    id: options.id ?? ID,
    object: 'chat.completion.chunk',
    created: CREATED,
    model: options.model ?? 'upstream-model',
    choices: [],
    usage: usageOf(tokens),
  };
}

/** Role, `Hello`, ` world`, finish, and the usage chunk when `usage`. */
export function defaultStream(options: Shape & { usage?: boolean; tokens?: Tokens } = {}): object[] {
  const shape = {
    model: options.model ?? 'upstream-model',
    ...(options.usage === true ? { usage: null } : {}),
  };
  const chunks = [
    roleChunk(shape),
    contentChunk('Hello', shape),
    contentChunk(' world', shape),
    finishChunk('stop', shape),
  ];
  return options.usage === true ? [...chunks, usageChunk(options.tokens, shape)] : chunks;
}

/** A completion that was not streamed. */
export function completion(
  options: Shape & { content?: string; finishReason?: string; tokens?: Tokens } = {},
): object {
  return {
    id: options.id ?? ID,
    object: 'chat.completion',
    created: CREATED,
    model: options.model ?? 'upstream-model',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: options.content ?? 'Hello world', refusal: null },
        logprobs: null,
        finish_reason: options.finishReason ?? 'stop',
      },
    ],
    usage: usageOf(options.tokens),
  };
}

/** OpenAI's error object as an upstream would send it. */
export function upstreamError(
  message: string,
  options: { type?: string; code?: string | number | null; param?: string | null } = {},
): object {
  return {
    error: {
      message,
      type: options.type ?? 'server_error',
      param: options.param ?? null,
      code: options.code ?? null,
    },
  };
}

/** A request body, small and valid. */
export function chatRequest(extra: object = {}): object {
  return { model: 'test-model', messages: [{ role: 'user', content: 'Say hello' }], ...extra };
}
