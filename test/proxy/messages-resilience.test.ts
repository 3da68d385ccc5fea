// Hedges, affinity and health checks for Anthropic's API, as chat has them: which target answers, what the client reads of it to the byte, and what is
// counted. The rules themselves are in hedge.test.ts, affinity.test.ts and probe.test.ts.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  HostileUpstream,
  head,
  json,
  lastChunk,
  reset,
  type Script,
  SSE_HEADERS,
  silence,
  sse,
} from '../helpers/hostile-upstream.ts';
import {
  blockStart,
  blockStop,
  ERROR_OF,
  errorEvent,
  message,
  messageStart,
  messageStream,
  PING,
  textBlock,
  textDelta,
  typed,
} from '../helpers/messages.ts';
import { until } from '../helpers/wait.ts';

const NAMES = ['one', 'two'] as const;
let one: HostileUpstream;
let two: HostileUpstream;
let checked: HostileUpstream;
let gateway: Gateway;
let isHealthy = true;

beforeAll(async () => {
  one = await HostileUpstream.start();
  two = await HostileUpstream.start();
  checked = await HostileUpstream.start((c) =>
    c.request.target === '/healthz'
      ? json(isHealthy ? 200 : 503, {})(c)
      : json(200, message([textBlock('from checked')]))(c),
  );
  const targets = NAMES.map((upstream, index) => ({ upstream, model: 'there', priority: index + 1 }));
  const anthropic = { protocol: 'anthropic', api_key: 'credential' };
  gateway = await startGateway({
    now: fleetingClock(),
    random: () => 0,
    config: {
      upstreams: {
        one: { base_url: one.baseUrl, ...anthropic },
        two: { base_url: two.baseUrl, ...anthropic },
        checked: {
          base_url: checked.baseUrl,
          ...anthropic,
          headers: { 'anthropic-version': '2023-06-01' },
          health: { path: '/healthz', interval: '100ms' },
        },
      },
      models: {
        hedged: { targets, hedge: { after: '50ms' }, price: { input: 1, output: 1 } },
        sticky: {
          targets: NAMES.map((upstream) => ({ upstream, model: 'there' })),
          balance: 'affinity',
          affinity: { header: 'x-claude-code-session-id' },
        },
        checked: {
          targets: ['checked', 'two'].map((upstream, index) => ({
            upstream,
            model: 'there',
            priority: index + 1,
          })),
        },
      },
      currency: 'usd',
      retry: { budget: 1 },
    },
  });
});
beforeEach(() => {
  one.always(typed(messageStream(['from one'])));
  two.always(typed(messageStream(['from two'])));
});
afterAll(async () => {
  await gateway?.close();
  await Promise.all([one, two, checked].map((upstream) => upstream?.close()));
});

type Fields = Readonly<Record<string, unknown>>;

async function post(model: string, fields: Fields = {}, headers: Readonly<Record<string, string>> = {}) {
  const key = await gateway.issueKey('Pro');
  const response = await fetch(`${gateway.url}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': key, ...headers },
    body: JSON.stringify({ model, max_tokens: 64, messages: [{ role: 'user', content: 'Hi' }], ...fields }),
  });
  let text = '';
  let isCut = false;
  try {
    for await (const bytes of response.body ?? []) text += Buffer.from(bytes).toString();
  } catch {
    isCut = true;
  }
  await until(() => gateway.app.inFlight === 0, 'the end of the request');
  const line = await gateway.logLine(
    (each) => each['msg'] === 'request' && each['request_id'] === response.headers.get('request-id'),
  );
  return { status: response.status, text, isCut, line, key };
}

const streamOf = (name: string): string =>
  messageStream([`from ${name}`])
    .join('')
    .replaceAll('upstream-model', 'hedged');

async function totalsOf(key: string) {
  const response = await fetch(`${gateway.url}/admin/usage`, { headers: { 'x-api-key': key } });
  return JSON.parse(await response.text()).totals;
}

test.each([
  ['Anthropic’s, without its name', ERROR_OF('overloaded_error')],
  ['of a server in between', { error: { message: 'as scripted', code: 502 } }],
])('an error (%s) after output is sent under its event name, which SDKs look for', async (_, error) => {
  const frames = [messageStart(), blockStart(), textDelta('Hel')];
  one.next([
    head(200, SSE_HEADERS),
    chunk(`${frames.join('')}data: ${JSON.stringify(error)}\n\n`),
    lastChunk(),
  ]);
  const { text, isCut, line } = await post('hedged', { stream: true });
  const [begun = '', end = ''] = text.split('event: error\n');
  expect([begun, isCut]).toEqual([frames.join('').replaceAll('upstream-model', 'hedged'), false]);
  expect(JSON.parse(end.slice('data: '.length))).toMatchObject({
    type: 'error',
    error: { type: 'api_error', message: 'as scripted' },
  });
  expect(line).toMatchObject({ outcome: 'upstream_error' });
});

describe('a second target is asked', () => {
  test.each<[what: string, script: Script, prompt: number]>([
    ['nothing', silence(), 1125],
    ['its head', [head(200, SSE_HEADERS), silence()], 1125],
    ['the start of a message', typedAndSilent(messageStart(), PING), 2250],
    ['a block without content', typedAndSilent(messageStart(), blockStart(), PING, textDelta('')), 2250],
    [
      'an empty block, and another',
      typedAndSilent(messageStart(), blockStart(), blockStop(), blockStart()),
      2250,
    ],
  ])('where the first has sent %s, and its answer is the whole one', async (_, script, prompt) => {
    one.next(script);
    const { text, isCut, line, key } = await post('hedged', { stream: true });
    expect([text, isCut]).toEqual([streamOf('two'), false]);
    expect(line).toMatchObject({ attempts: 2, hedged: true, upstream: 'two', outcome: 'ok' });
    await until(() => one.openSockets === 0, 'the end of the first connection');
    // What the other one has reported is paid for too.
    expect(await totalsOf(key)).toMatchObject({ requests: 1, prompt_tokens: prompt, failed: 0 });
  });

  test.each([
    ['text', [messageStart(), blockStart(), textDelta('Hel')]],
    ['a tool call', [messageStart(), blockStart({ type: 'tool_use', id: 'toolu_1', name: 'f', input: {} })]],
    ['hidden thinking', [messageStart(), blockStart({ type: 'redacted_thinking', data: 'RW1w' })]],
  ])('no more behind %s, and a break then is the end', async (_, frames) => {
    const count = two.requests.length;
    one.next([head(200, SSE_HEADERS), chunk(frames.join('')), (c) => c.wait(150), reset()]);
    const { text, isCut } = await post('hedged', { stream: true });
    expect([isCut, two.requests.length]).toEqual([true, count]);
    const [begun = '', end = ''] = text.split('event: error\n');
    expect(begun).toBe(frames.join('').replaceAll('upstream-model', 'hedged'));
    expect(JSON.parse(end.slice('data: '.length))).toMatchObject({
      type: 'error',
      error: { type: 'api_error', code: 'stream_incomplete' },
    });
  });

  test('and both may fail: the error is one of theirs, in its shape', async () => {
    const count = two.requests.length;
    one.next(async (c) => {
      await c.waitFor(() => two.requests.length > count);
      await sse([messageStart(), errorEvent()], { done: false })(c);
    });
    for (const upstream of [one, two]) upstream.always(json(529, ERROR_OF('overloaded_error')));
    const { status, text, line } = await post('hedged', { stream: true });
    expect([status, JSON.parse(text)]).toMatchObject([
      529,
      { type: 'error', error: { type: 'overloaded_error' } },
    ]);
    expect(line).toMatchObject({ hedged: true, outcome: 'upstream_error' });
  });
});

describe('a conversation stays with one target', () => {
  const requests = () => [one.requests.length, two.requests.length];
  const askedFor = async (
    fields: Fields,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<string> => {
    const { line } = await post('sticky', { stream: true, ...fields }, headers);
    return String(line['upstream']);
  };
  const says = (...texts: readonly string[]) => ({
    messages: texts.map((content, index) => ({ role: index % 2 === 0 ? 'user' : 'assistant', content })),
  });

  test('by the session that Claude Code names, which is not forwarded', async () => {
    const targets: string[] = [];
    for (let index = 0; index < 6; index += 1) {
      const session = { 'x-claude-code-session-id': `session ${index}` };
      const at = requests();
      const first = await askedFor(says('a'), session);
      expect(await askedFor(says('b', 'c', 'x'.repeat(100_000)), session)).toBe(first);
      targets.push(first);
      const upstream = first === 'one' ? one : two;
      const { rawHead } = await upstream.request(at[first === 'one' ? 0 : 1] ?? 0);
      expect(rawHead).not.toContain('session-id');
    }
    expect(new Set(targets).size).toBe(2);
  });

  test('and moves while that target fails', async () => {
    const session = { 'x-claude-code-session-id': 'moving' };
    const first = await askedFor(says('a'), session);
    const upstream = first === 'one' ? one : two;
    upstream.next(json(529, ERROR_OF('overloaded_error')));
    expect(await askedFor(says('b'), session)).not.toBe(first);
    expect(await askedFor(says('c'), session)).toBe(first);
  });
});

test('a target whose health check fails is asked last, and its check has the credential and the version', async () => {
  const firstAsked = async () => JSON.parse((await post('checked')).text).content[0].text;
  two.always(json(200, message([textBlock('from two')])));
  const check = await checked.request(0);
  expect([check.target, check.header('x-api-key'), check.header('anthropic-version')]).toEqual([
    '/healthz',
    'credential',
    '2023-06-01',
  ]);
  await until(async () => (await firstAsked()) === 'from checked', 'the first target');
  isHealthy = false;
  await until(async () => (await firstAsked()) === 'from two', 'the second target');
  isHealthy = true;
  await until(async () => (await firstAsked()) === 'from checked', 'the first target again');
});

function typedAndSilent(...frames: readonly string[]): Script {
  return sse(frames, { done: false, end: false });
}
