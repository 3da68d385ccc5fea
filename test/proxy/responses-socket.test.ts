// Responses over a WebSocket through a whole gateway: what each response counts as, the models and lanes of one connection, and whose
// responses a request may continue. responses-socket-ends.test.ts has the ways in which a connection ends.
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import { ResponsesSocket as Socket } from '../helpers/responses-socket.ts';
import { eventsOf, ResponsesUpstream } from '../helpers/responses-upstream.ts';
import { until, within } from '../helpers/wait.ts';

let upstream: ResponsesUpstream;
let other: ResponsesUpstream;
let gateway: Gateway;

const target = (name: string, model = 'upstream-model') => ({
  targets: [{ upstream: name, model }],
});

beforeAll(async () => {
  upstream = await ResponsesUpstream.start();
  other = await ResponsesUpstream.start();
  gateway = await startGateway({
    upstreams: { fake: upstream.baseUrl, other: other.baseUrl, plain: other.baseUrl },
    now: fleetingClock(),
    config: {
      upstreams: { fake: { websocket: true }, other: { websocket: true }, echo: { builtin: 'echo' } },
      models: {
        'test-model': target('fake'),
        'other-model': target('other', 'model-of-other'),
        'plain-model': target('plain'),
        'echo-model': target('echo', 'echo'),
        'strict-model': { ...target('fake'), body: { refuse: ['tools'] } },
        'safe-model': {
          targets: [
            { upstream: 'fake', model: 'first', priority: 1 },
            { upstream: 'other', model: 'second', priority: 2 },
          ],
        },
      },
      tiers: { Lite: { requests_per_minute: 2, concurrency: 1 } },
    },
  });
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
  await other[Symbol.asyncDispose]();
});

beforeEach(() => {
  for (const each of [upstream, other]) {
    each.created.length = 0;
    each.answer = (event, id) => eventsOf(event, id);
  }
});

describe('responses in turn', () => {
  test('come over one connection to the upstream, each like the answer of the upstream', async () => {
    using socket = await Socket.open(gateway);
    const before = upstream.server.sessions.length;
    const sent = { tools: [], metadata: { é: '🌤️' }, client_metadata: { own: 1 } };
    socket.create(sent);
    const events = await until(() => socket.events.length === 6 && [...socket.events], 'all events');
    const { id } = Object(events[0]?.['response']);
    expect(events).toEqual(eventsOf({ model: 'test-model' }, id));
    socket.events.length = 0;
    await socket.respond({ previous_response_id: id, store: false });
    expect(upstream.server.sessions.length - before).toBe(1);
    expect(upstream.events).toEqual([
      { type: 'response.create', model: 'upstream-model', input: 'Hello?', ...sent },
      {
        type: 'response.create',
        model: 'upstream-model',
        input: 'Hello?',
        previous_response_id: id,
        store: false,
      },
    ]);
    const [handshake] = upstream.server.handshakes;
    expect(handshake?.url).toBe('/v1/responses');
    expect(handshake?.headers.authorization).toBe('Bearer credential-of-fake');
  });

  test('reach the official client without a reconnect', async () => {
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key() });
    const reconnects: unknown[] = [];
    const socket = new ResponsesWS(client, {
      reconnect: { onReconnecting: (event) => void reconnects.push(event) },
    });
    const texts: string[] = [];
    const completed: string[] = [];
    socket.on('response.output_text.delta', ({ delta }) => texts.push(delta));
    socket.on('response.completed', ({ response }) => completed.push(response.id));
    const errors: unknown[] = [];
    socket.on('error', (error) => errors.push(error.error));
    for (const count of [1, 2, 3]) {
      const previous = completed.at(-1);
      socket.send({
        type: 'response.create',
        model: 'test-model',
        input: 'Hello?',
        store: false,
        ...(previous === undefined ? {} : { previous_response_id: previous }),
      });
      await until(() => completed.length === count, 'a response');
    }
    expect(texts).toEqual(['Hello.', 'Hello.', 'Hello.']);
    socket.send({ type: 'response.create', model: 'no-such-model', input: 'Hello?' });
    await until(() => errors.length === 1, 'an error');
    expect(errors[0]).toMatchObject({ type: 'error', status: 404, error: { code: 'model_not_found' } });
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.close();
    await within(closed, 'the close');
    expect(reconnects).toEqual([]);
  });

  test('may go to different models, each on a connection to its upstream', async () => {
    using socket = await Socket.open(gateway);
    await socket.respond();
    await socket.respond({ model: 'other-model' });
    const echoed = await socket.respond({ model: 'echo-model', input: 'twice' });
    await socket.respond({ model: 'test-model' });
    expect(upstream.created.map(({ connection }) => connection)).toEqual([
      upstream.server.sessions.length - 1,
      upstream.server.sessions.length - 1,
    ]);
    expect(other.events).toMatchObject([{ model: 'model-of-other' }]);
    expect(JSON.stringify(echoed)).toContain('You said: twice');
  });

  test('prepare a next one without output', async () => {
    upstream.answer = (event, id) =>
      eventsOf(event, id).filter(({ type }) => /created|completed/.test(String(type)));
    using socket = await Socket.open(gateway);
    await socket.respond({ generate: false });
    expect(upstream.events).toMatchObject([{ generate: false }]);
  });
});

describe('an event that fails leaves the connection usable', () => {
  const cases: readonly [string, Record<string, unknown>, number, string][] = [
    ['of an unknown model', { model: 'unknown' }, 404, 'model_not_found'],
    ['without a model', { model: undefined }, 400, 'missing_required_parameter'],
    ['of a model without WebSockets', { model: 'plain-model' }, 426, 'websocket_not_offered'],
    ['with a rejected member', { model: 'strict-model', tools: [] }, 400, 'unsupported_parameter'],
    [
      'with a file of nobody',
      { input: [{ type: 'item_reference', id: 'msg_foreign' }] },
      404,
      'object_not_found',
    ],
    [
      'that continues a response of nobody',
      { previous_response_id: 'resp_x' },
      400,
      'previous_response_not_found',
    ],
    ['with two types', { Type: 'response.steer' }, 400, 'duplicate_parameter'],
    ['of another type', { type: 'response.cancel' }, 400, 'invalid_value'],
    ['without a type', { type: undefined }, 400, 'invalid_value'],
  ];

  test.each(cases)('%s', async (_what, more, status, code) => {
    using socket = await Socket.open(gateway);
    const event = await socket.fail({ stream_id: 'lane', ...more });
    expect(event).toMatchObject({ type: 'error', status, error: { code }, stream_id: 'lane' });
    expect(upstream.events).toEqual([]);
    await socket.respond();
  });

  test.each([
    ['no JSON', '{"type":"response.create",'],
    ['no object', '[1]'],
    ['nothing', ''],
    ['two types of one name', '{"type":"response.create","type":"x","model":"test-model"}'],
  ])('%s', async (_what, text) => {
    using socket = await Socket.open(gateway);
    socket.raw.send(text);
    expect(await socket.next('error')).toMatchObject({ status: 400 });
    await socket.respond();
  });

  test('an error of the upstream, with its status and the time to wait', async () => {
    upstream.answer = () => [
      {
        type: 'error',
        status: 429,
        error: { type: 'tokens', code: 'rate_limit_exceeded', message: 'Slow down.' },
      },
    ];
    using socket = await Socket.open(gateway);
    expect(await socket.fail()).toMatchObject({
      status: 429,
      error: { code: 'rate_limit_exceeded', message: 'Slow down.' },
    });
    upstream.answer = (event, id) => [
      ...eventsOf(event, id).slice(0, 3),
      { type: 'error', code: 'server_error', message: 'Broken.', param: null, sequence_number: 3 },
    ];
    socket.create();
    await socket.next('response.output_text.delta');
    expect(await socket.next('error')).toMatchObject({ code: 'server_error', message: 'Broken.' });
    upstream.answer = (event, id) => eventsOf(event, id);
    await socket.respond();
  });

  test('steering is answered in its own form', async () => {
    using socket = await Socket.open(gateway);
    socket.send({ type: 'response.processed', response_id: 'resp_1' });
    socket.send({ type: 'response.steer', previous_response_id: 'resp_1', input: 'Stop.' });
    expect(await socket.next('response.steer.failed')).toMatchObject({
      steer: { previous_response_id: 'resp_1', input: 'Stop.' },
      error: { code: 'steering_not_supported' },
    });
    await socket.respond();
    expect(upstream.events.map(({ type }) => type)).toEqual(['response.create']);
  });
});

describe('what a response continues', () => {
  test('may be unstored on the same connection, and on no other', async () => {
    using socket = await Socket.open(gateway);
    const { response } = await socket.respond({ store: false });
    const id = Reflect.get(Object(response), 'id');
    await socket.respond({ store: false, previous_response_id: id });
    using second = await Socket.open(gateway);
    const event = await second.fail({ store: false, previous_response_id: id });
    expect(event).toMatchObject({ status: 400, error: { code: 'previous_response_not_found' } });
  });

  test('may be stored by its holder, on any connection, and goes to the upstream that has it', async () => {
    other.answer = (event) => eventsOf(event, 'resp_stored_by_other');
    using socket = await Socket.open(gateway);
    await socket.respond({ model: 'other-model' });
    using second = await Socket.open(gateway);
    await second.respond({ model: 'safe-model', previous_response_id: 'resp_stored_by_other' });
    expect(other.events.at(-1)).toMatchObject({ model: 'second' });
    using stranger = await Socket.open(gateway, await gateway.issueKey());
    const event = await stranger.fail({ previous_response_id: 'resp_stored_by_other', model: 'other-model' });
    expect(event).toMatchObject({ status: 400, error: { code: 'previous_response_not_found' } });
  });
});

describe('lanes', () => {
  test('run beside each other, and the events of one in turn', async () => {
    const gate = Promise.withResolvers<void>();
    using socket = await Socket.open(gateway);
    upstream.answer = null;
    socket.create({ stream_id: 'a', input: '1' });
    socket.create({ stream_id: 'b', input: '2' });
    socket.create({ stream_id: 'a', input: '3' });
    await until(() => upstream.created.length === 2, 'two lanes');
    gate.resolve();
    expect(upstream.events.map(({ input }) => input)).toEqual(['1', '2']);
    const session = upstream.server.sessions.at(-1);
    const say = (index: number) => {
      const { event } = upstream.created[index] ?? {};
      for (const each of eventsOf(event ?? {}, `resp_${index}`, `text ${index}`))
        session?.socket.send(JSON.stringify(each));
    };
    say(1);
    expect(await socket.next('response.output_text.done')).toMatchObject({ stream_id: 'b', text: 'text 1' });
    await socket.next('response.completed');
    say(0);
    expect(await socket.next('response.completed')).toMatchObject({ stream_id: 'a' });
    await until(() => upstream.created.length === 3, 'the next in the first lane');
    say(2);
    expect(await socket.next('response.output_text.done')).toMatchObject({ stream_id: 'a', text: 'text 2' });
    expect(new Set(upstream.created.map(({ connection }) => connection)).size).toBe(1);
  });

  test('get no event of another lane that has ended', async () => {
    upstream.answer = null;
    using socket = await Socket.open(gateway);
    socket.create({ stream_id: 'a' });
    socket.create({ stream_id: 'b' });
    await until(() => upstream.created.length === 2, 'two lanes');
    const session = upstream.server.sessions.at(-1);
    const say = (index: number, id: string) => {
      for (const each of eventsOf(upstream.events[index] ?? {}, id))
        session?.socket.send(JSON.stringify(each));
    };
    say(0, 'resp_of_a');
    say(0, 'resp_late');
    say(1, 'resp_of_b');
    const last = (event: { readonly type?: unknown }) => event.type === 'response.completed';
    await until(() => socket.events.filter(last).length === 2, 'both');
    expect(JSON.stringify(socket.events)).not.toContain('resp_late');
  });

  test('belong to an upstream without lanes in the order of its requests', async () => {
    upstream.answer = (event, id) => eventsOf({ ...event, stream_id: undefined }, id, String(event['input']));
    using socket = await Socket.open(gateway);
    for (const each of ['1', '2', '3']) socket.create({ stream_id: each, input: each });
    await until(() => socket.events.filter(({ type }) => type === 'response.completed').length === 3, 'all');
    const texts = socket.events.filter(({ type }) => type === 'response.output_text.done');
    expect(texts.map(({ text }) => text)).toEqual(['1', '2', '3']);
  });
});

describe('limits', () => {
  test('are those of each response; one beyond them is an error, and counts nothing', async () => {
    const key = await gateway.issueKey('Lite');
    using socket = await Socket.open(gateway, key);
    await socket.respond();
    await socket.respond();
    const event = await socket.fail();
    expect(event).toMatchObject({ status: 429, error: { code: 'rate_limit_exceeded', type: 'requests' } });
    expect(Number(Reflect.get(Object(event['headers']), 'retry-after'))).toBeGreaterThan(0);
    expect(upstream.created).toHaveLength(2);
    const usage = await until(async () => {
      const answer = await fetch(`${gateway.url}/admin/usage`, {
        headers: { authorization: `Bearer ${key}` },
      });
      const text = await answer.text();
      return text.includes('"requests":2') && text;
    }, 'the usage of two responses');
    expect(usage).toContain('"prompt_tokens":20');
    expect(usage).toContain('"completion_tokens":10');
  });

  test('a connection without a response holds no slot', async () => {
    const key = await gateway.issueKey('Lite');
    using first = await Socket.open(gateway, key);
    using second = await Socket.open(gateway, key);
    await first.respond();
    await second.respond();
  });
});

test('a target without an answer is replaced by the next', async () => {
  upstream.answer = () => [{ type: 'error', status: 503, error: { code: 'server_error', message: 'Down.' } }];
  using socket = await Socket.open(gateway);
  await socket.respond({ model: 'safe-model' });
  expect(other.events).toMatchObject([{ model: 'second' }]);
});

test('the log has a line for each response and one for the connection', async () => {
  const socket = await Socket.open(gateway);
  await socket.respond();
  const line = await gateway.logLine((each) => each['route'] === '/v1/responses' && each['status'] === 200);
  expect(line).toMatchObject({ upstream: 'fake', prompt_tokens: 10, completion_tokens: 5, stream: true });
  socket.raw.close(1000);
  const last = await gateway.logLine((each) => each['status'] === 101 && each['responses'] === 1);
  expect(last).toMatchObject({
    route: '/v1/responses',
    close_code: 1000,
    closed_by: 'client',
    outcome: 'ok',
  });
  // With the framing.
  expect(Number(last['bytes_in'])).toBeGreaterThan(50);
  expect(Number(last['bytes_out'])).toBeGreaterThan(500);
  await until(async () => (await gateway.metric('tollgate_responses_websockets')) === 0, 'no connection');
});
