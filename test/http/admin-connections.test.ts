// Connections to the admin listener: silent ones keep no probe out, from their own address or another.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { AdminServer } from '../../src/http/admin/admin-listener.ts';
import { Health } from '../../src/http/admin/health.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { until, within } from '../helpers/wait.ts';

let admin: AdminServer;
let port: number;
let metrics: () => Promise<string>;
const sockets: Socket[] = [];

beforeEach(async () => {
  metrics = async () => 'metrics';
  const health = new Health({ version: '1', configHash: () => 'h', draining: () => false, checks: {} });
  const page = { registry: { contentType: 'text/plain', metrics: () => metrics() } };
  admin = new AdminServer(page, health, { upstreams: () => [] });
  ({ port } = await admin.listen('0.0.0.0', 0));
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await admin.close();
});

async function open(from: string, bytes = ''): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, localAddress: from });
  sockets.push(socket);
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  if (bytes !== '') socket.write(bytes);
  return socket;
}

const opened = (count: number, from: string, bytes?: string) =>
  Promise.all(Array.from({ length: count }, () => open(from, bytes)));

/** A probe on a connection of its own. @returns whether it was answered */
async function probe(from: string): Promise<boolean> {
  const socket = await open(from);
  socket.write('GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n');
  let text = '';
  for await (const chunk of socket) text += chunk;
  return text.startsWith('HTTP/1.1 200 ') && text.endsWith('ok\n');
}

test.each([
  ['silent', ''],
  ['in the middle of a request', 'GET /metrics HTTP/1.1\r\nho'],
])('300 connections that are %s fail none of 30 probes', async (_what, bytes) => {
  await opened(300, '127.0.0.2', bytes);
  const answers = [];
  for (let i = 0; i < 30; i++) answers.push(await probe(i % 2 === 0 ? '127.0.0.2' : '127.0.0.3'));
  expect(answers).toEqual(Array(30).fill(true));
});

test('silent connections of many addresses fail no probe either', async () => {
  for (let i = 10; i < 20; i++) await opened(60, `127.0.0.${i}`);
  expect(await Promise.all(Array.from({ length: 30 }, (_, i) => probe(`127.0.1.${i}`)))).toEqual(
    Array(30).fill(true),
  );
});

test('answers that are under way are not cut for new connections', async () => {
  let give: ((text: string) => void) | undefined;
  metrics = () => new Promise((resolve) => (give = resolve));
  using scraper = await RawClient.connect(port);
  const scraped = scraper.ask({ method: 'GET', target: '/metrics' });
  await until(() => give, 'the scrape');
  const others = await opened(300, '127.0.0.1');
  for (const other of others) other.resume();
  // An address has 64, with the one of the scrape.
  await until(() => others.filter(({ closed }) => closed).length === 300 - 63, 'the end of the oldest');
  give?.('all of them');
  expect((await within(scraped, 'its answer')).text()).toBe('all of them');
});

test('a silent connection is closed after a few seconds, and so is one whose client does not read', async () => {
  metrics = async () => 'x'.repeat(32 * 1024 * 1024);
  const silent = await open('127.0.0.1');
  const stalled = await open('127.0.0.1', 'GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n');
  stalled.pause();
  silent.resume();
  await within(once(silent, 'close'), 'its end', 20_000);
  await until(
    () =>
      new Promise<boolean>((resolve) => {
        // A socket that was reset tells so on the next write.
        stalled.write('x', (error) => resolve(error !== null && error !== undefined));
      }),
    'the reset',
    20_000,
  );
}, 30_000);
