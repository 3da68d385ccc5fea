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

export interface RequestOptions {
  readonly model?: string;
  readonly pace?: Pace;
  /** Makes the body about this long, by a message of as many letters. Default: about 500 bytes. */
  readonly bytes?: number;
  /** Asks for an answer of about this length. Default: about 600 bytes. */
  readonly answerBytes?: number;
}

/** The body of a chat completion request. */
export function requestBody({ model = ALIAS, pace, bytes, answerBytes }: RequestOptions = {}): Buffer {
  const stream = pace && { stream: true, user: `frames=${pace.frames},every=${pace.every},${pace.kind}` };
  const messages = [
    { role: 'system', content: 'You are a careful assistant.' },
    { role: 'user', content: bytes === undefined ? PROMPT : 'A'.repeat(bytes) },
  ];
  const answer = answerBytes === undefined ? undefined : { user: `answer=${answerBytes}` };
  return Buffer.from(JSON.stringify({ model, ...stream, ...answer, temperature: 0.2, messages }));
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

/** A whole completion, about 600 bytes. @param bytes about how many instead */
export function completion(model: string, bytes?: number): Buffer {
  const content = bytes === undefined ? ANSWER : 'A'.repeat(bytes);
  const message = { role: 'assistant', content, refusal: null, annotations: [] };
  return Buffer.from(
    JSON.stringify({
      id: ID,
      object: 'chat.completion',
      created: CREATED,
      model,
      choices: [{ index: 0, message, logprobs: null, finish_reason: 'stop' }],
      usage: { prompt_tokens: 103, completion_tokens: 41, total_tokens: 144 },
      service_tier: 'default',
      system_fingerprint: 'fp_44709d6fcb',
    }),
  );
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
  const usage = { prompt_tokens: 103, completion_tokens: count - 2, total_tokens: 103 + count - 2 };
  return frame(model, { choices: [], usage });
}

const STAMP = / t=(\d{16})/g;

/** A word that is the time of writing it, in microseconds of the clock that all processes of a machine share. */
export function timedFrame(model: string): Buffer {
  const content = ` t=${String(process.hrtime.bigint() / 1000n).padStart(16, '0')}`;
  return frame(model, { choices: [{ index: 0, delta: { content }, logprobs: null, finish_reason: null }] });
}

/** The stamps in a piece of a stream, in microseconds. A stamp that the network cut is not found. */
export function stampsIn(piece: Buffer): number[] {
  return Array.from(piece.toString('latin1').matchAll(STAMP), ([, digits]) => Number(digits));
}

/** Now, by the clock of the stamps. */
export function clockMicroseconds(): number {
  return Number(process.hrtime.bigint() / 1000n);
}

function frame(model: string, rest: object): Buffer {
  const common = { id: ID, object: 'chat.completion.chunk', created: CREATED, model };
  const more = { service_tier: 'default', system_fingerprint: 'fp_44709d6fcb' };
  return Buffer.from(`data: ${JSON.stringify({ ...common, ...more, ...rest })}\n\n`);
}
