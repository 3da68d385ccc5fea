// The part of the comparison of clients that each run of the tests makes: the official SDK with and without the gateway,
// and the comparison itself. All of it is `npm run test:clients`.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test, vi } from 'vitest';
import { tempDir } from '../../helpers/wait.ts';
import { openaiOfTheCheckout } from './clients/node.ts';
import { differences } from './compare.ts';
import { EXPLANATIONS } from './explained.ts';
import { keepRow, keptRows } from './kept-rows.ts';
import { comparePair } from './pair.ts';
import { aimock } from './servers/aimock.ts';
import { emptyRow, rowOf, tableOf } from './table.ts';
import { Tap } from './tap.ts';
import { promptOf } from './types.ts';

test('the official SDK hands the same to its user with and without the gateway', async () => {
  const server = await aimock.start();
  try {
    // The SDK waits before it asks again, so only one of the calls that it repeats is made.
    const slow = ['error.rate_limit', 'error.server.stream'];
    const calls = openaiOfTheCheckout.calls.filter((call) => !slow.includes(call));
    const pair = await comparePair(openaiOfTheCheckout, server, `aimock ${aimock.version}`, calls);
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

test('ids within a text correspond too', () => {
  const [a, b] = ['msg_7MoPuqZJUQtlcxgolLrgTnpK', 'msg_RLSgY4OjZ6LLTtvqd6Oy0sED'];
  const said = (id: string, named = id) => ({ items: [{ id }], message: `text part ${named} not found` });
  expect(pathsOf(said(a), said(b))).toEqual([]);
  expect(pathsOf(said(a), said(b, 'msg_x0x1x2x3x4x5x6x7x8x9'))).toEqual(['result.message']);
  expect(pathsOf(said(a), { ...said(b), message: `text part ${b} is not found` })).toEqual([
    'result.message',
  ]);
  expect(pathsOf(`${a} and ${a}`, `${b} and msg_x0x1x2x3x4x5x6x7x8x9`)).toEqual(['result']);
  expect(pathsOf('an id_of_a_text', 'an id_of_another_text')).toEqual(['result']);
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
  const [by] = EXPLANATIONS;
  if (by === undefined) throw new Error('there is no explanation');
  const call = (name: string) => ({ call: name, direct: { call: name }, unexplained: [], explained: [] });
  const pair = {
    calls: [
      call('a'),
      { ...call('b'), explained: [{ difference, by }] },
      { ...call('c'), unexplained: [difference] },
    ],
    skipped: [{ call: 'd', why: 'not <there>' }],
  };
  const table = tableOf([
    rowOf(named('one'), named('server'), pair),
    emptyRow(named('two'), named('server'), 'no toolchain'),
  ]);
  expect(table).toContain('| one | 1 | server 1 | 3 | 1 | 1 | 1 | 1 |');
  expect(table).toContain('| two | 1 | server 1 | – | – | – | – | all: no toolchain |');
  expect(table).toContain(`- **${by.name}**: ${by.why} (\`b\`)`);
  expect(table).toContain('- server: not &lt;there> (`d`)');
});

test('a pair keeps the row of its last run, and one that has not run says so', async () => {
  await using directory = await tempDir();
  vi.stubEnv('XDG_CACHE_HOME', directory.path);
  try {
    const [one, two] = [
      { name: 'one', version: '1' },
      { name: 'two', version: '1' },
    ];
    const server = { name: 'server', version: '1' };
    await keepRow(emptyRow(one, server, 'first'));
    await keepRow(emptyRow(one, server, 'second'));
    const whyOf = async (...clients: { name: string; version: string }[]) =>
      (await keptRows(clients, [server])).map(({ why }) => why);
    expect(await whyOf(two, one)).toEqual(['not run', 'second']);
    expect(await whyOf({ name: 'one', version: '2' })).toEqual(['not run']);
    // A toolchain tells its version only when it runs.
    expect(await whyOf({ name: 'one', version: '' })).toEqual(['second']);
  } finally {
    vi.unstubAllEnvs();
  }
});

test('the lock file pins each client exactly and names no registry', async () => {
  const read = async (name: string): Promise<string> =>
    await readFile(new URL(`npm/${name}`, import.meta.url), 'utf8');
  const { dependencies } = JSON.parse(await read('package.json'));
  for (const [name, spec] of Object.entries(dependencies))
    expect(spec, name).toMatch(/^(?:npm:@?[\w./-]+@)?\d+\.\d+\.\d+$/);
  expect(await read('package-lock.json')).not.toMatch(/"resolved"/);
});
