// Load that is meant to hurt: clients that do not read, crowds that say nothing, very large bodies. What it costs others is
// measured and printed; only what must not happen is asserted.
import { once } from 'node:events';
import { Agent, request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  frame,
  HostileUpstream,
  SSE_HEADERS,
} from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';
import { Served } from './served.ts';

const PIECE = Buffer.alloc(64 * 1024, 'x');

test('a stream that is not read stops its source, and is cut after the write stall', async () => {
  let written = 0;
  await using served = await Served.start({
    writeStall: 400,
    routes: (server) => {
      server.route('GET', '/flood', async (exchange) => {
        const { response } = exchange;
        response.writeHead(200, exchange.headers);
        while (exchange.stopReason === undefined) {
          written += PIECE.length;
          if (response.write(PIECE)) continue;
          await new Promise<void>((resolve) => {
            response.once('drain', resolve);
            exchange.onStop(() => resolve());
          });
        }
      });
    },
  });
  const client = await served.connect();
  client.pause();
  await client.send({ method: 'GET', target: '/flood' });
  await until(() => served.ended.length === 1);
  expect(served.ended[0]).toMatchObject({ stopped: 'client_closed' });
  // What the kernel takes on both sides, and one buffer of Node's.
  expect(written).toBeLessThan(24 * 1024 * 1024);
  await served.idle();
  client.destroy();
});

test('an upstream that floods is read only as fast as the client reads', async () => {
  await using upstream = await HostileUpstream.start();
  await using gateway = await startGateway({ upstreams: { one: upstream.baseUrl } });
  const block = Buffer.from(frame(contentChunk('y'.repeat(16 * 1024))));
  const chunk = Buffer.concat([Buffer.from(`${block.length.toString(16)}\r\n`), block, Buffer.from('\r\n')]);
  upstream.next([(c) => c.head(200, SSE_HEADERS), (c) => c.flood(chunk, 200 * 1024 * 1024)]);
  const client = await gateway.open(chatRequest({ stream: true }));
  client.pause();
  const { bytesSent: before } = await upstream.request(0);
  const request = await upstream.request(0);
  let sent = before;
  await until(async () => {
    const last = request.bytesSent;
    await pause(300);
    sent = request.bytesSent;
    return sent > 0 && sent === last;
  });
  expect(sent).toBeLessThan(40 * 1024 * 1024);
  client.reset();
  await until(async () => (await gateway.metric('tollgate_requests_in_flight')) === 0);
  await until(() => upstream.answering === 0);
});

test('a crowd of silent and slow connections does not keep others from being served', async () => {
  await using served = await Served.start({ headersTimeout: 1_000 });
  const alone = await latencies(served.url, 100);
  const before = process.memoryUsage().rss;
  const crowd = await Promise.all(Array.from({ length: 2_000 }, (_, i) => open(served.port, i % 2 === 0)));
  await until(async () => (await served.openConnections()) >= 1_500);
  const growth = process.memoryUsage().rss - before;
  const dripping = setInterval(() => {
    for (const socket of crowd) if (socket.writable) socket.write('x');
  }, 200);
  const beside = await latencies(served.url, 100);
  // All of them are gone when their time is over.
  await until(async () => (await served.openConnections()) < 10);
  clearInterval(dripping);
  for (const socket of crowd) socket.destroy();
  console.log(
    `/health alone p50 ${alone.p50} p99 ${alone.p99} ms, beside 2000 idle and slow connections p50 ${beside.p50} p99 ${beside.p99} ms; ` +
      `${Math.round(growth / 2_000 / 1024)} KiB a connection, both ends`,
  );
});

test('bodies of 20 MiB leave room for small requests', async () => {
  await using gateway = await startGateway({ process: true, env: { LOG_LEVEL: 'warn' } });
  const body = Buffer.from(
    JSON.stringify({
      model: 'test-model',
      messages: [{ role: 'user', content: 'lorem ipsum '.repeat(1_750_000) }],
    }),
  );
  const alone = await latencies(gateway.url, 200);
  let over = false;
  let chats = 0;
  const load = (async () => {
    while (!over) {
      const response = await gateway.chat(body);
      expect(response.status).toBe(200);
      chats += 1;
    }
  })();
  const beside = await latencies(gateway.url, 200, () => chats >= 5);
  over = true;
  await load;
  const ratio = (beside.p99 / alone.p99).toFixed(1);
  console.log(
    `/health alone p50 ${alone.p50} p99 ${alone.p99} ms, beside ${chats} chats of ${(body.length / 2 ** 20).toFixed(0)} MiB ` +
      `p50 ${beside.p50} p99 ${beside.p99} ms: ${ratio} times`,
  );
});

test('SIGTERM lets a stream end whole, a second one ends it visibly, and the process ends with 0', async () => {
  await using upstream = await HostileUpstream.start();
  for (const signals of [1, 2]) {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    upstream.next([
      (c) => c.head(200, SSE_HEADERS),
      (c) => c.chunk(frame(contentChunk('a'))),
      (c) => c.waitFor(held),
      (c) => c.chunk(`${frame(contentChunk('b'))}data: [DONE]\n\n`),
      (c) => c.lastChunk(),
    ]);
    await using gateway: Gateway = await startGateway({
      upstreams: { one: upstream.baseUrl },
      process: true,
    });
    using client = await gateway.open(chatRequest({ stream: true }));
    await client.readUntil('"a"');
    using idle = await gateway.connect();
    const exit = once(gateway.child, 'exit');
    gateway.child.kill('SIGTERM');
    // Its listener is closed when this one is.
    await idle.closed;
    if (signals === 2) gateway.child.kill('SIGTERM');
    else release();
    const response = await client.response();
    expect(response.complete).toBe(signals === 1);
    expect(response.text().includes('[DONE]')).toBe(signals === 1);
    expect(response.text().includes('"code":"draining"')).toBe(signals === 2);
    expect(await exit).toEqual([0, null]);
    release();
  }
});

/** A connection that says nothing, or the beginning of a request. */
function open(port: number, silent: boolean): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      if (!silent) socket.write('GET /health HTTP/1.1\r\nhost: a\r\nx-slow: ');
      resolve(socket);
    });
    socket.on('error', () => resolve(socket)).resume();
  });
}

/** Of at least `count` health requests one after the other, in milliseconds. */
async function latencies(
  url: string,
  count: number,
  enough: () => boolean = () => true,
): Promise<{ p50: number; p99: number }> {
  const agent = new Agent({ keepAlive: true });
  const times: number[] = [];
  for (let i = 0; i < count || !enough(); i += 1) {
    const started = performance.now();
    await new Promise<void>((resolve, reject) => {
      const request = httpRequest(`${url}/health`, { agent }, (response) => {
        expect(response.statusCode).toBe(200);
        response.resume().on('end', resolve);
      });
      request.on('error', reject).end();
    });
    times.push(performance.now() - started);
  }
  agent.destroy();
  times.sort((a, b) => a - b);
  const at = (share: number) => Number((times[Math.floor((times.length - 1) * share)] ?? 0).toFixed(1));
  return { p50: at(0.5), p99: at(0.99) };
}
