// A real browser and the gateway: what a page of another origin may ask and read, by `fetch` and by the official SDK.
import type OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Browser, Page } from '../helpers/browser.ts';
import type { LogLine } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  json,
  lastChunk,
  roleChunk,
  standardAnswer,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import type { Access, Ask, Seen } from './page.ts';
import { type OpenPage, type Origin, pageScript, startOrigin } from './pages.ts';
import {
  accessOf,
  BREAKS,
  expectGivenUp,
  helloAndSilence,
  inStep,
  type Setting,
  startSetting,
  TROUBLED,
} from './setting.ts';

/** As the SDK asks for it in a browser, and one that a later version might add. */
const PREFLIGHT = {
  'access-control-request-method': 'POST',
  'access-control-request-headers':
    'authorization,content-type,x-stainless-lang,x-stainless-os,x-stainless-new-thing',
};

let browser: Browser;
let friend: Origin;
let stranger: Origin;
let setting: Setting;
let open: OpenPage;
let page: Page;

beforeAll(async () => {
  const script = await pageScript();
  friend = await startOrigin(script);
  stranger = await startOrigin(script);
  setting = await startSetting({ config: { cors: { origins: [friend.origin] } } });
  browser = await sharedBrowser();
  open = await friend.open(browser);
  ({ page } = open);
}, BROWSER_TIMEOUT);

beforeEach(() => setting.upstream.always(standardAnswer));

afterAll(async () => {
  await browser?.close();
  await setting?.close();
  await stranger?.close();
  await friend?.close();
});

/** A chat request as a page writes it by hand. */
function chat(extra: object = {}, options: { key?: string; to?: Setting } = {}): Ask {
  const { baseURL, key } = options.to ?? setting;
  return {
    url: `${baseURL}/chat/completions`,
    method: 'POST',
    headers: { authorization: `Bearer ${options.key ?? key}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatRequest({ model: 'scripted', ...extra })),
  };
}

const access = (apiKey = setting.key): Access => ({ baseURL: setting.baseURL, apiKey });

const ask = (input: Ask, where = page): Promise<Seen> => where.evaluate((each) => inPage.ask(each), input);

const read = (input: Ask): Promise<Seen> =>
  page.evaluate((each) => inPage.read(each, async (text) => void (await onText(text))), input);

const stream = (model: string, prompt = 'Say hello') =>
  page.evaluate(([to, ...rest]) => inPage.stream(to, ...rest, (text) => onText(text)), [
    access(),
    model,
    prompt,
  ] as const);

/** The text in the chunks that are there to their end. */
function textIn(body: string): string {
  const events = body.split('\n\n').slice(0, -1);
  const chunks = events.filter((event) => event.startsWith('data: {"id"'));
  return chunks
    .map((event) => {
      const read: OpenAI.ChatCompletionChunk = JSON.parse(event.slice('data: '.length));
      return read.choices[0]?.delta.content ?? '';
    })
    .join('');
}

/** The requests that a gateway has answered since `from` lines of its log. */
const requests = ({ gateway }: Setting, from: number): readonly LogLine[] =>
  gateway.logs.slice(from).filter((line) => line['msg'] === 'request');

/** What the SDK would write for a browser, on a raw socket: a browser does not tell of its preflights. */
async function preflight(to: Setting, origin: string) {
  using client = await RawClient.connect(to.gateway.url);
  return await client.ask({
    method: 'OPTIONS',
    target: '/v1/chat/completions',
    headers: { origin, ...PREFLIGHT },
  });
}

describe('a page of an origin that may', () => {
  test('asks with a key: the preflight has none, and costs the upstream nothing', async () => {
    // In a profile of its own, so that the browser has not asked before.
    const { page: first } = await friend.open(browser);
    const from = setting.gateway.logs.length;
    const asked = setting.upstream.requests.length;
    const { status, body } = await ask(chat(), first);
    await first.close();
    expect(status).toBe(200);
    expect(JSON.parse(body ?? '')).toMatchObject({ choices: [{ message: { content: 'Hello world' } }] });
    await setting.gateway.logLine((line) => line['method'] === 'OPTIONS');
    const options = requests(setting, from).filter((line) => line['method'] === 'OPTIONS');
    expect(options).toMatchObject([{ status: 204 }]);
    expect(options[0]).not.toHaveProperty('key_prefix');
    expect(setting.upstream.requests.length - asked).toBe(1);
  });

  test('reads a stream piece by piece, each before the next one is sent', async () => {
    const heard = open.hear();
    const pieces = ['One', ' two', ' thrée 🚀'];
    const isRead = (text: string): boolean => textIn(heard.text) === text;
    setting.answers(inStep(pieces, isRead, chunk(frame(finishChunk()) + DONE), lastChunk()));
    const { status, body } = await read(chat({ stream: true }));
    expect(status).toBe(200);
    const chunks = [roleChunk(), ...pieces.map((piece) => contentChunk(piece)), finishChunk()];
    expect(body).toBe(chunks.map((each) => frame({ ...each, model: 'scripted' })).join('') + DONE);
  });

  test('reads the headers that are for it, and no others', async () => {
    setting.answers(json(200, completion(), { 'openai-processing-ms': '81', 'x-internal': 'host-7' }));
    const { status, headers } = await ask(chat());
    expect(status).toBe(200);
    expect(headers).toMatchObject({ 'content-type': 'application/json', 'openai-processing-ms': '81' });
    expect(await accessOf(setting, headers?.['x-request-id'])).toMatchObject({
      status: 200,
      model: 'scripted',
    });
    const streamed = await ask(chat({ stream: true }));
    expect(streamed.headers?.['x-request-id']).toMatch(/^req_/);
    expect(streamed.headers).not.toHaveProperty('x-accel-buffering');
  });

  test.each([
    ['a key that is not valid', { key: 'f'.repeat(32) }, {}, 401, 'invalid_api_key'],
    ['a model that does not exist', {}, { model: 'no-such-model' }, 404, 'model_not_found'],
    ['a request that is none', {}, { model: 7 }, 400, 'invalid_type'],
    ['an upstream that is away', {}, { model: 'down' }, 502, 'upstream_unreachable'],
  ])('reads why it was refused: %s', async (_what, options, extra, status, code) => {
    for (const streaming of [false, true]) {
      const seen = await ask(chat({ ...extra, stream: streaming }, options));
      expect(seen).toMatchObject({ status, headers: { 'content-type': 'application/json' } });
      expect(JSON.parse(seen.body ?? '')).toMatchObject({ error: { code, message: expect.any(String) } });
      expect(await accessOf(setting, seen.headers?.['x-request-id'])).toMatchObject({ status });
    }
  });

  test('reads that a path does not exist', async () => {
    const { status, body } = await ask({ ...chat(), url: `${setting.baseURL}/nothing` });
    expect(status).toBe(404);
    expect(JSON.parse(body ?? '')).toMatchObject({ error: { code: 'unknown_url' } });
  });

  test.each([
    [429, { 'retry-after': '7', 'retry-after-ms': '6500' }],
    [500, { 'x-should-retry': 'false' }],
    [503, { 'retry-after': '3' }],
  ])('reads what the upstream answered, and how long to wait: %i', async (status, hints) => {
    const body = upstreamError('Not now', { code: 'not_now' });
    setting.answers(json(status, body, hints));
    const seen = await ask(chat({ model: setting.troubled(), stream: true }));
    expect(seen).toMatchObject({ status, headers: hints });
    expect(JSON.parse(seen.body ?? '')).toEqual(body);
  });

  test.each(BREAKS)('can tell that a stream broke: %s', async (_how, end) => {
    const heard = open.hear();
    setting.answers(inStep(['Half of'], (text) => textIn(heard.text) === text, ...end));
    const { status, thrown, body } = await read(chat({ stream: true }));
    expect({ status, thrown }).toEqual({ status: undefined, thrown: 'TypeError' });
    expect(textIn(body ?? '')).toBe('Half of');
    expect(body).not.toContain('[DONE]');
  });

  test('that goes away gives up the upstream', async () => {
    const at = setting.answers(helloAndSilence());
    const leaving = await friend.open(browser);
    const heard = leaving.hear();
    const reading = leaving.page
      .evaluate(
        (each) => inPage.read(each, async (text) => void (await onText(text))),
        chat({ stream: true }),
      )
      .catch(() => undefined);
    await until(() => textIn(heard.text) === 'Hello', 'the first piece in the page');
    await leaving.page.close();
    await reading;
    await expectGivenUp(setting, at);
  });

  test('may not send what nobody needs', async () => {
    const asked = setting.upstream.requests.length;
    const { headers, ...rest } = chat();
    expect(await ask({ ...rest, headers: { ...headers, 'x-own': '1' } })).toEqual({ thrown: 'TypeError' });
    expect(setting.upstream.requests.length).toBe(asked);
  });
});

describe('the official SDK in a page', () => {
  test('lists the models', async () => {
    expect(await page.evaluate((to) => inPage.models(to), access())).toEqual([
      'scripted',
      ...TROUBLED,
      'echo',
      'down',
    ]);
  });

  test('reads a completion', async () => {
    const answer = await page.evaluate((to) => inPage.complete(to, 'echo', 'Grüße 🚀'), access());
    expect(answer.choices[0]?.message.content).toBe('You said: Grüße 🚀');
  });

  test('reads a stream piece by piece, with its usage', async () => {
    const heard = open.hear();
    const usage = { choices: [], usage: { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 } };
    setting.answers(
      inStep(
        ['One', ' two', ' thrée 🚀'],
        (text) => heard.text === text,
        chunk(frame(finishChunk()) + frame(usage) + DONE),
        lastChunk(),
      ),
    );
    expect(await stream('scripted')).toEqual({ text: 'One two thrée 🚀', finish: 'stop', tokens: 8 });
  });

  test('reads a stream of the built-in model', async () => {
    const lengths = new Set<number>();
    const heard = open.hear(() => {
      lengths.add(heard.text.length);
      return true;
    });
    expect(await stream('echo')).toMatchObject({ text: 'You said: Say hello', finish: 'stop' });
    expect(lengths.size).toBeGreaterThan(2);
  });

  test('gives up the upstream when it gives up its stream', async () => {
    const at = setting.answers(helloAndSilence());
    open.hear(() => false);
    expect(await stream('scripted')).toMatchObject({ text: 'Hello', finish: null });
    await expectGivenUp(setting, at);
  });

  test.each(BREAKS)('raises when its stream breaks: %s', async (_how, end) => {
    const heard = open.hear();
    setting.answers(inStep(['Half of'], (text) => heard.text === text, ...end));
    await expect(stream('scripted')).rejects.toThrow(/upstream|network|terminated/i);
    expect(heard.text).toBe('Half of');
  });

  test('raises what it was refused for, with the request id', async () => {
    const refused = await page.evaluate((to) => inPage.fault(to, 'scripted'), access('f'.repeat(32)));
    expect(refused).toMatchObject({ name: 'AuthenticationError', status: 401, code: 'invalid_api_key' });
    expect(await accessOf(setting, refused.requestId)).toMatchObject({ status: 401 });
    setting.answers(json(429, upstreamError('Slow down', { code: 'slow' }), { 'retry-after': '9' }));
    const limited = await page.evaluate(([to, model]) => inPage.fault(to, model), [
      access(),
      setting.troubled(),
    ] as const);
    expect(limited).toMatchObject({ name: 'RateLimitError', status: 429, code: 'slow', retryAfter: '9' });
  });

  test('waits as it is told to, and then succeeds', async () => {
    const at = setting.answersOnce(json(429, upstreamError('Slow down'), { 'retry-after-ms': '20' }));
    const answer = await page.evaluate(([to, model]) => inPage.complete(to, model, 'Say hello'), [
      access(),
      setting.troubled(),
    ] as const);
    expect(answer.choices[0]?.message.content).toBe('Hello world');
    expect(setting.upstream.requests.length - at).toBe(2);
  });
});

describe('a page of an origin that may not', () => {
  test('is given nothing, and its request does not arrive', async () => {
    const { page: strange } = await stranger.open(browser);
    // What pages before this one have left is logged when its upstream is let go.
    await until(async () => (await setting.gateway.metric('tollgate_requests_in_flight')) === 0);
    const from = setting.gateway.logs.length;
    const asked = setting.upstream.requests.length;
    expect(await ask(chat(), strange)).toEqual({ thrown: 'TypeError' });
    expect(await ask(chat({ stream: true }), strange)).toEqual({ thrown: 'TypeError' });
    // A request that needs no preflight arrives, and the page learns nothing of its answer.
    expect(await ask({ url: `${setting.gateway.url}/health` }, strange)).toEqual({ thrown: 'TypeError' });
    await setting.gateway.logLine((line) => line['route'] === '/health');
    expect(requests(setting, from).filter((line) => line['method'] === 'POST')).toEqual([]);
    expect(setting.upstream.requests.length).toBe(asked);
    await strange.close();
  });

  test('differs from one that may in what its preflight is answered', async () => {
    const allowed = await preflight(setting, friend.origin);
    expect(allowed.status).toBe(204);
    expect(allowed.header('access-control-allow-origin')).toBe(friend.origin);
    expect(allowed.header('access-control-allow-headers')).toBe(
      PREFLIGHT['access-control-request-headers'].replaceAll(',', ', '),
    );
    expect(allowed.header('access-control-allow-credentials')).toBeUndefined();
    for (const origin of [stranger.origin, 'null', `${friend.origin}.example.com`]) {
      const denied = await preflight(setting, origin);
      expect(denied.header('access-control-allow-origin')).toBeUndefined();
      expect(denied.header('access-control-allow-headers')).toBeUndefined();
    }
  });
});

describe('a gateway for pages of all origins', () => {
  let everyone: Setting;

  beforeAll(async () => {
    everyone = await startSetting({ config: { cors: { origins: ['*'] } } });
  });

  afterAll(() => everyone?.close());

  test('is open to any page with a key, one without an origin included', async () => {
    const pages = [await friend.open(browser), await stranger.open(browser, '/sandboxed')];
    expect(await pages[1]?.page.evaluate(() => Reflect.get(globalThis, 'origin'))).toBe('null');
    for (const { page: one } of pages) {
      expect(await ask(chat({}, { to: everyone }), one)).toMatchObject({ status: 200 });
      expect(await ask(chat({}, { to: everyone, key: 'f'.repeat(32) }), one)).toMatchObject({ status: 401 });
      await one.close();
    }
  });
});

describe('a gateway that was not told of any origin', () => {
  let closed: Setting;

  beforeAll(async () => {
    closed = await startSetting();
  });

  afterAll(() => closed?.close());

  test('answers OPTIONS with 405 in JSON', async () => {
    const response = await preflight(closed, friend.origin);
    expect(response.status).toBe(405);
    expect(response.header('content-type')).toBe('application/json');
    expect(response.header('allow')).toBe('POST');
    expect(response.header('access-control-allow-origin')).toBeUndefined();
    expect(response.json()).toMatchObject({
      error: { code: 'method_not_allowed', type: 'invalid_request_error', param: null },
    });
  });

  test('is closed to pages, whatever their key', async () => {
    const from = closed.gateway.logs.length;
    expect(await ask(chat({}, { to: closed }))).toEqual({ thrown: 'TypeError' });
    await closed.gateway.logLine((line) => line['method'] === 'OPTIONS' && line['status'] === 405);
    expect(requests(closed, from).filter((line) => line['method'] === 'POST')).toEqual([]);
  });
});
