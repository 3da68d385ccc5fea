// What an object without choices is: an answer of some endpoint, an error without a wrapper, or neither.
import { expect, test } from 'vitest';
import { type Shape, shapeOf } from '../../src/wire/answer-shape.ts';

test.each<[Shape, object]>([
  ['answer', { data: [] }],
  ['answer', { id: 'x', model: 'm', results: [], message: 'm', code: 'c' }],
  ['answer', { code: 'c', message: 'm', output: {} }],
  ['answer', { id: 'x', object: 'thing' }],
  ['error', { code: 'c', message: 'm' }],
  ['error', { object: 'error', message: 'm' }],
  ['error', { id: 'x', code: 'c', message: 'm', data: null }],
  ['other', {}],
  ['other', { a: 1 }],
  ['other', { a: { data: [] } }],
])('%s: %j', (shape, object) => {
  expect(shapeOf(Buffer.from(JSON.stringify(object)))).toBe(shape);
});
