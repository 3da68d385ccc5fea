// A failover of PostgreSQL: for a while the address of the store leads to a read-only server. The gateway drops that server at
// once, is not ready, and writes again without a restart when a server is writable.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { failureOf } from '../../src/store/postgres/postgres-client.ts';
import type { Store } from '../../src/store/store.ts';
import { type Cable, startCable } from '../helpers/cable.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  POSTGRES_TIMEOUT,
  type PostgresServer,
  query,
  startPostgres,
  startStandby,
} from '../helpers/postgres.ts';
import { until } from '../helpers/wait.ts';
import { newHolder, newKey } from './samples.ts';

/** What is promised, once the way leads to a server that can be written. */
const FAILOVER_MS = 10_000;

let primary: PostgresServer;

beforeAll(async () => {
  primary = await startPostgres();
}, POSTGRES_TIMEOUT);

afterAll(() => primary[Symbol.asyncDispose]());

/** The address of a database by way of a cable. */
function through(cable: Cable, url: string): string {
  const address = new URL(url);
  address.port = String(cable.port);
  return address.href;
}

const readiness = async ({ adminUrl }: Gateway) => {
  const response = await fetch(`${adminUrl}/readyz`);
  const { checks } = (await response.json()) as { checks: Record<string, string> };
  return { status: response.status, store: checks['store'] };
};

async function freeKey({ url }: Gateway): Promise<number> {
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${url}/checkout`, { method: 'POST', headers, body: '{"tier":"Free"}' });
  await answer.arrayBuffer();
  return answer.status;
}

describe('a failover', () => {
  test.each(['the standby is promoted at once', 'connections reach the standby in recovery first'])(
    '%s: writes work again, and readiness reported it',
    async (order) => {
      await using old = await startPostgres({ wal_level: 'replica' });
      const database = await old.createDatabase();
      await using standby = await startStandby(old);
      await using cable = await startCable(old.port);
      await using gateway = await startGateway({
        config: {
          store: through(cable, database),
          secret: 'a secret of this test',
          free_keys: { per_ip_per_day: 10_000 },
        },
      });
      expect(await freeKey(gateway)).toBe(201);
      expect(await readiness(gateway)).toEqual({ status: 200, store: 'ok' });
      const lastSeen = async () =>
        (await query(standby.url(new URL(database).pathname.slice(1)), 'select 1 from keys')).length === 1;
      await until(lastSeen, 'the key on the standby');

      cable.moveTo(standby.port);
      await old.stop();
      if (order.startsWith('connections')) {
        // Every connection that is made now reaches a server that can be read, and takes no writes.
        await until(async () => (await readiness(gateway)).status === 503, 'unreadiness');
        await until(async () => (await freeKey(gateway)) === 503, 'a refused write');
        expect(await readiness(gateway)).toEqual({ status: 503, store: 'degraded' });
        // As a server tells it that does not announce its state: before PostgreSQL 14, or behind a pooler.
        await query(standby.url(), 'begin isolation level read committed read write').catch(
          (error: unknown) => expect(failureOf(error)).toBe('read_only'),
        );
        const known = await gateway.app.issuer.list({ limit: 10 });
        expect(known).toHaveLength(1);
        expect((await fetch(`${gateway.url}/health`)).status).toBe(200);
        await query(standby.url(), 'select pg_promote()');
      } else {
        await query(standby.url(), 'select pg_promote()');
        await until(async () => (await freeKey(gateway)) !== 503, 'an answer');
      }
      await until(async () => (await freeKey(gateway)) === 201, 'a write', FAILOVER_MS);
      await until(async () => (await readiness(gateway)).status === 200, 'readiness', FAILOVER_MS);
      const stored = await query(standby.url(new URL(database).pathname.slice(1)), 'select 1 from keys');
      expect(stored.length).toBeGreaterThan(1);
    },
    60_000,
  );
});

describe('a read-only server', () => {
  let url: string;
  let store: Store;

  beforeEach(async () => {
    url = await primary.createDatabase();
    store = await openStore({ kind: 'postgres', url });
  });

  afterEach(() => store.close());

  const add = () => store.addKey(newKey(), newHolder(), null);
  const name = () => new URL(url).pathname.slice(1);

  test('by configuration is noticed by the first write, and reads and later writes survive it', async () => {
    await add();
    await query(primary.url(), `alter database ${name()} set default_transaction_read_only = on`);
    // The setting is one of new connections.
    await query(
      primary.url(),
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name()}'`,
    );
    await until(async () => {
      await expect(add()).rejects.toMatchObject({
        code: 'store_unavailable',
        cause: { name: 'ReadOnlyServerError' },
      });
      return true;
    }, 'a refused write');
    await expect(store.ping()).rejects.toMatchObject({ code: 'store_unavailable' });
    expect((await store.listKeys({ limit: 10 })).items).toHaveLength(1);
    await query(primary.url(), `alter database ${name()} reset default_transaction_read_only`);
    await until(() => add().then(({ kind }) => kind === 'added'), 'a write', FAILOVER_MS);
    await until(() => store.ping().then(() => true), 'a good check', FAILOVER_MS);
  });

  test('during its shutdown loses all connections, also idle ones', async () => {
    await using second = await startPostgres();
    const moved = await second.createDatabase();
    const other = await openStore({ kind: 'postgres', url: moved });
    try {
      await Promise.all(Array.from({ length: 6 }, () => other.addKey(newKey(), newHolder(), null)));
      await second.stop();
      await expect(other.ping()).rejects.toMatchObject({ code: 'store_unavailable' });
      await second.start();
      await until(() => other.ping().then(() => true), 'a good check', FAILOVER_MS);
      // None of the broken connections is left for a later call.
      const kinds = await Promise.all(
        Array.from({ length: 6 }, async () => (await other.addKey(newKey(), newHolder(), null)).kind),
      );
      expect(kinds).toEqual(Array(6).fill('added'));
    } finally {
      await other.close();
    }
  });
});
