// The built-in echo model: that it speaks OpenAI's format exactly, and that it is a well-behaved transport.
import { describe, expect, test } from 'vitest';
import type { GatewayError } from '../../src/errors.ts';
import { EchoTransport } from '../../src/upstream/echo/echo.ts';
import type { Call, Delivery, ResponseHeaders } from '../../src/upstream/transport.ts';
import { pause, until, within } from '../helpers/wait.ts';

interface Heard {
  readonly events: string[];
  readonly chunks: string[];
  status: number;
  headers: ResponseHeaders;
  error: GatewayError | undefined;
  delivery: Delivery | undefined;
  readonly over: Promise<void>;
  readonly call: Call;
}

function ask(body: unknown, echo = new EchoTransport({ delay: 0 }), onData?: (call: Call) => void): Heard {
  const over = Promise.withResolvers<void>();
  const events: string[] = [];
  const chunks: string[] = [];
  const call = echo.send(
    {
      path: '/chat/completions',
      headers: {},
      body: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
    },
    {
      onSent() {
        events.push('sent');
      },
      onHead(status, headers) {
        events.push('head');
        heard.status = status;
        heard.headers = headers;
      },
      onData(bytes) {
        events.push('data');
        chunks.push(bytes.toString());
        onData?.(heard.call);
      },
      onEnd() {
        events.push('end');
        over.resolve();
      },
      onError(error, delivery) {
        events.push('error');
        heard.error = error;
        heard.delivery = delivery;
        over.resolve();
      },
    },
  );
  const heard: Heard = {
    events,
    chunks,
    status: 0,
    headers: {},
    error: undefined,
    delivery: undefined,
    over: over.promise,
    call,
  };
  return heard;
}

async function askToEnd(body: unknown): Promise<Heard> {
  const heard = ask(body);
  await within(heard.over, 'the end of the answer');
  return heard;
}

const user = (content: unknown): object => ({ role: 'user', content });
const hello = { model: 'echo', messages: [user('hello there')] };

interface Chunk {
  readonly id: string;
  readonly object: string;
  readonly model: string;
  readonly created: number;
  readonly choices: {
    index: number;
    delta: { role?: string; content?: string };
    finish_reason: string | null;
  }[];
  readonly usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
}

function parseFrames(chunks: readonly string[]): Chunk[] {
  expect(chunks.at(-1)).toBe('data: [DONE]\n\n');
  return chunks.slice(0, -1).map((text) => {
    expect(text).toMatch(/^data: \{.*\}\n\n$/);
    return JSON.parse(text.slice('data: '.length));
  });
}

describe('a completion', () => {
  test('repeats the last user message, with usage that adds up', async () => {
    const heard = await askToEnd({
      model: 'demo/echo',
      messages: [
        { role: 'system', content: 'be brief' },
        user('first'),
        user('last words'),
        { role: 'assistant', content: 'x' },
      ],
    });
    expect(heard.status).toBe(200);
    expect(heard.events).toEqual(['head', 'data', 'end']);
    expect(heard.headers).toEqual({
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(heard.chunks.join(''))),
    });
    const body = JSON.parse(heard.chunks.join(''));
    expect(body).toMatchObject({
      object: 'chat.completion',
      model: 'demo/echo',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'You said: last words', refusal: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
    });
    expect(body.id).toMatch(/^chatcmpl-[0-9a-f]{24}$/);
    expect(body.usage.prompt_tokens).toBeGreaterThan(4);
    expect(body.usage.completion_tokens).toBe(4);
    expect(body.usage.total_tokens).toBe(body.usage.prompt_tokens + body.usage.completion_tokens);
  });

  test('reads content in parts and leaves out what is not text', async () => {
    const content = [
      { type: 'text', text: 'look at ' },
      { type: 'image_url', image_url: { url: 'data:,' } },
      { type: 'text', text: 'this' },
    ];
    const heard = await askToEnd({ model: 'echo', messages: [user(content)] });
    expect(heard.chunks.join('')).toContain('You said: look at this');
  });

  test('answers without a user message', async () => {
    const heard = await askToEnd({ model: 'echo', messages: [{ role: 'system', content: 'x' }] });
    expect(JSON.parse(heard.chunks.join('')).choices[0].message.content).not.toBe('');
  });

  test.each(['max_tokens', 'max_completion_tokens'])(
    'stops at %s with finish_reason length',
    async (name) => {
      const heard = await askToEnd({ ...hello, [name]: 3 });
      const body = JSON.parse(heard.chunks.join(''));
      expect(body.choices[0]).toMatchObject({
        message: { content: 'You said: hello' },
        finish_reason: 'length',
      });
      expect(body.usage.completion_tokens).toBe(3);
    },
  );

  test('has a bounded length', async () => {
    const heard = await askToEnd({ model: 'echo', messages: [user('😀'.repeat(100_000))] });
    const body = JSON.parse(heard.chunks.join(''));
    expect(body.choices[0].finish_reason).toBe('length');
    expect(body.choices[0].message.content).toMatch(/^You said: (😀)+$/u);
    expect(body.usage.completion_tokens).toBe(2_000);
  });
});

describe('a stream', () => {
  test('is role, words, finish and [DONE], a frame each, without a usage key', async () => {
    const heard = await askToEnd({ ...hello, stream: true });
    expect(heard.status).toBe(200);
    expect(heard.headers).toEqual({ 'content-type': 'text/event-stream; charset=utf-8' });
    const frames = parseFrames(heard.chunks);
    expect(frames.map((frame) => frame.choices[0]?.delta)).toEqual([
      { role: 'assistant', content: '', refusal: null },
      { content: 'You' },
      { content: ' said:' },
      { content: ' hello' },
      { content: ' there' },
      {},
    ]);
    expect(frames.map((frame) => frame.choices[0]?.finish_reason)).toEqual([
      null,
      null,
      null,
      null,
      null,
      'stop',
    ]);
    expect(frames.every((frame) => !('usage' in frame))).toBe(true);
    expect(
      new Set(frames.map((frame) => `${frame.id} ${frame.object} ${frame.model} ${frame.created}`)).size,
    ).toBe(1);
    const now = Date.now() / 1000;
    expect([now - 3600 < Number(frames[0]?.created), Number(frames[0]?.created) <= now]).toEqual([
      true,
      true,
    ]);
  });

  test('ends with a usage chunk without choices when include_usage asks for it', async () => {
    const heard = await askToEnd({ ...hello, stream: true, stream_options: { include_usage: true } });
    const frames = parseFrames(heard.chunks);
    const last = frames.pop();
    expect(last?.choices).toEqual([]);
    expect(last?.usage).toMatchObject({ completion_tokens: 4 });
    expect(frames.every((frame) => frame.usage === null)).toBe(true);
  });

  test('streams the same words as the completion holds', async () => {
    const messages = [user(' spaces  and\nlines and averyveryverylongword ')];
    const whole = await askToEnd({ model: 'echo', messages });
    const streamed = await askToEnd({ model: 'echo', messages, stream: true });
    const words = parseFrames(streamed.chunks).map((frame) => frame.choices[0]?.delta.content ?? '');
    expect(words.join('')).toBe(JSON.parse(whole.chunks.join('')).choices[0].message.content);
  });

  test('never splits a character', async () => {
    const heard = await askToEnd({ model: 'echo', messages: [user(`x${'😀'.repeat(50)}`)], stream: true });
    const words = parseFrames(heard.chunks).map((frame) => frame.choices[0]?.delta.content ?? '');
    expect(words.filter((word) => !/^\P{Cs}*$/u.test(word))).toEqual([]);
    expect(words.join('')).toBe(`You said: x${'😀'.repeat(50)}`);
  });

  test('delays each word', async () => {
    const started = performance.now();
    const heard = ask({ ...hello, stream: true }, new EchoTransport({ delay: 15 }));
    await within(heard.over, 'the end of the answer');
    // Six chunks and [DONE], 15 ms each; timers may be a millisecond early.
    expect(performance.now() - started).toBeGreaterThan(7 * 14);
  });
});

describe('a request that a vendor would reject', () => {
  test.each([
    ['not JSON', '{', null, null],
    ['not an object', '[]', null, null],
    ['no model', { messages: [user('x')] }, 'model', null],
    ['no messages', { model: 'echo' }, 'messages', 'missing_required_parameter'],
    ['messages of a wrong type', { model: 'echo', messages: 'x' }, 'messages', 'invalid_type'],
    ['no message', { model: 'echo', messages: [] }, 'messages', 'empty_array'],
    ['a message that is none', { model: 'echo', messages: [1] }, 'messages[0]', 'invalid_type'],
    [
      'content of a wrong type',
      { model: 'echo', messages: [user('x'), user(5)] },
      'messages[1].content',
      'invalid_type',
    ],
    ['max_tokens of a wrong type', { ...hello, max_tokens: '5' }, 'max_tokens', 'invalid_type'],
    ['max_tokens of 0', { ...hello, max_tokens: 0 }, 'max_tokens', 'integer_below_min_value'],
  ])('%s: 400 in the shape of OpenAI', async (_name, body, param, code) => {
    const heard = await askToEnd(body);
    expect(heard.status).toBe(400);
    expect(heard.headers['content-type']).toBe('application/json');
    expect(JSON.parse(heard.chunks.join(''))).toEqual({
      error: { message: expect.stringMatching(/\S/), type: 'invalid_request_error', param, code },
    });
  });

  test('null counts as absent', async () => {
    const heard = await askToEnd({ ...hello, max_tokens: null, stream: null, stream_options: null });
    expect(heard.status).toBe(200);
  });
});

describe('as a transport', () => {
  test('it calls no sink method before send returns', async () => {
    const heard = ask(hello);
    expect(heard.events).toEqual([]);
    await within(heard.over, 'the end of the answer');
  });

  test('nothing arrives while paused, and nothing is lost', async () => {
    const heard = ask({ ...hello, stream: true }, undefined, (call) => call.pause());
    await until(() => heard.chunks.length === 1, 'the first chunk');
    await pause(50);
    expect(heard.chunks.length).toBe(1);
    while (!heard.events.includes('end')) {
      heard.call.resume();
      await pause(2);
    }
    expect(parseFrames(heard.chunks).length).toBe(6);
  });

  test.each([
    ['every', 7],
    ['the first', 1],
  ])('pausing and resuming inside %s sink call repeats nothing', async (_name, times) => {
    let left = times;
    const heard = ask({ ...hello, stream: true }, undefined, (call) => {
      left -= 1;
      if (left < 0) return;
      call.pause();
      call.resume();
      call.resume();
    });
    await within(heard.over, 'the end of the answer');
    await pause(30);
    expect(heard.events).toEqual(['head', ...Array.from({ length: 7 }, () => 'data'), 'end']);
  });

  test('a pause holds after an immediate resume', async () => {
    const heard = ask({ ...hello, stream: true }, undefined, (call) => {
      call.pause();
      call.resume();
      queueMicrotask(() => call.pause());
    });
    await until(() => heard.chunks.length === 1, 'the first chunk');
    await pause(30);
    expect(heard.chunks.length).toBe(1);
  });

  test('resuming after an abort has no effect', async () => {
    const heard = ask({ ...hello, stream: true }, undefined, (call) => {
      call.pause();
      call.abort();
      call.resume();
    });
    await until(() => heard.chunks.length === 1, 'the first chunk');
    await pause(30);
    expect(heard.events).toEqual(['head', 'data']);
  });

  test('nothing arrives after abort, and no timer is left', async () => {
    const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    const before = timers();
    const heard = ask({ ...hello, stream: true }, new EchoTransport({ delay: 60_000 }));
    await until(() => heard.events.length === 1, 'the head');
    heard.call.abort();
    heard.call.abort();
    heard.call.resume();
    expect(timers()).toBeLessThanOrEqual(before);
    await pause(30);
    expect(heard.events).toEqual(['head']);
  });

  test('an abort inside a sink call ends the calls', async () => {
    const heard = ask({ ...hello, stream: true }, undefined, (call) => call.abort());
    await until(() => heard.chunks.length === 1, 'the first chunk');
    await pause(30);
    expect(heard.events).toEqual(['head', 'data']);
  });

  test('closing it aborts running requests and rejects later ones', async () => {
    const echo = new EchoTransport({ delay: 20 });
    const running = ask({ ...hello, stream: true }, echo);
    await until(() => running.events.length > 0, 'the head');
    await echo.close();
    const before = [...running.events];
    const late = ask(hello, echo);
    expect(late.events).toEqual([]);
    await within(late.over, 'the error');
    expect(late.error?.code).toBe('upstream_unreachable');
    expect(late.delivery).toBe('not_sent');
    await pause(100);
    expect(running.events).toEqual(before);
  });
});
