// Which key a request offers, of the three headers that clients send one in, and what is noted of whose it is.
import type { IncomingHttpHeaders } from 'node:http';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { EXPIRY_WARNING_MS, identify, noteHolder, offeredKey, recheck } from '../../src/auth/identify.ts';
import { type Principal, principalOf } from '../../src/auth/key/principal.ts';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { numbered, recordOf } from './fleet-setting.ts';

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

describe('a request is noted as', () => {
  const principal = (expiresAtMs?: number) => ({ ...principalOf(recordOf(numbered(1), 1)), expiresAtMs });
  const exchangeOf = (headers: IncomingHttpHeaders = {}): Exchange =>
    Reflect.construct(Exchange, [{ method: 'GET', url: '/v1/models', headers }, {}, '192.0.2.1']);

  test.each([
    ['now', (found: Principal) => found],
    ['later', (found: Principal) => Promise.resolve(found)],
  ])('that of its holder, whose key is checked %s', async (_when, answer) => {
    const asked: unknown[] = [];
    const authenticator = {
      authenticate: (...args: unknown[]) => {
        asked.push(args);
        return answer(principal());
      },
    };
    const exchange = exchangeOf({ 'api-key': ONE });
    expect(await identify(authenticator, exchange)).toEqual(principal());
    expect(asked).toEqual([[`Bearer ${ONE}`, '192.0.2.1', 'good']]);
    expect([exchange.keyPrefix, exchange.access.tier]).toEqual([principal().prefix, principal().tier]);
    // A body that was there with the head needs no other check.
    expect(recheck(authenticator, exchange)).toBeUndefined();
    exchange.hasLateBody = true;
    expect(await recheck(authenticator, exchange)).toEqual(principal());
    expect(asked).toHaveLength(2);
  });

  test.each([
    ['never', undefined, false],
    ['in more than a week', EXPIRY_WARNING_MS, false],
    ['within a week', EXPIRY_WARNING_MS - 1, true],
  ])('that of a key that expires %s', (_when, ms, isWarned) => {
    vi.useFakeTimers({ now: Date.UTC(2030, 0, 1) });
    onTestFinished(() => void vi.useRealTimers());
    expect(EXPIRY_WARNING_MS).toBe(604_800_000);
    const exchange = exchangeOf();
    noteHolder(exchange, principal(ms === undefined ? undefined : Date.now() + ms));
    expect(exchange.headers['x-tollgate-key-expires']).toBe(
      isWarned ? '2030-01-07T23:59:59.999Z' : undefined,
    );
  });
});
