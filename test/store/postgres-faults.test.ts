// A PostgreSQL server that goes away, pauses, is locked or is unreachable: each call of the store ends in time with
// `store_unavailable`, and works again without a restart when the server does.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { KeySecret } from '../../src/auth/hashing/hashing-secret.ts';
import { Key } from '../../src/auth/key/key.ts';
import type { KeyRecord } from '../../src/store/key-record.ts';
import { openStore, StoreOpenError } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { POSTGRES_TIMEOUT, type PostgresServer, query, startPostgres } from '../helpers/postgres.ts';
import { until } from '../helpers/wait.ts';
import { startChild } from './processes.ts';
import { newHolder, newKey, SHARED_SECRET } from './samples.ts';

/** The contract is 1.5 s; the rest is for a slow machine. Against hanging, which would take for ever. */
const SETTLED_MS = 10_000;

let server: PostgresServer;
let url: string;
let store: Store;

beforeAll(async () => {
  // What is acknowledged is to be durable all the same.
  server = await startPostgres({ synchronous_commit: 'off' });
}, POSTGRES_TIMEOUT);

afterAll(() => server[Symbol.asyncDispose]());

beforeEach(async () => {
  url = await server.createDatabase();
  store = await openStore({ kind: 'postgres', url });
});

afterEach(() => store.close());

async function add(): Promise<KeyRecord> {
  const outcome = await store.addKey(newKey(), newHolder(), null);
  if (outcome.kind !== 'added') throw new Error(outcome.kind);
  return outcome.record;
}

const reads = (key: KeyRecord): Promise<unknown>[] => [
  store.findKey(key.prefix),
  store.listKeys({ limit: 1 }),
  store.historyOf(key.prefix),
  store.freeGrants('2030-01-01', Buffer.alloc(32)),
  store.lastChange(),
  store.changesAfter(0, 1),
  store.pinned('secret_check'),
  store.ping(),
];

const writes = (key: KeyRecord): Promise<unknown>[] => [
  store.addKey(newKey(), newHolder(), null),
  store.rotateKey(key, newKey()),
  store.revokeKey(key.prefix, null, key.createdAt),
  store.pin('secret_check', Buffer.alloc(32)),
];

/** Expects that all are refused as they should be, in time. */
async function refused(calls: readonly Promise<unknown>[]): Promise<void> {
  const begun = performance.now();
  for (const outcome of await Promise.allSettled(calls)) {
    expect(outcome).toMatchObject({
      status: 'rejected',
      reason: { code: 'store_unavailable', status: 503, cause: expect.any(Error) },
    });
  }
  expect(performance.now() - begun).toBeLessThan(SETTLED_MS);
}

/** The store answers again, and nothing happened to the key meanwhile. */
async function worksAgain(key: KeyRecord): Promise<void> {
  await until(() => store.ping().then(() => true), 'an answer of the store');
  expect(await store.findKey(key.prefix)).toMatchObject({ state: 'active', version: 1 });
  await until(() => add(), 'a new key');
  expect(await store.revokeKey(key.prefix, null, key.createdAt)).toMatchObject({ kind: 'revoked' });
}

describe('a server that stops', () => {
  test('fails every call, and works again when it is back', async () => {
    const key = await add();
    await server.stop();
    await refused([...reads(key), ...writes(key)]);
    await refused([...reads(key), ...writes(key)]);
    const opening = openStore({ kind: 'postgres', url });
    await expect(opening).rejects.toThrow(StoreOpenError);
    await expect(opening).rejects.toThrow(/nothing listens there/);
    await server.start();
    await worksAgain(key);
  });

  test('completes or fails each call in flight', async () => {
    const acknowledged: string[] = [];
    let going = true;
    const writers = Array.from({ length: 4 }, async () => {
      while (going) {
        await add().then(
          (key) => acknowledged.push(key.prefix),
          (error: unknown) => {
            going = false;
            expect(error).toMatchObject({ code: 'store_unavailable' });
          },
        );
      }
    });
    await until(() => acknowledged.length > 20, 'some keys');
    await server.stop();
    await Promise.all(writers);
    await server.start();
    const stored = await until(() => store.listKeys({ limit: 1000 }), 'the list');
    const prefixes = new Set<string>(stored.items.map(({ prefix }) => prefix));
    expect(acknowledged.filter((prefix) => !prefixes.has(prefix))).toEqual([]);
    // One of each writer may have been committed without the answer coming through.
    expect(prefixes.size - acknowledged.length).toBeLessThanOrEqual(4);
  });

  test('that ends sessions one by one fails a call or two, and no restart is needed', async () => {
    const key = await add();
    await Promise.allSettled(reads(key));
    await query(
      server.url(),
      `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tollgate'`,
    );
    await worksAgain(key);
  });
});

describe('a paused server', () => {
  afterEach(() => server.resume());

  test('delays no call beyond its deadline, with or without connections', async () => {
    const key = await add();
    server.pause();
    await refused([...reads(key), ...writes(key)]);
    // Now there are none: each call tries to connect.
    await refused([...reads(key), ...writes(key)]);
    server.resume();
    await worksAgain(key);
  });

  test('does not delay the close of the store', async () => {
    const key = await add();
    server.pause();
    const begun = performance.now();
    const ended = refused([...reads(key), ...writes(key)]);
    await store.close();
    await ended;
    expect(performance.now() - begun).toBeLessThan(SETTLED_MS);
  });
});

describe('locks that another client holds', () => {
  let other: Client;

  beforeEach(async () => {
    other = new Client({ connectionString: url });
    await other.connect();
    await other.query('begin');
  });

  afterEach(() => other.end());

  test('on all keys: more writes than connections end in time, and reads work', async () => {
    const key = await add();
    await other.query('lock table keys, settings in exclusive mode');
    const blocked = refused(Array.from({ length: 10 }, () => writes(key)).flat());
    expect(await store.findKey(key.prefix)).toMatchObject({ state: 'active' });
    expect((await store.listKeys({ limit: 10 })).items.length).toBe(1);
    expect(await store.lastChange()).toBe(1);
    await blocked;
    await other.query('rollback');
    await worksAgain(key);
  });

  test('on one key: other keys can be written', async () => {
    const [key, held] = [await add(), await add()];
    await other.query('select * from keys where prefix = $1 for update', [held.prefix]);
    const blocked = refused([
      store.revokeKey(held.prefix, null, held.createdAt),
      store.rotateKey(held, newKey()),
    ]);
    expect((await add()).state).toBe('active');
    expect(await store.rotateKey(key, newKey())).toMatchObject({ kind: 'rotated' });
    await blocked;
    await other.query('rollback');
    await worksAgain(held);
  });

  test('a full queue rejects at once', async () => {
    await other.query('lock table holders in exclusive mode');
    const begun = performance.now();
    const calls = Array.from({ length: 300 }, () => store.addKey(newKey(), newHolder(), null));
    const messages = (await Promise.allSettled(calls)).map((outcome) =>
      outcome.status === 'rejected' ? String(outcome.reason.cause.message) : outcome.value.kind,
    );
    expect(performance.now() - begun).toBeLessThan(SETTLED_MS);
    expect(messages).not.toContain('added');
    expect(messages.filter((text) => text.includes('256 callers wait')).length).toBeGreaterThanOrEqual(40);
    await other.query('rollback');
    expect((await add()).state).toBe('active');
  });

  test('a prefix in the open transaction of another client is taken after its commit, and not an error', async () => {
    const key = newKey();
    await other.query(`insert into holders values ('other', 'Lite', null, '2030')`);
    await other.query(
      `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at)
       values ($1, 'other', '$argon2id$x', $2, 'active', 1, '2030')`,
      [key.prefix, Buffer.alloc(32)],
    );
    const grant = { day: '2030-01-01', address: Buffer.alloc(32), perDay: 3 };
    const adding = store.addKey(key, newHolder('Free'), null, grant);
    const waiting = `select 1 from pg_stat_activity where application_name = 'tollgate' and wait_event_type = 'Lock'`;
    await until(async () => (await query(url, waiting)).length > 0, 'the wait for the other client');
    await other.query('commit');
    expect(await adding).toEqual({ kind: 'prefix_taken' });
    expect(await store.freeGrants(grant.day, grant.address)).toBe(0);
    expect(await query(url, 'select * from holders')).toHaveLength(1);
    expect(await store.lastChange()).toBe(0);
  });

  test('a key in an open revocation of another client is not rotated', async () => {
    const key = await add();
    await other.query(`update keys set state = 'revoked', version = 2, ended_at = '2030' where prefix = $1`, [
      key.prefix,
    ]);
    const rotating = store.rotateKey(key, newKey());
    const revoking = store.revokeKey(key.prefix, null, key.createdAt);
    const waiting = `select 1 from pg_stat_activity where application_name = 'tollgate' and wait_event_type = 'Lock'`;
    await until(async () => (await query(url, waiting)).length > 1, 'the wait for the other client');
    await other.query('commit');
    expect(await rotating).toEqual({ kind: 'not_active' });
    expect(await revoking).toMatchObject({ kind: 'already', record: { state: 'revoked', version: 2 } });
  });
});

describe('a network that drops everything', () => {
  let network: Network;

  beforeEach(async () => {
    await store.close();
    network = await startNetwork(server.port);
    const address = new URL(url);
    address.port = String(network.port);
    store = await openStore({ kind: 'postgres', url: address.href });
  });

  afterEach(() => network.close());

  test('delays no call beyond its deadline, and earlier connections are not reused', async () => {
    const key = await add();
    await Promise.all(reads(key));
    network.swallow(true);
    await refused([...reads(key), ...writes(key)]);
    network.swallow(false);
    await worksAgain(key);
  });

  test('that resets idle connections does not end the process', async () => {
    const key = await add();
    await Promise.all(reads(key));
    network.reset();
    await worksAgain(key);
  });
});

test('kill -9 of processes that issue keys loses no acknowledged key', async () => {
  const acknowledged: string[] = [];
  const secret = new KeySecret(SHARED_SECRET);
  for (let round = 0; round < 4; round += 1) {
    await using one = startChild('issue-keys.ts', [url]);
    await using two = startChild('issue-keys.ts', [url]);
    await until(() => one.lines.length > round * 7 && two.lines.length > 0, 'keys', 60_000);
    for (const child of [one, two]) child.process.kill('SIGKILL');
    await Promise.all([one.ended, two.ended]);
    acknowledged.push(...[...one.lines, ...two.lines].filter((line) => line.length === 32));
    for (const text of acknowledged) {
      const key = Key.parse(text);
      if (key === undefined) throw new Error('the child printed something else than keys');
      const record = await store.findKey(key.prefix);
      expect(record).toMatchObject({ state: 'active', version: 1 });
      expect(secret.digest(key).equals(record?.hmac ?? Buffer.alloc(0))).toBe(true);
    }
    // What the ended processes left open is taken back, or was complete: one event for each key.
    const all = (await until(() => store.listKeys({ limit: 1000 }), 'the list')).items;
    expect(all.length - acknowledged.length).toBeLessThanOrEqual(2 * (round + 1));
  }
  expect((await add()).state).toBe('active');
  const [counts] = await query<{ keys: string; events: string }>(
    url,
    'select (select count(*) from keys) as keys, (select count(*) from key_events) as events',
  );
  expect(counts?.events).toBe(counts?.keys);
});

interface Network {
  readonly port: number;
  swallow(on: boolean): void;
  reset(): void;
  close(): Promise<void>;
}

/** A way to the server that can swallow what goes both ways, of new connections too, or reset all connections. */
async function startNetwork(target: number): Promise<Network> {
  const sockets = new Set<Socket>();
  let swallowing = false;
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
  };
  const listener: Server = createServer((client) => {
    const upstream = connect(target, '127.0.0.1');
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      keep(from);
      // What was swallowed once is gone: the connection is silent from then on.
      let isSilent = false;
      from.on('data', (chunk: Buffer) => {
        isSilent ||= swallowing;
        if (!isSilent) to.write(chunk);
      });
      from.once('close', () => {
        if (!isSilent) to.destroy();
      });
    }
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = addressOf(listener);
  return {
    port,
    swallow: (on) => {
      swallowing = on;
    },
    reset: () => {
      for (const socket of sockets) socket.resetAndDestroy();
    },
    close: async () => {
      const closed = once(listener, 'close');
      listener.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function addressOf(listener: Server): AddressInfo {
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  return address;
}
