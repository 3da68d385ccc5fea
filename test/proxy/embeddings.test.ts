// Vectors in the form that was asked for: what is converted, exactly, and what is not touched.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { base64Edits } from '../../src/proxy/answer/embeddings-form.ts';
import { spliceSpans } from '../../src/proxy/request/request-scan.ts';

async function converted(text: string): Promise<string> {
  const body = Buffer.from(text);
  return spliceSpans(body, await base64Edits(body)).toString();
}

/** As the official SDK reads it. */
function decoded(base64: string): number[] {
  const bytes = Buffer.from(base64, 'base64');
  return Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(4 * at));
}

test('a vector of numbers becomes the base64 of its little-endian floats, and nothing else changes', async () => {
  const text =
    '{ "object":"list","data":[ {"index":0,"embedding": [0.5, 1,2e0,-3], "x":12345678901234567890}, {"embedding":[]}],"model":"m" }';
  expect(await converted(text)).toBe(
    '{ "object":"list","data":[ {"index":0,"embedding": "AAAAPwAAgD8AAABAAABAwA==", "x":12345678901234567890}, {"embedding":""}],"model":"m" }',
  );
});

test.each([
  '{"data":[{"embedding":"AAAAPw=="}]}',
  '{"data":[{"other":[1,2]}],"embedding":[1]}',
  '{"data":[1,null,[2]]}',
  '{"data":{"embedding":[1]}}',
  '{}',
])('what is no vector of numbers stays as it is: %s', async (text) => {
  expect(await converted(text)).toBe(text);
});

describe('an answer that has no floats where they should be cannot be used', () => {
  test.each(['[1,"2"]', '[null]', '[[1]]', '[1e39]', '[1,-1e400]'])('%s', async (vector) => {
    await expect(converted(`{"data":[{"embedding":${vector}}]}`)).rejects.toMatchObject({
      code: 'upstream_invalid_response',
    });
  });
});

test('any vectors are the same to a client as the numbers were', async () => {
  const vectors = fc.array(fc.array(fc.float({ noNaN: true, noDefaultInfinity: true })), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(vectors, async (given) => {
      const text = JSON.stringify({ data: given.map((embedding) => ({ embedding })), model: 'm' });
      const { data } = JSON.parse(await converted(text));
      const read = data.map(({ embedding }: { embedding: string }) => decoded(embedding));
      // JSON has no -0 of its own: it is written as 0.
      expect(read).toEqual(given.map((each) => each.map((number) => (number === 0 ? 0 : number))));
    }),
    { numRuns: 200 },
  );
});

test('a large answer leaves turns to others', async () => {
  const vector = `[${'0.0123456789,'.repeat(20_000)}1]`;
  const text = `{"data":[${Array.from({ length: 12 }, () => `{"embedding":${vector}}`).join(',')}]}`;
  let turns = 0;
  let isOver = false;
  const count = () => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  await converted(text);
  isOver = true;
  expect(turns).toBeGreaterThan(5);
});
