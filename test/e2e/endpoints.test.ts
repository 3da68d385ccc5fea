// Every endpoint beside chat, by the official OpenAI SDK, against scripted upstreams that answer as vendors do, and against the
// built-in model: what arrives, what is counted, and how a broken answer shows.
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  DONE,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  reset,
  type Script,
  type Step,
  sse,
  standardAnswer,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import {
  embeddingList,
  framesOf,
  imageEvents,
  imageList,
  inputUsage,
  moderation,
  responseEvents,
  responseObject,
  speechEvents,
  textChunk,
  textCompletion,
} from '../helpers/recorded.ts';
import { field, totalsOfOne } from './holder.ts';

let first: HostileUpstream;
let second: HostileUpstream;
let gateway: Gateway;
let client: OpenAI;
let key: string;

beforeAll(async () => {
  first = await HostileUpstream.start();
  second = await HostileUpstream.start();
  const targets = [
    { upstream: 'first', model: 'there', priority: 1 },
    { upstream: 'second', model: 'elsewhere', priority: 2 },
  ];
  const echo = { targets: [{ upstream: 'echo', model: 'echo' }] };
  gateway = await startGateway({
    now: fleetingClock(),
    upstreams: {},
    config: {
      upstreams: {
        first: { base_url: first.baseUrl, api_key: 'credential-of-first' },
        second: { base_url: second.baseUrl, api_key: 'credential-of-second' },
        echo: { builtin: 'echo' },
      },
      models: {
        m: { targets },
        'omni-moderation-latest': { targets },
        'dall-e-2': { targets },
        vectors: { targets, endpoints: ['embeddings'] },
        talk: { targets, endpoints: ['chat', 'responses'] },
        echo,
      },
      tiers: { Free: { endpoints: ['chat', 'completions'] }, Pro: { tokens_per_minute: 1_000_000 } },
    },
  });
  key = await gateway.key();
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, maxRetries: 0 });
});
beforeEach(() => {
  first.always(standardAnswer);
  second.always(standardAnswer);
});
afterAll(async () => {
  await gateway?.close();
  await first?.close();
  await second?.close();
});

/** A stream that ends with its last event. */
const typed = (frames: readonly string[]): Step => sse(frames, { done: false });

/** What the first upstream was sent last. */
async function asked(): Promise<{
  path: string;
  body: string;
  headers: (name: string) => string | undefined;
}> {
  const request = await first.request(first.requests.length - 1);
  return {
    path: request.target,
    body: request.body.toString(),
    headers: (name) => request.header(name),
  };
}

/** What a promise rejects with, as an error of the SDK. */
async function refusal(promise: PromiseLike<unknown>): Promise<InstanceType<typeof OpenAI.APIError>> {
  const error = await Promise.resolve(promise).then(
    () => new Error('it did not fail'),
    (cause: unknown) => cause,
  );
  if (error instanceof OpenAI.APIError) return error;
  throw error;
}

/** All items of a stream, and the error that ended it. */
async function drain<T>(stream: AsyncIterable<T>): Promise<{ items: T[]; error: unknown }> {
  const items: T[] = [];
  try {
    for await (const item of stream) items.push(item);
    return { items, error: undefined };
  } catch (error) {
    return { items, error };
  }
}

/** What a call adds to the sums of its holder. */
async function counted(call: () => Promise<unknown>): Promise<Record<string, unknown>> {
  const holder = await gateway.issueKey('Pro');
  const own = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: holder, maxRetries: 0 });
  const before = client;
  client = own;
  try {
    await call();
  } finally {
    client = before;
  }
  const totals = await totalsOfOne(gateway.url, holder);
  return {
    prompt: field(totals, 'prompt_tokens'),
    completion: field(totals, 'completion_tokens'),
    estimated: field(totals, 'estimated'),
    failed: field(totals, 'failed'),
  };
}

describe('completions', () => {
  test('whole: the path, the bytes, the name and the count', async () => {
    first.always(json(200, textCompletion('Hello')));
    const sums = await counted(async () => {
      const answer = await client.completions.create({ model: 'm', prompt: [1, 2, 3], max_tokens: 9 });
      expect([answer.model, answer.choices[0]?.text]).toEqual(['m', 'Hello']);
    });
    expect(sums).toEqual({ prompt: 2, completion: 3, estimated: 0, failed: 0 });
    expect(await asked()).toMatchObject({
      path: '/v1/completions',
      body: '{"model":"there","prompt":[1,2,3],"max_tokens":9}',
    });
  });

  test('streamed: usage is asked for, counted, and not shown to a client that did not ask', async () => {
    first.always(
      sse([textChunk('Hel'), textChunk('lo', 'stop'), usageChunk({ prompt: 2, completion: 3 }), DONE]),
    );
    const sums = await counted(async () => {
      const { items, error } = await drain(
        await client.completions.create({ model: 'm', prompt: 'x', stream: true }),
      );
      expect([items.map((each) => each.choices[0]?.text), error]).toEqual([['Hel', 'lo'], undefined]);
      expect(items.map((each) => each.model)).toEqual(['m', 'm']);
    });
    expect(sums).toEqual({ prompt: 2, completion: 3, estimated: 0, failed: 0 });
    expect((await asked()).body).toContain('"stream_options":{"include_usage":true}');
  });

  test('a stream that breaks raises', async () => {
    first.always([
      head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' }),
      chunk(frame(textChunk('Hel'))),
      reset(),
    ]);
    const { items, error } = await drain(
      await client.completions.create({ model: 'm', prompt: 'x', stream: true }),
    );
    expect(items).toHaveLength(1);
    expect(error).toMatchObject({ code: 'stream_incomplete' });
  });

  test('a whole answer to a request for a stream becomes one', async () => {
    first.always(json(200, textCompletion('Hello')));
    const { items } = await drain(await client.completions.create({ model: 'm', prompt: 'x', stream: true }));
    expect(items.map((each) => [each.object, each.choices[0]?.text, each.choices[0]?.finish_reason])).toEqual(
      [
        ['text_completion', 'Hello', null],
        ['text_completion', '', 'stop'],
      ],
    );
  });
});

describe('embeddings', () => {
  const vectors = [
    [0.5, 1, 2, 3],
    [0.25, -1, 0, 8],
  ];
  const base64 = (vector: readonly number[]) =>
    Buffer.from(Float32Array.from(vector).buffer).toString('base64');

  test.each([
    ['numbers', vectors],
    ['base64', vectors.map(base64)],
  ])('an upstream that answers with %s is read by the SDK, which asks for base64', async (_name, sent) => {
    first.always(json(200, embeddingList(sent)));
    const sums = await counted(async () => {
      const answer = await client.embeddings.create({ model: 'vectors', input: ['a', 'b'] });
      expect([answer.model, answer.data.map((each) => each.embedding)]).toEqual(['vectors', vectors]);
    });
    expect(sums).toEqual({ prompt: 8, completion: 0, estimated: 0, failed: 0 });
    expect(await asked()).toMatchObject({ path: '/v1/embeddings' });
    expect((await asked()).body).toContain('"encoding_format":"base64"');
  });

  test('who asks for numbers gets what the upstream wrote', async () => {
    first.always(json(200, embeddingList(vectors)));
    const answer = await client.embeddings.create({ model: 'm', input: 'a', encoding_format: 'float' });
    expect(answer.data.map((each) => each.embedding)).toEqual(vectors);
  });

  test('an answer that is no vector is not used: the next target answers', async () => {
    first.always(json(200, embeddingList([['x']])));
    second.always(json(200, embeddingList(vectors)));
    const answer = await client.embeddings.create({ model: 'm', input: ['a', 'b'] });
    expect(answer.data.map((each) => each.embedding)).toEqual(vectors);
  });
});

describe('moderations', () => {
  test('with a model', async () => {
    first.always(json(200, moderation()));
    const sums = await counted(async () => {
      const answer = await client.moderations.create({ model: 'm', input: 'something' });
      expect([answer.model, answer.results[0]?.flagged]).toEqual(['m', true]);
    });
    expect(sums).toMatchObject({ completion: 0, estimated: 1, failed: 0 });
    expect(await asked()).toMatchObject({
      path: '/v1/moderations',
      body: '{"model":"there","input":"something"}',
    });
  });

  test('without: the default of the API is routed, and named in the words of the target', async () => {
    first.always(json(200, moderation()));
    const answer = await client.moderations.create({ input: 'something' });
    expect(answer.model).toBe('omni-moderation-latest');
    expect((await asked()).body).toBe('{"input":"something","model":"there"}');
  });
});

describe('responses', () => {
  test('whole', async () => {
    first.always(json(200, responseObject({ text: 'Hello' })));
    const sums = await counted(async () => {
      const answer = await client.responses.create({ model: 'm', input: 'x' });
      expect([answer.model, answer.output_text, answer.status]).toEqual(['m', 'Hello', 'completed']);
    });
    expect(sums).toEqual({ prompt: 7, completion: 4, estimated: 0, failed: 0 });
    expect(await asked()).toMatchObject({ path: '/v1/responses' });
  });

  test('streamed: events as they came, the model in each of them, no [DONE], the usage of the last one', async () => {
    const events = responseEvents(['Hel', 'lo']);
    first.always(typed(framesOf(events)));
    const sums = await counted(async () => {
      const { items, error } = await drain(
        await client.responses.create({ model: 'm', input: 'x', stream: true }),
      );
      expect(error).toBeUndefined();
      expect(items).toEqual(
        events.map((event) =>
          'response' in event ? { ...event, response: { ...Object(event['response']), model: 'm' } } : event,
        ),
      );
    });
    expect(sums).toEqual({ prompt: 7, completion: 4, estimated: 0, failed: 0 });
    expect((await asked()).body).not.toContain('stream_options');
  });

  test('what is only counted, or compacted', async () => {
    first.always(json(200, { object: 'response.input_tokens', input_tokens: 11 }));
    const sums = await counted(async () => {
      expect((await client.responses.inputTokens.count({ model: 'm', input: 'x' })).input_tokens).toBe(11);
    });
    expect(sums).toEqual({ prompt: 0, completion: 0, estimated: 0, failed: 0 });
    expect(await asked()).toMatchObject({
      path: '/v1/responses/input_tokens',
      body: '{"model":"there","input":"x"}',
    });
    const compacted = {
      id: 'resp_1',
      object: 'response.compaction',
      created_at: 1,
      output: [],
      usage: inputUsage(),
    };
    first.always(json(200, compacted));
    const compact = await counted(() => client.responses.compact({ model: 'm', input: 'x' }));
    expect(compact).toEqual({ prompt: 7, completion: 4, estimated: 0, failed: 0 });
    expect(await asked()).toMatchObject({ path: '/v1/responses/compact' });
  });

  test('the helper of the SDK puts the stream together', async () => {
    first.always(typed(framesOf(responseEvents(['Hel', 'lo']))));
    const final = await client.responses.stream({ model: 'm', input: 'x' }).finalResponse();
    expect([final.output_text, final.model]).toEqual(['Hello', 'm']);
  });

  test('an answer that was cut by its limit is whole', async () => {
    const last = { type: 'response.incomplete', response: responseObject({ status: 'incomplete' }) };
    first.always(typed(framesOf(responseEvents(['Hel'], last))));
    const { items, error } = await drain(
      await client.responses.create({ model: 'm', input: 'x', stream: true }),
    );
    expect([items.at(-1)?.type, error]).toEqual(['response.incomplete', undefined]);
  });

  const started = [head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' })];
  const begun = framesOf(responseEvents().slice(0, 5)).join('');

  test.each<[string, Step[]]>([
    ['a reset', [reset()]],
    ['a clean end', [lastChunk()]],
    ['a [DONE]', [chunk(DONE), lastChunk()]],
  ])('%s before the last event is an error event, and no clean end', async (_name, ending) => {
    first.always([...started, chunk(begun), ...ending]);
    const { items, error } = await drain(
      await client.responses.create({ model: 'm', input: 'x', stream: true }),
    );
    expect(items.filter((each) => each.type === 'response.output_text.delta')).toHaveLength(1);
    expect(error).toMatchObject({ code: 'stream_incomplete' });
  });

  test('a response that fails after output is told as it came', async () => {
    const failed = {
      type: 'response.failed',
      response: responseObject({ status: 'failed', error: { code: 'server_error', message: 'oops' } }),
    };
    first.always(typed(framesOf(responseEvents(['Hel'], failed))));
    const sums = await counted(async () => {
      const { items } = await drain(await client.responses.create({ model: 'm', input: 'x', stream: true }));
      expect(items.at(-1)?.type).toBe('response.failed');
    });
    expect(sums).toMatchObject({ failed: 1 });
  });

  test('a response that fails before output is asked of the next target', async () => {
    const failed = {
      type: 'response.failed',
      response: responseObject({ status: 'failed', error: { code: 'server_error', message: 'oops' } }),
    };
    first.always(typed(framesOf([...responseEvents().slice(0, 2), failed])));
    second.always(typed(framesOf(responseEvents(['Hi']))));
    const final = await client.responses.stream({ model: 'm', input: 'x' }).finalResponse();
    expect(final.output_text).toBe('Hi');
  });

  test('a whole response that failed is asked of the next target, too', async () => {
    first.always(
      json(
        200,
        responseObject({ status: 'failed', error: { code: 'rate_limit_exceeded', message: 'slow' } }),
      ),
    );
    second.always(json(200, responseObject({ text: 'Hi' })));
    expect((await client.responses.create({ model: 'm', input: 'x' })).output_text).toBe('Hi');
    second.always(
      json(200, responseObject({ status: 'failed', error: { code: 'invalid_prompt', message: 'no' } })),
    );
    expect(await refusal(client.responses.create({ model: 'm', input: 'x' }))).toMatchObject({
      status: 400,
      code: 'invalid_prompt',
    });
  });
});

describe('images', () => {
  const picture = Buffer.alloc(3_000_000, 0x5a).toString('base64');

  test('whole, some megabytes in base64', async () => {
    first.always(json(200, imageList(picture)));
    const sums = await counted(async () => {
      const answer = await client.images.generate({ model: 'm', prompt: 'a cat' });
      expect(answer.data?.[0]?.b64_json === picture).toBe(true);
    });
    expect(sums).toEqual({ prompt: 5, completion: 272, estimated: 0, failed: 0 });
    expect(await asked()).toMatchObject({
      path: '/v1/images/generations',
      body: '{"model":"there","prompt":"a cat"}',
    });
  });

  test('streamed, with partial images', async () => {
    first.always(typed(framesOf(imageEvents(picture))));
    const sums = await counted(async () => {
      const stream = await client.images.generate({
        model: 'm',
        prompt: 'a cat',
        stream: true,
        partial_images: 1,
      });
      const { items, error } = await drain(stream);
      expect([items.map((each) => each.type), error]).toEqual([
        ['image_generation.partial_image', 'image_generation.completed'],
        undefined,
      ]);
    });
    expect(sums).toEqual({ prompt: 5, completion: 272, estimated: 0, failed: 0 });
  });

  test('a stream without its last picture raises', async () => {
    first.always(typed(framesOf(imageEvents('QQ==').slice(0, 1))));
    const { items, error } = await drain(
      await client.images.generate({ model: 'm', prompt: 'x', stream: true }),
    );
    expect(items).toHaveLength(1);
    expect(error).toMatchObject({ code: 'stream_incomplete' });
  });

  test('without a model, and without usage: by the picture', async () => {
    first.always(
      json(200, { created: 1, data: [{ url: 'https://example.test/1' }, { url: 'https://example.test/2' }] }),
    );
    const sums = await counted(() => client.images.generate({ prompt: 'a cat', n: 2 }));
    expect(sums).toMatchObject({ completion: 2000, estimated: 1 });
    expect((await asked()).body).toBe('{"prompt":"a cat","n":2,"model":"there"}');
  });
});

describe('speech', () => {
  const sound = Buffer.from(Array.from({ length: 200_000 }, (_, at) => (at * 7) % 256));
  const request = { model: 'm', voice: 'alloy', input: 'Grüße 😀' } as const;
  const pieces = [sound.subarray(0, 1000), sound.subarray(1000)];
  const begun = (type: string): Step => head(200, { 'content-type': type, 'transfer-encoding': 'chunked' });

  test('bytes as they came, with their type; counted by the character', async () => {
    first.always([begun('audio/L16; rate=24000'), ...pieces.map((piece) => chunk(piece)), lastChunk()]);
    const sums = await counted(async () => {
      const answer = await client.audio.speech.create(request);
      expect(answer.headers.get('content-type')).toBe('audio/L16; rate=24000');
      expect(Buffer.from(await answer.arrayBuffer()).equals(sound)).toBe(true);
    });
    expect(sums).toEqual({ prompt: 7, completion: 0, estimated: 0, failed: 0 });
    expect(await asked()).toMatchObject({ path: '/v1/audio/speech' });
    expect((await asked()).headers('accept')).toContain('audio/');
  });

  test('sound that breaks off is no whole answer', async () => {
    first.always([begun('audio/mpeg'), chunk(pieces[0] ?? ''), reset()]);
    const answer = await client.audio.speech.create(request);
    await expect(answer.arrayBuffer()).rejects.toThrow();
  });

  test.each<[string, Script]>([
    ['text', json(200, 'x', { 'content-type': 'text/html' })],
    ['a JSON object', json(200, { audio: 'x' })],
    ['an error', json(200, { error: { message: 'busy', code: 503 } })],
    ['nothing', [begun('audio/mpeg'), lastChunk()]],
    ['a break before the first byte', [begun('audio/mpeg'), reset()]],
  ])('%s instead of sound: the next target is asked', async (_name, script) => {
    first.always(script);
    second.always([begun('audio/wav'), chunk('RIFF'), lastChunk()]);
    const answer = await client.audio.speech.create(request);
    expect([answer.headers.get('content-type'), await answer.text()]).toEqual(['audio/wav', 'RIFF']);
  });

  test('as events', async () => {
    first.always(typed(framesOf(speechEvents('AAAA'))));
    const sums = await counted(async () => {
      const answer = await client.audio.speech.create({ ...request, stream_format: 'sse' });
      expect(answer.headers.get('content-type')).toContain('text/event-stream');
      expect(await answer.text()).toBe(framesOf(speechEvents('AAAA')).join(''));
    });
    expect(sums).toEqual({ prompt: 6, completion: 20, estimated: 0, failed: 0 });
  });
});

describe('what is offered', () => {
  test('a model elsewhere is 404, and the message says where it is', async () => {
    const error = await refusal(client.embeddings.create({ model: 'talk', input: 'x' }));
    expect(error).toMatchObject({ status: 404, code: 'endpoint_not_offered', type: 'invalid_request_error' });
    expect(error.message).toContain('chat, responses');
  });

  test('a tier without an endpoint is told so before its body is read', async () => {
    const free = await gateway.issueKey('Free');
    const own = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: free, maxRetries: 0 });
    expect(await refusal(own.responses.create({ model: 'talk', input: 'x' }))).toMatchObject({
      status: 404,
      code: 'endpoint_not_offered',
    });
    const names = [];
    for await (const { id } of await own.models.list()) names.push(id);
    expect(names).toEqual(['m', 'omni-moderation-latest', 'dall-e-2', 'talk', 'echo']);
    expect(await refusal(own.models.retrieve('vectors'))).toMatchObject({
      status: 404,
      code: 'model_not_found',
    });
    expect(await refusal(own.chat.completions.create({ model: 'vectors', messages: [] }))).toMatchObject({
      code: 'model_not_found',
    });
  });

  test('refusals, the key and the limits are those of chat', async () => {
    const bad = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'f'.repeat(32), maxRetries: 0 });
    expect(await refusal(bad.embeddings.create({ model: 'm', input: 'x' }))).toMatchObject({ status: 401 });
    expect(await refusal(client.embeddings.create({ model: 'no', input: 'x' }))).toMatchObject({
      code: 'model_not_found',
    });
    first.always(
      json(400, { error: { message: 'no', type: 'invalid_request_error', param: 'input', code: 'x' } }),
    );
    expect(await refusal(client.embeddings.create({ model: 'm', input: 'x' }))).toMatchObject({
      status: 400,
      code: 'x',
    });
    const large = 'x'.repeat(5_000_000);
    expect(await refusal(client.responses.create({ model: 'm', input: large }))).toMatchObject({
      status: 429,
      type: 'tokens',
    });
  });
});

describe('the built-in model', () => {
  test('answers on every endpoint', async () => {
    const model = 'echo';
    expect((await client.completions.create({ model, prompt: 'Hi' })).choices[0]?.text).toBe('You said: Hi');
    const texts = [];
    for await (const each of await client.completions.create({ model, prompt: 'Hi', stream: true }))
      texts.push(each.choices[0]?.text);
    expect(texts.join('')).toBe('You said: Hi');
    const [a, b] = [
      await client.embeddings.create({ model, input: ['x', 'y'] }),
      await client.embeddings.create({ model, input: 'x', encoding_format: 'float' }),
    ];
    expect(a.data[0]?.embedding).toEqual(b.data[0]?.embedding);
    expect(a.data[0]?.embedding).not.toEqual(a.data[1]?.embedding);
    expect((await client.moderations.create({ model, input: 'violence' })).results[0]?.flagged).toBe(true);
    expect((await client.responses.create({ model, input: 'Hi' })).output_text).toBe('You said: Hi');
    const final = await client.responses
      .stream({ model, input: [{ role: 'user', content: 'Hi' }] })
      .finalResponse();
    expect([final.output_text, final.status, final.model]).toEqual(['You said: Hi', 'completed', model]);
    expect((await client.images.generate({ model, prompt: 'x', n: 2 })).data).toHaveLength(2);
    const { items } = await drain(await client.images.generate({ model, prompt: 'x', stream: true }));
    expect(items.at(-1)?.type).toBe('image_generation.completed');
    const speech = await client.audio.speech.create({ model, voice: 'alloy', input: 'x' });
    expect((await speech.text()).slice(0, 4)).toBe('RIFF');
  });

  test('keeps its responses for a while', async () => {
    const { id } = await client.responses.create({ model: 'echo', input: 'Hi' });
    expect((await client.responses.retrieve(id)).output_text).toBe('You said: Hi');
    const types = [];
    for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: 2 }))
      types.push(event.type);
    expect([types[0], types.at(-1)]).toEqual(['response.content_part.added', 'response.completed']);
    const items = await client.responses.inputItems.list(id);
    expect(items.data[0]).toMatchObject({ content: [{ text: 'Hi' }] });
    const next = await client.responses.create({ model: 'echo', input: 'Ho', previous_response_id: id });
    expect(next.previous_response_id).toBe(id);
    await client.responses.delete(id);
    expect(await refusal(client.responses.retrieve(id))).toMatchObject({ status: 404 });
  });

  test('a response that its limit cuts is incomplete', async () => {
    const answer = await client.responses.create({
      model: 'echo',
      input: 'one two three',
      max_output_tokens: 2,
    });
    expect([answer.status, answer.output_text, answer.usage?.output_tokens]).toEqual([
      'incomplete',
      'You said:',
      2,
    ]);
    expect(await refusal(client.responses.create({ model: 'echo' }))).toMatchObject({ status: 400 });
  });
});
