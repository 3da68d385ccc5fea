// Opening a PostgreSQL store: the migration of an empty database, and the messages of rejections.
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { freeTerms } from '../../src/billing/new-order.ts';
import { openStore, StoreOpenError } from '../../src/store/open.ts';
import { postgresKysely } from '../../src/store/postgres/postgres.ts';
import { PostgresPool } from '../../src/store/postgres/postgres-pool.ts';
import { POSTGRES } from '../../src/store/postgres/postgres-schema.ts';
import { readAddress } from '../../src/store/postgres/postgres-server.ts';
import { MIGRATIONS, migrate } from '../../src/store/schema/migrations.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { query } from '../helpers/postgres.ts';
import { type Databases, POSTGRES_TIMEOUT, sharedPostgres } from '../helpers/shared-servers.ts';
import { tempDir } from '../helpers/wait.ts';
import { startChild } from './processes.ts';
import { newHolder, newKey, prefix } from './samples.ts';
import { openTried } from './tried.ts';
import { batch, row } from './usage-samples.ts';

/** The steps of this version, as the database lists them. */
const released = MIGRATIONS.map(({ id, name }) => ({ id, name }));
/** The step that comes after them. */
const NEXT = Math.max(...MIGRATIONS.map(({ id }) => id)) + 1;

let server: Databases;
let url: string;

beforeAll(async () => {
  server = await sharedPostgres();
}, POSTGRES_TIMEOUT);

afterAll(() => server[Symbol.asyncDispose]());

beforeEach(async () => {
  url = await server.createDatabase();
});

const open = (address: string) => openTried({ kind: 'postgres', url: address });

/** The address with something of it replaced. */
function changed(change: (address: URL) => void): string {
  const address = new URL(url);
  change(address);
  return address.href;
}

/** Opens, expects a refusal, and makes sure that it tells no password. */
async function refusal(address: string, opening = open(address)): Promise<string> {
  const error: unknown = await opening.then(
    async (store) => {
      await store.close();
      return undefined;
    },
    (reason: unknown) => reason,
  );
  if (!(error instanceof StoreOpenError)) throw new Error('it was not refused', { cause: error });
  const { password } = new URL(address);
  if (password !== '') expect(JSON.stringify([error.message, error.stack])).not.toContain(password);
  return error.message;
}

async function tables(address = url): Promise<string[]> {
  const rows = await query<{ name: string }>(
    address,
    `select schemaname || '.' || tablename as name from pg_tables
     where schemaname not in ('pg_catalog', 'information_schema') order by 1`,
  );
  return rows.map(({ name }) => name);
}

describe('an empty database', () => {
  test('gets the tables and keeps its data', async () => {
    const first = await open(url);
    await first.addKey(newKey('0123abcd'), newHolder(), null);
    await first.close();
    const second = await open(url);
    expect(await second.findKey(prefix('0123abcd'))).toMatchObject({ state: 'active' });
    await second.close();
    expect(await query(url, 'select id, name from schema_migrations order by id')).toEqual(released);
  });

  test('is migrated by one of several processes that start at once, and all work', async () => {
    const children = Array.from({ length: 4 }, () => startChild('issue-keys.ts', [url, '3']));
    for (const child of children) expect([await child.ended, child.stderr()]).toEqual([0, '']);
    const store = await open(url);
    expect((await store.listKeys({ limit: 100 })).items).toHaveLength(12);
    await store.close();
  });

  test('many concurrent starts in one process create the schema once', async () => {
    const stores = await Promise.all(Array.from({ length: 8 }, () => open(url)));
    expect(await query(url, 'select id, name from schema_migrations')).toHaveLength(released.length);
    await Promise.all(stores.map((store) => store.close()));
  });

  test('a start waits for a running migration and gives up when it does not end', async () => {
    const client = new Client({ connectionString: url });
    await client.connect();
    await client.query('begin');
    await client.query('create table schema_migrations (id integer primary key, name text, applied_at text)');
    // A trial takes no locks, so it does not see that of another session.
    const opening = openStore({ kind: 'postgres', url });
    expect(await refusal(url, opening)).toMatch(/another session holds a lock|did not answer within/);
    await client.query('rollback');
    await client.end();
    await (await open(url)).close();
  });
});

test('an empty database is rejected while usage waits for an earlier one, unless --new-store is given', async () => {
  await using dir = await tempDir();
  await writeFile(dir.file('0123456789ab.1.0123456789ab.0123456789abcdef.jsonl'), '');
  const options = { spool: dir.path };
  const opening = openStore({ kind: 'postgres', url }, options);
  await expect(opening).rejects.toThrow(
    /the database has no tables, but a store existed here before.*--new-store/,
  );
  expect(await query(url, `select 1 from pg_tables where schemaname = 'public'`)).toEqual([]);
  await (await openStore({ kind: 'postgres', url }, { ...options, createNew: true })).close();
  await (await openStore({ kind: 'postgres', url }, options)).close();
});

describe('migrations', () => {
  const step = { id: NEXT, name: 'more', statements: () => ['create table more (x integer)'] };
  const broken = {
    id: NEXT + 1,
    name: 'broken',
    statements: () => ['create table half (x integer)', 'create nonsense'],
  };

  async function run(migrations: typeof MIGRATIONS): Promise<unknown[]> {
    const pool = new PostgresPool(readAddress(url).server, {
      connections: 1,
      maxWaiting: 1,
      connectMs: 10_000,
      callMs: 10_000,
      statementMs: 10_000,
      lockMs: 9000,
    });
    try {
      await migrate(postgresKysely(pool), POSTGRES, migrations);
    } finally {
      await pool.close();
    }
    return query(url, 'select id, name from schema_migrations order by id');
  }

  test('only missing ones are applied, and a failed one leaves the previous schema', async () => {
    expect(await run(MIGRATIONS)).toEqual(released);
    expect(await run([...MIGRATIONS, step])).toEqual([...released, { id: NEXT, name: 'more' }]);
    await expect(run([...MIGRATIONS, step, broken])).rejects.toThrow(/syntax/);
    expect(await run([...MIGRATIONS, step])).toHaveLength(MIGRATIONS.length + 1);
    expect(await tables()).not.toContain('public.half');
  });

  test('a schema of a newer version is rejected and left unchanged', async () => {
    await (await open(url)).close();
    await query(url, `insert into schema_migrations values (99, 'the future', '2040')`);
    expect(await refusal(url)).toMatch(
      /test_[0-9a-f]+: the store has schema 99 \(the future\).*newer version/,
    );
    await query(url, 'delete from schema_migrations where id = 99');
    await (await open(url)).close();
  });

  test('a schema with another history is rejected', async () => {
    await (await open(url)).close();
    await query(url, `update schema_migrations set name = 'else' where id = 1`);
    expect(await refusal(url)).toMatch(/schema 1 \(else\) where this version expects 1 \(keys\)/);
  });
});

describe('a database of another program', () => {
  test.each([
    ['a table', 'create table invoices (id integer primary key)'],
    ['a view', 'create view invoices as select 1 as id'],
    ['a schema_migrations of another program', 'create table schema_migrations (version text primary key)'],
  ])('with %s is rejected, and nothing is added to it', async (_, statement) => {
    await query(url, statement);
    const before = await tables();
    expect(await refusal(url)).toMatch(/tables of another program/);
    expect(await tables()).toEqual(before);
  });

  test('is accepted when its tables are in another schema; ours go to the schema of the connection', async () => {
    await query(url, 'create table invoices (id integer primary key)');
    await query(url, 'create schema gate');
    const store = await open(
      changed((address) => address.searchParams.set('options', '-c search_path=gate')),
    );
    await store.addKey(newKey(), newHolder(), null);
    expect((await store.listKeys({ limit: 10 })).items).toHaveLength(1);
    await store.close();
    expect(await tables()).toContain('gate.keys');
    expect(await tables()).not.toContain('public.keys');
  });

  test('a missing schema is reported', async () => {
    const address = changed(({ searchParams }) => searchParams.set('options', '-c search_path=nowhere'));
    expect(await refusal(address)).toMatch(/no schema of the search_path/);
  });
});

describe('an unreachable server', () => {
  test('a port where nothing listens', async () => {
    const port = String(await closedPort());
    expect(await refusal(changed((address) => Object.assign(address, { port })))).toMatch(
      /^cannot open the store postgres:\/\/127\.0\.0\.1:\d+\/test_[0-9a-f]+: ECONNREFUSED; nothing listens there/,
    );
  });

  test('a host with several addresses where nothing listens', async () => {
    const port = String(await closedPort());
    const address = changed((one) => Object.assign(one, { port, hostname: 'localhost' }));
    expect(await refusal(address)).toMatch(/localhost.*ECONNREFUSED; nothing listens there/);
  });

  test('a wrong password', async () => {
    const address = changed((one) => Object.assign(one, { password: 'hunter2' }));
    expect(await refusal(address)).toMatch(/password authentication failed.*correct user and password/);
  });

  test('an unknown user', async () => {
    const address = changed((one) => Object.assign(one, { username: 'nobody-here' }));
    expect(await refusal(address)).toMatch(/authentication failed.*correct user and password/);
  });

  test('a database that does not exist', async () => {
    const address = changed((one) => Object.assign(one, { pathname: '/nowhere' }));
    expect(await refusal(address)).toMatch(/"nowhere" does not exist; create the database/);
  });

  test('a missing certificate file', async () => {
    const address = changed(({ searchParams }) => searchParams.set('sslrootcert', '/nowhere/root.pem'));
    expect(await refusal(address)).toMatch(/ENOENT.*\/nowhere\/root\.pem/);
  });

  test('a server without TLS when the address requires it', async () => {
    const address = changed(({ searchParams }) => searchParams.set('sslmode', 'verify-full'));
    expect(await refusal(address)).toMatch(/does not support SSL/);
  });

  test.each(['says nothing', 'hangs up', 'speaks HTTP'])('a server that %s', async (how) => {
    const sockets: Socket[] = [];
    const other = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      if (how === 'hangs up') socket.destroy();
      if (how === 'speaks HTTP') socket.end('HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n');
    }).listen(0, '127.0.0.1');
    await once(other, 'listening');
    const place = other.address();
    if (place === null || typeof place === 'string') throw new Error('a TCP server has a port');
    const begun = performance.now();
    const port = String(place.port);
    expect(await refusal(changed((address) => Object.assign(address, { port })))).toMatch(/cannot open/);
    // The deadline is 5 s; the rest is for a slow machine.
    expect(performance.now() - begun).toBeLessThan(20_000);
    for (const socket of sockets) socket.destroy();
    other.close();
  });
});

describe('a role without the privileges of the store', () => {
  const asRole = (name: string) =>
    changed((address) => Object.assign(address, { username: name, password: 'of-a-role' }));

  async function createRole(name: string): Promise<void> {
    await query(url, `drop role if exists ${name}`).catch(() => {});
    await query(url, `create role ${name} login password 'of-a-role'`);
  }

  test('that may only read is rejected with the missing privileges', async () => {
    await (await open(url)).close();
    await createRole('reader');
    await query(url, 'grant select on all tables in schema public to reader');
    const message = await refusal(asRole('reader'));
    expect(message).toMatch(/the role "reader" lacks privileges/);
    for (const right of ['insert on keys', 'update on keys', 'insert on key_events', 'insert on settings']) {
      expect(message).toContain(right);
    }
    await query(url, 'drop owned by reader');
  });

  test('that may not create tables is rejected', async () => {
    await createRole('guest');
    expect(await refusal(asRole('guest'))).toMatch(/permission denied.*allow the role to create tables/);
  });

  test('that may not read is rejected', async () => {
    await (await open(url)).close();
    await createRole('stranger');
    expect(await refusal(asRole('stranger'))).toMatch(/permission denied/);
  });

  test('with exactly the needed privileges works without owning a table', async () => {
    await (await open(url)).close();
    await createRole('worker');
    await query(url, 'grant select, insert, update on keys, holders to worker');
    await query(
      url,
      `grant select, insert on settings, key_events, free_key_grants, usage_hours, usage_batches,
         schema_migrations to worker`,
    );
    await query(url, 'grant update, delete on free_key_grants to worker');
    await query(url, 'grant update, delete on usage_hours to worker');
    await query(url, 'grant select, insert, update, delete on usage_days to worker');
    await query(url, 'grant select, insert, update on usage_months, usage_closings to worker');
    await query(url, 'grant select, update, delete on usage_backlog to worker');
    await query(url, 'grant select, insert on key_lineages, key_search, usage_late to worker');
    await query(url, 'grant select on keys_unannounced to worker');
    await query(url, 'grant update on settings to worker');
    await query(url, 'grant select, insert, update on objects to worker');
    await query(url, 'grant delete on usage_batches to worker');
    await query(url, 'grant select, insert, update on orders, test_payments, fleet_tasks to worker');
    await query(url, 'grant select, insert, delete on billing_events, response_items to worker');
    await query(url, 'grant select, insert, update on key_uses to worker');
    await query(url, 'grant select, insert, update, delete on teams, labels to worker');
    await query(url, 'grant select, insert on team_events to worker');
    await query(url, 'grant delete on orders, test_payments to worker');
    await query(url, 'grant select, insert, update, delete on budget_notices to worker');
    await query(
      url,
      'grant select, insert, update, delete on operators, operator_sessions, operator_events to worker',
    );
    await query(url, 'grant select, insert, update, delete on upstream_drains to worker');
    await query(url, 'grant select, insert, delete on upstream_events to worker');
    await query(url, 'grant select, insert, update, delete on responses to worker');
    const store = await open(asRole('worker'));
    const grant = { day: '2030-01-01', address: Buffer.alloc(32), perDay: 2 };
    const added = await store.addKey(newKey(), newHolder('Free'), null, grant);
    if (added.kind !== 'added') throw new Error(added.kind);
    expect(await store.rotateKey(added.record, newKey())).toMatchObject({ kind: 'rotated' });
    const { holderId } = added.record;
    expect(await store.changeHolder(holderId, { tier: 'Pro' }, null, '2030')).toMatchObject({
      kind: 'changed',
    });
    await store.pin('secret_check', Buffer.alloc(32));
    for (const rows of [[row()], [row()]]) {
      expect(await store.usage.addUsage(batch(rows))).toBe('written');
    }
    await store.usage.forgetBatches('2030', 10);
    const order = await store.billing.addFreeOrder(
      freeTerms({ claim: Buffer.alloc(32), nonce: Buffer.alloc(32, 1) }, new Date()),
      'somebody',
      newKey(),
      grant,
    );
    if (order.kind !== 'claimed') throw new Error(order.kind);
    await store.billing.markFirstUse(order.record.prefix, '2030');
    await store.billing.addEvent({ id: 'evt_1', type: 'x', at: '2030' });
    await store.billing.forget('2031', '2031', 10);
    expect(await store.billing.isEventKnown('evt_1')).toBe(false);
    expect(await store.billing.takeTask('test', 'a', '2030', '2031')).toBe(true);
    await store.close();
    await query(url, 'drop owned by worker');
  });

  test('with read-only transactions is rejected', async () => {
    const address = changed(({ searchParams }) =>
      searchParams.set('options', '-c default_transaction_read_only=on'),
    );
    expect(await refusal(address)).toMatch(/read-only/);
  });
});
