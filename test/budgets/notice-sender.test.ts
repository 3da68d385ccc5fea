// Budget notices on their way to the webhook: a real store, a real receiver that fails as it is told to, and a clock of the test.
import { createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { NoticeSender } from '../../src/budgets/notice-sender.ts';
import type { Store } from '../../src/store/store.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { Outbound } from '../../src/upstream/outbound/outbound.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';

const SECRET = 'a secret of the test';
const START = Date.parse('2030-01-02T03:04:05.000Z');

let dir: TempDir;
let store: Store;
let server: Server;
let clock: number;
/** Statuses of the next answers; afterwards 204. `0` never answers. */
let statuses: number[];
let received: { readonly body: string; readonly headers: IncomingMessage['headers'] }[];
const senders: NoticeSender[] = [];

beforeEach(async () => {
  dir = await tempDir();
  store = await openNewStore(dir.file('store.db'));
  [clock, statuses, received] = [START, [], []];
  server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      received.push({ body: Buffer.concat(pieces).toString(), headers: request.headers });
      const status = statuses.shift() ?? 204;
      if (status === 0) return;
      response.writeHead(status, status === 302 ? { location: '/elsewhere' } : {}).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});

afterEach(async () => {
  await Promise.all(senders.splice(0).map((each) => each.stop()));
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await store.close();
  await dir.remove();
});

function senderOf(url?: string) {
  const logged: unknown[] = [];
  const metrics = createMetrics();
  const { port } = server.address() as AddressInfo;
  const webhook = { url: url ?? `http://127.0.0.1:${port}/budgets`, secret: SECRET };
  const sender = new NoticeSender({
    store: store.budgets,
    webhook: () => (url === '' ? undefined : webhook),
    outbound: new Outbound(),
    logger: { warn: (about: unknown) => logged.push(about), error: (about: unknown) => logged.push(about) },
    metrics,
    now: () => clock,
  });
  senders.push(sender);
  const metric = async (name: string) =>
    Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(await metrics.registry.metrics())?.[1] ?? Number.NaN);
  const outcomes = async (outcome: string) =>
    metric(`tollgate_budget_webhooks_total\\{outcome="${outcome}"\\}`);
  return { sender, metric, outcomes, logged };
}

const notice = (scope: string) => ({ scope, period: '2030-01', budget: 5, threshold: 800_000 });
const at = () => new Date(clock).toISOString();
const add = (scope: string, body: string | null = `{"scope":"${scope}"}`) =>
  store.budgets.addNotice(notice(scope), at(), body);

test('the end of a sender waits for one request, and leaves the other notices due', async () => {
  statuses = [0];
  for (let number = 0; number < 3; number += 1) await add(`scope-${number}`);
  const { sender, outcomes } = senderOf();
  sender.wake();
  await until(() => received.length === 1, 'the first request');
  await sender.stop();
  expect([received.length, await outcomes('failed')]).toEqual([1, 1]);
  const next = senderOf();
  next.sender.wake();
  await until(() => received.length === 3, 'the other notices');
}, 30_000);

describe('a notice', () => {
  test('is recorded once, whoever does it, and again only for another budget, share or period', async () => {
    expect(await Promise.all(Array.from({ length: 8 }, () => add('one')))).toEqual(
      expect.arrayContaining([true, ...Array(7).fill(false)]),
    );
    expect(await add('one')).toBe(false);
    const other = { ...notice('one'), budget: 6 };
    expect(await store.budgets.addNotice(other, at(), null)).toBe(true);
    expect(await store.budgets.addNotice({ ...notice('one'), threshold: 1 }, at(), null)).toBe(true);
    expect(await store.budgets.addNotice({ ...notice('one'), period: '2030-02' }, at(), null)).toBe(true);
    expect(await store.budgets.countDueNotices('')).toBe(1);
  });

  test('arrives with its body, signed with its time', async () => {
    await add('one', '{"text":"é"}');
    const { sender, outcomes } = senderOf();
    sender.wake();
    await until(async () => (await outcomes('sent')) === 1, 'the message');
    const [message] = received;
    const seconds = START / 1000;
    const digest = createHmac('sha256', SECRET).update(`${seconds}.{"text":"é"}`).digest('hex');
    expect(message?.body).toBe('{"text":"é"}');
    expect(message?.headers).toMatchObject({
      'content-type': 'application/json',
      'x-tollgate-signature': `t=${seconds},v1=${digest}`,
    });
    await until(async () => (await store.budgets.countDueNotices('')) === 0, 'its end');
  });

  test.each([[500], [404], [302], [0]])(
    'that is answered %i is sent again, later and later',
    async (status) => {
      await add('one');
      statuses = [status, status];
      const { sender, outcomes, metric, logged } = senderOf();
      sender.wake();
      await until(async () => (await outcomes('failed')) === 1, 'the failure');
      await until(async () => (await metric('tollgate_budget_webhooks_waiting')) === 1, 'the gauge');
      clock += 4999;
      sender.wake();
      await until(async () => (await store.budgets.countDueNotices('')) === 1);
      expect(received).toHaveLength(1);
      clock += 1;
      sender.wake();
      await until(async () => (await outcomes('failed')) === 2, 'the second failure');
      clock += 10_000;
      await until(async () => {
        sender.wake();
        return (await outcomes('sent')) === 1;
      }, 'the message');
      expect(new Set(received.map(({ body }) => body))).toEqual(new Set(['{"scope":"one"}']));
      expect(JSON.stringify(logged)).not.toContain(SECRET);
    },
  );

  test('is given up after a day and a half of failures, and holds up no other', async () => {
    await add('one');
    const { sender, outcomes } = senderOf(`http://127.0.0.1:${await closedPort()}/`);
    for (let hour = 0; hour < 60 && !((await outcomes('given_up')) >= 1); hour += 1) {
      const before = (await outcomes('failed')) || 0;
      sender.wake();
      await until(
        async () => ((await outcomes('failed')) || 0) > before || (await outcomes('given_up')) === 1,
      );
      clock += 3_600_000;
    }
    expect((clock - START) / 3_600_000).toBeGreaterThan(36);
    expect(await store.budgets.countDueNotices('')).toBe(0);
    expect(received).toEqual([]);
  });

  test('is sent by one of several replicas, and by another when that one ended', async () => {
    for (let index = 0; index < 50; index += 1) await add(`scope ${index}`);
    const taken = await store.budgets.takeNotices('', at(), new Date(clock + 60_000).toISOString(), 10);
    expect(taken).toHaveLength(10);
    const both = [senderOf(), senderOf()];
    for (const { sender } of both) sender.wake();
    await until(() => received.length === 40, 'the others');
    clock += 60_000;
    for (const { sender } of both) sender.wake();
    await until(() => received.length === 50, 'those of the replica that ended');
    expect(new Set(received.map(({ body }) => body)).size).toBe(50);
    await until(async () => (await store.budgets.countDueNotices('')) === 0);
  });

  test('of a replica without a webhook is sent by one that has it, for a day and a half', async () => {
    await add('old');
    clock += 36 * 3_600_000;
    await add('new');
    const without = senderOf('');
    without.sender.wake();
    await until(async () => (await without.metric('tollgate_budget_webhooks_waiting')) === 0);
    expect(received).toEqual([]);
    const { sender, outcomes, metric } = senderOf();
    sender.wake();
    await until(async () => (await outcomes('sent')) === 1, 'the message');
    await until(async () => (await metric('tollgate_budget_webhooks_waiting')) === 0, 'the gauge');
    expect(received.map(({ body }) => body)).toEqual(['{"scope":"new"}']);
  });

  test('is forgotten long after its period', async () => {
    await add('one', null);
    clock += 101 * 86_400_000;
    const { sender } = senderOf('');
    sender.wake();
    await until(async () => await add('one', null), 'the notice to be new again');
  });
});
