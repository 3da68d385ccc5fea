// Parses a `postgres://` address into the server and a name for messages without credentials.
import { Client } from 'pg';
import type { PostgresServer } from './postgres-pool.ts';

/**
 * Commits are durable when they return, independent of the server's default: a lost key cannot be shown again. Statements are short, and their
 * compilation would take longer than they do: searches have more subqueries than they run.
 */
const SETTINGS = '-c synchronous_commit=on -c jit=off';

interface PostgresAddress {
  readonly server: PostgresServer;
  /** `postgres://HOST:PORT/DATABASE` */
  readonly name: string;
}

/**
 * Takes only server, credentials, TLS and `options` from the address: it cannot turn off a timeout.
 *
 * @throws Error for an invalid URL or an unreadable file in it; the message does not contain the address
 */
export function readAddress(url: string): PostgresAddress {
  // A client that never connects, to parse libpq's URL parameters and PG… variables.
  const { host, port, user, database, password, ssl } = new Client({ connectionString: url });
  const given = new URL(url).searchParams.get('options');
  const options = given === null ? SETTINGS : `${given} ${SETTINGS}`;
  const shown = host.includes(':') && !host.startsWith('/') ? `[${host}]` : encodeURIComponent(host);
  return {
    server: { host, port, user, database, password, ssl, options },
    name: `postgres://${shown}:${port}/${database ?? ''}`,
  };
}
