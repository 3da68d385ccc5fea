// Digests of encrypted contents in a text: which are found, and that a body of nothing else is not read to its end.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { sealsIn } from '../../src/wire/created-objects.ts';

const item = (content: unknown) => ({ type: 'reasoning', summary: [], encrypted_content: content });
const of = (value: unknown, max?: number) => sealsIn(Buffer.from(JSON.stringify(value)), max);

test('the same content has the same digest, whatever is around it and however its slashes are written', () => {
  const [seal] = of({ input: [item('gAAA/+==')] });
  expect(seal).toMatch(/^[\w-]{43}$/);
  expect(of({ output: [item('gAAA/+=='), { type: 'message' }], more: 1 })).toEqual([seal]);
  expect(sealsIn(Buffer.from('{ "encrypted_content" :\n "gAAA\\/+==" }'))).toEqual([seal]);
  expect(sealsIn(Buffer.from(`event: x\ndata: ${JSON.stringify({ item: item('gAAA/+==') })}\n\n`))).toEqual([
    seal,
  ]);
});

test('the last comes first, each once, and no more than wanted', () => {
  const [a, b, c] = ['a', 'b', 'c'].map((each) => of(item(each))[0]);
  expect(of([item('a'), item('b'), item('a'), item('c')])).toEqual([c, a, b]);
  expect(of([item('a'), item('b'), item('c')], 2)).toEqual([c, b]);
});

test('a text that quotes the member, another value, and an empty one are none', () => {
  for (const value of [null, '', 1, ['x'], { x: 'y' }]) expect(of(item(value))).toEqual([]);
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const quoted = JSON.stringify({ role: 'user', content: `${text}"encrypted_content":"x"` });
      expect(sealsIn(Buffer.from(quoted))).toEqual([]);
    }),
  );
});

test('any bytes are read without an error', () => {
  const pieces = fc.constantFrom('"encrypted_content"', ':', '"', '\\', ' ', 'x', '\n', ',');
  fc.assert(
    fc.property(fc.array(pieces), (parts) => {
      expect(sealsIn(Buffer.from(parts.join(''))).length).toBeLessThanOrEqual(64);
    }),
  );
});

test('a value with an escape that JSON does not have is none', () => {
  expect(sealsIn(Buffer.from('"encrypted_content":"a\\\n"'))).toEqual([]);
  expect(sealsIn(Buffer.from('"encrypted_content":"a\\x"'))).toEqual([]);
});

test('only the last ones of many are looked at', () => {
  const many = Buffer.from('"encrypted_content":1,'.repeat(1_000));
  const known = Buffer.from('"encrypted_content":"x",');
  expect(sealsIn(Buffer.concat([known, many]))).toEqual([]);
  expect(sealsIn(Buffer.concat([many, known]))).toHaveLength(1);
});
