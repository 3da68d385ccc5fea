// When requests with compressed bodies are rejected because too many wait to be decoded: the decision with a clock of its own, and the
// answers over real connections.
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readBody } from '../../src/http/body/read-body.ts';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { DecodeQueue } from '../../src/http/pieces/decode-queue.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { until } from '../helpers/wait.ts';
import { errorCode, Served, type ServedOptions } from './served.ts';

const SLOTS = 16;

interface Process {
  /** Bodies that it can decode in a second. */
  readonly capacity: number;
  /** Of each 100 ms the milliseconds in which it runs; then it works faster, so that the capacity is the same. Default 100. */
  readonly activeMs?: number;
}

/** A process that decodes bodies, all of which cost the same. */
class Simulation {
  now = 0;
  decoded = 0;
  rejected = 0;
  /** Of those decoded, from arrival to the end, with the time of the end. */
  readonly waits: { readonly at: number; readonly ms: number }[] = [];
  readonly queue = new DecodeQueue(() => this.now);
  readonly #stepMs: number;
  readonly #activeMs: number;
  /** Arrivals of those that are decoded now, in order. */
  readonly #running: number[] = [];
  #workedUntil = 0;

  constructor({ capacity, activeMs = 100 }: Process) {
    this.#activeMs = activeMs;
    this.#stepMs = (1000 / capacity) * (activeMs / 100);
  }

  /** `rate` requests a second for `ms`. */
  load(rate: number, ms: number): void {
    const end = this.now + ms;
    for (let due = this.now; due < end; due += 1000 / rate) {
      this.#workTo(due);
      this.arrive();
    }
    this.#workTo(end);
  }

  arrive(count = 1): void {
    for (let i = 0; i < count; i += 1) {
      const since = this.now;
      if (this.queue.shouldReject()) this.rejected += 1;
      else
        this.queue.enter((isLate) => {
          if (isLate) this.rejected += 1;
          else {
            if (this.#running.length === 0) this.#workedUntil = Math.max(this.#workedUntil, this.now);
            this.#running.push(since);
          }
          return !isLate;
        });
    }
  }

  #workTo(time: number): void {
    while (this.#running.length > 0) {
      let start = this.#workedUntil;
      if (start % 100 >= this.#activeMs) start += 100 - (start % 100);
      if (start + this.#stepMs > time) break;
      this.now = this.#workedUntil = start + this.#stepMs;
      const since = this.#running.shift() ?? this.now;
      this.decoded += 1;
      this.waits.push({ at: this.now, ms: this.now - since });
      this.queue.leave();
    }
    this.now = time;
  }
}

describe('a queue of compressed bodies', () => {
  test('decodes sixteen at a time and the others in order of arrival', () => {
    const queue = new DecodeQueue(() => 0);
    const started: number[] = [];
    for (let i = 0; i < 40; i += 1)
      queue.enter(() => {
        started.push(i);
        return true;
      });
    expect(started).toEqual(Array.from({ length: SLOTS }, (_, i) => i));
    for (let i = 0; i < 24; i += 1) queue.leave();
    expect(started).toEqual(Array.from({ length: 40 }, (_, i) => i));
  });

  test('goes on to the next where a client has left', () => {
    const queue = new DecodeQueue(() => 0);
    const started: number[] = [];
    for (let i = 0; i < SLOTS; i += 1) queue.enter(() => true);
    for (let i = 0; i < 100; i += 1)
      queue.enter(() => {
        started.push(i);
        return i === 99;
      });
    queue.leave();
    expect(started).toHaveLength(100);
  });

  test.each([
    ['a slow process', { capacity: 30 }],
    ['a process with half a processor', { capacity: 600, activeMs: 50 }],
    ['a process with a twentieth of a processor', { capacity: 60, activeMs: 5 }],
    ['a fast process', { capacity: 5_000 }],
  ] as const)('of %s at three times its capacity decodes as many as it can, in time', (_name, process) => {
    const simulation = new Simulation(process);
    simulation.load(process.capacity * 3, 4_000);
    const before = simulation.decoded;
    const start = simulation.now;
    simulation.load(process.capacity * 3, 10_000);
    expect(simulation.decoded - before).toBeGreaterThan(process.capacity * 10 * 0.98);
    const waits = simulation.waits.filter(({ at }) => at > start).map(({ ms }) => ms);
    // The longest is that of sixteen bodies behind the wait in the queue.
    expect(waits.reduce((longest, ms) => Math.max(longest, ms), 0)).toBeLessThan(
      800 + (2 * SLOTS * 1000) / process.capacity,
    );
    expect(simulation.queue.isOverloaded).toBe(true);
  });

  test('rejects nothing of any burst that is decoded within a second and a half', () => {
    const cases = fc.record({
      capacity: fc.integer({ min: 10, max: 5_000 }),
      activeMs: fc.integer({ min: 20, max: 100 }),
      bursts: fc.integer({ min: 1, max: 4 }),
    });
    fc.assert(
      fc.property(cases, ({ bursts, ...process }) => {
        const simulation = new Simulation(process);
        for (let i = 0; i < bursts; i += 1) {
          simulation.arrive(Math.floor(process.capacity * 1.3));
          simulation.load(process.capacity / 1000, 3_000);
        }
        expect(simulation.rejected).toBe(0);
      }),
    );
  });

  test('rejects nothing at a load below the capacity, however long it lasts', () => {
    for (const activeMs of [5, 50, 100]) {
      const simulation = new Simulation({ capacity: 600, activeMs });
      simulation.load(570, 60_000);
      expect([simulation.rejected, simulation.queue.isOverloaded]).toEqual([0, false]);
    }
  });

  test('decodes everything again when the load has fallen', () => {
    const simulation = new Simulation({ capacity: 600, activeMs: 50 });
    simulation.load(3_000, 10_000);
    simulation.load(400, 1_000);
    const { rejected } = simulation;
    simulation.load(400, 6_000);
    expect(simulation.rejected).toBe(rejected);
    expect(simulation.queue.isOverloaded).toBe(false);
  });

  test('reports its longest wait and what was rejected, once', () => {
    const simulation = new Simulation({ capacity: 600 });
    simulation.load(1_800, 5_000);
    const report = simulation.queue.takeReport();
    expect(report.rejected).toBe(simulation.rejected);
    expect(report.waitMs).toBeGreaterThan(500);
    expect(simulation.queue.takeReport()).toEqual({ waitMs: 0, rejected: 0 });
  });
});

/** A listener with a route under /v1. */
function startServed(options: ServedOptions = {}): Promise<Served> {
  return Served.start({
    ...options,
    routes: (server, { begun }) =>
      server.route('POST', '/v1/echo', async (exchange) => {
        begun.push(exchange);
        answerJson(exchange, 200, { bytes: (await readBody(exchange, 1_000_000)).length });
      }),
  });
}

const BODY = gzipSync(Buffer.alloc(300_000));
const FIELDS = 'content-encoding: gzip\r\n';
const head = (fields: string, length = BODY.length) =>
  `POST /v1/echo HTTP/1.1\r\nhost: a\r\n${fields}content-length: ${length}\r\n\r\n`;
const call = (fields = FIELDS) => Buffer.concat([Buffer.from(head(fields)), BODY]);

/** As `startServed`, with too many bodies that wait. */
async function startFull(options: ServedOptions = {}): Promise<Served> {
  const served = await startServed(options);
  Object.assign(served.server.decodeQueue, { shouldReject: () => true });
  Object.defineProperty(served.server.decodeQueue, 'isFull', { value: true });
  return served;
}

describe('while too many compressed bodies wait', () => {
  test('a request with one is rejected and counted before anything is done for it, and its connection stays open', async () => {
    await using served = await startFull();
    using client = await served.connect();
    for (let i = 0; i < 3; i += 1) {
      await client.write(call());
      const response = await client.response();
      expect([response.status, errorCode(response), response.complete]).toEqual([503, 'overloaded', true]);
      expect(Number(response.header('retry-after-ms'))).toBeGreaterThanOrEqual(2_000);
      expect(response.header('connection')).toBe('keep-alive');
    }
    expect((await client.ask({ method: 'POST', target: '/v1/echo', body: {} })).status).toBe(200);
    expect([served.begun.length, served.ended.length]).toEqual([1, 1]);
    const page = await served.metrics.registry.metrics();
    expect(page).toContain('tollgate_requests_total{route="none",status="503"} 3');
  });

  test('a request is rejected whose body comes later, and the next one is understood', async () => {
    await using served = await startFull();
    using client = await served.connect();
    await client.write(head(FIELDS));
    expect((await client.response()).status).toBe(503);
    await client.write(BODY.subarray(0, 10));
    await client.write(
      Buffer.concat([BODY.subarray(10), Buffer.from('GET /health HTTP/1.1\r\nhost: a\r\n\r\n')]),
    );
    expect((await client.response()).status).toBe(200);
  });

  test('requests behind each other on one connection are answered in order', async () => {
    await using served = await startFull();
    using client = await served.connect();
    const health = Buffer.from('GET /health HTTP/1.1\r\nhost: a\r\n\r\n');
    await client.write(Buffer.concat([call(), health, call(), health]));
    await until(() => client.responses.length === 4, 'four answers');
    // Behind a request that is served, one takes its turn.
    expect(client.responses.map(({ status }) => status)).toEqual([503, 200, 200, 200]);
  });

  test.each([
    ['a plain body', ''],
    ['the error object of another API', `${FIELDS}anthropic-version: 2023-06-01\r\n`],
    ['a page of another origin', `${FIELDS}origin: https://a.example\r\n`],
    ['an expectation', `${FIELDS}expect: 100-continue\r\n`],
  ])('a request with %s takes its turn', async (_name, fields) => {
    await using served = await startFull();
    const { response } = await served.say(call(fields));
    expect(response.status).toBe(200);
  });
});

describe('while too many compressed bodies wait, a connection that is opened for one request', () => {
  const CLOSE = `${FIELDS}connection: close\r\n`;

  test('is rejected before its request is parsed, counted and closed', async () => {
    await using served = await startFull();
    // A parser would answer 400.
    const { response, client } = await served.say(call(`${CLOSE}not a field\r\n`));
    expect([response.status, errorCode(response), response.complete]).toEqual([503, 'overloaded', true]);
    expect(Number(response.header('retry-after-ms'))).toBeGreaterThanOrEqual(2_000);
    expect(response.header('connection')).toBe('close');
    expect(await client.closed).toBe('fin');
    expect(served.begun).toEqual([]);
    const page = await served.metrics.registry.metrics();
    expect(page).toContain('tollgate_requests_total{route="none",status="503"} 1');
  });

  test('is rejected for a target in absolute form, too', async () => {
    await using served = await startFull();
    for (const fields of [`${CLOSE}not a field\r\n`, FIELDS]) {
      const bytes = call(fields).toString('latin1').replace('/v1', 'http://gateway:8080/v1');
      const { response } = await served.say(Buffer.from(bytes, 'latin1'));
      expect([response.status, errorCode(response)]).toEqual([503, 'overloaded']);
    }
    expect(served.begun).toEqual([]);
  });

  test('is rejected in TLS, too', async () => {
    await using served = await startFull({ certificate: makeCertificate() });
    const { response, client } = await served.say(call(CLOSE));
    expect([response.status, errorCode(response)]).toEqual([503, 'overloaded']);
    await client.closed;
  });

  test.each([
    ['a plain body', call('connection: close\r\n')],
    ['the error object of another API', call(`${CLOSE}anthropic-version: 2023-06-01\r\n`)],
    ['a page of another origin', call(`${CLOSE}Origin: https://a.example\r\n`)],
    ['an expectation', call(`${CLOSE}expect: 100-continue\r\n`)],
    ['a health check', Buffer.from('GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')],
  ])('is served for a request with %s', async (_name, bytes) => {
    await using served = await startFull();
    const { response } = await served.say(bytes);
    expect(response.status).toBe(200);
  });

  test('is rejected by its parsed request when that comes in pieces', async () => {
    await using served = await startFull();
    using client = await served.connect();
    const bytes = call(CLOSE);
    await client.segments([bytes.subarray(0, 30), bytes.subarray(30)], 5);
    expect(errorCode(await client.response())).toBe('overloaded');
  });

  test('is served when its client was silent before', async () => {
    await using served = await startFull();
    using client = await served.connect();
    await until(async () => (await served.openConnections()) === 1, 'it to be served');
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('is closed when its client leaves without a request', async () => {
    await using served = await startFull();
    using client = await served.connect();
    client.halfClose();
    await client.closed;
    expect(await served.openConnections()).toBe(0);
  });
});

test('a compressed body whose turn comes too late is rejected, and its connection stays open', async () => {
  await using served = await startServed();
  const { decodeQueue } = served.server;
  const enter = decodeQueue.enter.bind(decodeQueue);
  Object.assign(decodeQueue, { enter: (start: (isLate: boolean) => boolean) => void start(true) });
  using client = await served.connect();
  await client.write(call());
  const response = await client.response();
  expect([response.status, errorCode(response)]).toEqual([503, 'overloaded']);
  expect(response.header('connection')).toBe('keep-alive');
  Object.assign(decodeQueue, { enter });
  await client.write(call());
  expect((await client.response()).json()).toEqual({ bytes: 300_000 });
});

test('compressed bodies of any number of clients are decoded, also when some clients leave meanwhile', async () => {
  await using served = await startServed();
  const clients = await Promise.all(Array.from({ length: 3 * SLOTS }, () => served.connect()));
  await Promise.all(clients.map((client) => client.write(call())));
  const left = clients.filter((_, i) => i % 3 === 0);
  for (const client of left) client.destroy();
  for (const client of clients) {
    if (left.includes(client)) continue;
    expect((await client.response()).json()).toEqual({ bytes: 300_000 });
    client.destroy();
  }
  await served.idle();
  const { response } = await served.say(call());
  expect(response.status).toBe(200);
});
