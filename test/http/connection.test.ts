// One connection: requests in order and one at a time, clients that half-close, leave or do not read, and idle ones.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readBody } from '../../src/http/body/read-body.ts';
import type { Exchange } from '../../src/http/exchange/exchange.ts';
import { answer, answerJson } from '../../src/http/exchange/response-writer.ts';
import { pause, until } from '../helpers/wait.ts';
import { errorCode, Served, type ServedOptions } from './served.ts';

const GET = 'GET /health HTTP/1.1\r\nhost: a\r\n\r\n';
const get = (target: string, ...fields: string[]) =>
  [`GET ${target} HTTP/1.1`, 'host: a', ...fields, '', ''].join('\r\n');

/** `/held` waits until it is let go, and counts how many wait at a time. */
class Held {
  readonly exchanges: Exchange[] = [];
  most = 0;
  stopped = 0;
  #open: (() => void)[] = [];

  readonly options: ServedOptions = {
    routes: (server) => {
      server.route('GET', '/held', (exchange) => this.#hold(exchange));
      server.route('POST', '/held', async (exchange) => {
        const body = await readBody(exchange, 1_000_000);
        await this.#hold(exchange, body.length);
      });
    },
  };

  get waiting(): number {
    return this.#open.length;
  }

  release(): void {
    for (const open of this.#open.splice(0)) open();
  }

  async #hold(exchange: Exchange, bytes = 0): Promise<void> {
    this.exchanges.push(exchange);
    exchange.onStop(() => {
      this.stopped += 1;
    });
    await new Promise<void>((resolve) => {
      this.#open.push(resolve);
      this.most = Math.max(this.most, this.#open.length);
      exchange.onStop(() => resolve());
    });
    this.#open = this.#open.filter((open) => open !== undefined);
    exchange.throwIfStopped();
    answerJson(exchange, 200, { target: exchange.target, bytes });
  }
}

describe('pipelining', () => {
  test('500 requests at once are answered in order', async () => {
    await using served = await Served.start();
    using client = await served.connect();
    await client.write(Array.from({ length: 500 }, (_, i) => get(`/health?n=${i}`)).join(''));
    for (let i = 0; i < 500; i += 1) {
      expect((await client.response()).json()).toMatchObject({ target: `/health?n=${i}` });
    }
    await served.idle();
  });

  test('one that waits, and whose body the client did not end, is given up when its turn comes', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    const torn = 'connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 80\r\n\r\nhalf a body';
    await client.write(`${get('/held')}POST /held HTTP/1.1\r\nhost: a\r\n${torn}`);
    await until(() => held.waiting === 1);
    client.halfClose();
    // The FIN has been seen when the first is asked whether its client is still there.
    await until(() => client.received.bytes.includes('102 Processing'));
    const before = performance.now();
    held.release();
    await client.closed;
    // Not by the deadline for bodies, which is 30 s.
    expect(performance.now() - before).toBeLessThan(20_000);
    await served.idle();
    expect(held.exchanges).toHaveLength(1);
  });

  test('one is in flight at a time', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    await client.write(Array.from({ length: 30 }, (_, i) => get(`/held?n=${i}`)).join(''));
    for (let i = 0; i < 30; i += 1) {
      await until(() => held.exchanges.length > i);
      expect(served.server.inFlight).toBe(1);
      held.release();
      expect((await client.response()).json()).toMatchObject({ target: `/held?n=${i}` });
    }
    expect(held.most).toBe(1);
  });

  test('bodies of waiting requests are kept apart', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    const sizes = [5, 0, 200_000, 1, 70_000];
    const sent = Promise.all(
      sizes.map((size) =>
        client.write(
          Buffer.concat([
            Buffer.from(`POST /held HTTP/1.1\r\nhost: a\r\ncontent-length: ${size}\r\n\r\n`),
            Buffer.alloc(size),
          ]),
        ),
      ),
    );
    for (const [index, bytes] of sizes.entries()) {
      await until(() => held.exchanges.length > index);
      held.release();
      expect((await client.response()).json()).toMatchObject({ bytes });
    }
    await sent;
  });

  test('a client that asks for ever more without an answer loses its connection', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    await client.write(get('/held') + GET.repeat(900));
    await until(() => held.waiting === 1);
    await client.write(GET.repeat(200)).catch(() => undefined);
    await client.closed;
    await served.idle();
    expect(held.stopped).toBe(1);
    expect(served.begun).toHaveLength(0);
  });

  test('when the client leaves, waiting requests never begin', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    const client = await served.connect();
    await client.write(get('/held') + get('/held') + get('/held'));
    await until(() => held.waiting === 1);
    client.reset();
    await served.idle();
    expect(held.exchanges).toHaveLength(1);
    expect(held.stopped).toBe(1);
    expect(served.ended).toHaveLength(1);
    expect(served.ended[0]).toMatchObject({ stopped: 'client_closed' });
  });

  test('behind a request that closes the connection none begins', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    await client.write(get('/health', 'connection: close') + get('/held'));
    expect((await client.response()).status).toBe(200);
    expect(await client.closed).toBe('fin');
    await served.idle();
    expect(held.exchanges).toHaveLength(0);
  });

  test('behind a request that the edge refuses none begins', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    await client.write(get('/health', 'content_length: 1') + get('/held'));
    expect((await client.response()).status).toBe(400);
    await client.closed;
    await served.idle();
    expect(held.exchanges).toHaveLength(0);
  });

  test('garbage behind a request does not cost its answer', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    await client.write(`${get('/held')}${get('/health')}garbage\r\n\r\n`);
    await until(() => held.waiting === 1);
    await client.write('more garbage');
    held.release();
    expect((await client.response()).json()).toMatchObject({ target: '/held' });
    expect((await client.response()).status).toBe(200);
    expect(errorCode(await client.response())).toBe('invalid_http');
    expect(await client.closed).toBe('fin');
    await served.idle();
  });

  test('a waiting request whose body was cut by FIN is not waited for', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    await client.write(`${get('/held')}POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc`);
    client.halfClose();
    await until(() => held.waiting === 1);
    await client.readUntil('102 Processing');
    held.release();
    expect((await client.response()).status).toBe(200);
    expect(errorCode(await client.response())).toBe('invalid_http');
    await client.closed;
    await served.idle();
  });

  test('the 1000th request on a connection is its last', async () => {
    await using served = await Served.start();
    using client = await served.connect();
    await client.write(GET.repeat(600));
    for (let i = 0; i < 1_000; i += 1) {
      if (i === 600) await client.write(GET.repeat(600));
      const response = await client.response();
      expect(response.status).toBe(200);
      expect(response.header('connection')).toBe(i < 999 ? 'keep-alive' : 'close');
    }
    await client.closed;
    expect(client.responses).toHaveLength(1_000);
    await served.idle();
  });

  test('many connections that pipeline much cannot fill the memory', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    const flood = get('/held') + GET.repeat(900);
    const clients = await Promise.all(Array.from({ length: 30 }, () => served.connect()));
    await until(async () => (await served.openConnections()) === 30);
    await Promise.all(clients.map((client) => client.write(flood).catch(() => undefined)));
    // 27,000 wait; places are for 10,000, so some connections are closed.
    await until(async () => (await served.openConnections()) < 30);
    using other = await served.connect();
    expect((await other.ask({ method: 'GET', target: '/health' })).status).toBe(200);
    for (const client of clients) client.destroy();
    await served.idle();
    // The places are free again.
    using last = await served.connect();
    await last.write(GET.repeat(500));
    for (let i = 0; i < 500; i += 1) expect((await last.response()).status).toBe(200);
  });
});

describe('a client that half-closes', () => {
  test('gets the answer that is ready', async () => {
    await using served = await Served.start();
    using client = await served.connect();
    await client.write(GET);
    client.halfClose();
    expect((await client.response()).status).toBe(200);
    expect(await client.closed).toBe('fin');
    await served.idle();
  });

  test('gets the answer that takes a while, after a sign that the gateway is there', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    await client.write(get('/held'));
    client.halfClose();
    await client.readUntil('HTTP/1.1 102 Processing\r\n\r\n');
    held.release();
    const response = await client.response();
    expect([response.status, response.complete]).toEqual([200, true]);
    expect(await client.closed).toBe('fin');
    await served.idle();
  });

  test('with HTTP/1.0 gets its answer and no 1xx', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    using client = await served.connect();
    await client.write('GET /held HTTP/1.0\r\n\r\n');
    client.halfClose();
    await until(() => held.waiting === 1);
    await pause(50);
    held.release();
    const response = await client.response();
    expect([response.status, response.interim]).toEqual([200, []]);
  });

  test('gets the answers to all that it had asked', async () => {
    await using served = await Served.start();
    using client = await served.connect();
    await client.write(GET.repeat(20));
    client.halfClose();
    for (let i = 0; i < 20; i += 1) expect((await client.response()).status).toBe(200);
    expect(await client.closed).toBe('fin');
    await served.idle();
  });

  test('is asked by the writer of a stream, once one has begun', async () => {
    let probes = 0;
    await using served = await Served.start({
      routes: (server) => {
        server.route('GET', '/stream', (exchange) => {
          exchange.response.writeHead(200, exchange.headers);
          exchange.response.write('a');
          exchange.probe = () => {
            probes += 1;
            if (probes === 2) exchange.response.end('b');
          };
        });
      },
    });
    using client = await served.connect();
    await client.write(get('/stream'));
    const response = await client.responseHead();
    client.halfClose();
    await response.ended;
    expect([response.text(), response.complete, probes]).toEqual(['ab', true, 2]);
  });
});

describe('a client that leaves', () => {
  test.each(['FIN', 'RST'])('during the work (%s) stops it', async (how) => {
    const held = new Held();
    await using served = await Served.start(held.options);
    const client = await served.connect();
    await client.write(get('/held'));
    await until(() => held.waiting === 1);
    if (how === 'FIN') client.destroy();
    else client.reset();
    await served.idle();
    expect(held.stopped).toBe(1);
    await until(async () => (await served.openConnections()) === 0);
    expect(served.ended).toHaveLength(1);
    expect(served.log).not.toContain('a handler failed');
  });

  test.each([
    ['before a byte', ''],
    ['in the request line', 'GET /hea'],
    ['in the headers', 'GET /health HTTP/1.1\r\nhost: a\r\nx'],
    ['after the answer', GET],
  ])('%s leaves nothing behind', async (_when, bytes) => {
    await using served = await Served.start();
    for (const how of ['fin', 'reset'] as const) {
      const client = await served.connect();
      if (bytes !== '') await client.write(bytes);
      if (bytes === GET) await client.response();
      if (how === 'fin') client.halfClose();
      else client.reset();
      await until(async () => (await served.openConnections()) === 0);
      client.destroy();
    }
    await served.idle();
  });

  test('200 of them at random moments leave the gateway well', async () => {
    const held = new Held();
    await using served = await Served.start(held.options);
    await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        const client = await served.connect();
        await client.write(get('/held') + get('/health').slice(0, i % 30));
        await pause((i * 7) % 40);
        if (i % 2 === 0) client.reset();
        else client.destroy();
      }),
    );
    await served.idle();
    await until(async () => (await served.openConnections()) === 0);
    using client = await served.connect();
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });
});

describe('silence', () => {
  test('an answer that takes longer than the write stall is not cut', async () => {
    const held = new Held();
    await using served = await Served.start({ ...held.options, writeStall: 100 });
    using client = await served.connect();
    await client.write(get('/held'));
    await until(() => held.waiting === 1);
    await pause(450);
    held.release();
    expect((await client.response()).status).toBe(200);
  });

  test('a new write stall is that of connections without a request, and not of idle ones', async () => {
    await using served = await Served.start({ writeStall: 60_000 });
    using unused = await served.connect();
    using idle = await served.connect();
    expect((await idle.ask({ method: 'GET', target: '/health' })).status).toBe(200);
    served.server.writeStall = 100;
    expect(await unused.closed).toBe('fin');
    await pause(300);
    expect((await idle.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('a stream that is silent for longer than the write stall is not cut', async () => {
    await using served = await Served.start({
      writeStall: 100,
      routes: (server) => {
        server.route('GET', '/stream', async ({ response, headers }) => {
          response.writeHead(200, headers);
          for (const piece of ['a', 'b', 'c']) {
            response.write(piece);
            await pause(350);
          }
          response.end('d');
        });
      },
    });
    using client = await served.connect();
    await client.write(get('/stream'));
    const response = await client.response();
    expect([response.text(), response.complete]).toEqual(['abcd', true]);
  });

  test('a JSON answer that is not read is cut after the write stall', async () => {
    await using served = await Served.start({
      writeStall: 200,
      routes: (server) => {
        server.route('GET', '/large', (exchange) => answer(exchange, 200, {}, Buffer.alloc(30_000_000)));
      },
    });
    const client = await served.connect();
    client.pause();
    await client.write(get('/large'));
    await until(() => served.ended.length === 1);
    expect(served.ended[0]).toMatchObject({ stopped: 'client_closed' });
    await served.idle();
    client.destroy();
  });

  test('a slow reader that reads is not cut', async () => {
    await using served = await Served.start({
      writeStall: 300,
      routes: (server) => {
        server.route('GET', '/large', (exchange) => answer(exchange, 200, {}, Buffer.alloc(12_000_000)));
      },
    });
    using client = await served.connect();
    await client.write(get('/large'));
    const response = await client.responseHead();
    while (!response.complete && served.ended.length === 0) {
      client.pause();
      await pause(60);
      client.resume();
      await pause(2);
    }
    await response.ended;
    expect(response.body.length).toBe(12_000_000);
  });

  test('a connection that never asks is closed without a word', async () => {
    await using served = await Served.start({ headersTimeout: 200 });
    using client = await served.connect();
    await client.closed;
    expect(client.received.bytes).toHaveLength(0);
    const { values } = await served.metrics.requests.get();
    expect(values).toEqual([]);
  });

  test('headers that come too slowly get 408', async () => {
    await using served = await Served.start({ headersTimeout: 300 });
    using client = await served.connect();
    await client.write('GET /health HTTP/1.1\r\n');
    const drip = (async () => {
      for (const byte of 'host: a\r\nx-slow: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy') {
        await client.write(byte);
        await pause(50);
      }
    })().catch(() => undefined);
    const response = await client.response();
    expect([response.status, errorCode(response)]).toEqual([408, 'request_timeout']);
    expect(response.header('connection')).toBe('close');
    await client.closed;
    client.destroy();
    await drip;
  });

  test('slow headers of a second request get 408 and do not cost the first its answer', async () => {
    const held = new Held();
    await using served = await Served.start({ ...held.options, headersTimeout: 200 });
    using client = await served.connect();
    await client.write(`${get('/held')}GET /hea`);
    await until(() => held.waiting === 1);
    await pause(1_500);
    held.release();
    expect((await client.response()).json()).toMatchObject({ target: '/held' });
    expect(errorCode(await client.response())).toBe('request_timeout');
    await client.closed;
  });

  test('an idle connection is kept for longer than balancers keep theirs, and is not bound by the headers timeout', async () => {
    await using served = await Served.start({ headersTimeout: 200 });
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: '/health' });
    const timeout = /timeout=(\d+)/.exec(response.header('keep-alive') ?? '')?.[1];
    expect(Number(timeout)).toBeGreaterThan(60);
    await pause(1_500);
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('an idle connection is kept for as long as is set, also beyond the write stall, and then closed', async () => {
    await using served = await Served.start({ keepAlive: 2_000, writeStall: 200 });
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: '/health' });
    expect(response.header('keep-alive')).toBe('timeout=2');
    await pause(600);
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
    expect(await client.closed).toBe('fin');
  });
});

describe('many connections', () => {
  let served: Served;
  beforeAll(async () => {
    served = await Served.start({ maxConnections: 50 });
  });
  afterAll(async () => {
    await served[Symbol.asyncDispose]();
  });

  test('more than the limit are refused and said so once, and places come back', async () => {
    const idle = await Promise.all(Array.from({ length: 50 }, () => served.connect()));
    await until(async () => (await served.openConnections()) === 50);
    const refused = await Promise.all(Array.from({ length: 5 }, () => served.connect()));
    await Promise.all(refused.map((client) => client.closed));
    expect(served.log.match(/rejecting connections/g)).toHaveLength(1);
    for (const client of idle.slice(0, 10)) client.destroy();
    await until(async () => (await served.openConnections()) === 40);
    using client = await served.connect();
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
    for (const each of [...idle, ...refused]) each.destroy();
    await until(async () => (await served.openConnections()) <= 1);
  });
});
