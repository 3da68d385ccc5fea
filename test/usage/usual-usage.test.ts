// The short way to read the usage of an answer, beside the one that reads any.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { usageIn } from '../../src/wire/token-usage.ts';
import { usualUsage } from '../../src/wire/usual-usage.ts';

function read(text: string) {
  const bytes = Buffer.from(`{"usage":${text}}`);
  return usualUsage(bytes, { start: 9, end: bytes.length - 1 });
}

/** With repeated names, unlike an object. */
function objectOf(value: fc.Arbitrary<string>, names: readonly string[]): fc.Arbitrary<string> {
  const member = fc
    .tuple(fc.constantFrom(...names), fc.constantFrom(':', ' : ', ':\n'), value)
    .map(([name, colon, text]) => `"${name}"${colon}${text}`);
  return fc.array(member, { maxLength: 8 }).map((members) => `{${members.join(', ')}}`);
}

const whole = fc.nat({ max: 5000 }).map(String);
const number = fc.oneof(
  { weight: 6, arbitrary: whole },
  { weight: 4, arbitrary: fc.constantFrom('0', 'null') },
  fc.constantFrom(
    '-1',
    '1.5',
    '2e3',
    '3E2',
    '12.0',
    '999999999999999',
    '9007199254740993',
    '"7"',
    '[]',
    '{}',
    'true',
  ),
);
const PARTS = [
  'cached_tokens',
  'reasoning_tokens',
  'audio_tokens',
  'text_tokens',
  'cache_write_tokens',
  'cache_read_input_tokens',
  'accepted_prediction_tokens',
  'cach\\u0065d_tokens',
];
const NAMES = ['prompt_tokens', 'completion_tokens', 'total_tokens'];
const details = objectOf(number, PARTS);
const OTHERS = [
  'input_tokens',
  'reasoning_tokens',
  'prompt_cache_hit_tokens',
  'queue_time',
  'type',
  'iterations',
];
const anyUsage = objectOf(fc.oneof({ weight: 3, arbitrary: number }, details), [
  ...NAMES,
  ...NAMES,
  ...OTHERS,
  'prompt_tokens_details',
  'completion_tokens_details',
  'input_tokens_details',
]);
/** Nearly what most vendors send. */
const nearlyUsual = fc
  .tuple(whole, whole, number, details, details, fc.constantFrom('', ',"queue_time":null', ',"type":0'))
  .map(
    ([prompt, completion, total, input, output, more]) =>
      `{"prompt_tokens":${prompt},"completion_tokens":${completion},"total_tokens":${total},` +
      `"prompt_tokens_details":${input},"completion_tokens_details":${output}${more}}`,
  );

test('what it reads is what the parsed object says', () => {
  let readings = 0;
  fc.assert(
    fc.property(fc.oneof(nearlyUsual, anyUsage), (text) => {
      const usage = read(text);
      if (usage === undefined) return;
      readings += 1;
      expect(usage).toEqual(usageIn(JSON.parse(text)));
    }),
    { numRuns: Number(process.env['FUZZ_RUNS'] ?? 2000) },
  );
  expect(readings).toBeGreaterThan(20);
});

test.each([
  [
    'of OpenAI',
    '{"prompt_tokens":103,"completion_tokens":41,"total_tokens":144,"prompt_tokens_details":{"cached_tokens":64,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":7,"audio_tokens":0,"accepted_prediction_tokens":2,"rejected_prediction_tokens":1}}',
    [103, 41, 144, 64, 7],
  ],
  [
    'without details',
    '{ "prompt_tokens": 3, "total_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": null }',
    [3, 6, 9, 0, 0],
  ],
])('it reads the usage %s', (_, text, [prompt, completion, total, cached, reasoning]) => {
  expect(read(text)).toEqual({ prompt, completion, total, cached, reasoning });
});

test.each([
  ['sound', '{"prompt_tokens":3,"completion_tokens":5,"prompt_tokens_details":{"audio_tokens":1}}'],
  ['the input alone', '{"prompt_tokens":3,"total_tokens":3}'],
  ['other names', '{"input_tokens":3,"output_tokens":5}'],
  ['a number that is not whole', '{"prompt_tokens":3.5,"completion_tokens":5}'],
])('it leaves %s to the other way', (_, text) => {
  expect(read(text)).toBeUndefined();
});
