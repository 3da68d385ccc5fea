// Endpoints of the echo upstream besides text: minimal valid answers, deterministic per request.
import { createHash, randomUUID } from 'node:crypto';
import {
  answerOf,
  contentText,
  type EchoAnswer,
  EchoFault,
  type EchoRequest,
  echoTokens,
  isRecord,
  jsonAnswer,
  streamAnswer,
} from './echo-answer.ts';
import { textsOf } from './echo-completions.ts';

/** Few, because the vectors are not for search; equal texts have equal vectors. */
const DIMENSIONS = 8;
const MAX_INPUTS = 2048;
const MAX_IMAGES = 10;

/** A GIF of one transparent pixel. */
const PIXEL = 'R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7';
/** A tenth of a second of silence: 8 bits, 8000 samples per second. */
const SILENCE = Buffer.alloc(800, 0x80);
/** The header of a WAV file with `SILENCE`. */
const WAV_HEADER = Buffer.from('UklGRkQDAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YSADAAA=', 'base64');

export function embed({ model, members }: EchoRequest): EchoAnswer {
  const inputs = textsOf(members['input']);
  if (inputs.length === 0 || inputs.length > MAX_INPUTS)
    throw new EchoFault(`Invalid 'input': expected 1 to ${MAX_INPUTS} texts.`, 'input', 'invalid_type');
  const isBase64 = members['encoding_format'] === 'base64';
  const data = inputs.map((input, index) => {
    const vector = vectorOf(input);
    const embedding = isBase64 ? Buffer.from(vector.buffer).toString('base64') : [...vector];
    return { object: 'embedding', index, embedding };
  });
  const count = inputs.reduce((sum, input) => sum + echoTokens(input), 0);
  return jsonAnswer({ object: 'list', data, model, usage: { prompt_tokens: count, total_tokens: count } });
}

/** A unit vector derived from a digest of the text. */
function vectorOf(text: string): Float32Array {
  const digest = createHash('sha256').update(text).digest();
  const raw = Array.from({ length: DIMENSIONS }, (_, at) => digest.readInt32LE(4 * at) / 2 ** 31);
  const length = Math.hypot(...raw) || 1;
  return Float32Array.from(raw, (each) => each / length);
}

export function moderate({ model, members: { input } }: EchoRequest): EchoAnswer {
  const inputs = Array.isArray(input) && input.some(isRecord) ? [contentText(input) ?? ''] : textsOf(input);
  if (inputs.length === 0) throw new EchoFault("Missing required parameter: 'input'.", 'input');
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
  return jsonAnswer({ id: `modr_${randomUUID()}`, model, results });
}

/** @param kind prefix of the event types */
export function draw({ model, members, created }: EchoRequest, kind = 'image_generation'): EchoAnswer {
  const { prompt, n } = members;
  if (typeof prompt !== 'string') throw new EchoFault("Missing required parameter: 'prompt'.", 'prompt');
  const count = typeof n === 'number' && Number.isInteger(n) && n >= 1 && n <= MAX_IMAGES ? n : 1;
  const input = echoTokens(prompt);
  const usage = { input_tokens: input, output_tokens: count, total_tokens: input + count };
  if (members['stream'] !== true)
    return jsonAnswer({ created, model, data: new Array(count).fill({ b64_json: PIXEL }), usage });
  const image = { b64_json: PIXEL, created_at: created, size: '1x1', output_format: 'gif' };
  return streamAnswer([
    { type: `${kind}.partial_image`, partial_image_index: 0, ...image },
    { type: `${kind}.completed`, ...image, usage },
  ]);
}

export function speak({ members }: EchoRequest): EchoAnswer {
  const { input } = members;
  if (typeof input !== 'string') throw new EchoFault("Missing required parameter: 'input'.", 'input');
  if (members['stream_format'] !== 'sse') return answerOf('audio/wav', WAV_HEADER, SILENCE);
  const count = echoTokens(input);
  return streamAnswer([
    { type: 'speech.audio.delta', audio: Buffer.concat([WAV_HEADER, SILENCE]).toString('base64') },
    {
      type: 'speech.audio.done',
      usage: { input_tokens: count, output_tokens: 1, total_tokens: count + 1 },
    },
  ]);
}
