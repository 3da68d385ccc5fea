// A connection to PostgreSQL that tracks whether its server is writable, which the server reports on connect and at each change
// (PostgreSQL 14 and later), and the classification of errors.
import { Client, type ClientConfig, DatabaseError } from 'pg';

/** The server is read-only: a standby, or configured so. The next connection may reach another server. */
export class ReadOnlyServerError extends Error {
  override readonly name = 'ReadOnlyServerError';
}

/** A deadline of the gateway has passed. */
export class LateError extends Error {
  override readonly name = 'LateError';
  /** Whether the server was silent for longer than `silenceMs`. */
  readonly isSilence: boolean;

  constructor(message: string, isSilence: boolean, cause?: unknown) {
    super(message, { cause });
    this.isSilence = isSilence;
  }
}

export class ServerClient extends Client {
  /** When the connection attempt started, in `performance.now()` milliseconds. */
  readonly startedAt = performance.now();
  readonly #parameters = new Map<string, string>();

  constructor(config?: ClientConfig) {
    super(config);
    // Also after connecting: the server reports a promotion or a reloaded setting with its next answer.
    this.connection.on('parameterStatus', (message: { parameterName: string; parameterValue: string }) =>
      this.#parameters.set(message.parameterName, message.parameterValue),
    );
  }

  /** Why the server is read-only; undefined when it is writable or does not report it. */
  get readOnlyReason(): string | undefined {
    if (this.#parameters.get('in_hot_standby') === 'on') return 'the server is a standby in recovery';
    if (this.#parameters.get('default_transaction_read_only') === 'on') {
      return 'the server is read-only (default_transaction_read_only)';
    }
    return undefined;
  }
}

/** What a failed statement means for its server. */
type ConnectionFailure =
  /** The server is read-only: drop all connections to it. */
  | 'read_only'
  /** The server shuts down, or the network is broken: drop all connections too. */
  | 'lost'
  /** No write can succeed at the moment, on any connection. */
  | 'unwritable'
  /** This statement failed; others may succeed. */
  | 'unsure'
  /** The server works: it rejected the statement, or a constraint did. */
  | 'rejected';

/** SQLSTATE prefixes. The first match counts. */
const FAILURES: readonly (readonly [string, ConnectionFailure])[] = [
  ['25006', 'read_only'], // read_only_sql_transaction
  ['57P02', 'read_only'], // crash_shutdown
  ['57P03', 'read_only'], // cannot_connect_now
  ['57P', 'lost'], // admin_shutdown, database_dropped, idle_session_timeout
  ['08', 'lost'], // connection exceptions, also from a connection pooler
  ['53100', 'unwritable'], // disk_full
  ['58', 'unwritable'], // system errors: I/O
  ['XX001', 'unwritable'], // data_corrupted
  ['XX002', 'unwritable'], // index_corrupted
  ['22', 'rejected'],
  ['23', 'rejected'],
  ['P0', 'rejected'],
];

export function failureOf(error: unknown): ConnectionFailure {
  if (error instanceof ReadOnlyServerError) return 'read_only';
  if (error instanceof LateError) return error.isSilence ? 'lost' : 'unsure';
  // A parameter or a result value that cannot be converted.
  if (error instanceof TypeError || error instanceof RangeError) return 'rejected';
  if (!(error instanceof DatabaseError)) return 'lost';
  const code = error.code ?? '';
  // `begin ... read write` on a server in recovery is "not supported".
  if (code === '0A000' && /recovery/.test(error.message)) return 'read_only';
  return FAILURES.find(([start]) => code.startsWith(start))?.[1] ?? 'unsure';
}
