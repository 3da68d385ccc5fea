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
  sse,
} from '../helpers/hostile-upstream.ts';

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
const START = [roleChunk(OWN), contentChunk('Hello', OWN), finishChunk('stop', OWN)].map((each) =>
  frame(each),
);
const USAGE = '"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}';
const HEAD = '"id":"c","object":"chat.completion.chunk","created":1,"model":"test-model"';
const EMPTY_CHOICE = '[{"index":0,"delta":{},"finish_reason":null}]';
const NO_CHOICE = `"choices":${EMPTY_CHOICE}`;
const TIMINGS = '"timings":{"prompt_n":3,"predicted_per_second":51.20}';

/** What a client reads behind the start of the stream, and what was counted. */
async function relayed(last: string, ask: object = {}) {
  upstream.next(sse([...START, last]));
  const answer = await gateway.chat(chatRequest({ stream: true, ...ask }));
  expect(answer.complete).toBe(true);
  const { prompt_tokens, completion_tokens } = await gateway.accessLine(answer);
  expect([prompt_tokens, completion_tokens]).toEqual([3, 5]);
  const text = answer.text();
  expect(text.startsWith(START.join('')) && text.endsWith(DONE)).toBe(true);
  return text.slice(START.join('').length, -DONE.length);
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
      'what every chunk has',
      `${HEAD},"service_tier":"default","system_fingerprint":"fp","obfuscation":"x","choices":[],${USAGE}`,
    ],
    ['members that are empty', `${HEAD},"citations":[],"timings":null,"choices":[],${USAGE}`],
  ])('with %s is hidden', async (_name, members) => {
    expect(await relayed(line(members))).toBe('');
  });

  test.each([
    ['first', `${USAGE},${HEAD},"choices":[],${TIMINGS}`, `${HEAD},${NO_CHOICE},${TIMINGS}`],
    ['in the middle', `${HEAD},"choices":[],${USAGE},${TIMINGS}`, `${HEAD},${NO_CHOICE},${TIMINGS}`],
    ['last', `${HEAD},"choices":[], ${TIMINGS} , ${USAGE} `, `${HEAD},${NO_CHOICE}, ${TIMINGS}  `],
    ['with no choices', `${HEAD},${USAGE},${TIMINGS}`, `${HEAD},${NO_CHOICE},${TIMINGS}`],
    [
      'with null for choices',
      `${HEAD},"choices": null,${USAGE},${TIMINGS}`,
      `${HEAD},"choices": ${EMPTY_CHOICE},${TIMINGS}`,
    ],
    [
      'of completions',
      `"id":"c","object": "text_completion","choices":[ ],${USAGE},${TIMINGS}`,
      `"id":"c","object": "text_completion","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null}],${TIMINGS}`,
    ],
    [
      'with an empty delta',
      `${HEAD},"choices":[{"index":0,"delta":{}}],${USAGE},${TIMINGS}`,
      `${HEAD},"choices":[{"index":0,"delta":{}}],${TIMINGS}`,
    ],
  ])('(%s) gives up its usage alone where there is more in it', async (_name, members, rest) => {
    expect(await relayed(line(members))).toBe(line(rest));
  });

  test('loses its usage and keeps its output, on lines of its own and under an alias', async () => {
    const choices = '"choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"stop"}]';
    const sent = `id: 7\r\ndata: {"model":"upstream-model",${choices},${USAGE}}\r\n\r\n`;
    expect(await relayed(sent)).toBe(`data: {"model":"test-model",${choices}}\r\n\r\n`);
  });

  test('that runs along with the output is hidden in each chunk', async () => {
    const running = (n: number, text: string) =>
      `"choices":[{"index":0,"delta":{"content":"${text}"}}],"usage":{"prompt_tokens":3,"completion_tokens":${n}}`;
    const sent = [1, 2, 5].map((n) => line(running(n, 'x'))).join('');
    expect(await relayed(sent)).toBe(line('"choices":[{"index":0,"delta":{"content":"x"}}]').repeat(3));
  });

  test('leaves what the SDK can read', async () => {
    upstream.next(sse([...START, line(`${HEAD},${USAGE},${TIMINGS}`)]));
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key() });
    const stream = client.chat.completions.stream({
      model: 'test-model',
      messages: [{ role: 'user', content: 'x' }],
    });
    const seen: string[] = [];
    stream.on('chunk', (chunk) => seen.push(Object.keys(chunk).join()));
    expect(await stream.finalContent()).toBe('Hello');
    expect(seen.at(-1)).toContain('timings');
    expect(seen.join()).not.toContain('usage');
  });

  test('leaves a choice in each chunk for a client that reads the first one without a look', async () => {
    upstream.next(sse([...START, line(`${HEAD},"choices":[],${USAGE},${TIMINGS}`)]));
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key() });
    const stream = await client.chat.completions.create({
      model: 'test-model',
      messages: [{ role: 'user', content: 'x' }],
      stream: true,
    });
    let content = '';
    for await (const { choices } of stream) {
      const [choice] = choices;
      if (choice === undefined) throw new Error('a chunk has no choice');
      content += choice.delta.content ?? '';
    }
    expect(content).toBe('Hello');
  });
});

test.each([
  ['with timings', `${HEAD},"choices":[],${USAGE},${TIMINGS}`],
  ['with an empty delta', `${HEAD},"choices":[{"index":0,"delta":{}}],${USAGE}`],
  ['without choices', `${HEAD},${USAGE}`],
])('a chunk of usage that the client asked for comes as it was sent, %s', async (_name, members) => {
  const sent = line(members);
  expect(await relayed(sent, { stream_options: { include_usage: true } })).toBe(sent);
});
