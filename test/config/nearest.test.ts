import { describe, expect, it } from 'vitest';
import { nearest } from '../../src/config/source/nearest.ts';

const NAMES = ['base_url', 'api_key', 'headers', 'timeouts', 'max_concurrency', 'stream_usage', 'stop', 'a'];

describe('the nearest name', () => {
  it.each([
    ['api_kye', 'api_key'],
    ['apiKey', 'api_key'],
    ['API-KEY', 'api_key'],
    ['baseurl', 'base_url'],
    ['base_uri', 'base_url'],
    ['header', 'headers'],
    ['timeout', 'timeouts'],
    ['max_concurency', 'max_concurrency'],
    ['maxConcurrency', 'max_concurrency'],
    ['stream_usgae', 'stream_usage'],
    ['tsop', 'stop'],
  ])('to %s is %s', (word, name) => expect(nearest(word, NAMES)).toBe(name));

  it.each(['x', '', 'model', 'something', 'b'.repeat(1000)])('to %j is none', (word) =>
    expect(nearest(word, NAMES)).toBeUndefined(),
  );

  it('is the closest of several', () => {
    expect(nearest('first_tokens', ['first_taken', 'first_token', 'first_tokem'])).toBe('first_token');
  });
});
