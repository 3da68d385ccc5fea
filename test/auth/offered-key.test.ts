// Which key a request offers, of the three headers that clients send one in.
import { describe, expect, test } from 'vitest';
import { offeredKey } from '../../src/auth/identify.ts';

const ONE = '0'.repeat(32);
const OTHER = '1'.repeat(32);

describe('the offered key', () => {
  test.each([
    ['no header', {}, undefined],
    ['authorization as it is', { authorization: `bearer   ${ONE}` }, `bearer   ${ONE}`],
    ['api-key', { 'api-key': ONE }, `Bearer ${ONE}`],
    ['x-api-key', { 'x-api-key': ONE }, `Bearer ${ONE}`],
    ['an empty api-key', { 'api-key': '' }, undefined],
    ['an empty api-key beside a key', { 'api-key': '', authorization: `Bearer ${ONE}` }, `Bearer ${ONE}`],
    ['an empty authorization beside a key', { authorization: '', 'api-key': ONE }, `Bearer ${ONE}`],
    ['a scheme without a key beside a key', { authorization: 'Bearer', 'x-api-key': ONE }, `Bearer ${ONE}`],
    ['a scheme without a key beside an empty one', { authorization: 'Bearer', 'api-key': '' }, 'Bearer'],
    [
      'the same key in all three',
      { authorization: `BEARER  ${ONE}`, 'api-key': ONE, 'x-api-key': ONE },
      `Bearer ${ONE}`,
    ],
  ])('%s', (_what, headers, offered) => {
    expect(offeredKey(headers)).toBe(offered);
  });

  test.each([
    ['authorization and api-key', { authorization: `Bearer ${ONE}`, 'api-key': OTHER }],
    ['another scheme and api-key', { authorization: `Basic ${ONE}`, 'api-key': ONE }],
    ['api-key and x-api-key', { 'api-key': ONE, 'x-api-key': OTHER }],
  ])('is refused where headers have different ones: %s', (_what, headers) => {
    expect(() => offeredKey(headers)).toThrow(
      expect.objectContaining({ code: 'missing_api_key', message: 'Several API keys were given. Send one.' }),
    );
  });
});
