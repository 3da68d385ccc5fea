// The built-in `echo` model: a small OpenAI-compatible model in the process, for trying the gateway and for testing it.
// It answers what a vendor would answer, errors included; it holds no state and reads no headers.
import { randomBytes } from 'node:crypto';
import { GatewayError } from '../errors.ts';
import type { Call, ResponseHeaders, Sink, Transport, UpstreamRequest } from './transport.ts';

export interface EchoOptions {
  /** Milliseconds before the answer, and between two pieces of a streamed one. Default 20. */
  readonly delay?: number;
  /** Unix time in seconds for `created`. */
  readonly clock?: () => number;
}

/** What is still to be told to the sink. */
type Event =
  | { readonly kind: 'head'; readonly status: number; readonly headers: ResponseHeaders }
  | { readonly kind: 'data'; readonly bytes: Buffer }
  | { readonly kind: 'error'; readonly error: GatewayError };

/** What the request asks for, as far as this model understands it. */
interface Ask {
  readonly kind: 'ask';
  readonly model: string;
  /** What the request counts as, in tokens. */
  readonly promptTokens: number;
  readonly reply: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly maxTokens: number;
}

/** A request that a vendor would refuse with 400. */
interface Refusal {
  readonly kind: 'refusal';
  readonly message: string;
  readonly param: string | null;
  readonly code: string | null;
}

/** What OpenAI's chat format adds per message, roughly. */
const TOKENS_PER_MESSAGE = 4;

/** Like any model this one has a longest answer, whatever it was told; more ends with `length`. */
const LONGEST_ANSWER = 2_000;

/** Characters that one token has at most: what of a text must be read to find `LONGEST_ANSWER` tokens. */
const LONGEST_TOKEN = 24;

export class EchoTransport implements Transport {
  readonly #delay: number;
  readonly #clock: () => number;
  readonly #calls = new Set<EchoCall>();
  #closed = false;

  constructor(options: EchoOptions = {}) {
    this.#delay = options.delay ?? 20;
    this.#clock = options.clock ?? (() => Math.floor(Date.now() / 1000));
  }

  send(request: UpstreamRequest, sink: Sink): Call {
    const events: Event[] = this.#closed
      ? [{ kind: 'error', error: new GatewayError('upstream_unreachable') }]
      : answer(request.body, this.#clock());
    const call = new EchoCall(events, this.#delay, sink, () => this.#calls.delete(call));
    this.#calls.add(call);
    call.resume();
    return call;
  }

  async retire(): Promise<void> {
    this.#closed = true;
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const call of this.#calls) call.abort();
  }
}

/** Plays one answer to a sink, an event per timer, so that nothing arrives inside `send` or while paused. */
class EchoCall implements Call {
  readonly #events: Event[];
  readonly #delay: number;
  readonly #sink: Sink;
  readonly #onOver: () => void;
  #timer: NodeJS.Timeout | undefined;
  #paused = true;
  #over = false;

  constructor(events: Event[], delay: number, sink: Sink, onOver: () => void) {
    this.#events = events;
    this.#delay = delay;
    this.#sink = sink;
    this.#onOver = onOver;
  }

  pause(): void {
    this.#paused = true;
    clearTimeout(this.#timer);
  }

  resume(): void {
    if (this.#over || !this.#paused) return;
    this.#paused = false;
    this.#schedule();
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#timer);
    this.#onOver();
  }

  #schedule(): void {
    // Thinking comes before text: the head is sent at once, and so is the end after the last byte.
    const waits = this.#events[0]?.kind === 'data';
    // A sink may pause and resume while it is being told something: never two timers.
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#next(), waits ? this.#delay : 0);
  }

  #next(): void {
    const event = this.#events.shift();
    if (event === undefined || event.kind === 'error') {
      this.abort();
      if (event === undefined) this.#sink.onEnd();
      else this.#sink.onError(event.error, 'not_sent');
      return;
    }
    if (event.kind === 'head') this.#sink.onHead(event.status, event.headers);
    else this.#sink.onData(event.bytes);
    if (!this.#paused && !this.#over) this.#schedule();
  }
}

function answer(body: Buffer, created: number): Event[] {
  const ask = understand(body);
  if (ask.kind === 'refusal') {
    const error = { message: ask.message, type: 'invalid_request_error', param: ask.param, code: ask.code };
    return jsonAnswer(400, { error });
  }
  const all = pieces(ask.reply);
  const said = all.slice(0, ask.maxTokens);
  const finish = said.length < all.length ? 'length' : 'stop';
  const usage = {
    prompt_tokens: ask.promptTokens,
    completion_tokens: said.length,
    total_tokens: ask.promptTokens + said.length,
  };
  const id = `chatcmpl-${randomBytes(12).toString('hex')}`;
  const common = { created, model: ask.model, system_fingerprint: 'fp_echo' };
  if (!ask.stream) {
    const message = { role: 'assistant', content: said.join(''), refusal: null };
    const choice = { index: 0, message, logprobs: null, finish_reason: finish };
    return jsonAnswer(200, { id, object: 'chat.completion', ...common, choices: [choice], usage });
  }
  const chunk = (delta: object, finishReason: string | null = null): object => ({
    id,
    object: 'chat.completion.chunk',
    ...common,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
    ...(ask.includeUsage ? { usage: null } : {}),
  });
  const chunks = [
    chunk({ role: 'assistant', content: '', refusal: null }),
    ...said.map((content) => chunk({ content })),
    chunk({}, finish),
    ...(ask.includeUsage ? [{ id, object: 'chat.completion.chunk', ...common, choices: [], usage }] : []),
  ];
  return [
    { kind: 'head', status: 200, headers: { 'content-type': 'text/event-stream; charset=utf-8' } },
    ...chunks.map((each) => dataEvent(`data: ${JSON.stringify(each)}\n\n`)),
    dataEvent('data: [DONE]\n\n'),
  ];
}

function jsonAnswer(status: number, value: object): Event[] {
  const data = dataEvent(JSON.stringify(value));
  const headers = { 'content-type': 'application/json', 'content-length': String(data.bytes.length) };
  return [{ kind: 'head', status, headers }, data];
}

function dataEvent(text: string): { kind: 'data'; bytes: Buffer } {
  return { kind: 'data', bytes: Buffer.from(text) };
}

/** Words with the space before them, long ones in parts: what this model streams and counts as tokens. */
function pieces(text: string): string[] {
  const read = text.slice(0, (LONGEST_ANSWER + 1) * LONGEST_TOKEN);
  return read.match(/\s{0,8}\S{1,8}|\s{1,8}/gu) ?? [];
}

function understand(bytes: Buffer): Ask | Refusal {
  let body: unknown;
  try {
    body = JSON.parse(bytes.toString('utf8'));
  } catch {
    return refuse('The body is not valid JSON.', null, null);
  }
  if (!isRecord(body)) return refuse('The body is not a JSON object.', null, null);
  const { messages, model, stream } = body;
  if (typeof model !== 'string') return refuse('You must provide a model parameter.', 'model', null);
  if (messages === undefined) {
    return refuse("Missing required parameter: 'messages'.", 'messages', 'missing_required_parameter');
  }
  if (!Array.isArray(messages)) {
    return refuse("Invalid type for 'messages': expected an array.", 'messages', 'invalid_type');
  }
  if (messages.length === 0) {
    return refuse("Invalid 'messages': empty array.", 'messages', 'empty_array');
  }
  const read = readMessages(messages);
  if (read.kind === 'refusal') return read;
  const maxTokens = readMaxTokens(body);
  if (typeof maxTokens === 'object') return maxTokens;
  const options = body['stream_options'];
  return {
    kind: 'ask',
    model,
    promptTokens: read.tokens,
    reply: read.said === undefined ? 'Say something, and I will say it back.' : `You said: ${read.said}`,
    stream: stream === true,
    includeUsage: isRecord(options) && options['include_usage'] === true,
    maxTokens,
  };
}

interface Messages {
  readonly kind: 'messages';
  readonly tokens: number;
  readonly said: string | undefined;
}

/** How long the messages are, and what the last message of a user said. */
function readMessages(messages: readonly unknown[]): Messages | Refusal {
  let tokens = 0;
  let said: string | undefined;
  for (const [index, message] of messages.entries()) {
    const place = `messages[${index}]`;
    if (!isRecord(message) || typeof message['role'] !== 'string') {
      return refuse(`Invalid '${place}': a message is an object with a role.`, place, 'invalid_type');
    }
    const text = contentText(message['content']);
    if (text === undefined) {
      const param = `${place}.content`;
      return refuse(
        `Invalid type for '${param}': expected a string or an array of parts.`,
        param,
        'invalid_type',
      );
    }
    // Four characters a token is close enough for a long prompt, and costs nothing.
    tokens += TOKENS_PER_MESSAGE + Math.ceil(text.length / 4);
    if (message['role'] === 'user') said = text;
  }
  return { kind: 'messages', tokens, said };
}

/** Parts that hold no text (images, audio) say nothing here. */
function contentText(content: unknown): string | undefined {
  if (content === undefined || content === null) return '';
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return undefined;
  return content
    .map((part: unknown) => (isRecord(part) && typeof part['text'] === 'string' ? part['text'] : ''))
    .join('');
}

function readMaxTokens(body: Record<string, unknown>): number | Refusal {
  for (const name of ['max_completion_tokens', 'max_tokens']) {
    const value = body[name];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'number' || !Number.isInteger(value)) {
      return refuse(`Invalid type for '${name}': expected an integer.`, name, 'invalid_type');
    }
    if (value < 1) {
      return refuse(`Invalid '${name}': expected a value of at least 1.`, name, 'integer_below_min_value');
    }
    return Math.min(value, LONGEST_ANSWER);
  }
  return LONGEST_ANSWER;
}

function refuse(message: string, param: string | null, code: string | null): Refusal {
  return { kind: 'refusal', message, param, code };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
