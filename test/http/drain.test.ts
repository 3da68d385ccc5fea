// Shutting down: what runs ends whole, what idles is closed, and what lasts too long is cut so that its client can tell.
import { describe, expect, test } from 'vitest';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { pause, until } from '../helpers/wait.ts';
import { errorCode, Served, type ServedOptions } from './served.ts';

const get = (target: string) => `GET ${target} HTTP/1.1\r\nhost: a\r\n\r\n`;

/** `/slow` answers when it is let go or stopped, `/stream` streams until then, `/deaf` hears of no stop. */
function slowRoutes(): { options: ServedOptions; release: () => void; running: () => number } {
  const open: (() => void)[] = [];
  const hold = () => new Promise<void>((resolve) => open.push(resolve));
  const options: ServedOptions = {
    routes: (server) => {
      server.route('GET', '/slow', async (exchange) => {
        const held = hold();
        await Promise.race([held, new Promise<void>((resolve) => exchange.onStop(() => resolve()))]);
        exchange.throwIfStopped();
        answerJson(exchange, 200, { ok: true });
      });
      server.route('GET', '/stream', async (exchange) => {
        const { response } = exchange;
        response.writeHead(200, { ...exchange.headers, 'content-type': 'text/event-stream' });
        response.write('data: 1\n\n');
        const held = hold();
        await Promise.race([held, new Promise<void>((resolve) => exchange.onStop(() => resolve()))]);
        if (exchange.stopReason === undefined) response.end('data: [DONE]\n\n');
        else {
          // Node collects the chunks of one turn: what is to be read has to be written before the socket is ended.
          const { socket } = response;
          response.write(`data: ${exchange.stopReason.code}\n\n`, () => socket?.destroySoon());
        }
      });
      server.route('GET', '/deaf', async (exchange) => {
        await hold();
        answerJson(exchange, 200, { ok: true });
      });
    },
  };
  return {
    options,
    release: () => {
      for (const resolve of open.splice(0)) resolve();
    },
    running: () => open.length,
  };
}

describe('a drain', () => {
  test('lets running answers end whole and closes their connections', async () => {
    const { options, release, running } = slowRoutes();
    const served = await Served.start(options);
    using json = await served.connect();
    using stream = await served.connect();
    await json.write(get('/slow'));
    await stream.write(get('/stream'));
    const streamed = await stream.responseHead();
    await until(() => running() === 2);
    const drained = served.server.drain(0, 60_000);
    expect(served.server.draining).toBe(true);
    await pause(50);
    release();
    const answered = await json.response();
    expect([answered.json(), answered.header('connection')]).toEqual([{ ok: true }, 'close']);
    await streamed.ended;
    expect([streamed.text(), streamed.complete]).toEqual(['data: 1\n\ndata: [DONE]\n\n', true]);
    expect(await json.closed).toBe('fin');
    expect(await stream.closed).toBe('fin');
    await drained;
    expect(served.server.inFlight).toBe(0);
    await expect(served.connect()).rejects.toThrow();
  });

  test('closes idle connections at once', async () => {
    const served = await Served.start();
    using fresh = await served.connect();
    using used = await served.connect();
    await used.ask({ method: 'GET', target: '/health' });
    await until(async () => (await served.openConnections()) === 2);
    const drained = served.server.drain(0, 60_000);
    await Promise.all([fresh.closed, used.closed]);
    await drained;
  });

  test('is not held up by headers that never end', async () => {
    const served = await Served.start();
    using client = await served.connect();
    await client.write('GET /health HTTP/1.1\r\nhost');
    await until(async () => (await served.openConnections()) === 1);
    await pause(30);
    const drained = served.server.drain(0, 60_000);
    await client.closed;
    await drained;
  });

  test('still answers a request whose headers were on their way', async () => {
    const { options } = slowRoutes();
    const served = await Served.start(options);
    using client = await served.connect();
    await client.write('GET /health HTTP/1.1\r\nhost');
    await until(async () => (await served.openConnections()) === 1);
    await pause(30);
    const drained = served.server.drain(0, 60_000);
    await client.write(': a\r\n\r\n');
    const response = await client.response();
    expect([response.status, response.header('connection')]).toEqual([200, 'close']);
    await drained;
  });

  test('is not held up by a client that does not take its refusal', async () => {
    const served = await Served.start();
    using client = await served.connect();
    await client.write('POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n');
    await client.response();
    await served.server.drain(0, 60_000);
  });

  test('still takes requests for its delay, says so in the answers and has connections closed', async () => {
    const { options } = slowRoutes();
    const served = await Served.start(options);
    const drained = served.server.drain(60_000, 60_000);
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: '/health' });
    expect([response.status, response.header('connection')]).toEqual([200, 'close']);
    expect(await client.closed).toBe('fin');
    served.server.endAll();
    await drained;
  });

  test('in its delay: an answer that was being made says that it is the last on its connection', async () => {
    const { options, release, running } = slowRoutes();
    const served = await Served.start(options);
    using client = await served.connect();
    await client.write(get('/slow'));
    await until(() => running() === 1);
    const drained = served.server.drain(60_000, 60_000);
    release();
    const response = await client.response();
    expect([response.json(), response.header('connection')]).toEqual([{ ok: true }, 'close']);
    expect(await client.closed).toBe('fin');
    served.server.endAll();
    await drained;
  });

  test.each([0, 60_000])(
    'with a delay of %d ms: of requests sent at once, only the last is told so',
    async (delay) => {
      const { options, release, running } = slowRoutes();
      const served = await Served.start(options);
      using client = await served.connect();
      await client.write(get('/slow'));
      await until(() => running() === 1);
      const drained = served.server.drain(delay, 60_000);
      await client.write(`${get('/health')}${get('/health')}`);
      // Time for both of them to come and to wait behind the first.
      await pause(100);
      release();
      const answers = [await client.response(), await client.response(), await client.response()];
      expect(answers.map((each) => each.status)).toEqual([200, 200, 200]);
      expect(answers.map((each) => each.header('connection'))).toEqual(['keep-alive', 'keep-alive', 'close']);
      expect(await client.closed).toBe('fin');
      served.server.endAll();
      await drained;
    },
  );

  test('cuts what still runs at its timeout, so that the client can tell', async () => {
    const { options, running } = slowRoutes();
    const served = await Served.start(options);
    using json = await served.connect();
    using stream = await served.connect();
    using deaf = await served.connect();
    await json.write(get('/slow'));
    await stream.write(get('/stream'));
    await deaf.write(get('/deaf'));
    const streamed = await stream.responseHead();
    await until(() => running() === 3);
    await served.server.drain(0, 300);
    const answered = await json.response();
    expect([answered.status, errorCode(answered)]).toEqual([503, 'draining']);
    expect(answered.header('retry-after')).toBe('1');
    await streamed.ended;
    expect([streamed.text(), streamed.complete]).toEqual(['data: 1\n\ndata: draining\n\n', false]);
    await deaf.closed;
    expect(deaf.responses).toHaveLength(0);
    expect(served.server.inFlight).toBe(0);
  });

  test('ends at once when it is hurried, also in its delay', async () => {
    for (const delay of [0, 60_000]) {
      const { options, running } = slowRoutes();
      const served = await Served.start(options);
      using client = await served.connect();
      await client.write(get('/slow'));
      await until(() => running() > 0);
      const drained = served.server.drain(delay, 60_000);
      served.server.endAll();
      expect(errorCode(await client.response())).toBe('draining');
      await drained;
    }
  });

  test('refuses what comes on open connections after it was hurried', async () => {
    const { options, running } = slowRoutes();
    const served = await Served.start(options);
    using client = await served.connect();
    await client.write(`${get('/deaf')}${get('/health')}`);
    await until(() => running() === 1);
    const drained = served.server.drain(0, 60_000);
    served.server.endAll();
    await client.closed;
    await drained;
    expect(served.begun).toHaveLength(0);
  });

  test('of a server that never listened ends', async () => {
    const served = await Served.start();
    await served.server.drain(0, 0);
    await served.server.drain(0, 0);
  });
});
