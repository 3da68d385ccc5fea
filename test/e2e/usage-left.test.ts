// What a holder is charged who leaves an answer: at its end, in the middle, before its beginning, of a stream or not. The upstream
// adds up what it would bill, and the limits must have counted it, or the documented estimate of it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BYTES_PER_TOKEN } from '../../src/proxy/request/token-estimate.ts';
import { HIDDEN_TOKENS_PER_SECOND } from '../../src/proxy/reservation/usage-meter.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunkOf,
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
  silence,
  sse,
  upstreamError,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';
import { ask, bearer, field } from './holder.ts';

const WORDS = 'ten bytes '.repeat(1024);
const STREAM = chatRequest({ model: 'm', stream: true });

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start(silence());
  gateway = await startGateway({
    config: {
      upstreams: { up: { base_url: upstream.baseUrl, max_concurrency: 1000, shared_objects: ['conv_*'] } },
      models: {
        m: { targets: [{ upstream: 'up', model: 'm' }] },
        unbounded: { targets: [{ upstream: 'up', model: 'm' }], body: { remove: ['max_tokens'] } },
      },
      retry: { attempts: 1 },
      tiers: {
        Free: { tokens_per_minute: 40_000, concurrency: 2 },
        Pro: { tokens_per_minute: 100_000_000, concurrency: 50 },
      },
    },
  });
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

const quiet = () =>
  until(
    async () =>
      (await gateway.metric('tollgate_requests_in_flight')) === 0 &&
      (await gateway.metric('tollgate_usage_reads')) === 0 &&
      (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0,
    'nothing to be under way',
  );

async function totalsOf(key: string): Promise<{ prompt: number; completion: number; estimated: number }> {
  await quiet();
  const totals = field(await usageOf(key), 'totals');
  return {
    prompt: Number(field(totals, 'prompt_tokens')),
    completion: Number(field(totals, 'completion_tokens')),
    estimated: Number(field(totals, 'estimated')),
  };
}

async function usageOf(key: string): Promise<unknown> {
  const response = await ask(gateway.url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });
  return response.json();
}

async function usedTokens(key: string): Promise<number> {
  const limits = field(await usageOf(key), 'limits');
  const found = Array.isArray(limits)
    ? limits.find((each) => field(each, 'limit') === 'tokens_per_minute')
    : undefined;
  return Number(field(found, 'used'));
}

const opened =
  (frames: readonly object[], then: Step): Step =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    for (const each of frames) await c.chunk(frame(each));
    await then(c);
  };

/** The client reads up to `mark` and leaves. */
async function leave(key: string, mark: string, body: object = STREAM): Promise<void> {
  using client = await gateway.open(body, { key });
  await client.readUntil(mark);
}

/** Frames that fill the buffers between an upstream and a client. */
const UNREAD_FRAMES = 600;

/** The client leaves when its upstream has waited for it. @param end behind the frames */
async function leaveUnread(key: string, end: Step, waitMs = 0): Promise<void> {
  upstream.next(async (c) => {
    await c.head(200, SSE_HEADERS);
    for (let i = 0; i < UNREAD_FRAMES; i += 1) await c.chunk(frame(contentChunk(WORDS)));
    await end(c);
    await c.lastChunk();
  });
  const index = upstream.requests.length;
  using client = await gateway.open(STREAM, { key });
  await client.responseHead();
  client.pause();
  const request = await upstream.request(index);
  let sent = -1;
  while (sent < request.bytesSent || sent < WORDS.length) {
    sent = request.bytesSent;
    await pause(200);
  }
  await pause(waitMs);
  client.reset();
}

describe('a stream that was not requested', () => {
  const whole = chatRequest({ model: 'm' });
  const output = [roleChunk(), contentChunk(WORDS), finishChunk()];

  async function refuse(key: string, frames: readonly (object | string)[]): Promise<void> {
    upstream.next(sse(frames));
    using client = await gateway.connect();
    expect((await client.ask({ headers: bearer(key), body: whole })).status).toBe(406);
  }

  test('counts what its upstream reports', async () => {
    const key = await gateway.issueKey();
    await refuse(key, [...output, usageChunk({ prompt: 5, completion: 2_995 }), DONE]);
    expect(await totalsOf(key)).toEqual({ prompt: 5, completion: 2_995, estimated: 0 });
    expect(await usedTokens(key)).toBe(3_000);
  });

  test('counts its text where nothing is reported', async () => {
    const key = await gateway.issueKey();
    await refuse(key, [...output, DONE]);
    const totals = await totalsOf(key);
    expect(totals.completion).toBeGreaterThanOrEqual(WORDS.length / BYTES_PER_TOKEN);
    expect(totals.estimated).toBe(1);
  });

  test('counts what was read before it broke', async () => {
    const key = await gateway.issueKey();
    upstream.next(opened(output, (c) => c.reset()));
    using client = await gateway.connect();
    expect((await client.ask({ headers: bearer(key), body: whole })).status).toBeGreaterThan(400);
    expect((await totalsOf(key)).completion).toBeGreaterThanOrEqual(WORDS.length / BYTES_PER_TOKEN);
  });
});

describe('a stream that is left when its answer is there', () => {
  test('counts what its upstream reports a moment later, and the limit holds', async () => {
    const key = await gateway.issueKey('Free');
    let billed = 0;
    const script = opened([roleChunk(), contentChunk(WORDS), finishChunk()], async (c) => {
      await c.wait(800);
      billed += 8_000;
      await c.chunk(frame(usageChunk({ prompt: 5, completion: 7_995 })));
      await c.chunk(DONE);
      await c.lastChunk();
    });
    const statuses: number[] = [];
    upstream.always(script);
    for (let turn = 0; turn < 15; turn += 1) {
      using client = await gateway.open(STREAM, { key });
      const head = await client.responseHead();
      statuses.push(head.status);
      if (head.status !== 200) break;
      await client.readUntil('"finish_reason":"stop"');
      client.destroy();
      // The slot of the holder is taken until the usage has come.
      await quiet();
    }
    expect(billed).toBe(40_000);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429]);
    expect(await totalsOf(key)).toEqual({ prompt: 25, completion: 39_975, estimated: 0 });
    expect(await usedTokens(key)).toBe(billed);
    upstream.always(silence());
  });

  test('keeps the slot of its holder meanwhile, and is logged as left at once', async () => {
    const key = await gateway.issueKey('Free');
    const go = Promise.withResolvers<void>();
    const script = opened([contentChunk('x'), finishChunk()], async (c) => {
      await go.promise;
      await c.chunk(frame(usageChunk({ prompt: 1, completion: 2 })));
      await c.lastChunk();
    });
    upstream.next(script, script);
    const lines = gateway.logs.length;
    await leave(key, '"stop"');
    await leave(key, '"stop"');
    await until(
      () => gateway.logs.slice(lines).filter((line) => line['outcome'] === 'client_closed').length === 2,
      'both lines of the log',
    );
    expect(gateway.logs.slice(lines).find((line) => line['outcome'] === 'client_closed')).toMatchObject({
      status: 499,
    });
    expect(await gateway.metric('tollgate_usage_reads')).toBe(2);
    expect((await gateway.chat(STREAM, { key })).status).toBe(429);
    go.resolve();
    expect(await totalsOf(key)).toEqual({ prompt: 2, completion: 4, estimated: 0 });
  });

  test('is let go after some seconds, and estimated, when no usage comes', async () => {
    const key = await gateway.issueKey('Free');
    upstream.next(opened([contentChunk(WORDS), finishChunk()], silence()));
    await leave(key, '"stop"');
    const { completion, estimated } = await totalsOf(key);
    expect(estimated).toBe(1);
    expect(completion).toBeGreaterThanOrEqual(Math.floor(WORDS.length / BYTES_PER_TOKEN));
  });

  test('ends with the gateway, within the time of its drain', async () => {
    const own = await startGateway({ upstreams: { up: upstream.baseUrl } });
    try {
      upstream.next(opened([contentChunk('x'), finishChunk()], silence()));
      using client = await own.open(chatRequest({ stream: true }));
      await client.readUntil('"stop"');
      client.destroy();
      await until(async () => (await own.metric('tollgate_usage_reads')) === 1, 'the reading to begin');
      const began = performance.now();
      await Promise.all([own.app.close(), own.app.close()]);
      expect(performance.now() - began).toBeLessThan(4_000);
    } finally {
      await own.close();
    }
  });

  test('is let go at once where its usage came with the finish reason, however late it is left', async () => {
    const key = await gateway.issueKey('Free');
    const usage = { prompt_tokens: 4, completion_tokens: 6, total_tokens: 10 };
    upstream.next(opened([contentChunk('x'), { ...finishChunk(), usage }], silence()));
    using client = await gateway.open(STREAM, { key });
    await client.readUntil('"stop"');
    await pause(1_300);
    client.destroy();
    expect(await totalsOf(key)).toEqual({ prompt: 4, completion: 6, estimated: 0 });
  });

  test('counts the same through the events of a response', async () => {
    const key = await gateway.issueKey('Free');
    const event = (type: string, more: object) =>
      `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(event('response.created', { response: { id: 'resp_1', usage: null } }));
      await c.chunk(event('response.output_text.delta', { delta: 'all of it' }));
      await c.chunk(event('response.output_text.done', { text: 'all of it' }));
      await c.wait(300);
      const usage = { input_tokens: 11, output_tokens: 3_000, total_tokens: 3_011 };
      await c.chunk(event('response.completed', { response: { id: 'resp_1', usage } }));
      await c.lastChunk();
    });
    using client = await gateway.connect();
    await client.send({
      target: '/v1/responses',
      headers: { authorization: `Bearer ${key}` },
      body: { model: 'm', input: 'hi', stream: true },
    });
    await client.readUntil('output_text.done');
    client.destroy();
    expect(await totalsOf(key)).toEqual({ prompt: 11, completion: 3_000, estimated: 0 });
  });
});

describe('a stream that is left in the middle', () => {
  test('counts its text, however few frames it comes in', async () => {
    const key = await gateway.issueKey('Pro');
    const frames = Array.from({ length: 10 }, () => contentChunk(WORDS));
    upstream.next(opened([...frames, contentChunk('the end')], silence()));
    await leave(key, 'the end');
    const { completion, estimated } = await totalsOf(key);
    expect(estimated).toBe(1);
    expect(completion).toBeGreaterThanOrEqual(Math.floor((10 * WORDS.length) / BYTES_PER_TOKEN));
    expect(completion).toBeLessThan(10 * WORDS.length);
  });

  test.each([
    ['an earlier response', { previous_response_id: 'resp_long' }],
    ['a conversation', { conversation: { id: 'conv_long' } }],
  ])('counts what its upstream reads of %s', async (_, more) => {
    const key = await gateway.issueKey('Pro');
    const response = { id: 'resp_long', object: 'response', status: 'completed', output: [] };
    const usage = { input_tokens: 50_000, output_tokens: 700, total_tokens: 50_700 };
    const ofConversation = 'conversation' in more ? more : {};
    const post = (body: object) => ({
      target: '/v1/responses',
      headers: bearer(key),
      body: { model: 'm', ...body },
    });
    upstream.next(json(200, { ...response, usage }));
    await ask(gateway.url, post({ input: 'x', ...ofConversation }));
    const first = await totalsOf(key);
    expect(first).toEqual({ prompt: 50_000, completion: 700, estimated: 0 });
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      const event = { type: 'response.output_text.delta', delta: 'the beginning' };
      await c.chunk(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
      await silence()(c);
    });
    using client = await gateway.connect();
    await client.send(post({ input: 'y', stream: true, ...more }));
    await client.readUntil('the beginning');
    client.destroy();
    const { prompt, estimated } = await totalsOf(key);
    expect(estimated).toBe(1);
    expect(prompt - first.prompt).toBeGreaterThan(50_700);
    expect(prompt - first.prompt).toBeLessThan(50_800);
  });

  test('counts reasoning that is shown', async () => {
    const key = await gateway.issueKey('Pro');
    const thought = { reasoning_content: WORDS, reasoning: WORDS };
    upstream.next(opened([chunkOf(thought), chunkOf({ reasoning_content: 'behold' })], silence()));
    await leave(key, 'behold');
    const { completion } = await totalsOf(key);
    const told = Math.floor(WORDS.length / BYTES_PER_TOKEN);
    expect(completion).toBeGreaterThanOrEqual(told);
    // Told under two names, it is still one thought.
    expect(completion).toBeLessThan(1.5 * told + 5 * HIDDEN_TOKENS_PER_SECOND);
  });

  test('counts reasoning that is not shown by its time', async () => {
    const key = await gateway.issueKey('Pro');
    upstream.next(opened([roleChunk()], silence()));
    using client = await gateway.open(STREAM, { key });
    await pause(1_500);
    client.destroy();
    const { completion, prompt, estimated } = await totalsOf(key);
    expect(completion).toBeGreaterThanOrEqual(HIDDEN_TOKENS_PER_SECOND);
    expect(prompt).toBeGreaterThan(0);
    expect(estimated).toBe(1);
  });

  test('counts what came behind an early report of its usage', async () => {
    const key = await gateway.issueKey('Pro');
    const early = {
      ...contentChunk('a'),
      usage: { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10 },
    };
    const zeros = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
    upstream.next(
      opened([early, contentChunk(WORDS), { ...contentChunk('the end'), usage: zeros }], silence()),
    );
    await leave(key, 'the end');
    const { completion, prompt } = await totalsOf(key);
    expect(prompt).toBe(9);
    expect(completion).toBeGreaterThanOrEqual(Math.floor(WORDS.length / BYTES_PER_TOKEN));
  });

  test('counts it although its upstream writes zeros until it knows better', async () => {
    const key = await gateway.issueKey('Pro');
    const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
    const chunks = [WORDS, 'the end'].map((text) => ({ ...contentChunk(text), usage }));
    upstream.next(opened(chunks, silence()));
    await leave(key, 'the end');
    expect((await totalsOf(key)).completion).toBeGreaterThanOrEqual(
      Math.floor(WORDS.length / BYTES_PER_TOKEN),
    );
  });

  test('lets its upstream go at once', async () => {
    const key = await gateway.issueKey('Pro');
    upstream.next(opened([contentChunk('x')], silence()));
    const index = upstream.requests.length;
    await leave(key, '"x"');
    const left = performance.now();
    const { at } = await (await upstream.request(index)).closed;
    expect(at - left).toBeLessThan(3_000);
  });

  test('counts what the upstream had sent, although its client did not read', async () => {
    const key = await gateway.issueKey('Pro');
    await leaveUnread(key, async (c) => {
      await c.chunk(frame(finishChunk()));
      await c.chunk(frame(usageChunk({ prompt: 1, completion: 999_999 })));
      await c.chunk(DONE);
    });
    expect(await totalsOf(key)).toMatchObject({ completion: 999_999 });
  });

  test('counts the time in which its client did not read as silence, in which a model may think', async () => {
    const key = await gateway.issueKey('Pro');
    // Long enough that a window of TCP that opens once more leaves a silence of more than a second.
    await leaveUnread(key, () => pause(0), 2_500);
    const { completion, estimated } = await totalsOf(key);
    expect(estimated).toBe(1);
    const told = Math.floor((UNREAD_FRAMES * WORDS.length) / BYTES_PER_TOKEN);
    expect(completion - told).toBeGreaterThanOrEqual(HIDDEN_TOKENS_PER_SECOND);
  });
});

test('a client that stops reading and never leaves is charged what its upstream reports', async () => {
  await using own = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: { stream: { write_stall: '1s' } },
  });
  upstream.next(async (c) => {
    await c.head(200, SSE_HEADERS);
    for (let i = 0; i < 600; i += 1) await c.chunk(frame(contentChunk(WORDS)));
    await c.chunk(frame(finishChunk()));
    await c.chunk(frame(usageChunk({ prompt: 1, completion: 55_555 })));
    await c.chunk(DONE);
    await c.lastChunk();
  });
  using client = await own.open(chatRequest({ stream: true }));
  await client.responseHead();
  client.pause();
  const usage = await until(async () => {
    const headers = bearer(await own.key());
    const totals = field(
      (await ask(own.url, { method: 'GET', target: '/admin/usage', headers })).json(),
      'totals',
    );
    return field(totals, 'requests') === 1 ? totals : undefined;
  }, 'the usage');
  expect(usage).toMatchObject({ completion_tokens: 55_555, estimated: 0 });
});

test('a stream that a hedge has won is read on as any other', async () => {
  await using slow = await HostileUpstream.start(silence());
  await using own = await startGateway({
    upstreams: { slow: slow.baseUrl, up: upstream.baseUrl },
    config: {
      models: {
        m: {
          targets: [
            { upstream: 'slow', model: 'm', priority: 1 },
            { upstream: 'up', model: 'm', priority: 2 },
          ],
          hedge: { after: '50ms' },
        },
      },
    },
  });
  upstream.next(
    opened([contentChunk('x'), finishChunk()], async (c) => {
      await c.wait(400);
      await c.chunk(frame(usageChunk({ prompt: 21, completion: 34 })));
      await c.silence();
    }),
  );
  using client = await own.open(STREAM);
  await client.readUntil('"stop"');
  client.destroy();
  const totals = await until(async () => {
    const headers = bearer(await own.key());
    const report = (await ask(own.url, { method: 'GET', target: '/admin/usage', headers })).json();
    return field(report, 'totals', 'requests') === 1 ? field(report, 'totals') : undefined;
  }, 'the usage');
  expect(totals).toMatchObject({ prompt_tokens: 21, completion_tokens: 34, estimated: 0 });
});

test('a client that has only closed its own side gets its answer, and its usage counts', async () => {
  const key = await gateway.issueKey('Pro');
  upstream.next(
    opened([contentChunk('x')], async (c) => {
      await c.wait(200);
      await c.chunk(frame(finishChunk()));
      await c.chunk(frame(usageChunk({ prompt: 4, completion: 6 })));
      await c.chunk(DONE);
      await c.lastChunk();
    }),
  );
  using client = await gateway.open(STREAM, { key });
  await client.readUntil('"x"');
  client.halfClose();
  expect((await client.response()).text()).toContain('[DONE]');
  expect(await totalsOf(key)).toEqual({ prompt: 4, completion: 6, estimated: 0 });
});

describe('an answer in JSON that is left before it comes', () => {
  test.each([
    ['what was reserved', {}, 256],
    ['the bound of its client', { max_completion_tokens: 3_000 }, 3_000],
    ['that of all of its choices', { max_tokens: 500, n: 4 }, 2_000],
    [
      'what an answer without a bound reserves if the upstream got none',
      { model: 'unbounded', max_tokens: 1 },
      256,
    ],
  ])('counts %s', async (_, more, completion) => {
    const key = await gateway.issueKey('Pro');
    upstream.next(silence());
    const index = upstream.requests.length;
    using client = await gateway.open(chatRequest({ model: 'm', ...more }), { key });
    await upstream.request(index);
    client.destroy();
    const totals = await totalsOf(key);
    expect(totals).toMatchObject({ completion, estimated: 1 });
    expect(totals.prompt).toBeGreaterThan(0);
  });

  test('counts text that only looks like an attachment as text', async () => {
    const key = await gateway.issueKey('Pro');
    const content = JSON.stringify({ question: 'what_is_the_capital_of_france_'.repeat(2_000) });
    upstream.next(silence());
    const index = upstream.requests.length;
    using client = await gateway.open(chatRequest({ model: 'm', messages: [{ role: 'user', content }] }), {
      key,
    });
    await upstream.request(index);
    client.destroy();
    expect((await totalsOf(key)).prompt).toBeGreaterThan(content.length / BYTES_PER_TOKEN);
  });

  test('counts nothing when it was refused', async () => {
    const key = await gateway.issueKey('Pro');
    upstream.next(async (c) => {
      await c.head(503, { 'content-type': 'application/json', 'content-length': 100 });
      await c.send('{"error"');
      await c.silence();
    });
    const index = upstream.requests.length;
    using client = await gateway.open(chatRequest({ model: 'm' }), { key });
    const request = await upstream.request(index);
    await until(() => request.bytesSent > 0, 'the refusal to begin');
    await pause(100);
    client.destroy();
    expect(await totalsOf(key)).toEqual({ prompt: 0, completion: 0, estimated: 0 });
  });

  test('counts nothing when nothing was sent', async () => {
    const key = await gateway.issueKey('Pro');
    using client = await gateway.connect();
    const headers = { authorization: `Bearer ${key}`, 'content-length': '1000' };
    await client.send({ headers, body: '{"model":"m",' });
    await pause(50);
    client.destroy();
    expect(await totalsOf(key)).toEqual({ prompt: 0, completion: 0, estimated: 0 });
  });
});

test.each([
  ['a 400', json(400, upstreamError('bad', { type: 'invalid_request_error' }))],
  ['a 500', json(500, upstreamError('oops'))],
  ['a connection that is cut', (c) => c.reset()],
] as [string, Script][])('%s has used nothing, and is no estimate', async (_, script) => {
  const key = await gateway.issueKey('Pro');
  upstream.next(script);
  expect((await gateway.chat(STREAM, { key })).status).toBeGreaterThanOrEqual(400);
  const totals = field(await usageOf(key), 'totals');
  expect(totals).toMatchObject({ requests: 1, estimated: 0, prompt_tokens: 0, completion_tokens: 0 });
});
