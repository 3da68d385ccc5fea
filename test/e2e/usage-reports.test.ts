// What counts where an upstream's report of usage is early, in parts, without some of its members or all zeros, and where output comes
// in forms that are easily missed.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunkOf,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  json,
  roleChunk,
  type Script,
  SSE_HEADERS,
  silence,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';
import { ask, bearer, field } from './holder.ts';

/** A thousand tokens. */
const TEXT = 'four'.repeat(1_000);
const CHAT = '/v1/chat/completions';
const MESSAGES = [{ role: 'user', content: 'hi' }];

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start(silence());
  gateway = await startGateway({
    config: {
      upstreams: { up: { base_url: upstream.baseUrl } },
      models: { m: { targets: [{ upstream: 'up', model: 'm' }] } },
      retry: { attempts: 1 },
    },
  });
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

interface Counted {
  readonly prompt: number;
  readonly completion: number;
  readonly estimated: number;
}

async function counted(key: string): Promise<Counted> {
  const samples = ['tollgate_requests_in_flight', 'tollgate_usage_reads'];
  await until(async () => {
    const values = await Promise.all(samples.map((sample) => gateway.metric(sample)));
    return values.every((value) => value === 0);
  }, 'nothing to be under way');
  const response = await ask(gateway.url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });
  const totals = field(response.json(), 'totals');
  return {
    prompt: Number(field(totals, 'prompt_tokens')),
    completion: Number(field(totals, 'completion_tokens')),
    estimated: Number(field(totals, 'estimated')),
  };
}

/** Reads the whole answer. */
async function whole(script: Script, body: object, target = CHAT): Promise<Counted> {
  const key = await gateway.issueKey('Pro');
  upstream.next(script);
  const answer = await ask(gateway.url, { target, headers: bearer(key), body: { model: 'm', ...body } });
  expect(answer.status).toBe(200);
  return counted(key);
}

/** Reads up to a mark, and leaves. */
async function left(script: Script, mark: string, body: object = {}): Promise<Counted> {
  const key = await gateway.issueKey('Pro');
  upstream.next(script);
  using client = await gateway.open({ model: 'm', stream: true, messages: MESSAGES, ...body }, { key });
  await client.readUntil(mark);
  client.destroy();
  return counted(key);
}

const stream =
  (...frames: readonly (object | string)[]): Script =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    for (const each of frames) await c.chunk(typeof each === 'string' ? each : frame(each));
    await c.lastChunk();
  };
/** Goes on behind the last frame that the client reads, and never ends. */
const endless =
  (...frames: readonly (object | string)[]): Script =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    const all = [...frames, contentChunk('MARK'), contentChunk('.')];
    for (const each of all) await c.chunk(typeof each === 'string' ? each : frame(each));
    await c.silence();
  };
const STREAM = { stream: true, messages: MESSAGES };
const completionWith = (usage: object | null) => ({
  id: 'x',
  object: 'chat.completion',
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: TEXT }, finish_reason: 'stop' }],
  usage,
});
const embeddingsWith = (usage: object) => ({
  object: 'list',
  model: 'm',
  data: [{ object: 'embedding', index: 0, embedding: [1] }],
  usage,
});
const tokens = (prompt: number, completion: number) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
});

describe('a whole stream counts', () => {
  test.each([
    ['its output behind a report of the input alone', tokens(5, 0), 5, 1_000],
    ['its output behind an early report', tokens(5, 1), 5, 1_001],
    ['its output beside zeros', tokens(0, 0), 18, 1_000],
  ])('%s', async (_, usage, prompt, completion) => {
    const script = stream({ ...roleChunk(), usage }, contentChunk(TEXT), finishChunk(), DONE);
    expect(await whole(script, STREAM)).toEqual({ prompt, completion, estimated: 1 });
  });

  test('a report in two parts as both of them', async () => {
    const script = stream(
      { ...roleChunk(), usage: tokens(500, 1) },
      contentChunk(TEXT),
      { ...finishChunk(), usage: { completion_tokens: 900 } },
      DONE,
    );
    expect(await whole(script, STREAM)).toEqual({ prompt: 500, completion: 900, estimated: 0 });
  });

  test.each([
    ['a total alone', { total_tokens: 3_000 }, 3_000, 0],
    ['what only the total has', { ...tokens(10, 20), total_tokens: 3_000 }, 10, 2_990],
    ['a prompt that only the total has', { completion_tokens: 20, total_tokens: 3_000 }, 2_980, 20],
  ])('%s', async (_, usage, prompt, completion) => {
    const script = stream(contentChunk(TEXT), finishChunk(), { ...usageChunk(), usage }, DONE);
    expect(await whole(script, STREAM)).toEqual({ prompt, completion, estimated: 0 });
  });
});

test.each([
  ['left out', { completion_tokens: 20 }],
  ['0, as for a prompt in the cache of the upstream', tokens(0, 20)],
  ['a text', { prompt_tokens: '7', completion_tokens: 20 }],
])('a prompt is estimated where its count is %s', async (_, usage) => {
  for (const isStream of [false, true]) {
    const script = isStream
      ? stream(contentChunk(TEXT), finishChunk(), { ...usageChunk(), usage }, DONE)
      : json(200, completionWith(usage));
    const counted = await whole(script, { stream: isStream, messages: MESSAGES });
    expect(counted).toMatchObject({ completion: 20, estimated: 1 });
    expect(counted.prompt).toBeGreaterThan(10);
  }
});

describe('a whole JSON answer counts', () => {
  test.each([
    ['zeros', tokens(0, 0)],
    ['nothing', {}],
    ['numbers in texts', { prompt_tokens: '1', completion_tokens: '2' }],
  ])('as estimated where its usage holds %s', async (_, usage) => {
    for (const isStream of [false, true]) {
      const body = { stream: isStream, messages: MESSAGES };
      const { prompt, completion, estimated } = await whole(json(200, completionWith(usage)), body);
      expect(prompt).toBeGreaterThan(10);
      expect(completion).toBeGreaterThanOrEqual(1_000);
      expect(estimated).toBe(1);
    }
  });

  test('its output where only the input is reported', async () => {
    const script = json(200, completionWith({ prompt_tokens: 12 }));
    const { prompt, completion } = await whole(script, { messages: MESSAGES });
    expect(prompt).toBe(12);
    expect(completion).toBeGreaterThanOrEqual(1_000);
  });

  test('images that are asked for where only the input is reported, or zeros', async () => {
    for (const usage of [{ input_tokens: 10 }, { input_tokens: 0, output_tokens: 0, total_tokens: 0 }]) {
      const script = json(200, { created: 1, data: [{ b64_json: 'AAAA' }], usage });
      const { completion } = await whole(script, { prompt: 'x', n: 3 }, '/v1/images/generations');
      expect(completion).toBe(3_000);
    }
  });

  test('embeddings by a total alone, and as estimated by zeros', async () => {
    const body = { input: TEXT };
    const script = json(200, embeddingsWith({ total_tokens: 900 }));
    expect(await whole(script, body, '/v1/embeddings')).toEqual({ prompt: 900, completion: 0, estimated: 0 });
    const { prompt } = await whole(json(200, embeddingsWith(tokens(0, 0))), body, '/v1/embeddings');
    expect(prompt).toBeGreaterThanOrEqual(1_000);
  });
});

describe('a stream that is left counts', () => {
  test('all answers of several, also where each chunk reports and one of them is whole', async () => {
    const second = (delta: object, usage: object, finishReason: string | null = null) => ({
      ...chunkOf(delta),
      choices: [{ index: 1, delta, finish_reason: finishReason }],
      usage,
    });
    const script: Script = async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(frame({ ...contentChunk(TEXT), usage: tokens(7, 1_000) }));
      await c.chunk(frame({ ...finishChunk(), usage: tokens(7, 1_000) }));
      await c.wait(100);
      for (const count of [2_000, 3_000]) await c.chunk(frame(second({ content: TEXT }, tokens(7, count))));
      await c.chunk(frame(second({}, tokens(7, 3_000), 'stop')));
      await c.lastChunk();
    };
    expect(await left(script, '"stop"', { n: 2 })).toEqual({ prompt: 7, completion: 3_000, estimated: 0 });
  });

  test('frames that are no JSON for this gateway', async () => {
    const odd = frame(contentChunk(TEXT)).replace('"logprobs":null', '"logprobs":NaN');
    const { completion } = await left(endless(odd), 'MARK');
    expect(completion).toBeGreaterThanOrEqual(1_000);
  });

  test.each(['data', 'result', 'url', 'audio'])('text in a member that is called %s', async (name) => {
    const prose = 'Four words, no image. '.repeat(182);
    const { completion } = await left(endless(chunkOf({ [name]: prose })), 'MARK');
    expect(completion).toBeGreaterThanOrEqual(1_000);
  });
});

describe('a JSON answer that is left before it came counts', () => {
  test.each([
    ['an answer for each prompt', { prompt: Array.from({ length: 100 }, () => 'a') }, 100],
    ['an answer for each list of tokens', { prompt: [[1, 2], [3]] }, 2],
    ['one answer for one list of tokens', { prompt: [1, 2, 3] }, 1],
    ['the answers that best_of asks for', { prompt: 'a', n: 2, best_of: 20 }, 20],
    ['answers of a large body', { prompt: ['a'.repeat(100_000), 'b'.repeat(100_000), 'c'] }, 3],
  ])('%s', async (_, body, answers) => {
    const key = await gateway.issueKey('Pro');
    const number = upstream.requests.length;
    using client = await gateway.connect();
    const order = { model: 'm', max_tokens: 100, ...body };
    await client.send({ target: '/v1/completions', headers: bearer(key), body: order });
    await upstream.request(number);
    client.destroy();
    const { completion } = await counted(key);
    expect(completion).toBe(100 * answers);
  });
});
