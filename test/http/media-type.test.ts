// What the content type of a message is read as.
import { describe, expect, test } from 'vitest';
import { isJson, mediaType } from '../../src/http/multipart/media-type.ts';

describe('the media type', () => {
  test.each([
    [undefined, ''],
    ['', ''],
    [' ', ''],
    [';', ''],
    ['application/json', 'application/json'],
    ['Application/JSON ; charset=utf-8', 'application/json'],
    ['text/event-stream;charset=utf-8', 'text/event-stream'],
    ['application/x-www-form-urlencoded; a="b;c"', 'application/x-www-form-urlencoded'],
    ['application/json, text/plain', 'application/json, text/plain'],
    [['application/json', 'text/plain'], ''],
    [['application/json'], ''],
  ])('of %j is %j', (header, type) => {
    expect(mediaType({ 'content-type': header })).toBe(type);
  });

  test('of a message without any is empty', () => {
    expect(mediaType({})).toBe('');
  });
});

test.each([
  ['application/json', true],
  ['application/vnd.api+json', true],
  ['text/json', false],
  ['application/jsonl', false],
  ['application/json, text/plain', false],
  ['json', false],
  ['', false],
])('%j is JSON: %s', (type, expected) => {
  expect(isJson(type)).toBe(expected);
});
