// The bytes that the proxy bench sends around: one request, one completion, one stream. All of them are fixed, so that both
// ends can check every byte that a proxy let through. It opens no socket.

/** What clients ask for, and the gateway's name for `UPSTREAM_MODEL`. */
export const ALIAS = 'gpt-4o-mini';
/** What the upstream knows; every request and every answer is rewritten between the two. */
export const UPSTREAM_MODEL = 'gpt-4o-mini-2024-07-18';
/** A streamed answer: a role, words and a finish reason, each in a frame of its own; `[DONE]` follows and is not counted. */
export const FRAMES = 200;
/** One frame of every stream in this many milliseconds, about what a fast model does. */
export const FRAME_EVERY_MS = 10;

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

/** The body of a chat completion request for `ALIAS`, about 500 bytes. */
export function requestBody(stream: boolean): Buffer {
  const messages = [
    { role: 'system', content: 'You are a careful assistant.' },
    { role: 'user', content: PROMPT },
  ];
  return Buffer.from(JSON.stringify({ model: ALIAS, ...(stream && { stream }), temperature: 0.2, messages }));
}

/** A whole completion, about 600 bytes. */
export function completion(model: string): Buffer {
  const message = { role: 'assistant', content: ANSWER, refusal: null, annotations: [] };
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

/** The frames of a stream in order; `[DONE]` is the last of them, after `FRAMES` others. */
export function streamFrames(model: string): Buffer[] {
  const deltas: object[] = [{ role: 'assistant', content: '', refusal: null }];
  while (deltas.length < FRAMES - 1) deltas.push({ content: WORDS[deltas.length % WORDS.length] });
  const choices = deltas.map((delta) => [{ index: 0, delta, logprobs: null, finish_reason: null }]);
  return [
    ...choices.map((choice) => frame(model, { choices: choice })),
    frame(model, { choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }] }),
    Buffer.from('data: [DONE]\n\n'),
  ];
}

/** The frame that an upstream adds before `[DONE]` when it is asked for usage. */
export function usageFrame(model: string): Buffer {
  const usage = { prompt_tokens: 103, completion_tokens: FRAMES - 2, total_tokens: 103 + FRAMES - 2 };
  return frame(model, { choices: [], usage });
}

function frame(model: string, rest: object): Buffer {
  const common = { id: ID, object: 'chat.completion.chunk', created: CREATED, model };
  const more = { service_tier: 'default', system_fingerprint: 'fp_44709d6fcb' };
  return Buffer.from(`data: ${JSON.stringify({ ...common, ...more, ...rest })}\n\n`);
}
