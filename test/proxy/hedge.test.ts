// A second target beside a silent first one: when it is asked, which of the two the client reads, and what is left of the
// other. Every order of what the two may do is in hedge-property.test.ts.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  reset,
  roleChunk,
  type Script,
  SSE_HEADERS,
  type Step,
  silence,
  sse,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { pause, until } from '../helpers/wait.ts';

const STREAM = chatRequest({ stream: true });
const own = { model: 'test-model' };
const framesOf = (name: string) => [
  frame(roleChunk(own)),
  frame(contentChunk(`from ${name}`, own)),
  frame(finishChunk('stop', own)),
];
const streamOf = (name: string) =>
  sse(framesOf(name), { headers: { ...SSE_HEADERS, 'openai-version': name } });
const textOf = (name: string) => [...framesOf(name), DONE].join('');

let one: HostileUpstream;
let two: HostileUpstream;
let gateway: Gateway | undefined;
let now = 0;

beforeEach(async () => {
  now = 1_000_000;
  one = await HostileUpstream.start(streamOf('one'));
  two = await HostileUpstream.start(streamOf('two'));
});
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
  await Promise.all([one.close(), two.close()]);
});

type Config = NonNullable<GatewayOptions['config']>;

/** One model that goes to these upstreams, one after the other. */
const modelOf = (after: string | null, ...names: string[]) => ({
  targets: names.map((upstream, index) => ({ upstream, model: 'upstream-model', priority: index + 1 })),
  ...(after === null ? {} : { hedge: { after } }),
});

/** The model goes to `one`, and to `two` after it. */
async function start(after: string | null, config: Config = {}): Promise<Gateway> {
  gateway = await startGateway({
    upstreams: { one: one.baseUrl, two: two.baseUrl },
    now: () => now,
    random: () => 0,
    config: { models: { 'test-model': modelOf(after, 'one', 'two') }, ...config },
  });
  await gateway.key();
  return gateway;
}

const counts = () => [one.requests.length, two.requests.length];

/** Nothing of the request is left anywhere. */
async function expectNothingLeft(running: Gateway): Promise<void> {
  await until(() => running.app.inFlight === 0, 'the end of the request');
  for (const name of ['one', 'two']) {
    expect(running.app.breaker(name, 'upstream-model')?.inFlight ?? 0).toBe(0);
    expect(await running.metric(`tollgate_upstream_in_flight{upstream="${name}"}`)).toBe(0);
  }
}

async function expectAnswerOf(name: string, response: RawResponse): Promise<void> {
  expect([response.status, response.text(), response.complete]).toEqual([200, textOf(name), true]);
  expect(response.header('openai-version')).toBe(name);
}

const hedges = (running: Gateway, result: string) =>
  running.metric(`tollgate_hedges_total{result="${result}"}`);
const attemptsThat = (running: Gateway, upstream: string, outcome: string) =>
  running.metric(`tollgate_upstream_attempts_total{upstream="${upstream}",outcome="${outcome}"}`);

describe('a second target is asked', () => {
  test.each<[string, Script]>([
    ['nothing', silence()],
    ['its head', [head(200, SSE_HEADERS), silence()]],
    ['comments and the role', sse([': ping\n\n', frame(roleChunk())], { done: false, end: false })],
    [
      'half of an answer as JSON',
      [head(200, { 'content-type': 'application/json', 'content-length': 99 }), silence()],
    ],
  ])('where the first has sent %s, and its answer is the whole one', async (_, script) => {
    const running = await start('50ms');
    one.next(script);
    const response = await running.chat(STREAM);
    await expectAnswerOf('two', response);
    expect(counts()).toEqual([1, 1]);
    await until(() => one.openSockets === 0, 'the end of the first connection');
    await expectNothingLeft(running);
    expect(await running.accessLine(response)).toMatchObject({
      attempts: 2,
      hedged: true,
      upstream: 'two',
      upstream_status: 200,
      outcome: 'ok',
    });
    expect(await attemptsThat(running, 'one', 'superseded')).toBe(1);
    expect(await attemptsThat(running, 'two', 'ok')).toBe(1);
    expect(await hedges(running, 'won')).toBe(1);
    expect(
      await running.metric('tollgate_upstream_extra_attempts_total{upstream="two",reason="hedge"}'),
    ).toBe(1);
    // To be slow is no failure.
    expect(running.app.breaker('one', 'upstream-model')).toMatchObject({ successes: 0, failures: 0 });
  });

  test('and loses where the first has output before it', async () => {
    const running = await start('50ms');
    one.next(async (c) => {
      await c.waitFor(() => two.answering === 1);
      await streamOf('one')(c);
    });
    two.next(silence());
    const response = await running.chat(STREAM);
    await expectAnswerOf('one', response);
    await until(() => two.openSockets === 0, 'the end of the second connection');
    await expectNothingLeft(running);
    expect(await running.accessLine(response)).toMatchObject({ attempts: 2, hedged: true, upstream: 'one' });
    expect(await hedges(running, 'lost')).toBe(1);
    expect(running.app.breaker('two', 'upstream-model')).toMatchObject({ successes: 0, failures: 0 });
  });

  test('and its answer may be JSON, which wins by its end', async () => {
    const running = await start('50ms');
    one.next([head(200, SSE_HEADERS), silence()]);
    two.next(json(200, completion({ content: 'from two', model: 'x' })));
    const response = await running.chat(STREAM);
    expect([response.status, response.header('content-type')]).toEqual([
      200,
      'text/event-stream; charset=utf-8',
    ]);
    expect(response.text()).toContain('from two');
    expect(response.text().endsWith(DONE)).toBe(true);
    await expectNothingLeft(running);
  });

  test('after a fallback too, beside the one that is asked then', async () => {
    await using three = await HostileUpstream.start(streamOf('three'));
    gateway = await startGateway({
      upstreams: { one: one.baseUrl, two: two.baseUrl, three: three.baseUrl },
      config: { models: { 'test-model': modelOf('50ms', 'one', 'two', 'three') } },
    });
    one.next(json(503, {}));
    two.next(silence());
    await expectAnswerOf('three', await gateway.chat(STREAM));
    expect([...counts(), three.requests.length]).toEqual([1, 1, 1]);
  });

  test('once more on a new connection where the kept one was closed', async () => {
    const running = await start('50ms');
    one.next(json(503, {}));
    await running.chat(STREAM);
    one.next(silence());
    two.next(reset());
    now += 60_000;
    await expectAnswerOf('two', await running.chat(STREAM));
    expect(counts()).toEqual([2, 3]);
    await expectNothingLeft(running);
  });
});

describe('no second target is asked', () => {
  const slow: Step = async (c) => {
    await c.wait(150);
    await streamOf('one')(c);
  };

  test('when the first has output in time', async () => {
    const running = await start('10s');
    one.next(slow);
    const response = await running.chat(STREAM);
    await expectAnswerOf('one', response);
    expect(counts()).toEqual([1, 0]);
    expect(await running.accessLine(response)).not.toHaveProperty('hedged');
  });

  test('after output, however long it takes', async () => {
    const running = await start('300ms');
    one.next(async (c) => {
      await c.head(200, { ...SSE_HEADERS, 'openai-version': 'one' });
      for (const each of [...framesOf('one'), DONE]) {
        await c.chunk(each);
        if (each.includes('from')) await c.wait(500);
      }
      await c.lastChunk();
    });
    await expectAnswerOf('one', await running.chat(STREAM));
    expect(counts()).toEqual([1, 0]);
  });

  test.each<[string, string | null, Config, object]>([
    ['without the setting', null, {}, STREAM],
    ['for an answer without a stream', '10ms', {}, chatRequest()],
    ['with `retry.attempts: 1`', '10ms', { retry: { attempts: 1 } }, STREAM],
    ['with too few times for `p95`', 'p95', {}, STREAM],
  ])('%s', async (_, after, config, body) => {
    const running = await start(after, config);
    one.next(async (c) => {
      await c.wait(150);
      if (body === STREAM) await streamOf('one')(c);
      else await json(200, completion())(c);
    });
    expect((await running.chat(body)).status).toBe(200);
    expect(counts()).toEqual([1, 0]);
    await expectNothingLeft(running);
  });

  test('for a model with one target', async () => {
    const running = await start('10ms', {
      models: { 'test-model': modelOf('10ms', 'one') },
    });
    one.next(slow);
    await expectAnswerOf('one', await running.chat(STREAM));
    expect(counts()).toEqual([1, 0]);
  });

  test('where it is left alone after a 429', async () => {
    const running = await start('50ms');
    one.next(json(503, {}));
    two.next(json(429, {}, { 'retry-after': '30' }));
    await running.chat(STREAM);
    const before = counts();
    one.next(slow);
    await expectAnswerOf('one', await running.chat(STREAM));
    expect(counts()).toEqual([(before[0] ?? 0) + 1, before[1]]);
  });

  test('where all of its places are taken, and it may still be asked after the first has failed', async () => {
    const running = await start('40ms', {
      upstreams: { two: { max_concurrency: 1 } },
      models: {
        'test-model': modelOf('40ms', 'one', 'two'),
        other: modelOf(null, 'two'),
      },
    });
    let end = false;
    two.next(async (c) => {
      await c.waitFor(() => end);
      await streamOf('two')(c);
    });
    const other = running.chat({ ...STREAM, model: 'other' });
    await two.request(0);
    one.next(async (c) => {
      await c.wait(150);
      end = true;
      await other;
      await json(503, {})(c);
    });
    const response = await running.chat(STREAM);
    await expectAnswerOf('two', response);
    expect(counts()).toEqual([1, 2]);
    expect(await running.accessLine(response)).not.toHaveProperty('hedged');
  });

  test('when the retry budget is used up', async () => {
    const running = await start('30ms', { retry: { budget: 0 } });
    for (let i = 0; i < 4; i += 1) {
      one.next(i < 3 ? silence() : slow);
      const response = await running.chat(STREAM);
      await expectAnswerOf(i < 3 ? 'two' : 'one', response);
    }
    expect(counts()).toEqual([4, 3]);
    expect(await running.metric('tollgate_retry_budget_refusals_total')).toBe(1);
    await expectNothingLeft(running);
  });
});

test('`p95` asks when the first takes longer than nearly all of the last ones', async () => {
  const running = await start('p95');
  // The first question begins the count.
  for (let i = 0; i < 20; i += 1) await running.chat(STREAM);
  expect(counts()).toEqual([20, 0]);
  one.next(silence());
  await expectAnswerOf('two', await running.chat(STREAM));
  expect(counts()).toEqual([21, 1]);
  // Five minutes later nothing of it counts any more.
  now += 5 * 60_000 + 1;
  one.next(async (c) => {
    await c.wait(300);
    await streamOf('one')(c);
  });
  await expectAnswerOf('one', await running.chat(STREAM));
});

describe('one of the two fails', () => {
  /** Once both were asked. */
  const then =
    (...steps: Step[]): Step =>
    async (c) => {
      await c.waitFor(() => one.requests.length === 1 && two.requests.length === 1);
      for (const step of steps) await step(c);
    };
  const errorFrame = [
    head(200, SSE_HEADERS),
    (c) => c.chunk(frame(upstreamError('first', { code: 500 }))),
    lastChunk(),
  ] satisfies Step[];
  const failures: [string, Step[]][] = [
    ['503', [json(503, upstreamError('busy'))]],
    ['a fault of the caller', [json(400, upstreamError('no'))]],
    ['a reset', [reset()]],
    ['a reset after its head', [head(200, SSE_HEADERS), reset()]],
    ['an error frame', errorFrame],
    ['HTML', [json(200, '<html>', { 'content-type': 'text/html' })]],
  ];

  test.each(failures)('the first with %s: the second answers', async (_, steps) => {
    const running = await start('40ms');
    one.next(then(...steps));
    two.next(async (c) => {
      await c.waitFor(() => one.answering === 0);
      await pause(20);
      await streamOf('two')(c);
    });
    const response = await running.chat(STREAM);
    await expectAnswerOf('two', response);
    expect(counts()).toEqual([1, 1]);
    await expectNothingLeft(running);
    expect(await running.accessLine(response)).toMatchObject({ attempts: 2, outcome: 'ok', upstream: 'two' });
  });

  test.each(failures)('the second with %s: the first answers', async (_, steps) => {
    const running = await start('40ms');
    two.next(then(...steps));
    one.next(async (c) => {
      await c.waitFor(() => two.requests.length === 1 && two.answering === 0);
      await pause(20);
      await streamOf('one')(c);
    });
    const response = await running.chat(STREAM);
    await expectAnswerOf('one', response);
    expect(counts()).toEqual([1, 1]);
    await expectNothingLeft(running);
    expect(await hedges(running, 'failed')).toBe(1);
    expect(await running.accessLine(response)).toMatchObject({ attempts: 2, outcome: 'ok', upstream: 'one' });
  });

  test.each([
    [503, 500, 500, 'two'],
    [400, 500, 400, 'one'],
    [500, 404, 404, 'two'],
  ])(
    'both, with %i and %i: the client reads %i, as if they had been asked in turn',
    async (a, b, read, upstream) => {
      const running = await start('40ms', { retry: { attempts: 2 } });
      let isSent = false;
      one.next(
        then(json(a, upstreamError(`says ${a}`)), () => {
          isSent = true;
        }),
      );
      two.next(async (c) => {
        await c.waitFor(() => isSent);
        await pause(20);
        await json(b, upstreamError(`says ${b}`))(c);
      });
      const response = await running.chat(STREAM);
      expect([response.status, response.json()]).toEqual([read, upstreamError(`says ${read}`)]);
      expect(counts()).toEqual([1, 1]);
      await expectNothingLeft(running);
      expect(await running.accessLine(response)).toMatchObject({
        upstream,
        upstream_status: read,
        outcome: 'upstream_error',
        hedged: true,
      });
    },
  );

  test('both: a third target is asked, and no further one at the same time', async () => {
    await using three = await HostileUpstream.start(async (c) => {
      await c.wait(150);
      await streamOf('three')(c);
    });
    await using four = await HostileUpstream.start();
    gateway = await startGateway({
      upstreams: { one: one.baseUrl, two: two.baseUrl, three: three.baseUrl, four: four.baseUrl },
      config: {
        models: { 'test-model': modelOf('40ms', 'one', 'two', 'three', 'four') },
        retry: { attempts: 10 },
      },
    });
    one.next(then(json(503, {})));
    two.next(then(json(503, {})));
    await expectAnswerOf('three', await gateway.chat(STREAM));
    expect([...counts(), three.requests.length, four.requests.length]).toEqual([1, 1, 1, 0]);
  });

  test.each([
    [false, 502],
    [true, 502],
  ])('both by a reset: nobody else is asked (`after_send: %s`)', async (after_send, status) => {
    await using three = await HostileUpstream.start();
    gateway = await startGateway({
      upstreams: { one: one.baseUrl, two: two.baseUrl, three: three.baseUrl },
      config: {
        models: { 'test-model': modelOf('40ms', 'one', 'two', 'three') },
        retry: { attempts: 10, after_send },
      },
    });
    one.next(then(reset()));
    two.next(then(reset()));
    expect((await gateway.chat(STREAM)).status).toBe(status);
    expect([...counts(), three.requests.length]).toEqual([1, 1, 0]);
  });
});

describe('a stream that may open without output', () => {
  const COMMIT = { stream: { commit_after: '20ms' } };
  const mute: Step = async (c) => {
    await c.head(200, SSE_HEADERS);
    await c.chunk(': ping\n\n');
  };

  test('opens when its time has come and no other runs, and then none is asked', async () => {
    const running = await start('1s', COMMIT);
    one.next(async (c) => {
      await mute(c);
      await c.wait(1400);
      await c.chunk(textOf('one'));
      await c.lastChunk();
    });
    const response = await running.chat(STREAM);
    expect(response.text()).toBe(`: ping\n\n${textOf('one')}`);
    expect(counts()).toEqual([1, 0]);
  });

  test('waits while another one runs: the first output is the client’s', async () => {
    const running = await start('50ms', COMMIT);
    using client = await running.open(STREAM);
    one.next(async (c) => {
      await c.waitFor(() => two.answering === 1);
      await mute(c);
      await c.silence();
    });
    two.next(async (c) => {
      await mute(c);
      await c.wait(200);
      expect(client.received.length).toBe(0);
      for (const each of [...framesOf('two'), DONE]) await c.chunk(each);
      await c.lastChunk();
    });
    const response = await client.response();
    expect([response.text(), response.complete]).toEqual([`: ping\n\n${textOf('two')}`, true]);
    await expectNothingLeft(running);
  });

  test('opens as soon as the other one has failed', async () => {
    const running = await start('50ms', COMMIT);
    using client = await running.open(STREAM);
    one.next(async (c) => {
      await c.waitFor(() => two.answering === 1);
      await mute(c);
      await c.waitFor(() => client.received.bytes.includes(': ping'));
      await c.chunk(textOf('one'));
      await c.lastChunk();
    });
    two.next(async (c) => {
      await c.waitFor(() => one.requests.length === 1);
      await c.wait(150);
      expect(client.received.length).toBe(0);
      await json(503, {})(c);
    });
    const response = await client.response();
    expect([response.text(), response.complete]).toEqual([`: ping\n\n${textOf('one')}`, true]);
    await expectNothingLeft(running);
  });

  test('does not open for a client that has left', async () => {
    const running = await start('50ms', COMMIT);
    for (const each of [one, two]) {
      each.next([(c) => c.waitFor(() => counts().every((count) => count === 1)), mute, silence()]);
    }
    const client = await running.open(STREAM);
    await until(() => two.answering === 1, 'the second request');
    await pause(60);
    client.destroy();
    await until(() => one.openSockets + two.openSockets === 0, 'the end of both connections');
    await expectNothingLeft(running);
    const line = await running.logLine((each) => each['msg'] === 'request');
    expect(line).toMatchObject({ status: 499, outcome: 'client_closed' });
    expect(line).not.toHaveProperty('bytes_out');
  });

  test('is the one that sends more than may be held', async () => {
    const running = await start('50ms', { stream: { commit_after: '60s' } });
    const long = `: ${'x'.repeat(50_000)}\n\n`.repeat(6);
    one.next([head(200, SSE_HEADERS), silence()]);
    two.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(long);
      await c.waitFor(() => one.openSockets === 0);
      await c.chunk(textOf('two'));
      await c.lastChunk();
    });
    expect((await running.chat(STREAM)).text() === long + textOf('two')).toBe(true);
  });
});

describe('while both run', () => {
  test.each<[string, (client: { destroy(): void }, running: Gateway) => void]>([
    ['the client leaves', (client) => client.destroy()],
    ['the gateway is stopped', (_, running) => void running.close()],
  ])('%s: both connections are closed', async (_, stop) => {
    const running = await start('50ms');
    for (const each of [one, two]) each.next([head(200, SSE_HEADERS), silence()]);
    const client = await running.open(STREAM);
    await until(() => one.answering + two.answering === 2, 'both requests');
    stop(client, running);
    await until(() => one.openSockets + two.openSockets === 0, 'the end of both connections');
    await until(() => running.app.inFlight === 0, 'the end of the request');
    expect(counts()).toEqual([1, 1]);
    for (const name of ['one', 'two'])
      expect(running.app.breaker(name, 'upstream-model')).toMatchObject({ inFlight: 0, failures: 0 });
    client.destroy();
  });

  test('`retry.deadline` ends both', async () => {
    const running = await start('50ms', { retry: { deadline: '250ms' } });
    for (const each of [one, two]) each.next(silence());
    const response = await running.chat(STREAM);
    expect([response.status, ...counts()]).toEqual([504, 1, 1]);
    expect(response.json()).toMatchObject({ error: { code: 'upstream_timeout' } });
    await until(() => one.openSockets + two.openSockets === 0, 'the end of both connections');
    await expectNothingLeft(running);
    expect(running.app.breaker('two', 'upstream-model')).toMatchObject({ failures: 0 });
  });
});
