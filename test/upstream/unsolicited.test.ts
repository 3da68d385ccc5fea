// Bytes that an upstream sends without having been asked, on connections that are kept: they never become the answer to a
// request, and their origin gets no kept connections for a while.
import { once } from 'node:events';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, test } from 'vitest';
import { BodyPieces } from '../../src/http/pieces/body-pieces.ts';
import type { BodySource } from '../../src/http/pieces/body-source.ts';
import type { ConnectionPoolOptions } from '../../src/upstream/http/connection-pool.ts';
import { HttpTransport } from '../../src/upstream/http/http-transport.ts';
import { OriginQuarantine, OriginQuarantines } from '../../src/upstream/http/origin-quarantine.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { startGateway } from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json, type Script } from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

function open(origin: string, options: Partial<ConnectionPoolOptions> = {}): HttpTransport {
  const transport = new HttpTransport({ origin, connectTimeout: 20_000, connections: 100, ...options });
  closers.push(() => transport.close());
  return transport;
}

interface Heard {
  readonly text: string;
  /** How often the request was written. */
  readonly sent: number;
}

function ask(transport: HttpTransport, body: Buffer | BodySource): Promise<Heard> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let sent = 0;
    transport.send(
      { path: '/v1/chat/completions', headers: {}, body },
      {
        onSent: () => {
          sent += 1;
        },
        onHead() {},
        onData: (chunk) => chunks.push(chunk),
        onEnd: () => resolve({ text: Buffer.concat(chunks).toString(), sent }),
        onError: (error, delivery) => reject(new Error(`${error.code} ${delivery}`, { cause: error })),
      },
    );
  });
}

/** In a turn in which what was written before is not read any more before its end. */
const inOneTurn = (run: () => void): Promise<void> =>
  new Promise((resolve) =>
    setImmediate(() => {
      run();
      resolve();
    }),
  );

const answer = (text: string): string =>
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
const FOREIGN = answer('{"of":"somebody else"}');
const MINE = '{"of":"mine"}';
const mine: Script = (c) => c.send(answer(MINE));
const SMALL = Buffer.from('{}');

/** An upstream with one connection that has answered and rested. */
async function rested(upstream: HostileUpstream, transport: HttpTransport): Promise<void> {
  await ask(transport, SMALL);
  await until(() => upstream.sockets.some((socket) => socket.idle));
  await until(() => performance.now() - (upstream.requests.at(-1)?.headAt ?? 0) > 100);
}

describe('an upstream that answers each request a second time, 0 to 3 ms later', () => {
  const REQUESTS = 3_000;

  test('has at most two of 3,000 requests answered by another’s answer, and none once it was noticed', async () => {
    const worker = new Worker(new URL('./children/talkative-upstream.ts', import.meta.url), {
      workerData: { isTwice: true, mostMs: 3 },
    });
    closers.push(() => worker.terminate());
    const [port] = await once(worker, 'message');
    let noticed = 0;
    const transport = open(`http://127.0.0.1:${port}`, { onUnsolicited: () => (noticed += 1) });
    let next = 0;
    let foreign = 0;
    let foreignLater = 0;
    const client = async (): Promise<void> => {
      while (next < REQUESTS) {
        next += 1;
        const marker = `m${next}`;
        const isLater = noticed > 0;
        const { text } = await ask(transport, Buffer.from(JSON.stringify({ marker })));
        if (text === JSON.stringify({ marker })) continue;
        foreign += 1;
        if (isLater) foreignLater += 1;
      }
    };
    await Promise.all(Array.from({ length: 8 }, client));
    expect(noticed).toBeGreaterThan(0);
    expect(foreign).toBeLessThanOrEqual(2);
    expect(foreignLater).toBe(0);
  });
});

describe('bytes that come after a connection was taken and before its request is written', () => {
  const system = getCACertificates('default');
  afterEach(() => setDefaultCACertificates(system));

  test.each<[string, () => Buffer | BodySource]>([
    ['a small body', () => SMALL],
    ['a body of more than one piece', () => Buffer.alloc(300_000, ' ')],
    ['a large body', () => new BodyPieces([Buffer.alloc(300_000, ' '), Buffer.from('{}')])],
  ])('are not its answer: %s', async (_name, body) => {
    await using upstream = await HostileUpstream.start({ script: mine });
    const kinds: string[] = [];
    const transport = open(upstream.url, { onUnsolicited: (kind) => kinds.push(kind) });
    await rested(upstream, transport);
    const heard = Promise.withResolvers<Heard>();
    await inOneTurn(() => {
      void upstream.sockets[0]?.send(FOREIGN);
      ask(transport, body()).then(heard.resolve, heard.reject);
    });
    expect(await heard.promise).toEqual({ text: MINE, sent: 1 });
    expect(upstream.requests).toHaveLength(2);
    expect(upstream.requests[1]?.connection).toBe(1);
    expect(kinds).toEqual(['unsent']);
  });

  test('are not its answer over TLS either', async () => {
    const certificate = makeCertificate();
    setDefaultCACertificates([...system, certificate.cert]);
    await using upstream = await HostileUpstream.start({ script: mine, tls: certificate });
    const kinds: string[] = [];
    const transport = open(upstream.url, { onUnsolicited: (kind) => kinds.push(kind) });
    await rested(upstream, transport);
    const heard = Promise.withResolvers<Heard>();
    await inOneTurn(() => {
      void upstream.sockets[0]?.send(FOREIGN);
      ask(transport, SMALL).then(heard.resolve, heard.reject);
    });
    expect((await heard.promise).text).toBe(MINE);
    expect(kinds.length).toBe(1);
  });

  test('and the end of the connection costs no attempt either', async () => {
    await using upstream = await HostileUpstream.start({ script: mine });
    const transport = open(upstream.url);
    await rested(upstream, transport);
    const heard = Promise.withResolvers<Heard>();
    await inOneTurn(() => {
      upstream.sockets[0]?.close();
      ask(transport, SMALL).then(heard.resolve, heard.reject);
    });
    expect(await heard.promise).toEqual({ text: MINE, sent: 1 });
  });
});

describe('an origin that sent bytes which answer no request', () => {
  const FIVE_MINUTES = 5 * 60_000;

  test.each<[string, Script, string | undefined]>([
    ['on an idle connection', mine, FOREIGN],
    ['behind an answer', (c) => c.send(answer(MINE) + FOREIGN), undefined],
  ])('gets each request on a connection of its own for five minutes: %s', async (_name, first, later) => {
    await using upstream = await HostileUpstream.start({ script: mine });
    let now = 0;
    const heard: [string, number | undefined][] = [];
    const options = {
      now: () => now + performance.now(),
      onUnsolicited: (...about: [string, number | undefined]) => heard.push(about),
    };
    const transport = open(upstream.url, options);
    // One that is idle meanwhile is closed, too.
    await Promise.all([ask(transport, SMALL), ask(transport, SMALL)]);
    upstream.next(first);
    await ask(transport, SMALL);
    await until(() => upstream.sockets.every((socket) => socket.idle || !socket.open));
    if (later !== undefined) await upstream.sockets[0]?.send(later);
    await until(() => heard.length > 0);
    await until(() => upstream.openSockets === 0);
    expect(heard.map(([, ms]) => ms)).toEqual([FIVE_MINUTES]);
    const before = upstream.connections;
    for (let i = 0; i < 3; i += 1) expect((await ask(transport, SMALL)).text).toBe(MINE);
    expect(upstream.connections - before).toBe(3);
    expect(upstream.requests.at(-1)?.header('connection')).toBe('close');
    now = FIVE_MINUTES + 60_000;
    for (let i = 0; i < 3; i += 1) await ask(transport, SMALL);
    expect(upstream.connections - before).toBe(4);
    expect(upstream.requests.at(-1)?.header('connection')).toBe('keep-alive');
  });

  test('is shared by the pools of a gateway, and by no other one', async () => {
    await using upstream = await HostileUpstream.start({ script: mine });
    const quarantines = new OriginQuarantines();
    let noticed = 0;
    const first = open(upstream.url, { quarantines, onUnsolicited: () => (noticed += 1) });
    const second = open(upstream.url, { quarantines });
    const other = open(upstream.url);
    upstream.next((c) => c.send(answer(MINE) + FOREIGN));
    await ask(first, SMALL);
    await until(() => noticed > 0);
    const connections: number[] = [];
    for (const transport of [second, other]) {
      const before = upstream.connections;
      for (let i = 0; i < 3; i += 1) await ask(transport, SMALL);
      connections.push(upstream.connections - before);
    }
    expect(connections).toEqual([3, 1]);
  });

  test('but for a 408, which servers send before they close an idle connection', async () => {
    await using upstream = await HostileUpstream.start({ script: mine });
    const kinds: string[] = [];
    const transport = open(upstream.url, { onUnsolicited: (kind) => kinds.push(kind) });
    await ask(transport, SMALL);
    await until(async () => {
      await upstream.sendUnsolicited('HTTP/1.0 408 Request Time-out\r\nConnection: close\r\n\r\n<html>');
      return kinds.length > 0;
    });
    expect(kinds).toEqual(['farewell']);
    for (let i = 0; i < 3; i += 1) await ask(transport, SMALL);
    expect(upstream.connections).toBe(2);
  });

  test('is left alone for twice as long when it does it again soon, at most for an hour', () => {
    const quarantine = new OriginQuarantine();
    const lengths: number[] = [];
    let now = 0;
    expect(quarantine.isActive(() => now)).toBe(false);
    for (let i = 0; i < 6; i += 1) {
      expect(quarantine.enter(now)).toBe(true);
      expect(quarantine.enter(now)).toBe(false);
      lengths.push(quarantine.lengthMs / 60_000);
      now += quarantine.lengthMs - 1;
      expect(quarantine.isActive(() => now)).toBe(true);
      now += 1;
      expect(quarantine.isActive(() => now)).toBe(false);
    }
    expect(lengths).toEqual([5, 10, 20, 40, 60, 60]);
    now += 60 * 60_000;
    quarantine.enter(now);
    expect(quarantine.lengthMs).toBe(FIVE_MINUTES);
  });

  test('is in the log once and in the metrics each time, and its clients notice nothing', async () => {
    await using upstream = await HostileUpstream.start({
      script: json(200, completion({ content: 'mine' })),
    });
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { retry: { budget: 0 } },
    });
    const metric = 'tollgate_upstream_unsolicited_bytes_total{upstream="up",kind="idle"}';
    // An alert on its increase sees the first one only if the series was there before.
    expect(await gateway.metrics()).toContain(`${metric} 0\n`);
    await Promise.all(Array.from({ length: 4 }, () => gateway.chat(chatRequest())));
    await until(async () => (await upstream.sendUnsolicited(FOREIGN)) > 1);
    await until(async () => ((await gateway.metric(metric)) ?? 0) > 0);
    for (let i = 0; i < 3; i += 1) {
      const response = await gateway.chat(chatRequest());
      expect([response.status, response.text().includes('mine')]).toEqual([200, true]);
      expect(await gateway.accessLine(response)).toMatchObject({ attempts: 1, outcome: 'ok' });
    }
    // It outlives the upstream's own configuration.
    const upstreams = { up: { base_url: upstream.baseUrl, api_key: 'k', timeouts: { connect: '9s' } } };
    await gateway.writeConfig({ upstreams: { up: upstream.baseUrl }, config: { upstreams } });
    await gateway.app?.reload();
    const before = upstream.connections;
    for (let i = 0; i < 3; i += 1) await gateway.chat(chatRequest());
    expect(upstream.connections - before).toBe(3);
    const lines = gateway.logs.filter(({ msg }) => String(msg).includes('unsolicited bytes'));
    expect(lines).toMatchObject([{ level: 'warn', upstream: 'up', kind: 'idle', for_s: 300 }]);
    expect(gateway.output).not.toContain('somebody else');
  });
});

describe('a connection that has just answered', () => {
  test('rests before it is used again; no other one is made for a few requests in a row', async () => {
    await using upstream = await HostileUpstream.start({ script: mine });
    const transport = open(upstream.url);
    for (let i = 0; i < 5; i += 1) await ask(transport, SMALL);
    expect(upstream.connections).toBe(1);
  });

  test('is one of several where many come in a row, so that none waits', async () => {
    await using upstream = await HostileUpstream.start({ script: mine });
    const transport = open(upstream.url);
    await until(async () => {
      for (let i = 0; i < 20; i += 1) await ask(transport, SMALL);
      return upstream.connections > 1;
    });
    expect(upstream.violations).toEqual([]);
  });

  test('is the only one where one request is sent at a time: such a server may serve no second connection', async () => {
    await using upstream = await HostileUpstream.start({ script: mine });
    const transport = open(upstream.url, { connections: 1 });
    for (let i = 0; i < 60; i += 1) await ask(transport, SMALL);
    expect(upstream.connections).toBe(1);
  });
});
