// Why a PostgreSQL store could not be opened, in words that say what to do. Decides nothing.
import { DatabaseError } from 'pg';
import { StoreOpenError } from '../open-error.ts';

/** SQLSTATE, or the system's name of the error → what the operator can do about it. */
const ADVICE: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there; start the server, or correct host and port of `store`',
  ENOTFOUND: 'the name of its host is unknown; correct the host of `store`',
  EAI_AGAIN: 'the name of its host cannot be resolved at the moment',
  EHOSTUNREACH: 'there is no way to its host',
  ENETUNREACH: 'there is no way to its network',
  ETIMEDOUT: 'its host does not answer',
  ECONNRESET: 'it ended the connection; is that a PostgreSQL server?',
  '28P01': 'correct user and password of `store`',
  '28000': 'correct the user of `store`, or let it in by the pg_hba.conf of the server',
  '3D000': 'create the database, or correct the name behind the host in `store`',
  '42501': 'let the role create tables there, or connect as the owner of the schema',
  '53300': 'it has no connection left; raise max_connections, or end what holds them',
  '55P03': 'somebody holds a lock; another process may be migrating',
  '57P03': 'it is starting or stopping; try again later',
};

/** The server is there and will take connections (`cannot_connect_now`). */
export function isStartingUp(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === '57P03';
}

/** One line for the operator. Neither the server nor the driver repeats a password. */
export function explainOpening(error: unknown): string {
  if (error instanceof StoreOpenError) return error.message;
  if (!(error instanceof Error)) return String(error);
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  const advice = ADVICE[code];
  // Where a name has several addresses, Node's error has no text of its own.
  const text = error instanceof DatabaseError || advice === undefined ? error.message : code;
  return [text === '' ? code : text, ...(advice === undefined ? [] : [advice])].join('; ');
}
