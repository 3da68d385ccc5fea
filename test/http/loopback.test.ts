// Whether a request comes from this machine: each header in which a proxy or tunnel reports an address makes it foreign.
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { loopbackCheck } from '../../src/http/loopback.ts';

/** A request that arrived from `peer` with these headers. */
function request(headers: Record<string, string>, peer = '127.0.0.1'): IncomingMessage {
  const socket = Object.defineProperty(new Socket(), 'remoteAddress', { value: peer });
  return Object.assign(new IncomingMessage(socket), { headers: { host: 'localhost:8080', ...headers } });
}

const untrusting = loopbackCheck([]);
const trusting = loopbackCheck(['127.0.0.0/8']);

test('a request from this machine to a name of this machine is local', () => {
  for (const peer of ['127.0.0.1', '127.1.2.3', '::1', '::ffff:127.0.0.1'])
    expect(untrusting(request({}, peer)), peer).toBe(true);
  for (const peer of ['192.168.1.7', '::ffff:10.0.0.1', 'fe80::1', ''])
    expect(untrusting(request({}, peer)), peer).toBe(false);
});

test.each([
  'cf-connecting-ip',
  'client-ip',
  'fastly-client-ip',
  'fly-client-ip',
  'forwarded',
  'true-client-ip',
  'via',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-original-forwarded-for',
  'x-real-ip',
  'x-forwarded-client-cert',
  'x-forwarded',
])('%s makes it foreign, for any value and any sender', (name) => {
  for (const value of ['127.0.0.1', '203.0.113.9', ''])
    for (const isLocal of [untrusting, trusting]) expect(isLocal(request({ [name]: value }))).toBe(false);
  expect(trusting(request({ 'x-forwarded-for': '127.0.0.1', [name]: '127.0.0.1' }))).toBe(false);
});

test.each(['host', 'port', 'proto', 'scheme', 'server', 'ssl', 'prefix'])(
  'x-forwarded-%s reports no address: only beside one of a trusted proxy it is local',
  (suffix) => {
    const both = { 'x-forwarded-for': '127.0.0.1', [`x-forwarded-${suffix}`]: 'x' };
    expect(trusting(request(both))).toBe(true);
    expect(trusting(request({ [`x-forwarded-${suffix}`]: 'x' }))).toBe(false);
    expect(untrusting(request(both))).toBe(false);
  },
);

test.each([
  ['127.0.0.1', true],
  ['[::1]:80, ::ffff:127.0.0.1', true],
  ['127.0.0.1, 203.0.113.9', false],
  ['203.0.113.9, 127.0.0.1', false],
  ['unknown', false],
  ['', false],
])('a trusted proxy that reports "%s"', (report, isLocal) => {
  expect(trusting(request({ 'x-forwarded-for': report }))).toBe(isLocal);
});

test.each([
  ['localhost', true],
  ['LOCALHOST:80', true],
  ['[::1]', true],
  ['[::1]:80', true],
  ['127.0.0.2:80', true],
  ['127.0.0.1.evil.example', false],
  ['evil.example', false],
  ['192.168.1.7', false],
  ['', false],
])('a request to "%s"', (host, isLocal) => {
  expect(untrusting(request({ host }))).toBe(isLocal);
});
