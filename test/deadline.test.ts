// An end to waiting: it is not brought about by what held up this process, and it comes all the same.
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
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

/**
 * The clock and the timers, played: the machine may hold up this process more than the test says. Sockets and immediates are real.
 * @returns holds it up for so many milliseconds; then the timers that are due run, before anything is read from sockets
 */
function playTime(): (ms: number) => void {
  let now = 0;
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  return (ms) => {
    now += ms;
    vi.advanceTimersByTime(ms);
  };
}
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

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
  const holdUp = playTime();
  for (let round = 0; round < 3; round += 1) {
    const answer = withDeadline(ask(6), 250, () => new Error('late'));
    holdUp(600);
    expect(await answer).toBe('aaaaaa');
  }
});

test('a wait that was held up ends after as much time again, at most its own', async () => {
  for (const [heldUp, more] of [
    [300, 50],
    [600, 250],
  ] as const) {
    const holdUp = playTime();
    let isLate = false;
    startDeadline(250, () => {
      isLate = true;
    });
    const passes = async (ms: number) => {
      holdUp(ms);
      await new Promise(setImmediate);
      return isLate;
    };
    expect([await passes(heldUp), await passes(more - 1), await passes(1)]).toEqual([false, false, true]);
    vi.useRealTimers();
  }
});

test('totals of a store that answers are not lost to what held up this process', async () => {
  const holdUp = playTime();
  const counters = new Counters();
  const expected = totals({ requests_per_day: 60, tokens_per_month: 7 });
  const seeds = new InitialTotals({
    read: async () => {
      await ask(3);
      return expected;
    },
    metrics: counters,
    deadlineMs: 250,
  });
  for (let round = 0; round < 3; round += 1) {
    const answer = seeds.read(holderScope(`holder-${round}`));
    holdUp(600);
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
  const holdUp = playTime();
  let late = 0;
  const stops = Array.from({ length: 4 }, () =>
    startDeadline(200, () => {
      late += 1;
    }),
  );
  // Before it is due, when it was due, when it goes on, and not at all.
  stops[0]?.();
  holdUp(350);
  stops[1]?.();
  await new Promise(setImmediate);
  stops[2]?.();
  holdUp(150);
  await new Promise(setImmediate);
  expect(late).toBe(1);
});
