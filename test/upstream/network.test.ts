// A network that fails below HTTP: addresses behind which nothing is, names that resolve to nothing or to another address.
import dns, { type LookupAddress } from 'node:dns';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type LookupFunction, type Server, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { GatewayError } from '../../src/errors.ts';
import type { ConnectionPoolOptions } from '../../src/upstream/http/connection-pool.ts';
import { HttpTransport } from '../../src/upstream/http/http-transport.ts';
import type { Delivery } from '../../src/upstream/transport.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json, silence } from '../helpers/hostile-upstream.ts';
import { pause, until, within } from '../helpers/wait.ts';
import { BlackHole } from './black-hole.ts';

let upstream: HostileUpstream;
let gateway: Gateway | undefined;
const transports: HttpTransport[] = [];

beforeEach(async () => {
  upstream = await HostileUpstream.start({ script: json(200, completion()) });
});
afterEach(async () => {
  vi.restoreAllMocks();
  await gateway?.close();
  gateway = undefined;
  await Promise.all(transports.splice(0).map((transport) => transport.close()));
  await upstream.close();
});

async function start(options: GatewayOptions): Promise<Gateway> {
  gateway = await startGateway(options);
  await gateway.key();
  return gateway;
}

function transportTo(
  origin: string,
  more: Pick<ConnectionPoolOptions, 'lookup' | 'now'> = {},
): HttpTransport {
  const transport = new HttpTransport({ origin, connectTimeout: 20_000, connections: 10, ...more });
  transports.push(transport);
  return transport;
}

interface Outcome {
  readonly status?: number;
  readonly error?: GatewayError;
  readonly delivery?: Delivery;
}

/** One request, and how it ended. */
async function ask(transport: HttpTransport): Promise<Outcome> {
  let status = 0;
  const ended = new Promise<Outcome>((resolve) => {
    transport.send(
      { path: '/v1/chat/completions', headers: {}, body: Buffer.from('{}') },
      {
        onHead: (given) => (status = given),
        onData: () => {},
        onEnd: () => resolve({ status }),
        onError: (error, delivery) => resolve({ error, delivery }),
      },
    );
  });
  const outcome = await within(ended, 'the end of the call');
  // A connection is free again when the event loop has turned.
  await pause(5);
  return outcome;
}

const breaker = (running: Gateway, name: string) =>
  running.metric(`tollgate_upstream_breaker_state{upstream="${name}",model="upstream-model"}`);

async function timed<T>(what: () => Promise<T>): Promise<[number, T]> {
  const began = performance.now();
  const result = await what();
  return [Math.round(performance.now() - began), result];
}

/** Milliseconds to the next TCP keep-alive probe of this machine's connections to a port, as Linux tells them. */
function keepAliveTimers(port: number): number[] {
  const ending = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return readFileSync('/proc/net/tcp', 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , remote, state]) => remote?.endsWith(ending) === true && state === '01')
    .map(([, , , , , timer = '']) => timer.split(':'))
    .map(([kind, ticks = '']) =>
      kind === '02' ? Number.parseInt(ticks, 16) * 10 : Number.POSITIVE_INFINITY,
    );
}

test('a host that vanishes while an answer is waited for is looked for within seconds', async () => {
  upstream.always(silence());
  const { port } = new URL(upstream.baseUrl);
  const running = await start({ upstreams: { up: upstream.baseUrl } });
  using _client = await running.open(chatRequest());
  await upstream.requestHead(0);
  // While bytes are unacknowledged it is another timer.
  const timers = () => keepAliveTimers(Number(port)).filter((ms) => Number.isFinite(ms));
  await until(() => timers().length > 0, 'a keep-alive timer');
  expect(Math.max(...timers())).toBeLessThanOrEqual(10_000);
});

describe('an address that answers no SYN', () => {
  const CONNECT_MS = 200;

  test('costs the time for a connection, then another target answers; its breaker opens; nothing is left over', async () => {
    await using hole = await BlackHole.start();
    const running = await start({
      upstreams: { hole: `http://127.0.0.1:${hole.port}/v1`, living: upstream.baseUrl },
      config: { upstreams: { hole: { timeouts: { connect: `${CONNECT_MS}ms` } } }, retry: { budget: 0 } },
    });
    const times: number[] = [];
    for (let i = 0; i < 5; i += 1) {
      const [ms, response] = await timed(() => running.chat(chatRequest()));
      times.push(ms);
      expect(response.status).toBe(200);
    }
    expect(Math.min(...times)).toBeGreaterThanOrEqual(CONNECT_MS - 10);
    console.info(`fallback after a connect deadline of ${CONNECT_MS} ms: ${times.join(', ')} ms`);
    await until(() => hole.waiting === 0, 'the connections to be given up');
    expect(await breaker(running, 'hole')).toBe(2);
    const outcome = 'tollgate_upstream_attempts_total{upstream="hole",outcome="upstream_timeout"}';
    expect(await running.metric(outcome)).toBe(5);
    const response = await running.chat(chatRequest());
    expect(await running.accessLine(response)).toMatchObject({ attempts: 1, upstream: 'living' });
  });

  test('is a 504 where nobody else is, and is not waited for after the client has left', async () => {
    await using hole = await BlackHole.start();
    const running = await start({
      upstreams: { hole: `http://127.0.0.1:${hole.port}/v1` },
      config: { upstreams: { hole: { timeouts: { connect: `${CONNECT_MS}ms` } } } },
    });
    const response = await running.chat(chatRequest());
    expect([response.status, response.json()]).toMatchObject([504, { error: { code: 'upstream_timeout' } }]);
    await running.close();

    const patient = await start({
      upstreams: { hole: `http://127.0.0.1:${hole.port}/v1` },
      config: { upstreams: { hole: { timeouts: { connect: '1m' } } } },
    });
    const client = await patient.open(chatRequest());
    await until(() => hole.waiting === 1, 'the connection to be tried');
    client.destroy();
    await until(() => hole.waiting === 0 && patient.app.inFlight === 0, 'the connection to be given up');
  });
});

/** What the system's resolver says to names under `.test`; undefined: nothing, ever. Other names are looked up. */
function resolving(answer: () => LookupAddress[] | NodeJS.ErrnoException | undefined) {
  const real = dns.lookup;
  return vi.spyOn(dns, 'lookup').mockImplementation((hostname: string, ...rest: unknown[]) => {
    const callback = rest.at(-1);
    if (!hostname.endsWith('.test')) Reflect.apply(real, dns, [hostname, ...rest]);
    else if (typeof callback === 'function') {
      const said = answer();
      if (said instanceof Error) setImmediate(() => callback(said));
      else if (said !== undefined) setImmediate(() => callback(null, said));
    }
  });
}

const dnsError = (code: string): NodeJS.ErrnoException =>
  Object.assign(new Error(`getaddrinfo ${code} vendor.test`), { code });
const HERE: LookupAddress[] = [{ address: '127.0.0.1', family: 4 }];

describe('a name', () => {
  test.each([
    ['does not exist', () => dnsError('ENOTFOUND'), 502, 'upstream_unreachable'],
    ['cannot be resolved now', () => dnsError('EAI_AGAIN'), 502, 'upstream_unreachable'],
    ['is not answered for', () => undefined, 504, 'upstream_timeout'],
    ['has no address', () => [], 502, 'upstream_unreachable'],
  ])(
    'that %s: another target answers, the breaker opens, and alone it is an error without the name',
    async (_, answer, status, code) => {
      resolving(answer);
      const vendor = 'http://vendor.test:8000/v1';
      const timeouts = { connect: '100ms' };
      const running = await start({
        upstreams: { vendor, living: upstream.baseUrl },
        config: {
          upstreams: { vendor: { timeouts } },
          retry: { budget: 0, attempts: 2 },
          models: {
            'test-model': {
              targets: [
                { upstream: 'vendor', model: 'upstream-model' },
                { upstream: 'living', model: 'upstream-model', priority: 2 },
              ],
            },
            alone: { targets: [{ upstream: 'vendor', model: 'alone' }] },
          },
        },
      });
      const times: number[] = [];
      for (let i = 0; i < 5; i += 1) {
        const [ms, response] = await timed(() => running.chat(chatRequest()));
        times.push(ms);
        expect(response.status).toBe(200);
      }
      console.info(`fallback from a name that is ${code}: ${times.join(', ')} ms`);
      expect(await breaker(running, 'vendor')).toBe(2);
      const response = await running.chat(chatRequest({ model: 'alone' }));
      expect([response.status, response.json()]).toMatchObject([status, { error: { code } }]);
      expect(response.text()).not.toMatch(/vendor|ENOTFOUND|EAI_AGAIN/);
    },
  );

  test('whose resolver fails later keeps its last addresses for new connections', async () => {
    let answer: LookupAddress[] | NodeJS.ErrnoException | undefined = HERE;
    const lookup = resolving(() => answer);
    const running = await start({ upstreams: { vendor: `http://vendor.test:${upstream.port}/v1` } });
    expect((await running.chat(chatRequest())).status).toBe(200);
    for (const next of [dnsError('ENOTFOUND'), dnsError('EAI_AGAIN'), [], undefined]) {
      answer = next;
      upstream.closeIdle('fin');
      await until(() => upstream.openSockets === 0, 'no kept connection');
      const asked = lookup.mock.calls.length;
      expect((await running.chat(chatRequest())).status).toBe(200);
      expect(lookup.mock.calls.length).toBeGreaterThan(asked);
    }
    expect(upstream.connections).toBe(5);
  });
});

describe('a name whose address changes', () => {
  let old: HostileUpstream;
  let way: Server;
  const passing = new Set<Socket>();
  let address = '127.0.0.2';
  const lookup: LookupFunction = (_hostname, _options, callback) =>
    setImmediate(() => callback(null, [{ address, family: 4 }]));
  const counts = () => [old.requests.length, upstream.requests.length];

  // The old address has the same port as the new one, and leads to another upstream.
  beforeEach(async () => {
    address = '127.0.0.2';
    old = await HostileUpstream.start({ script: json(200, completion()) });
    way = createServer((socket) => {
      const onward = connect(old.port, '127.0.0.1');
      for (const [from, to] of [
        [socket, onward],
        [onward, socket],
      ] as const) {
        passing.add(from);
        from.on('error', () => {}).on('close', () => to.destroy());
        from.pipe(to);
      }
    });
    way.listen(upstream.port, '127.0.0.2');
    await once(way, 'listening');
  });
  afterEach(async () => {
    for (const socket of passing) socket.destroy();
    passing.clear();
    way.close();
    await old.close();
  });

  test('is left within a minute although the old address still answers', async () => {
    let now = 0;
    const transport = transportTo(`http://vendor.test:${upstream.port}`, { lookup, now: () => now });
    /** Often enough that no connection is closed for being idle. */
    const askUntil = async (seconds: number) => {
      for (; now <= seconds * 1000; now += 9_000) expect(await ask(transport)).toEqual({ status: 200 });
    };
    await ask(transport);
    address = '127.0.0.1';
    await askUntil(59);
    expect(counts()).toEqual([8, 0]);
    expect(now).toBe(63_000);
    expect(await ask(transport)).toEqual({ status: 200 });
    expect(counts()).toEqual([8, 1]);
    // Its own minute has begun.
    await askUntil(119);
    expect([...counts(), upstream.connections]).toEqual([8, 8, 1]);
  });

  test('is left at once where the old address has died', async () => {
    const transport = transportTo(`http://vendor.test:${upstream.port}`, { lookup });
    await ask(transport);
    address = '127.0.0.1';
    way.close();
    for (const socket of passing) socket.destroy();
    await until(() => old.openSockets === 0, 'the old connection to be gone');
    await pause(20);
    expect(await ask(transport)).toEqual({ status: 200 });
    expect(counts()).toEqual([1, 1]);
  });

  test('is left by a running answer when that has ended', async () => {
    const go = Promise.withResolvers<void>();
    old.always(async (c) => {
      await go.promise;
      await json(200, completion())(c);
    });
    let now = 0;
    const transport = transportTo(`http://vendor.test:${upstream.port}`, { lookup, now: () => now });
    const long = ask(transport);
    await old.request(0);
    address = '127.0.0.1';
    now = 61_000;
    expect(await ask(transport)).toEqual({ status: 200 });
    go.resolve();
    expect(await long).toEqual({ status: 200 });
    expect(await ask(transport)).toEqual({ status: 200 });
    expect(counts()).toEqual([1, 2]);
  });
});

const hasIPv6 = Object.values(networkInterfaces()).some((each) => each?.some((one) => one.address === '::1'));

describe.skipIf(!hasIPv6)(
  'a name with an IPv6 address that leads nowhere and an IPv4 address that lives',
  () => {
    const both =
      (address: string): LookupFunction =>
      (_hostname, _options, callback) =>
        callback(null, [{ address, family: 6 }, ...HERE]);

    test('is reached by IPv4 long before the time for a connection has passed', async () => {
      await using hole = await BlackHole.start('::1', upstream.port);
      const transport = transportTo(`http://vendor.test:${upstream.port}`, { lookup: both('::1') });
      const [ms, outcome] = await timed(() => ask(transport));
      expect(outcome).toEqual({ status: 200 });
      expect(ms).toBeLessThan(10_000);
      console.info(`past an IPv6 address that answers no SYN: ${ms} ms`);
      expect(hole.waiting).toBe(0);
    });

    test.each(['100::1', '::1'])('and is refused or has no route (%s)', async (address) => {
      const transport = transportTo(`http://vendor.test:${upstream.port}`, { lookup: both(address) });
      const [ms, outcome] = await timed(() => ask(transport));
      expect(outcome).toEqual({ status: 200 });
      expect(ms).toBeLessThan(10_000);
    });

    test('where both lead nowhere is unreachable', async () => {
      const transport = transportTo(`http://vendor.test:${await closedPort()}`, { lookup: both('::1') });
      const { error, delivery } = await ask(transport);
      expect([error?.code, delivery]).toEqual(['upstream_unreachable', 'not_sent']);
    });
  },
);
