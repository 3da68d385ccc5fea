// Errors in a 200 that lack OpenAI's wrapper, and answers whose label is wrong or missing: what counts is what the bytes say.
import OpenAI, { APIError } from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FORM_TYPE, field, file, formBytes } from '../helpers/forms.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  completion,
  contentChunk,
  DONE,
  defaultStream,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  roleChunk,
  type Script,
  SSE_HEADERS,
  segments,
  sse,
  wait,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { eventFrame, responseEvents } from '../helpers/recorded.ts';

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({
    now: fleetingClock(),
    upstreams: { up: upstream.baseUrl },
    config: { retry: { attempts: 1 } },
  });
});
afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

async function answered(script: Script, body: object, path = 'chat/completions'): Promise<RawResponse> {
  upstream.next(script);
  using client = await gateway.connect();
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  return await client.ask({ target: `/v1/${path}`, headers, body });
}

const ERRORS: readonly (readonly [name: string, body: object, status: number, text: string])[] = [
  [
    'Mistral’s',
    {
      object: 'error',
      message: { detail: [{ type: 'extra', loc: ['body', 'n'], msg: 'Extra inputs' }] },
      type: 'invalid_request_error',
      code: null,
    },
    502,
    'body.n: Extra inputs',
  ],
  [
    'vLLM’s',
    { object: 'error', message: 'too long', type: 'BadRequestError', param: null, code: 400 },
    400,
    'too long',
  ],
  ['a flat one', { type: 'error', message: 'overloaded' }, 502, 'overloaded'],
  [
    'that of AWS for a path that it does not know',
    { Output: { __type: 'com.amazon.coral.service#UnknownOperationException' }, Version: '1.0' },
    502,
    'com.amazon.coral.service#UnknownOperationException',
  ],
  ['a detail', { detail: 'Not Found' }, 502, 'Not Found'],
  ['a list of details', { detail: [{ loc: ['body', 'model'], msg: 'missing' }] }, 502, 'body.model: missing'],
  ['a status', { status: 503, message: 'busy' }, 503, 'busy'],
  ['a status in words', { status: 'error', message: 'busy' }, 502, 'busy'],
  ['a code', { code: '429', msg: 'slow down', data: null, success: false }, 429, 'slow down'],
  ['Baidu’s', { error_code: 17, error_msg: 'daily limit reached' }, 502, 'daily limit reached'],
  [
    'Apigee’s',
    { fault: { faultstring: 'Rate limit', detail: { errorcode: 'policies.ratelimit' } } },
    502,
    'Rate limit',
  ],
  [
    'MiniMax’s',
    { id: 'x', choices: null, base_resp: { status_code: 1008, status_msg: 'insufficient balance' } },
    502,
    'insufficient balance',
  ],
  ['a code of the vendor’s own', { code: 1113, message: 'arrears' }, 502, 'arrears'],
  [
    'a list of errors',
    { success: false, errors: [{ code: 1, message: 'no such model' }], result: null },
    502,
    'no such model',
  ],
];

describe('an error object without a wrapper', () => {
  test.each(ERRORS)(
    '(%s) in a 200 is an error, whole or as first frame',
    async (_name, body, status, text) => {
      for (const [script, stream] of [
        [json(200, body), false],
        [json(200, body), true],
        [sse([body], { done: false }), true],
        [sse([': hold on\n\n', roleChunk(), body]), true],
      ] as const) {
        const answer = await answered(script, chatRequest({ stream }));
        expect([answer.status, answer.json()]).toMatchObject([status, { error: { message: text } }]);
        expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'upstream_error' });
      }
    },
  );

  test('(Google’s, in an array) in a whole 200 is an error', async () => {
    for (const stream of [false, true]) {
      const body = [{ error: { code: 400, message: 'no such field', status: 'INVALID_ARGUMENT' } }];
      const answer = await answered(json(200, body), chatRequest({ stream }));
      expect([answer.status, answer.json()]).toMatchObject([400, { error: { message: 'no such field' } }]);
    }
  });

  test.each(ERRORS)(
    '(%s) behind output is told so that SDKs see an error',
    async (_name, body, _status, text) => {
      const output = frame(contentChunk('x', { model: 'test-model' }));
      const answer = await answered(sse([output, body], { done: false }), chatRequest({ stream: true }));
      const [first, second, ...others] = answer.frames();
      expect([`${first}\n\n`, others, answer.complete]).toEqual([output, [], true]);
      expect(JSON.parse(second?.slice('data: '.length) ?? '')).toMatchObject({ error: { message: text } });
      expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'upstream_error' });
      upstream.next(sse([output, body], { done: false }));
      const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key(), maxRetries: 0 });
      const messages = [{ role: 'user' as const, content: 'x' }];
      const read = async () => {
        const stream = await client.chat.completions.create({ model: 'test-model', messages, stream: true });
        for await (const _ of stream);
      };
      await expect(read()).rejects.toBeInstanceOf(APIError);
    },
  );

  const failed = (finish: string, more: object = {}) => ({
    choices: [
      {
        index: 0,
        delta: { content: '' },
        message: { role: 'assistant', content: '' },
        finish_reason: finish,
        ...more,
      },
    ],
  });
  const disconnected = failed('error', { error: { code: 503, message: 'Provider disconnected' } });

  test.each<[string, object | string, number, string]>([
    ['OpenRouter’s, of a choice', disconnected, 503, 'Provider disconnected'],
    ['Mistral’s finish reason', failed('error'), 502, 'The upstream reported an error.'],
    ['DeepSeek’s', failed('insufficient_system_resource'), 502, 'The upstream reported an error.'],
    ['vLLM’s', failed('abort'), 502, 'The upstream reported an error.'],
  ])('(%s) instead of output is an error, whole or in a stream', async (_name, body, status, message) => {
    for (const [script, stream] of [
      [json(200, body), false],
      [sse([roleChunk(), body]), true],
    ] as const) {
      const answer = await answered(script, chatRequest({ stream }));
      expect([answer.status, answer.json()]).toMatchObject([status, { error: { message } }]);
      expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'upstream_error' });
    }
  });

  test('of a choice after output becomes an error frame, or its finish reason is relayed', async () => {
    const output = frame(contentChunk('x', { model: 'test-model' }));
    const told = await answered(sse([output, disconnected]), chatRequest({ stream: true }));
    expect(told.frames()[1]).toContain('{"error":{"message":"Provider disconnected"');
    const relayed = await answered(sse([output, failed('error')]), chatRequest({ stream: true }));
    expect(relayed.frames()[1]).toBe(frame(failed('error')).trim());
    for (const answer of [told, relayed])
      expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'upstream_error' });
  });

  test('(Google’s, in an array) after output becomes an error frame that SDKs recognize', async () => {
    const output = frame(contentChunk('x', { model: 'test-model' }));
    const error = [{ error: { code: 503, message: 'The model is overloaded.', status: 'UNAVAILABLE' } }];
    const answer = await answered(sse([output, error], { done: false }), chatRequest({ stream: true }));
    expect([answer.frames().length, answer.complete]).toEqual([2, true]);
    expect(answer.frames()[1]).toContain('{"error":{"message":"The model is overloaded."');
    expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'upstream_error' });
  });

  test.each<[string, string, object]>([
    ['responses', 'responses', { model: 'test-model', input: 'x' }],
    ['embeddings', 'embeddings', { model: 'test-model', input: 'x' }],
    ['images', 'images/generations', { model: 'test-model', prompt: 'x' }],
    ['speech', 'audio/speech', { model: 'test-model', input: 'x', voice: 'v' }],
    ['moderations', 'moderations', { model: 'test-model', input: 'x' }],
  ])('is one in answer to a request for %s, too', async (_name, path, body) => {
    const error = { object: 'error', message: 'too long', code: 400 };
    const answer = await answered(json(200, error), body, path);
    expect([answer.status, answer.json()]).toMatchObject([400, { error: { message: 'too long' } }]);
  });

  test.each(['error: {"error":{"message":"gone"}}\n\n', 'error: {"code":502,"message":"gone"}\n\n'])(
    'is one in a field of the stream: %j',
    async (error) => {
      const output = frame(contentChunk('x', { model: 'test-model' }));
      const late = await answered(sse([output, error], { done: false }), chatRequest({ stream: true }));
      expect([late.frames().length, late.complete]).toEqual([2, true]);
      expect(late.frames()[1]).toMatch(/^data: \{"error":\{"message":"gone"/);
      const early = await answered(sse([error], { done: false }), chatRequest({ stream: true }));
      expect([early.status, early.json()]).toMatchObject([502, { error: { message: 'gone' } }]);
    },
  );

  test.each(['event: error\n\n', 'event: error\ndata:\n\n'])(
    '(%j) without any text is one',
    async (error) => {
      const output = frame(contentChunk('x', { model: 'test-model' }));
      const late = await answered(sse([output, error], { done: false }), chatRequest({ stream: true }));
      expect(late.frames().at(-1)).toMatch(/^data: \{"error":\{"message":"The upstream reported an error\."/);
      expect(await gateway.accessLine(late)).toMatchObject({ outcome: 'upstream_error' });
      const early = await answered(sse([error, output], { done: false }), chatRequest({ stream: true }));
      expect(early.status).toBe(502);
    },
  );

  test.each([
    frame({ detail: 'gone' }),
    frame([{ error: { message: 'gone', status: 'UNAVAILABLE' } }]),
    'error: {"error":{"message":"gone"}}\n\n',
    'error: {"detail":"gone"}\r\n\r\n',
  ])('is one among events with types, first and later: %j', async (error) => {
    const ask = { model: 'test-model', input: 'x', stream: true };
    const [created, ...events] = responseEvents().map(eventFrame);
    const early = await answered(sse([created ?? '', error], { done: false }), ask, 'responses');
    expect([early.status, early.json()]).toMatchObject([502, { error: { message: 'gone' } }]);
    const late = await answered(
      sse([created ?? '', ...events.slice(0, 4), error], { done: false }),
      ask,
      'responses',
    );
    expect(late.frames().at(-1)).toMatch(/^event: error\ndata: \{"type":"error".*"message":"gone"/);
    expect(await gateway.accessLine(late)).toMatchObject({ outcome: 'upstream_error' });
  });

  test.each<[string, object]>([
    ['a completion', { ...completion(), message: 'note', code: 500, status: 'error' }],
    ['an object with an id and a message', { id: 'x', object: 'chat.completion', message: 'hello' }],
  ])('is not %s', async (_name, body) => {
    expect((await answered(json(200, body), chatRequest())).status).toBe(200);
  });

  test('is no notice in a stream, and no chunk without choices', async () => {
    const notices = [
      { choices: [], prompt_filter_results: [{ prompt_index: 0 }], code: 400, message: 'm' },
      { message: 'in the queue' },
      { type: 'ping' },
    ];
    const answer = await answered(sse([...notices, ...defaultStream()]), chatRequest({ stream: true }));
    expect([answer.status, answer.frames().length]).toEqual([200, 8]);
    expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'ok' });
  });
});

const labelled = (type: string | undefined, ...pieces: readonly (string | Buffer)[]): Script => [
  head(200, { ...(type === undefined ? {} : { 'content-type': type }), 'transfer-encoding': 'chunked' }),
  ...pieces.flatMap((piece) => [chunk(piece), wait(5)]),
  lastChunk(),
];

const OTHER_LABELS = [undefined, 'text/plain', 'application/octet-stream', 'text/html'] as const;

describe('an answer whose label is wrong or missing', () => {
  const whole = JSON.stringify(completion({ model: 'test-model' }));
  const frames = [...defaultStream({ model: 'test-model' }).map((each) => frame(each)), DONE].join('');

  test.each([...OTHER_LABELS, 'text/event-stream'])('(%s) is JSON if it begins so', async (type) => {
    for (const pieces of [[whole], ['\n', ' \r\n', whole.slice(0, 1), whole.slice(1)]]) {
      const answer = await answered(labelled(type, ...pieces), chatRequest());
      expect([answer.status, answer.header('content-type'), answer.json()]).toEqual([
        200,
        'application/json',
        JSON.parse(whole),
      ]);
      const stream = await answered(labelled(type, ...pieces), chatRequest({ stream: true }));
      expect([stream.status, stream.frames().at(-1)]).toEqual([200, 'data: [DONE]']);
      expect(await gateway.accessLine(stream)).toMatchObject({ outcome: 'ok', completion_tokens: 5 });
    }
  });

  test.each([...OTHER_LABELS, 'application/json'])('(%s) is a stream if it begins so', async (type) => {
    for (const pieces of [
      [frames],
      [': hold on\n\n', frames],
      ['\n', frames.slice(0, 3), frames.slice(3)],
      [`event: message\n${frames}`],
    ]) {
      const answer = await answered(labelled(type, ...pieces), chatRequest({ stream: true }));
      expect([answer.status, answer.header('content-type')]).toEqual([
        200,
        'text/event-stream; charset=utf-8',
      ]);
      expect(answer.text().trimStart()).toBe(pieces.join('').trimStart());
    }
    const none = await answered(labelled(type, frames), chatRequest());
    expect([none.status, none.json()]).toMatchObject([
      406,
      { error: { code: 'upstream_unusable_response' } },
    ]);
  });

  test.each([...OTHER_LABELS, 'text/event-stream'])('(%s) is an error if it says so', async (type) => {
    for (const stream of [false, true]) {
      const error = '{"error":{"message":"slow down","code":429}}';
      const answer = await answered(labelled(type, error), chatRequest({ stream }));
      expect([answer.status, answer.text()]).toEqual([429, error]);
    }
  });

  test.each(['<html>hi</html>', 'data', 'hello', '{}', '{"a":1}', '', '   '])(
    'is nothing if it says %j',
    async (text) => {
      for (const type of OTHER_LABELS) {
        const answer = await answered(
          labelled(type, ...(text === '' ? [] : [text])),
          chatRequest({ stream: true }),
        );
        expect([answer.status, answer.json()]).toMatchObject([
          502,
          { error: { code: 'upstream_invalid_response' } },
        ]);
      }
    },
  );

  test('is sound unless its bytes are an error beyond doubt', async () => {
    const speak = { model: 'test-model', input: 'x', voice: 'v' };
    const error = '{"error":{"message":"no such voice","code":404}}';
    const refused = await answered(
      labelled('application/octet-stream', error.slice(0, 4), error.slice(4)),
      speak,
      'audio/speech',
    );
    expect([refused.status, refused.text()]).toEqual([404, error]);
    for (const sound of [
      Buffer.from('{"\u0000\u0001x'),
      Buffer.from(': x'),
      Buffer.from('{'),
      Buffer.from('data: x'),
    ]) {
      const heard = await answered(labelled('application/octet-stream', sound), speak, 'audio/speech');
      expect([heard.status, heard.body]).toEqual([200, sound]);
    }
  });

  test('is the text of a transcript, whatever it begins with', async () => {
    const form = formBytes([
      field('model', 'test-model'),
      field('response_format', 'text'),
      file(Buffer.from('RIFF')),
    ]);
    for (const text of ['data: the numbers', '{ laughs }', ': a colon']) {
      upstream.next(labelled('text/plain', text));
      using client = await gateway.connect();
      const headers = { authorization: `Bearer ${await gateway.key()}`, 'content-type': FORM_TYPE };
      const answer = await client.ask({ target: '/v1/audio/transcriptions', headers, body: form });
      expect([answer.status, answer.text()]).toEqual([200, text]);
    }
  });

  test('that is an event stream is read byte by byte as well', async () => {
    const bytes = [...Buffer.from(frames.slice(0, 400))].map((byte) => Buffer.of(byte));
    const script: Script = [
      head(200, { ...SSE_HEADERS, 'content-type': 'text/plain' }),
      segments(
        bytes.map((byte) => `1\r\n${byte.toString('latin1')}\r\n`),
        0,
      ),
      chunk(frames.slice(400)),
      lastChunk(),
    ];
    expect((await answered(script, chatRequest({ stream: true }))).text()).toBe(frames);
  });
});
