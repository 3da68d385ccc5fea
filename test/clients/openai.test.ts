// The official OpenAI SDK where the upstream does what vendors do and the SDK does not expect: breaks, comments, other line
// ends, completions instead of streams. The everyday of it is in test/e2e/openai.test.ts.
import OpenAI, { type ClientOptions } from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import {
  chunk,
  chunkOf,
  contentChunk,
  DONE,
  defaultStream,
  finishChunk,
  frame,
  head,
  json,
  lastChunk,
  roleChunk,
  SSE_HEADERS,
  type Step,
  silence,
  sse,
  standardAnswer,
  toolChunk,
  upstreamError,
  usageChunk,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import {
  accessOf,
  BREAKS,
  completionWith,
  expectGivenUp,
  inStep,
  reasoningChunk,
  rejection,
  type Setting,
  startSetting,
  toolCompletion,
} from './setting.ts';

let setting: Setting;

beforeAll(async () => {
  setting = await startSetting({ config: { stream: { keepalive: '1s' } } });
});

beforeEach(() => setting.upstream.always(standardAnswer));

afterAll(() => setting?.close());

const HELLO = [{ role: 'user' as const, content: 'Say hello' }];

function connect(options: ClientOptions = {}): OpenAI {
  return new OpenAI({ baseURL: setting.baseURL, apiKey: setting.key, ...options });
}

type Extra = Omit<Partial<OpenAI.ChatCompletionCreateParamsStreaming>, 'stream'>;

function open(extra: Extra = {}, client = connect()) {
  return client.chat.completions.create({ model: 'scripted', messages: HELLO, ...extra, stream: true });
}

/** What a stream gave until it ended, or until it threw. */
async function collect(
  stream: AsyncIterable<OpenAI.ChatCompletionChunk>,
  onText?: (text: string) => void,
): Promise<{ text: string; chunks: OpenAI.ChatCompletionChunk[]; thrown: unknown }> {
  const chunks: OpenAI.ChatCompletionChunk[] = [];
  let text = '';
  let thrown: unknown;
  try {
    for await (const each of stream) {
      chunks.push(each);
      text += each.choices[0]?.delta.content ?? '';
      onText?.(text);
    }
  } catch (error) {
    thrown = error;
  }
  return { text, chunks, thrown };
}

/** The frame with the error, or the connection that ended too early if the reader fell behind: both are raised. */
function expectBroken(thrown: unknown): void {
  if (thrown instanceof OpenAI.APIError) expect(thrown.code).toBe('stream_incomplete');
  else expect(thrown).toMatchObject({ name: 'TypeError', message: 'terminated' });
}

describe('a stream that breaks raises', () => {
  test.each(BREAKS)('%s', async (_how, end) => {
    let read = '';
    const at = setting.answers(inStep(['Half', ' of'], (text) => read === text, ...end));
    const { text, thrown } = await collect(await open(), (all) => {
      read = all;
    });
    expect(text).toBe('Half of');
    expectBroken(thrown);
    expect(setting.upstream.requests.length - at).toBe(1);
  });

  test.each(BREAKS)('also for one who reads it only when it is over: %s', async (_how, end) => {
    const at = setting.answers([
      head(200, SSE_HEADERS),
      chunk(frame(contentChunk('Half of'))),
      // The head of the answer has to be there before the rest goes wrong.
      waitFor(() => isOpen),
      ...end,
    ]);
    let isOpen = false;
    const stream = await open();
    isOpen = true;
    const request = await setting.upstream.request(at);
    await accessOf(setting, request.header('x-request-id'));
    expectBroken((await collect(stream)).thrown);
  });

  test('in the helper for streams, for whoever waits for its end', async () => {
    let read = '';
    setting.answers(inStep(['Half of'], (text) => read === text, lastChunk()));
    const runner = connect().chat.completions.stream({ model: 'scripted', messages: HELLO });
    runner.on('content', (_delta, all) => {
      read = all;
    });
    const error = await rejection(runner.finalContent());
    expect(read).toBe('Half of');
    expect(error).toBeInstanceOf(OpenAI.OpenAIError);
  });

  test("with the upstream's error, also where the upstream then says [DONE]", async () => {
    let read = '';
    setting.answers(
      inStep(
        ['Half of'],
        (text) => read === text,
        chunk(frame(upstreamError('Out of memory', { type: 'InternalServerError', code: 500 })) + DONE),
        lastChunk(),
      ),
    );
    const { text, thrown } = await collect(await open(), (all) => {
      read = all;
    });
    expect(text).toBe('Half of');
    expect(thrown).toBeInstanceOf(OpenAI.APIError);
    expect(thrown).toMatchObject({ code: 500, type: 'InternalServerError' });
  });

  test('before its first output: it is a status, and the SDK may try again', async () => {
    const at = setting.answersOnce(
      sse([roleChunk(), upstreamError('Busy', { code: 503 })], { done: false }),
      sse(defaultStream()),
    );
    const { text, thrown } = await collect(await open({ model: setting.troubled() }));
    expect({ text, thrown }).toEqual({ text: 'Hello world', thrown: undefined });
    expect(setting.upstream.requests.length - at).toBe(2);
  });
});

describe('what is no part of the answer is not seen', () => {
  const chunks = [roleChunk(), contentChunk('Hello'), contentChunk(' world'), finishChunk()];

  test.each([
    [
      'comments between and inside frames',
      (each: object) => `: OPENROUTER PROCESSING\n\n: ping\n${frame(each)}`,
    ],
    ['CRLF', (each: object) => frame(each).replaceAll('\n', '\r\n')],
    ['CR', (each: object) => frame(each).replaceAll('\n', '\r')],
    [
      'fields without a space, and names of events',
      (each: object) => `event: message\n${frame(each)}`.replace('data: ', 'data:'),
    ],
    ['blank lines', (each: object) => `\n\n${frame(each)}\n\n`],
  ])('%s', async (_what, write) => {
    setting.answers(sse([...chunks.map(write), DONE], { done: false }));
    const { text, chunks: read, thrown } = await collect(await open());
    expect({ text, thrown }).toEqual({ text: 'Hello world', thrown: undefined });
    expect(read).toHaveLength(chunks.length);
    expect(read.at(-1)?.choices[0]?.finish_reason).toBe('stop');
  });

  test("the gateway's own comments while the upstream thinks", async () => {
    let wire = '';
    const tapped = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
      const response = await fetch(input, init);
      const decoder = new TextDecoder();
      const tap = new TransformStream<Uint8Array, Uint8Array>({
        transform: (bytes, controller) => {
          wire += decoder.decode(bytes, { stream: true });
          controller.enqueue(bytes);
        },
      });
      return new Response(response.body?.pipeThrough(tap) ?? null, response);
    };
    setting.answers([
      head(200, SSE_HEADERS),
      chunk(frame(contentChunk('Hello'))),
      waitFor(() => wire.includes('\n\n: ')),
      chunk(frame(contentChunk(' world')) + frame(finishChunk()) + DONE),
      lastChunk(),
    ]);
    const { text, chunks: read, thrown } = await collect(await open({}, connect({ fetch: tapped })));
    expect({ text, thrown }).toEqual({ text: 'Hello world', thrown: undefined });
    expect(read).toHaveLength(3);
  });

  test('an upstream that does not close after [DONE]', async () => {
    setting.answers([head(200, SSE_HEADERS), chunk([...chunks.map(frame), DONE].join('')), silence()]);
    const { text, thrown } = await collect(await open());
    expect({ text, thrown }).toEqual({ text: 'Hello world', thrown: undefined });
  });

  test('where the network cuts it: one byte at a time, and all at once', async () => {
    const pieces = Array.from({ length: 300 }, (_, index) => `${index} Grüße 🚀 `);
    const all = [roleChunk(), ...pieces.map((piece) => contentChunk(piece)), finishChunk()];
    const wire = all.map(frame).join('') + DONE;
    const whole: Step = async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(wire);
      await c.lastChunk();
    };
    const drip: Step = async (c) => {
      await c.head(200, { 'content-type': 'text/event-stream', connection: 'close' });
      await c.drip(wire.slice(0, 3_000));
      await c.send(wire.slice(3_000));
      c.close();
    };
    for (const script of [whole, drip]) {
      setting.answers(script);
      const { text, thrown } = await collect(await open());
      expect(thrown).toBeUndefined();
      expect(text).toBe(pieces.join(''));
    }
  });
});

describe('an upstream without streaming', () => {
  const whole = { ...completionWith({ content: 'All at once' }), system_fingerprint: 'fp_1' };

  test('is read as a stream, with its usage if that was asked for', async () => {
    setting.answers(json(200, whole));
    const plain = await collect(await open());
    expect({ text: plain.text, thrown: plain.thrown }).toEqual({ text: 'All at once', thrown: undefined });
    expect(plain.chunks.map((each) => each.choices[0]?.finish_reason)).toEqual([null, 'stop']);
    for (const each of plain.chunks) {
      expect(each).toMatchObject({
        object: 'chat.completion.chunk',
        model: 'scripted',
        system_fingerprint: 'fp_1',
      });
    }
    const asked = await collect(await open({ stream_options: { include_usage: true } }));
    expect(asked.chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 8 } });
  });

  test('is put together by the helper for streams, tools included', async () => {
    setting.answers(
      json(
        200,
        toolCompletion(
          { id: 'call_a', name: 'f', arguments: '{"n":1}' },
          { id: 'call_b', name: 'g', arguments: '{}' },
        ),
      ),
    );
    const runner = connect().chat.completions.stream({ model: 'scripted', messages: HELLO });
    const { choices } = await runner.finalChatCompletion();
    expect(choices[0]?.finish_reason).toBe('tool_calls');
    expect(choices[0]?.message.tool_calls).toMatchObject([
      { id: 'call_a', function: { name: 'f', arguments: '{"n":1}' } },
      { id: 'call_b', function: { name: 'g', arguments: '{}' } },
    ]);
  });

  test('that answers with an error raises it', async () => {
    setting.answers(json(200, upstreamError('Too long', { code: 'context_length_exceeded' })));
    const error = await rejection(open({ model: setting.troubled() }, connect({ maxRetries: 0 })));
    expect(error).toBeInstanceOf(OpenAI.APIError);
    expect(error).toMatchObject({ code: 'context_length_exceeded' });
  });
});

describe('what comes in pieces', () => {
  test('tool calls are put together by their index', async () => {
    setting.answers(
      sse([
        roleChunk(),
        toolChunk({ index: 0, id: 'call_a', name: 'f', arguments: '' }),
        toolChunk({ index: 1, id: 'call_b', name: 'g', arguments: '{"a":"ü' }),
        toolChunk({ index: 0, arguments: '{"n":' }),
        toolChunk({ index: 1, arguments: '🚀"}' }),
        toolChunk({ index: 0, arguments: '1}' }),
        finishChunk('tool_calls'),
        usageChunk(),
      ]),
    );
    const calls: { id?: string; name?: string; arguments: string }[] = [];
    const { chunks, thrown } = await collect(await open());
    for (const piece of chunks.flatMap((each) => each.choices[0]?.delta.tool_calls ?? [])) {
      calls[piece.index] ??= { arguments: '' };
      const call = calls[piece.index];
      if (call === undefined) continue;
      if (piece.id !== undefined) call.id = piece.id;
      if (piece.function?.name !== undefined) call.name = piece.function.name;
      call.arguments += piece.function?.arguments ?? '';
    }
    expect(thrown).toBeUndefined();
    expect(calls).toEqual([
      { id: 'call_a', name: 'f', arguments: '{"n":1}' },
      { id: 'call_b', name: 'g', arguments: '{"a":"ü🚀"}' },
    ]);
  });

  test('two choices, fields that the SDK does not know, and reasoning are as the upstream wrote them', async () => {
    const second = { ...chunkOf({}), choices: [{ index: 1, delta: { content: 'B' }, finish_reason: null }] };
    const odd = { ...contentChunk('A'), x_groq: { id: 'req_1' }, obfuscation: 'r4N7' };
    setting.answers(sse([roleChunk(), odd, second, reasoningChunk('hm'), finishChunk()]));
    const { chunks } = await collect(await open());
    expect(chunks[1]).toEqual({ ...odd, model: 'scripted' });
    expect(chunks[2]).toEqual({ ...second, model: 'scripted' });
    expect(chunks[3]).toEqual({ ...reasoningChunk('hm'), model: 'scripted' });
  });

  test('an object in the schema that was asked for', async () => {
    const Capital = z.object({ city: z.string() });
    setting.answers(json(200, completionWith({ content: '{"city":"Bern"}' })));
    const { choices } = await connect().chat.completions.parse({
      model: 'scripted',
      messages: HELLO,
      response_format: zodResponseFormat(Capital, 'capital'),
    });
    expect(choices[0]?.message.parsed).toEqual({ city: 'Bern' });
  });

  test('a request of megabytes arrives as it was sent', async () => {
    const url = `data:image/png;base64,${'iVBORw0K'.repeat(300_000)}`;
    const content = [{ type: 'image_url' as const, image_url: { url } }];
    const at = setting.upstream.requests.length;
    const { text } = await collect(await open({ messages: [{ role: 'user', content }] }));
    expect(text).toBe('Hello world');
    const { body } = await setting.upstream.request(at);
    const sent = { model: 'upstream-model', messages: [{ role: 'user', content }] };
    expect(body.toString().startsWith(JSON.stringify(sent).slice(0, -1))).toBe(true);
  });
});

describe('streams at the same time', () => {
  const COUNT = 20;

  test('each have their own answer', async () => {
    setting.answers(async (c) => {
      const [, name = ''] = /"content":"(number \d+)"/.exec(c.request.body.toString()) ?? [];
      await sse([roleChunk(), ...[...name].map((letter) => contentChunk(letter)), finishChunk()])(c);
    });
    const client = connect();
    const texts = await Promise.all(
      Array.from({ length: COUNT }, async (_, index) => {
        const messages = [{ role: 'user' as const, content: `number ${index}` }];
        return (await collect(await open({ messages }, client))).text;
      }),
    );
    expect(texts).toEqual(Array.from({ length: COUNT }, (_, index) => `number ${index}`));
  });

  test('each can be given up by its controller, and none of the upstream is left', async () => {
    const at = setting.answers([head(200, SSE_HEADERS), chunk(frame(contentChunk('Hello'))), silence()]);
    const client = connect();
    await Promise.all(
      Array.from({ length: COUNT }, async () => {
        const stream = await open({}, client);
        const { text, thrown } = await collect(stream, () => stream.controller.abort());
        // The SDK ends the loop of a stream that was given up, without an error.
        expect({ text, thrown }).toEqual({ text: 'Hello', thrown: undefined });
      }),
    );
    for (let index = at; index < at + COUNT; index += 1) await expectGivenUp(setting, index);
  });
});
