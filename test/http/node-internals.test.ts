// What the gateway uses of Node beyond its documentation, each against Node itself: a version of Node that changes it fails here.
// That a worker stays after its primary has ended is shown in test/process/workers.test.ts.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { expect, test } from 'vitest';
import {
  allowHalfOpen,
  fixGlobals,
  forgetHead,
  frameChunksByHand,
  interceptConnections,
  keepsConnection,
  readInto,
  responseFor,
  setKeepsConnection,
} from '../../src/http/exchange/node-internals.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { until, within } from '../helpers/wait.ts';

const GET = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';

/** A server on a free port that ends with the test. */
async function serve(listener?: RequestListener) {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Object.assign(server, {
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  });
}

/** Sends bytes and reads until the server closes, or until `isEnough`. */
async function exchange(server: Server, bytes: string, isEnough?: (text: string) => boolean, fin = false) {
  const { port } = server.address() as AddressInfo;
  const socket = connect(port, '127.0.0.1');
  let text = '';
  let isClosed = false;
  socket.on('data', (piece) => {
    text += piece.toString('latin1');
  });
  socket.on('end', () => {
    isClosed = true;
  });
  socket.on('error', () => {
    isClosed = true;
  });
  if (fin) socket.end(bytes);
  else socket.write(bytes);
  await until(() => isClosed || isEnough?.(text) === true, 'the answer');
  socket.destroy();
  return { text, isClosed };
}

test.each([true, false])(
  'a client that sent FIN is answered only where half-open is allowed: %s',
  async (isAllowed) => {
    await using server = await serve((request, response) => {
      request.socket.once('end', () => setTimeout(() => response.end('late'), 50));
      request.resume();
    });
    if (isAllowed) allowHalfOpen(server);
    const { text } = await exchange(server, GET, undefined, true);
    expect(text.includes('late')).toBe(isAllowed);
  },
);

test('nothing of a connection is parsed before it is handed to the parser', async () => {
  let requests = 0;
  await using server = await serve((_request, response) => {
    requests += 1;
    response.end('served');
  });
  const waiting: (() => void)[] = [];
  interceptConnections(server, (socket, read) => {
    socket.once('readable', () => waiting.push(() => read(socket)));
  });
  const answer = exchange(server, GET, (text) => text.includes('served'));
  await until(() => waiting.length === 1, 'the bytes of the request');
  expect(requests).toBe(0);
  waiting[0]?.();
  expect((await answer).text).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(requests).toBe(1);
});

test('a request with an upgrade gets a response that is complete on the wire', async () => {
  await using server = await serve();
  server.on('upgrade', (request: IncomingMessage) => {
    const response = responseFor(request);
    response.once('finish', () => request.socket.end());
    response.writeHead(426, { 'content-length': 2 });
    response.end('no');
  });
  const bytes = 'GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n';
  const { text, isClosed } = await exchange(server, bytes);
  expect(text).toMatch(/^HTTP\/1\.1 426 Upgrade Required\r\ncontent-length: 2\r\n(.+\r\n)*\r\nno$/);
  expect(isClosed).toBe(true);
});

test.each([
  ['as it is', [], 'keep-alive'],
  ['ended', [false], 'close'],
  ['ended, and not after all', [false, true], 'keep-alive'],
] as const)('a connection that is %s', async (_name, settings, connection) => {
  const kept: boolean[] = [];
  await using server = await serve((_request, response) => {
    kept.push(keepsConnection(response));
    for (const keeps of settings) setKeepsConnection(response, keeps);
    kept.push(keepsConnection(response));
    response.end('ok');
  });
  // Node closes a connection itself only after `close`.
  const isOver = (text: string) => connection === 'keep-alive' && text.endsWith('\r\n\r\nok');
  const { text, isClosed } = await exchange(server, GET, isOver);
  expect(text.toLowerCase()).toContain(`\r\nconnection: ${connection}\r\n`);
  expect(isClosed).toBe(connection === 'close');
  expect(kept).toEqual([true, connection === 'keep-alive']);
});

test('chunks written by hand are on the wire as they are, and Node adds none', async () => {
  await using server = await serve((_request, response) => {
    response.writeHead(200, { 'transfer-encoding': 'chunked' });
    frameChunksByHand(response);
    response.write('5\r\nfirst\r\n');
    response.end('0\r\n\r\n');
  });
  const both = GET + GET;
  const { text } = await exchange(server, both, (received) => received.split('0\r\n\r\n').length === 3);
  expect(text.match(/\r\n\r\n5\r\nfirst\r\n0\r\n\r\n/g)).toHaveLength(2);
  expect(text).not.toContain('0\r\n\r\n0\r\n\r\n');
});

test('a head that is forgotten was sent once, and counts as sent', async () => {
  const seen: unknown[] = [];
  await using server = await serve((_request, response) => {
    response.writeHead(200, { 'content-length': '8', 'x-kept': 'no' });
    response.write('text');
    forgetHead(response);
    seen.push(
      response.headersSent,
      Object.values(response).some((value) => typeof value === 'string' && value.includes('x-kept')),
    );
    response.end('more');
  });
  const { text } = await exchange(server, GET + GET, (received) => received.split('textmore').length === 3);
  expect(text.match(/x-kept: no\r\n/g)).toHaveLength(2);
  expect(text.match(/\r\n\r\ntextmore/g)).toHaveLength(2);
  expect(seen).toEqual([true, false, true, false]);
});

test.each(['TCP', 'TLS'])('a socket of %s reads into the buffer, and is named in each call', async (kind) => {
  const isTls = kind === 'TLS';
  const server = isTls ? createTlsServer(makeCertificate()) : createTcpServer();
  server.on(isTls ? 'secureConnection' : 'connection', (socket) => socket.on('error', () => {}).end('bytes'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const buffer = Buffer.alloc(1024);
  const reads: [object, string][] = [];
  const onread = readInto(buffer, (socket, bytes, length) => {
    reads.push([socket, bytes.toString('latin1', 0, length)]);
    expect(bytes).toBe(buffer);
  });
  const options = { port, host: '127.0.0.1', onread };
  const socket = isTls ? connectTls({ ...options, rejectUnauthorized: false }) : connect(options);
  await within(once(socket, 'close'), 'the end');
  server.close();
  expect(reads.map(([, text]) => text).join('')).toBe('bytes');
  expect(reads.every(([one]) => one === socket)).toBe(true);
});

test.each(['Buffer', 'performance'] as const)(
  'the global `%s` has a getter, and is a plain property afterwards',
  (name) => {
    const before = Object.getOwnPropertyDescriptors(globalThis);
    const value = globalThis[name];
    try {
      fixGlobals();
      expect(before[name]).toMatchObject({ get: expect.any(Function), set: expect.any(Function) });
      const { enumerable } = before[name] ?? {};
      expect(Object.getOwnPropertyDescriptor(globalThis, name)).toEqual({
        value,
        writable: true,
        configurable: true,
        enumerable,
      });
    } finally {
      for (const each of ['Buffer', 'performance'] as const)
        Object.defineProperty(globalThis, each, before[each] ?? {});
    }
  },
);
