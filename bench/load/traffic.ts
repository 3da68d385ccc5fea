// The bytes that the bench sends around: requests, completions, streams. All but the time stamps are fixed, so that both ends
// can check every byte that a proxy let through. It opens no socket.

/** What clients ask for, and the gateway's name for `UPSTREAM_MODEL`. */
export const ALIAS = 'gpt-4o-mini';
/** The same for the upstream that takes large bodies, which is a process of its own. */
export const LARGE_ALIAS = 'gpt-4o-large';
/** What the upstream knows; every request and every answer is rewritten between the two. */
export const UPSTREAM_MODEL = 'gpt-4o-mini-2024-07-18';

const ID = 'chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG';
const CREATED = 1_741_570_283;
const PROMPT =
  'Summarise the incident report below in three sentences for a reader who was not there. Name the cause, what was done ' +
  'and what is still open. At 09:14 the queue of the importer began to grow; at 09:31 two workers were restarted without ' +
  'effect; at 09:40 the connection limit of the database was found to be exhausted and was raised.';
const ANSWER =
  'The importer fell behind because the database had no connections left. Restarting the workers did not help; raising ' +
  'the limit at 09:40 did. Why the connections were used up is still open.';
const WORDS = [' the', ' importer', ' fell', ' behind', ',', ' and', ' the', ' queue', ' grew', '.'];

/** How a stream is to be answered. It travels in the field `user`, which proxies leave alone. */
export interface Pace {
  /** Frames before `[DONE]`: a role, words, a finish reason; at least 3. */
  readonly frames: number;
  /** Milliseconds between two frames; 0 writes all of them at once, each with a write of its own. */
  readonly every: number;
  /** `timed`: words carry the time at which they were written. `hold`: after two frames the stream stands still, open. */
  readonly kind: 'exact' | 'timed' | 'hold';
}

/** A completion with so many letters; travels as a pace does. */
const ANSWER_BYTES = /"user":"answer=(\d+)"/;
const PACE = /"user":"frames=(\d+),every=(\d+),(exact|timed|hold)"/;

/** What a long body consists of: messages of a conversation, definitions of tools, an image in base64, or JSON in JSON. */
export const SHAPES = ['text', 'tools', 'image', 'deep'] as const;
export type Shape = (typeof SHAPES)[number];

export interface RequestOptions {
  readonly model?: string;
  readonly pace?: Pace;
  /** Makes the body about this long. Default: about 500 bytes. */
  readonly bytes?: number;
  /** Of a body with `bytes`. Without it, one message of as many letters. */
  readonly shape?: Shape;
  /** Asks for an answer of about this length. Default: about a thousand bytes. */
  readonly answerBytes?: number;
}

/** The body of a chat completion request. */
export function requestBody(options: RequestOptions = {}): Buffer {
  const { model = ALIAS, pace, bytes, shape, answerBytes } = options;
  const stream = pace && { stream: true, user: `frames=${pace.frames},every=${pace.every},${pace.kind}` };
  const answer = answerBytes === undefined ? undefined : { user: `answer=${answerBytes}` };
  const said = bytes === undefined ? PROMPT : 'A'.repeat(bytes);
  const content =
    shape === undefined || bytes === undefined
      ? { messages: [SYSTEM, { role: 'user', content: said }] }
      : contentOf(shape, bytes);
  return Buffer.from(JSON.stringify({ model, ...stream, ...answer, temperature: 0.2, ...content }));
}

const SYSTEM = { role: 'system', content: 'You are a careful assistant.' };

/** Fields of a body that is about so long. */
function contentOf(shape: Shape, bytes: number): object {
  const user = { role: 'user', content: PROMPT };
  const repeat = (each: (index: number) => object) =>
    Array.from({ length: Math.ceil(bytes / JSON.stringify(each(0)).length) }, (_, index) => each(index));
  switch (shape) {
    case 'text': {
      const turns = repeat((index) => ({
        role: index % 2 === 0 ? 'user' : 'assistant',
        // Line breaks and quotes, which JSON escapes.
        content: `${index}. "${PROMPT}"\n\n${ANSWER}\n`,
      }));
      return { messages: [SYSTEM, ...turns, user] };
    }
    case 'tools': {
      const field = (description: string) => ({ type: 'string', description });
      const tools = repeat((index) => {
        const properties = {
          path: field('Path of the file, from the root of the project.'),
          line: { type: 'integer', minimum: 1, description: 'The first line that is read.' },
          mode: { type: 'string', enum: ['text', 'binary', 'both'] },
        };
        const parameters = { type: 'object', properties, required: ['path'], additionalProperties: false };
        const description = 'Reads a part of a file and returns it with the numbers of its lines.';
        return {
          type: 'function',
          function: { name: `read_file_${index}`, description, strict: true, parameters },
        };
      });
      return { messages: [SYSTEM, user], tools, tool_choice: 'auto' };
    }
    case 'image': {
      const url = `data:image/png;base64,${'iVBORw0KGgoAAAANSUhEUgAA'.repeat(Math.ceil(bytes / 24))}`;
      const parts = [
        { type: 'text', text: PROMPT },
        { type: 'image_url', image_url: { url, detail: 'high' } },
      ];
      return { messages: [SYSTEM, { role: 'user', content: parts }] };
    }
    case 'deep': {
      const calls = repeat((index) => ({
        role: 'assistant',
        metadata: { a: [{ b: [{ c: [{ d: { e: [1, 2.5, true, null, { f: `${index}` }] } }] }] }] },
      }));
      return { messages: [SYSTEM, user], response_format: { type: 'json_schema', json_schema: { calls } } };
    }
  }
}

/** The pace that a request asks for; undefined when it is no stream of the bench. */
export function paceOf(request: string): Pace | undefined {
  const [, frames, every, kind] = PACE.exec(request) ?? [];
  if (kind !== 'exact' && kind !== 'timed' && kind !== 'hold') return undefined;
  return { frames: Number(frames), every: Number(every), kind };
}

/** The length of the answer that a request asks for; undefined when it is the usual one. */
export function answerBytesOf(request: string): number | undefined {
  const digits = ANSWER_BYTES.exec(request)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** A whole completion, indented as the vendor's are, about a thousand bytes. @param bytes about how many instead */
export function completion(model: string, bytes?: number): Buffer {
  const content = bytes === undefined ? ANSWER : 'A'.repeat(bytes);
  const message = { role: 'assistant', content, refusal: null, annotations: [] };
  const whole = {
    id: ID,
    object: 'chat.completion',
    created: CREATED,
    model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: 'stop' }],
    usage: usageOf(41),
    service_tier: 'default',
    system_fingerprint: 'fp_44709d6fcb',
  };
  return Buffer.from(`${JSON.stringify(whole, null, 2)}\n`);
}

/** The frames of a stream in order; `[DONE]` is the last of them, after `count` others. */
export function streamFrames(model: string, count: number): Buffer[] {
  const deltas: object[] = [{ role: 'assistant', content: '', refusal: null }];
  while (deltas.length < count - 1) deltas.push({ content: WORDS[deltas.length % WORDS.length] });
  const choices = deltas.map((delta) => [{ index: 0, delta, logprobs: null, finish_reason: null }]);
  return [
    ...choices.map((choice) => frame(model, { choices: choice })),
    frame(model, { choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }] }),
    Buffer.from('data: [DONE]\n\n'),
  ];
}

/** The frame that an upstream adds before `[DONE]` when it is asked for usage. */
export function usageFrame(model: string, count: number): Buffer {
  return frame(model, { choices: [], usage: usageOf(count - 2) });
}

function usageOf(completion_tokens: number): object {
  return {
    prompt_tokens: 103,
    completion_tokens,
    total_tokens: 103 + completion_tokens,
    prompt_tokens_details: { cached_tokens: 0, cache_write_tokens: 0, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: 0,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}

const STAMP = Buffer.from(' t=');
const STAMP_DIGITS = 16;

/** A word that is the time of writing it, in microseconds of the clock that all processes of a machine share. */
export function timedFrame(model: string): Buffer {
  const content = ` t=${String(process.hrtime.bigint() / 1000n).padStart(STAMP_DIGITS, '0')}`;
  return frame(model, { choices: [{ index: 0, delta: { content }, logprobs: null, finish_reason: null }] });
}

/** The stamps in a piece of a stream, in microseconds. A stamp that the network cut is not found. */
export function stampsIn(piece: Buffer): number[] {
  const stamps: number[] = [];
  for (let at = piece.indexOf(STAMP); at !== -1; at = piece.indexOf(STAMP, at + STAMP.length)) {
    const begin = at + STAMP.length;
    const stamp = Number(piece.toString('latin1', begin, begin + STAMP_DIGITS));
    if (piece.length >= begin + STAMP_DIGITS && Number.isInteger(stamp)) stamps.push(stamp);
  }
  return stamps;
}

/** Now, by the clock of the stamps. */
export function clockMicroseconds(): number {
  return Number(process.hrtime.bigint() / 1000n);
}

function frame(model: string, rest: object): Buffer {
  const common = { id: ID, object: 'chat.completion.chunk', created: CREATED, model };
  const more = { service_tier: 'default', system_fingerprint: 'fp_44709d6fcb' };
  return Buffer.from(`data: ${JSON.stringify({ ...common, ...more, ...rest, obfuscation: 'r4N7vQ2m' })}\n\n`);
}
