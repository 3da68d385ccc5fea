// Lists whose conditions need a look-up for each row, such as the beginning of a label: they are read in pieces, so that no statement takes
// long and SQLite holds the event loop for one piece at a time.
import { setImmediate } from 'node:timers/promises';
import type { RawBuilder } from 'kysely';
import { GatewayError } from '../../../errors.ts';
import { idsOf, type Searched } from './search-conditions.ts';

/** How far a search reads. */
export interface SearchBounds {
  /** What a condition may find that leads without an order. */
  readonly maxFew: number;
  /** Rows of a piece. */
  readonly pieceRows: number;
}

export const SEARCH_BOUNDS: SearchBounds = { maxFew: 5000, pieceRows: 10_000 };

/** How long all pieces of a page may take, in milliseconds. */
const MAX_MS = 10_000;

/** What the order of a list has in one row; empty for its beginning. */
export type Position = readonly RawBuilder<unknown>[];

export interface PiecedList {
  /** The row with which the piece behind a position ends; undefined for the last piece. */
  readonly endOf: (position: Position) => Promise<Position | undefined>;
  /** A query for the ids behind a position, up to the end of the piece, in order. */
  readonly page: (position: Position, end: Position | undefined, limit: number) => RawBuilder<unknown>;
}

/**
 * The ids of a page.
 * @param after the row before the page; empty for the first one
 * @throws GatewayError `search_too_broad` when too little is found within `MAX_MS`
 */
export async function idsInPieces<Id>(
  database: Searched,
  { endOf, page }: PiecedList,
  limit: number,
  after: Position,
): Promise<readonly Id[]> {
  const endsAt = performance.now() + MAX_MS;
  const ids: Id[] = [];
  for (let position = after; ; ) {
    const end = await endOf(position);
    ids.push(...(await idsOf<Id>(database, page(position, end, limit - ids.length), true)));
    if (end === undefined || ids.length >= limit) return ids;
    if (performance.now() > endsAt) throw new GatewayError('search_too_broad');
    position = end;
    await setImmediate();
  }
}
