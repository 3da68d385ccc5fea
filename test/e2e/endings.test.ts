// However a request ends, what was reserved for it is settled once: counters return to the true use, nothing stays in flight,
// and the store says what the upstream says.
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  json,
  roleChunk,
  type Script,
  SSE_HEADERS,
  type Step,
  type Tokens,
  upstreamError,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';
import { ask, bearer, field } from './holder.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 8);
const PATIENCE_MS = 60_000;

/** What the upstream has said that it used. */
let produced = { requests: 0, prompt: 0, completion: 0 };
let upstream: HostileUpstream;
let gateway: Gateway;

function say(tokens: Tokens): Tokens {
  produced.prompt += tokens.prompt;
  produced.completion += tokens.completion;
  return tokens;
}

const tokens = (): Tokens => ({
  prompt: 1 + Math.floor(Math.random() * 50),
  completion: 1 + Math.floor(Math.random() * 50),
});

const stream =
  (frames: () => readonly string[], end: Step): Step =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    for (const each of frames()) await c.chunk(each);
    await end(c);
  };
const whole: Step = (c) => c.lastChunk();
const silent: Step = (c) => c.silence();
const hello = () => [frame(roleChunk()), frame(contentChunk('Hello')), frame(contentChunk(' world'))];

type Leave = 'stays' | 'before the head' | 'after a token' | 'in its body';

interface Ending {
  readonly script: Script;
  readonly stream: boolean;
  readonly leaves: Leave;
  /** The upstream says what it used, and it is what counts. */
  readonly measured: boolean;
}

const ending = (script: Script, isStream: boolean, measured: boolean, leaves: Leave = 'stays'): Ending => ({
  script,
  stream: isStream,
  leaves,
  measured,
});

const ENDINGS: Readonly<Record<string, Ending>> = {
  'an answer': ending((c) => json(200, completion({ tokens: say(tokens()) }))(c), false, true),
  'a stream with usage': ending(
    stream(() => [...hello(), frame(finishChunk()), frame(usageChunk(say(tokens()))), DONE], whole),
    true,
    true,
  ),
  'usage in the frame of the finish': ending(
    stream(
      () => [...hello(), frame({ ...finishChunk('length'), ...usageField(say(tokens())) }), DONE],
      whole,
    ),
    true,
    true,
  ),
  'an error after output, with usage': ending(
    stream(() => [...hello(), frame(usageChunk(say(tokens()))), frame(upstreamError('broke'))], whole),
    true,
    true,
  ),
  'a stream without usage': ending(
    stream(() => [...hello(), frame(finishChunk()), DONE], whole),
    true,
    false,
  ),
  'an error after output': ending(
    stream(() => [...hello(), frame(upstreamError('broke'))], whole),
    true,
    false,
  ),
  'an error as the first frame': ending(
    stream(() => [frame(upstreamError('no'))], whole),
    true,
    false,
  ),
  'a cut in the middle': ending(
    stream(hello, (c) => c.reset()),
    true,
    false,
  ),
  'a stream that stops': ending(stream(hello, silent), true, false),
  'no token in time': ending(
    stream(() => [], silent),
    true,
    false,
  ),
  'no head in time': ending(silent, false, false),
  '400': ending(json(400, upstreamError('bad', { type: 'invalid_request_error' })), false, false),
  '500': ending(json(500, upstreamError('oops')), false, false),
  'an answer that is no JSON': ending(
    (c) => c.send('HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi'),
    false,
    false,
  ),
  'a reset': ending((c) => c.reset(), true, false),
  'left before the head': ending(silent, true, false, 'before the head'),
  'left before the answer': ending(silent, false, false, 'before the head'),
  'left after a token': ending(stream(hello, silent), true, false, 'after a token'),
  'left in the upload': ending(silent, true, false, 'in its body'),
};

function usageField(used: Tokens): object {
  return { usage: { prompt_tokens: used.prompt, completion_tokens: used.completion } };
}

beforeAll(async () => {
  upstream = await HostileUpstream.start(async (c) => {
    produced.requests += 1;
    const { script } = ENDINGS[String(field(c.request.json(), 'user'))] ?? {};
    if (typeof script === 'function') await script(c);
  });
  gateway = await startGateway({
    config: {
      upstreams: {
        up: {
          base_url: upstream.baseUrl,
          timeouts: { headers: '400ms', first_token: '400ms', idle: '400ms' },
          max_concurrency: 1000,
        },
      },
      models: { m: { targets: [{ upstream: 'up', model: 'm' }] } },
      retry: { attempts: 1 },
      tiers: {
        Pro: {
          requests_per_minute: 100_000,
          tokens_per_minute: 100_000_000,
          requests_per_day: 1_000_000,
          tokens_per_month: 100_000_000,
          concurrency: 500,
        },
      },
    },
  });
});
afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

async function perform(name: string, key: string): Promise<void> {
  const { stream: isStream, leaves } = ENDINGS[name] ?? { stream: false, leaves: 'stays' };
  const body = Buffer.from(
    JSON.stringify(chatRequest({ model: 'm', user: name, stream: isStream, max_tokens: 40 })),
  );
  using client = await gateway.connect();
  const id = `test-${randomUUID()}`;
  const headers = {
    ...bearer(key),
    'content-type': 'application/json',
    'content-length': String(body.length),
    'x-request-id': id,
  };
  if (leaves === 'in its body') {
    await client.send({ headers, body: body.subarray(0, 20) });
    client.reset();
    return;
  }
  await client.send({ headers, body });
  if (leaves === 'before the head') {
    await until(() => upstream.requests.some((each) => each.header('x-request-id') === id), 'the request');
    client.reset();
    return;
  }
  const response = await client.responseHead();
  if (leaves === 'after a token') {
    await until(() => response.text().includes('Hello'), 'a token');
    client.reset();
  } else await response.ended;
}

async function quiet(): Promise<void> {
  await until(
    async () =>
      (await gateway.metric('tollgate_requests_in_flight')) === 0 &&
      (await gateway.metric('tollgate_limit_leases')) === 0 &&
      (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0,
    'nothing in flight',
  );
}

async function usageOf(key: string): Promise<unknown> {
  const response = await ask(gateway.url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });
  expect(response.status).toBe(200);
  return response.json();
}

function used(report: unknown, limit: string): unknown {
  const limits = field(report, 'limits');
  const found = Array.isArray(limits)
    ? limits.find((each: unknown) => field(each, 'limit') === limit)
    : undefined;
  return field(found, 'used');
}

const names = Object.keys(ENDINGS);

test(
  'requests that end in every way, many at once',
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.constantFrom(...names), { minLength: 1, maxLength: 40 }),
        async (order) => {
          const key = await gateway.issueKey();
          produced = { requests: 0, prompt: 0, completion: 0 };
          await Promise.all(order.map((name) => perform(name, key)));
          await quiet();
          const report = await usageOf(key);
          const total = (name: string) => Number(field(report, 'totals', name));
          const sum = total('prompt_tokens') + total('completion_tokens');
          // The ledger and the limiter are told by the same hand, and each counts by itself.
          expect(used(report, 'tokens_per_month')).toBe(sum);
          expect(used(report, 'tokens_per_minute')).toBe(sum);
          expect(used(report, 'concurrency')).toBe(0);
          expect(total('requests')).toBe(produced.requests);
          expect(used(report, 'requests_per_minute')).toBeGreaterThanOrEqual(produced.requests);
          expect(used(report, 'requests_per_minute')).toBeLessThanOrEqual(order.length);
          if (order.every((name) => ENDINGS[name]?.measured === true)) {
            expect([total('prompt_tokens'), total('completion_tokens'), total('estimated')]).toEqual([
              produced.prompt,
              produced.completion,
              0,
            ]);
          }
          expect(sum).toBeGreaterThanOrEqual(produced.prompt + produced.completion);
        },
      ),
      { numRuns: RUNS, endOnFailure: true },
    );
  },
  PATIENCE_MS * Math.ceil(RUNS / 10),
);

test.each(names.filter((name) => ENDINGS[name]?.measured === true))(
  '%s is counted as the upstream says',
  async (name) => {
    const key = await gateway.issueKey();
    produced = { requests: 0, prompt: 0, completion: 0 };
    await Promise.all(Array.from({ length: 20 }, () => perform(name, key)));
    await quiet();
    expect(field(await usageOf(key), 'totals')).toMatchObject({
      requests: 20,
      estimated: 0,
      prompt_tokens: produced.prompt,
      completion_tokens: produced.completion,
    });
  },
);

test.each([
  ['a stream without usage', 2],
  ['a cut in the middle', 2],
  ['left after a token', 2],
  ['left before the head', 0],
])('%s is estimated, and says so', async (name, completion) => {
  const key = await gateway.issueKey();
  await perform(name, key);
  await quiet();
  const totals = field(await usageOf(key), 'totals');
  expect(totals).toMatchObject({ requests: 1, estimated: 1, completion_tokens: completion });
  expect(Number(field(totals, 'prompt_tokens'))).toBeGreaterThan(10);
});

test.each([
  'an error after output',
  'an error as the first frame',
  'no token in time',
  'no head in time',
  '400',
  '500',
  'a reset',
])('%s costs nothing, and is a request all the same', async (name) => {
  const key = await gateway.issueKey();
  await perform(name, key);
  await quiet();
  const report = await usageOf(key);
  expect(field(report, 'totals')).toMatchObject({
    requests: 1,
    failed: 1,
    prompt_tokens: 0,
    completion_tokens: 0,
  });
  expect(used(report, 'requests_per_minute')).toBe(1);
});
