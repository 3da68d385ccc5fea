// Models that think for long: what counts as output, what as life, who is asked next, and that no breaker opens by it.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  frame,
  HostileUpstream,
  json,
  reset,
  type Script,
  SSE_HEADERS,
  silence,
} from '../helpers/hostile-upstream.ts';

const STREAM = chatRequest({ stream: true });
const X = frame(contentChunk('x', { model: 'test-model' }));
const END = frame('[DONE]');

let one: HostileUpstream;
let two: HostileUpstream;
let gateway: Gateway | undefined;

beforeEach(async () => {
  one = await HostileUpstream.start();
  two = await HostileUpstream.start();
});
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
  await Promise.all([one.close(), two.close()]);
});

async function start(config: NonNullable<GatewayOptions['config']> = {}): Promise<Gateway> {
  gateway = await startGateway({
    upstreams: { one: one.baseUrl, two: two.baseUrl },
    config: { ...config, retry: { budget: 1, after_send: true } },
  });
  return gateway;
}

const timeouts = (own: Readonly<Record<string, string>>) => ({ upstreams: { one: { timeouts: own } } });
const requests = () => [one.requests.length, two.requests.length];

const streamed =
  (pieces: readonly string[], ms = 60): Script =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    for (const piece of pieces) {
      await c.chunk(piece);
      await c.wait(ms);
    }
    await c.lastChunk();
  };

/** A stream of nothing but this. */
const forever =
  (piece: string): Script =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    for (;;) {
      await c.chunk(piece);
      await c.wait(20);
    }
  };

const NO_OUTPUT: [string, string][] = [
  ['comments', ': OPENROUTER PROCESSING\n\n'],
  ['pings', 'event: ping\ndata: {"type":"ping"}\n\n'],
  ['keepalive events', 'event: keepalive\ndata: {"type":"keepalive","sequence_number":3}\n\n'],
  ['empty deltas', frame({ choices: [{ index: 0, delta: { content: '' } }] })],
  ['roles', frame({ choices: [{ index: 0, delta: { role: 'assistant' } }] })],
];

const breakerOf = (running: Gateway, name: string) =>
  running.metric(`tollgate_upstream_breaker_state{upstream="${name}",model="upstream-model"}`);

/** So many that a breaker would have opened. */
async function askOften(running: Gateway, body: object, times = 7): Promise<void> {
  for (let i = 0; i < times; i += 1) await running.chat(body);
}

describe('without `first_token`', () => {
  test.each(NO_OUTPUT)('%s keep a stream alive for longer than `idle`', async (_name, piece) => {
    one.always(streamed([...Array<string>(9).fill(piece), X, END], 150));
    const running = await start(timeouts({ idle: '1s' }));
    const response = await running.chat(STREAM);
    expect([response.complete, response.text().includes(X)]).toEqual([true, true]);
    expect(requests()).toEqual([1, 0]);
  });

  test('silence for longer than `idle` before the first output ends it, and the next target is asked', async () => {
    one.always(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.silence();
    });
    const running = await start(timeouts({ idle: '150ms' }));
    const response = await running.chat(STREAM);
    expect([response.status, response.complete, requests()]).toEqual([200, true, [1, 1]]);
  });
});

describe('`first_token`', () => {
  test.each(NO_OUTPUT)('passes on %s, and the next target answers', async (_name, piece) => {
    one.always(forever(piece));
    const running = await start(timeouts({ first_token: '150ms' }));
    const response = await running.chat(STREAM);
    expect([response.status, response.complete, requests()]).toEqual([200, true, [1, 1]]);
  });

  test('alone bounds also the headers of a stream, and not those of a JSON answer', async () => {
    one.always(silence());
    const running = await start(timeouts({ first_token: '150ms' }));
    const response = await running.chat(STREAM);
    expect([response.complete, requests()]).toEqual([true, [1, 1]]);
    one.always(async (c) => {
      await c.wait(600);
      await json(200, completion({ model: 'slow' }))(c);
    });
    expect((await running.chat(chatRequest())).status).toBe(200);
    expect(requests()).toEqual([2, 1]);
  });
});

describe('a model that thinks for longer than a deadline opens no breaker', () => {
  test.each<[string, Script, object]>([
    ['first_token', forever(': thinking\n\n'), STREAM],
    ['headers', silence(), chatRequest()],
    [
      'idle',
      async (c) => {
        await c.head(200, SSE_HEADERS);
        await c.chunk(X);
        await c.silence();
      },
      STREAM,
    ],
    ['total', silence(), chatRequest()],
  ])('%s', async (field, script, body) => {
    one.always(script);
    const running = await start(timeouts({ [field]: '60ms' }));
    await askOften(running, body);
    expect([one.requests.length, await breakerOf(running, 'one')]).toEqual([7, 0]);
  });

  test('and a connection that breaks without an answer does', async () => {
    one.always(reset());
    const running = await start(timeouts({ first_token: '60ms' }));
    await askOften(running, STREAM);
    expect([one.requests.length, await breakerOf(running, 'one')]).toEqual([5, 2]);
  });
});

describe('a model and a target have deadlines of their own', () => {
  const target = (more: object = {}) => ({ upstream: 'one', model: 'upstream-model', ...more });
  const second = { upstream: 'two', model: 'upstream-model', priority: 2 };

  test.each<[string, Readonly<Record<string, string>>, object, boolean]>([
    ['headers', { headers: '100ms' }, chatRequest(), true],
    ['headers of a stream', { headers: '100ms' }, STREAM, true],
    ['first_token', { first_token: '100ms' }, STREAM, false],
    ['idle', { idle: '100ms' }, STREAM, false],
  ])(
    '%s: the target goes before the model, and the model before the upstream',
    async (_name, own, body, isMute) => {
      const slow: Script = async (c) => {
        if (isMute) await c.wait(400);
        if (body !== STREAM) return json(200, completion())(c);
        await c.head(200, SSE_HEADERS);
        await c.wait(isMute ? 0 : 400);
        await c.chunk(X + END);
        await c.lastChunk();
      };
      const far = Object.fromEntries(Object.keys(own).map((field) => [field, '1m']));
      const models = {
        upstream: { targets: [target(), second] },
        model: { timeouts: far, targets: [target(), second] },
        target: { timeouts: far, targets: [target({ timeouts: own }), second] },
        patient: { timeouts: own, targets: [target({ timeouts: far }), second] },
      };
      one.always(slow);
      const running = await start({ ...timeouts(own), models });
      const asked = async (model: string) => {
        const before = two.requests.length;
        const response = await running.chat({ ...body, model });
        expect([model, response.status, response.complete]).toEqual([model, 200, true]);
        return two.requests.length - before;
      };
      expect([await asked('upstream'), await asked('model')]).toEqual([1, 0]);
      expect([await asked('target'), await asked('patient')]).toEqual([1, 0]);
    },
  );

  test('total: the target goes before the model, and the model before the upstream', async () => {
    const [own, far] = [{ total: '100ms' }, { total: '1m' }];
    one.always(async (c) => {
      await c.wait(400);
      await json(200, completion())(c);
    });
    const models = {
      upstream: { targets: [target()] },
      model: { timeouts: far, targets: [target()] },
      target: { timeouts: far, targets: [target({ timeouts: own })] },
      patient: { timeouts: own, targets: [target({ timeouts: far })] },
    };
    const running = await start({ ...timeouts(own), models });
    const asked = async (model: string) => (await running.chat(chatRequest({ model }))).status;
    expect([await asked('upstream'), await asked('model')]).toEqual([504, 200]);
    expect([await asked('target'), await asked('patient')]).toEqual([504, 200]);
  });
});
