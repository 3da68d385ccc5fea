// A PostgreSQL store over TLS: which certificates it trusts, and that its deadlines and its close match those without TLS.
import { chownSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { POSTGRES_TIMEOUT, type PostgresServer, query, startPostgres } from '../helpers/postgres.ts';
import { serverUser } from '../helpers/postgres-programs.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { newHolder, newKey } from './samples.ts';

let dir: TempDir;
let server: PostgresServer;

/** A file that the server may read; it refuses a key that others could read too. */
function forServer(name: string, text: string): string {
  const path = dir.file(name);
  writeFileSync(path, text, { mode: 0o600 });
  const user = serverUser();
  if (user !== undefined) {
    for (const owned of [dir.path, path]) chownSync(owned, user.uid, user.gid);
  }
  return path;
}

beforeAll(async () => {
  dir = await tempDir();
  const own = makeCertificate();
  writeFileSync(dir.file('trusted.pem'), own.cert);
  writeFileSync(dir.file('other.pem'), makeCertificate().cert);
  server = await startPostgres({
    ssl: 'on',
    ssl_cert_file: forServer('server.pem', own.cert),
    ssl_key_file: forServer('server.key', own.key),
  });
}, POSTGRES_TIMEOUT);

afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await dir.remove();
});

const trusting = (url: string, file: string) => `${url}?sslmode=verify-full&sslrootcert=${dir.file(file)}`;

const sessions = (url: string, condition: string) =>
  query(
    url,
    `select ssl from pg_stat_ssl join pg_stat_activity using (pid)
     where application_name = 'tollgate' and datname = current_database() and ${condition}`,
  );

test('a server with a trusted certificate is used over TLS, and all its connections are closed', async () => {
  const url = await server.createDatabase();
  const store = await openStore({ kind: 'postgres', url: trusting(url, 'trusted.pem') });
  expect(await store.addKey(newKey(), newHolder(), null)).toMatchObject({ kind: 'added' });
  expect(await sessions(url, 'ssl')).not.toEqual([]);
  expect(await sessions(url, 'not ssl')).toEqual([]);
  await store.close();
  await until(async () => (await sessions(url, 'true')).length === 0, 'the end of the connections');
});

test('another certificate is rejected', async () => {
  const url = await server.createDatabase();
  const opening = openStore({ kind: 'postgres', url: trusting(url, 'other.pem') });
  await expect(opening).rejects.toThrow(/cannot open the store .*(self-signed|unable to verify)/);
});

test('a paused server delays neither a call nor the close', async () => {
  const url = await server.createDatabase();
  const store = await openStore({ kind: 'postgres', url: trusting(url, 'trusted.pem') });
  await Promise.all([store.ping(), store.ping(), store.ping()]);
  server.pause();
  const begun = performance.now();
  await expect(store.ping()).rejects.toMatchObject({ code: 'store_unavailable' });
  await store.close();
  server.resume();
  // The deadlines add up to about 2 s; the rest is for a slow machine.
  expect(performance.now() - begun).toBeLessThan(10_000);
});
