// The bound that docs/limits.md states: of what an upstream bills for output, at least COUNTED_SHARE is counted, wherever a client
// leaves a stream, whatever its frames look like. The relay, the frame readers and the meter are the real ones; time is simulated.
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { BufferPool } from '../../src/http/pieces/buffer-pool.ts';
import { StreamRelay } from '../../src/proxy/answer/stream/stream-relay.ts';
import { AttemptOutput, MIN_SILENCE_MS } from '../../src/proxy/attempts/attempt-output.ts';
import {
  type AttemptResult,
  type Receiver,
  type RelayRequest,
  resultCodeOf,
  type Source,
} from '../../src/proxy/contracts/receiver.ts';
import { CHAT, COMPLETIONS, RESPONSES } from '../../src/proxy/endpoints/json-endpoints.ts';
import { BYTES_PER_TOKEN } from '../../src/proxy/request/token-estimate.ts';
import {
  COUNTED_SHARE,
  HIDDEN_TOKENS_PER_SECOND,
  PREFILL_MS,
  UsageMeter,
} from '../../src/proxy/reservation/usage-meter.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { USAGE_READ_MS } from '../../src/upstream/usage-reads.ts';
import { MEDIA_BYTES_PER_TOKEN } from '../../src/wire/output-text.ts';

/** As fast as the documentation says that a model may think unseen. */
const FASTEST = HIDDEN_TOKENS_PER_SECOND / COUNTED_SHARE;
const ESTIMATE = { prompt: 40, completion: 256, isBounded: false };
const PROMPT = 33;

const metrics = createMetrics();
const buffers = new BufferPool();

/** Where a piece of text stands in a delta of chat. */
const FIELDS = {
  content: (text: string) => ({ content: text }),
  parts: (text: string) => ({ content: [{ type: 'text', text }] }),
  refusal: (text: string) => ({ refusal: text, content: null }),
  reasoning_content: (text: string) => ({ reasoning_content: text }),
  twice: (text: string) => ({
    reasoning: text,
    reasoning_content: text,
    reasoning_details: [{ type: 'reasoning.text', text }],
  }),
  unknown: (text: string) => ({ inner_monologue: text }),
  arguments: (text: string) => ({ tool_calls: [{ index: 0, function: { arguments: text } }] }),
  name: (text: string) => ({
    tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: text } }],
  }),
  legacy: (text: string) => ({ function_call: { name: 'f', arguments: text } }),
  transcript: (text: string) => ({ audio: { id: 'audio_1', transcript: text } }),
  image: (text: string) => ({
    images: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${text}` } }],
  }),
  sound: (text: string) => ({ audio: { id: 'audio_1', data: text } }),
} as const;
type Field = keyof typeof FIELDS;
const FIELD_NAMES: Field[] = [
  'content',
  'parts',
  'refusal',
  'reasoning_content',
  'twice',
  'unknown',
  'arguments',
  'name',
  'legacy',
  'transcript',
  'image',
  'sound',
];
const isMedia = (field: Field) => field === 'image' || field === 'sound';

/** The events of a response that hold a piece of text. */
const EVENTS = [
  'response.output_text',
  'response.refusal',
  'response.reasoning_text',
  'response.reasoning_summary_text',
  'response.function_call_arguments',
  'response.code_interpreter_call_code',
  'response.audio.transcript',
] as const;

interface Piece {
  readonly field: Field;
  readonly event: (typeof EVENTS)[number];
  readonly text: string;
  readonly choice: number;
  /** Before it, in which the model thinks unseen. */
  readonly pauseMs: number;
}

interface Frame {
  readonly bytes: Buffer;
  readonly pauseMs: number;
  /** What the upstream bills for it. */
  readonly tokens: number;
  /** At most so much may be counted for it. */
  readonly atMost: number;
  /** Behind it the upstream thinks no more. */
  readonly isEnd: boolean;
}

const text = fc
  .tuple(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 12 }), fc.constantFrom(1, 1, 1, 3, 40, 900))
  .map(([unit, times]) => unit.repeat(times));

const piece: fc.Arbitrary<Piece> = fc.record({
  field: fc.constantFrom(...FIELD_NAMES),
  event: fc.constantFrom(...EVENTS),
  text,
  choice: fc.nat(2),
  // Shorter pauses are the pace of the network.
  pauseMs: fc.oneof(
    { weight: 3, arbitrary: fc.constant(0) },
    { weight: 1, arbitrary: fc.integer({ min: 1_000, max: 30_000 }) },
  ),
});

const answer = fc.record({
  kind: fc.constantFrom('chat', 'completions', 'responses'),
  choices: fc.integer({ min: 1, max: 3 }),
  thinkMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 60_000 })),
  /** Tokens a second, of each choice. */
  rate: fc.integer({ min: 0, max: FASTEST }),
  bytesPerToken: fc.double({ min: 1, max: 8, noNaN: true }),
  pieces: fc.array(piece, { maxLength: 12 }),
  /** Before the finish reason, in which the model thinks unseen. */
  finishAfterMs: fc.oneof(fc.constant(0), fc.integer({ min: 1_000, max: 30_000 })),
  usageAfterMs: fc.integer({ min: 0, max: 2 * USAGE_READ_MS }),
  reports: fc.constantFrom('at the end', 'with each chunk', 'zeros', 'never'),
  /** Share of characters that are escaped, and from which. */
  escapes: fc.tuple(fc.constantFrom(0, 0, 0.1, 1), fc.nat(1_000)),
  cut: fc.nat(1_000),
  leavesAt: fc.nat(24),
});
type Answer = typeof answer extends fc.Arbitrary<infer T> ? T : never;

/** JSON with some of its characters, of names too, written as escapes. */
function encode(value: unknown, [share, seed]: readonly [number, number]): string {
  let at = seed;
  return JSON.stringify(value).replaceAll(
    /[^"\\{}[\]:,\d.\-\s]/gu,
    (character, offset: number, all: string) => {
      at = (at * 31 + offset) % 1_009;
      const isText =
        at / 1_009 < share && all[offset - 1] !== '\\' && !/^(?:true|false|null)/.test(all.slice(offset));
      return isText && isInString(all, offset)
        ? [...Array(character.length).keys()]
            .map((i) => `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`)
            .join('')
        : character;
    },
  );
}

function isInString(json: string, offset: number): boolean {
  let isIn = false;
  for (let i = 0; i < offset; i++) {
    if (json[i] === '\\') i += 1;
    else if (json[i] === '"') isIn = !isIn;
  }
  return isIn;
}

function framesOf(given: Answer): Frame[] {
  const { kind, bytesPerToken, escapes, reports } = given;
  // Escaping long texts character by character is slow, and tells nothing more.
  const write = (value: object) => encode(value, JSON.stringify(value).length > 2_000 ? [0, 0] : escapes);
  const used = { completion: 0 };
  const usage = (completion: number) =>
    kind === 'responses'
      ? { input_tokens: PROMPT, output_tokens: completion, total_tokens: PROMPT + completion }
      : { prompt_tokens: PROMPT, completion_tokens: completion, total_tokens: PROMPT + completion };
  const thinking = (ms: number) => Math.floor((ms / 1_000) * given.rate * choicesOf(given));
  const frames: Frame[] = [];
  const push = (data: string | object, more: Partial<Frame> = {}) => {
    const body = typeof data === 'string' ? data : write(data);
    const { pauseMs = 0, tokens = 0 } = more;
    used.completion += tokens + thinking(pauseMs);
    frames.push({
      bytes: Buffer.from(`data: ${body}\n\n`),
      pauseMs,
      tokens,
      atMost: 0,
      isEnd: false,
      ...more,
    });
  };
  const chunk = (choice: object) => {
    const told =
      reports === 'with each chunk'
        ? usage(used.completion)
        : { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
    const isTold = reports === 'with each chunk' || reports === 'zeros';
    return { id: 'c', model: 'm', choices: [choice], ...(isTold ? { usage: told } : {}) };
  };
  let thinkMs = given.thinkMs;
  if (kind === 'responses') push({ type: 'response.created', response: { id: 'r', usage: null } });
  else if (kind === 'chat')
    push({ id: 'c', choices: [{ index: 0, delta: { role: 'assistant', content: '' } }] });
  for (const { field, event, text: given_, choice, pauseMs } of given.pieces) {
    const bytes = Buffer.byteLength(given_);
    const media = kind === 'chat' && isMedia(field);
    const value = media ? Buffer.from(given_).toString('base64') : given_;
    // A piece is at least a token: a report of 0 beside output is no report.
    const tokens = Math.max(
      1,
      Math.floor(media ? value.length / MEDIA_BYTES_PER_TOKEN : bytes / bytesPerToken),
    );
    // An escape has at most six bytes for one.
    const atMost = media ? 2 + value.length / MEDIA_BYTES_PER_TOKEN : 2 + (6 * bytes + 10) / BYTES_PER_TOKEN;
    const more = { pauseMs: pauseMs + thinkMs, tokens, atMost };
    thinkMs = 0;
    used.completion += tokens + thinking(more.pauseMs);
    const body =
      kind === 'responses'
        ? { type: `${event}.delta`, delta: value, obfuscation: 'x'.repeat(40) }
        : chunk(
            kind === 'completions'
              ? { index: choice, text: value, logprobs: null }
              : {
                  index: choice,
                  delta: FIELDS[field](value),
                  logprobs: { content: [{ token: 't', bytes: [1] }] },
                },
          );
    used.completion -= tokens + thinking(more.pauseMs);
    push(body, more);
  }
  const pauseMs = given.finishAfterMs;
  const isEnd = true;
  if (kind === 'responses') {
    push({ type: 'response.output_text.done', text: '' }, { pauseMs });
    const told = reports === 'never' || reports === 'zeros' ? null : usage(used.completion);
    push(
      { type: 'response.completed', response: { id: 'r', usage: told } },
      { isEnd, pauseMs: given.usageAfterMs },
    );
  } else {
    const thought = thinking(pauseMs);
    used.completion += thought;
    const finish = chunk({ index: 0, delta: {}, text: '', finish_reason: 'stop' });
    used.completion -= thought;
    push(finish, { pauseMs });
    const isTold = reports === 'at the end' || reports === 'with each chunk';
    const last = { id: 'c', choices: [], usage: usage(used.completion) };
    if (isTold) push(last, { isEnd, pauseMs: given.usageAfterMs });
    push('[DONE]', { isEnd });
  }
  return frames;
}

/** Zeros before any output, which are no report: the model thinks. */
const ZEROS: Answer = {
  kind: 'chat',
  choices: 1,
  thinkMs: 0,
  rate: FASTEST,
  bytesPerToken: 1,
  pieces: [],
  finishAfterMs: 20_000,
  usageAfterMs: 0,
  reports: 'zeros',
  escapes: [0, 0],
  cut: 0,
  leavesAt: 2,
};

const choicesOf = ({ kind, choices }: Answer) => (kind === 'responses' ? 1 : choices);

interface Outcome {
  /** Tokens of output. */
  readonly billed: number;
  readonly counted: number;
  readonly atMost: number;
  readonly isEstimated: boolean;
}

function run(given: Answer): Outcome {
  const endpoint = { chat: CHAT, completions: COMPLETIONS, responses: RESPONSES }[given.kind];
  const message = new IncomingMessage(new Socket());
  const output = new AttemptOutput();
  let now = 0;
  let result: AttemptResult | undefined;
  const meter = new UsageMeter({ ...ESTIMATE, choices: choicesOf(given) });
  const fail = (reason: unknown) => {
    throw new Error('the relay gave up', { cause: reason });
  };
  const source: Source = {
    expects: () => undefined,
    reads: (next) => {
      receiver = next;
    },
    pause: () => {},
    resume: () => {},
    used: (usage, frames, textBytes = 0) => output.used(now, usage, frames, textBytes),
    progress: () => void output.progress(now),
    isUndecided: false,
    commit: () => true,
    lastFrame: () => undefined,
    unusable: fail,
    unrelayable: fail,
    crashed: fail,
    incomplete: fail,
    finish: (given_) => {
      result ??= given_;
    },
  };
  const request: RelayRequest = {
    exchange: new Exchange(message, new ServerResponse(message), '127.0.0.1'),
    endpoint,
    facts: { stream: true, estimate: ESTIMATE },
    alias: undefined,
    includeUsage: false,
    hideUsage: true,
    config: {
      max_answer: { frame: 1e6, json: 1e6, embeddings: 1e6 },
      stream: { commit_after: 1_000_000, keepalive: 1_000_000, write_stall: 1_000_000 },
      retry: { attempts: 1, budget: 0, deadline: 1e6, after_send: false },
    },
    metrics,
    buffers,
    meter,
  };
  const relay = new StreamRelay(request, {}, source);
  let receiver: Receiver = relay;
  const frames = framesOf(given);
  const rate = (given.rate / 1_000) * choicesOf(given);
  let [billed, thought, atMost] = [0, 0, 0];
  let [isLeft, leftAt] = [false, 0];
  output.sent(now);
  for (const [index, frame] of frames.entries()) {
    if (result !== undefined) break;
    const isLeaving = index === given.leavesAt;
    if (isLeaving && !isLeft) {
      // In the middle of the pause before the frame.
      now += frame.pauseMs / 2;
      if (!frame.isEnd) thought += Math.floor((frame.pauseMs / 2) * rate);
      isLeft = true;
      leftAt = now;
      if (!relay.leave())
        result = receiver.broken(new GatewayError('client_closed')) ?? {
          kind: 'answered',
          outcome: 'client_closed',
        };
      if (result !== undefined) break;
    }
    const pause = isLeaving ? frame.pauseMs / 2 : frame.pauseMs;
    if (isLeft && now + pause - leftAt > USAGE_READ_MS) {
      now = leftAt + USAGE_READ_MS;
      result = receiver.broken(new GatewayError('client_closed'));
      break;
    }
    now += pause;
    if (!frame.isEnd) thought += Math.floor(pause * rate);
    billed += frame.tokens;
    atMost += frame.atMost;
    const at = given.cut % frame.bytes.length;
    receiver.data(frame.bytes.subarray(0, at));
    receiver.data(frame.bytes.subarray(at));
  }
  if (result === undefined) receiver.end();
  receiver.dispose();
  if (result === undefined) throw new Error('no result');
  meter.add({
    upstream: 'up',
    provider: 'up',
    target: 'm',
    usage: output.usage,
    outputs: output.frames,
    unreported: output.unreported(now, false),
    isSent: true,
    outcome: resultCodeOf(result),
  });
  request.exchange.response.destroy();
  const reading = meter.read();
  if (reading === undefined) throw new Error('nothing was read');
  return {
    // Of an upstream that never reports, what a whole answer thought unseen is not counted.
    billed: resultCodeOf(result) === 'ok' && reading.isEstimated ? billed : billed + thought,
    counted: reading.tokens.completion,
    atMost: atMost + (now / 1_000) * HIDDEN_TOKENS_PER_SECOND * choicesOf(given) + thought + frames.length,
    isEstimated: reading.isEstimated,
  };
}

test('whoever leaves a stream anywhere is charged the stated share of it, and nothing that is no output', () => {
  let [estimated, reported] = [0, 0];
  fc.assert(
    fc.property(answer, (given) => {
      const { billed, counted, atMost, isEstimated } = run(given);
      // Two tokens for the fractions of text and of silence, and what is thought on the way and in the last pause.
      const slack = 2 + ((PREFILL_MS + MIN_SILENCE_MS) / 1_000) * FASTEST * choicesOf(given) * COUNTED_SHARE;
      expect(counted).toBeGreaterThanOrEqual(COUNTED_SHARE * billed - slack);
      if (isEstimated) estimated += 1;
      else reported += 1;
      expect(counted).toBeLessThanOrEqual(Math.ceil(atMost));
    }),
    { numRuns: Number(process.env['FUZZ_RUNS'] ?? 400), examples: [[ZEROS]] },
  );
  // Both happen often enough to mean something.
  expect(Math.min(estimated, reported)).toBeGreaterThan(50);
});

test('of a stream that is left behind its finish reason the reported usage is counted, to the token', () => {
  fc.assert(
    fc.property(
      answer.filter(({ reports }) => reports === 'at the end'),
      fc.integer({ min: 0, max: USAGE_READ_MS - 1 }),
      (given, usageAfterMs) => {
        const frames = framesOf({ ...given, usageAfterMs });
        const leavesAt = frames.length - (given.kind === 'responses' ? 1 : 2);
        const { billed, counted, isEstimated } = run({ ...given, usageAfterMs, leavesAt });
        expect(isEstimated).toBe(false);
        expect(Math.abs(counted - billed)).toBeLessThanOrEqual(given.pieces.length + 1);
      },
    ),
    { numRuns: Number(process.env['FUZZ_RUNS'] ?? 150) },
  );
});
