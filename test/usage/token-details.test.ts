// The parts of token counts that only prices distinguish, as vendors report them.
import { describe, expect, test } from 'vitest';
import { AnswerWalk } from '../../src/proxy/answer/large-answer.ts';
import { JSON_ENDPOINTS } from '../../src/proxy/endpoints/json-endpoints.ts';
import { readCompletion } from '../../src/wire/chat-chunk.ts';
import {
  cumulativeUsage,
  laterUsage,
  millisecondsOf,
  NO_USAGE,
  parseUsage,
  sumOfTokens,
  type TokenDetails,
  type Usage,
} from '../../src/wire/token-usage.ts';

function usageOf(usage: object): Usage {
  const bytes = Buffer.from(JSON.stringify(usage));
  return parseUsage(bytes, { start: 0, end: bytes.length });
}

const NONE: TokenDetails = {
  cacheWrite: 0,
  audioInput: 0,
  imageInput: 0,
  cachedAudio: 0,
  cachedImage: 0,
  audioOutput: 0,
};

describe('the counts of a report', () => {
  test.each<[string, string, readonly [prompt: number, completion: number]]>([
    ['at most a billion each', '{"prompt_tokens":3,"completion_tokens":99999999999999}', [3, 1e9]],
    ['at most a billion of other names', '{"input_tokens":2e12,"output_tokens":5}', [1e9, 5]],
    ['at most a billion beyond the output', '{"prompt_tokens":3,"total_tokens":1e13}', [3, 1e9 - 3]],
    ['none of what is not exact', '{"prompt_tokens":3,"completion_tokens":1e300,"total_tokens":9}', [3, 6]],
    [
      'whole tokens of fractions',
      '{"prompt_tokens":30.5,"completion_tokens":0.25,"total_tokens":31}',
      [31, 1],
    ],
  ])('are %s', (_, text, [prompt, completion]) => {
    const bytes = Buffer.from(text);
    expect(parseUsage(bytes, { start: 0, end: bytes.length })).toMatchObject({ prompt, completion });
  });
});

describe('a report of tokens', () => {
  test.each<[string, object, Partial<TokenDetails>]>([
    [
      'chat with sound',
      {
        prompt_tokens: 100,
        completion_tokens: 50,
        prompt_tokens_details: { cached_tokens: 10, audio_tokens: 40, text_tokens: 60 },
        completion_tokens_details: { reasoning_tokens: 5, audio_tokens: 30 },
      },
      { audioInput: 40, audioOutput: 30 },
    ],
    [
      'a cache that was written',
      { prompt_tokens: 100, completion_tokens: 1, prompt_tokens_details: { cache_write_tokens: 64 } },
      { cacheWrite: 64 },
    ],
    [
      'a cache that was written, by a router',
      { prompt_tokens: 100, completion_tokens: 1, prompt_tokens_details: { cache_creation_tokens: 64 } },
      { cacheWrite: 64 },
    ],
    [
      'a cache that was written, beside the details',
      { prompt_tokens: 100, completion_tokens: 1, cache_creation_input_tokens: 64 },
      { cacheWrite: 64 },
    ],
    [
      'a response',
      {
        input_tokens: 88,
        output_tokens: 14,
        input_tokens_details: { cache_write_tokens: 7, cached_tokens: 3 },
      },
      { cacheWrite: 7 },
    ],
    [
      'an image',
      {
        input_tokens: 50,
        output_tokens: 1000,
        total_tokens: 1050,
        input_tokens_details: { text_tokens: 10, image_tokens: 40 },
      },
      { imageInput: 40 },
    ],
    [
      'a realtime session',
      {
        input_tokens: 100,
        output_tokens: 50,
        input_token_details: {
          text_tokens: 20,
          audio_tokens: 70,
          image_tokens: 10,
          cached_tokens: 30,
          cached_tokens_details: { text_tokens: 5, audio_tokens: 20, image_tokens: 5 },
        },
        output_token_details: { text_tokens: 10, audio_tokens: 40 },
      },
      { audioInput: 70, imageInput: 10, cachedAudio: 20, cachedImage: 5, audioOutput: 40 },
    ],
  ])('has the details of %s', (_, usage, details) => {
    expect(usageOf(usage).details).toEqual({ ...NONE, ...details });
  });

  test('without such parts has no details', () => {
    expect(
      usageOf({ prompt_tokens: 5, completion_tokens: 1, prompt_tokens_details: { audio_tokens: 0 } }),
    ).not.toHaveProperty('details');
  });

  test.each([-1, '7', null, 1e300, {}])('ignores a part that is no count: %j', (bad) => {
    expect(
      usageOf({ prompt_tokens: 5, completion_tokens: 1, prompt_tokens_details: { audio_tokens: bad } }),
    ).not.toHaveProperty('details');
  });

  test.each([
    [{ type: 'duration', seconds: 12.34 }, 12_340, 124],
    [{ type: 'duration', seconds: '12.34' }, 12_340, 124],
    [{ type: 'duration', seconds: 0.07 }, 70, 1],
  ])('of a duration has its milliseconds: %j', (usage, milliseconds, prompt) => {
    expect(usageOf(usage)).toMatchObject({ prompt, measured: { milliseconds } });
  });

  test('whose sides come one after the other keeps the details of both', () => {
    const input = usageOf({ input_tokens: 10, input_tokens_details: { image_tokens: 4 } });
    const output = usageOf({ output_tokens: 9, output_tokens_details: { audio_tokens: 5 } });
    expect(laterUsage(input, output).details).toEqual({ ...NONE, imageInput: 4, audioOutput: 5 });
    expect(laterUsage(input, usageOf({ output_tokens: 9 })).details).toEqual({ ...NONE, imageInput: 4 });
  });
});

describe('what hosted tools used', () => {
  const usage = { input_tokens: 100, output_tokens: 10, output_tokens_details: { reasoning_tokens: 4 } };
  const image_gen = {
    input_tokens: 50,
    input_tokens_details: { image_tokens: 30, text_tokens: 20 },
    output_tokens: 1000,
    total_tokens: 1050,
  };
  const tool_usage = { image_gen, web_search: { num_requests: 2 } };
  const svg_usage = { input_tokens: 7, model: 'm', output_tokens: 5, reasoning_tokens: 3, total_tokens: 12 };
  const item = { type: 'image_generation_call', result: 'A'.repeat(40) };
  const none = { image_gen: { input_tokens: 0, output_tokens: 0, total_tokens: 0 }, web_search: {} };
  const SUM = { prompt: 150, completion: 1010, total: 1160, reasoning: 4, details: { imageInput: 30 } };

  /** Whole, in pieces, and as the last event of a stream. */
  function readings(answer: object): readonly (Usage | null)[] {
    const body = Buffer.from(JSON.stringify(answer));
    const walk = new AnswerWalk();
    walk.advance(body, body.length >> 1, false);
    walk.advance(body, body.length, true);
    const event = JSON.stringify({ type: 'response.completed', response: answer });
    const frame = Buffer.from(`event: response.completed\ndata: ${event}\n\n`);
    const reader = RESPONSES.frames?.();
    return [
      readCompletion(body).usage,
      walk.facts().usage,
      reader?.read(frame, 0, frame.length).usage ?? null,
    ];
  }
  const RESPONSES = JSON_ENDPOINTS.find(({ path }) => path === 'responses') ?? never();

  test('usage of a choice counts in a whole answer and in pieces, where there is no other', () => {
    const own = { prompt_tokens: 9, completion_tokens: 2 };
    const choices = [{ message: { usage: {} }, usage: own }, { usage: null }];
    const counted = { prompt: 9, completion: 2, total: 11 };
    expect(readings({ choices }).slice(0, 2)).toMatchObject([counted, counted]);
    const other = { choices, usage: { prompt_tokens: 1, completion_tokens: 1 } };
    expect(readings(other).slice(0, 2)).toMatchObject([{ total: 2 }, { total: 2 }]);
    const odd = { choices: { a: { usage: own } } };
    expect(readings(odd).slice(0, 2)).toEqual([null, null]);
  });

  test.each<[string, object, object]>([
    ['images', { output: [item], tool_usage, usage }, SUM],
    ['images, before the output', { usage, tool_usage, output: [item] }, SUM],
    [
      'images and the author of an SVG',
      { output: [item, { ...item, svg_usage }], usage, tool_usage },
      { prompt: 157, completion: 1015, total: 1172, reasoning: 7 },
    ],
    [
      'an SVG of the images API',
      { data: [], usage, svg_usage },
      { prompt: 107, completion: 15, reasoning: 7 },
    ],
    ['nothing', { output: [item], tool_usage: none, usage }, { prompt: 100, completion: 10, total: 110 }],
    [
      'what is no count',
      { output: 'svg_usage', tool_usage: [image_gen], usage, svg_usage: null },
      { total: 110 },
    ],
  ])('is counted with the answer: %s', (_, answer, expected) => {
    for (const reading of readings(answer)) expect(reading).toMatchObject(expected);
  });
});

function never(): never {
  throw new Error('no such endpoint');
}

test('iterations that the totals of Anthropic leave out are added, and others are not', () => {
  const iteration = {
    input_tokens: 10,
    cache_read_input_tokens: 20,
    cache_creation_input_tokens: 30,
    output_tokens: 40,
  };
  const own = {
    input_tokens: 1,
    cache_read_input_tokens: 2,
    cache_creation_input_tokens: 3,
    output_tokens: 4,
  };
  const iterations = ['compaction', 'advisor_message', 'message'].map((type) => ({ type, ...iteration }));
  expect(usageOf({ ...own, iterations })).toMatchObject({ prompt: 6 + 2 * 60, completion: 4 + 2 * 40 });
  expect(usageOf({ ...own, iterations: iterations.slice(2) })).toMatchObject({ prompt: 6, completion: 4 });
});

test('the later of two reports counts, completed by the earlier one', () => {
  const of = (prompt: number, completion: number, more: Partial<Usage> = {}): Usage => ({
    ...NO_USAGE,
    prompt,
    completion,
    total: prompt + completion,
    ...more,
  });
  const [input, output] = [of(7, 0, { isInputOnly: true, cached: 5 }), of(0, 3, { reasoning: 2 })];
  expect(laterUsage(null, input)).toBe(input);
  expect(laterUsage(of(9, 9), of(7, 3))).toEqual(of(7, 3));
  expect(laterUsage(input, output)).toEqual(of(7, 3, { cached: 5, reasoning: 2 }));
  expect(laterUsage(of(9, 9), input)).toEqual(of(7, 9, { cached: 5 }));
  expect(laterUsage(NO_USAGE, input)).toEqual(input);
  expect(laterUsage(NO_USAGE, of(7, 0))).toEqual(of(7, 0));
  const measured = { milliseconds: 700 };
  expect(laterUsage(of(7, 0, { measured }), output)).toMatchObject({ measured });
  // Of totals that grow, a smaller one is no report.
  expect(cumulativeUsage(null, input)).toBe(input);
  expect(cumulativeUsage(of(9, 2), of(7, 3))).toEqual(of(9, 3));
  expect(cumulativeUsage(of(9, 4), of(9, 3))).toEqual(of(9, 4));
});

test('two answers together have the sums of both, and details where one of them has', () => {
  const one = { prompt: 1, completion: 2, cached: 3, reasoning: 4 };
  const other = { prompt: 10, completion: 20, cached: 30, reasoning: 40 };
  const sum = { prompt: 11, completion: 22, cached: 33, reasoning: 44 };
  expect(sumOfTokens(one, other)).toEqual(sum);
  const details = { ...NONE, cacheWrite: 1, audioOutput: 2 };
  expect(sumOfTokens({ ...one, details }, other)).toEqual({ ...sum, details });
  expect(sumOfTokens({ ...one, details }, { ...other, details })).toEqual({
    ...sum,
    details: { ...NONE, cacheWrite: 2, audioOutput: 4 },
  });
});

test.each([
  [1.5, 1500],
  ['1.5', 1500],
  ['0.0004', 0],
  [0, 0],
  [-1, 0],
  [1e9, 0],
  [Number.NaN, 0],
  ['1e3', 0],
  [' 1', 0],
  [null, 0],
])('%j seconds are %i ms', (value, ms) => {
  expect(millisecondsOf(value)).toBe(ms);
});
