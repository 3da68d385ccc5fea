// The forms of a Redis URL: their meaning, the rejections, and that no rejection shows a password.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readRedis } from '../../src/config/schema/addresses.ts';
import { readRedisAddress, redisHosts } from '../../src/config/schema/redis-address.ts';
import { createCommands, parseRedisUrl } from '../../src/redis/open-redis.ts';

const one = (host: string, port: number) => [{ host, port }];

describe('a URL is accepted', () => {
  test.each([
    ['redis://h', { kind: 'single', tls: false, nodes: one('h', 6379), db: 0 }],
    ['redis://h/', { kind: 'single', tls: false, nodes: one('h', 6379), db: 0 }],
    ['REDISS://h:1/15', { kind: 'single', tls: true, nodes: one('h', 1), db: 15 }],
    ['redis://[::1]:7', { kind: 'single', tls: false, nodes: one('::1', 7), db: 0 }],
    ['redis://[::1]', { kind: 'single', tls: false, nodes: one('::1', 6379), db: 0 }],
    ['redis://:p@h', { kind: 'single', tls: false, nodes: one('h', 6379), db: 0, password: 'p' }],
    [
      'redis://u%40x:%3Ap%2F%25@my_redis.example',
      {
        kind: 'single',
        tls: false,
        nodes: one('my_redis.example', 6379),
        db: 0,
        username: 'u@x',
        password: ':p/%',
      },
    ],
    [
      'redis-sentinel://u:p@a,b:1,[2001:db8::1]:2/my-master.x/3',
      {
        kind: 'sentinel',
        tls: false,
        nodes: [...one('a', 26_379), ...one('b', 1), ...one('2001:db8::1', 2)],
        username: 'u',
        password: 'p',
        name: 'my-master.x',
        db: 3,
        sentinel: { tls: false },
      },
    ],
    [
      'rediss-sentinel://a/m',
      { kind: 'sentinel', tls: true, nodes: one('a', 26_379), name: 'm', db: 0, sentinel: { tls: true } },
    ],
    [
      'rediss-sentinel://:p@a/m/2?sentinel_tls=false&sentinel_password=x%26y%3D%2B+z',
      {
        kind: 'sentinel',
        tls: true,
        nodes: one('a', 26_379),
        password: 'p',
        name: 'm',
        db: 2,
        sentinel: { tls: false, password: 'x&y=++z' },
      },
    ],
    [
      'redis-sentinel://a/m?sentinel_tls=true&sentinel_username=u%40x&sentinel_password=a=b',
      {
        kind: 'sentinel',
        tls: false,
        nodes: one('a', 26_379),
        name: 'm',
        db: 0,
        sentinel: { tls: true, username: 'u@x', password: 'a=b' },
      },
    ],
    ['redis-cluster://a,b:1', { kind: 'cluster', tls: false, nodes: [...one('a', 6379), ...one('b', 1)] }],
    ['rediss-cluster://:p@a/0', { kind: 'cluster', tls: true, nodes: one('a', 6379), password: 'p' }],
  ])('%s', (url, address) => {
    expect(readRedisAddress(url)).toEqual({ ok: true, value: address });
    expect(parseRedisUrl(url)).toEqual(address);
    // The configuration keeps it as written.
    expect(readRedis(url)).toEqual({ ok: true, value: url });
  });
});

describe('a URL is rejected', () => {
  test.each([
    ['', 'begins with'],
    ['h:6379', 'begins with'],
    ['http://h', 'begins with'],
    ['redis-other://h', 'begins with'],
    ['redis:/h', 'begins with'],
    ['redis://', 'each host'],
    ['redis://:sesame', 'each host'],
    ['redis://h:0', 'port from 1 to 65535'],
    ['redis://h:65536', 'port from 1 to 65535'],
    ['redis://h:port', 'port from 1 to 65535'],
    ['redis://::1', 'each host'],
    ['redis://[::1', 'each host'],
    ['redis://[h]', 'each host'],
    ['redis-cluster://a,', 'each host'],
    ['redis-cluster://a,,b', 'each host'],
    [`redis-cluster://${'a,'.repeat(64)}a`, 'at most 64'],
    ['redis://a,b', 'one host'],
    ['redis:// h', 'white space'],
    ['redis://h\\x', 'white space'],
    ['redis://sesame@h', 'login'],
    ['redis://u:@h', 'login'],
    ['redis://@h', 'login'],
    ['redis://u:a:sesame@h', 'login'],
    ['redis://u:a@sesame@h', 'login'],
    ['redis://u:%zzsesame@h', 'escape'],
    ['redis://u:sesame#x@h', 'percent-encoded'],
    ['redis://h/0?password=sesame', 'query'],
    ['redis://h/x', 'database number'],
    ['redis://h/01', 'database number'],
    ['redis://h/1/2', 'database number'],
    ['redis-sentinel://h', 'master'],
    ['redis-sentinel://h/', 'master'],
    ['redis-sentinel://h/m/0/1', 'master'],
    ['redis-sentinel://h/m/x', 'database number'],
    ['redis-cluster://h/1', 'no path'],
    ['redis-cluster://h/?sentinel_password=sesame', 'query'],
    ['redis://h?sentinel_password=sesame', 'query'],
    ['redis-sentinel://h/m?password=sesame', 'each of sentinel_username'],
    ['redis-sentinel://h/m?sesame', 'each of sentinel_username'],
    ['redis-sentinel://h/m?sentinel_password=', 'with a value'],
    ['redis-sentinel://h/m?sentinel_password=a&sentinel_password=sesame', 'once'],
    ['redis-sentinel://h/m?sentinel_password=a&', 'each of sentinel_username'],
    ['redis-sentinel://h/m?Sentinel_Password=sesame', 'each of sentinel_username'],
    ['redis-sentinel://h/m?sentinel_username=u', 'sentinel_password'],
    ['redis-sentinel://h/m?sentinel_tls=sesame', 'true or false'],
    ['redis-sentinel://h/m?sentinel_password=%zzsesame', 'escape'],
    ['redis-sentinel://h/m?sentinel_password=a#sesame', 'fragment'],
    ['redis-sentinel://h?sentinel_password=sesame', 'master'],
  ])('%s', (url, fault) => {
    const reading = readRedisAddress(url);
    expect(reading).toEqual({ ok: false, fault: expect.stringContaining(fault) });
    expect(JSON.stringify(reading)).not.toContain('sesame');
    expect(readRedis(url)).toEqual(reading);
    expect(() => parseRedisUrl(url)).toThrow(fault);
  });
});

test('any login survives percent-encoding', () => {
  const text = fc.string({ unit: 'grapheme', minLength: 1 }).filter((each) => each.isWellFormed());
  fc.assert(
    fc.property(text, text, (username, password) => {
      const url = `redis://${encodeURIComponent(username)}:${encodeURIComponent(password)}@h`;
      expect(readRedisAddress(url)).toMatchObject({ ok: true, value: { username, password } });
    }),
  );
});

test('any password of the Sentinels survives percent-encoding', () => {
  const text = fc.string({ unit: 'grapheme', minLength: 1 }).filter((each) => each.isWellFormed());
  fc.assert(
    fc.property(text, text, (username, password) => {
      const query = Object.entries({ sentinel_username: username, sentinel_password: password })
        .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
        .join('&');
      expect(readRedisAddress(`redis-sentinel://:other@h/m?${query}`)).toMatchObject({
        ok: true,
        value: { password: 'other', sentinel: { username, password } },
      });
    }),
  );
});

test('no text makes the parser throw, and every accepted one names a host', () => {
  const piece = fc.constantFrom(
    'redis',
    'rediss',
    '-sentinel',
    '-cluster',
    '://',
    ':',
    '@',
    '/',
    ',',
    '[',
    ']',
    'a',
    '1',
    '%',
    '?',
    '&',
    'sentinel_password=',
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const reading = readRedisAddress(pieces.join(''));
      if (reading.ok) expect(redisHosts(reading.value)).toMatch(/^(([a-z1-]+|\[[^\]]+\]):\d+,?)+$/);
    }),
    { numRuns: 2000 },
  );
});

test('the loggable form of an address has no login', () => {
  expect(redisHosts(parseRedisUrl('redis-sentinel://u:sesame@a,[::1]:2/m'))).toBe('a:26379,[::1]:2');
});

test('each attempt starts with another node', async () => {
  const address = parseRedisUrl('redis-sentinel://a,b,c/m');
  const first = async (turn: number) => {
    const { options } = await createCommands(address, { connectMs: 1, name: 'x' }, turn);
    return 'sentinels' in options ? options.sentinels?.[0]?.host : undefined;
  };
  expect(await Promise.all([0, 1, 2, 3].map(first))).toEqual(['a', 'b', 'c', 'a']);
});
