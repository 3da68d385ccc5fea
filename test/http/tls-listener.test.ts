// TLS on the public listener: what is accepted, how long a handshake may take, what counts as a connection, and how all of it ends.
import { once } from 'node:events';
import { createServer as createHttp } from 'node:http';
import { connect as connectTcp, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { pause, until, within } from '../helpers/wait.ts';
import { errorCode, Served, type ServedOptions } from './served.ts';

const certificate = makeCertificate();
let served: Served | undefined;
afterEach(async () => {
  await served?.[Symbol.asyncDispose]();
  served = undefined;
});

async function start(options: ServedOptions = {}): Promise<Served> {
  served = await Served.start({ certificate, ...options });
  return served;
}

async function handshake({ port }: Served, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connectTls({ host: '127.0.0.1', port, ca: certificate.cert, ...options });
  socket.on('error', () => undefined);
  await within(once(socket, 'secureConnect'), 'the handshake');
  return socket;
}

/** The code of a handshake that fails. */
async function refusedHandshake({ port }: Served, options: ConnectionOptions): Promise<string> {
  const socket = connectTls({ host: '127.0.0.1', port, ca: certificate.cert, ...options });
  return await within(
    new Promise<string>((resolve) => {
      socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
      socket.once('secureConnect', () => resolve('secure'));
    }),
    'the end of the handshake',
  );
}

async function plain({ port }: Served): Promise<Socket> {
  const socket = connectTcp({ host: '127.0.0.1', port, allowHalfOpen: true });
  socket.on('error', () => undefined);
  await within(once(socket, 'connect'), 'a connection');
  return socket;
}

const failures = async ({ metrics }: Served, cause: string) =>
  (await metrics.tls.failures.get()).values.find(({ labels }) => labels['cause'] === cause)?.value ?? 0;

const GET = 'GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n';

/** The first bytes of a ClientHello. */
const HELLO_START = Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]);

describe('a client that speaks TLS', () => {
  test.each(['TLSv1.2', 'TLSv1.3'] as const)(
    'is served with %s, on a connection that is kept',
    async (version) => {
      const server = await start();
      const socket = await handshake(server, {
        minVersion: version,
        maxVersion: version,
        ALPNProtocols: ['h2', 'http/1.1'],
      });
      expect([socket.getProtocol(), socket.alpnProtocol]).toEqual([version, 'http/1.1']);
      using client = RawClient.over(socket);
      for (let request = 0; request < 3; request += 1) {
        await client.write(GET);
        const response = await client.response();
        expect(response.status).toBe(200);
        expect(response.json()).toMatchObject({ address: '127.0.0.1' });
      }
      expect(await server.openConnections()).toBe(1);
    },
  );

  test.each<[string, ConnectionOptions]>([
    ['TLS 1.1', { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' }],
    ['HTTP/2 alone', { ALPNProtocols: ['h2'] }],
  ])('with %s is refused, and counted', async (_, options) => {
    const server = await start();
    expect(await refusedHandshake(server, options)).not.toBe('secure');
    await until(async () => (await failures(server, 'failed')) === 1, 'the count');
    expect(await server.openConnections()).toBe(0);
    expect((await server.say(GET)).response.status).toBe(200);
  });

  test('that does not trust the certificate leaves nothing behind', async () => {
    const server = await start();
    expect(await refusedHandshake(server, { ca: makeCertificate().cert })).toBe(
      'DEPTH_ZERO_SELF_SIGNED_CERT',
    );
    await until(async () => (await server.openConnections()) === 0, 'the end of the connection');
  });

  test('whose first bytes come one by one is served', async () => {
    const server = await start({ headersTimeout: 60_000 });
    // A relay that cuts what passes into single bytes.
    const relay = createHttp();
    relay.removeAllListeners('connection').on('connection', (socket: Socket) => {
      const target = connectTcp(server.port, '127.0.0.1').setNoDelay(true);
      socket.on('data', async (bytes) => {
        socket.pause();
        for (const byte of Buffer.from(bytes)) {
          target.write(Buffer.of(byte));
          await pause(0);
        }
        socket.resume();
      });
      target.pipe(socket);
      for (const each of [socket, target])
        each.on('error', () => undefined).on('close', () => target.destroy());
    });
    relay.listen(0, '127.0.0.1');
    await once(relay, 'listening');
    const address = relay.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    using client = await RawClient.connect(`https://127.0.0.1:${port}`);
    await client.write(GET);
    expect((await client.response()).status).toBe(200);
    relay.close();
  });

  test('that breaks HTTP gets the error of the gateway', async () => {
    const server = await start();
    const { response } = await server.say('GET / HTTP/9.9\r\n\r\n');
    expect([response.status, errorCode(response)]).toEqual([400, 'invalid_http']);
  });

  test('may end its side and still read the answer', async () => {
    const server = await start({
      routes: (own) =>
        own.route('GET', '/slow', async (exchange) => {
          await pause(100);
          answerJson(exchange, 200, { slow: true });
        }),
    });
    const socket = await handshake(server);
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.end('GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n');
    await within(once(socket, 'close'), 'the end');
    expect(String(Buffer.concat(chunks))).toContain('{"slow":true}');
  });

  test('that leaves without a request, or in the middle of one, leaves nothing behind', async () => {
    const server = await start();
    for (const bytes of [
      '',
      'GET /hea',
      'POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf',
    ]) {
      const socket = await handshake(server);
      if (bytes !== '') socket.write(bytes);
      await pause(20);
      socket.destroy();
    }
    await until(async () => (await server.openConnections()) === 0, 'the end of the connections');
    await server.idle();
    expect(server.log).not.toContain('"level":"error"');
  });
});

describe('a client that speaks plain HTTP', () => {
  test.each([
    'GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n',
    'POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 100000\r\n\r\n',
  ])('is told so in plain HTTP', async (head) => {
    const server = await start();
    using client = await RawClient.connect(server.port);
    await client.write(head);
    if (head.startsWith('POST')) await client.write('x'.repeat(100_000));
    const response = await client.response();
    expect([response.status, errorCode(response)]).toEqual([400, 'invalid_http']);
    expect(response.text()).toContain('https://');
    await within(client.closed, 'the end of the connection');
    await until(async () => (await failures(server, 'plain_http')) === 1, 'the count');
  });

  test('or neither of both is closed', async () => {
    const server = await start({ headersTimeout: 300 });
    for (const bytes of ['\0\0\0\0', 'get / http/1.1\r\n\r\n', Buffer.from('80', 'hex')]) {
      const socket = await plain(server);
      socket.write(bytes);
      socket.resume();
      socket.end();
      await within(once(socket, 'close'), 'the end of the connection');
    }
    await until(async () => (await server.openConnections()) === 0, 'no connection');
  });
});

describe('a handshake', () => {
  test.each<[string, Buffer]>([
    ['that does not begin', Buffer.alloc(0)],
    ['that stops in the middle', HELLO_START],
  ])('%s is ended at the deadline for headers, and counts as a connection until then', async (_, bytes) => {
    const server = await start({ headersTimeout: 300 });
    const socket = await plain(server);
    if (bytes.length > 0) socket.write(bytes);
    await until(async () => (await server.openConnections()) === 1, 'the connection');
    socket.resume();
    await within(once(socket, 'end'), 'the end of the connection');
    await until(async () => (await failures(server, 'timeout')) === 1, 'the count');
    expect(await server.openConnections()).toBe(0);
    socket.destroy();
  });

  test('that drips does not outlast the deadline', async () => {
    const server = await start({ headersTimeout: 300 });
    const socket = await plain(server);
    let isOver = false;
    socket
      .resume()
      .once('close', () => (isOver = true))
      .once('end', () => socket.end());
    for (let sent = 0; !isOver; sent += 1) {
      if (sent < HELLO_START.length) socket.write(HELLO_START.subarray(sent, sent + 1));
      else if (socket.writable) socket.write(Buffer.of(0));
      await pause(20);
      expect(sent).toBeLessThan(1000);
    }
    await until(async () => (await failures(server, 'timeout')) === 1, 'the count');
  });

  test('is followed by the deadline for headers', async () => {
    const server = await start({ headersTimeout: 300 });
    using client = RawClient.over(await handshake(server));
    await client.write('GET /health HTTP/1.1\r\nho');
    const response = await client.response();
    expect([response.status, errorCode(response)]).toEqual([408, 'request_timeout']);
    using silent = RawClient.over(await handshake(server));
    await within(silent.closed, 'the end of the connection without a request');
  });

  test('that is not complete takes one of the connections', async () => {
    const server = await start({ maxConnections: 3 });
    const silent = await Promise.all([plain(server), plain(server), plain(server)]);
    await until(async () => (await server.openConnections()) === 3, 'the connections');
    expect(await refusedHandshake(server, {})).not.toBe('secure');
    for (const socket of silent) socket.destroy();
    await until(async () => (await server.openConnections()) === 0, 'room');
    expect((await server.say(GET)).response.status).toBe(200);
  });

  test('of many clients at once is done for each', async () => {
    const server = await start();
    const statuses = await Promise.all(
      Array.from({ length: 60 }, async () => (await server.say(GET)).response.status),
    );
    expect(new Set(statuses)).toEqual(new Set([200]));
  });

  test('of a port probe is not counted as failed', async () => {
    const server = await start();
    const socket = await plain(server);
    socket.end();
    await within(once(socket.resume(), 'close'), 'the end');
    await until(async () => (await server.openConnections()) === 0, 'no connection');
    for (const cause of ['failed', 'timeout', 'plain_http']) expect(await failures(server, cause)).toBe(0);
  });
});

describe('a new certificate', () => {
  test('is used by new handshakes, and running connections live on', async () => {
    const server = await start();
    const serialOf = (socket: TLSSocket) => socket.getPeerX509Certificate()?.fingerprint256;
    const before = await handshake(server);
    using kept = RawClient.over(before);
    await kept.write(GET);
    expect((await kept.response()).status).toBe(200);
    const next = makeCertificate();
    server.server.certificate = next;
    const after = await handshake(server, { ca: next.cert });
    expect(serialOf(after)).not.toBe(serialOf(before));
    using renewed = RawClient.over(after);
    for (const client of [kept, renewed]) {
      await client.write(GET);
      expect((await client.response()).status).toBe(200);
    }
    expect(await refusedHandshake(server, {})).toBe('DEPTH_ZERO_SELF_SIGNED_CERT');
  });

  test('that is the same keeps sessions that can be resumed', async () => {
    const server = await start();
    const options: ConnectionOptions = { maxVersion: 'TLSv1.2' };
    const first = await handshake(server, options);
    const session = first.getSession();
    first.destroy();
    server.server.certificate = { ...certificate };
    const again = await handshake(server, session === undefined ? options : { ...options, session });
    expect(again.isSessionReused()).toBe(true);
    again.destroy();
    const expiry = (await server.metrics.tls.expiry.get()).values[0]?.value ?? 0;
    expect(Math.abs(expiry - Date.now() / 1000 - 86_400)).toBeLessThan(120);
  });

  test('that cannot be used throws, and the one before stays', async () => {
    const server = await start();
    expect(() => {
      server.server.certificate = { cert: certificate.cert, key: makeCertificate().key };
    }).toThrow();
    expect((await server.say(GET)).response.status).toBe(200);
  });
});

describe('a drain', () => {
  test('lets running answers end, closes what waits, and does not wait for handshakes', async () => {
    const server = await start({
      routes: (own) =>
        own.route('GET', '/slow', async (exchange) => {
          await pause(500);
          answerJson(exchange, 200, { slow: true });
        }),
    });
    using running = await server.connect();
    await running.write('GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n');
    const idle = await handshake(server);
    const silent = await plain(server);
    silent.write(HELLO_START);
    await until(() => server.server.inFlight === 1, 'the request');
    const drained = server.server.drain(0, 20_000);
    const response = await running.response();
    expect([response.status, response.complete, response.header('connection')]).toEqual([200, true, 'close']);
    await within(drained, 'the drain', 15_000);
    idle.destroy();
    silent.destroy();
  });

  test('that is cut ends all at once', async () => {
    const server = await start({
      routes: (own) => own.route('GET', '/never', () => new Promise(() => undefined)),
    });
    using running = await server.connect();
    await running.write('GET /never HTTP/1.1\r\nhost: localhost\r\n\r\n');
    const silent = await plain(server);
    await until(() => server.server.inFlight === 1, 'the request');
    const drained = server.server.drain(0, 60_000);
    server.server.endAll();
    await within(drained, 'the drain', 15_000);
    expect(await server.openConnections()).toBe(0);
    silent.destroy();
  });
});
