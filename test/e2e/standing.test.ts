// What a holder meets whose tier or standing changes: the limits from the next request on, the answers that run, and what is
// still open to one who is suspended.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  lastChunk,
  type Script,
  SSE_HEADERS,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';
import { ask, bearer, codeOf, field, listModels, rotate, statusOf, textField } from './holder.ts';

const CHAT = chatRequest({ model: 'm', max_tokens: 10 });

let stack: AsyncDisposableStack;
let upstream: HostileUpstream;
let gateway: Gateway;
let isReleased: boolean;

beforeEach(async () => {
  stack = new AsyncDisposableStack();
  isReleased = false;
  upstream = stack.use(await HostileUpstream.start());
  gateway = stack.use(
    await startGateway({
      config: {
        upstreams: { up: { base_url: upstream.baseUrl } },
        models: { m: { targets: [{ upstream: 'up', model: 'm' }] } },
        passthrough: { upstream: 'up', paths: ['/v1/files', '/v1/vector_stores'] },
        tiers: { Free: { requests_per_minute: 4, concurrency: 2 }, Lite: {}, Pro: {} },
      },
    }),
  );
});
afterEach(() => stack.disposeAsync());

/** Goes on when the test says so. */
const held: Script = [
  head(200, SSE_HEADERS),
  chunk(frame(contentChunk('Begun'))),
  waitFor(() => isReleased),
  chunk(frame(contentChunk(' and ended'))),
  chunk(frame(finishChunk())),
  chunk(DONE),
  lastChunk(),
];

async function stream(key: string) {
  upstream.next(held);
  const client = stack.use(await gateway.open(chatRequest({ model: 'm', stream: true }), { key }));
  const response = await client.responseHead();
  await until(() => response.text().includes('Begun'), 'the first token');
  return response;
}

/** Support acts from a process of its own, and the gateway reads of it. */
async function desk(...words: string[]): Promise<void> {
  const { code, stderr } = await runCommand(['keys', ...words, '--config', gateway.configFile], {
    TEST_DIR: gateway.directory.path,
  });
  expect([code, stderr]).toEqual([0, '']);
}

const usage = (key: string) =>
  ask(gateway.url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });

test('a downgrade lets running answers end, counts them and all that was used, and forgets them when they end', async () => {
  // Of a tier without any limit, which is no reason not to count.
  const key = await gateway.issueKey('Pro');
  const running = [await stream(key), await stream(key), await stream(key)];
  await desk('tier', key.slice(0, 8), '--tier', 'Free');
  await until(async () => field((await usage(key)).json(), 'tier') === 'Free', 'the new tier');
  const refused = await gateway.chat(CHAT, { key });
  expect([refused.status, textField(refused.json(), 'error', 'message')]).toEqual([
    429,
    expect.stringMatching(/2 .*(at once|at the same time|concurren)/i),
  ]);
  isReleased = true;
  for (const response of running) {
    await response.ended;
    expect([response.complete, response.frames().at(-1)]).toEqual([true, 'data: [DONE]']);
    expect(await gateway.accessLine(response)).toMatchObject({ tier: 'Pro' });
  }
  // Three of the four requests of this minute are used, and no place is taken any more.
  expect((await gateway.chat(CHAT, { key })).status).toBe(200);
  const spent = await gateway.chat(CHAT, { key });
  expect([spent.status, spent.header('x-ratelimit-remaining-requests')]).toEqual([429, '0']);
  expect(await gateway.metric('tollgate_limit_leases')).toBe(0);
  await desk('tier', key.slice(0, 8), '--tier', 'Lite', '--reason', 'asked for');
  await until(async () => (await gateway.chat(CHAT, { key })).status === 200, 'the tier without limits');
});

test('a suspended holder reads why, keeps what runs, rotates, and is served again with the new key', async () => {
  const key = await gateway.issueKey('Pro');
  const running = await stream(key);
  await desk('suspend', key.slice(0, 8), '--reason', 'payment failed');
  await until(async () => (await statusOf(gateway.url, key)) === 403, 'the suspension');
  const before = upstream.requests.length;
  const refused = await gateway.chat(CHAT, { key });
  expect([refused.status, codeOf(refused), refused.header('x-should-retry')]).toEqual([
    403,
    'billing_not_active',
    'false',
  ]);
  expect(textField(refused.json(), 'error', 'message')).toMatch(/known.*suspended.*\/admin\/usage/);
  expect(await gateway.accessLine(refused)).toMatchObject({ outcome: 'billing_not_active', status: 403 });
  expect(upstream.requests.length).toBe(before);
  expect((await usage(key)).json()).toMatchObject({
    prefix: key.slice(0, 8),
    tier: 'Pro',
    standing: 'suspended',
  });

  const rotated = await rotate(gateway.url, key);
  expect(rotated.status).toBe(200);
  const next = textField(rotated.json(), 'key');
  expect([await statusOf(gateway.url, key), await statusOf(gateway.url, next)]).toEqual([401, 403]);
  isReleased = true;
  await running.ended;
  expect([running.complete, running.frames().at(-1)]).toEqual([true, 'data: [DONE]']);

  await desk('resume', next.slice(0, 8));
  await until(async () => (await statusOf(gateway.url, next)) === 200, 'the resumption');
  expect((await listModels(gateway.url, key)).status).toBe(401);
  expect((await usage(next)).json()).toMatchObject({ standing: 'good' });
});

test.each([
  [
    'the holder is suspended',
    '/v1/chat/completions',
    ['suspend', '--reason', 'unpaid'],
    403,
    'billing_not_active',
  ],
  ['the key is revoked', '/v1/chat/completions', ['revoke', '--reason', 'left'], 401, 'invalid_api_key'],
  ['the key is revoked', '/v1/vector_stores', ['revoke', '--reason', 'left'], 401, 'invalid_api_key'],
])(
  'while a body arrives %s, and it is rejected (%s)',
  async (_, path, [command = '', ...options], status, code) => {
    const key = await gateway.issueKey('Pro');
    const body = JSON.stringify(CHAT);
    using client = await gateway.connect();
    const head = `POST ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json`;
    await client.write(`${head}\r\ncontent-length: ${body.length}\r\nexpect: 100-continue\r\n\r\n`);
    await until(() => client.received.bytes.includes('100 Continue'), 'the check of the key');
    await client.write(body.slice(0, 20));
    await desk(command, key.slice(0, 8), ...options);
    await until(async () => (await statusOf(gateway.url, key)) === status, 'the change');
    await client.write(body.slice(20));
    const rejected = await client.response();
    expect([rejected.status, codeOf(rejected)]).toEqual([status, code]);
    expect(upstream.requests.length).toBe(0);
  },
);

/** A form with a file of this size behind its fields. */
function formOf(field: string, value: string, size: number): string {
  const part = (about: string, content: string) =>
    `--b\r\ncontent-disposition: form-data; ${about}\r\n\r\n${content}\r\n`;
  return `${part(`name="${field}"`, value)}${part('name="file"; filename="a.wav"', 'x'.repeat(size))}--b--\r\n`;
}

test.each([
  ['a form', '/v1/audio/transcriptions', formOf('model', 'm', 100), true],
  ['a form that is forwarded meanwhile', '/v1/audio/transcriptions', formOf('model', 'm', 3e6), true],
  ['the same without a length', '/v1/audio/transcriptions', formOf('model', 'm', 3e6), false],
  ['a file', '/v1/files', formOf('purpose', 'batch', 100_000), true],
  ['a file without a length', '/v1/files', formOf('purpose', 'batch', 100_000), false],
])(
  'while %s arrives the key is revoked, and the upstream gets no whole request',
  async (_, path, body, hasLength) => {
    const key = await gateway.issueKey('Pro');
    using client = await gateway.connect();
    const chunkOf = (text: string) => (hasLength ? text : `${text.length.toString(16)}\r\n${text}\r\n`);
    const framing = hasLength ? `content-length: ${body.length}` : 'transfer-encoding: chunked';
    await client.write(
      `POST ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: multipart/form-data; boundary=b\r\n${framing}\r\nexpect: 100-continue\r\n\r\n`,
    );
    await until(() => client.received.bytes.includes('100 Continue'), 'the check of the key');
    await client.write(chunkOf(body.slice(0, -20)));
    if (body.length > 10_000) await until(() => upstream.requests.length > 0, 'the beginning of the call');
    await desk('revoke', key.slice(0, 8), '--reason', 'left');
    await until(async () => (await statusOf(gateway.url, key)) === 401, 'the change');
    await client.write(`${chunkOf(body.slice(-20))}${hasLength ? '' : '0\r\n\r\n'}`);
    const rejected = await client.response();
    expect([rejected.status, codeOf(rejected)]).toEqual([401, 'invalid_api_key']);
    expect(upstream.requests.filter((request) => request.complete)).toEqual([]);
  },
);
