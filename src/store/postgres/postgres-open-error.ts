// Explains to the operator why a PostgreSQL store cannot be opened, with advice.
import { DatabaseError } from 'pg';
import { StoreOpenError } from '../store-errors.ts';

/** SQLSTATE or system error code → advice for the operator. */
export const ADVICE: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there; start the server, or correct host and port in `store`',
  ENOTFOUND: 'its host name does not exist; correct the host in `store`',
  EAI_AGAIN: 'its host name cannot be resolved at the moment; check the DNS server, or try again later',
  EHOSTUNREACH: 'there is no route to its host; check the network, or correct the host in `store`',
  ENETUNREACH: 'there is no route to its network; check the network, or correct the host in `store`',
  ETIMEDOUT: 'its host does not answer; check the network and firewalls, or correct the host in `store`',
  ECONNRESET: 'it closed the connection; check that `store` names a PostgreSQL server',
  '28P01': 'correct user and password in `store`',
  '28000': 'correct the user in `store`, or allow it in the pg_hba.conf of the server',
  '3D000': 'create the database, or correct its name in `store`',
  '42501': 'allow the role to create tables there, or connect as the owner of the schema',
  '53300': 'all its connections are in use; raise max_connections, or close other connections',
  '55P03': 'another session holds a lock, perhaps a migration; try again later',
  '57P03': 'it is starting or stopping; try again later',
};

/** Whether the server is starting up or shutting down (`cannot_connect_now`). */
export function isStartingUp(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === '57P03';
}

/** One line for the operator. Messages of the server and of the driver contain no password. */
export function explainOpening(error: unknown): string {
  if (error instanceof StoreOpenError) return error.message;
  if (!(error instanceof Error)) return String(error);
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  const advice = ADVICE[code];
  // Node's AggregateError for a name with several addresses has an empty message.
  const text = error instanceof DatabaseError || advice === undefined ? error.message : code;
  return [text === '' ? code : text, ...(advice === undefined ? [] : [advice])].join('; ');
}
