// Shapes of the endpoints beside chat, as vendors answer: whole answers, events of streams, and the frames they stand in.

const RESPONSE_ID = 'resp_scripted';
const ITEM_ID = 'msg_scripted';

/** `event: …` and `data: …` of a typed event. */
export function eventFrame(event: { readonly type: string; readonly [name: string]: unknown }): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

export interface Counted {
  readonly input: number;
  readonly output: number;
}

const COUNTED: Counted = { input: 7, output: 4 };

export function inputUsage({ input, output }: Counted = COUNTED): object {
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + output,
  };
}

export interface ResponseShape {
  readonly id?: string;
  readonly status?: string;
  readonly text?: string;
  readonly error?: object | null;
  readonly usage?: object | null;
  readonly model?: string;
}

/** A whole response, or what of it stands in its first events. */
export function responseObject(shape: ResponseShape = {}): object {
  const { id = RESPONSE_ID, status = 'completed', text = 'Hello', error = null } = shape;
  const part = { type: 'output_text', text, annotations: [], logprobs: [] };
  const item = { id: ITEM_ID, type: 'message', status, role: 'assistant', content: [part] };
  const isBegun = status === 'in_progress' || status === 'queued';
  return {
    id,
    object: 'response',
    created_at: 1_700_000_000,
    status,
    error,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    model: shape.model ?? 'upstream-model',
    output: isBegun || status === 'failed' ? [] : [item],
    parallel_tool_calls: true,
    previous_response_id: null,
    store: true,
    tool_choice: 'auto',
    tools: [],
    usage: shape.usage === undefined ? (isBegun ? null : inputUsage()) : shape.usage,
  };
}

/** The events of a response that says `words`, each one with its place in the stream. */
export function responseEvents(
  words: readonly string[] = ['Hel', 'lo'],
  last: { readonly type: string; readonly [name: string]: unknown } | undefined = undefined,
): { readonly type: string; readonly [name: string]: unknown }[] {
  const text = words.join('');
  const place = { item_id: ITEM_ID, output_index: 0, content_index: 0 };
  const part = (said: string) => ({ type: 'output_text', text: said, annotations: [], logprobs: [] });
  const item = (status: string, content: readonly object[]) => ({
    id: ITEM_ID,
    type: 'message',
    status,
    role: 'assistant',
    content,
  });
  return [
    { type: 'response.created', response: responseObject({ status: 'in_progress' }) },
    { type: 'response.in_progress', response: responseObject({ status: 'in_progress' }) },
    { type: 'response.output_item.added', output_index: 0, item: item('in_progress', []) },
    { type: 'response.content_part.added', ...place, part: part('') },
    ...words.map((delta) => ({ type: 'response.output_text.delta', ...place, delta, logprobs: [] })),
    { type: 'response.output_text.done', ...place, text, logprobs: [] },
    { type: 'response.content_part.done', ...place, part: part(text) },
    { type: 'response.output_item.done', output_index: 0, item: item('completed', [part(text)]) },
    last ?? { type: 'response.completed', response: responseObject({ text }) },
  ].map((event, index) => ({ ...event, sequence_number: index }));
}

export const framesOf = (
  events: readonly { readonly type: string; readonly [name: string]: unknown }[],
): string[] => events.map(eventFrame);

export function textCompletion(text = 'Hello'): object {
  return {
    id: 'cmpl-scripted',
    object: 'text_completion',
    created: 1_700_000_000,
    model: 'upstream-model',
    choices: [{ text, index: 0, logprobs: null, finish_reason: 'stop' }],
    usage: { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 },
  };
}

export function textChunk(text: string, finish: string | null = null): object {
  return {
    id: 'cmpl-scripted',
    object: 'text_completion',
    created: 1_700_000_000,
    model: 'upstream-model',
    choices: [{ text, index: 0, logprobs: null, finish_reason: finish }],
  };
}

/** @param vectors as the upstream writes them: lists of numbers, or base64 */
export function embeddingList(vectors: readonly unknown[]): object {
  return {
    object: 'list',
    data: vectors.map((embedding, index) => ({ object: 'embedding', index, embedding })),
    model: 'upstream-model',
    usage: { prompt_tokens: 8, total_tokens: 8 },
  };
}

export function moderation(): object {
  return {
    id: 'modr-scripted',
    model: 'upstream-model',
    results: [{ flagged: true, categories: { violence: true }, category_scores: { violence: 0.9 } }],
  };
}

export function imageList(b64_json: string): object {
  return {
    created: 1_700_000_000,
    data: [{ b64_json }],
    usage: { input_tokens: 5, output_tokens: 272, total_tokens: 277 },
  };
}

export function imageEvents(b64_json: string) {
  const image = { b64_json, created_at: 1_700_000_000, size: '1024x1024', output_format: 'png' };
  return [
    { type: 'image_generation.partial_image', partial_image_index: 0, ...image },
    {
      type: 'image_generation.completed',
      ...image,
      usage: { input_tokens: 5, output_tokens: 272, total_tokens: 277 },
    },
  ];
}

export function speechEvents(audio: string) {
  return [
    { type: 'speech.audio.delta', audio },
    { type: 'speech.audio.done', usage: { input_tokens: 6, output_tokens: 20, total_tokens: 26 } },
  ];
}
