// A distant PostgreSQL server: the round trips of each operation, and that operations work with them.
import { randomBytes, randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { principalOf } from '../../src/auth/key/principal.ts';
import { claimDigest } from '../../src/billing/claim-cookie.ts';
import { freeTerms } from '../../src/billing/new-order.ts';
import type { KeyRecord } from '../../src/store/key-record.ts';
import type { Store } from '../../src/store/store.ts';
import { type Desk, openDesk, placeOrder, SECRET, SetProvider } from '../billing/desk.ts';
import { startCable } from '../helpers/cable.ts';
import { configText, runCommand, startGateway } from '../helpers/gateway.ts';
import { countRoundTrips, type RoundTrips } from '../helpers/round-trips.ts';
import { type Databases, POSTGRES_TIMEOUT, sharedPostgres } from '../helpers/shared-servers.ts';
import { tempDir, until } from '../helpers/wait.ts';
import { newHolder, newKey } from './samples.ts';

let server: Databases;

beforeAll(async () => {
  server = await sharedPostgres();
}, POSTGRES_TIMEOUT);

afterAll(() => server[Symbol.asyncDispose]());

/** The address of a database by way of another port. */
function through(port: number, url: string): string {
  const address = new URL(url);
  address.port = String(port);
  return address.href;
}

describe('round trips', () => {
  let trips: RoundTrips;
  let store: Store;
  let desk: Desk & AsyncDisposable;
  const provider = new SetProvider();

  beforeAll(async () => {
    trips = await countRoundTrips(server.port);
    const url = through(trips.port, await server.createDatabase());
    desk = await openDesk({ kind: 'postgres', url }, provider);
    store = desk.store;
    // Connections are there.
    await Promise.all([store.ping(), store.lastChange(), add()]);
  });

  afterAll(async () => {
    await desk[Symbol.asyncDispose]();
    await trips[Symbol.asyncDispose]();
  });

  async function add(): Promise<KeyRecord> {
    const outcome = await store.addKey(newKey(), newHolder('Free'), null);
    if (outcome.kind !== 'added') throw new Error(outcome.kind);
    return outcome.record;
  }

  async function cost(work: () => Promise<unknown>): Promise<number> {
    trips.take();
    await work();
    return trips.take();
  }

  const grant = () => ({ day: '2030-01-01', address: randomBytes(32), perDay: 99 });
  const at = '2030-01-01T00:00:00.000Z';

  test.each<[string, number, () => Promise<() => Promise<unknown>>]>([
    ['a key for a new holder', 1, async () => add],
    ['a free key', 2, async () => () => store.addKey(newKey(), newHolder('Free'), null, grant())],
    [
      'a key for a holder',
      2,
      async () => {
        const { prefix } = await add();
        return () => store.addKey(newKey(), { kind: 'of', prefix }, null);
      },
    ],
    [
      'a rotation',
      2,
      async () => {
        const key = await add();
        return () => store.rotateKey(key, newKey());
      },
    ],
    [
      'a rotation by its holder, with two looks at the same time before the hash',
      4,
      async () => {
        const key = await add();
        return () => desk.issuer.rotate(principalOf(key));
      },
    ],
    [
      'a revocation',
      2,
      async () => {
        const { prefix } = await add();
        return () => store.revokeKey(prefix, 'a reason', at);
      },
    ],
    [
      'a suspension',
      3,
      async () => {
        const { holderId } = await add();
        return () => store.changeHolder(holderId, { standing: 'suspended' }, null, at);
      },
    ],
    ['an order', 1, async () => () => placeOrder(desk, provider)],
    [
      'a free order',
      2,
      async () => () => {
        const terms = freeTerms({ claim: claimDigest(SECRET), nonce: randomBytes(32) }, new Date());
        return store.billing.addFreeOrder(terms, randomUUID(), newKey(), grant());
      },
    ],
    [
      'the settlement of an order that is paid',
      3,
      async () => {
        const order = await placeOrder(desk, provider);
        pay(order.id);
        return () => desk.settlement.settle(order.id, { event: { id: `evt_${order.id}`, type: 'x', at } });
      },
    ],
    [
      "the settlement that ends a holder's tier",
      5,
      async () => {
        const order = await placeOrder(desk, provider);
        pay(order.id);
        await desk.settlement.settle(order.id);
        await desk.claims.claim(order.id, () => true);
        Object.assign(provider.truthOf(order.id), { subscription: 'canceled', paidUntil: 1 });
        return () => desk.settlement.settle(order.id);
      },
    ],
    [
      'a claim, with two looks before the hash',
      4,
      async () => {
        const order = await placeOrder(desk, provider);
        pay(order.id);
        await desk.settlement.settle(order.id);
        return () => desk.claims.claim(order.id, () => true);
      },
    ],
  ])('%s: %i', async (_what, most, prepare) => {
    const work = await prepare();
    expect(await cost(work)).toBe(most);
  });

  function pay(id: string): void {
    Object.assign(provider.truthOf(id), {
      status: 'complete',
      payment: 'paid',
      subscription: 'active',
      paidUntil: Date.now() + 86_400_000,
    });
  }
});

describe('a distant server', () => {
  test('checkout and rotation work with a round trip of 200 ms', async () => {
    await using cable = await startCable(server.port);
    const url = through(cable.port, await server.createDatabase());
    await using gateway = await startGateway({
      config: {
        store: url,
        secret: 'a secret of this test',
        billing: { provider: 'test' },
        tiers: { Free: {}, Pro: { price: { amount: 1900, currency: 'usd', interval: 'month' } } },
      },
    });
    await cable.delay(100);
    const send = async (path: string, body: object, key?: string) => {
      const headers = {
        'content-type': 'application/json',
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      };
      const answer = await fetch(`${gateway.url}${path}`, {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
      });
      return { status: answer.status, body: (await answer.json()) as Record<string, string> };
    };
    const free = await send('/checkout', { tier: 'Free' });
    expect(free.status).toBe(201);
    expect((await send('/checkout', { tier: 'Pro' })).status).toBe(201);
    const rotated = await send('/admin/keys/rotate', {}, free.body['key']);
    expect(rotated.status).toBe(200);
    expect((await send('/checkout', { tier: 'Pro' }, rotated.body['key'])).status).toBe(201);
    const ready = async () => (await fetch(`${gateway.adminUrl}/readyz`)).status === 200;
    await until(ready, 'readiness');
  }, 60_000);

  test('the support commands issue, suspend and revoke with a round trip of half a second', async () => {
    await using cable = await startCable(server.port);
    const url = through(cable.port, await server.createDatabase());
    await using dir = await tempDir();
    const config = dir.file('config.yaml');
    await writeFile(config, configText({ config: { store: url, secret: 'a secret of this test' } }));
    const desk = (...words: string[]) =>
      runCommand(['keys', ...words, '--config', config], { TEST_DIR: dir.path });
    const [one, two] = await Promise.all([desk('issue', '--tier', 'Pro'), desk('issue', '--tier', 'Pro')]);
    await cable.delay(250);
    const results = await Promise.all([
      desk('issue', '--tier', 'Lite'),
      desk('suspend', one.stdout.slice(0, 8)),
      desk('revoke', two.stdout.slice(0, 8)),
    ]);
    expect(results.map(({ code, stderr }) => [code, stderr])).toEqual([
      [0, expect.stringContaining('Issued')],
      [0, ''],
      [0, ''],
    ]);
  }, 90_000);
});
