// The PostgreSQL server of the tests ends with them.
import { existsSync } from 'node:fs';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { query, startPostgres } from '../helpers/postgres.ts';
import { until } from '../helpers/wait.ts';
import { startChild } from './processes.ts';

async function answers(url: string): Promise<boolean> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 1000, query_timeout: 1000 });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('select 1');
    return true;
  } catch {
    return false;
  } finally {
    void client.end();
  }
}

test.each(['running', 'paused'])('a server that is %s ends with a killed process', async (state) => {
  const child = startChild('start-postgres.ts', [state]);
  const url = await until(() => child.lines[0], 'the address', 120_000);
  expect(await answers(url)).toBe(state === 'running');
  child.process.kill('SIGKILL');
  await child.ended;
  const refused = async () => {
    const error: unknown = await query(url, 'select 1').catch((reason: unknown) => reason);
    return error instanceof Error && 'code' in error && error.code === 'ECONNREFUSED';
  };
  await until(refused, 'the end of the server');
});

test('commits survive a restart, and nothing is left afterwards', async () => {
  let folder = '';
  {
    await using server = await startPostgres({ fsync: 'on' });
    const url = await server.createDatabase();
    await query(url, 'create table kept (id integer)');
    await query(url, 'insert into kept values (1)');
    await server.stop();
    expect(await answers(url)).toBe(false);
    await server.start();
    expect(await query(url, 'select id from kept')).toEqual([{ id: 1 }]);
    const [row] = await query<{ data: string }>(url, `select current_setting('data_directory') as data`);
    folder = row?.data ?? '';
    expect(existsSync(folder)).toBe(true);
  }
  expect(existsSync(folder)).toBe(false);
});
