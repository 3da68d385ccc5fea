// What a `postgres://` address means: the server, and how it is called in messages, where no credential may stand.
import { Client } from 'pg';
import type { PostgresServer } from './postgres-pool.ts';

/** A commit is on the disk when it returns, whatever the server's default is: a lost key cannot be shown again. */
const DURABLE = '-c synchronous_commit=on';

interface PostgresAddress {
  readonly server: PostgresServer;
  /** `postgres://HOST:PORT/DATABASE` */
  readonly name: string;
}

/**
 * Only where the server is, who asks, TLS and `options` are taken from the address: nothing in it can turn off a timeout.
 *
 * @throws Error when it is no URL, or names a file that cannot be read; the message does not hold the address
 */
export function readAddress(url: string): PostgresAddress {
  // A client that never connects: it knows what libpq's parameters in a URL and PG… variables mean.
  const { host, port, user, database, password, ssl } = new Client({ connectionString: url });
  const given = new URL(url).searchParams.get('options');
  const options = given === null ? DURABLE : `${given} ${DURABLE}`;
  const shown = host.includes(':') && !host.startsWith('/') ? `[${host}]` : encodeURIComponent(host);
  return {
    server: { host, port, user, database, password, ssl, options },
    name: `postgres://${shown}:${port}/${database ?? ''}`,
  };
}
