// Endpoints of the echo upstream besides chat: minimal valid responses, deterministic per request.
import { createHash, randomBytes } from 'node:crypto';
import { contentText } from './echo-chat.ts';
import type { EchoMemory } from './echo-memory.ts';
import {
  dataEvent,
  type EchoBody,
  type EchoError,
  type EchoEvent,
  echoError,
  echoErrorAnswer,
  eventFrame,
  isRecord,
  jsonAnswer,
  pieces,
  readEchoBody,
  readMaxTokens,
  type StreamEvent,
  streamAnswer,
} from './echo-shapes.ts';

type Respond = (body: Buffer, created: number, memory: EchoMemory) => EchoEvent[];

/** Path below the API root → its handler. */
export const ECHO_ENDPOINTS: ReadonlyMap<string, Respond> = new Map([
  ['/completions', answering(complete)],
  ['/embeddings', answering(embed)],
  ['/moderations', answering(moderate, 'omni-moderation-latest')],
  ['/responses', answering(respond)],
  ['/images/generations', answering((body, created) => draw(body, created), 'dall-e-2')],
  ['/images/edits', answering((body, created) => draw(body, created, 'image_edit'), 'dall-e-2')],
  ['/audio/speech', answering(speak)],
]);

/** Few, because the vectors are not for search; equal texts have equal vectors. */
const DIMENSIONS = 8;
const MAX_INPUTS = 2048;
const MAX_IMAGES = 10;

/** A GIF of one transparent pixel. */
const PIXEL = 'R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7';
/** A tenth of a second of silence: 8 bits, 8000 samples per second. */
const SILENCE = Buffer.alloc(800, 0x80);

function answering(
  respond: (body: EchoBody, created: number, memory: EchoMemory) => EchoEvent[] | EchoError,
  defaultModel?: string,
): Respond {
  return (bytes, created, memory) => {
    const body = readEchoBody(bytes, defaultModel);
    const answer = body.kind === 'echo_error' ? body : respond(body, created, memory);
    return Array.isArray(answer) ? answer : echoErrorAnswer(answer);
  };
}

function complete({ model, members }: EchoBody, created: number): EchoEvent[] | EchoError {
  const [prompt] = textsOf(members['prompt'] ?? '');
  if (prompt === undefined) return echoError("Invalid type for 'prompt'.", 'prompt', 'invalid_type');
  const maxTokens = readMaxTokens(members, ['max_tokens']);
  if (typeof maxTokens === 'object') return maxTokens;
  const all = pieces(`You said: ${prompt}`);
  const output = all.slice(0, maxTokens);
  const finish = output.length < all.length ? 'length' : 'stop';
  const [prompts, completions] = [tokens(prompt), output.length];
  const usage = {
    prompt_tokens: prompts,
    completion_tokens: completions,
    total_tokens: prompts + completions,
  };
  const common = { id: id('cmpl'), object: 'text_completion', created, model };
  const choice = (text: string, finish_reason: string | null) => ({
    text,
    index: 0,
    logprobs: null,
    finish_reason,
  });
  if (members['stream'] !== true)
    return jsonAnswer(200, { ...common, choices: [choice(output.join(''), finish)], usage });
  const options = members['stream_options'];
  const includesUsage = isRecord(options) && options['include_usage'] === true;
  const chunks = [
    ...output.map((text) => ({ ...common, choices: [choice(text, null)] })),
    { ...common, choices: [choice('', finish)] },
    ...(includesUsage ? [{ ...common, choices: [], usage }] : []),
  ];
  return streamAnswer([...chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`), 'data: [DONE]\n\n']);
}

function embed({ model, members }: EchoBody): EchoEvent[] | EchoError {
  const inputs = textsOf(members['input']);
  if (inputs.length === 0 || inputs.length > MAX_INPUTS)
    return echoError(`Invalid 'input': expected 1 to ${MAX_INPUTS} texts.`, 'input', 'invalid_type');
  const isBase64 = members['encoding_format'] === 'base64';
  const data = inputs.map((input, index) => {
    const vector = vectorOf(input);
    const embedding = isBase64 ? Buffer.from(vector.buffer).toString('base64') : [...vector];
    return { object: 'embedding', index, embedding };
  });
  const count = inputs.reduce((sum, input) => sum + tokens(input), 0);
  const usage = { prompt_tokens: count, total_tokens: count };
  return jsonAnswer(200, { object: 'list', data, model, usage });
}

/** A unit vector derived from a digest of the text. */
function vectorOf(text: string): Float32Array {
  const digest = createHash('sha256').update(text).digest();
  const raw = Array.from({ length: DIMENSIONS }, (_, at) => digest.readInt32LE(4 * at) / 2 ** 31);
  const length = Math.hypot(...raw) || 1;
  return Float32Array.from(raw, (each) => each / length);
}

function moderate({ model, members }: EchoBody): EchoEvent[] | EchoError {
  const { input } = members;
  const inputs = Array.isArray(input) && input.some(isRecord) ? [contentText(input) ?? ''] : textsOf(input);
  if (inputs.length === 0) return echoError("Missing required parameter: 'input'.", 'input', null);
  const results = inputs.map((text) => {
    // One flagged word, so that both outcomes can be tried.
    const flagged = /\bviolence\b/i.test(text);
    return {
      flagged,
      categories: { violence: flagged },
      category_scores: { violence: flagged ? 1 : 0 },
      category_applied_input_types: { violence: ['text'] },
    };
  });
  return jsonAnswer(200, { id: id('modr'), model, results });
}

function respond({ model, members }: EchoBody, created: number, memory: EchoMemory): EchoEvent[] | EchoError {
  const prompt = lastInput(members['input']);
  if (prompt === undefined) return echoError("Missing required parameter: 'input'.", 'input', null);
  const previous = members['previous_response_id'] ?? null;
  if (previous !== null && !memory.has(previous)) {
    const message = 'The previous response was not found.';
    return echoError(message, 'previous_response_id', 'previous_response_not_found');
  }
  const maxTokens = readMaxTokens(members, ['max_output_tokens']);
  if (typeof maxTokens === 'object') return maxTokens;
  const all = pieces(`You said: ${prompt}`);
  const deltas = all.slice(0, maxTokens);
  const status = deltas.length < all.length ? 'incomplete' : 'completed';
  const text = deltas.join('');
  const part = (written: string) => ({ type: 'output_text', text: written, annotations: [], logprobs: [] });
  const item = (state: string, content: readonly object[]) => ({
    id: itemId,
    type: 'message',
    status: state,
    role: 'assistant',
    content,
  });
  const itemId = id('msg');
  const [input, output] = [tokens(prompt), deltas.length];
  const usage = {
    input_tokens: input,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + output,
  };
  const response = (state: string, items: readonly object[], used: object | null) => ({
    id: responseId,
    object: 'response',
    created_at: created,
    status: state,
    error: null,
    incomplete_details: state === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    instructions: null,
    metadata: {},
    model,
    output: items,
    parallel_tool_calls: true,
    previous_response_id: previous,
    store: isStored,
    temperature: 1,
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    usage: used,
  });
  const isStored = members['store'] !== false;
  const responseId = id('resp');
  const whole = response(status, [item(status, [part(text)])], usage);
  const position = { item_id: itemId, output_index: 0, content_index: 0 };
  const list: StreamEvent[] = [
    { type: 'response.created', response: response('in_progress', [], null) },
    { type: 'response.in_progress', response: response('in_progress', [], null) },
    { type: 'response.output_item.added', output_index: 0, item: item('in_progress', []) },
    { type: 'response.content_part.added', ...position, part: part('') },
    ...deltas.map((delta) => ({ type: 'response.output_text.delta', ...position, delta, logprobs: [] })),
    { type: 'response.output_text.done', ...position, text, logprobs: [] },
    { type: 'response.content_part.done', ...position, part: part(text) },
    { type: 'response.output_item.done', output_index: 0, item: item(status, [part(text)]) },
    { type: `response.${status}`, response: whole },
  ];
  const events = list.map((event, index) => ({ ...event, sequence_number: index }));
  if (isStored) memory.add(responseId, { whole, events, input: prompt });
  return members['stream'] === true ? streamAnswer(events.map(eventFrame)) : jsonAnswer(200, whole);
}

/** The input text, or the text of the last user message. */
function lastInput(input: unknown): string | undefined {
  if (typeof input === 'string') return input;
  if (!Array.isArray(input)) return undefined;
  const users = input.filter((item: unknown) => isRecord(item) && item['role'] === 'user');
  const last: unknown = users.at(-1);
  return isRecord(last) ? contentText(last['content']) : undefined;
}

/** @param kind prefix of the event types */
export function draw(
  { model, members }: EchoBody,
  created: number,
  kind = 'image_generation',
): EchoEvent[] | EchoError {
  const { prompt, n } = members;
  if (typeof prompt !== 'string') return echoError("Missing required parameter: 'prompt'.", 'prompt', null);
  const count = typeof n === 'number' && Number.isInteger(n) && n >= 1 && n <= MAX_IMAGES ? n : 1;
  const [input, output] = [tokens(prompt), count];
  const usage = { input_tokens: input, output_tokens: output, total_tokens: input + output };
  if (members['stream'] !== true) {
    const data = Array.from({ length: count }, () => ({ b64_json: PIXEL }));
    return jsonAnswer(200, { created, model, data, usage });
  }
  const image = { b64_json: PIXEL, created_at: created, size: '1x1', output_format: 'gif' };
  return streamAnswer([
    eventFrame({ type: `${kind}.partial_image`, partial_image_index: 0, ...image }),
    eventFrame({ type: `${kind}.completed`, ...image, usage }),
  ]);
}

function speak({ members }: EchoBody): EchoEvent[] | EchoError {
  const { input } = members;
  if (typeof input !== 'string') return echoError("Missing required parameter: 'input'.", 'input', null);
  if (members['stream_format'] !== 'sse') {
    const headers = { 'content-type': 'audio/wav' };
    return [{ kind: 'head', status: 200, headers }, dataEvent(wav()), dataEvent(SILENCE)];
  }
  const count = tokens(input);
  const usage = { input_tokens: count, output_tokens: 1, total_tokens: count + 1 };
  const audio = Buffer.concat([wav(), SILENCE]).toString('base64');
  return streamAnswer([
    eventFrame({ type: 'speech.audio.delta', audio }),
    eventFrame({ type: 'speech.audio.done', usage }),
  ]);
}

/** The header of a WAV file with `SILENCE`. */
function wav(): Buffer {
  const head = Buffer.alloc(44);
  head.write('RIFF', 0);
  head.writeUInt32LE(36 + SILENCE.length, 4);
  head.write('WAVEfmt ', 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(8000, 24);
  head.writeUInt32LE(8000, 28);
  head.writeUInt16LE(1, 32);
  head.writeUInt16LE(8, 34);
  head.write('data', 36);
  head.writeUInt32LE(SILENCE.length, 40);
  return head;
}

/** One text, several texts, or token numbers, joined as a text. */
function textsOf(input: unknown): string[] {
  if (typeof input === 'string') return [input];
  if (!Array.isArray(input)) return [];
  if (input.length > 0 && input.every((each) => typeof each === 'number')) return [input.join(' ')];
  return input.map((each: unknown) => (Array.isArray(each) ? each.join(' ') : String(each)));
}

const tokens = (text: string): number => Math.ceil(text.length / 4);

const id = (kind: string): string => `${kind}_${randomBytes(12).toString('hex')}`;
