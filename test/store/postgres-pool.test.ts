// Connections to PostgreSQL and their deadlines: what is ended, what is not reused, and what close leaves.
import { inspect } from 'node:util';
import { CompiledQuery } from 'kysely';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type PoolLimits, type PostgresLease, PostgresPool } from '../../src/store/postgres/postgres-pool.ts';
import { readAddress } from '../../src/store/postgres/postgres-server.ts';
import { POSTGRES_TIMEOUT, type PostgresServer, query, startPostgres } from '../helpers/postgres.ts';
import { until } from '../helpers/wait.ts';

let server: PostgresServer;
const pools: PostgresPool[] = [];

beforeAll(async () => {
  server = await startPostgres();
}, POSTGRES_TIMEOUT);

afterAll(() => server[Symbol.asyncDispose]());

afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close()));
});

const LIMITS: PoolLimits = {
  connections: 1,
  maxWaiting: 2,
  connectMs: 5000,
  callMs: 20_000,
  statementMs: 20_000,
  lockMs: 20_000,
};

function open(limits: Partial<PoolLimits> = {}, url = server.url()): PostgresPool {
  const pool = new PostgresPool(readAddress(url).server, { ...LIMITS, ...limits });
  pools.push(pool);
  return pool;
}

async function ask(lease: PostgresLease, text: string): Promise<unknown> {
  const { rows } = await lease.executeQuery<{ value: unknown }>(CompiledQuery.raw(text));
  return rows[0]?.value;
}

const pidOf = (lease: PostgresLease) => ask(lease, 'select pg_backend_pid() as value');
const isRunning = async (pid: unknown) =>
  (await query(server.url(), 'select 1 from pg_stat_activity where pid = $1', [pid])).length > 0;

describe('a lease', () => {
  test('that expires ends its statement and its connection, and the next caller gets another', async () => {
    const pool = open({ callMs: 300 });
    const lease = await pool.acquire();
    const pid = await pidOf(lease);
    await expect(ask(lease, 'select pg_sleep(20)::text as value')).rejects.toThrow(
      /not answer within 300 ms/,
    );
    await expect(ask(lease, 'select 1 as value')).rejects.toThrow(/not answer within 300 ms/);
    expect(lease.isLost).toBe(true);
    lease.release();
    const next = await pool.acquire();
    expect(await pidOf(next)).not.toBe(pid);
    next.release();
  });

  test('that expires between two statements rolls the transaction back', async () => {
    const pool = open({ callMs: 300 });
    await query(server.url(), 'create table between_statements (id integer)');
    const lease = await pool.acquire();
    const pid = await pidOf(lease);
    await lease.command('begin');
    await lease.command('insert into between_statements values (1)');
    await until(async () => lease.isLost && !(await isRunning(pid)), 'the end of the connection');
    await expect(lease.command('commit')).rejects.toThrow(/not answer within/);
    lease.release();
    expect(await query(server.url(), 'select * from between_statements')).toEqual([]);
  });

  test('released with an open transaction is not reused', async () => {
    const pool = open();
    const lease = await pool.acquire();
    const pid = await pidOf(lease);
    await lease.command('begin');
    lease.release();
    const next = await pool.acquire();
    expect(await pidOf(next)).not.toBe(pid);
    next.release();
    const third = await pool.acquire();
    expect(await pidOf(third)).not.toBe(pid);
    third.release();
  });

  test('released in order is reused, also after a failed statement', async () => {
    const pool = open();
    const lease = await pool.acquire();
    const pid = await pidOf(lease);
    await expect(ask(lease, 'select nothing')).rejects.toThrow(/does not exist/);
    lease.release();
    const next = await pool.acquire();
    expect(await pidOf(next)).toBe(pid);
    next.release();
  });

  test('with a connection that breaks between two statements fails the next one, not the process', async () => {
    const pool = open();
    const lease = await pool.acquire();
    const pid = await pidOf(lease);
    await query(server.url(), 'select pg_terminate_backend($1)', [pid]);
    await until(() => lease.isLost, 'the loss');
    await expect(ask(lease, 'select 1 as value')).rejects.toThrow(/was lost/);
    lease.release();
    const next = await pool.acquire();
    expect(await ask(next, 'select 1 as value')).toBe(1);
    next.release();
  });

  test('with an idle transaction is ended by the server, with its locks', async () => {
    const pool = open({ connections: 2 });
    const [idle, waiting] = [await pool.acquire(), await pool.acquire()];
    await idle.command('begin');
    await ask(idle, 'select pg_advisory_xact_lock(7)::text as value');
    await ask(waiting, 'select pg_advisory_lock(7)::text as value');
    await until(() => idle.isLost, 'the loss');
    idle.release();
    waiting.release();
  });

  test('an idle connection that breaks is replaced, and the process continues', async () => {
    const pool = open();
    const lease = await pool.acquire();
    const pid = await pidOf(lease);
    lease.release();
    await query(server.url(), 'select pg_terminate_backend($1)', [pid]);
    await until(async () => !(await isRunning(pid)), 'the end of the backend');
    await until(async () => {
      const next = await pool.acquire();
      try {
        return (await pidOf(next)) !== pid;
      } finally {
        next.release();
      }
    }, 'a new connection');
  });
});

test('an error of the server does not contain the row', async () => {
  await query(server.url(), 'create table secrets (hash text check (length(hash) > 99))');
  const lease = await open().acquire();
  const error: unknown = await lease
    .command(`insert into secrets values ('a hash')`)
    .catch((reason) => reason);
  expect(error).toMatchObject({ code: '23514', constraint: 'secrets_hash_check' });
  expect(inspect(error, { depth: 5 })).not.toMatch(/a hash/);
  lease.release();
});

describe('waiting for a connection', () => {
  test('ends by its deadline, and is rejected at once when too many wait', async () => {
    const pool = open({ connectMs: 300 });
    const lease = await pool.acquire();
    const waiting = [pool.acquire(), pool.acquire()];
    await expect(pool.acquire()).rejects.toThrow('the queue for the store is full: 2 callers wait');
    for (const outcome of await Promise.allSettled(waiting)) {
      expect(outcome).toMatchObject({
        status: 'rejected',
        reason: { message: /no connection to the database/ },
      });
    }
    lease.release();
    (await pool.acquire()).release();
  });

  test('counts towards the deadline of the call', async () => {
    const pool = open({ callMs: 1500 });
    const lease = await pool.acquire();
    const waiting = pool.acquire();
    await ask(lease, 'select pg_sleep(1)::text as value');
    lease.release();
    const next = await waiting;
    const begun = performance.now();
    await expect(ask(next, 'select pg_sleep(20)::text as value')).rejects.toThrow(/not answer within 1500/);
    expect(performance.now() - begun).toBeLessThan(1400);
    next.release();
  });
});

describe('a session', () => {
  const setting = (lease: PostgresLease, name: string) =>
    ask(lease, `select current_setting('${name}') as value`);

  test('has its timeouts and durable commits, whatever the address and the server set', async () => {
    await query(server.url(), 'alter role tollgate set synchronous_commit = off');
    const options =
      'options=-c%20statement_timeout%3D0%20-c%20work_mem%3D5MB%20-c%20synchronous_commit%3Doff';
    const url = `${server.url()}?statement_timeout=0&query_timeout=1&application_name=x&${options}`;
    const lease = await open({ statementMs: 7000, lockMs: 6000 }, url).acquire();
    expect(await setting(lease, 'statement_timeout')).toBe('7s');
    expect(await setting(lease, 'lock_timeout')).toBe('6s');
    expect(await setting(lease, 'idle_in_transaction_session_timeout')).toBe('1s');
    expect(await setting(lease, 'synchronous_commit')).toBe('on');
    expect(await setting(lease, 'jit')).toBe('off');
    expect(await setting(lease, 'application_name')).toBe('tollgate');
    expect(await setting(lease, 'work_mem')).toBe('5MB');
    lease.release();
    await query(server.url(), 'alter role tollgate reset synchronous_commit');
  });

  test('returns ids as numbers and rejects unsafe ones', async () => {
    const lease = await open().acquire();
    expect(await ask(lease, 'select 9007199254740991::bigint as value')).toBe(Number.MAX_SAFE_INTEGER);
    await expect(ask(lease, 'select 9007199254740993::bigint as value')).rejects.toThrow(/too large/);
    lease.release();
  });
});

describe('closing', () => {
  test('lets owners of a connection finish, rejects new callers, and leaves no connection', async () => {
    const pool = open();
    const lease = await pool.acquire();
    const pid = await pidOf(lease);
    const closing = pool.close();
    await expect(pool.acquire()).rejects.toThrow('the store is closed');
    expect(await ask(lease, 'select 1 as value')).toBe(1);
    lease.release();
    await closing;
    await until(async () => !(await isRunning(pid)), 'the end of the connection');
  });

  test('does not wait for a silent server', async () => {
    const pool = open({ connections: 3, callMs: 1000 });
    const [first, second] = [await pool.acquire(), await pool.acquire()];
    first.release();
    server.pause();
    const begun = performance.now();
    const stuck = ask(second, 'select 1 as value');
    const refused = expect(stuck).rejects.toThrow(/not answer within/);
    const connecting = pool.acquire();
    const late = expect(connecting).rejects.toThrow();
    await pool.close();
    await refused;
    await late;
    second.release();
    server.resume();
    // Its deadlines add up to less than 6 s (5 s for a connection); the rest is for a slow machine.
    expect(performance.now() - begun).toBeLessThan(20_000);
  });
});
