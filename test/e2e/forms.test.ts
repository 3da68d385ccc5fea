// The endpoints that take forms, by the official OpenAI SDK, against scripted upstreams that answer as vendors do, and against
// the built-in model: what arrives, what comes back, and what is counted.
import OpenAI, { toFile } from 'openai';
import { toStreamingFile } from 'openai/uploads';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { noise } from '../helpers/forms.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  HostileUpstream,
  head,
  json,
  lastChunk,
  type RecordedRequest,
  reset,
  type Script,
  type Step,
  sse,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { eventFrame, framesOf, imageList } from '../helpers/recorded.ts';
import { field, totalsOfOne } from './holder.ts';

const MIB = 1024 * 1024;

let first: HostileUpstream;
let second: HostileUpstream;
let gateway: Gateway;
let client: OpenAI;

beforeAll(async () => {
  first = await HostileUpstream.start();
  second = await HostileUpstream.start();
  const targets = [
    { upstream: 'first', model: 'there', priority: 1 },
    { upstream: 'second', model: 'elsewhere', priority: 2 },
  ];
  gateway = await startGateway({
    now: fleetingClock(),
    config: {
      upstreams: {
        first: { base_url: first.baseUrl, api_key: 'credential-of-first' },
        second: { base_url: second.baseUrl, api_key: 'credential-of-second' },
        echo: { builtin: 'echo' },
      },
      models: {
        m: { targets },
        'dall-e-2': { targets },
        talk: { targets, endpoints: ['chat'] },
        echo: { targets: [{ upstream: 'echo', model: 'echo' }] },
      },
      tiers: { Free: { tokens_per_minute: 100 }, Lite: { endpoints: ['chat'] }, Pro: {} },
    },
  });
  client = clientOf(await gateway.key());
});
beforeEach(() => {
  first.always(json(200, { text: 'heard' }));
  second.always(json(200, { text: 'heard elsewhere' }));
});
afterAll(async () => {
  await gateway?.close();
  await first?.close();
  await second?.close();
});

const clientOf = (apiKey: string): OpenAI =>
  new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey, maxRetries: 0 });

/** Fields and files of what an upstream was sent last, read by another reader than the gateway's. */
async function asked(
  upstream = first,
): Promise<{ request: RecordedRequest; form: Map<string, string | Buffer> }> {
  const request = await upstream.request(upstream.requests.length - 1);
  const headers = { 'content-type': request.header('content-type') ?? '' };
  const data = await new Response(new Uint8Array(request.body), { headers }).formData();
  const form = new Map<string, string | Buffer>();
  for (const [name, value] of data)
    form.set(name, typeof value === 'string' ? value : Buffer.from(await value.arrayBuffer()));
  return { request, form };
}

/** What a call adds to the sums of its holder. */
async function counted(call: (own: OpenAI) => Promise<unknown>): Promise<Record<string, unknown>> {
  const holder = await gateway.issueKey('Pro');
  await call(clientOf(holder));
  const totals = await totalsOfOne(gateway.url, holder);
  return {
    prompt: field(totals, 'prompt_tokens'),
    completion: field(totals, 'completion_tokens'),
    estimated: field(totals, 'estimated'),
  };
}

const sound = (bytes: Buffer = noise(16_000)) => toFile(bytes, 'a.mp3', { type: 'audio/mpeg' });

describe('transcriptions', () => {
  test.each([
    ['with the file before the model', async (file: File) => ({ file, model: 'm', language: 'en' })],
    ['with the model before the file', async (file: File) => ({ model: 'm', language: 'en', file })],
  ])('of 25 MiB, %s', async (_name, request) => {
    const recording = noise(25 * MIB);
    const usage = { type: 'tokens', input_tokens: 14, output_tokens: 45, total_tokens: 59 };
    first.always(json(200, { text: 'heard', usage }));
    const body = await request(await sound(recording));
    const sums = await counted(async (own) => {
      expect((await own.audio.transcriptions.create(body)).text).toBe('heard');
    });
    expect(sums).toEqual({ prompt: 14, completion: 45, estimated: 0 });
    const { request: sent, form } = await asked();
    expect(sent.target).toBe('/v1/audio/transcriptions');
    expect(sent.header('authorization')).toBe('Bearer credential-of-first');
    expect([form.get('model'), form.get('language')]).toEqual(['there', 'en']);
    expect(recording.equals(Buffer.from(form.get('file') ?? ''))).toBe(true);
  });

  test('of a file that is itself a stream', async () => {
    const recording = noise(3 * MIB);
    async function* pieces() {
      for (let at = 0; at < recording.length; at += 100_000) yield recording.subarray(at, at + 100_000);
    }
    const file = toStreamingFile(pieces(), 'a.mp3');
    expect((await client.audio.transcriptions.create({ model: 'm', file })).text).toBe('heard');
    const { form } = await asked();
    expect(recording.equals(Buffer.from(form.get('file') ?? ''))).toBe(true);
  });

  test('by duration: a token for a tenth of a second', async () => {
    first.always(json(200, { text: 'heard', usage: { type: 'duration', seconds: 9.71 } }));
    const sums = await counted(async (own) =>
      own.audio.transcriptions.create({ file: await sound(), model: 'm' }),
    );
    expect(sums).toEqual({ prompt: 98, completion: 0, estimated: 0 });
  });

  test('without usage: by the bytes of the form and of the text', async () => {
    const sums = await counted(async (own) =>
      own.audio.transcriptions.create({ file: await sound(noise(159_000)), model: 'm' }),
    );
    expect(sums).toEqual({ prompt: 101, completion: 4, estimated: 1 });
  });

  test.each([
    ['text', 'text/plain; charset=utf-8', 13, 'It is a fact.\n'],
    ['srt', 'application/x-subrip', 12, '1\n00:00:00,000 --> 00:00:01,000\nIt is.\n\n'],
    ['vtt', 'text/vtt', 12, 'WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nIt is.\n\n'],
    ['text', 'text/plain', 13, ''],
  ] as const)('as %s (%s) comes as it is', async (response_format, type, prompt, text) => {
    first.always([
      head(200, { 'content-type': type, 'transfer-encoding': 'chunked' }),
      ...(text === '' ? [] : [chunk(text)]),
      lastChunk(),
    ]);
    const sums = await counted(async (own) => {
      const request = { file: await sound(), model: 'm', response_format };
      const answer = await own.audio.transcriptions.create(request).asResponse();
      expect([answer.headers.get('content-type'), await answer.text()]).toEqual([type, text]);
    });
    expect(sums).toMatchObject({ prompt, completion: Math.ceil(text.length / 4), estimated: 1 });
  });

  test('text where JSON was asked for cannot be used', async () => {
    first.always(json(200, 'It works!', { 'content-type': 'text/plain' }));
    const answer = await client.audio.transcriptions.create({ file: await sound(), model: 'm' });
    expect(answer.text).toBe('heard elsewhere');
  });

  test('text that breaks off is no whole answer', async () => {
    first.always([
      head(200, { 'content-type': 'text/plain', 'transfer-encoding': 'chunked' }),
      chunk('It is'),
      reset(),
    ]);
    const request = { file: await sound(), model: 'm', response_format: 'text' } as const;
    const answer = await client.audio.transcriptions.create(request).asResponse();
    await expect(answer.text()).rejects.toThrow();
  });

  const events = [
    { type: 'transcript.text.delta', delta: 'It ' },
    { type: 'transcript.text.delta', delta: 'is.' },
    {
      type: 'transcript.text.done',
      text: 'It is.',
      usage: { type: 'tokens', input_tokens: 14, output_tokens: 3, total_tokens: 17 },
    },
  ];
  const stream = async (own: OpenAI, script: Script) => {
    first.always(script);
    const types: string[] = [];
    const answer = await own.audio.transcriptions.create({ file: await sound(), model: 'm', stream: true });
    for await (const event of answer) types.push(event.type);
    return types;
  };
  const plain = events.map((event) => `data: ${JSON.stringify(event)}\n\n`);

  test('as a stream of events', async () => {
    for (const frames of [plain, framesOf(events), [...plain, 'data: [DONE]\n\n']]) {
      const sums = await counted(async (own) => {
        expect(await stream(own, sse(frames, { done: false }))).toEqual(events.map(({ type }) => type));
      });
      expect(sums).toEqual({ prompt: 14, completion: 3, estimated: 0 });
    }
    expect((await asked()).request.header('accept')).toBe('text/event-stream');
  });

  test('a stream that breaks raises', async () => {
    const broken: Step[] = [
      head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' }),
      chunk(plain.slice(0, 2).join('')),
      reset(),
    ];
    await expect(stream(client, broken)).rejects.toMatchObject({ code: 'stream_incomplete' });
  });

  test('a model that does not stream is a stream of one piece', async () => {
    const whole = json(200, { text: 'It is.', usage: { type: 'duration', seconds: 1 } });
    const sums = await counted(async (own) => {
      expect(await stream(own, whole)).toEqual(['transcript.text.delta', 'transcript.text.done']);
    });
    expect(sums).toEqual({ prompt: 10, completion: 0, estimated: 0 });
  });

  test('another target is asked with the same form', async () => {
    first.always(json(500, upstreamError('broken')));
    const answer = await client.audio.transcriptions.create({ file: await sound(), model: 'm' });
    expect(answer.text).toBe('heard elsewhere');
    expect((await asked(second)).form.get('model')).toBe('elsewhere');
  });

  test('what the limits hold is the estimate by the bytes', async () => {
    const own = clientOf(await gateway.issueKey('Free'));
    const large = own.audio.transcriptions.create({ file: await sound(noise(200_000)), model: 'm' });
    await expect(large).rejects.toMatchObject({ status: 429, type: 'tokens' });
    const small = await own.audio.transcriptions.create({ file: await sound(), model: 'm' });
    expect(small.text).toBe('heard');
  });

  test('what is not offered is refused while it is sent', async () => {
    const file = await sound(noise(5 * MIB));
    await expect(client.audio.transcriptions.create({ model: 'talk', file })).rejects.toMatchObject({
      status: 404,
      code: 'endpoint_not_offered',
    });
    await expect(client.audio.transcriptions.create({ model: 'nobody', file })).rejects.toMatchObject({
      code: 'model_not_found',
    });
    const own = clientOf(await gateway.issueKey('Lite'));
    await expect(own.audio.transcriptions.create({ model: 'm', file })).rejects.toMatchObject({
      code: 'endpoint_not_offered',
    });
  });
});

test('translations', async () => {
  const answer = await client.audio.translations.create({ file: await sound(), model: 'm' });
  expect(answer.text).toBe('heard');
  const { request, form } = await asked();
  expect([request.target, form.get('model')]).toEqual(['/v1/audio/translations', 'there']);
});

describe('images', () => {
  const picture = (bytes = noise(5_000)) => toFile(bytes, 'a.png', { type: 'image/png' });

  test('edited, with several of them and without a model', async () => {
    first.always(json(200, imageList('AAAA')));
    const sums = await counted(async (own) => {
      const image = [await picture(), await picture(noise(9_000))];
      const answer = await own.images.edit({ image, prompt: 'a hat', n: 1 });
      expect(answer.data?.[0]?.b64_json).toBe('AAAA');
    });
    expect(sums).toEqual({ prompt: 5, completion: 272, estimated: 0 });
    const { request, form } = await asked();
    expect([request.target, form.get('model'), form.get('prompt')]).toEqual([
      '/v1/images/edits',
      'there',
      'a hat',
    ]);
  });

  test('edited, as a stream', async () => {
    const image = { b64_json: 'AAAA', created_at: 1, size: '1x1', output_format: 'png' };
    const usage = { input_tokens: 5, output_tokens: 272, total_tokens: 277 };
    const events = [
      { type: 'image_edit.partial_image', partial_image_index: 0, ...image },
      { type: 'image_edit.completed', ...image, usage },
    ];
    first.always(sse(events.map(eventFrame), { done: false }));
    const sums = await counted(async (own) => {
      const types = [];
      const request = { image: await picture(), prompt: 'x', model: 'm', stream: true } as const;
      for await (const event of await own.images.edit(request)) types.push(event.type);
      expect(types).toEqual(['image_edit.partial_image', 'image_edit.completed']);
    });
    expect(sums).toEqual({ prompt: 5, completion: 272, estimated: 0 });
  });

  test('edited, as JSON', async () => {
    first.always(json(200, imageList('AAAA')));
    const body = { model: 'm', prompt: 'x', images: [{ image_url: 'https://example.test/a.png' }] };
    const answer = await client.post('/images/edits', { body });
    expect(answer).toMatchObject({ data: [{ b64_json: 'AAAA' }] });
    const request = await first.request(first.requests.length - 1);
    expect(request.json()).toEqual({ ...body, model: 'there' });
  });

  test('varied, and estimated by the picture where nobody says it', async () => {
    first.always(json(200, { created: 1, data: [{ url: 'a' }, { url: 'b' }] }));
    const sums = await counted(async (own) => own.images.createVariation({ image: await picture(), n: 2 }));
    expect(sums).toEqual({ prompt: 1001, completion: 2000, estimated: 1 });
    expect((await asked()).request.target).toBe('/v1/images/variations');
  });
});

describe('the built-in model', () => {
  test('answers forms, whichever way they come', async () => {
    const model = 'echo';
    for (const size of [16_000, 3 * MIB]) {
      const file = await sound(noise(size));
      const said = `A recording of ${size} bytes.`;
      expect((await client.audio.transcriptions.create({ file, model })).text).toBe(said);
      expect((await client.audio.transcriptions.create({ model, file })).text).toBe(said);
    }
    const file = await sound();
    expect(await client.audio.transcriptions.create({ file, model, response_format: 'srt' })).toContain(
      '-->',
    );
    expect(await client.audio.transcriptions.create({ file, model, response_format: 'vtt' })).toContain(
      'WEBVTT',
    );
    const types = [];
    for await (const event of await client.audio.transcriptions.create({ file, model, stream: true }))
      types.push(event.type);
    expect(types).toEqual(['transcript.text.delta', 'transcript.text.done']);
    expect((await client.audio.translations.create({ file, model })).text).toContain('16000');
    expect((await client.images.edit({ image: file, prompt: 'x', model, n: 2 })).data).toHaveLength(2);
    expect((await client.images.createVariation({ image: file, model })).data).toHaveLength(1);
    await expect(client.images.edit({ image: [], prompt: 'x', model })).rejects.toMatchObject({
      status: 400,
    });
  });
});
