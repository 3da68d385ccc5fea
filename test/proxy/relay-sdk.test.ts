// The official SDK on the other end: what it makes of whole, broken, converted and refused answers.
import OpenAI, { APIError } from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  completion,
  contentChunk,
  DONE,
  defaultStream,
  finishChunk,
  frame,
  HostileUpstream,
  json,
  roleChunk,
  type Script,
  SSE_HEADERS,
  sse,
  toolChunk,
  usageOf,
} from '../helpers/hostile-upstream.ts';

let upstream: HostileUpstream;
let gateway: Gateway;
let client: OpenAI;
const ASK = { model: 'test-model', messages: [{ role: 'user' as const, content: 'x' }] };

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key(), maxRetries: 0 });
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

/** The text of a stream, and the error that ended it. */
async function streamed(script: Script): Promise<{ text: string; finish: string | null; error: unknown }> {
  upstream.next(script);
  let text = '';
  let finish: string | null = null;
  try {
    const stream = await client.chat.completions.create({ ...ASK, stream: true });
    for await (const chunk of stream) {
      expect(chunk.model).toBe('test-model');
      text += chunk.choices[0]?.delta.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
    }
  } catch (error) {
    return { text, finish, error };
  }
  return { text, finish, error: undefined };
}

const then =
  (frames: readonly string[], how: 'reset' | 'close' | 'lastChunk'): Script =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    for (const each of frames) await c.chunk(each);
    await c.wait(30);
    await c[how]();
  };

describe('a stream', () => {
  test('that is whole', async () => {
    expect(await streamed(sse(defaultStream()))).toEqual({
      text: 'Hello world',
      finish: 'stop',
      error: undefined,
    });
    expect(await streamed(sse(defaultStream(), { done: false }))).toMatchObject({ error: undefined });
  });

  test.each(['reset', 'close', 'lastChunk'] as const)(
    'that breaks (%s) is an error with a code',
    async (how) => {
      const { text, error } = await streamed(then([frame(contentChunk('Hel'))], how));
      expect(text).toBe('Hel');
      expect(error).toBeInstanceOf(APIError);
      expect(error).toMatchObject({ code: 'stream_incomplete' });
    },
  );

  test('with an error of the upstream is that error', async () => {
    const event = 'data: {"error":{"message":"overloaded","type":"server_error","code":"busy"}}\n\n';
    expect((await streamed(then([frame(contentChunk('x')), event, DONE], 'lastChunk'))).error).toMatchObject({
      message: expect.stringContaining('overloaded'),
      code: 'busy',
    });
  });

  test('with lines that the SDK would stumble over', async () => {
    const frames = [
      'retry: 3000\n\n',
      'event: ping\n\n',
      `id: 1\n${frame(contentChunk('Hello'))}`,
      ': ping\n\n',
    ];
    const { text, error } = await streamed(then([...frames, frame(finishChunk()), DONE], 'lastChunk'));
    expect([text, error]).toEqual(['Hello', undefined]);
  });

  test('that was a completion', async () => {
    expect(await streamed(json(200, completion({ content: 'Hello world' })))).toEqual({
      text: 'Hello world',
      finish: 'stop',
      error: undefined,
    });
  });

  test('of tool calls, also out of a completion, comes together', async () => {
    const calls = [
      { id: 'a', type: 'function' as const, function: { name: 'f', arguments: '{"x":1}' } },
      { id: 'b', type: 'function' as const, function: { name: 'g', arguments: '{}' } },
    ];
    const whole = {
      id: 'x',
      object: 'chat.completion',
      created: 1,
      model: 'upstream-model',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: null, tool_calls: calls },
          finish_reason: 'tool_calls',
        },
      ],
      usage: usageOf(),
    };
    const parts = calls.flatMap(({ id, function: { name, arguments: text } }, index) => [
      toolChunk({ index, id, name, arguments: '' }),
      toolChunk({ index, arguments: text }),
    ]);
    for (const script of [json(200, whole), sse([roleChunk(), ...parts, finishChunk('tool_calls')])]) {
      upstream.next(script);
      const final = await client.chat.completions.stream(ASK).finalChatCompletion();
      expect(final.choices[0]?.message.tool_calls).toMatchObject(calls);
      expect(final.choices[0]?.finish_reason).toBe('tool_calls');
    }
  });
});

test('a refusal is the error class of its status, with the upstream’s text', async () => {
  for (const stream of [false, true]) {
    upstream.next(
      json(429, {
        error: { message: 'slow down', type: 'requests', param: null, code: 'rate_limit_exceeded' },
      }),
    );
    await expect(client.chat.completions.create({ ...ASK, stream })).rejects.toMatchObject({
      status: 429,
      code: 'rate_limit_exceeded',
      message: '429 slow down',
    });
  }
});

test('a flat error, which the SDK could not read, can be read', async () => {
  upstream.next(json(400, { object: 'error', message: 'context is too long', code: 400 }));
  await expect(client.chat.completions.create(ASK)).rejects.toMatchObject({
    status: 400,
    message: '400 context is too long',
  });
});

test('a completion is itself, with the name that was asked for', async () => {
  const answer = await client.chat.completions.create(ASK);
  expect([answer.model, answer.choices[0]?.message.content, answer.usage]).toMatchObject([
    'test-model',
    'Hello world',
    usageOf(),
  ]);
});
