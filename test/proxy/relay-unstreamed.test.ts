// An upstream that does not stream, and answers a request for a stream with all of it at once: the client gets the events of the
// endpoint, and nobody is asked twice for what was paid for.
import OpenAI, { APIError, toFile } from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FORM_TYPE, field, file, formBytes } from '../helpers/forms.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  HostileUpstream,
  head,
  json,
  lastChunk,
  reset,
  type Script,
  standardAnswer,
  wait,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { responseEvents, responseObject } from '../helpers/recorded.ts';

let first: HostileUpstream;
let second: HostileUpstream;
let gateway: Gateway;
let client: OpenAI;

beforeAll(async () => {
  [first, second] = await Promise.all([HostileUpstream.start(), HostileUpstream.start()]);
  gateway = await startGateway({ upstreams: { first: first.baseUrl, second: second.baseUrl } });
  // With its retries.
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key() });
});
afterAll(async () => {
  await gateway?.close();
  await Promise.all([first?.close(), second?.close()]);
});

let before = 0;
const asked = () => first.requests.length + second.requests.length - before;
beforeEach(() => {
  for (const each of [first, second]) each.always(standardAnswer);
  before = first.requests.length + second.requests.length;
});

async function post(path: string, body: object | Buffer, type = 'application/json'): Promise<RawResponse> {
  using raw = await gateway.connect();
  const headers = { authorization: `Bearer ${await gateway.key()}`, 'content-type': type };
  return await raw.ask({ target: `/v1/${path}`, headers, body });
}

/** The events of an answer, each with the name that stands beside its data, if it has one. */
function eventsOf(answer: RawResponse): object[] {
  expect([answer.status, answer.complete, answer.header('content-type')]).toEqual([
    200,
    true,
    'text/event-stream; charset=utf-8',
  ]);
  return answer.frames().map((frame) => {
    const [name, data] = /^event: /.test(frame) ? frame.split('\n', 2) : [undefined, frame];
    const event = JSON.parse(data?.replace('data: ', '') ?? '');
    if (name !== undefined) expect(name).toBe(`event: ${event.type}`);
    return event;
  });
}

const USAGE = { input_tokens: 5, output_tokens: 100, total_tokens: 105 };
const IMAGES = { created: 17, output_format: 'png', size: '1x1', data: [{ b64_json: 'AAAA' }], usage: USAGE };
const DRAW = { model: 'test-model', prompt: 'a cat', stream: true as const };

describe('a streamed request for images that is answered as JSON', () => {
  test('is one request to one upstream, and one event for the SDK', async () => {
    first.next(json(200, IMAGES));
    const events: object[] = [];
    for await (const event of await client.images.generate(DRAW)) events.push(event);
    expect(events).toEqual([
      {
        type: 'image_generation.completed',
        b64_json: 'AAAA',
        created_at: 17,
        output_format: 'png',
        size: '1x1',
        usage: USAGE,
      },
    ]);
    expect(asked()).toBe(1);
  });

  test('counts what the upstream reports, once', async () => {
    first.next(
      json(200, { ...IMAGES, data: [{ b64_json: 'AAAA' }, { b64_json: 'BBBB', revised_prompt: 'p' }] }),
    );
    const answer = await post('images/generations', { ...DRAW, n: 2 });
    const events = eventsOf(answer);
    expect(events).toMatchObject([
      { type: 'image_generation.completed', b64_json: 'AAAA' },
      { type: 'image_generation.completed', b64_json: 'BBBB', revised_prompt: 'p', usage: USAGE },
    ]);
    expect(events[0]).not.toHaveProperty('usage');
    expect(await gateway.accessLine(answer)).toMatchObject({
      outcome: 'ok',
      prompt_tokens: 5,
      completion_tokens: 100,
    });
  });

  test('of edits too, sent as a form or as JSON, with addresses or with bytes', async () => {
    first.next(json(200, { created: 1, data: [{ url: 'https://files.example/1' }] }));
    const form = formBytes([
      field('model', 'test-model'),
      field('prompt', 'x'),
      field('stream', 'true'),
      file(Buffer.from('png'), 'image'),
    ]);
    expect(eventsOf(await post('images/edits', form, FORM_TYPE))).toEqual([
      { type: 'image_edit.completed', created_at: 1, url: 'https://files.example/1' },
    ]);
    first.next(json(200, IMAGES));
    const image = await toFile(Buffer.from('png'), 'a.png', { type: 'image/png' });
    const types: string[] = [];
    for await (const event of await client.images.edit({ ...DRAW, image })) types.push(event.type);
    expect([types, asked()]).toEqual([['image_edit.completed'], 2]);
  });

  test('is large, with line breaks, and whole', async () => {
    const picture = 'QUJD'.repeat(1024 * 1024);
    first.next(json(200, JSON.stringify({ ...IMAGES, data: [{ b64_json: picture }] }, null, 1)));
    const [event] = eventsOf(await post('images/generations', DRAW));
    expect(event).toMatchObject({ b64_json: picture, usage: USAGE });
  });
});

describe('a streamed request for speech', () => {
  const SPEAK = { model: 'test-model', voice: 'alloy', input: 'Hello', stream_format: 'sse' };
  const sound = Buffer.from(Array.from({ length: 1000 }, (_, index) => (index * 7) % 256));
  const pieces = [sound.subarray(0, 1), sound.subarray(1, 500), sound.subarray(500)];
  const SOUND = { 'content-type': 'audio/mpeg', 'transfer-encoding': 'chunked' };

  test('that is answered with sound gets it in events, as it comes', async () => {
    first.next([head(200, SOUND), ...pieces.flatMap((piece) => [chunk(piece), wait(20)]), lastChunk()]);
    const answer = await post('audio/speech', SPEAK);
    const events = eventsOf(answer);
    expect(events.at(-1)).toEqual({ type: 'speech.audio.done' });
    const texts = events.map((event) =>
      'audio' in event && typeof event.audio === 'string' ? event.audio : '',
    );
    expect(Buffer.from(texts.join(''), 'base64')).toEqual(sound);
    expect(Buffer.concat(texts.map((text) => Buffer.from(text, 'base64')))).toEqual(sound);
    expect(events.length).toBeGreaterThan(2);
    expect([asked(), await gateway.accessLine(answer)]).toMatchObject([
      1,
      { outcome: 'ok', prompt_tokens: 5 },
    ]);
  });

  test('that breaks off is broken, and says so in an event', async () => {
    first.next([head(200, SOUND), chunk(sound), wait(50), reset()]);
    const answer = await post('audio/speech', SPEAK);
    expect(answer.complete).toBe(false);
    expect(answer.frames().at(-1)).toContain('"code":"stream_incomplete"');
    expect(answer.text()).not.toContain('speech.audio.done');
  });

  test.each([
    ['audio', { audio: sound.toString('base64'), usage: USAGE }],
    ['audio.data', { audio: { data: sound.toString('base64') }, usage: USAGE }],
  ])('that is answered with JSON gets what is in its %s', async (_name, body) => {
    first.next(json(200, body));
    expect(eventsOf(await post('audio/speech', SPEAK))).toEqual([
      { type: 'speech.audio.delta', audio: sound.toString('base64') },
      { type: 'speech.audio.done', usage: USAGE },
    ]);
    expect(asked()).toBe(1);
  });

  test.each(['text/plain', 'text/event-stream', 'application/octet-stream', 'audio/mpeg'])(
    'that is answered with JSON under the label %s gets it too',
    async (type) => {
      const body = JSON.stringify({ audio: sound.toString('base64'), usage: USAGE });
      first.next([
        head(200, { 'content-type': type, 'transfer-encoding': 'chunked' }),
        chunk(body),
        lastChunk(),
      ]);
      expect(eventsOf(await post('audio/speech', SPEAK))).toHaveLength(2);
      expect(asked()).toBe(1);
    },
  );
});

describe('a streamed request for a transcript', () => {
  const form = (format: string) =>
    formBytes([
      field('model', 'test-model'),
      field('stream', 'true'),
      field('response_format', format),
      file(Buffer.from('RIFF')),
    ]);

  test('that is answered with text gets it in events', async () => {
    const text = 'Grüße, 世界';
    const bytes = Buffer.from(text);
    const type = { 'content-type': 'text/plain; charset=utf-8', 'transfer-encoding': 'chunked' };
    first.next([
      head(200, type),
      chunk(bytes.subarray(0, 3)),
      wait(20),
      chunk(bytes.subarray(3)),
      lastChunk(),
    ]);
    const events = eventsOf(await post('audio/transcriptions', form('text'), FORM_TYPE));
    expect(events).toEqual([
      { type: 'transcript.text.delta', delta: 'Gr' },
      { type: 'transcript.text.delta', delta: 'üße, 世界' },
      { type: 'transcript.text.done', text },
    ]);
    expect(asked()).toBe(1);
  });
});

describe('a streamed request for a response', () => {
  const ASK = { model: 'test-model', input: 'x', stream: true as const };

  test('that is answered as JSON gets the events that the API has for it', async () => {
    first.next(json(200, responseObject()));
    const answer = await post('responses', ASK);
    const expected = JSON.stringify(responseEvents(['Hello'])).replaceAll('upstream-model', 'test-model');
    expect(eventsOf(answer)).toEqual(JSON.parse(expected));
    expect(await gateway.accessLine(answer)).toMatchObject({
      outcome: 'ok',
      prompt_tokens: 7,
      completion_tokens: 4,
    });
  });

  test('with calls, reasoning and refusals is put together by the SDK as it was', async () => {
    const output = [
      { id: 'rs_1', type: 'reasoning', summary: [{ type: 'summary_text', text: 'Hm.' }] },
      {
        id: 'fc_1',
        type: 'function_call',
        status: 'completed',
        call_id: 'call_1',
        name: 'f',
        arguments: '{"a":1}',
      },
      { id: 'ws_1', type: 'web_search_call', status: 'completed', action: { type: 'search', query: 'q' } },
      {
        id: 'msg_1',
        type: 'message',
        status: 'completed',
        role: 'assistant',
        content: [
          { type: 'refusal', refusal: 'No.' },
          {
            type: 'output_text',
            text: 'a "b"\n',
            annotations: [
              { type: 'url_citation', url: 'https://e.example', title: 't', start_index: 0, end_index: 1 },
            ],
            logprobs: [],
          },
        ],
      },
    ];
    first.next(json(200, JSON.stringify({ ...responseObject({ status: 'incomplete' }), output }, null, 2)));
    const types: string[] = [];
    const stream = client.responses.stream({ model: 'test-model', input: 'x' });
    stream.on('event', ({ type }) => types.push(type));
    const final = await stream.finalResponse();
    expect(final.output).toMatchObject(output);
    expect([types[0], types.at(-1)]).toEqual(['response.created', 'response.incomplete']);
    expect(types).toEqual(
      expect.arrayContaining([
        'response.reasoning_summary_text.delta',
        'response.function_call_arguments.done',
        'response.refusal.delta',
        'response.output_text.annotation.added',
      ]),
    );
    expect(asked()).toBe(1);
  });

  test('that is stored can be asked for by its id', async () => {
    first.next(
      json(200, responseObject({ id: 'resp_whole' })),
      json(200, responseObject({ id: 'resp_whole' })),
    );
    expect((await post('responses', ASK)).status).toBe(200);
    expect((await client.responses.retrieve('resp_whole')).id).toBe('resp_whole');
  });
});

describe('a whole answer that cannot be the stream that was asked for', () => {
  const cases: [string, string, object, Script][] = [
    [
      'a response that is not over',
      'responses',
      { model: 'test-model', input: 'x', stream: true },
      json(200, { ...responseObject({ status: 'in_progress' }), usage: USAGE }),
    ],
    ['images that are none', 'images/generations', DRAW, json(200, { created: 1, data: [], usage: USAGE })],
    [
      'speech without sound',
      'audio/speech',
      { model: 'test-model', voice: 'v', input: 'x', stream_format: 'sse' },
      json(200, { duration: 3, usage: USAGE }),
    ],
    [
      'a completion without choices',
      'chat/completions',
      { model: 'test-model', messages: [], stream: true },
      json(200, { id: 'x', usage: { prompt_tokens: 5, completion_tokens: 100, total_tokens: 105 } }),
    ],
  ];

  test.each(cases)(
    '(%s) is asked for once, counted, and not repeated by SDKs',
    async (_name, path, body, script) => {
      for (const each of [first, second]) each.always(script);
      const answer = await post(path, body);
      expect([answer.status, answer.header('x-should-retry'), asked()]).toEqual([406, 'false', 1]);
      expect(answer.json()).toMatchObject({ error: { code: 'upstream_unusable_response' } });
      // The SDK does not repeat it, and nobody else has to go without the target for it.
      for (let i = 0; i < 9; i++) {
        const error: unknown = await client.post(`/${path}`, { body }).catch((reason: unknown) => reason);
        expect(error).toBeInstanceOf(APIError);
      }
      expect([first.requests.length + second.requests.length - before, second.requests.length]).toEqual([
        10, 0,
      ]);
      expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'upstream_unusable_response' });
    },
  );

  test('is asked of the next target where `retry.after_send` allows it', async () => {
    await using other = await startGateway({
      upstreams: { first: first.baseUrl, second: second.baseUrl },
      config: { retry: { after_send: true } },
    });
    first.next(json(200, { created: 1, data: [] }));
    second.always(json(200, IMAGES));
    using raw = await other.connect();
    const headers = { authorization: `Bearer ${await other.key()}` };
    const answer = await raw.ask({ target: '/v1/images/generations', headers, body: DRAW });
    expect([answer.status, asked()]).toEqual([200, 2]);
  });
});
