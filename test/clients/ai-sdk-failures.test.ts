// The AI SDK and what goes wrong: a broken stream is never a short success, and refusals are what they say.
import {
  APICallError,
  generateText,
  type LanguageModel,
  RetryError,
  StreamProviderError,
  streamText,
} from 'ai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  chunk,
  frame,
  json,
  lastChunk,
  reset,
  roleChunk,
  type Step,
  sse,
  standardAnswer,
  upstreamError,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import { collect, modelOf, type ProviderSettings } from './ai-sdk.ts';
import { BREAKS, inStep, rejection, type Setting, startSetting, triesUntil } from './setting.ts';

let setting: Setting;

beforeAll(async () => {
  setting = await startSetting();
});

beforeEach(() => setting.upstream.always(standardAnswer));

afterAll(() => setting?.close());

const model = (name = 'scripted', settings?: ProviderSettings): LanguageModel =>
  modelOf(setting, name, settings);

/** A call that the SDK refused after one try. */
function callError(error: unknown): APICallError {
  if (APICallError.isInstance(error)) return error;
  throw new Error('the call did not fail as a refusal', { cause: error });
}

const requestId = (error: APICallError): string | undefined => error.responseHeaders?.['x-request-id'];

/** How many requests the gateway has refused so, up to this error: each try is one. */
const refusals = (error: APICallError): Promise<number> =>
  triesUntil(setting, requestId(error), error.statusCode ?? 0);

describe('a stream that breaks is no short success', () => {
  /**
   * Reads a stream that breaks behind `Half of`.
   * @param end what the upstream does then; it gets what `onError` was told
   */
  async function readBroken(end: (reported: readonly unknown[]) => readonly Step[]) {
    let read = '';
    const reported: unknown[] = [];
    setting.answers(inStep(['Half', ' of'], (text) => read === text, ...end(reported)));
    const result = streamText({
      model: model(),
      prompt: 'Say hello',
      onError: ({ error }) => void reported.push(error),
    });
    const parts = await collect(result.stream, (text) => {
      read = text;
    });
    for (const promise of [result.text, result.finishReason, result.usage]) {
      expect(await rejection(promise)).toBeInstanceOf(Error);
    }
    return { ...parts, reported };
  }

  test.each(BREAKS)('%s', async (_how, end) => {
    const { text, types, errors, thrown } = await readBroken(() => end);
    expect(text).toBe('Half of');
    expect(types).not.toContain('finish');
    // The frame with the error comes first, then the connection that ends too early. A reader that falls behind the end may
    // see that alone.
    for (const error of errors) {
      expect(StreamProviderError.isInstance(error)).toBe(true);
      expect(error).toMatchObject({ code: 'stream_incomplete', type: 'server_error' });
    }
    expect(APICallError.isInstance(thrown)).toBe(true);
  });

  test('with an error of the upstream: it is reported as the upstream wrote it', async () => {
    const error = upstreamError('The machine is on fire', { type: 'fire', code: 'fire_alarm' });
    const { text, types, errors, reported } = await readBroken((told) => [
      chunk(frame(error)),
      waitFor(() => told.length > 0),
      reset(),
    ]);
    expect(text).toBe('Half of');
    expect(types).not.toContain('finish');
    expect(StreamProviderError.isInstance(errors[0])).toBe(true);
    expect(errors[0]).toMatchObject({ message: 'The machine is on fire', type: 'fire', code: 'fire_alarm' });
    expect(reported[0]).toBe(errors[0]);
  });

  test('with an error of the upstream and then a clean end: everything settles, and the reason is the error', async () => {
    const error = upstreamError('The machine is on fire', { type: 'fire', code: 'fire_alarm' });
    setting.answers(inStep(['Half of'], () => true, chunk(frame(error)), lastChunk()));
    const reported: unknown[] = [];
    const result = streamText({
      model: model(),
      prompt: 'Say hello',
      onError: ({ error: told }) => void reported.push(told),
    });
    const { text, errors, thrown } = await collect(result.stream);
    expect([text, thrown, await result.finishReason]).toEqual(['Half of', undefined, 'error']);
    expect(errors[0]).toMatchObject({ message: 'The machine is on fire' });
    expect(reported[0]).toBe(errors[0]);
  });

  test('before its first output: the upstream is known to have failed, and the call fails', async () => {
    setting.answers(sse([roleChunk()], { done: false }));
    const result = streamText({
      model: model(setting.troubled()),
      prompt: 'Say hello',
      maxRetries: 0,
      onError: () => undefined,
    });
    const { errors, text } = await collect(result.stream);
    expect(text).toBe('');
    expect(APICallError.isInstance(errors[0])).toBe(true);
    expect(errors[0]).toMatchObject({ statusCode: 502 });
    expect(await rejection(result.text)).toBeInstanceOf(Error);
  });
});

/** Makes a call and returns what it failed with, or undefined. */
type Try = (name: string, settings?: ProviderSettings) => Promise<unknown>;

const generate: Try = async (name, settings) => {
  const call = generateText({ model: model(name, settings), prompt: 'Say hello' });
  return await call.then(
    () => undefined,
    (error: unknown) => error,
  );
};

const stream: Try = async (name, settings) => {
  const options = { model: model(name, settings), prompt: 'Say hello' };
  const { errors, thrown } = await collect(streamText({ ...options, onError: () => undefined }).stream);
  return errors[0] ?? thrown;
};

describe.each([
  ['generateText', generate],
  ['streamText', stream],
])('%s is refused', (_name, call) => {
  test('with a key that is not valid: 401, asked once, and the key is not repeated', async () => {
    const asked = setting.upstream.requests.length;
    const apiKey = 'f'.repeat(32);
    const before = await refusals(callError(await call('scripted', { apiKey })));
    const error = callError(await call('scripted', { apiKey }));
    expect(error).toMatchObject({
      statusCode: 401,
      isRetryable: false,
      message: 'The API key is not valid.',
    });
    expect(error.data).toMatchObject({ error: { code: 'invalid_api_key', type: 'invalid_request_error' } });
    expect(`${error.message} ${error.responseBody}`).not.toContain(apiKey.slice(0, 12));
    expect((await refusals(error)) - before).toBe(1);
    expect(setting.upstream.requests.length).toBe(asked);
  });

  test('a model that does not exist: 404, asked once', async () => {
    const before = await refusals(callError(await call('no-such-model')));
    const error = callError(await call('no-such-model'));
    expect(error).toMatchObject({ statusCode: 404, isRetryable: false });
    expect(error.message).toContain('no-such-model');
    expect(error.data).toMatchObject({ error: { code: 'model_not_found' } });
    expect((await refusals(error)) - before).toBe(1);
  });

  test('by the upstream: what that wrote is read, asked once', async () => {
    const body = upstreamError('No such thing', { type: 'invalid_request_error', param: 'n', code: 'bad_n' });
    const at = setting.answers(json(400, body));
    const error = callError(await call('scripted'));
    expect(error).toMatchObject({
      statusCode: 400,
      isRetryable: false,
      message: 'No such thing',
      data: body,
    });
    expect(setting.upstream.requests.length - at).toBe(1);
  });

  test.each([
    ['credential', 401, 'invalid_api_key', 'upstream_auth_error'],
    ['account', 402, 'insufficient_credits', 'upstream_account_error'],
  ])("because of the operator's %s: asked once", async (_whose, status, code, told) => {
    setting.answers(json(status, upstreamError('No', { code })));
    const model = setting.troubled();
    const before = await refusals(callError(await call(model)));
    const error = callError(await call(model));
    expect(error).toMatchObject({
      isRetryable: false,
      data: { error: { code: told, type: 'server_error' } },
    });
    expect((await refusals(error)) - before).toBe(1);
  });

  test('for now: it waits as the upstream asks, and then succeeds', async () => {
    const at = setting.answersOnce(
      json(429, upstreamError('Slow down', { code: 'rate_limit_exceeded' }), { 'retry-after-ms': '20' }),
    );
    expect(await call(setting.troubled())).toBeUndefined();
    expect(setting.upstream.requests.length - at).toBe(2);
  });
});

describe('trouble of the upstream', () => {
  test('a failure of the upstream is tried as often as the SDK means to, and no more', async () => {
    setting.answers(json(500, upstreamError('Oops', { code: 'oops' }), { 'retry-after-ms': '5' }));
    const error = await rejection(
      generateText({ model: model(setting.troubled()), prompt: 'Say hello', maxRetries: 2 }),
    );
    if (!RetryError.isInstance(error)) throw error;
    expect(error.reason).toBe('maxRetriesExceeded');
    expect(error.errors).toHaveLength(3);
    expect(new Set(error.errors.map((each) => requestId(callError(each)))).size).toBe(3);
    for (const each of error.errors) expect(each).toMatchObject({ statusCode: 500, message: 'Oops' });
  });

  test('an upstream that is away is 502 without its address', async () => {
    const error = callError(
      await rejection(generateText({ model: model('down'), prompt: 'Say hello', maxRetries: 0 })),
    );
    expect(error).toMatchObject({ statusCode: 502, isRetryable: true });
    expect(error.data).toMatchObject({ error: { code: 'upstream_unreachable' } });
    expect(error.responseBody).not.toMatch(/127\.0\.0\.1|:9\b|ECONN/);
  });
});
