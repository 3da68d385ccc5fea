// What a client with a wrong base URL reads.
import { describe, expect, test } from 'vitest';
import { unknownUrl } from '../../src/http/unknown-url.ts';

const PATHS = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/models',
  '/v1/models/:id',
  '/health',
  '/pricing',
  '/admin/usage',
];
const isKnown = (path: string) => PATHS.includes(path) || /^\/v1\/models\/[^/:]+$/.test(path);
const messageOf = (path: string, method = 'POST') => unknownUrl(method, path, isKnown, PATHS).message;
const BASE = "The base URL of an OpenAI client must end in '/v1' here, once.";

describe('a wrong base URL', () => {
  test.each([
    ['/chat/completions', '/v1/chat/completions'],
    ['/v1/v1/chat/completions', '/v1/chat/completions'],
    ['/v1//chat/completions', '/v1/chat/completions'],
    ['//v1/chat/completions', '/v1/chat/completions'],
    ['/api/v1/chat/completions', '/v1/chat/completions'],
    ['/openai/chat/completions', '/v1/chat/completions'],
    ['/v2/chat/completions', '/v1/chat/completions'],
    ['/v1/v1/v1/completions', '/v1/completions'],
    ['/models/gpt-4o', '/v1/models/gpt-4o'],
    ['/models', '/v1/models'],
  ])('%s: the right path is %s', (path, right) => {
    expect(messageOf(path)).toBe(`Unknown request URL: POST ${path}. Did you mean ${right}? ${BASE}`);
  });
});

test.each([
  ['/v1/chat/completion', '/v1/chat/completions'],
  ['/v1/chat-completions', '/v1/chat/completions'],
  ['/helth', '/health'],
  ['/v1/chat/completions/', '/v1/chat/completions'],
  ['/admin/usages', '/admin/usage'],
])('%s, mistyped, is nearest to %s', (path, right) => {
  expect(messageOf(path, 'GET')).toBe(`Unknown request URL: GET ${path}. Did you mean ${right}?`);
});

test('a path that is near to none is named alone', () => {
  expect(messageOf('/favicon.ico', 'GET')).toBe('Unknown request URL: GET /favicon.ico.');
  expect(messageOf('/', 'GET')).toBe('Unknown request URL: GET /.');
  // Anthropic's batches are not the other API's models.
  expect(messageOf('/v1/messages/models')).toBe('Unknown request URL: POST /v1/messages/models.');
});

test.each([
  `/v1/${'0123456789abcdef'.repeat(2)}`,
  `/v1/${'0123456789ABCDEF'.repeat(2)}/chat/completions`,
  '/v1/%63hat/completions',
  `/${'x'.repeat(200)}`,
  "/<script>alert('x')</script>",
  '/a"b',
])('%s is not repeated', (path) => {
  expect(messageOf(path)).toBe('Unknown request URL.');
});
