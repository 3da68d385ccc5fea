// The cable itself: each of its states, seen from a client that talks to an echoing server.
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { startCable } from './cable.ts';
import { pause, until } from './wait.ts';

/** A server that says everything twice, and its port. */
async function startEcho(): Promise<AsyncDisposable & { port: number; received(): string }> {
  let received = '';
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      received += bytes.toString();
      socket.write(bytes);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  return {
    port: address.port,
    received: () => received,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

function talk(port: number) {
  const socket = connect(port, '127.0.0.1');
  const heard = { text: '', isClosed: false, code: '' };
  socket.on('data', (bytes) => {
    heard.text += bytes.toString();
  });
  socket.on('error', (error) => {
    heard.code = 'code' in error ? String(error.code) : '';
  });
  socket.on('close', () => {
    heard.isClosed = true;
  });
  return { socket, heard };
}

test('it passes bytes, in order, also when they are late', async () => {
  await using echo = await startEcho();
  await using cable = await startCable(echo.port);
  const { socket, heard } = talk(cable.port);
  socket.write('a');
  await until(() => heard.text === 'a');
  const before = performance.now();
  await cable.delay(60);
  socket.write('b');
  await until(() => heard.text === 'ab');
  // Both directions; timers may come a little early.
  expect(performance.now() - before).toBeGreaterThan(110);
  socket.write('c');
  await until(() => echo.received() === 'abc');
  socket.write('d');
  await until(() => heard.text === 'abcd');
  expect(cable.accepted).toBe(1);
  socket.destroy();
  await until(() => cable.open === 0);
});

test('in the black hole nothing arrives and nobody is told, and what was lost stays lost', async () => {
  await using echo = await startEcho();
  await using cable = await startCable(echo.port);
  const before = talk(cable.port);
  before.socket.write('a');
  await until(() => before.heard.text === 'a');
  cable.blackHole();
  before.socket.write('b');
  const during = talk(cable.port);
  await once(during.socket, 'connect');
  during.socket.write('c');
  await until(() => cable.swallowed === 2);
  cable.pass();
  const after = talk(cable.port);
  after.socket.write('d');
  await until(() => after.heard.text === 'd');
  before.socket.write('e');
  after.socket.write('f');
  await until(() => after.heard.text === 'df');
  expect(before.heard).toEqual({ text: 'a', isClosed: false, code: '' });
  expect(during.heard).toEqual({ text: '', isClosed: false, code: '' });
  expect(echo.received()).toBe('adf');
  for (const { socket } of [before, during, after]) socket.destroy();
});

test('cut, it ends connections and refuses new ones, until it passes again', async () => {
  await using echo = await startEcho();
  await using cable = await startCable(echo.port);
  const before = talk(cable.port);
  before.socket.write('a');
  await until(() => before.heard.text === 'a');
  await cable.cut();
  await until(() => before.heard.isClosed);
  const during = talk(cable.port);
  await until(() => during.heard.isClosed);
  expect(during.heard.code).toBe('ECONNREFUSED');
  await until(async () => {
    cable.pass();
    const after = talk(cable.port);
    after.socket.write('b');
    return await until(() => after.heard.text === 'b', 'an echo', 2000).finally(() => after.socket.destroy());
  });
});

test('when it delays less than before, nothing overtakes what was sent first', async () => {
  await using echo = await startEcho();
  await using cable = await startCable(echo.port);
  const { socket, heard } = talk(cable.port);
  for (const [index, letter] of [...'abcdefgh'].entries()) {
    await cable.delay(80 - index * 10);
    socket.write(letter);
    await pause(5);
  }
  cable.pass();
  socket.write('i');
  await until(() => heard.text.length === 9);
  expect(heard.text).toBe('abcdefghi');
  socket.destroy();
});
