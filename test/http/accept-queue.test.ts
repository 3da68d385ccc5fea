// When new connections are rejected because they waited too long: the decision with a clock and a queue of its own, and the
// length of a real one.
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AcceptQueue, BACKLOG } from '../../src/http/accept/accept-queue.ts';
import { backlogLength } from '../../src/http/accept/backlog.ts';
import { until } from '../helpers/wait.ts';

/** A process that accepts one connection per tick, from a queue as the kernel has it. */
class Simulation {
  now = 0;
  cpuMs = 0;
  waiting = 0;
  served = 0;
  rejected = 0;
  longestWait = 0;
  /** Waits of served connections, and the shortest of a rejected one. */
  readonly servedWaits: number[] = [];
  shortestRejected = Number.POSITIVE_INFINITY;
  readonly queue: AcceptQueue;
  /** Times of arrival. */
  readonly #arrivals: number[] = [];
  #tickEnd: (() => void)[] = [];

  constructor(length?: () => number | undefined, open?: () => number, isRejecting?: () => boolean) {
    this.queue = new AcceptQueue({
      length: length ?? (() => this.#arrivals.length),
      ...(open === undefined ? {} : { open }),
      ...(isRejecting === undefined ? {} : { isRejecting }),
      now: () => this.now,
      cpuTime: () => this.cpuMs,
      atTickEnd: (callback) => this.#tickEnd.push(callback),
    });
  }

  get length(): number {
    return this.#arrivals.length;
  }

  arrive(count: number): void {
    for (let i = 0; i < count && this.#arrivals.length <= BACKLOG; i += 1) this.#arrivals.push(this.now);
  }

  /** @param ms by which the clock moves on when a connection is served, with this share of it as CPU time */
  tick(ms: number, share: number, rejectMs = ms / 10): void {
    const arrived = this.#arrivals.shift();
    let took = 0.1;
    if (arrived !== undefined) {
      this.longestWait = Math.max(this.longestWait, this.now - arrived);
      const isRejected = this.queue.accept();
      const waited = this.now - arrived;
      if (isRejected) {
        this.rejected += 1;
        this.shortestRejected = Math.min(this.shortestRejected, waited);
      } else {
        this.served += 1;
        this.servedWaits.push(waited);
      }
      took = isRejected ? rejectMs : ms;
    }
    this.now += took;
    this.cpuMs += took * share;
    for (const callback of this.#tickEnd.splice(0)) callback();
  }

  /** `rate` new connections a second for `forMs`. */
  load(rate: number, forMs: number, serveMs: number, share: number): void {
    const end = this.now + forMs;
    let due = this.now;
    while (this.now < end) {
      while (due <= this.now) {
        this.arrive(1);
        due += 1000 / rate;
      }
      this.tick(serveMs, share);
    }
  }
}

describe('the accept queue', () => {
  test('of a process that is short of CPU is kept short, and serves again as soon as the load falls', () => {
    const process = new Simulation();
    process.load(200, 10_000, 20, 0.05);
    expect(process.longestWait).toBeLessThan(1_500);
    expect(process.served).toBeGreaterThan(150);
    expect(process.queue.isOverloaded).toBe(true);
    const { served } = process;
    process.load(40, 3_000, 20, 0.05);
    expect(process.served - served).toBeGreaterThan(80);
    expect(process.length).toBeLessThan(20);
    process.load(40, 5_000, 20, 0.05);
    expect(process.queue.isOverloaded).toBe(false);
  });

  test.each([
    ['short of CPU', 0.05, 20],
    ['with its CPU', 1, 2],
  ])(
    'of a process %s is served from without a pause under any overload: who waited too long is rejected, no one else',
    (_, share, serveMs) => {
      const process = new Simulation();
      const rate = 3_000 / serveMs;
      // Until rejecting has begun, and the queue has been cut.
      process.load(rate, 8_000, serveMs, share);
      const { served } = process;
      process.servedWaits.length = 0;
      let longestPause = 0;
      let servedAt = process.now;
      const end = process.now + 10_000;
      while (process.now < end) {
        const before = process.served;
        process.load(rate, serveMs, serveMs, share);
        if (process.served === before) continue;
        longestPause = Math.max(longestPause, process.now - servedAt);
        servedAt = process.now;
      }
      // What rejecting the rest leaves: two thirds of the load at a tenth of the time of serving.
      expect(process.served - served).toBeGreaterThan((10_000 / serveMs) * 0.7);
      expect(longestPause).toBeLessThan(20 * serveMs);
      expect(Math.max(...process.servedWaits)).toBeLessThan(750);
      expect(process.shortestRejected).toBeGreaterThan(500);
    },
  );

  test('knows the wait of each connection to an eighth of a second, and never overestimates it', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ count: fc.nat(60), ms: fc.integer({ min: 1, max: 40 }) }), {
          minLength: 1,
          maxLength: 400,
        }),
        (steps) => {
          const process = new Simulation();
          for (const { count, ms } of steps) {
            process.arrive(count);
            const seen = process.servedWaits.length;
            process.tick(ms, 1);
            const waited = process.servedWaits[seen];
            if (waited === undefined) continue;
            expect(process.queue.waitMs).toBeLessThanOrEqual(waited);
            expect(process.queue.waitMs).toBeGreaterThanOrEqual(waited - 125 - 2 * 40);
          }
        },
      ),
    );
  });

  test('rejects nothing of a burst, whether it is served at once or by a process short of CPU', () => {
    for (const [serveMs, share] of [
      [0.5, 1],
      [2, 1],
      [2.5, 0.1],
    ] as const) {
      const process = new Simulation();
      process.arrive(BACKLOG);
      while (process.length > 0) process.tick(serveMs, share);
      expect(process.rejected).toBe(0);
    }
  });

  test.each([
    [0.1, 60],
    [0.1, 250],
    [1, 400],
    [1, 1_000],
  ])(
    'rejects nothing of clients that wait for their answers, with a share of %f of a processor: %d',
    (share, clients) => {
      fc.assert(
        fc.property(
          fc.integer({ min: 5, max: 15 }),
          fc.integer({ min: 1, max: 400 }),
          fc.nat(),
          (serveMs, answerMs, seed) => {
            const answered: number[] = [];
            const process = new Simulation(undefined, () => answered.length);
            let chance = seed;
            process.arrive(clients);
            while (process.now < 15_000) {
              const { served } = process;
              process.tick(serveMs, share);
              chance = (chance * 1_103_515_245 + 12_345) % 2 ** 31;
              // Upstreams answer in batches, and each client asks again at once.
              if (process.served > served)
                answered.push(Math.ceil((process.now + (chance % answerMs)) / 200) * 200);
              const due = answered.filter((at) => at <= process.now);
              if (due.length === 0) continue;
              answered.splice(0, answered.length, ...answered.filter((at) => at > process.now));
              process.arrive(due.length);
            }
            expect(process.rejected).toBe(0);
          },
        ),
        { numRuns: 20 },
      );
    },
  );

  test('rejects nothing where every tick finds a connection and none waits for long', () => {
    const process = new Simulation();
    process.arrive(20);
    while (process.now < 60_000) {
      process.tick(5, 0.1);
      process.arrive(1);
    }
    expect([process.rejected, process.length]).toEqual([0, 20]);
  });

  test('of a process that has its CPU may be late for a second and a half, and no more', () => {
    const process = new Simulation();
    process.load(200, 30_000, 20, 1);
    expect(process.rejected).toBeGreaterThan(0);
    expect(process.longestWait).toBeGreaterThan(1_500);
    expect(process.longestWait).toBeLessThan(6_500);
  });

  test('is cut as soon as it is late where accepted requests are rejected already, and no burst is', () => {
    const process = new Simulation(undefined, undefined, () => true);
    process.arrive(BACKLOG - 1);
    while (process.length > 0) process.tick(0.6, 1);
    expect(process.rejected).toBe(0);
    process.load(200, 30_000, 20, 1);
    expect(process.rejected).toBeGreaterThan(0);
    expect(process.longestWait).toBeLessThan(1_500);
  });

  test('that empties within an overload is not late for as long again', () => {
    const process = new Simulation();
    process.load(1_500, 6_000, 2, 1);
    process.load(10, 2_000, 2, 1);
    expect(process.length).toBe(0);
    process.servedWaits.length = 0;
    process.load(1_500, 4_000, 2, 1);
    expect(Math.max(...process.servedWaits)).toBeLessThan(900);
  });

  test('is served from again after three seconds where rejecting does not make it shorter', () => {
    const process = new Simulation();
    let longest = 0;
    let inRow = 0;
    while (process.now < 60_000) {
      process.arrive(BACKLOG);
      const { rejected } = process;
      process.tick(50, 0.1, 50);
      inRow = process.rejected > rejected ? inRow + 1 : 0;
      longest = Math.max(longest, inRow);
    }
    expect(process.served).toBeGreaterThan(process.rejected / 10);
    expect(longest * 50).toBeLessThan(3_500);
  });

  test('rejects nothing where the system does not say how long it is', () => {
    const process = new Simulation(() => undefined);
    process.load(200, 10_000, 20, 0.05);
    expect([process.rejected, process.queue.isOverloaded]).toEqual([0, false]);
  });

  test('reports its longest wait and what was rejected, once', () => {
    const process = new Simulation();
    process.load(200, 5_000, 20, 0.05);
    const report = process.queue.takeReport();
    expect(report.waitMs).toBeGreaterThan(500);
    expect(report.rejected).toBe(process.rejected);
    expect(process.queue.takeReport()).toEqual({ waitMs: 0, rejected: 0 });
  });

  test('is empty and serves within seconds after any load', () => {
    const phase = fc.record({
      rate: fc.integer({ min: 1, max: 2_000 }),
      ms: fc.integer({ min: 1, max: 3_000 }),
      serveMs: fc.integer({ min: 1, max: 100 }),
      share: fc.double({ min: 0.01, max: 1, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.array(phase, { maxLength: 6 }), (phases) => {
        const process = new Simulation();
        for (const { rate, ms, serveMs, share } of phases) process.load(rate, ms, serveMs, share);
        // It can serve a hundred a second now, and gets ten.
        process.load(10, 12_000, 10, 0.05);
        const { rejected } = process;
        process.load(10, 2_000, 10, 0.05);
        expect([process.rejected - rejected, process.length]).toEqual([0, 0]);
      }),
      { numRuns: 60 },
    );
  });
});

test.runIf(process.platform === 'linux')(
  'the length of a real accept queue is what waits in it',
  async () => {
    const server = createServer((socket) => socket.destroy());
    server.listen(0, '127.0.0.1', 100);
    await once(server, 'listening');
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
    expect(backlogLength(address)).toBe(0);
    const clients: Socket[] = [];
    // Within one tick nothing is accepted; the kernel makes the connections meanwhile.
    for (let i = 0; i < 3; i += 1)
      clients.push(connect(address.port, '127.0.0.1').on('error', () => undefined));
    await new Promise((resolve) => process.nextTick(resolve));
    const end = performance.now() + 10_000;
    while (backlogLength(address) !== 3 && performance.now() < end);
    expect(backlogLength(address)).toBe(3);
    await until(() => backlogLength(address) === 0, 'the queue to be empty');
    for (const client of clients) client.destroy();
    server.close();
    await once(server, 'close');
    expect(backlogLength(address)).toBeUndefined();
  },
);
