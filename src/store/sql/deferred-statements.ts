// Deferred statements of a transaction, which save round trips to a distant server: a statement whose result is not needed at
// once is sent together with the next one.
import type { CompiledQuery, Kysely } from 'kysely';
import type { Tables } from '../schema/tables.ts';

const DEFERRED = new WeakSet<object>();

/**
 * Queues a statement of the transaction. It is sent, in order, with the next awaited statement or with the commit, which
 * rejects with its error. SQLite runs it at once.
 *
 * @returns an array that is filled with the rows once the next statement has been awaited
 */
export async function defer<R>(
  trx: Kysely<Tables>,
  query: { compile(): CompiledQuery<R> },
): Promise<readonly R[]> {
  const compiled = query.compile();
  DEFERRED.add(compiled);
  return (await trx.executeQuery(compiled)).rows;
}

/** For drivers: whether the result of this query is deferred. */
export function isDeferred(query: object): boolean {
  return DEFERRED.has(query);
}
