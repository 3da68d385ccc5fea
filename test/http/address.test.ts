// Whose address a request counts for: trust reaches only as far as the operator said, in both families.

import { createServer } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { boundAddress, clientAddress } from '../../src/http/client-address.ts';

describe('without trusted proxies', () => {
  const addressOf = clientAddress([]);

  test('the header counts for nothing', () => {
    expect(addressOf('192.0.2.1', '203.0.113.9')).toBe('192.0.2.1');
    expect(addressOf('2001:db8::1', undefined)).toBe('2001:db8::1');
  });

  test('IPv4 on a dual-stack socket is plain IPv4', () => {
    expect(addressOf('::ffff:192.0.2.1', undefined)).toBe('192.0.2.1');
    expect(addressOf('::FFFF:192.0.2.1', undefined)).toBe('192.0.2.1');
  });

  test('the zone of a link-local address is left out', () => {
    expect(addressOf('fe80::1%eth0', undefined)).toBe('fe80::1');
  });
});

describe('with trusted proxies', () => {
  const addressOf = clientAddress(['10.0.0.0/8', '192.0.2.1', '2001:db8:1::/48', '::1', 'fe80::/10']);

  test.each([
    ['one proxy', '10.0.0.1', '203.0.113.9', '203.0.113.9'],
    ['a chain of them', '10.0.0.1', '203.0.113.9, 10.9.9.9,192.0.2.1', '203.0.113.9'],
    ['what a client put before', '10.0.0.1', '1.1.1.1, 203.0.113.9', '203.0.113.9'],
    ['what a client put before, a trusted address too', '10.0.0.1', '10.0.0.5, 203.0.113.9', '203.0.113.9'],
    ['only proxies', '10.0.0.1', '10.0.0.2, 10.0.0.3', '10.0.0.2'],
    ['a peer that is no proxy', '203.0.113.1', '198.51.100.7', '203.0.113.1'],
    ['no header', '10.0.0.1', undefined, '10.0.0.1'],
    ['an empty header', '10.0.0.1', '', '10.0.0.1'],
    ['words', '10.0.0.1', 'unknown', '10.0.0.1'],
    ['words behind an address', '10.0.0.1', '203.0.113.9, _hidden', '10.0.0.1'],
    ['words before an address', '10.0.0.1', 'unknown, 203.0.113.9', '203.0.113.9'],
    ['IPv6', '::1', '2001:db8:2::9', '2001:db8:2::9'],
    ['IPv6 proxies', '2001:db8:1::5', '2001:db8:2::9, 2001:db8:1::7', '2001:db8:2::9'],
    ['IPv6 behind IPv4', '::ffff:10.0.0.1', '2001:db8:2::9', '2001:db8:2::9'],
    ['mapped IPv4 in the list', '10.0.0.1', '::ffff:203.0.113.9', '203.0.113.9'],
    ['mapped proxies in the list', '10.0.0.1', '203.0.113.9, ::ffff:10.0.0.2', '203.0.113.9'],
    ['a port', '10.0.0.1', '203.0.113.9:4711', '203.0.113.9'],
    ['brackets', '10.0.0.1', '[2001:db8:2::9]', '2001:db8:2::9'],
    ['brackets and a port', '10.0.0.1', '[2001:db8:2::9]:4711', '2001:db8:2::9'],
    ['a zone', 'fe80::1%eth0', '203.0.113.9', '203.0.113.9'],
    ['a peer that is gone', '', '203.0.113.9', ''],
    ['leading zeros', '10.0.0.1', '203.0.113.010', '10.0.0.1'],
  ])('%s', (_what, peer, forwardedFor, expected) => {
    expect(addressOf(peer, forwardedFor)).toBe(expected);
  });

  test('a mapped network means IPv4', () => {
    const mapped = clientAddress(['::ffff:10.0.0.0/104', '::ffff:192.0.2.1']);
    expect(mapped('10.1.2.3', '203.0.113.9')).toBe('203.0.113.9');
    expect(mapped('11.1.2.3', '203.0.113.9')).toBe('11.1.2.3');
    expect(mapped('192.0.2.1', '203.0.113.9')).toBe('203.0.113.9');
  });

  test('no header makes it fail, and a peer without trust is always itself', () => {
    fc.assert(
      fc.property(fc.string(), fc.ipV4(), (header, peer) => {
        expect(typeof addressOf('10.0.0.1', header)).toBe('string');
        fc.pre(!peer.startsWith('10.') && peer !== '192.0.2.1');
        expect(addressOf(peer, header)).toBe(peer);
      }),
    );
  });

  test('whatever a client puts in front, the last address that no proxy has counts', () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.ipV4(), fc.ipV6(), fc.string())), (forged) => {
        expect(addressOf('10.0.0.1', [...forged, '203.0.113.9', '10.1.1.1'].join(', '))).toBe('203.0.113.9');
      }),
    );
  });
});

describe('the address of a listener', () => {
  test('is the one that was taken', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    expect(boundAddress(server)).toEqual({ host: '127.0.0.1', port: expect.any(Number) });
    server.close();
  });

  test('is an error before it listens', () => {
    expect(() => boundAddress(createServer())).toThrow(expect.objectContaining({ code: 'internal_error' }));
  });
});
