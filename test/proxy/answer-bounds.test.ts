// Answers over a bound of `max_answer`, and streams that were not asked for: billed once, refused once, with the setting to raise.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  completion,
  contentChunk,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  roleChunk,
  type Script,
  SSE_HEADERS,
  sse,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';

const MIB = 1024 * 1024;
let first: HostileUpstream;
let second: HostileUpstream;
let gateway: Gateway;
let before: number;

beforeAll(async () => {
  [first, second] = await Promise.all([HostileUpstream.start(), HostileUpstream.start()]);
  gateway = await startGateway({
    upstreams: { first: first.baseUrl, second: second.baseUrl },
    config: { max_answer: { frame: '64KiB', json: '1MiB', embeddings: '2MiB' } },
  });
});
beforeEach(() => {
  before = first.requests.length + second.requests.length;
});
afterAll(async () => {
  await gateway?.close();
  await Promise.all([first?.close(), second?.close()]);
});

const asked = (): number => first.requests.length + second.requests.length - before;

async function post(path: string, body: object, script: Script): Promise<RawResponse> {
  for (const each of [first, second]) each.always(script);
  using client = await gateway.connect();
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  return await client.ask({ target: `/v1/${path}`, headers, body: { model: 'test-model', ...body } });
}

const MESSAGES = { messages: [{ role: 'user', content: 'x' }] };
const vectors = (bytes: number) => {
  const one = `{"object":"embedding","embedding":[${'0.5,'.repeat(1000)}0.5]},`;
  const data = one.repeat(Math.ceil(bytes / one.length)).slice(0, -1);
  return `{"object":"list","data":[${data}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}`;
};

/** It was asked for once, no client repeats it, and the operator reads what to raise. */
async function expectRefused(answer: RawResponse, setting: string): Promise<void> {
  expect([answer.status, answer.header('x-should-retry'), asked()]).toEqual([406, 'false', 1]);
  expect(answer.json()).toMatchObject({ error: { code: 'upstream_unusable_response' } });
  expect(answer.text()).toContain(setting);
  expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'upstream_unusable_response' });
}

test.each([false, true])('a JSON answer (to a stream: %s) is relayed up to its bound', async (stream) => {
  const within = completion({ content: 'x'.repeat(MIB - 10_000) });
  const answer = await post('chat/completions', { ...MESSAGES, stream }, json(200, within));
  expect([answer.status, asked()]).toEqual([200, 1]);
  const over = completion({ content: 'x'.repeat(MIB) });
  before += 1;
  await expectRefused(
    await post('chat/completions', { ...MESSAGES, stream }, json(200, over)),
    'larger than 1MiB; the operator can raise max_answer.json.',
  );
});

test('so are embeddings, in the bound of their own', async () => {
  const ask = { input: 'x' };
  const within = await post('embeddings', ask, json(200, vectors(MIB + MIB / 2)));
  expect([within.status, within.complete, asked()]).toEqual([200, true, 1]);
  before += 1;
  await expectRefused(
    await post('embeddings', ask, json(200, vectors(3 * MIB))),
    'larger than 2MiB; the operator can raise max_answer.embeddings.',
  );
  // Of one that does not say how long it is, some was relayed when that shows.
  before += 1;
  const pieces = vectors(4 * MIB).match(/.{1,65536}/gs) ?? [];
  const steps = pieces.map((piece) => chunk(piece));
  const cut = await post('embeddings', ask, [
    head(200, { 'content-type': 'application/json', 'transfer-encoding': 'chunked' }),
    ...steps,
    lastChunk(),
  ]);
  expect([cut.status, cut.complete, asked()]).toEqual([200, false, 1]);
});

test('an event of a stream is relayed up to its bound', async () => {
  const stream = (bytes: number) => sse([roleChunk(), contentChunk('x'.repeat(bytes))]);
  const ask = { ...MESSAGES, stream: true };
  const within = await post('chat/completions', ask, stream(60_000));
  expect([within.status, within.complete, asked()]).toEqual([200, true, 1]);
  before += 1;
  await expectRefused(
    await post('chat/completions', ask, stream(70_000)),
    'a stream event that is larger than 64KiB; the operator can raise max_answer.frame.',
  );
});

test('behind output it ends the stream with an error that says the same', async () => {
  const script = sse([roleChunk(), contentChunk('Hello'), contentChunk('x'.repeat(70_000))]);
  const answer = await post('chat/completions', { ...MESSAGES, stream: true }, script);
  expect([answer.status, answer.complete, asked()]).toEqual([200, false, 1]);
  const last = answer.frames().at(-1) ?? '';
  expect(JSON.parse(last.replace('data: ', ''))).toMatchObject({
    error: { code: 'upstream_unusable_response', type: 'server_error' },
  });
  expect(last).toContain('max_answer.frame');
});

test('a stream that was not asked for is asked for once', async () => {
  await expectRefused(
    await post('chat/completions', MESSAGES, sse([roleChunk(), contentChunk('Hello')])),
    'a stream that was not requested',
  );
});

test.each([
  ['wrapped', '{"error":{"message":"slow down","code":422}}', 422],
  ['flat', '{"object":"error","message":"too long","code":400}', 400],
])('an error in such a stream (%s) is an error', async (_shape, data, status) => {
  const pieces = [': hello\n\n', `event: error\ndata: ${data.slice(0, 9)}`, `${data.slice(9)}\n\n`].map(
    (piece) => chunk(piece),
  );
  const answer = await post('chat/completions', MESSAGES, [head(200, SSE_HEADERS), ...pieces, lastChunk()]);
  expect([answer.status, answer.json()]).toMatchObject([
    status,
    { error: { message: JSON.parse(data).message ?? 'slow down' } },
  ]);
});

test('a label without a stream behind it is no answer, and the next target is asked', async () => {
  const answer = await post('chat/completions', MESSAGES, [
    head(200, SSE_HEADERS),
    chunk('hello\n\n'),
    chunk(frame(roleChunk())),
    lastChunk(),
  ]);
  expect([answer.status, asked()]).toEqual([502, 2]);
});
