// The stream relay on any transcript, cut anywhere, with any line ends and any pace of the client: the same bytes and the
// same usage; and on any transcript that breaks off anywhere, an end that its client can tell from a whole one.
// FUZZ_RUNS sets the number of runs of each property.
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { flushWrites } from '../../src/http/exchange/write-batch.ts';
import { BufferPool } from '../../src/http/pieces/buffer-pool.ts';
import { StreamRelay } from '../../src/proxy/answer/stream/stream-relay.ts';
import type { AttemptResult, RelayRequest, Source } from '../../src/proxy/contracts/receiver.ts';
import { CHAT } from '../../src/proxy/endpoints/json-endpoints.ts';
import { UsageMeter } from '../../src/proxy/reservation/usage-meter.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { failure } from '../../src/upstream/error-outcome.ts';
import type { Usage } from '../../src/wire/token-usage.ts';
import { contentOf, lastContentOf } from '../helpers/chunked.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 1_500);
const metrics = createMetrics();
const ALIAS = Buffer.from('"the-alias"');

/** What was written to the client, and how it ended. */
class Client extends ServerResponse {
  readonly pieces: Buffer[] = [];
  ended = false;
  /** Which of the writes find the buffer full. */
  readonly #full: (write: number) => boolean;

  constructor(request: IncomingMessage, full: (write: number) => boolean) {
    super(request);
    this.#full = full;
  }

  override writeHead(): this {
    return this;
  }

  override flushHeaders(): void {}

  override write(chunk: unknown): boolean {
    this.pieces.push(contentOf(chunk));
    return !this.#full(this.pieces.length);
  }

  override end(chunk?: unknown): this {
    expect(String(chunk).endsWith('0\r\n\r\n')).toBe(true);
    this.pieces.push(lastContentOf(chunk));
    this.ended = true;
    return this;
  }

  get text(): string {
    return Buffer.concat(this.pieces).toString('latin1');
  }
}

class Run implements Source {
  readonly client: Client;
  readonly relay: StreamRelay;
  readonly exchange: Exchange;
  result: AttemptResult | undefined;
  usage: Usage | null = null;
  paused = false;

  constructor(hideUsage: boolean, full: (write: number) => boolean) {
    const request = new IncomingMessage(new Socket());
    this.client = new Client(request, full);
    this.exchange = new Exchange(request, this.client, '192.0.2.1');
    const chat: RelayRequest = {
      exchange: this.exchange,
      endpoint: CHAT,
      facts: { stream: true, estimate: { prompt: 1, completion: 1, isBounded: true } },
      alias: ALIAS,
      includeUsage: !hideUsage,
      hideUsage,
      config: {
        max_answer: { frame: 1e6, json: 1e6, embeddings: 1e6 },
        stream: { commit_after: 1e6, keepalive: 1e6, write_stall: 1e6 },
        retry: { attempts: 1, budget: 0, deadline: 1e6, after_send: false },
      },
      metrics,
      buffers: new BufferPool(),
      meter: new UsageMeter({ prompt: 1, completion: 1, isBounded: true }),
    };
    this.relay = new StreamRelay(chat, {}, this);
  }

  expects(): void {}

  reads(): void {}

  used(usage: Usage | null): void {
    this.usage = usage;
  }

  readonly isUndecided = false;

  commit(): boolean {
    return true;
  }

  crashed(error: unknown): void {
    throw error;
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }

  progress(): void {}

  lastFrame(): void {}

  unusable(cause: unknown): void {
    this.fail(new GatewayError('upstream_invalid_response', undefined, { cause }));
  }

  unrelayable(why: string): void {
    this.fail(new GatewayError('upstream_unusable_response', why));
  }

  incomplete(cause: unknown): void {
    this.fail(new GatewayError('stream_incomplete', undefined, { cause }));
  }

  fail(error: GatewayError): void {
    if (this.result !== undefined) return;
    this.finish(this.relay.broken(error) ?? { kind: 'failed', failure: failure(error, true) });
    flushWrites();
  }

  finish(result: AttemptResult): void {
    this.result ??= result;
    this.relay.dispose();
  }

  /** Hands over the pieces; a client that was full reads before the next one. */
  feed(pieces: Iterable<Buffer>): void {
    for (const piece of pieces) {
      if (this.paused) this.client.emit('drain');
      this.relay.data(piece);
      // Some pieces come in one turn, others in several.
      if (piece.length % 3 !== 0) flushWrites();
    }
    flushWrites();
    if (this.paused) this.client.emit('drain');
  }

  /** The upstream's answer ends. */
  end(): void {
    this.relay.end();
    flushWrites();
  }
}

// --- transcripts -------------------------------------------------------------------------------------------------------

/** One frame: what the upstream sends, what the client reads of it, and what it means. Line ends are LF so far. */
interface Frame {
  readonly sent: string;
  readonly read: string;
  readonly output?: true;
  readonly finish?: true;
  readonly done?: true;
  readonly error?: true;
  readonly usage?: readonly [number, number];
  /** Of a hidden usage chunk: what is left of it. It goes into the held finish chunk; `read` is what is read before the finish. */
  readonly rest?: string;
}

const same = (text: string, more: Omit<Frame, 'sent' | 'read'> = {}): Frame => ({
  sent: text,
  read: text,
  ...more,
});

/** Bytes as latin1 characters, so that strings can be cut anywhere. */
const latin = (text: string) => Buffer.from(text).toString('latin1');

const space = fc.constantFrom('', ' ', '  ', '\t');
const text = fc
  .string({ unit: 'grapheme', minLength: 1, maxLength: 12 })
  .map((it) => latin(JSON.stringify(it)));
const upstreamModel = fc.constantFrom(
  '"up"',
  '"a-much-longer-model-name-of-the-upstream"',
  '""',
  '"\\u0075p"',
  '"the-alias"',
);

const content = fc
  .tuple(text, upstreamModel, space, fc.constantFrom('content', 'reasoning_content', 'refusal'))
  .map(([said, model, pad, key]): Frame => {
    const chunk = (name: string) =>
      `data: {"id":"x",${pad}"model"${pad}:${pad}${name},"choices":[{"index":0,"delta":{"${key}":${said}},"finish_reason":null}],"created":12345678901234567890}\n\n`;
    return { sent: chunk(model), read: chunk('"the-alias"'), output: true };
  });
const bare = text.map((said) =>
  same(`data:{"choices":[{"delta":{"content":${said}}}]}\n\n`, { output: true }),
);
const lines = text.map((said) =>
  same(`data: {"choices":[{"delta":\ndata:{"content":${said}}}]}\n\n`, { output: true }),
);
const role = fc.constant(same('data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'));
const comment = fc
  .string({ unit: 'grapheme', maxLength: 10 })
  .map((it) => same(`: ${latin(it.replaceAll(/[\r\n]/g, ' '))}\n\n`));
const odd = fc.constantFrom(same('data: not json\n\n'), same(': a\n: b\n\n'), same('unknown: field\n\n'));
const surplus = fc
  .constantFrom(
    'retry: 1\n\n',
    'id: 1\n\n',
    'id\n\n',
    'event: ping\n\n',
    'id: 1\nretry: 2\n\n',
    'data\n\n',
    'data: \n\n',
  )
  .map((sent): Frame => ({ sent, read: '' }));
const withId = text.map((said): Frame => {
  const data = `data: {"choices":[{"delta":{"content":${said}}}]}\n`;
  return { sent: `id: 7\n${data}\n`, read: `${data}\n`, output: true };
});
const count = fc.integer({ min: 1, max: 1_000_000 });
const usageFrame = (hide: boolean) =>
  fc.tuple(count, count, fc.boolean()).map(([prompt, completion, hasMore]): Frame => {
    const chunk = (choices: string, more: string) => `data: {"choices":${choices}${more}}\n\n`;
    const counts = `,"usage":{"prompt_tokens":${prompt},"completion_tokens":${completion}}`;
    const rest = hasMore ? `,"timings":{"n": ${prompt}}` : '';
    const sent = chunk('[]', counts + rest);
    const own = hasMore ? chunk('[{"index":0,"delta":{},"finish_reason":null}]', rest) : '';
    return { sent, read: hide ? own : sent, usage: [prompt, completion], ...(hide ? { rest } : {}) };
  });
const error = fc.constantFrom(
  same('data: {"error":{"message":"m","code":429}}\n\n', { error: true }),
  same('event: error\ndata: {"message":"m"}\n\n', { error: true }),
  same('data: {"error":"x","choices":[{"delta":{},"finish_reason":"error"}]}\n\n', { error: true }),
);
const finish = fc
  .constantFrom(
    'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    'event: x\ndata: {"choices":\ndata:[{"index":0,"delta":{},"finish_reason":"stop"}]\ndata:}\n: comment\n\n',
  )
  .map((sent) => same(sent, { finish: true }));
const done = same('data: [DONE]\n\n', { done: true });

interface Transcript {
  readonly hide: boolean;
  readonly frames: readonly Frame[];
  readonly sent: Buffer;
  readonly read: string;
  /** Offsets in `sent` behind each frame. */
  readonly ends: readonly number[];
  /** How it reads, and how it reads when it breaks off before the usage that goes into the finish chunk. */
  readonly readings: readonly Reading[];
}

interface Reading {
  readonly text: string;
  /** Offsets at which a frame may begin. Within a last CRLF is one too: the frame was complete at its CR. */
  readonly boundaries: ReadonlySet<number>;
}

/** @param merges whether what is left of the usage chunk comes in time for the finish chunk */
function readingOf(frames: readonly Frame[], eols: readonly string[], merges: boolean): Reading {
  const reads: string[] = [];
  let finishAt = -1;
  let isHeld = false;
  for (const [index, { sent, read, finish: isFinish, rest }] of frames.entries()) {
    reads.push(finishAt >= 0 && rest !== undefined ? '' : read);
    const finishRead = reads[finishAt];
    if (isHeld && merges && rest !== undefined && finishRead !== undefined) {
      const brace = finishRead.lastIndexOf('}');
      reads[finishAt] = finishRead.slice(0, brace) + rest + finishRead.slice(brace);
    }
    if (isFinish) finishAt = index;
    isHeld = isFinish === true || (isHeld && !/^data: *\S/m.test(sent));
  }
  let text = '';
  const boundaries = new Set([0]);
  for (const [index, read] of reads.entries()) {
    const eol = eols[index % eols.length] ?? '\n';
    text += read.replaceAll('\n', eol);
    boundaries.add(text.length);
    if (eol === '\r\n' && read !== '') boundaries.add(text.length - 1);
  }
  return { text, boundaries };
}

const EOLS = ['\n', '\r\n', '\r'] as const;

/** @param withErrors whether error frames of the upstream are among them */
function transcripts(withErrors: boolean): fc.Arbitrary<Transcript> {
  return fc.boolean().chain((hide) =>
    fc
      .tuple(
        fc.array(
          fc.oneof(
            { weight: 6, arbitrary: content },
            ...(withErrors ? [error] : []),
            bare,
            lines,
            role,
            comment,
            odd,
            surplus,
            withId,
            usageFrame(hide),
          ),
          { maxLength: 12 },
        ),
        fc.oneof(
          fc.constantFrom([], [done]),
          finish.map((it) => [it]),
          finish.map((it) => [it, done]),
        ),
        fc.array(fc.constantFrom(...EOLS), { minLength: 1, maxLength: 5 }),
        fc.array(fc.oneof(usageFrame(hide), comment, surplus, ...(withErrors ? [error] : [])), {
          maxLength: 3,
        }),
      )
      .map(([body, end, eols, between]) => {
        const [first, ...rest] = end;
        // Usage comes behind the finish reason and before [DONE].
        const tail = first?.done
          ? [...between, first]
          : first === undefined
            ? []
            : [first, ...between, ...rest];
        const frames = [...body, ...tail];
        let sent = '';
        const ends: number[] = [];
        for (const [index, frame] of frames.entries()) {
          sent += frame.sent.replaceAll('\n', eols[index % eols.length] ?? '\n');
          ends.push(sent.length);
        }
        const readings = [readingOf(frames, eols, true), readingOf(frames, eols, false)];
        const read = readings[0]?.text ?? '';
        return { hide, frames, sent: Buffer.from(sent, 'latin1'), read, ends, readings };
      }),
  );
}

/** Where to cut: fractions, so that one choice fits every length. (Doubles would be near 0 and 1 nearly always.) */
const fraction = fc.integer({ min: 0, max: 999_999 }).map((millionths) => millionths / 1e6);
const cuts = fc.oneof(fc.constant('bytes' as const), fc.array(fraction, { maxLength: 20 }));

function* pieces(bytes: Buffer, at: 'bytes' | readonly number[]): Generator<Buffer> {
  const places =
    at === 'bytes'
      ? Array.from({ length: bytes.length }, (_, index) => index)
      : at.map((place) => Math.floor(place * bytes.length)).sort((a, b) => a - b);
  let from = 0;
  for (const to of [...places, bytes.length]) {
    if (to > from) yield bytes.subarray(from, to);
    from = to;
  }
}

const pace = fc.constantFrom(
  () => false,
  () => true,
  (write: number) => write % 3 === 0,
);

const ERROR =
  /data: \{"error":\{"message":"[^"]*","type":"server_error","param":null,"code":"(\w+)"\}\}\n\n$/;

/** What the frames say, one after the other. */
function meaning(frames: readonly Frame[]) {
  let [isOpen, isFinished, isFailed, isDone] = [false, false, false, false];
  let usage: readonly (number | undefined)[] = [undefined, undefined];
  for (const frame of frames) {
    if (frame.error && !isOpen) break;
    isFailed ||= frame.error === true;
    isFinished ||= frame.finish === true;
    isDone ||= frame.done === true;
    isOpen ||= frame.output === true || isFinished || isDone;
    usage = frame.usage ?? usage;
  }
  return { isOpen, isFailed, isWhole: isDone || isFinished, usage };
}

test('any split of any transcript gives the same bytes, the same end and the same usage', () => {
  fc.assert(
    fc.property(transcripts(true), cuts, pace, (script, at, full) => {
      const run = new Run(script.hide, full);
      run.feed(pieces(script.sent, at));
      run.end();
      const { isOpen, isFailed, isWhole, usage } = meaning(script.frames);
      const answered = (outcome: string) => ({ kind: 'answered', outcome });
      if (!isOpen) {
        expect([run.client.text, run.client.ended, run.result?.kind]).toEqual(['', false, 'failed']);
      } else if (isFailed || isWhole) {
        expect(run.client.text).toBe(script.read);
        expect(run.client.ended).toBe(true);
        expect(run.result).toEqual(answered(isFailed ? 'upstream_error' : 'ok'));
      } else {
        expect(run.client.text.replace(ERROR, '')).toBe(script.read);
        expect(ERROR.exec(run.client.text)?.[1]).toBe('stream_incomplete');
        expect([run.client.ended, run.result]).toEqual([false, answered('stream_incomplete')]);
      }
      if (!isOpen) return;
      expect([run.usage?.prompt, run.usage?.completion]).toEqual(usage);
      expect(run.exchange.access.bytes_out).toBe(run.client.text.length);
    }),
    { numRuns: RUNS },
  );
});

test('a truncated transcript never looks complete, and nothing follows a partial frame', () => {
  const how = fc.constantFrom('end', 'reset', 'timeout', 'client');
  fc.assert(
    fc.property(transcripts(false), fraction, cuts, how, pace, (script, where, at, way, full) => {
      const length = Math.floor(where * script.sent.length);
      const run = new Run(script.hide, full);
      run.feed(pieces(script.sent.subarray(0, length), at));
      if (way === 'end') run.end();
      else if (way === 'reset') run.fail(new GatewayError('stream_incomplete'));
      else if (way === 'timeout') run.fail(new GatewayError('upstream_timeout'));
      else run.fail(new GatewayError('client_closed'));

      const written = run.client.text;
      const whole = script.frames.filter((_, index) => (script.ends[index] ?? 0) <= length);
      const said = ERROR.exec(written)?.[1];
      // What was relayed is how the transcript reads, as far as it goes.
      const relayed = written.replace(ERROR, '');
      const reading = script.readings.find(({ text: read }) => read.startsWith(relayed));
      expect(reading).toBeDefined();
      if (said !== undefined) expect(reading?.boundaries.has(relayed.length)).toBe(true);
      if (run.client.ended) {
        // A clean end: the upstream had said that it was one, whole frame or not.
        expect(said).toBeUndefined();
        expect(relayed).toMatch(/\[DONE\]|"finish_reason":"stop"/);
        expect(run.result).toEqual({ kind: 'answered', outcome: 'ok' });
        // Without its blank line, but not torn.
        const last = relayed.slice([...(reading?.boundaries ?? [])].findLast((end) => end <= relayed.length));
        const data = /^data: ?([^\r\n]*)/.exec(last)?.[1];
        if (data?.startsWith('{')) expect(() => JSON.parse(data)).not.toThrow();
      } else if (run.result?.kind === 'answered') {
        const code =
          way === 'timeout' ? 'upstream_timeout' : way === 'client' ? 'client_closed' : 'stream_incomplete';
        expect(run.result.outcome).toBe(code);
        expect(said).toBe(way === 'client' ? undefined : code);
        expect(relayed).not.toContain('[DONE]');
      } else {
        expect([written, run.result?.kind]).toEqual(['', 'failed']);
        expect(whole.some((frame) => frame.output)).toBe(false);
      }
    }),
    { numRuns: RUNS },
  );
});

test('the end of a stream is written with its last frames, behind all reads of the tick', () => {
  const run = new Run(false, () => false);
  const sent = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';
  run.relay.data(Buffer.from(sent));
  expect([run.result?.kind, run.client.pieces, run.client.ended]).toEqual(['answered', [], false]);
  flushWrites();
  expect([run.client.pieces.map(String), run.client.ended]).toEqual([[sent], true]);
});

test('bytes that are not an event stream do no harm', () => {
  const bytes = fc.uint8Array({ maxLength: 400 }).map((array) => Buffer.from(array));
  const nearly = fc
    .array(
      fc.constantFrom(
        'data:',
        'data: ',
        '{"choices":[',
        '{"delta":{',
        '"content":"',
        'x',
        '"}',
        ']}',
        '\n',
        '\r',
        '\n\n',
        '[DONE]',
        ':',
        '{"error":',
        '}',
        '"model":"',
        'id:1',
        '\ufeff',
      ),
      { maxLength: 60 },
    )
    .map((parts) => Buffer.from(parts.join('')));
  fc.assert(
    fc.property(fc.oneof(bytes, nearly), cuts, cuts, (stream, one, other) => {
      const outcomes = [one, other].map((at) => {
        const run = new Run(true, () => false);
        run.feed(pieces(stream, at));
        run.end();
        const code = run.result?.kind === 'answered' ? run.result.outcome : run.result?.failure.error.code;
        return [run.client.text, run.client.ended, run.result?.kind, code];
      });
      expect(outcomes[0]).toEqual(outcomes[1]);
      expect(outcomes[0]?.[2]).toBeDefined();
    }),
    { numRuns: RUNS },
  );
});
