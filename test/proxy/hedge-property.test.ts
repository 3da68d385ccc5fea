// For any two answers at the same time, in any order and in one tick or many: the client reads one of them and nothing of
// the other, and nothing is left over. The upstreams are scripted in the process, so that the order is the test's.
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { UpstreamConfig } from '../../src/config/schema/config-schema.ts';
import { GatewayError } from '../../src/errors.ts';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { BufferPool } from '../../src/http/pieces/buffer-pool.ts';
import { Attempts } from '../../src/proxy/attempts/attempts.ts';
import { CHAT } from '../../src/proxy/endpoints/json-endpoints.ts';
import { scanRequest } from '../../src/proxy/request/request-scan.ts';
import { UsageMeter } from '../../src/proxy/reservation/usage-meter.ts';
import type { Target } from '../../src/proxy/routes/route-table.ts';
import { Resilience } from '../../src/proxy/targets/resilience.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import type { Call, Sink } from '../../src/upstream/transport.ts';
import { Upstream } from '../../src/upstream/upstream.ts';
import { contentOf, lastContentOf } from '../helpers/chunked.ts';
import {
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  roleChunk,
  upstreamError,
} from '../helpers/completions.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 400);
const ATTEMPTS = 3;
const SSE = { 'content-type': 'text/event-stream' };
const JSON_TYPE = { 'content-type': 'application/json' };
const metrics = createMetrics();
const BODY = Buffer.from('{"model":"m","stream":true,"messages":[]}');

const CONFIG: UpstreamConfig = {
  kind: 'http',
  base_url: 'https://api.example.com/v1',
  headers: {},
  query: {},
  timeouts: { connect: 1e6, headers: 1e6, first_token: 1e6, idle: 1e6, total: 1e6 },
  max_concurrency: 2,
  stream_usage: 'off',
};

/** What one call does next. `mark` is in every text of it and in no other. */
type Act = (call: Played, mark: string) => void;

const sent: Act = ({ sink }) => sink.onSent?.();
const streamHead: Act = ({ sink }) => sink.onHead(200, SSE);
const text =
  (write: (mark: string) => string): Act =>
  (call, mark) =>
    call.data(write(mark));
const role = text((mark) => `: ${mark}\n\n${frame(roleChunk({ id: mark }))}`);
const output = text((mark) => frame(contentChunk(mark)));
const finish = text((mark) => frame(finishChunk('stop', { id: mark })) + DONE);
const end: Act = (call) => {
  call.isOver = true;
  call.sink.onEnd();
};
const broken: Act = (call) => {
  call.isOver = true;
  call.sink.onError(new GatewayError('upstream_unreachable'), 'maybe_sent');
};
const unheard: Act = (call) => {
  call.isOver = true;
  call.sink.onError(new GatewayError('upstream_unreachable'), 'no_response');
};
const refused = (status: number): Act[] => [
  sent,
  ({ sink }) => sink.onHead(status, JSON_TYPE),
  text((mark) => JSON.stringify(upstreamError(`error ${mark}`))),
  end,
];

const PROGRAMS: Readonly<Record<string, readonly Act[]>> = {
  stream: [sent, streamHead, role, output, output, finish, end],
  'no role': [sent, streamHead, output, finish, end],
  'finish alone': [sent, streamHead, finish, end],
  json: [
    sent,
    ({ sink }) => sink.onHead(200, JSON_TYPE),
    text((mark) => JSON.stringify(completion({ content: mark }))),
    end,
  ],
  silent: [sent, streamHead],
  mute: [],
  'broken after output': [sent, streamHead, role, output, broken],
  'broken before output': [sent, streamHead, role, broken],
  'ended before output': [sent, streamHead, role, end],
  'error frame': [sent, streamHead, role, text((mark) => frame(upstreamError(`error ${mark}`))), end],
  'reset when sent': [sent, broken],
  'closed connection': [sent, unheard],
  'not JSON': [sent, ({ sink }) => sink.onHead(200, JSON_TYPE), text(() => '<html>'), end],
  failure: refused(503),
  'caller at fault': refused(400),
};

/** One request to an upstream, and how far its program has come. */
class Played implements Call {
  readonly sink: Sink;
  readonly mark: string;
  readonly #program: readonly Act[];
  #at = 0;
  isOver = false;
  /** All that was handed over. */
  said = '';

  constructor(sink: Sink, mark: string, program: readonly Act[]) {
    this.sink = sink;
    this.mark = mark;
    this.#program = program;
  }

  get isDone(): boolean {
    return this.isOver || this.#at >= this.#program.length;
  }

  step(): void {
    if (this.isOver) return;
    const act = this.#program[this.#at];
    this.#at += 1;
    act?.(this, this.mark);
  }

  data(written: string): void {
    this.said += written;
    this.sink.onData(Buffer.from(written));
  }

  pause(): void {}
  resume(): void {}
  abort(): void {
    this.isOver = true;
  }
}

/** What was written to the client. */
class Client extends ServerResponse {
  heads = 0;
  body = '';
  isEnded = false;
  /** Called when the first byte is about to be written. */
  onHead: () => void = () => {};

  override writeHead(): this {
    this.heads += 1;
    this.onHead();
    return this;
  }

  override flushHeaders(): void {}

  override write(chunk: unknown): boolean {
    this.body += contentOf(chunk).toString();
    return true;
  }

  override end(chunk?: unknown): this {
    this.body += lastContentOf(chunk).toString();
    this.isEnded = true;
    return this;
  }
}

interface Move {
  readonly who: number;
  /** What comes next is in the same tick. */
  readonly stays: boolean;
}

interface Plot {
  readonly programs: readonly string[];
  /** What the first has said before the second is asked. */
  readonly before: number;
  readonly moves: readonly Move[];
  /** The client leaves after so many moves. */
  readonly leaves: number | null;
  readonly commitAfter: number;
  readonly afterSend: boolean;
}

async function play({ programs, before, moves, leaves, commitAfter, afterSend }: Plot): Promise<void> {
  const calls: Played[] = [];
  let most = 0;
  const running = () => calls.filter(({ isOver }) => !isOver).length;
  const transport = {
    send(_: unknown, sink: Sink): Call {
      const call = new Played(
        sink,
        `mark${calls.length}`,
        PROGRAMS[programs[calls.length] ?? 'stream'] ?? [],
      );
      calls.push(call);
      most = Math.max(most, running());
      return call;
    },
    retire: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
  const targets: Target[] = ['a', 'b', 'c'].map((name, index) => ({
    upstream: new Upstream(name, CONFIG, 'test', metrics, transport),
    model: 'm',
    entry: 'm',
    weight: 1,
    priority: index + 1,
  }));
  const request = new IncomingMessage(new Socket());
  const client = new Client(request);
  let atHead = 0;
  client.onHead = () => {
    atHead = running();
  };
  const exchange = new Exchange(request, client, '192.0.2.1');
  const resilience = new Resilience({ share: () => 1, now: () => 0, random: () => 0 });
  const attempts = new Attempts(
    {
      request: {
        exchange,
        endpoint: CHAT,
        facts: { stream: true, estimate: { prompt: 1, completion: 1, isBounded: true } },
        alias: undefined,
        includeUsage: true,
        config: {
          max_answer: { frame: 1e6, json: 1e6, embeddings: 1e6 },
          stream: { commit_after: commitAfter, keepalive: 1e6, write_stall: 1e6 },
          retry: { attempts: ATTEMPTS, budget: 1, deadline: 1e6, after_send: afterSend },
        },
        metrics,
        buffers: new BufferPool(),
        meter: new UsageMeter({ prompt: 1, completion: 1, isBounded: true }),
      },
      route: {
        model: 'm',
        entry: 'm',
        tiers: ['Pro'],
        endpoints: ['chat'],
        responseModel: 'upstream',
        balance: 'weighted',
        hedge: { after: 1 },
        targets,
      },
      resilience,
    },
    { body: BODY, scan: scanRequest(BODY) },
  );
  let kind: string | undefined;
  const ended = attempts.run().then(
    (result) => {
      kind = result.kind === 'answered' ? result.outcome : result.kind;
    },
    (error: unknown) => {
      if (!(error instanceof GatewayError)) throw error;
      kind = error.code;
    },
  );
  for (let step = 0; step < before; step += 1) calls[0]?.step();
  // The second is asked, unless there is no reason any more.
  for (let i = 0; i < 500 && calls.length < 2 && kind === undefined && client.heads === 0; i += 1)
    await turn();
  for (const [index, { who, stays }] of moves.entries()) {
    if (leaves === index) exchange.stop(new GatewayError('client_closed'));
    calls[who % calls.length]?.step();
    if (!stays) await turn();
  }
  for (let i = 0; i < 60 && kind === undefined; i += 1) {
    const next = calls.find(({ isDone }) => !isDone);
    if (next === undefined) exchange.stop(new GatewayError('client_closed'));
    else next.step();
    await turn();
    // The wait between two rounds.
    if (kind === undefined && running() === 0) await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await ended;
  // An answer is written at the end of its turn.
  await turn();

  // A whole answer: the moment for the end of the upstream's is over now.
  for (const call of calls) if (!call.isOver) end(call, '');
  expect(kind).not.toBe('superseded');
  expect(calls.length).toBeLessThanOrEqual(ATTEMPTS);
  expect(most).toBeLessThanOrEqual(2);
  expect(running()).toBe(0);
  for (const target of targets) {
    expect(target.upstream.inFlight).toBe(0);
    expect(resilience.statusOf(target).breaker.inFlight).toBe(0);
  }
  expect(exchange.access.attempts).toBe(calls.length);
  expect(client.heads).toBeLessThanOrEqual(1);
  if (client.heads === 0) expect(client.body).toBe('');
  else {
    expect(atHead).toBeLessThanOrEqual(1);
    const [winner, ...others] = calls.filter(({ mark }) => client.body.includes(mark));
    expect(others).toEqual([]);
    // Opened by its time, and then broken before it said anything.
    if (winner === undefined) expect(kind).not.toBe('ok');
    else if (winner.said.startsWith('{')) expect([kind, client.isEnded]).toEqual(['ok', true]);
    else if (kind === 'ok') expect([client.body, client.isEnded]).toEqual([winner.said, true]);
    else {
      expect(client.body.startsWith(winner.said) || winner.said.startsWith(client.body)).toBe(true);
      // Behind its own error frame, the upstream ended cleanly.
      expect(client.isEnded).toBe(kind === 'upstream_error');
    }
  }
}

const plot: fc.Arbitrary<Plot> = fc.record({
  programs: fc.array(fc.constantFrom(...Object.keys(PROGRAMS)), { minLength: 4, maxLength: 4 }),
  before: fc.nat(3),
  moves: fc.array(fc.record({ who: fc.nat(5), stays: fc.boolean() }), { maxLength: 24 }),
  leaves: fc.option(fc.nat(12), { freq: 5 }),
  commitAfter: fc.constantFrom(0, 1e6),
  afterSend: fc.boolean(),
});

test('the client reads one answer, whole or visibly broken, and nothing is left of the other', async () => {
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const earlier = timers();
  await fc.assert(fc.asyncProperty(plot, play), { numRuns: RUNS });
  expect(timers()).toBeLessThanOrEqual(earlier + 3);
});

test('two that have output in the same tick: the first to say it, from its first byte', async () => {
  for (const [first, second] of [
    [0, 1],
    [1, 0],
  ] as const) {
    const both = (who: number): Move[] => Array.from({ length: 3 }, () => ({ who, stays: true }));
    // Heads and roles of both, then the output of one and of the other.
    const moves = [...both(0), ...both(1), { who: first, stays: true }, { who: second, stays: true }];
    await play({
      programs: ['stream', 'stream'],
      before: 0,
      moves,
      leaves: null,
      commitAfter: 1e6,
      afterSend: false,
    });
  }
});
