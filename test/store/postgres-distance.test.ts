// A PostgreSQL server that is far away: how often each operation waits for it, and that operations work over such a way.
import { randomBytes, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { callerOf } from '../../src/auth/caller.ts';
import { claimDigest } from '../../src/billing/claim-cookie.ts';
import { freeTerms } from '../../src/billing/order.ts';
import { openStore } from '../../src/store/open.ts';
import type { KeyRecord } from '../../src/store/record.ts';
import type { Store } from '../../src/store/store.ts';
import { type Desk, openDesk, placeOrder, SECRET, SetProvider } from '../billing/played.ts';
import { type Cable, startCable } from '../helpers/cable.ts';
import { runCommand, startGateway } from '../helpers/gateway.ts';
import { POSTGRES_TIMEOUT, type PostgresServer, query, startPostgres } from '../helpers/postgres.ts';
import { countRoundTrips, type RoundTrips } from '../helpers/round-trips.ts';
import { tempDir } from '../helpers/wait.ts';
import { newHolder, newKey } from './samples.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres();
}, POSTGRES_TIMEOUT);

afterAll(() => server[Symbol.asyncDispose]());

/** The address of a database by way of another port. */
function through(port: number, url: string): string {
  const address = new URL(url);
  address.port = String(port);
  return address.href;
}

describe('answers that are waited for', () => {
  let trips: RoundTrips;
  let store: Store;
  let desk: Desk & AsyncDisposable;
  const provider = new SetProvider();

  beforeAll(async () => {
    trips = await countRoundTrips(server.port);
    const url = through(trips.port, await server.createDatabase());
    desk = await openDesk({ kind: 'postgres', url }, provider);
    store = desk.store;
    // Both pools have a connection.
    await Promise.all([store.ping(), add()]);
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
      'a rotation by its holder, with the look before the hash',
      3,
      async () => {
        const key = await add();
        return () => desk.issuer.rotate(callerOf(key));
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
      'a claim',
      3,
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
