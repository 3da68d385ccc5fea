// One connection to PostgreSQL that knows whether its server takes writes: the server says so when the connection is made, and
// again whenever that changes (PostgreSQL 14 and later). And which errors mean that a server takes none.
import { Client, type ClientConfig, DatabaseError } from 'pg';

/** The server takes no writes: a standby, or one that was made read-only. The next connection may find another server. */
export class ReadOnlyServerError extends Error {
  override readonly name = 'ReadOnlyServerError';
}

/** A deadline of the gateway's own has passed. */
export class LateError extends Error {
  override readonly name = 'LateError';
  /** Whether the server owed an answer for longer than it may take. */
  readonly isSilence: boolean;

  constructor(message: string, isSilence: boolean, cause?: unknown) {
    super(message, { cause });
    this.isSilence = isSilence;
  }
}

export class ServerClient extends Client {
  /** When the connection was begun, by `performance.now()`. */
  readonly begunAt = performance.now();
  readonly #parameters = new Map<string, string>();

  constructor(config?: ClientConfig) {
    super(config);
    // Not while connecting alone: a standby that is promoted, and a setting that is reloaded, are announced with the next answer.
    this.connection.on('parameterStatus', (message: { parameterName: string; parameterValue: string }) =>
      this.#parameters.set(message.parameterName, message.parameterValue),
    );
  }

  /** Why the server takes no writes; undefined when it does, or does not say. */
  get readOnlyReason(): string | undefined {
    if (this.#parameters.get('in_hot_standby') === 'on') return 'the server is a standby in recovery';
    if (this.#parameters.get('default_transaction_read_only') === 'on') {
      return 'transactions are read-only there (default_transaction_read_only)';
    }
    return undefined;
  }
}

/** What a failed statement says of the server that it was sent to. */
type ConnectionFailure =
  /** It takes no writes: leave it, with all connections. */
  | 'read_only'
  /** It is about to go, or the way to it is broken: leave it as well. */
  | 'lost'
  /** No write can work at the moment, on any connection. */
  | 'unwritable'
  /** This statement did not work; others may. */
  | 'unsure'
  /** The server works: the statement was wrong, or a rule of the tables refused it. */
  | 'refused';

/** SQLSTATEs and classes of them. The first that fits counts. */
const MEANINGS: readonly (readonly [string, ConnectionFailure])[] = [
  ['25006', 'read_only'], // read_only_sql_transaction
  ['57P02', 'read_only'], // crash_shutdown
  ['57P03', 'read_only'], // cannot_connect_now
  ['57P', 'lost'], // admin_shutdown, database_dropped, idle_session_timeout
  ['08', 'lost'], // connection exceptions, of a pooler in between as well
  ['53100', 'unwritable'], // disk_full
  ['58', 'unwritable'], // system errors: I/O
  ['XX001', 'unwritable'], // data_corrupted
  ['XX002', 'unwritable'], // index_corrupted
  ['22', 'refused'],
  ['23', 'refused'],
  ['P0', 'refused'],
];

export function failureOf(error: unknown): ConnectionFailure {
  if (error instanceof ReadOnlyServerError) return 'read_only';
  if (error instanceof LateError) return error.isSilence ? 'lost' : 'unsure';
  // A value that cannot be sent, or one that cannot be read.
  if (error instanceof TypeError || error instanceof RangeError) return 'refused';
  if (!(error instanceof DatabaseError)) return 'lost';
  const code = error.code ?? '';
  // `begin ... read write` on a server in recovery is "not supported".
  if (code === '0A000' && /recovery/.test(error.message)) return 'read_only';
  return MEANINGS.find(([start]) => code.startsWith(start))?.[1] ?? 'unsure';
}
