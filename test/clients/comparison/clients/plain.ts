// The calls for clients that are plain HTTP libraries, as requests to send, and what such a client prints of the answers. The
// programs themselves know nothing of the API: they send the bytes and print the bytes.
import { writeFile } from 'node:fs/promises';
import { tempDir } from '../../../helpers/wait.ts';
import { runProgram } from '../program.ts';
import {
  CALLS,
  type CallResult,
  type ComparedClient,
  promptOf,
  type Target,
  UNKNOWN_MODEL,
} from '../types.ts';

interface PlainRequest {
  readonly method: string;
  /** Behind the base URL. */
  readonly path: string;
  readonly contentType: string;
  readonly body: Buffer;
}

/** The result that a program prints for a call. */
interface PlainAnswer {
  readonly status: number;
  /** By their names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Base64. */
  readonly body: string;
}

const SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
};
const FUNCTION = { name: 'get_weather', description: 'The weather in a city.', parameters: SCHEMA };
const BOUNDARY = 'comparison-boundary';

/** What a call adds to the body that all of its endpoint have. */
const CHAT: Readonly<Record<string, object>> = {
  chat: {},
  'chat.stream': { stream: true },
  'chat.stream.usage': { stream: true, stream_options: { include_usage: true } },
  'chat.tools': { tools: [{ type: 'function', function: FUNCTION }] },
  'chat.tools.stream': { tools: [{ type: 'function', function: FUNCTION }], stream: true },
  'chat.json_schema': {
    response_format: { type: 'json_schema', json_schema: { name: 'city', schema: SCHEMA, strict: true } },
  },
  'chat.n2': { n: 2 },
  'chat.logprobs': { logprobs: true, top_logprobs: 2 },
  'chat.reasoning': { reasoning_effort: 'low' },
  'error.unknown_model': { model: UNKNOWN_MODEL },
  'error.bad_request': {},
  'error.rate_limit': {},
  'error.server': {},
};
const RESPONSES: Readonly<Record<string, object>> = {
  responses: {},
  'responses.stream': { stream: true },
  'responses.tools': { tools: [{ type: 'function', ...FUNCTION, strict: true }] },
};
const EMBEDDINGS: Readonly<Record<string, object>> = {
  embeddings: { encoding_format: 'float' },
  'embeddings.base64': { encoding_format: 'base64' },
};
const IMAGES: Readonly<Record<string, object>> = { images: {}, 'images.stream': { stream: true } };

/** The request of a call, with the same body whichever program sends it. */
export function plainRequest(call: string, { model, embeddingModel }: Target): PlainRequest {
  const prompt = promptOf(call);
  const get = (path: string): PlainRequest => ({ method: 'GET', path, contentType: '', body: Buffer.of() });
  const post = (path: string, body: object): PlainRequest => ({
    method: 'POST',
    path,
    contentType: 'application/json',
    body: Buffer.from(JSON.stringify(body)),
  });
  const chat = CHAT[call];
  if (chat !== undefined) {
    return post('/chat/completions', { model, messages: [{ role: 'user', content: prompt }], ...chat });
  }
  if (call in RESPONSES) return post('/responses', { model, input: prompt, ...RESPONSES[call] });
  if (call in EMBEDDINGS) {
    return post('/embeddings', { model: embeddingModel, input: prompt, ...EMBEDDINGS[call] });
  }
  if (call in IMAGES) return post('/images/generations', { model, prompt, ...IMAGES[call] });
  switch (call) {
    case 'models.list':
      return get('/models');
    case 'models.retrieve':
      return get(`/models/${encodeURIComponent(model)}`);
    case 'speech':
      return post('/audio/speech', { model, input: prompt, voice: 'alloy' });
    case 'transcription':
      return {
        method: 'POST',
        path: '/audio/transcriptions',
        contentType: `multipart/form-data; boundary=${BOUNDARY}`,
        body: form({ model, prompt }),
      };
    case 'moderations':
      return post('/moderations', { model, input: prompt });
    case 'completions':
      return post('/completions', { model, prompt });
    default:
      throw new Error(`no such call: ${call}`);
  }
}

interface PlainProgram {
  readonly name: string;
  /** Returns the version of the library. */
  readonly prepare: () => Promise<string>;
  readonly command: string;
  readonly words: readonly string[];
  readonly options?: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> };
}

/**
 * The client of a program that reads the file `REQUESTS`: a line for each call, with its name, method, path, content type and
 * body in Base64, separated by tabs.
 */
export function plainClient({ name, prepare, command, words, options = {} }: PlainProgram): ComparedClient {
  let version = '';
  return {
    name,
    get version() {
      return version;
    },
    calls: CALLS,
    prepare: async () => {
      version = await prepare();
    },
    run: async (target, calls) => {
      await using directory = await tempDir();
      const requests = directory.file('requests');
      await writeFile(requests, calls.map((call) => lineOf(call, target)).join('\n'));
      const env = { ...options.env, REQUESTS: requests };
      return readAnswers(await runProgram(command, words, target, calls, { ...options, env }));
    },
  };
}

function lineOf(call: string, target: Target): string {
  const { method, path, contentType, body } = plainRequest(call, target);
  return [call, method, path, contentType, body.toString('base64')].join('\t');
}

/** Reads the bodies of what a program printed: JSON as it is, an event stream as the list of its lines. A status from 400 on is an error. */
export function readAnswers(results: readonly CallResult[]): CallResult[] {
  return results.map((line) => {
    if (!isAnswer(line.result)) return line;
    const { status, headers, body } = line.result;
    const answer = { status, headers, body: readBody(headers['content-type'] ?? '', body) };
    return status < 400
      ? { call: line.call, result: answer }
      : { call: line.call, error: { class: `HTTP ${status}`, ...answer } };
  });
}

function readBody(contentType: string, base64: string): unknown {
  const bytes = Buffer.from(base64, 'base64');
  if (/^application\/json\b/i.test(contentType)) return parsed(bytes.toString());
  if (!/^text\/event-stream\b/i.test(contentType)) return base64;
  const text = bytes.toString();
  // An event ends with an empty line.
  return { lines: text.trimEnd().split(/\r?\n/).map(readLine), isComplete: /\n\r?\n$/.test(text) };
}

function readLine(line: string): unknown {
  const data = /^data: ?(\{.*)$/.exec(line)?.[1];
  return data === undefined ? line : { data: parsed(data) };
}

/** What is no JSON is compared as text. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function form(fields: Readonly<Record<string, string>>): Buffer {
  const parts = Object.entries(fields).map(
    ([name, value]) => `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
  );
  const file = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="silence.wav"\r\nContent-Type: audio/wav\r\n\r\n`;
  return Buffer.concat([
    Buffer.from(parts.join('') + file),
    silence(),
    Buffer.from(`\r\n--${BOUNDARY}--\r\n`),
  ]);
}

/** A wave file of a tenth of a second: 16 bits, one channel, 8 kHz. */
function silence(): Buffer {
  const header = Buffer.from(
    'RIFF\x64\x06\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x40\x06\0\0',
    'latin1',
  );
  return Buffer.concat([header, Buffer.alloc(1600)]);
}

function isAnswer(value: unknown): value is PlainAnswer {
  return typeof value === 'object' && value !== null && 'headers' in value && 'body' in value;
}
