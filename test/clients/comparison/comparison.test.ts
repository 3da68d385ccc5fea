// The part of the comparison of clients that each run of the tests makes: the official SDK with and without the gateway,
// and the comparison itself. All of it is `npm run test:clients`.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { openaiOfTheCheckout } from './clients/node.ts';
import { type Difference, differences } from './compare.ts';
import { explanationOf } from './explained.ts';
import { comparePair } from './pair.ts';
import { aimock } from './servers/aimock.ts';
import { tableOf } from './table.ts';
import { Tap } from './tap.ts';
import { promptOf } from './types.ts';

const CLIENT = `${openaiOfTheCheckout.name} ${openaiOfTheCheckout.version}`;
const WHERE = { client: CLIENT, server: 'aimock' };

test('the official SDK hands the same to its user with and without the gateway', async () => {
  const server = await aimock.start();
  try {
    // The SDK waits before it asks again, so only one of the calls that it repeats is made.
    const slow = ['error.rate_limit', 'error.server.stream'];
    const calls = openaiOfTheCheckout.calls.filter((call) => !slow.includes(call));
    const pair = await comparePair(openaiOfTheCheckout, server, 'aimock', calls);
    expect(pair.calls.flatMap(({ unexplained }) => unexplained)).toEqual([]);
    expect(pair.skipped.map(({ call }) => call)).toEqual(Object.keys(server.lacks).sort(byOrder));
    expect(pair.calls.length).toBeGreaterThan(25);
  } finally {
    await server.close();
  }
});

const byOrder = (a: string, b: string): number =>
  openaiOfTheCheckout.calls.indexOf(a) - openaiOfTheCheckout.calls.indexOf(b);

/** The paths where two results of one call differ. */
const pathsOf = (direct: unknown, through: unknown): string[] =>
  differences({ call: 'chat', result: direct }, { call: 'chat', result: through }).map(({ path }) => path);

test('ids, times and fingerprints of two requests are no difference', () => {
  const chunk = (id: string, created: number, system_fingerprint: string, date: string) => ({
    chunks: [
      { id, created, system_fingerprint },
      { id, created: created + 1, system_fingerprint },
    ],
    _request_id: `req_${id}`,
    timestamp: date,
  });
  expect(
    pathsOf(
      chunk('chatcmpl-1', 1_800_000_000, 'fp_1', '2027-01-15T08:00:00.000Z'),
      chunk('chatcmpl-2', 1_800_000_007, 'fp_2', '2027-01-15T08:00:07.000Z'),
    ),
  ).toEqual([]);
});

test('ids correspond one to one, also where they are names of fields', () => {
  const calls = (first: string, second: string) => ({
    items: { [first]: 'fc-x', [second]: 'fc-y' },
    tool_calls: [{ id: first }, { id: second }],
    results: [{ tool_call_id: first }],
  });
  expect(pathsOf(calls('call_a', 'call_b'), calls('call_c', 'call_d'))).toEqual([]);
  const swapped = { ...calls('call_c', 'call_d'), results: [{ tool_call_id: 'call_d' }] };
  expect(pathsOf(calls('call_a', 'call_b'), swapped)).toEqual(['result.results[0].tool_call_id']);
  expect(pathsOf([{ id: 'a' }, { id: 'a' }], [{ id: 'b' }, { id: 'c' }])).toEqual(['result[1].id']);
});

test.each<[what: string, direct: unknown, through: unknown, paths: string[]]>([
  ['a changed text', { text: 'Hello' }, { text: 'Hallo' }, ['result.text']],
  ['a missing field', { text: 'a', refusal: null }, { text: 'a' }, ['result.refusal']],
  ['an added field', { text: 'a' }, { text: 'a', usage: {} }, ['result.usage']],
  ['null instead of nothing', { a: undefined }, { a: null }, ['result.a']],
  ['a number as text', { n: 1 }, { n: '1' }, ['result.n']],
  ['a lost chunk', [{ n: 1 }, { n: 2 }], [{ n: 1 }], ['result.length']],
  ['a chunk in another place', ['a', 'b'], ['b', 'a'], ['result[0]', 'result[1]']],
  ['an id of another kind', { id: 'chatcmpl-1' }, { id: 'resp_1' }, ['result.id']],
  ['a missing id', { id: 'chatcmpl-1' }, { id: null }, ['result.id']],
  ['a time that is none', { created: 1_800_000_000 }, { created: 0 }, ['result.created']],
])('%s is a difference', (_what, direct, through, paths) => {
  expect(pathsOf(direct, through)).toEqual(paths);
});

test('another class of error is a difference, and so is an error instead of a result', () => {
  const failed = (name: string) => ({ call: 'chat', error: { class: name, status: 429 } });
  expect(differences(failed('RateLimitError'), failed('APIError')).map(({ path }) => path)).toEqual([
    'error.class',
  ]);
  const paths = differences({ call: 'chat', result: 'Hello' }, failed('APIError')).map(({ path }) => path);
  expect(paths).toEqual(['result', 'error']);
});

test.each<[what: string, difference: Partial<Difference>]>([
  ['a lost retry-after', { path: 'error.headers.retry-after', direct: '1' }],
  ['another media type', { path: 'result.headers.content-type', direct: 'a/b', through: 'c/d' }],
  ['a header that the gateway invents', { path: 'result.headers.x-should-retry', through: 'false' }],
  ['another number of requests', { path: 'requests', direct: ['POST /a'], through: [] }],
  ['another code of an unknown model', { call: 'error.unknown_model', path: 'error.code' }],
  ['another message of an error of the server', { call: 'error.server', path: 'error.message' }],
  ['a model without its id', { call: 'models.list', path: 'result[0].object', through: 'x' }],
  ['embeddings that differ', { call: 'embeddings', path: 'result.data[0].embedding[0]' }],
])('nothing explains %s', (_what, difference) => {
  const whole = { call: 'chat', path: '', direct: undefined, through: undefined, ...difference };
  expect(explanationOf(whole, WHERE)).toBeUndefined();
});

test('the tap passes bytes as they are and counts the requests of each call', async () => {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text) => {
      body += text;
    });
    request.on('end', () => {
      bodies.push(body);
      response.end(body);
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const tap = await Tap.open(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
  try {
    const post = async (call: string): Promise<string> => {
      const response = await fetch(`${tap.baseUrl}/chat`, {
        method: 'POST',
        body: `{"ü":"${promptOf(call)}"}`,
      });
      return await response.text();
    };
    const sent = [await post('chat'), await post('chat.stream'), await post('chat')];
    await fetch(`${tap.baseUrl}/models`).then((response) => response.text());
    expect(sent[1]).toBe('{"ü":"Call chat.stream"}');
    expect(bodies).toEqual([...sent, '']);
    expect(Object.fromEntries(tap.requests())).toEqual({
      chat: ['POST /v1/chat', 'POST /v1/chat'],
      'chat.stream': ['POST /v1/chat'],
      'models.list': ['GET /v1/models'],
    });
  } finally {
    await tap.close();
    server.closeAllConnections();
    server.close();
  }
});

test('the table counts calls, and names what is explained and skipped', () => {
  const named = (name: string) => ({ name, version: '1' });
  const difference = { call: 'b', path: 'x', direct: 1, through: 2 };
  const by = { name: 'on purpose', why: 'a reason', matches: () => true };
  const call = (name: string) => ({ call: name, direct: { call: name }, unexplained: [], explained: [] });
  const pair = {
    calls: [
      call('a'),
      { ...call('b'), explained: [{ difference, by }] },
      { ...call('c'), unexplained: [difference] },
    ],
    skipped: [{ call: 'd', why: 'not there' }],
  };
  const table = tableOf([
    { client: named('one'), server: named('server'), pair, why: undefined },
    { client: named('two'), server: named('server'), pair: undefined, why: 'no toolchain' },
  ]);
  expect(table).toContain('| one | 1 | server 1 | 3 | 1 | 1 | 1 | 1 |');
  expect(table).toContain('| two | 1 | server 1 | – | – | – | – | all: no toolchain |');
  expect(table).toContain('- **on purpose**: a reason (`b`)');
  expect(table).toContain('- server: not there (`d`)');
});

test('the lock file pins each client exactly and names no registry', async () => {
  const read = async (name: string): Promise<string> =>
    await readFile(new URL(`npm/${name}`, import.meta.url), 'utf8');
  const { dependencies } = JSON.parse(await read('package.json'));
  for (const [name, spec] of Object.entries(dependencies))
    expect(spec, name).toMatch(/^(?:npm:@?[\w./-]+@)?\d+\.\d+\.\d+$/);
  expect(await read('package-lock.json')).not.toMatch(/"resolved"/);
});
