// Client secrets and transcription sessions through a whole gateway, and the answer for calls.
import { once } from 'node:events';
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket as Client } from 'ws';
import { isPrefix, PREFIX_LENGTH } from '../../src/store/key-record.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import { RealtimeUpstream, responseDone } from '../helpers/realtime-upstream.ts';
import { until, within } from '../helpers/wait.ts';

let upstream: RealtimeUpstream;
let gateway: Gateway;
let openai: OpenAI;

beforeAll(async () => {
  upstream = await RealtimeUpstream.start();
  gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    now: fleetingClock(),
    config: {
      models: {
        'test-model': { targets: [{ upstream: 'up', model: 'upstream-model' }] },
        whisper: { targets: [{ upstream: 'up', model: 'vendor-transcribe' }] },
        chat: { targets: [{ upstream: 'up', model: 'm' }], endpoints: ['chat'] },
        strict: { targets: [{ upstream: 'up', model: 'm' }], body: { refuse: ['session.tools'] } },
      },
    },
  });
  openai = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key(), maxRetries: 0 });
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

beforeEach(() => {
  upstream.options = {};
  upstream.handshakes.length = 0;
});

interface Opened {
  readonly client: Client;
  readonly events: Record<string, unknown>[];
  readonly closed: Promise<{ code: number; reason: string }>;
}

/** As a browser does: the secret is a subprotocol. */
function browse(query: string, secret: string): Opened {
  const url = `${gateway.url.replace('http', 'ws')}/v1/realtime${query}`;
  const client = new Client(url, ['realtime', `openai-insecure-api-key.${secret}`]);
  const events: Record<string, unknown>[] = [];
  client.on('message', (data) => events.push(JSON.parse(String(data))));
  client.on('error', () => undefined);
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    client.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
  );
  return { client, events, closed: within(closed, 'the end of the session') };
}

async function refused(query: string, secret: string): Promise<unknown> {
  const { client, closed } = browse(query, secret);
  closed.catch(() => undefined);
  const [, response] = await within(once(client, 'unexpected-response'), 'a rejection');
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return { status: response.statusCode, ...JSON.parse(String(Buffer.concat(chunks))) };
}

const texts = (index = -1) =>
  (upstream.sessions.at(index)?.messages ?? []).map(({ text }) => JSON.parse(text));

describe('a client secret', () => {
  test('opens a session of its model with its configuration, and the upstream never sees it', async () => {
    const created = await openai.realtime.clientSecrets.create({
      expires_after: { anchor: 'created_at', seconds: 60 },
      session: { type: 'realtime', model: 'test-model', instructions: 'Be brief.' },
    });
    expect(created.value).toMatch(/^ek_/);
    expect(Math.abs(created.expires_at - Date.now() / 1000 - 60)).toBeLessThan(10);
    expect(created.session).toMatchObject({
      type: 'realtime',
      object: 'realtime.session',
      model: 'test-model',
      instructions: 'Be brief.',
    });
    for (const query of ['', '?model=test-model']) {
      const next = upstream.next();
      const { client, events, closed } = browse(query, created.value);
      client.once('open', () => client.send('{"type":"response.create"}'));
      const { request, socket } = await next;
      await until(() => texts().length === 2, 'both events');
      expect(texts()).toEqual([
        { type: 'session.update', session: { type: 'realtime', instructions: 'Be brief.' } },
        { type: 'response.create' },
      ]);
      expect(request.url).toBe('/v1/realtime?model=upstream-model');
      expect(request.headers.authorization).toBe('Bearer credential-of-up');
      expect(JSON.stringify(request.rawHeaders)).not.toContain(created.value);
      expect(client.protocol).toBe('realtime');
      socket.send('{"type":"response.created"}');
      socket.send(responseDone(4, 5));
      await until(() => events.length === 2, 'the answer');
      client.close(1000);
      await closed;
    }
    const line = await gateway.logLine((each) => each['status'] === 101 && each['prompt_tokens'] === 4);
    expect(line).toMatchObject({
      model: 'test-model',
      key_prefix: (await gateway.key()).slice(0, PREFIX_LENGTH),
    });
    expect(gateway.output).not.toContain(created.value.slice(0, 40));
  });

  test('opens nothing else', async () => {
    const { value } = await openai.realtime.clientSecrets.create({
      session: { type: 'realtime', model: 'test-model' },
    });
    expect(await refused('?model=whisper', value)).toMatchObject({
      status: 400,
      error: { code: 'invalid_value', param: 'model' },
    });
    expect(await refused('?intent=transcription', value)).toMatchObject({ status: 400 });
    const other = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: value, maxRetries: 0 });
    for (const call of [
      () => other.models.list(),
      () => other.responses.create({ model: 'test-model', input: 'x' }),
      () => other.realtime.clientSecrets.create({ session: { type: 'realtime', model: 'test-model' } }),
    ])
      await expect(call()).rejects.toMatchObject({ status: 401, code: 'invalid_api_key' });
    expect(upstream.handshakes).toEqual([]);
  });

  test('ends with the key that made it', async () => {
    const key = await gateway.issueKey();
    const maker = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key });
    const { value } = await maker.realtime.clientSecrets.create({
      session: { type: 'realtime', model: 'test-model' },
    });
    const { client, closed } = browse('', value);
    await within(once(client, 'open'), 'the session');
    const prefix = key.slice(0, PREFIX_LENGTH);
    if (!isPrefix(prefix)) throw new Error('no prefix');
    await gateway.app.issuer.revoke(prefix, 'compromised: found in a page');
    expect(await closed).toEqual({ code: 1008, reason: 'invalid_api_key' });
    expect(await refused('', value)).toMatchObject({ status: 401, error: { code: 'invalid_api_key' } });
  });

  test('of a transcription has its model in the session', async () => {
    const { value, session } = await openai.realtime.clientSecrets.create({
      session: {
        type: 'transcription',
        audio: { input: { transcription: { model: 'whisper', language: 'de' } } },
      },
    });
    expect(session).toMatchObject({ object: 'realtime.transcription_session', type: 'transcription' });
    const next = upstream.next();
    const { client, closed } = browse('', value);
    const { request } = await next;
    expect(request.url).toBe('/v1/realtime?intent=transcription');
    await until(() => texts().length === 1, 'the event');
    const transcription = { model: 'vendor-transcribe', language: 'de' };
    expect(texts()).toEqual([
      { type: 'session.update', session: { type: 'transcription', audio: { input: { transcription } } } },
    ]);
    client.close();
    await closed;
  });

  test.each([
    ['no model', {}, 'session.model', 'missing_required_parameter'],
    [
      'no model to transcribe',
      { session: { type: 'transcription' } },
      'session.audio.input.transcription.model',
      'missing_required_parameter',
    ],
    ['an unknown model', { session: { model: 'x' } }, null, 'model_not_found'],
    ['a model of another endpoint', { session: { model: 'chat' } }, null, 'endpoint_not_offered'],
    ['too short', { expires_after: { seconds: 9 } }, 'expires_after.seconds', 'invalid_value'],
    ['too long', { expires_after: { seconds: 7201 } }, 'expires_after.seconds', 'invalid_value'],
    ['no integer', { expires_after: { seconds: '60' } }, 'expires_after.seconds', 'invalid_value'],
    ['another anchor', { expires_after: { anchor: 'x' } }, 'expires_after.anchor', 'invalid_value'],
    ['another type', { session: { type: 'x', model: 'test-model' } }, 'session.type', 'invalid_value'],
    ['no session', { session: [] }, 'session', 'invalid_type'],
  ])('is not made for %s', async (_what, body, param, code) => {
    const response = await fetch(`${gateway.url}/v1/realtime/client_secrets`, {
      method: 'POST',
      headers: { authorization: `Bearer ${await gateway.key()}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    expect(response.status).toBeGreaterThanOrEqual(400);
    expect(await response.json()).toMatchObject({ error: { code, param } });
  });

  test('obeys the rules for members', async () => {
    const { value } = await openai.realtime.clientSecrets.create({
      session: { type: 'realtime', model: 'strict', tools: [] },
    });
    const { closed, events } = browse('', value);
    expect(await closed).toMatchObject({ code: 1008 });
    expect(events.at(-1)).toMatchObject({ error: { code: 'unsupported_parameter' } });
    expect(texts()).toEqual([]);
  });
});

describe('a transcription session without a model in its address', () => {
  const update = (model: unknown) =>
    JSON.stringify({
      type: 'session.update',
      session: { type: 'transcription', audio: { input: { transcription: { model, language: 'de' } } } },
    });
  const created = (session: object) => JSON.stringify({ type: 'session.created', session });

  test('is routed by its first session.update, and begins once for the client', async () => {
    upstream.options = { onSession: ({ socket }) => socket.send(created({ id: 'of_the_upstream' })) };
    const next = upstream.next();
    const { client, events, closed } = browse('?intent=transcription&x=1', await gateway.key());
    await until(() => events.length === 1, 'the beginning');
    expect(events[0]).toMatchObject({ type: 'session.created', session: { type: 'transcription' } });
    client.send('{"type":"input_audio_buffer.clear"}');
    client.send(update('whisper'));
    client.send('{"type":"input_audio_buffer.commit"}');
    const { request, socket } = await next;
    expect(request.url).toBe('/v1/realtime?intent=transcription&x=1');
    await until(() => texts().length === 3, 'all events');
    expect(texts()).toEqual([
      { type: 'input_audio_buffer.clear' },
      JSON.parse(update('vendor-transcribe')),
      { type: 'input_audio_buffer.commit' },
    ]);
    const usage = { type: 'tokens', input_tokens: 7, output_tokens: 2, total_tokens: 9 };
    const type = 'conversation.item.input_audio_transcription.completed';
    socket.send(JSON.stringify({ type: 'session.updated' }));
    socket.send(JSON.stringify({ type, transcript: 'Hallo', usage }));
    await until(() => events.length === 3, 'the transcript');
    expect(events.slice(1)).toMatchObject([{ type: 'session.updated' }, { type, transcript: 'Hallo' }]);
    client.close(1000);
    expect(await closed).toMatchObject({ code: 1000 });
    const line = await gateway.logLine((each) => each['prompt_tokens'] === 7);
    expect(line).toMatchObject({ status: 101, model: 'whisper', upstream: 'up', outcome: 'ok' });
  });

  test('gets what the upstream sends first if that is something else', async () => {
    upstream.options = { onSession: ({ socket }) => socket.send('{"type":"other"}') };
    const { client, events, closed } = browse('?intent=transcription', await gateway.key());
    client.once('open', () => client.send(update('whisper')));
    await until(() => events.some(({ type }) => type === 'other'), 'the event');
    client.close();
    await closed;
  });

  test.each([
    ['an unknown model', update('unknown'), 1008, 'model_not_found'],
    [
      'no model',
      '{"type":"session.update","session":{"type":"transcription"}}',
      1008,
      'missing_required_parameter',
    ],
    ['a number', update(1), 1008, 'missing_required_parameter'],
    ['too much before it', JSON.stringify({ type: 'x', audio: 'a'.repeat(70_000) }), 1008, 'invalid_value'],
  ])('that names %s ends with an error event', async (_what, text, code, reason) => {
    const { client, events, closed } = browse('?intent=transcription', await gateway.key());
    client.once('open', () => client.send(text));
    expect(await closed).toEqual({ code, reason });
    expect(events.at(-1)).toMatchObject({ type: 'error', error: { code: reason } });
    await gateway.logLine((each) => each['outcome'] === reason && each['status'] === 101, 'its line');
    expect(upstream.handshakes).toEqual([]);
  });

  test('that no upstream opens ends with 1013', async () => {
    upstream.options = {
      refuse: (_request, socket) => {
        socket.end('HTTP/1.1 503 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n');
        return true;
      },
    };
    const { client, events, closed } = browse('?intent=transcription', await gateway.key());
    client.once('open', () => client.send(update('whisper')));
    expect(await closed).toMatchObject({ code: 1013 });
    expect(events.at(-1)).toMatchObject({ type: 'error' });
    await until(async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0);
  });

  test('whose client leaves first leaves nothing behind', async () => {
    const { client, closed } = browse('?intent=transcription', await gateway.key());
    await within(once(client, 'open'), 'the session');
    client.terminate();
    await closed;
    const line = await gateway.logLine((each) => each['outcome'] === 'client_closed', 'its line');
    expect(line).toMatchObject({ route: '/v1/realtime', status: 499 });
    await until(async () => (await gateway.metric('tollgate_requests_in_flight')) === 0, 'no request');
    expect(upstream.handshakes).toEqual([]);
  });
});

test.each(['/v1/realtime/calls', '/v1/realtime/calls/rtc_1/accept'])('%s is not offered', async (path) => {
  const response = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await gateway.key()}`, 'content-type': 'application/sdp' },
    body: 'v=0',
  });
  expect(response.status).toBe(404);
  const { error } = Object(await response.json());
  expect(error).toMatchObject({ code: 'endpoint_not_offered' });
  expect(error.message).toContain('/v1/realtime?model=');
});
