// Answers of the endpoints beside chat on the wire: what stands in the bytes, how they end, and who is let go.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  HostileUpstream,
  head,
  json,
  lastChunk,
  reset,
  SSE_HEADERS,
  type Step,
  silence,
  wait,
} from '../helpers/hostile-upstream.ts';
import type { RawClient, RawResponse } from '../helpers/raw-client.ts';
import { eventFrame, responseEvents, responseObject } from '../helpers/recorded.ts';
import { until } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({
    now: fleetingClock(),
    config: {
      upstreams: { up: { base_url: upstream.baseUrl, timeouts: { first_token: '1s', idle: '1s' } } },
      models: { m: { targets: [{ upstream: 'up', model: 'there' }] } },
      stream: { keepalive: '100ms' },
      retry: { attempts: 1 },
    },
  });
});
afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

async function open(target: string, body: object): Promise<RawClient> {
  const client = await gateway.connect();
  await client.send({ target, headers: { authorization: `Bearer ${await gateway.key()}` }, body });
  return client;
}

async function post(target: string, body: object): Promise<RawResponse> {
  using client = await open(target, body);
  return await client.response();
}

const SOUND = { 'content-type': 'audio/mpeg', 'transfer-encoding': 'chunked' };
const SPEECH = { model: 'm', voice: 'alloy', input: 'x' };
const STREAM = { model: 'm', input: 'x', stream: true };

test('a broken stream of events has an error event at the end of whole events, and no final chunk', async () => {
  const events = responseEvents().slice(0, 6).map(eventFrame);
  const torn = 'event: response.output_text.delta\ndata: {"type":"resp';
  upstream.next([head(200, SSE_HEADERS), chunk(`${events.join('')}${torn}`), wait(50), reset()]);
  const answer = await post('/v1/responses', STREAM);
  expect(answer.complete).toBe(false);
  const relayed = events.join('').replaceAll('"upstream-model"', '"m"');
  expect(answer.text().startsWith(relayed)).toBe(true);
  const [name, data = ''] = answer.text().slice(relayed.length).split('\n', 2);
  expect(name).toBe('event: error');
  expect(JSON.parse(data.replace('data: ', ''))).toMatchObject({
    type: 'error',
    code: 'stream_incomplete',
    sequence_number: 6,
  });
  expect(await gateway.accessLine(answer)).toMatchObject({
    outcome: 'stream_incomplete',
    route: '/v1/responses',
  });
});

test('silence after the first events ends the same way', async () => {
  upstream.next([
    head(200, SSE_HEADERS),
    chunk(responseEvents().slice(0, 6).map(eventFrame).join('')),
    silence(),
  ]);
  const answer = await post('/v1/responses', STREAM);
  expect([answer.complete, answer.text().includes('"code":"upstream_timeout"')]).toEqual([false, true]);
});

test('events without output, `keepalive` among them, are not waited for longer than `first_token`', async () => {
  upstream.next(async (c) => {
    await c.head(200, SSE_HEADERS);
    await c.chunk(responseEvents().slice(0, 4).map(eventFrame).join(''));
    for (;;) {
      await c.chunk('event: keepalive\ndata: {"type":"keepalive","sequence_number":5}\n\n');
      await c.wait(50);
    }
  });
  const answer = await post('/v1/responses', STREAM);
  expect(answer.status).toBe(504);
  expect(await gateway.accessLine(answer)).toMatchObject({ cause: 'deadline: first_token' });
});

test('silence before any output is a status', async () => {
  upstream.next([
    head(200, SSE_HEADERS),
    chunk(responseEvents().slice(0, 4).map(eventFrame).join('')),
    silence(),
  ]);
  const answer = await post('/v1/responses', STREAM);
  expect([answer.status, answer.complete, answer.header('content-type')]).toEqual([
    504,
    true,
    'application/json',
  ]);
});

test('sound that breaks off has not a byte more than came, and no final chunk', async () => {
  const sound = Buffer.from([0xff, 0xfb, 0x00, 0x0d, 0x0a, 0x0d, 0x0a, 0x80]);
  upstream.next([head(200, SOUND), chunk(sound), wait(50), reset()]);
  const answer = await post('/v1/audio/speech', SPEECH);
  expect([answer.status, answer.complete, answer.body.equals(sound)]).toEqual([200, false, true]);
  expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'stream_incomplete', prompt_tokens: 1 });
});

test('sound that pauses gets no comment, and comes as it comes', async () => {
  upstream.next([head(200, SOUND), chunk('one'), wait(350), chunk('two'), lastChunk()]);
  const answer = await post('/v1/audio/speech', SPEECH);
  expect([answer.complete, answer.text()]).toEqual([true, 'onetwo']);
  const [first, second] = answer.chunks;
  expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThan(200);
  expect(answer.header('cache-control')).toBe('no-cache, no-transform');
});

test('who leaves within the sound lets its upstream go', async () => {
  let left = false;
  const sing: Step = async (c) => {
    c.gone.addEventListener('abort', () => {
      left = true;
    });
    for (;;) {
      await c.chunk('la');
      await c.wait(20);
    }
  };
  upstream.next([head(200, SOUND), sing]);
  const client = await open('/v1/audio/speech', SPEECH);
  await client.readUntil('la');
  client.destroy();
  await until(() => left, 'the upstream to be let go');
  await gateway.logLine((line) => line['outcome'] === 'client_closed', 'the line of the client that left');
});

test('embeddings are asked for as they were, and all but the vectors comes back as it was', async () => {
  const sent =
    '{ "object":"list" ,"data":[{"index":0,"embedding":[1.0, -2e0],"n":12345678901234567890}],"model":"x","usage":{"prompt_tokens":1,"total_tokens":1} }';
  upstream.next(json(200, sent));
  const answer = await post('/v1/embeddings', { model: 'm', input: 'x', encoding_format: 'base64' });
  expect(answer.text()).toBe(sent.replace('[1.0, -2e0]', '"AACAPwAAAMA="').replace('"x"', '"m"'));
  upstream.next(json(200, sent));
  const plain = await post('/v1/embeddings', { model: 'm', input: 'x' });
  expect(plain.text()).toBe(sent.replace('"x"', '"m"'));
});

test('a whole answer waits for the note of where it is', async () => {
  upstream.next(json(200, responseObject({ id: 'resp_noted' })));
  const answer = await post('/v1/responses', { model: 'm', input: 'x' });
  expect(answer.status).toBe(200);
  const look: Step = json(200, responseObject({ id: 'resp_noted' }));
  upstream.next(look);
  using client = await gateway.connect();
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  // At once: the note was there before the id was told.
  const found = await client.ask({ method: 'GET', target: '/v1/responses/resp_noted', headers });
  expect(found.status).toBe(200);
});
