// Usage in a stream whose client did not ask for it, in the shapes that vendors send: it is counted and not shown, and what else is in
// its chunk is not lost.
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  roleChunk,
  SSE_HEADERS,
  sse,
} from '../helpers/hostile-upstream.ts';
import { RawClient, type RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
});
afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

const OWN = { model: 'test-model' };
const START = [roleChunk(OWN), contentChunk('Hello', OWN)].map((each) => frame(each)).join('');
const FINISH = frame(finishChunk('stop', OWN));
const USAGE = '"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}';
const HEAD = '"id":"c","object":"chat.completion.chunk","created":1,"model":"test-model"';
const TIMINGS = '"timings":{"prompt_n":3,"predicted_per_second":51.20}';

/** What a client reads from the finish reason on, and what was counted. */
async function relayed(last: string, ask: object = {}, finish: string = FINISH) {
  upstream.next(sse([START, finish, last].filter((each) => each !== '')));
  const answer = await gateway.chat(chatRequest({ stream: true, ...ask }));
  return await readEnd(answer);
}

async function readEnd(answer: RawResponse) {
  expect(answer.complete).toBe(true);
  const { prompt_tokens, completion_tokens } = await gateway.accessLine(answer);
  expect([prompt_tokens, completion_tokens]).toEqual([3, 5]);
  const text = answer.text();
  expect(text.startsWith(START) && text.endsWith(DONE)).toBe(true);
  return text.slice(START.length, -DONE.length);
}

/** The frame with members at the end of its object. */
function extended(sent: string, members: string) {
  const brace = sent.lastIndexOf('}');
  return `${sent.slice(0, brace)},${members}${sent.slice(brace)}`;
}

const line = (members: string) => `data: {${members}}\n\n`;

describe('a chunk of usage that the client did not ask for', () => {
  test.each([
    ['no choices in it', `${HEAD},"choices":[],${USAGE}`],
    ['what was asked for in it', `${HEAD},"choices":[],"stream_options":{"include_usage":true},${USAGE}`],
    ['no list of choices', `${HEAD},${USAGE}`],
    ['null for choices', `${HEAD},"choices":null,${USAGE}`],
    ['an empty delta', `${HEAD},"choices":[{"index":0,"delta":{}}],${USAGE}`],
    [
      'an empty delta and nulls',
      `${HEAD},"choices":[{"index":0,"delta":{"content":null},"finish_reason":null,"logprobs":null}],${USAGE}`,
    ],
    ['an empty text', `${HEAD},"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}],${USAGE}`],
    [
      'the role again',
      `${HEAD},"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],${USAGE}`,
    ],
    ['what every chunk has', `${HEAD},"system_fingerprint":"fp","obfuscation":"x","choices":[],${USAGE}`],
    ['members that are empty', `${HEAD},"citations":[],"timings":null,"choices":[],${USAGE}`],
  ])('with %s is hidden', async (_name, members) => {
    expect(await relayed(line(members))).toBe(FINISH);
  });

  test.each([
    ['first', `${USAGE},${HEAD},"choices":[],${TIMINGS}`, TIMINGS],
    ['in the middle', `${HEAD},"choices":[],${USAGE},${TIMINGS}`, TIMINGS],
    ['last', `${HEAD},"choices":[], ${TIMINGS} , ${USAGE} `, TIMINGS],
    ['twice', `${USAGE},${TIMINGS},${USAGE}`, TIMINGS],
    ['with no choices', `${HEAD},${USAGE},${TIMINGS}`, TIMINGS],
    ['with an empty delta', `${HEAD},"choices":[{"index":0,"delta":{}}],${USAGE},${TIMINGS}`, TIMINGS],
    [
      'with members of several vendors',
      `${HEAD},"choices":[],"service_tier":"default","x_groq" : {"id":"r"},${USAGE},"citations":[ "a", 1.0e2]`,
      '"service_tier":"default","x_groq" : {"id":"r"},"citations":[ "a", 1.0e2]',
    ],
    ['with a member twice', `${HEAD},${USAGE},"timings":1,"tim\\u0069ngs":2`, '"tim\\u0069ngs":2'],
  ])('(%s) gives its other members to the chunk with the finish reason', async (_name, members, rest) => {
    expect(await relayed(line(members))).toBe(extended(FINISH, rest));
  });

  test.each([
    [
      'has them already',
      `data: {${HEAD},"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"tim\\u0069ngs":1}\n\n`,
      '',
    ],
    ['calls a tool', frame(finishChunk('tool_calls', OWN)), TIMINGS],
    [
      'has the last output',
      `data: {"choices":[{"delta":{"content":"!"},"finish_reason":"length"}]}\n\n`,
      TIMINGS,
    ],
    [
      'has zeros for usage',
      `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n`,
      TIMINGS,
      ',"usage":{"total_tokens":0}',
    ],
    [
      'is an event of several lines',
      `event: x\r\ndata: {"choices":[{"finish_reason":"stop"}]\r\ndata:}\r\n: end\r\n\r\n`,
      TIMINGS,
    ],
  ])('leaves a chunk with the finish reason that %s valid', async (_name, finish, rest, zeros = '') => {
    const read = await relayed(
      line(`${HEAD},"choices":[],${USAGE},${TIMINGS}`),
      {},
      zeros === '' ? finish : finish.replace(/\}\n\n$/, `${zeros}}\n\n`),
    );
    expect(read).toBe(rest === '' ? finish : extended(finish, rest));
  });

  test('is merged into the last finish reason of several choices', async () => {
    const choice = (index: number, more: string) => line(`"choices":[{"index":${index},${more}}]`);
    const first = [choice(0, '"delta":{},"finish_reason":"stop"'), choice(1, '"delta":{"content":"x"}')].join(
      '',
    );
    const last = choice(1, '"delta":{},"finish_reason":"length"');
    const usage = line(`"choices":[],${USAGE},${TIMINGS}`);
    expect(await relayed(last + usage, { n: 2 }, first)).toBe(first + extended(last, TIMINGS));
  });

  test('is merged under an alias and behind comments, events and lines that end here', async () => {
    const finish = '"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]';
    const between = ': waiting\n\nevent: ping\n\nid: 7\n: still\n\n';
    const usage = `event: usage\ndata: {"choices":[],${USAGE},${TIMINGS}}\n\n`;
    const read = await relayed(usage, {}, `id: 6\n${line(`"model":"upstream-model",${finish}`)}${between}`);
    expect(read).toBe(`${line(`"model":"test-model",${finish},${TIMINGS}`)}: waiting\n\n: still\n\n`);
  });

  test('is merged in completions', async () => {
    const chunk = (choices: string, more = '') =>
      line(`"object":"text_completion","choices":${choices}${more}`);
    const text = chunk('[{"index":0,"text":"Hello","finish_reason":null}]');
    const finish = chunk('[{"index":0,"text":"","finish_reason":"stop"}]');
    upstream.next(sse([text, finish, chunk('[]', `,${USAGE},${TIMINGS}`)]));
    using client = await RawClient.connect(gateway.url);
    const answer = await client.ask({
      target: '/v1/completions',
      headers: { authorization: `Bearer ${await gateway.key()}` },
      body: { model: 'test-model', prompt: 'x', stream: true },
    });
    expect(answer.text()).toBe(text + extended(finish, TIMINGS) + DONE);
  });

  test('loses its usage and keeps its output, on lines of its own and under an alias', async () => {
    const choices = '"choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"stop"}]';
    const sent = `id: 7\r\ndata: {"model":"upstream-model",${choices},${USAGE}}\r\n\r\n`;
    expect(await relayed('', {}, sent)).toBe(`data: {"model":"test-model",${choices}}\r\n\r\n`);
  });

  test('that runs along with the output is hidden in each chunk', async () => {
    const running = (n: number, text: string) =>
      `"choices":[{"index":0,"delta":{"content":"${text}"}}],"usage":{"prompt_tokens":3,"completion_tokens":${n}}`;
    const sent = [1, 2, 5].map((n) => line(running(n, 'x'))).join('');
    const read = await relayed(sent + FINISH, {}, '');
    expect(read).toBe(line('"choices":[{"index":0,"delta":{"content":"x"}}]').repeat(3) + FINISH);
  });

  test.each([
    ['at once', 0],
    ['after the chunk with the finish reason was sent', 300],
  ])('stays in an event with an error, %s', async (_when, pause) => {
    const error = line(
      `${HEAD},"error":{"code":400,"message":"Token limit reached"},"choices":[{"index":0,"delta":{"content":""}}],${USAGE}`,
    );
    upstream.next(sse([START, FINISH, error], { pause }));
    const answer = await gateway.chat(chatRequest({ stream: true }));
    expect(await readEnd(answer)).toBe(FINISH + error);
    expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'upstream_error' });
  });

  test('leaves what the SDK can read', async () => {
    upstream.next(sse([START, FINISH, line(`${HEAD},${USAGE},${TIMINGS}`)]));
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key() });
    const stream = client.chat.completions.stream({
      model: 'test-model',
      messages: [{ role: 'user', content: 'x' }],
    });
    const seen: string[] = [];
    stream.on('chunk', (chunk) => {
      // The usual loop does not check that there is a choice.
      seen.push(`${chunk.choices.map(({ finish_reason }) => finish_reason)}: ${Object.keys(chunk)}`);
      expect(chunk.choices).toHaveLength(1);
    });
    expect(await stream.finalContent()).toBe('Hello');
    expect(seen.at(-1)).toMatch(/^stop: .*timings/);
    expect(seen.join()).not.toContain('usage');
  });

  test.each([
    ['chat', `"object":"chat.completion.chunk"`, '"delta":{},"finish_reason":null'],
    ['completions', `"object": "text_completion"`, '"text":"","logprobs":null,"finish_reason":null'],
  ])('of %s keeps its other members where no finish reason came before it', async (_name, object, empty) => {
    const chunk = (choices: string) => line(`${object},"choices":${choices},${TIMINGS}`);
    const sent = (choices: string) => chunk(choices).replace(`,${TIMINGS}`, `,${USAGE},${TIMINGS}`);
    expect(await relayed(sent('[ ]') + FINISH, {}, '')).toBe(chunk(`[{"index":0,${empty}}]`) + FINISH);
    const missing = line(`${object},${USAGE},${TIMINGS}`);
    const own = line(`${object},"choices":[{"index":0,${empty}}],${TIMINGS}`);
    expect(await relayed(missing, {}, '')).toBe(own);
  });
});

describe('a finish reason whose usage does not follow at once', () => {
  const LATE = line(`${HEAD},"choices":[],${USAGE},${TIMINGS}`);

  test('arrives while the upstream is silent, and what comes with late usage is left out', async () => {
    const hasFinish = Promise.withResolvers<void>();
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(START + FINISH);
      await c.waitFor(hasFinish.promise);
      await c.chunk(LATE + DONE);
      await c.lastChunk();
    });
    using client = await gateway.open(chatRequest({ stream: true }));
    await client.readUntil(FINISH);
    hasFinish.resolve();
    expect(await readEnd(await client.response())).toBe(FINISH);
  });

  test('comes whole before the error when the upstream breaks', async () => {
    const isRead = Promise.withResolvers<void>();
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(START + FINISH);
      await c.waitFor(isRead.promise);
      c.reset();
    });
    using client = await gateway.open(chatRequest({ stream: true }));
    await client.readUntil('Hello');
    isRead.resolve();
    const answer = await client.response();
    expect(answer.complete).toBe(false);
    const text = answer.text();
    expect(text.startsWith(START + FINISH)).toBe(true);
    expect(text.slice((START + FINISH).length)).toMatch(/^data: \{"error":.*"stream_incomplete"\}\}\n\n$/);
  });

  test('comes where the body ends behind it, with usage whose blank line is missing', async () => {
    upstream.next(sse([START, FINISH.replaceAll('\n', '\r\n'), LATE.trimEnd()], { done: false }));
    const answer = await gateway.chat(chatRequest({ stream: true }));
    expect(answer.complete).toBe(true);
    expect(answer.text()).toBe(START + extended(FINISH, TIMINGS).replaceAll('\n', '\r\n'));
  });

  test('comes where the body ends behind it', async () => {
    upstream.next(sse([START, FINISH], { done: false }));
    const answer = await gateway.chat(chatRequest({ stream: true }));
    expect(answer.complete).toBe(true);
    expect(answer.text()).toBe(START + FINISH);
  });

  test('is not held for a client that asked for usage, nor where usage has come with it', async () => {
    const withUsage = (members: string) => line(`"choices":[{"delta":{},"finish_reason":"stop"}]${members}`);
    expect(await relayed(LATE, { stream_options: { include_usage: true } })).toBe(FINISH + LATE);
    expect(await relayed(LATE, {}, withUsage(`,${USAGE}`))).toBe(withUsage(''));
  });

  test('does not lose the usage of a client that leaves while it is held', async () => {
    const hasLeft = Promise.withResolvers<void>();
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(START + FINISH);
      await c.waitFor(hasLeft.promise);
      // The gateway has seen that the client left.
      await until(async () => (await gateway.metric('tollgate_usage_reads')) === 1, 'the reading for usage');
      await c.chunk(LATE + DONE);
      await c.lastChunk();
    });
    const client = await gateway.open(chatRequest({ stream: true }));
    await client.readUntil('Hello');
    client.destroy();
    hasLeft.resolve();
    const reported = 'tollgate_usage_reads_total{result="reported"}';
    await until(async () => (await gateway.metric(reported)) === 1, 'the counted usage');
  });
});

test.each([
  ['with timings', `${HEAD},"choices":[],${USAGE},${TIMINGS}`],
  ['with an empty delta', `${HEAD},"choices":[{"index":0,"delta":{}}],${USAGE}`],
  ['without choices', `${HEAD},${USAGE}`],
])('a chunk of usage that the client asked for comes as it was sent, %s', async (_name, members) => {
  const sent = line(members);
  expect(await relayed(sent, { stream_options: { include_usage: true } })).toBe(FINISH + sent);
});
