// `AzureOpenAI` of the official SDK: the same program against a server with Azure's paths and against the gateway in front of it hands the
// same to its user, and the server gets the same bodies. Then what only the gateway decides: keys, deployments, paths.
import { once } from 'node:events';
import OpenAI, { AzureOpenAI, toFile } from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { makeCertificate } from '../helpers/certificate.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  HostileUpstream,
  json,
  type Script,
  sse,
  standardAnswer,
} from '../helpers/hostile-upstream.ts';
import { ObjectsUpstream } from '../helpers/objects-upstream.ts';
import { RealtimeUpstream } from '../helpers/realtime-upstream.ts';
import {
  embeddingList,
  framesOf,
  imageEvents,
  imageList,
  responseEvents,
  responseObject,
  textCompletion,
} from '../helpers/recorded.ts';
import { startTlsFront } from '../helpers/tls-front.ts';
import { until, within } from '../helpers/wait.ts';
import { collect, plain, plainError } from './comparison/clients/node/plain.ts';
import { differences } from './comparison/compare.ts';

const VERSION = '2025-04-01-preview';
const NAMES = ['chat-mini', 'org/model', 'a b', 'a%2Fb', 'über'];
const MESSAGES = [{ role: 'user' as const, content: 'Say hello' }];

let upstream: HostileUpstream;
let realtime: RealtimeUpstream;
let objects: ObjectsUpstream;
let gateway: Gateway;
let key: string;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  realtime = await RealtimeUpstream.start();
  objects = await ObjectsUpstream.start();
  gateway = await startGateway({
    config: {
      upstreams: {
        up: { base_url: upstream.baseUrl, api_key: 'credential-of-up' },
        live: { base_url: realtime.baseUrl },
        files: { base_url: objects.baseUrl },
      },
      models: {
        ...Object.fromEntries(
          NAMES.map((model) => [model, { response_model: 'upstream', targets: [{ upstream: 'up', model }] }]),
        ),
        renamed: { targets: [{ upstream: 'up', model: 'other' }] },
        stored: { targets: [{ upstream: 'files', model: 'at-files' }] },
        rt: { targets: [{ upstream: 'live', model: 'rt-upstream' }] },
      },
      passthrough: { upstream: 'files', paths: ['/v1/files', '/v1/batches'] },
      // The retries of the SDK are counted.
      retry: { attempts: 1 },
    },
    now: fleetingClock(),
  });
  key = await gateway.issueKey('Pro');
});
beforeEach(() => upstream.always(standardAnswer));
afterAll(async () => {
  await gateway?.close();
  await objects?.[Symbol.asyncDispose]();
  await realtime?.[Symbol.asyncDispose]();
  await upstream?.close();
});

type Options = Partial<ConstructorParameters<typeof AzureOpenAI>[0]>;

const connect = (options: Options = {}) =>
  new AzureOpenAI({ endpoint: gateway.url, apiKey: key, apiVersion: VERSION, maxRetries: 0, ...options });

const model = 'chat-mini';
const sound = () => toFile(Buffer.alloc(3_200, 1), 'a.wav');
const picture = () => toFile(Buffer.alloc(64, 2), 'a.png', { type: 'image/png' });
const events = (frames: readonly string[]) => sse(frames, { done: false });

/** The calls of the session, each with the answer of the server. */
const SESSION: Readonly<Record<string, [answer: Script, call: (client: AzureOpenAI) => Promise<unknown>]>> = {
  chat: [
    json(200, { ...completion(), prompt_filter_results: [{ prompt_index: 0, content_filter_results: {} }] }),
    (client) => client.chat.completions.create({ model, messages: MESSAGES }),
  ],
  'chat.stream': [
    standardAnswer,
    async (client) =>
      collect(
        await client.chat.completions.create({
          model,
          messages: MESSAGES,
          stream: true,
          stream_options: { include_usage: true },
        }),
      ),
  ],
  completions: [json(200, textCompletion()), (client) => client.completions.create({ model, prompt: 'a' })],
  embeddings: [
    json(200, embeddingList([[0.25, -0.5]])),
    (client) => client.embeddings.create({ model, input: 'a', encoding_format: 'float' }),
  ],
  images: [json(200, imageList('aWs=')), (client) => client.images.generate({ model, prompt: 'a' })],
  'images.stream': [
    events(framesOf(imageEvents('aWs='))),
    async (client) => collect(await client.images.generate({ model, prompt: 'a', stream: true })),
  ],
  'images.edit': [
    json(200, imageList('aWs=')),
    async (client) => client.images.edit({ model, prompt: 'a', image: await picture() }),
  ],
  speech: [
    async (c) => json(200, 'sound', { 'content-type': 'audio/mpeg' })(c),
    async (client) => (await client.audio.speech.create({ model, voice: 'alloy', input: 'a' })).arrayBuffer(),
  ],
  transcription: [
    json(200, { text: 'Hello' }),
    async (client) => client.audio.transcriptions.create({ model, file: await sound() }),
  ],
  translation: [
    json(200, { text: 'Hello' }),
    async (client) => client.audio.translations.create({ model, file: await sound() }),
  ],
  responses: [json(200, responseObject()), (client) => client.responses.create({ model, input: 'a' })],
  'responses.stream': [
    events(framesOf(responseEvents())),
    async (client) => collect(await client.responses.create({ model, input: 'a', stream: true })),
  ],
  'responses.retrieve': [
    json(200, responseObject()),
    async (client) => {
      const { id } = await client.responses.create({ model, input: 'a' });
      return await client.responses.retrieve(id);
    },
  ],
  'error.filter': [
    json(400, {
      error: {
        message:
          "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        type: null,
        param: 'prompt',
        code: 'content_filter',
        status: 400,
        innererror: {
          code: 'ResponsibleAIPolicyViolation',
          content_filter_result: { hate: { filtered: true } },
        },
      },
    }),
    (client) => client.chat.completions.create({ model, messages: MESSAGES }),
  ],
  'error.server': [
    json(500, { error: { code: 'InternalServerError', message: 'Backend returned unexpected response.' } }),
    (client) => client.chat.completions.create({ model, messages: MESSAGES }),
  ],
};

async function play(client: AzureOpenAI, name: string) {
  const [answer, call] = SESSION[name] ?? [];
  if (answer === undefined || call === undefined) throw new Error(`no call ${name}`);
  upstream.always(answer);
  const at = upstream.requests.length;
  const result = await call(client).then(
    (value) => ({ call: name, result: plain(value) }),
    (error: unknown) => ({ call: name, error: plainError(error) }),
  );
  const requests = upstream.requests.slice(at).map((request) => ({
    method: request.method,
    path: request.target.replace(/^.*\/(?:deployments\/[^/]+|openai|v1)\//, '').replace(/\?.*/, ''),
    type: request.header('content-type')?.replace(/boundary=.*/, ''),
    body: request.body.toString('latin1').replaceAll(/-{4,}\S+/g, '--'),
  }));
  return { result, requests };
}

/** Differences that are meant: headers of an answer, which an error shows, are those of an allow-list. */
const isMeant = ({ path }: { path: string }) => /\.headers\.|_request_id$|requestID$|request_id$/.test(path);

test.each(Object.keys(SESSION))(
  '%s gives its user the same as directly, and its server the same',
  async (name) => {
    const direct = await play(connect({ endpoint: upstream.url, apiKey: 'key-of-azure' }), name);
    const through = await play(connect(), name);
    expect(differences(direct.result, through.result).filter((each) => !isMeant(each))).toEqual([]);
    expect(through.requests).toEqual(direct.requests);
    expect(through.requests).toHaveLength(name === 'responses.retrieve' ? 2 : 1);
    expect('error' in through.result).toBe(name.startsWith('error.'));
  },
);

describe('the deployment', () => {
  test.each(NAMES)('%j is found by its name in the path', async (name) => {
    const at = upstream.requests.length;
    const answer = await connect().chat.completions.create({ model: name, messages: MESSAGES });
    expect([answer.model, (await upstream.request(at)).json()]).toEqual([
      name,
      { model: name, messages: MESSAGES },
    ]);
    expect((await upstream.request(at)).target).toBe('/v1/chat/completions');
  });

  test('of the client takes precedence over the model in the body, which is replaced', async () => {
    const at = upstream.requests.length;
    const client = connect({ deployment: 'renamed' });
    for (const named of ['chat-mini', 'nobodys', 'other', '', 'renamed'])
      expect((await client.chat.completions.create({ model: named, messages: MESSAGES })).model).toBe(
        'renamed',
      );
    upstream.always(json(200, { text: 'Hello' }));
    await client.audio.transcriptions.create({ model: 'nobodys', file: await sound() });
    const bodies = upstream.requests.slice(at).map(({ body }) => body.toString('latin1'));
    expect(bodies.slice(0, 5).map((body) => JSON.parse(body).model)).toEqual(Array(5).fill('other'));
    expect(bodies[5]).toMatch(/name="model"\r\n\r\nother\r\n/);
    const line = await gateway.logLine((each) => each['model'] === 'renamed');
    expect(line).toMatchObject({ route: '/v1/chat/completions', upstream_model: 'other' });
  });

  test.each([
    ['JSON without a model', 'application/json', JSON.stringify({ messages: MESSAGES }), 'chat/completions'],
    [
      'JSON with null',
      'application/json',
      JSON.stringify({ model: null, messages: MESSAGES }),
      'chat/completions',
    ],
    ['an empty object', 'application/json', '{}', 'images/generations'],
    [
      'a form without a model',
      'multipart/form-data; boundary=b',
      '--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nsound\r\n--b--\r\n',
      'audio/transcriptions',
    ],
  ])('is added to %s, also where a target has its name', async (_what, type, body, path) => {
    upstream.always(json(200, completion()));
    for (const name of ['chat-mini', 'renamed']) {
      const at = upstream.requests.length;
      await fetch(`${gateway.url}/openai/deployments/${name}/${path}`, {
        method: 'POST',
        headers: { 'api-key': key, 'content-type': type },
        body,
      });
      const sent = (await upstream.request(at)).body.toString();
      const target = name === 'renamed' ? 'other' : name;
      if (type === 'application/json')
        expect(JSON.parse(sent)).toEqual({ ...JSON.parse(body), model: target });
      else expect(sent).toContain(`name="model"\r\n\r\n${target}\r\n`);
    }
  });

  test.each([
    ['a body whose model is no text', 'chat-mini', '{"model":5,"messages":[]}', 400, 'invalid_type'],
    ['two models in the body', 'chat-mini', '{"model":"a","model":"b"}', 400, 'duplicate_parameter'],
    ['an unknown name', 'nobodys', JSON.stringify(chatRequest()), 404, 'model_not_found'],
    ['a long name', 'x'.repeat(5_000), JSON.stringify(chatRequest()), 404, 'model_not_found'],
    ['no UTF-8', '%ff', JSON.stringify(chatRequest()), 404, 'unknown_url'],
  ])('with %s is refused, and asks no server', async (_what, name, body, status, code) => {
    const at = upstream.requests.length;
    const response = await fetch(`${gateway.url}/openai/deployments/${name}/chat/completions`, {
      method: 'POST',
      headers: { 'api-key': key, 'content-type': 'application/json' },
      body,
    });
    const answer = await response.json();
    expect([response.status, answer]).toMatchObject([status, { error: { code } }]);
    expect(upstream.requests.length).toBe(at);
  });

  test('is what errors of the gateway are about, as errors of the SDK', async () => {
    const error: unknown = await connect()
      .chat.completions.create({ model: 'nobodys', messages: MESSAGES })
      .catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(OpenAI.NotFoundError);
    expect(error).toMatchObject({
      code: 'model_not_found',
      message: expect.stringContaining('nobodys'),
    });
    const wrong: unknown = await connect({ apiKey: '0'.repeat(32) })
      .chat.completions.create({ model, messages: MESSAGES })
      .catch((cause: unknown) => cause);
    expect(wrong).toBeInstanceOf(OpenAI.AuthenticationError);
  });
});

describe('the key', () => {
  test('of a token provider is accepted too', async () => {
    const { apiKey: _, ...rest } = { apiKey: '', endpoint: gateway.url, apiVersion: VERSION };
    const client = new AzureOpenAI({ ...rest, azureADTokenProvider: async () => key });
    expect((await client.chat.completions.create({ model, messages: MESSAGES })).model).toBe(model);
  });

  test('reaches no server and no log, and the version reaches no server', async () => {
    const at = upstream.requests.length;
    await connect().chat.completions.create({ model, messages: MESSAGES });
    await fetch(`${gateway.url}/openai/v1/models?api-key=${key}`, { headers: { 'api-key': key } });
    const { rawHead, target } = await upstream.request(at);
    expect([target, rawHead.includes(key), rawHead.includes('credential-of-up')]).toEqual([
      '/v1/chat/completions',
      false,
      true,
    ]);
    expect(gateway.output).not.toContain(key);
  });

  test('in the query is none', async () => {
    const response = await fetch(`${gateway.url}/openai/v1/models?api-key=${key}`);
    expect(response.status).toBe(401);
  });
});

describe('calls without a model', () => {
  test('list models, and store files and batches', async () => {
    const client = connect({ deployment: 'renamed' });
    const names: string[] = [];
    for await (const { id } of client.models.list()) names.push(id);
    expect(names.sort()).toEqual([...NAMES, 'renamed', 'rt', 'stored'].sort());
    const file = await client.files.create({
      file: await toFile(Buffer.from('{"body":{"model":"stored","messages":[]}}\n'), 'a.jsonl'),
      purpose: 'batch',
    });
    expect(await client.files.retrieve(file.id)).toMatchObject({ id: file.id });
    const batch = await client.batches.create({
      input_file_id: file.id,
      endpoint: '/chat/completions' as '/v1/chat/completions',
      completion_window: '24h',
    });
    expect(await client.batches.retrieve(batch.id)).toMatchObject({ id: batch.id });
    expect(objects.asked.map(({ url }) => url).filter((path) => /openai|api-version/.test(path))).toEqual([]);
  });

  test.each([
    ['GET', '/openai/deployments/chat-mini/chat/completions', 405, 'method_not_allowed'],
    ['POST', '/openai/deployments/chat-mini/extensions/chat/completions', 404, 'unknown_url'],
    ['POST', '/openai/deployments/chat-mini', 404, 'unknown_url'],
    ['GET', '/openai/deployments', 404, 'unknown_url'],
    ['GET', '/openai/admin/usage', 404, 'unknown_url'],
    ['GET', '/openai/openai/v1/models', 404, 'unknown_url'],
  ])('%s %s is %i', async (method, path, status, code) => {
    const response = await fetch(`${gateway.url}${path}`, { method, headers: { 'api-key': key } });
    const answer = await response.json();
    expect([response.status, answer]).toMatchObject([status, { error: { code } }]);
    if (status === 404) expect(JSON.stringify(answer)).toContain(`${method} ${path}.`);
    else expect(response.headers.get('allow')).toBe('POST');
  });
});

describe('a session', () => {
  test('of the SDK opens with the key in a header', async () => {
    await using front = await startTlsFront(Number(new URL(gateway.url).port), makeCertificate());
    const next = realtime.next();
    const session = await OpenAIRealtimeWS.azure(connect({ endpoint: `https://127.0.0.1:${front.port}` }), {
      deploymentName: 'rt',
      options: { rejectUnauthorized: false },
    });
    session.on('error', () => undefined);
    await within(once(session.socket, 'open'), 'the session to open');
    const { request, messages } = await next;
    expect(request.url).toBe('/v1/realtime?model=rt-upstream');
    expect(request.rawHeaders.join()).not.toContain(key);
    session.send({ type: 'response.create' });
    await until(() => messages.some(({ text }) => text.includes('response.create')), 'the event');
    session.socket.terminate();
  });

  test('may name its deployment in the query, as the SDK for Python does', async () => {
    const next = realtime.next();
    const url = `${gateway.url.replace('http', 'ws')}/openai/realtime?api-version=${VERSION}&deployment=rt`;
    const socket = new WebSocket(url, { headers: { 'api-key': key } });
    await within(once(socket, 'open'), 'the session to open');
    expect((await next).request.url).toBe('/v1/realtime?model=rt-upstream');
    socket.terminate();
  });
});
