// An end to waiting: it is not brought about by what held up this process, and it comes all the same.
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startDeadline, withDeadline } from '../src/deadline.ts';
import { InitialTotals } from '../src/limits/initial-totals.ts';
import { pause } from './helpers/wait.ts';
import { holderScope } from './limits/of-holder.ts';
import { Counters, totals } from './limits/setting.ts';

/** Another process would answer while this one is held up; what is written to a socket before is answered by the kernel. */
const server = createServer((socket) => {
  socket.on('error', () => {});
  socket.pipe(socket);
});
let socket: Socket;

beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  socket = connect(address.port, '127.0.0.1');
  await once(socket, 'connect');
});
afterAll(() => {
  socket.destroy();
  server.close();
});

/** Longer than twice the deadlines below, so that all of it is given back: another 250 ms for some bytes over loopback. */
const STALL_MS = 600;

function stall(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

/** A question that needs several answers of somebody who is in time. */
async function ask(answers: number): Promise<string> {
  let text = '';
  for (let number = 0; number < answers; number += 1) {
    socket.write('a');
    const [bytes] = await once(socket, 'data');
    text += String(bytes);
  }
  return text;
}

test('an answer that came while this process was held up is in time, as are those that follow from it', async () => {
  for (let round = 0; round < 3; round += 1) {
    const answer = withDeadline(ask(6), 250, () => new Error('late'));
    stall(STALL_MS);
    expect(await answer).toBe('aaaaaa');
  }
});

test('totals of a store that answers are not lost to what held up this process', async () => {
  const counters = new Counters();
  const expected = totals({ requests_per_day: 60, tokens_per_month: 7 });
  const seeds = new InitialTotals({
    read: async () => {
      await ask(3);
      return expected;
    },
    metrics: counters,
  });
  for (let round = 0; round < 3; round += 1) {
    const answer = seeds.read(holderScope(`holder-${round}`));
    stall(STALL_MS);
    expect(await answer).toEqual(expected);
  }
  expect(counters.seedFailures).toBe(0);
});

test('nobody is waited for without end, however often this process is held up', async () => {
  let isLate = false;
  startDeadline(20, () => {
    isLate = true;
  });
  for (let round = 0; round < 20 && !isLate; round += 1) {
    stall(60);
    await pause(1);
  }
  expect(isLate).toBe(true);
});

test('a wait that has ended ends nothing later', async () => {
  let late = 0;
  const stops = [200, 210, 220].map((ms) =>
    startDeadline(ms, () => {
      late += 1;
    }),
  );
  stall(350);
  stops[0]?.();
  await pause(0);
  stops[1]?.();
  await new Promise(setImmediate);
  stops[2]?.();
  await pause(300);
  expect(late).toBe(0);
});
