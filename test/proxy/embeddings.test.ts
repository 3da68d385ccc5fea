// Vectors in the form that was asked for: what is converted, exactly, and what is not touched.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { base64Edits } from '../../src/proxy/embeddings.ts';
import { spliceSpans } from '../../src/proxy/request-scan.ts';

function converted(text: string): string {
  const body = Buffer.from(text);
  return spliceSpans(body, base64Edits(body)).toString();
}

/** As the official SDK reads it. */
function decoded(base64: string): number[] {
  const bytes = Buffer.from(base64, 'base64');
  return Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(4 * at));
}

test('a vector of numbers becomes the base64 of its little-endian floats, and nothing else changes', () => {
  const text =
    '{ "object":"list","data":[ {"index":0,"embedding": [0.5, 1,2e0,-3], "x":12345678901234567890}, {"embedding":[]}],"model":"m" }';
  expect(converted(text)).toBe(
    '{ "object":"list","data":[ {"index":0,"embedding": "AAAAPwAAgD8AAABAAABAwA==", "x":12345678901234567890}, {"embedding":""}],"model":"m" }',
  );
});

test.each([
  '{"data":[{"embedding":"AAAAPw=="}]}',
  '{"data":[{"other":[1,2]}],"embedding":[1]}',
  '{"data":[1,null,[2]]}',
  '{"data":{"embedding":[1]}}',
  '{}',
])('what is no vector of numbers stays as it is: %s', (text) => {
  expect(converted(text)).toBe(text);
});

describe('an answer that has no floats where they should be cannot be used', () => {
  test.each(['[1,"2"]', '[null]', '[[1]]', '[1e39]', '[1,-1e400]'])('%s', (vector) => {
    expect(() => converted(`{"data":[{"embedding":${vector}}]}`)).toThrow(
      expect.objectContaining({ code: 'upstream_invalid_response' }),
    );
    expect(() => converted(`{"data":[{"embedding":${vector}}]}`)).toThrow(GatewayError);
  });
});

test('any vectors are the same to a client as the numbers were', () => {
  const vectors = fc.array(fc.array(fc.float({ noNaN: true, noDefaultInfinity: true })), { maxLength: 5 });
  fc.assert(
    fc.property(vectors, (given) => {
      const text = JSON.stringify({ data: given.map((embedding) => ({ embedding })), model: 'm' });
      const { data } = JSON.parse(converted(text));
      const read = data.map(({ embedding }: { embedding: string }) => decoded(embedding));
      // JSON has no -0 of its own: it is written as 0.
      expect(read).toEqual(given.map((each) => each.map((number) => (number === 0 ? 0 : number))));
    }),
    { numRuns: 200 },
  );
});
