// The point of no return: what is held back before it, what can still be decided, and what cannot any more after it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { closedPort } from '../helpers/closed-port.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  DONE,
  early,
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
  standardAnswer,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { pause } from '../helpers/wait.ts';

let one: HostileUpstream;
let two: HostileUpstream;
let gateway: Gateway;
const STREAM = chatRequest({ stream: true });
const own = { model: 'test-model' };
const HELD = [': ping\n\n', frame(roleChunk(own)), ': OPENROUTER PROCESSING\n\n'];
const SECOND = [frame(contentChunk('from two', own)), frame(finishChunk('stop', own)), DONE].join('');

beforeAll(async () => {
  one = await HostileUpstream.start();
  two = await HostileUpstream.start(
    sse([frame(contentChunk('from two', own)), frame(finishChunk('stop', own))], {
      headers: { ...SSE_HEADERS, 'openai-version': 'two' },
    }),
  );
  gateway = await startGateway({
    now: fleetingClock(),
    upstreams: { one: one.baseUrl, two: two.baseUrl },
    config: {
      stream: { commit_after: '60s' },
      upstreams: { one: { timeouts: { first_token: '400ms', headers: '400ms', idle: '30s' } } },
      models: {
        'test-model': {
          targets: [
            { upstream: 'one', model: 'model-of-one' },
            { upstream: 'two', model: 'model-of-two', priority: 2 },
          ],
        },
        alone: { targets: [{ upstream: 'one', model: 'model-of-one' }] },
      },
    },
  });
  await gateway.key();
});

afterAll(async () => {
  await gateway?.close();
  await one?.close();
  await two?.close();
});

async function relayed(script: Script, body: object = STREAM): Promise<RawResponse> {
  one.next(script);
  return await gateway.chat(body);
}

const begins =
  (frames: readonly string[], then: Step): Step =>
  async (c) => {
    await c.head(200, { ...SSE_HEADERS, 'openai-version': 'one' });
    for (const each of frames) await c.chunk(each);
    await then(c);
  };

/** An answer of the second upstream alone: not a byte of the first. */
async function expectFallback(response: RawResponse, attempts = 2): Promise<void> {
  expect([response.status, response.text(), response.complete]).toEqual([200, SECOND, true]);
  expect(response.header('openai-version')).toBe('two');
  expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'ok', upstream: 'two', attempts });
}

const error = (code: unknown) =>
  `data: {"error":{"message":"m","type":"t","code":${JSON.stringify(code)}}}\n\n`;

describe('before the first output another target can be asked', () => {
  test.each<[string, Script]>([
    ['a reset', begins(HELD, (c) => c.reset())],
    ['a close', begins(HELD, (c) => c.close())],
    ['a clean end', begins(HELD, (c) => c.lastChunk())],
    ['an empty stream', begins([], (c) => c.lastChunk())],
    ['silence', begins(HELD, silence())],
    [
      'comments without end',
      begins(HELD, async (c) => {
        for (;;) {
          await c.chunk(': ping\n\n');
          await c.wait(20);
        }
      }),
    ],
    ['an error frame', begins([...HELD, error(500)], (c) => c.lastChunk())],
    ['an error frame of 429', begins([error(429)], (c) => c.lastChunk())],
    [
      'an error frame without a status, and [DONE]',
      begins([...HELD, error('x'), DONE], (c) => c.lastChunk()),
    ],
    ['an error in the segment of the role', begins([HELD.join('') + error(503)], (c) => c.lastChunk())],
    [
      'an error before output in one segment',
      begins([error(503) + frame(contentChunk('x'))], (c) => c.lastChunk()),
    ],
    ['an error frame without its blank line', begins([...HELD, error(503).trimEnd()], (c) => c.lastChunk())],
    ['garbage in the coding', begins(HELD, (c) => c.send('zz\r\n'))],
    ['HTML', json(200, '<html>', { 'content-type': 'text/html' })],
    ['a redirect', json(302, '', { location: 'http://127.0.0.1/' })],
    ['a JSON error', json(200, { error: { message: 'm', code: 500 } })],
    ['a refusal of the key', json(401, { error: { message: 'm' } })],
    ['429', json(429, { error: { message: 'm' } }, { 'retry-after': '5', 'openai-version': 'one' })],
    [
      '503 with its body cut',
      async (c) => {
        await c.head(503, { 'content-length': 10 });
        c.reset();
      },
    ],
    ['garbage', (c) => c.send('garbage\r\n\r\n')],
  ])('after %s', async (_name, script) => {
    await expectFallback(await relayed(script));
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="one"}')).toBe(0);
  });

  test('with its own model, key, path and whole body', async () => {
    one.next(json(503, {}));
    const at = [one.requests.length, two.requests.length] as const;
    const text = 'x'.repeat(3_000_000);
    await expectFallback(await gateway.chat(`{"model":"test-model","stream":true,"a":"${text}"}`));
    const [first, second] = [await one.request(at[0]), await two.request(at[1])];
    const sent = (model: string) =>
      `{"model":"${model}","stream":true,"a":"${text}","stream_options":{"include_usage":true}}`;
    expect(first.body.toString() === sent('model-of-one')).toBe(true);
    expect(second.body.toString() === sent('model-of-two')).toBe(true);
    expect([first.header('authorization'), second.header('authorization')]).toEqual([
      'Bearer credential-of-one',
      'Bearer credential-of-two',
    ]);
  });

  test('although the first refused it before it had read the body', async () => {
    const at = two.requests.length;
    one.next(
      early(async (c) => {
        c.pauseReading();
        await json(503, {}, { connection: 'close' })(c);
        c.close();
      }),
    );
    const text = 'x'.repeat(5_000_000);
    await expectFallback(await gateway.chat(`{"model":"test-model","stream":true,"a":"${text}"}`));
    expect((await two.request(at)).body.length).toBeGreaterThan(5_000_000);
  });

  test('for an answer that is not streamed too', async () => {
    two.next(json(200, completion({ content: 'from two' })));
    const response = await relayed(async (c) => {
      await c.head(200, { 'content-type': 'application/json', 'content-length': 100 });
      await c.send('{"id":');
      c.reset();
    }, chatRequest());
    expect([response.status, response.text().includes('from two')]).toEqual([200, true]);
  });

  test('unless the caller is at fault', async () => {
    for (const script of [
      begins([...HELD, error(400)], (c) => c.lastChunk()),
      json(422, { error: { message: 'm' } }),
    ]) {
      const before = two.requests.length;
      const response = await relayed(script);
      expect([400, 422]).toContain(response.status);
      expect(two.requests.length).toBe(before);
    }
  });
});

describe('an error among the first frames is the answer when no target is left', () => {
  test.each([
    [400, 400],
    ['404', 404],
    [429, 429],
    [503, 503],
    ['server_error', 502],
    [200, 502],
  ])('with the status that it names (%s → %i)', async (code, status) => {
    const frames = [...HELD, error(code)];
    const refusal = begins(frames, (c) => c.lastChunk());
    // The only target may be asked again.
    one.always(refusal);
    const response = await relayed(refusal, { ...STREAM, model: 'alone' });
    one.always(standardAnswer);
    expect([response.status, response.header('content-type')]).toEqual([status, 'application/json']);
    expect(`data: ${response.text()}\n\n`).toBe(error(code));
    expect(await gateway.accessLine(response)).toMatchObject({
      outcome: 'upstream_error',
      upstream_status: 200,
    });
  });

  test('of several lines of data', async () => {
    const event = 'data: {"error":\ndata: {"message":"m","code":418}}\n\n';
    const response = await relayed(
      begins([event], (c) => c.lastChunk()),
      { ...STREAM, model: 'alone' },
    );
    expect([response.status, response.json()]).toEqual([418, { error: { message: 'm', code: 418 } }]);
  });
});

describe('what was held back', () => {
  test('is sent as it came, and not before the first output', async () => {
    using client = await gateway.connect();
    one.next(
      begins(HELD, async (c) => {
        await c.wait(100);
        expect(client.received.length).toBe(0);
        await c.chunk(frame(contentChunk('x', own)));
        await c.waitFor(() => client.received.bytes.includes('"x"'));
        await c.chunk(frame(finishChunk('stop', own)) + DONE);
        await c.lastChunk();
      }),
    );
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const response = await client.ask({ headers, body: STREAM });
    expect(response.text()).toBe(
      [...HELD, frame(contentChunk('x', own)), frame(finishChunk('stop', own)), DONE].join(''),
    );
    expect(response.header('openai-version')).toBe('one');
  });

  test('is sent when it is more than may be held', async () => {
    const comment = `: ${'x'.repeat(1000)}\n\n`;
    using client = await gateway.connect();
    one.next(
      begins([], async (c) => {
        for (let i = 0; i < 300; i++) await c.chunk(comment);
        await c.waitFor(() => client.received.length > 250_000);
        await c.chunk(frame(contentChunk('x')) + DONE);
        await c.lastChunk();
      }),
    );
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const response = await client.ask({ headers, body: STREAM });
    expect(response.text().split(comment)).toHaveLength(301);
  });

  test.each(['tool_calls', 'refusal', 'reasoning_content', 'audio', 'function_call'])(
    'begins with %s as output',
    async (name) => {
      const value =
        name === 'tool_calls'
          ? [{ index: 0, function: { arguments: '' } }]
          : name === 'audio'
            ? { id: 'a' }
            : 'x';
      const output = frame({
        choices: [{ index: 0, delta: { [name]: name === 'function_call' ? { name: 'f' } : value } }],
      });
      const response = await relayed(begins([...HELD, output], (c) => c.reset()));
      expect(response.text().startsWith(HELD.join('') + output)).toBe(true);
      expect(response.complete).toBe(false);
    },
  );
});

test('after the first output nobody else is asked', async () => {
  const before = two.requests.length;
  const response = await relayed(
    begins([...HELD, frame(contentChunk('x', own))], async (c) => {
      await pause(20);
      c.reset();
    }),
  );
  expect(response.text()).toContain('"code":"stream_incomplete"');
  expect([response.complete, two.requests.length]).toEqual([false, before]);
});

test('output and an error in one segment: the output was first', async () => {
  const before = two.requests.length;
  const both = frame(contentChunk('x', own)) + error(500);
  const response = await relayed(begins([both], (c) => c.lastChunk()));
  expect([response.text(), response.complete, two.requests.length]).toEqual([both, true, before]);
});

test('`retry.attempts: 1` asks one target once', async () => {
  await using other = await startGateway({
    upstreams: { dead: `http://127.0.0.1:${await closedPort()}/v1`, two: two.baseUrl },
    config: { retry: { attempts: 1 } },
  });
  const before = two.requests.length;
  const response = await other.chat(STREAM);
  expect([response.status, two.requests.length]).toEqual([502, before]);
  expect(await other.accessLine(response)).toMatchObject({ attempts: 1, outcome: 'upstream_unreachable' });
});

describe('a stream opens without output', () => {
  test('when `stream.commit_after` has passed, and keeps the upstream that it has', async () => {
    await using other = await startGateway({
      upstreams: { one: one.baseUrl, two: two.baseUrl },
      config: { stream: { commit_after: '100ms' } },
    });
    using client = await other.connect();
    const before = two.requests.length;
    one.next(
      begins([HELD[0] ?? ''], async (c) => {
        await c.waitFor(() => client.received.bytes.includes(': ping'));
        await c.chunk(error(400));
        await c.lastChunk();
      }),
    );
    const headers = { authorization: `Bearer ${await other.key()}` };
    const response = await client.ask({ headers, body: STREAM });
    expect([response.status, response.text(), response.complete]).toEqual([200, HELD[0] + error(400), true]);
    expect(two.requests.length).toBe(before);
  });

  test('with its headers when nothing came at all', async () => {
    await using other = await startGateway({
      upstreams: { one: one.baseUrl },
      config: { stream: { commit_after: '0s' } },
    });
    using client = await other.connect();
    one.next(
      begins([], async (c) => {
        await c.waitFor(() => client.responses.length === 1);
        await c.chunk(SECOND);
        await c.lastChunk();
      }),
    );
    const headers = { authorization: `Bearer ${await other.key()}` };
    expect((await client.ask({ headers, body: STREAM })).text()).toBe(SECOND);
  });
});

test('where the upstream may have begun, the request goes nowhere else unless the configuration says so', async () => {
  const mute: Script = silence();
  const gone: Script = (c) => c.reset();
  for (const [script, status] of [
    [mute, 504],
    [gone, 502],
  ] as const) {
    const before = two.requests.length;
    const response = await relayed(script);
    expect([response.status, two.requests.length]).toEqual([status, before]);
  }
  await using daring = await startGateway({
    upstreams: { one: one.baseUrl, two: two.baseUrl },
    config: {
      retry: { after_send: true },
      upstreams: { one: { timeouts: { headers: '300ms' } } },
    },
  });
  for (const script of [mute, gone]) {
    one.next(script);
    const response = await daring.chat(STREAM);
    expect([response.status, response.text()]).toEqual([200, SECOND]);
  }
});
