// Statements of a transaction that need no round trip of their own. A server that is far away costs its distance for every
// answer that is waited for; a statement whose answer decides nothing can travel with the next one.
import type { CompiledQuery, Kysely } from 'kysely';
import type { Tables } from '../schema/tables.ts';

const DEFERRED = new WeakSet<object>();

/**
 * Queues a statement of the transaction; it is sent, in order, with the next statement that is awaited, or with the commit. Its
 * error is the error of that statement or commit. SQLite runs it at once.
 *
 * @returns an array that holds the rows once the next statement has been awaited
 */
export async function defer<R>(
  trx: Kysely<Tables>,
  query: { compile(): CompiledQuery<R> },
): Promise<readonly R[]> {
  const compiled = query.compile();
  DEFERRED.add(compiled);
  return (await trx.executeQuery(compiled)).rows;
}

/** For drivers: whether the answer to this query is not awaited. */
export function isDeferred(query: object): boolean {
  return DEFERRED.has(query);
}
