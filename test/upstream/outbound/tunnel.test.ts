// A tunnel by itself: bytes behind the head of the proxy's answer belong to it, and a pending one can be ended at every step.
import { get } from 'node:http';
import type { OnReadOpts, Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { PendingConnection } from '../../../src/upstream/outbound/connect.ts';
import { createConnect, createEgress, type DialOptions } from '../../../src/upstream/outbound/dialer.ts';
import { Outbound } from '../../../src/upstream/outbound/outbound.ts';
import { ConnectProxy } from '../../helpers/connect-proxy.ts';
import { pause, until, within } from '../../helpers/wait.ts';

let proxy: ConnectProxy;
beforeEach(async () => {
  proxy = await ConnectProxy.start();
});
afterEach(() => proxy.down());

const TARGET = { protocol: 'http:', hostname: 'target.test', host: 'target.test:80', port: '80' };

function dial(options: Partial<DialOptions> = {}, protocol = 'http:') {
  const url = new URL(`${protocol}//target.test:80`);
  const egress = createEgress({ http: proxy.url(), https: proxy.url() }, url, undefined);
  const connect = createConnect(egress, { timeoutMs: 20_000, ...options });
  const outcomes: (Socket | Error)[] = [];
  const pending: PendingConnection = connect({ ...TARGET, protocol }, (outcome) => outcomes.push(outcome));
  return { pending, outcomes };
}

/** The proxy's answer in these pieces, then silence. */
function answer(pieces: readonly string[]): void {
  proxy.script = async (socket) => {
    socket.on('data', (bytes: Buffer) => proxy.received.push(bytes));
    for (const piece of pieces) {
      socket.write(piece, 'latin1');
      await pause(1);
    }
  };
}

async function opened(outcomes: readonly (Socket | Error)[]): Promise<Socket> {
  const [socket] = await until(() => outcomes.length > 0 && outcomes, 'the tunnel');
  if (socket === undefined || socket instanceof Error) throw new Error('no tunnel', { cause: socket });
  return socket;
}

describe('bytes behind the head of the answer', () => {
  test('belong to the tunnel, however the answer is cut', async () => {
    const text = 'HTTP/1.1 200 Connection established\r\nx-proxy: yes\r\n\r\ngreeting\r\n\r\nof the target';
    const cuts = fc.uniqueArray(fc.integer({ min: 1, max: text.length - 1 }), { maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(cuts, fc.boolean(), async (at, isGiven) => {
        const ends = [...at.sort((a, b) => a - b), text.length];
        answer(ends.map((end, index) => text.slice(ends[index - 1] ?? 0, end)));
        let read = '';
        const onread: OnReadOpts = {
          buffer: Buffer.alloc(1),
          callback: (length, bytes) => {
            read += Buffer.from(bytes.buffer, bytes.byteOffset, length).toString('latin1');
            return true;
          },
        };
        const { outcomes } = dial(isGiven ? { onread } : {});
        const socket = await opened(outcomes);
        if (!isGiven) socket.on('data', (bytes: Buffer) => (read += bytes.toString('latin1'))).resume();
        await until(() => read.length >= 'greeting\r\n\r\nof the target'.length, 'the greeting');
        expect(read).toBe('greeting\r\n\r\nof the target');
        socket.destroy();
      }),
      { numRuns: 25 },
    );
  });

  test('that are no TLS fail the handshake of a target with TLS', async () => {
    answer(['HTTP/1.1 200 OK\r\n\r\nSSH-2.0-server\r\n']);
    const { outcomes } = dial({}, 'https:');
    await until(() => outcomes.length === 1, 'the error');
    expect(outcomes[0]).toMatchObject({ code: expect.stringMatching(/^ERR_SSL_|^EPROTO/) });
  });
});

test.each([
  [302, 'upstream_proxy_error'],
  [400, 'upstream_proxy_denied'],
  [407, 'upstream_proxy_denied'],
  [408, 'upstream_proxy_error'],
  [429, 'upstream_proxy_error'],
  [499, 'upstream_proxy_denied'],
  [500, 'upstream_proxy_error'],
  [503, 'upstream_proxy_error'],
])('an answer with %i is %s', async (status, code) => {
  answer([`HTTP/1.1 ${status} No\r\n\r\n`]);
  const { outcomes } = dial();
  await until(() => outcomes.length === 1, 'the error');
  expect(outcomes[0]).toMatchObject({ code });
});

test('an agent names an IPv6 address in brackets', async () => {
  proxy.script = (socket) => socket.destroy();
  const agent = new Outbound({ http: proxy.url() }).agent(false);
  const request = get({ agent, host: '2001:db8::7', port: 81 });
  await new Promise((resolve) => request.once('error', resolve));
  expect(proxy.authorities).toEqual(['[2001:db8::7]:81']);
});

describe('a pending tunnel', () => {
  test.each([
    ['before the proxy is connected', [], 'http:', 0],
    ['before the answer', [], 'http:', 1],
    ['within TLS', ['HTTP/1.1 200 OK\r\n\r\n'], 'https:', 2],
  ] as const)(
    'that is destroyed %s ends once, with the reason, and closes its connection',
    async (_, pieces, protocol, step) => {
      answer(pieces);
      const { pending, outcomes } = dial({}, protocol);
      if (step > 0) await until(() => proxy.requests.length === 1, 'the request');
      // The first record of TLS.
      if (step > 1) await until(() => Buffer.concat(proxy.received).includes(Buffer.of(0x16, 3, 1)), 'TLS');
      const reason = new Error('no longer wanted');
      pending.destroy(reason);
      pending.destroy(new Error('a second time'));
      expect(outcomes).toEqual([reason]);
      await until(() => proxy.sockets.every((socket) => socket.destroyed || socket.readableEnded), 'the end');
      await pause(50);
      expect(outcomes).toHaveLength(1);
    },
  );

  test('has one deadline for all its steps', async () => {
    proxy.script = async (socket) => {
      await pause(300);
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
    };
    const started = performance.now();
    const { outcomes } = dial({ timeoutMs: 500 }, 'https:');
    await within(
      until(() => outcomes.length === 1),
      'the deadline',
    );
    expect(outcomes[0]).toMatchObject({
      code: 'upstream_timeout',
      cause: { message: expect.stringContaining('TLS with the upstream') },
    });
    expect(performance.now() - started).toBeGreaterThan(400);
  });
});
