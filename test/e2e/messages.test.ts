// Anthropic's API end to end: bytes in both directions, headers, ends, errors, usage and models, before scripted upstreams.
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { cuts, pieces } from '../fuzz/generators.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  HostileUpstream,
  head,
  json,
  lastChunk,
  reset,
  SSE_HEADERS,
  silence,
  sse,
  wait,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import {
  blockStart,
  ERROR_OF,
  errorEvent,
  MESSAGE_STOP,
  message,
  messageDelta,
  messageStart,
  messageStream,
  PING,
  textDelta,
  typed,
} from '../helpers/messages.ts';
import { until, within } from '../helpers/wait.ts';

let first: HostileUpstream;
let second: HostileUpstream;
let gateway: Gateway;
let key: string;

const to = (...upstreams: string[]) => ({
  targets: upstreams.map((upstream, index) => ({ upstream, model: 'claude-there', priority: index + 1 })),
});

beforeAll(async () => {
  first = await HostileUpstream.start();
  second = await HostileUpstream.start();
  gateway = await startGateway({
    now: fleetingClock(),
    config: {
      upstreams: {
        first: { base_url: first.baseUrl, protocol: 'anthropic', api_key: 'credential-of-first' },
        second: {
          base_url: second.baseUrl,
          protocol: 'anthropic',
          headers: { authorization: 'Bearer credential-of-second', 'anthropic-version': '2000-01-01' },
        },
        openai: { base_url: first.baseUrl, api_key: 'credential-of-openai' },
      },
      models: {
        claude: { ...to('first', 'second'), fallback_on: ['content_filter'] },
        'claude-two': { ...to('second'), price: { input: 1, cached_input: 0.1, output: 5, cache_write: 2 } },
        'claude-upstream-model': to('first'),
        'claude-lite-only': { ...to('first'), tiers: ['Lite'] },
        'claude-*': { targets: [{ upstream: 'first', model: '*-there' }] },
        gpt: { targets: [{ upstream: 'openai', model: 'gpt-there' }] },
      },
      tiers: {
        Free: { endpoints: ['chat'] },
        Lite: { requests_per_minute: 1, tokens_per_minute: 1000 },
        Pro: {},
      },
      currency: 'usd',
      passthrough: { upstream: 'openai', paths: ['/v1/files'] },
      stream: { keepalive: '200ms' },
      retry: { budget: 1 },
    },
  });
  key = await gateway.key();
});
beforeEach(() => {
  for (const upstream of [first, second]) upstream.always(json(500, ERROR_OF('api_error')));
});
afterAll(async () => {
  await gateway?.close();
  await first?.close();
  await second?.close();
});

type Headers = Readonly<Record<string, string>>;

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 60);

const BODY = { model: 'claude', max_tokens: 64, messages: [{ role: 'user', content: 'Hi' }] };
const VERSION = { 'anthropic-version': '2023-06-01' };

function post(body: object | string = BODY, headers: Headers = {}, path = '/v1/messages'): Promise<Response> {
  return fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': key, ...VERSION, ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

const stream = (body: object = BODY, headers: Headers = {}) => post({ ...body, stream: true }, headers);

/** The text of a stream up to its end, and how it ended. */
async function drained(response: Response): Promise<{ text: string; isCut: boolean }> {
  let text = '';
  try {
    for await (const bytes of response.body ?? []) text += Buffer.from(bytes).toString();
  } catch {
    return { text, isCut: true };
  }
  return { text, isCut: false };
}

const renamed = (text: string): string => text.replaceAll('upstream-model', 'claude-upstream-model');

async function totalsOf(holder: string) {
  const response = await fetch(`${gateway.url}/admin/usage`, { headers: { 'x-api-key': holder } });
  const { totals } = JSON.parse(await response.text());
  return totals;
}

/** Of the prompt `number N`. */
const numberIn = (body: Buffer): number => Number(/number (\d+)/.exec(body.toString())?.[1]);

/** A stream's text as clients read it, without the comments of the gateway. */
const events = (text: string): string => text.replaceAll(': keep-alive\n\n', '');

describe('a message', () => {
  test('is asked for and answered byte for byte, but for the name of the model', async () => {
    const index = first.requests.length;
    const answer = `{ "id":"msg_1","type":"message", "model" : "claude-there","content":[{"type":"text","text":"ü\\u00fc"}],"usage":{"input_tokens":3,"output_tokens":1}}`;
    first.next(json(200, answer));
    const body = `{ "max_tokens" : 10 ,"model":"claude","metadata":{"model":"claude"},"messages":[ {"role":"user","content":"ü"} ]}`;
    const response = await post(body, { 'anthropic-beta': 'a-1,b-2' }, '/v1/messages?beta=true');
    expect(await response.text()).toBe(answer.replace('claude-there', 'claude'));
    expect(response.status).toBe(200);
    expect(response.headers.get('request-id')).toBe(response.headers.get('x-request-id'));
    const request = await first.request(index);
    expect(request.body.toString()).toBe(body.replace('"claude"', '"claude-there"'));
    expect([request.method, request.target]).toEqual(['POST', '/v1/messages?beta=true']);
    expect(request.header('x-api-key')).toBe('credential-of-first');
    expect(request.header('authorization')).toBe(undefined);
    expect(request.header('anthropic-version')).toBe('2023-06-01');
    expect(request.header('anthropic-beta')).toBe('a-1,b-2');
    expect(request.rawHead.toString('latin1')).not.toContain(key);
  });

  test('gets credentials and defaults as the upstream configures them', async () => {
    const index = second.requests.length;
    second.next(json(200, message()), json(200, message()));
    const own = { authorization: `Bearer ${key}` };
    await post({ ...BODY, model: 'claude-two' }, own);
    await fetch(`${gateway.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...own },
      body: JSON.stringify({ ...BODY, model: 'claude-two' }),
    });
    const requests = [await second.request(index), await second.request(index + 1)];
    expect(requests.map((each) => each.header('authorization'))).toEqual(
      Array(2).fill('Bearer credential-of-second'),
    );
    expect(requests.map((each) => each.header('x-api-key'))).toEqual([undefined, undefined]);
    expect(requests.map((each) => each.header('anthropic-version'))).toEqual(['2023-06-01', '2000-01-01']);
  });

  test('of any size passes as it is', async () => {
    const long = 'ü"\\\n '.repeat(300_000);
    const answer = JSON.stringify(message([{ type: 'text', text: long }]));
    const index = first.requests.length;
    first.next(json(200, answer));
    const messages = [{ role: 'user', content: long }];
    const response = await post({ ...BODY, model: 'claude-upstream-model', messages });
    expect((await response.text()) === answer.replace('"upstream-model"', '"claude-upstream-model"')).toBe(
      true,
    );
    const { body } = await first.request(index);
    expect(body.equals(Buffer.from(JSON.stringify({ ...BODY, model: 'claude-there', messages })))).toBe(true);
    const id = response.headers.get('request-id');
    const line = await gateway.logLine((each) => each['msg'] === 'request' && each['request_id'] === id);
    expect(line).toMatchObject({ prompt_tokens: 1125, completion_tokens: 15 });
  });

  test('by a pattern has the name that was asked for', async () => {
    first.next(json(200, message([], { model: 'opus-there' })));
    const response = await post({ ...BODY, model: 'claude-opus' });
    expect(await response.json()).toMatchObject({ model: 'claude-opus' });
    expect(first.requests.at(-1)?.json()).toMatchObject({ model: 'opus-there' });
  });

  test('costs its tokens, those of the cache at their own prices', async () => {
    second.next(json(200, message()));
    const holder = await gateway.issueKey('Pro');
    await post({ ...BODY, model: 'claude-two' }, { 'x-api-key': holder });
    const usage = await until(async () => {
      const totals = await totalsOf(holder);
      return totals.requests === 1 ? totals : undefined;
    }, 'the usage');
    // 25 at 1, 1000 read at 0.1, 100 written at 2, 15 of output at 5, for each million.
    expect(usage).toMatchObject({ prompt_tokens: 1125, cached_tokens: 1000, completion_tokens: 15 });
    expect(usage.cost).toBeCloseTo((25 + 100 + 200 + 75) / 1e6, 12);
  });

  test('counted without being made is free', async () => {
    const index = first.requests.length;
    first.next(json(200, '{"input_tokens": 14 }'));
    const response = await post(BODY, {}, '/v1/messages/count_tokens');
    expect(await response.text()).toBe('{"input_tokens": 14 }');
    expect((await first.request(index)).target).toBe('/v1/messages/count_tokens');
    const id = response.headers.get('x-request-id');
    const line = await gateway.logLine((each) => each['msg'] === 'request' && each['request_id'] === id);
    expect(line).toMatchObject({ status: 200, route: '/v1/messages/count_tokens' });
    expect(line['prompt_tokens'] ?? 0).toBe(0);
  });
});

describe('a stream', () => {
  test('is passed on byte for byte, whatever the line ends and the segments are', async () => {
    for (const end of ['\n', '\r\n', '\r']) {
      const text = messageStream().join('').replaceAll('\n', end);
      for (const size of [1, 7, text.length]) {
        const parts = Array.from({ length: Math.ceil(text.length / size) }, (_, index) =>
          text.slice(index * size, (index + 1) * size),
        );
        first.next([head(200, SSE_HEADERS), ...parts.map((part) => chunk(part)), lastChunk()]);
        const { text: got, isCut } = await drained(await stream());
        expect([events(got), isCut]).toEqual([text.replaceAll('upstream-model', 'claude'), false]);
      }
    }
  });

  test('counts what its last events report', async () => {
    first.next(typed(messageStream()));
    const response = await stream();
    await drained(response);
    const id = response.headers.get('request-id');
    const line = await gateway.logLine((each) => each['msg'] === 'request' && each['request_id'] === id);
    expect(line).toMatchObject({ prompt_tokens: 1125, completion_tokens: 15, outcome: 'ok', stream: true });
  });

  test('that ends without its last event does not look finished', async () => {
    const whole = messageStream();
    const lengths = [4, 5, 6, 7];
    first.next(...lengths.map((length) => typed(whole.slice(0, length))));
    const ends = await Promise.all(lengths.map(async () => drained(await stream())));
    for (const { text, isCut } of ends) {
      const [last = ''] = events(text).split('\n\n').slice(-2);
      expect(isCut).toBe(true);
      expect(last).toMatch(/^event: error\ndata: /);
      const { error, ...rest } = JSON.parse(last.split('data: ')[1] ?? '');
      expect(rest).toEqual({ type: 'error', request_id: expect.stringMatching(/^req_/) });
      expect(error).toMatchObject({ type: 'api_error', code: 'stream_incomplete' });
      expect(text).not.toContain('message_stop');
    }
  });

  test('that dies is cut with an error, and one that says [DONE] without its end too', async () => {
    const begin = [messageStart(), blockStart(), textDelta('Hel')].join('');
    first.next([head(200, SSE_HEADERS), chunk(begin), wait(50), reset()]);
    const died = await drained(await stream());
    expect([died.isCut, died.text.includes('event: error\n')]).toEqual([true, true]);
    first.next(sse([begin]));
    const done = await drained(await stream());
    expect([done.isCut, done.text.includes('event: error\n'), done.text.includes('[DONE]')]).toEqual([
      true,
      true,
      false,
    ]);
  });

  test('ends with its last event, and nothing behind it is passed on', async () => {
    first.next(typed([...messageStream(), PING, messageStart(), textDelta('more')]));
    const { text, isCut } = await drained(await stream());
    expect([events(text), isCut]).toEqual([
      messageStream().join('').replaceAll('upstream-model', 'claude'),
      false,
    ]);
  });

  test('with an error of the upstream has it unchanged, and ends there', async () => {
    const frames = [messageStart(), blockStart(), textDelta('Hel'), errorEvent()];
    first.next(typed(frames));
    const { text, isCut } = await drained(await stream());
    expect([events(text), isCut]).toEqual([frames.join('').replaceAll('upstream-model', 'claude'), false]);
  });

  test('that is slow stays open by pings of the upstream and comments of the gateway', async () => {
    const open = [messageStart(), PING, blockStart(), textDelta('Hel')].join('');
    first.next([
      head(200, SSE_HEADERS),
      chunk(open),
      wait(700),
      chunk([PING, textDelta('lo'), messageDelta(), MESSAGE_STOP].join('')),
      lastChunk(),
    ]);
    const { text, isCut } = await drained(await stream());
    expect(isCut).toBe(false);
    expect(text.match(/event: ping/g)?.length).toBe(2);
    expect(text).toMatch(/"Hel"[^\n]*\n\n: keep-alive\n\n/);
  });

  test('cut at any byte is whole with its last event, and otherwise ends with an error', async () => {
    const whole = messageStream(['Hel', 'ü😀', 'lo']).join('');
    const bytes = Buffer.from(whole);
    const samples = fc.sample(fc.tuple(fc.nat(bytes.length), fc.boolean(), cuts), { numRuns: RUNS });
    // The ends of the stream are rare among its bytes.
    for (let left = 0; left < 30; left += 1) samples.push([bytes.length - left, left % 2 === 0, [left]]);
    first.always(async (c) => {
      const [length, isClosed, places] = samples[numberIn(c.request.body)] ?? [0, true, []];
      await c.head(200, SSE_HEADERS);
      for (const piece of pieces(bytes.subarray(0, length), places))
        if (piece.length > 0) await c.chunk(piece);
      await (isClosed ? c.lastChunk() : c.reset());
    });
    const answers = samples.map(async ([length, isClosed], index) => {
      const response = await stream({
        ...BODY,
        model: 'claude-upstream-model',
        messages: [{ role: 'user', content: `number ${index}` }],
      });
      const { text, isCut } = await drained(response);
      const prefix = bytes.toString('utf8', 0, length);
      const got = [response.status, isCut, events(text)] as const;
      const isWhole =
        prefix.includes('data: {"type":"message_stop"}') && (isClosed || length === bytes.length);
      if (isWhole) expect(got).toEqual([200, false, renamed(prefix)]);
      else if (!/text_delta.*\n\n/.test(prefix)) expect([got[0], got[1]]).toEqual([502, false]);
      else {
        const frames = prefix.slice(0, prefix.lastIndexOf('\n\n') + 2);
        expect(got).toEqual([200, true, expect.stringContaining('"code":"stream_incomplete"')]);
        const told = got[2].slice(0, got[2].indexOf('event: error'));
        // A reset discards what the kernel has not passed on.
        if (isClosed) expect(told).toBe(renamed(frames));
        else expect(renamed(frames).startsWith(told)).toBe(true);
      }
    });
    await Promise.all(answers);
  });

  test('whose client leaves before its last events still counts what they report', async () => {
    const leaving = new AbortController();
    const open = messageStream().slice(0, -2).join('');
    first.next([
      head(200, SSE_HEADERS),
      chunk(open),
      waitFor(() => leaving.signal.aborted),
      wait(100),
      chunk(messageDelta() + MESSAGE_STOP),
      lastChunk(),
    ]);
    const holder = await gateway.issueKey('Pro');
    const response = await fetch(`${gateway.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': holder, ...VERSION },
      body: JSON.stringify({ ...BODY, stream: true }),
      signal: leaving.signal,
    });
    const reader = response.body?.getReader();
    let text = '';
    for (let isDone = false; !isDone && !text.includes('content_block_stop'); ) {
      const { done = true, value = [] } = (await reader?.read()) ?? {};
      isDone = done;
      text += Buffer.from(value).toString();
    }
    leaving.abort();
    await until(async () => {
      const { prompt_tokens, completion_tokens, estimated } = await totalsOf(holder);
      return prompt_tokens === 1125 && completion_tokens === 15 && estimated === 0;
    }, 'the usage of the last events');
  });

  test('whose client leaves is given up at the upstream', async () => {
    const index = first.requests.length;
    const open = [messageStart(), blockStart(), textDelta('Hel')].join('');
    first.next([head(200, SSE_HEADERS), chunk(open), silence()]);
    const leaving = new AbortController();
    const response = await fetch(`${gateway.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': key, ...VERSION },
      body: JSON.stringify({ ...BODY, stream: true }),
      signal: leaving.signal,
    });
    const reader = response.body?.getReader();
    await reader?.read();
    leaving.abort();
    await reader?.read().catch(() => undefined);
    const request = await first.request(index);
    expect(await within(request.answered, 'the end of the request at the upstream')).toBe('cut');
    const id = response.headers.get('request-id');
    const line = await gateway.logLine((each) => each['msg'] === 'request' && each['request_id'] === id);
    expect(line).toMatchObject({ outcome: 'client_closed' });
  });
});

describe('another target is tried', () => {
  const answer = () => second.next(typed(messageStream(['other'])));

  test.each([
    ['an overload', () => first.next(json(529, ERROR_OF('overloaded_error')))],
    ['a limit', () => first.next(json(429, ERROR_OF('rate_limit_error'), { 'retry-after': '1' }))],
    ['a rejected credential', () => first.next(json(401, ERROR_OF('authentication_error')))],
    [
      'an empty balance',
      () =>
        first.next(
          json(
            400,
            ERROR_OF('invalid_request_error', 'Your credit balance is too low to access the Anthropic API.'),
          ),
        ),
    ],
    ['an error as first event', () => first.next(typed([errorEvent()]))],
    [
      'an error before output',
      () => first.next(typed([messageStart(), PING, blockStart(), errorEvent('api_error')])),
    ],
    ['an end before output', () => first.next(typed([messageStart(), PING, blockStart()]))],
    ['a reset before output', () => first.next([head(200, SSE_HEADERS), chunk(messageStart()), reset()])],
    ['a refusal without output', () => first.next(typed(messageStream([], 'refusal')))],
    [
      'a page',
      () =>
        first.next([
          head(200, { 'content-type': 'text/html', 'content-length': '5' }),
          (c) => c.send('<p>no'),
        ]),
    ],
  ])('after %s', async (_, fails) => {
    fails();
    answer();
    const { text, isCut } = await drained(await stream());
    expect([events(text), isCut]).toEqual([
      messageStream(['other']).join('').replaceAll('upstream-model', 'claude'),
      false,
    ]);
  });

  test('after a whole message that the model refused', async () => {
    first.next(json(200, message([], { stop_reason: 'refusal' })));
    second.next(json(200, message()));
    expect(await (await post()).json()).toMatchObject({ stop_reason: 'end_turn' });
  });

  test('not after output', async () => {
    const count = second.requests.length;
    first.next(typed([messageStart(), blockStart(), textDelta('Hel')]));
    const { isCut } = await drained(await stream());
    expect([isCut, second.requests.length]).toEqual([true, count]);
  });
});

describe('errors have the shape of the API', () => {
  async function errorOf(response: Response) {
    const { type, error, request_id } = JSON.parse(await response.text());
    expect(type).toBe('error');
    expect(request_id).toBe(response.headers.get('request-id'));
    return { status: response.status, type: error.type, code: error.code };
  }

  test.each<[string, () => Promise<Response>, object]>([
    [
      'no key',
      () => post(BODY, { 'x-api-key': '' }),
      { status: 401, type: 'authentication_error', code: 'missing_api_key' },
    ],
    [
      'a wrong key',
      () => post(BODY, { 'x-api-key': 'sk-ant-1' }),
      { status: 401, type: 'authentication_error', code: 'invalid_api_key' },
    ],
    ['bad JSON', () => post('{'), { status: 400, type: 'invalid_request_error', code: 'invalid_json' }],
    [
      'an unknown model',
      () => post({ ...BODY, model: 'none' }),
      { status: 404, type: 'not_found_error', code: 'model_not_found' },
    ],
    [
      'a model of the other API',
      () => post({ ...BODY, model: 'gpt' }),
      { status: 404, type: 'not_found_error', code: 'endpoint_not_offered' },
    ],
    [
      'another method',
      () => fetch(`${gateway.url}/v1/messages`),
      { status: 405, type: 'invalid_request_error', code: 'method_not_allowed' },
    ],
    [
      'an unknown path',
      () => post(BODY, {}, '/v1/messages/batches'),
      { status: 404, type: 'not_found_error', code: 'unknown_url' },
    ],
    [
      'a path that neither API has here',
      () => post(BODY, {}, '/v1/agents'),
      { status: 404, type: 'not_found_error', code: 'unknown_url' },
    ],
    [
      'a file, which is not for the vendor of the other API',
      () => post(BODY, {}, '/v1/files?beta=true'),
      { status: 404, type: 'not_found_error', code: 'unknown_url' },
    ],
    [
      'an unknown model by its path',
      () => fetch(`${gateway.url}/v1/models/none`, { headers: { 'x-api-key': key } }),
      { status: 404, type: 'not_found_error', code: 'model_not_found' },
    ],
  ])('%s', async (_, ask, expected) => {
    const at = [first.requests.length, second.requests.length];
    expect(await errorOf(await ask())).toEqual(expected);
    expect([first.requests.length, second.requests.length]).toEqual(at);
  });

  test('a model of this API is not offered on the others', async () => {
    const response = await post(BODY, {}, '/v1/chat/completions');
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({
      error: { code: 'endpoint_not_offered', type: 'not_found_error' },
    });
  });

  const advisor = (model: unknown) => ({ type: 'advisor_20260301', name: 'advisor', model });
  const TOOL = {
    name: 'f',
    input_schema: { properties: { model: { type: 'string' } } },
    cache_control: null,
  };

  test.each<[string, object | string]>([
    ['of another try', { fallbacks: [{ model: 'claude-lite-only' }] }],
    [
      'of the last of several',
      { fallbacks: [{ model: 'claude-two' }, { max_tokens: 5, model: 'claude-lite-only' }] },
    ],
    ['of an advisor', { tools: [TOOL, advisor('claude-lite-only')] }],
    [
      'behind a large tool',
      { tools: [{ ...TOOL, description: 'x'.repeat(200_000) }, advisor('claude-lite-only')] },
    ],
    [
      'with escapes',
      JSON.stringify({ ...BODY, tools: [advisor('claude-lite-only')] }).replace(
        '"model":"claude-l',
        '"m\\u006fdel":"\\u0063laude-l',
      ),
    ],
  ])('another model %s is one that the key may use', async (_, more) => {
    const at = first.requests.length;
    const body = typeof more === 'string' ? more : { ...BODY, ...more };
    expect(await errorOf(await post(body))).toEqual({
      status: 404,
      type: 'not_found_error',
      code: 'model_not_found',
    });
    expect(first.requests.length).toBe(at);
  });

  test('other models that the key may use, or that only the upstream knows, pass; of a restricted key only the first', async () => {
    const terms = { terms: { models: ['claude', 'claude-two'] } };
    const issued = await gateway.app.issuer.issue({ tier: 'Pro', terms: {}, key: terms });
    const restricted = { 'x-api-key': issued.key.reveal() };
    const naming = (model: unknown) => ({
      ...BODY,
      fallbacks: [{ model }],
      tools: [TOOL, advisor(model), null],
    });
    first.always(json(200, message()));
    const statuses = async (model: unknown) => [
      (await post(naming(model))).status,
      (await post(naming(model), restricted)).status,
    ];
    expect(await statuses('claude-two')).toEqual([200, 200]);
    expect(await statuses('the-vendors-own')).toEqual([200, 404]);
    expect(await statuses(5)).toEqual([200, 200]);
    expect((await post({ ...BODY, fallbacks: 'default', tools: null }, restricted)).status).toBe(200);
  });

  test('a tier without the endpoint gets an error that says so', async () => {
    const response = await post(BODY, { 'x-api-key': await gateway.issueKey('Free') });
    expect(await errorOf(response)).toMatchObject({ status: 404, code: 'endpoint_not_offered' });
  });

  test('those of the upstream are its own bytes, with its status and its wait', async () => {
    for (const [status, type] of [
      [400, 'invalid_request_error'],
      [413, 'request_too_large'],
      [529, 'overloaded_error'],
    ] as const) {
      const body = JSON.stringify(ERROR_OF(type), null, 2);
      for (const upstream of [first, second])
        upstream.always(json(status, body, { 'x-should-retry': 'true' }));
      const response = await post();
      expect([response.status, await response.text()]).toEqual([status, body]);
      expect(response.headers.get('x-should-retry')).toBe('true');
    }
  });

  test('those in another shape are converted to this one', async () => {
    for (const upstream of [first, second])
      upstream.always(json(429, { message: 'slow down' }, { 'retry-after': '3' }));
    const response = await post();
    expect(response.headers.get('retry-after')).toBe('3');
    expect(await errorOf(response)).toMatchObject({ status: 429, type: 'rate_limit_error' });
  });

  test('the operator’s credential is nobody’s business', async () => {
    for (const upstream of [first, second])
      upstream.always(json(401, ERROR_OF('authentication_error', 'credential-of-first')));
    const response = await post();
    expect(response.headers.get('x-should-retry')).toBe('false');
    const text = await response.text();
    expect(JSON.parse(text).error).toMatchObject({ type: 'api_error', code: 'upstream_auth_error' });
    expect(text).not.toContain('credential-of-first');
  });

  test('limits are in the headers of the API', async () => {
    const lite = await gateway.issueKey('Lite');
    first.next(json(200, message()));
    const allowed = await post(BODY, { 'x-api-key': lite });
    const rejected = await post(BODY, { 'x-api-key': lite });
    for (const { headers } of [allowed, rejected]) {
      expect(headers.get('anthropic-ratelimit-requests-limit')).toBe('1');
      expect(headers.get('anthropic-ratelimit-requests-remaining')).toBe('0');
      expect(headers.get('anthropic-ratelimit-requests-reset')).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
      expect(headers.get('anthropic-ratelimit-tokens-limit')).toBe('1000');
      expect([...headers.keys()].filter((name) => name.startsWith('x-ratelimit'))).toEqual([]);
    }
    expect(Number(rejected.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await errorOf(rejected)).toMatchObject({ status: 429, type: 'rate_limit_error' });
  });
});

describe('the models', () => {
  const models = async (query = '', headers: Headers = { 'x-api-key': key, ...VERSION }) =>
    JSON.parse(await (await fetch(`${gateway.url}/v1/models${query}`, { headers })).text());
  const entry = (id: string) => ({
    type: 'model',
    id,
    display_name: id,
    created_at: '2024-01-01T00:00:00.000Z',
  });

  test('are those of this API for its clients, in its shape', async () => {
    const list = {
      data: [entry('claude'), entry('claude-two'), entry('claude-upstream-model')],
      has_more: false,
      first_id: 'claude',
      last_id: 'claude-upstream-model',
    };
    expect(await models()).toEqual(list);
    expect(await models('', { authorization: `Bearer ${key}`, ...VERSION })).toEqual(list);
    expect(await models('', { 'x-api-key': key })).toEqual(list);
    expect(await models('/claude-two')).toEqual(entry('claude-two'));
    expect(await models('', { authorization: `Bearer ${key}` })).toMatchObject({ object: 'list' });
  });

  test('come in pages', async () => {
    expect(await models('?limit=1')).toMatchObject({
      data: [{ id: 'claude' }],
      has_more: true,
      last_id: 'claude',
    });
    expect(await models('?limit=1&after_id=claude-two')).toMatchObject({
      data: [{ id: 'claude-upstream-model' }],
      has_more: false,
    });
    expect(await models('?limit=1&before_id=claude-two')).toMatchObject({
      data: [{ id: 'claude' }],
      has_more: false,
    });
    for (const odd of ['0', '-1', 'x', '1e9', ''])
      expect((await models(`?limit=${odd}`)).data.length).toBeGreaterThan(0);
  });
});

test('a wrong base URL is explained', async () => {
  const response = await post(BODY, {}, '/v1/v1/messages');
  const { error } = JSON.parse(await response.text());
  expect(error.message).toMatch(/Did you mean \/v1\/messages\?.* must not have a path/);
});
