// `fallback_on`: which rejections lead to another target, in which order, and what the client reads when all reject the request.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunkOf,
  completion,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  json,
  roleChunk,
  type Script,
  sse,
  upstreamError,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { MODEL_HOSTS } from '../upstream/vendor-errors/model-hosts.ts';
import { MODEL_VENDORS } from '../upstream/vendor-errors/model-vendors.ts';

const ALL = ['context_length_exceeded', 'content_filter', 'rate_limited', 'insufficient_quota'] as const;
const TOO_LONG = upstreamError('too long', {
  code: 'context_length_exceeded',
  type: 'invalid_request_error',
});
const FILTERED = upstreamError('no', { code: 'content_filter' });
const tooLong = (text = 'too long'): Script =>
  json(400, upstreamError(text, { code: 'context_length_exceeded' }));

let upstreams: HostileUpstream[] = [];
let gateway: Gateway | undefined;
let now = 0;

beforeEach(async () => {
  now = 1_000_000;
  upstreams = await Promise.all(
    ['one', 'two', 'three'].map((name) => HostileUpstream.start(json(200, completion({ content: name })))),
  );
});
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
  await Promise.all(upstreams.map((upstream) => upstream.close()));
});

interface Options {
  readonly on?: readonly string[];
  /** By index of the upstream, in order; default: each once. */
  readonly targets?: readonly (readonly [upstream: string, model: string])[];
  readonly retry?: { readonly [name: string]: number };
}

const NAMES = ['one', 'two', 'three'];

async function start({ on = ALL, targets, retry = {} }: Options = {}): Promise<Gateway> {
  const listed = targets ?? NAMES.slice(0, 2).map((name) => [name, `model-${name}`] as const);
  gateway = await startGateway({
    upstreams: Object.fromEntries(NAMES.map((name, index) => [name, upstreams[index]?.baseUrl ?? ''])),
    now: () => now,
    random: () => 0,
    config: {
      retry,
      models: {
        'test-model': {
          fallback_on: [...on],
          targets: listed.map(([upstream, model], index) => ({ upstream, model, priority: index + 1 })),
        },
      },
    },
  });
  return gateway;
}

const counts = () => upstreams.map(({ requests }) => requests.length);
const says = (index: number, script: Script): void => upstreams[index]?.always(script);
const contentOf = (response: RawResponse): unknown =>
  (response.json() as { choices: { message: { content: unknown } }[] }).choices[0]?.message.content;

async function responses(running: Gateway, body: object): Promise<RawResponse> {
  using client = await running.connect();
  const headers = { authorization: `Bearer ${await running.key()}` };
  await client.send({ target: '/v1/responses', headers, body: { model: 'test-model', input: 'x', ...body } });
  return await client.response();
}

describe('every recorded rejection with a reason', () => {
  const recorded = [...MODEL_VENDORS, ...MODEL_HOSTS].filter(({ reason }) => reason !== undefined);
  const whole = recorded.filter(({ body }) => !body.includes('chat.completion.chunk'));

  test('leads to another target where `fallback_on` lists it', async () => {
    const running = await start();
    for (const { vendor, status, headers, body, reason } of whole) {
      now += 3_600_000;
      says(0, async (c) => {
        await c.head(status, {
          ...headers,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
        });
        await c.send(body);
      });
      const response = await running.chat(chatRequest());
      expect([vendor, reason, response.status, contentOf(response)]).toEqual([vendor, reason, 200, 'two']);
    }
    expect(counts()).toEqual([whole.length, whole.length, 0]);
    const text = await running.metrics();
    for (const each of ALL) {
      const count = whole.filter(({ reason }) => reason === each).length;
      expect(text).toContain(`tollgate_fallbacks_total{upstream="one",reason="${each}"} ${count}`);
    }
  });

  test('leads to another target as the first event of a stream', async () => {
    const running = await start();
    // A message alone is an error as a whole answer; as an event it may be a notice.
    for (const { vendor, body, status } of recorded.filter((each) => !each.body.startsWith('{"message"'))) {
      now += 3_600_000;
      const parsed: unknown = JSON.parse(body);
      // Google's array is one of a whole answer; an event holds its element.
      const data = Array.isArray(parsed) ? parsed[0] : parsed;
      says(0, sse([frame(data)]));
      says(1, sse([frame(chunkOf({ content: 'two' })), frame(finishChunk()), DONE]));
      const response = await running.chat(chatRequest({ stream: true }));
      expect([vendor, status, response.status]).toEqual([vendor, status, 200]);
      expect(response.text()).toContain('two');
    }
  });

  test('is the client’s answer without `fallback_on`, unless it is a 429 or about the account', async () => {
    const running = await start({ on: [] });
    for (const { vendor, status, headers, body, reason } of recorded) {
      if (status === 200 || status >= 500) continue;
      now += 3_600_000;
      says(0, async (c) => {
        await c.head(status, {
          ...headers,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
        });
        await c.send(body);
      });
      const response = await running.chat(chatRequest());
      const isTried = status === 429 || reason === 'insufficient_quota';
      expect([vendor, reason, response.status]).toEqual([vendor, reason, isTried ? 200 : status]);
    }
  });
});

describe('the order', () => {
  test('a prompt that is too long goes to another model first, and never to the same one of an upstream', async () => {
    const running = await start({
      retry: { attempts: 9 },
      targets: [
        ['one', 'small'],
        ['one', 'small'],
        ['two', 'small'],
        ['three', 'large'],
      ],
    });
    for (const index of [0, 1, 2]) says(index, tooLong(`from ${index}`));
    const response = await running.chat(chatRequest());
    expect(counts()).toEqual([1, 1, 1]);
    expect(response.status).toBe(400);
    // `three` before `two`: the last rejection is that of the same model at another upstream.
    expect(response.text()).toContain('from 1');
    says(2, json(200, completion({ content: 'large' })));
    expect(contentOf(await running.chat(chatRequest()))).toBe('large');
    expect(counts()).toEqual([2, 1, 2]);
  });

  test('a filtered prompt goes by priority, and not to the same model of the same upstream', async () => {
    const running = await start({
      targets: [
        ['one', 'm'],
        ['one', 'm'],
        ['two', 'm'],
      ],
    });
    says(0, json(400, FILTERED));
    expect(contentOf(await running.chat(chatRequest()))).toBe('two');
    expect(counts()).toEqual([1, 1, 0]);
  });

  test('stays within `retry.attempts`', async () => {
    const running = await start({ retry: { attempts: 1 } });
    says(0, json(400, TOO_LONG));
    const response = await running.chat(chatRequest());
    expect([response.status, response.json(), counts()]).toEqual([400, TOO_LONG, [1, 0, 0]]);
  });
});

describe('the client reads', () => {
  test.each([
    ['a failure', 503, upstreamError('down')],
    ['a rate limit', 429, upstreamError('slow down', { code: 'rate_limit_exceeded' })],
    ['an account error', 402, upstreamError('Insufficient Balance')],
    ['a refused credential', 401, upstreamError('bad key')],
  ])('the rejection of the prompt, and not %s of a later target', async (_what, status, body) => {
    const running = await start();
    says(0, json(400, TOO_LONG));
    says(1, json(status, body));
    const response = await running.chat(chatRequest());
    expect([response.status, response.json()]).toEqual([400, TOO_LONG]);
    expect(await running.accessLine(response)).toMatchObject({
      upstream: 'one',
      upstream_status: 400,
      status: 400,
      outcome: 'upstream_error',
    });
  });

  test('the last rejection when several targets reject the prompt', async () => {
    const running = await start();
    says(0, tooLong('8k'));
    says(1, tooLong('128k'));
    expect((await running.chat(chatRequest())).text()).toContain('128k');
  });

  test('the rejection after a failure of the first target', async () => {
    const running = await start();
    says(0, json(500, upstreamError('down')));
    says(1, json(400, FILTERED));
    const response = await running.chat(chatRequest());
    expect([response.status, response.json()]).toEqual([400, FILTERED]);
  });
});

describe('budget and breaker', () => {
  test('a rejection of the prompt needs no retry budget, a rate limit does', async () => {
    const running = await start({ retry: { budget: 0 } });
    says(0, json(400, TOO_LONG));
    // More than the three a second that are always allowed.
    for (let i = 0; i < 8; i += 1) expect((await running.chat(chatRequest())).status).toBe(200);
    expect(await running.metric('tollgate_retry_budget_refusals_total')).toBe(0);
    says(0, json(413, upstreamError('limit', { code: 'rate_limit_exceeded' })));
    const statuses: number[] = [];
    for (let i = 0; i < 5; i += 1) statuses.push((await running.chat(chatRequest())).status);
    expect(statuses).toEqual([200, 200, 200, 413, 413]);
    expect(await running.metric('tollgate_retry_budget_refusals_total')).toBe(2);
  });

  test('rejections of the prompt do not open a breaker, whatever their status is', async () => {
    const running = await start();
    const { body = '' } = MODEL_HOSTS.find(({ status }) => status === 500) ?? {};
    says(0, json(500, JSON.parse(body)));
    for (let i = 0; i < 30; i += 1) expect((await running.chat(chatRequest())).status).toBe(200);
    expect(counts()).toEqual([30, 30, 0]);
  });
});

describe('an answer that the content filter emptied', () => {
  const emptied = completion({
    content: '',
    finishReason: 'content_filter',
    tokens: { prompt: 7, completion: 0 },
  });
  const emptiedStream = [frame(roleChunk()), frame(finishChunk('content_filter')), frame(usageChunk()), DONE];

  test('goes to another target; the usage of both counts', async () => {
    const running = await start();
    says(0, json(200, emptied));
    const response = await running.chat(chatRequest());
    expect([contentOf(response), counts()]).toEqual(['two', [1, 1, 0]]);
    expect(await running.metric('tollgate_fallbacks_total{upstream="one",reason="content_filter"}')).toBe(1);
  });

  test('is the client’s answer, byte for byte, if no other target answers', async () => {
    const running = await start();
    says(0, json(200, emptied));
    says(1, json(503, upstreamError('down')));
    const response = await running.chat(chatRequest());
    expect([response.status, response.json()]).toEqual([200, { ...emptied, model: 'test-model' }]);
    expect(await running.accessLine(response)).toMatchObject({
      upstream: 'one',
      status: 200,
      outcome: 'ok',
      prompt_tokens: 7,
    });
  });

  test('is the client’s answer where `fallback_on` does not list it', async () => {
    const running = await start({ on: ['context_length_exceeded'] });
    says(0, json(200, emptied));
    expect((await running.chat(chatRequest())).json()).toEqual({ ...emptied, model: 'test-model' });
    expect(counts()).toEqual([1, 0, 0]);
  });

  test('is not one with output before the filter', async () => {
    const running = await start();
    says(0, json(200, completion({ content: 'half', finishReason: 'content_filter' })));
    expect(contentOf(await running.chat(chatRequest()))).toBe('half');
    expect(counts()).toEqual([1, 0, 0]);
  });

  test.each([[true], [false]])(
    'as a stream goes to another target; the client sees none of it (usage asked: %s)',
    async (include_usage) => {
      const running = await start();
      says(0, sse(emptiedStream));
      says(1, sse([frame(chunkOf({ content: 'two' })), frame(finishChunk()), frame(usageChunk()), DONE]));
      const response = await running.chat(
        chatRequest({ stream: true, ...(include_usage ? { stream_options: { include_usage } } : {}) }),
      );
      expect(response.text()).toContain('two');
      expect(response.text()).not.toContain('content_filter');
      expect(counts()).toEqual([1, 1, 0]);
    },
  );

  test('as a stream is the client’s answer, byte for byte, if no other target answers', async () => {
    const running = await start();
    const body = chatRequest({ stream: true, stream_options: { include_usage: true } });
    says(0, sse(emptiedStream));
    says(1, json(500, upstreamError('down')));
    const response = await running.chat(body);
    expect(response.text()).toBe(emptiedStream.join('').replaceAll('"upstream-model"', '"test-model"'));
    expect([response.status, response.header('content-type')]).toEqual([
      200,
      'text/event-stream; charset=utf-8',
    ]);
  });

  test('as a stream with output after one choice was filtered is not repeated', async () => {
    const running = await start();
    says(
      0,
      sse([
        frame(finishChunk('content_filter')),
        frame(chunkOf({ content: 'more' })),
        frame(finishChunk()),
        DONE,
      ]),
    );
    const response = await running.chat(chatRequest({ stream: true, n: 2 }));
    expect(response.text()).toContain('more');
    expect(counts()).toEqual([1, 0, 0]);
  });

  const incomplete = (output: readonly object[]) => ({
    id: 'resp_1',
    object: 'response',
    model: 'm',
    status: 'incomplete',
    incomplete_details: { reason: 'content_filter' },
    output,
    usage: { input_tokens: 3, output_tokens: 0, total_tokens: 3 },
  });
  const answered = {
    ...incomplete([
      { type: 'message', id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: 'two' }] },
    ]),
    status: 'completed',
    incomplete_details: null,
  };

  test('of the Responses API goes to another target, whole and as a stream', async () => {
    const running = await start();
    says(0, json(200, incomplete([])));
    says(1, json(200, answered));
    expect((await responses(running, {})).text()).toContain('"two"');
    const event = (type: string, response: object) =>
      `event: ${type}\n${frame({ type, response, sequence_number: 0 })}`;
    says(
      0,
      sse([
        event('response.created', { ...incomplete([]), status: 'in_progress' }),
        event('response.incomplete', incomplete([])),
      ]),
    );
    const streamed = await responses(running, { stream: true });
    expect(streamed.text()).toContain('"two"');
    expect(counts()).toEqual([2, 2, 0]);
  });

  test('of the Responses API with output is not repeated', async () => {
    const running = await start();
    says(0, json(200, incomplete(answered.output)));
    says(1, json(200, answered));
    expect((await responses(running, {})).text()).toContain('content_filter');
    expect(counts()).toEqual([1, 0, 0]);
  });
});
