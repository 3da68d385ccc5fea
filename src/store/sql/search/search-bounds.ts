// How far one page of a search reads. Rows of an index are scanned in order; those with the marks of all conditions are looked at. A page that
// has reached a bound ends early and continues where it stopped.
import { setImmediate } from 'node:timers/promises';
import { type RawBuilder, sql } from 'kysely';
import { GatewayError } from '../../../errors.ts';
import type { SearchPosition } from '../../key-record.ts';
import { isBehind, joined, type Searched } from './search-conditions.ts';

export interface SearchBounds {
  /** What a condition may find that leads without an order. */
  readonly maxFew: number;
  /** Rows that the first statement scans; each further one scans ten times as many. */
  readonly firstRows: number;
  /** Rows of an index that a page scans. */
  readonly maxRows: number;
  /** Rows that a page looks at in tables. */
  readonly maxLooks: number;
}

export const SEARCH_BOUNDS: SearchBounds = {
  maxFew: 5000,
  firstRows: 1000,
  maxRows: 60_000,
  maxLooks: 4000,
};

/** A list in the order of an index. Columns of its order are called `o0`, `o1` and so on. */
export interface ScannedList {
  /** The columns of the order of what is scanned. */
  readonly scanned: readonly RawBuilder<unknown>[];
  /** The columns of the order of what is found; more where one scanned row has several. */
  readonly found: readonly RawBuilder<unknown>[];
  /** Queries for rows behind a position with the columns of `scanned` and `marks`, each in the order of an index. */
  readonly streams: (after: SearchPosition) => readonly RawBuilder<unknown>[];
  /** Conditions on `marks`. */
  readonly marks: readonly RawBuilder<boolean>[];
  /** A query on `looked`, which has the columns of `scanned`, for those of `found`. */
  readonly check: (after: SearchPosition) => RawBuilder<unknown>;
  /** Whether each scanned row is found. */
  readonly isWhole: boolean;
  /** Of the id, which is the last column of `found`. */
  readonly ofId: 'string' | 'number';
}

/** Positions of what a page finds. */
export interface FoundPage {
  readonly positions: readonly SearchPosition[];
  readonly next: SearchPosition | undefined;
}

/** Behind all rows that one scanned row has. */
export const LAST_ID = Number.MAX_SAFE_INTEGER;

/** @param after the row before the page; empty for the first one */
export async function foundInBounds(
  { reader, ordersStreams }: Searched,
  list: ScannedList,
  limit: number,
  after: SearchPosition,
  { firstRows, maxRows, maxLooks }: SearchBounds,
): Promise<FoundPage> {
  const positions: SearchPosition[] = [];
  let [position, rowsLeft, looksLeft] = [after, maxRows, maxLooks];
  // One more than the page tells whether there is another.
  for (let size = list.isWhole ? limit + 1 : firstRows; ; size *= 10) {
    const wanted = limit + 1 - positions.length;
    // Without marks, each row that is scanned is looked at.
    const isLooked = list.marks.length === 0 && !list.isWhole;
    // After hits, about twice as many rows as the rest of the page needs.
    const read = maxRows - rowsLeft;
    const needed = positions.length === 0 ? size : Math.ceil((2 * read * wanted) / positions.length);
    const rows = Math.min(size, Math.max(needed, firstRows), rowsLeft, isLooked ? looksLeft : size);
    const looks = list.isWhole ? rows : Math.min(rows, looksLeft);
    const query = pieceOf(list, position, { rows, looks, wanted }, ordersStreams);
    const { rows: found } = await sql<Record<string, string | number>>`${query}`.execute(reader);
    const ends = new Map<number, { readonly count: number; readonly at: SearchPosition }>();
    for (const { what, count, ...columns } of found) {
      const at = positionFrom(list, columns);
      if (Number(what) === FOUND) positions.push(at);
      else ends.set(Number(what), { count: Number(count), at });
    }
    if (positions.length > limit) return pageUpTo(positions, limit);
    const [looked, scanned] = [ends.get(LOOKED), ends.get(SCANNED)];
    looksLeft -= looked?.count ?? 0;
    rowsLeft -= scanned?.count ?? 0;
    const last = looked?.count === looks ? looked : scanned;
    if (last === undefined || (last === scanned && last.count < rows)) return { positions, next: undefined };
    position = last.at;
    if (rowsLeft <= 0 || looksLeft <= 0) return { positions, next: position };
    await setImmediate();
  }
}

/** A page of few rows, which are all read and then sorted. @param rows what follows `from`: tables and conditions, without the position */
export async function foundAmongFew(
  { reader }: Pick<Searched, 'reader'>,
  list: Pick<ScannedList, 'found' | 'ofId'>,
  rows: RawBuilder<unknown>,
  limit: number,
  after: SearchPosition,
): Promise<FoundPage> {
  const names = namesOf(list.found);
  // Materialised, or PostgreSQL reads in the order of the list and looks for the few there.
  const page = await sql<Record<string, string | number>>`with found as materialized (
      select ${namedColumns(list.found)} from ${rows}
    )
    select * from found where ${isBehind(names, after)}
    order by ${sql.join(names)} limit ${sql.lit(limit + 1)}`.execute(reader);
  return pageUpTo(
    page.rows.map((row) => positionFrom(list, row)),
    limit,
  );
}

/** The position that a row has. PostgreSQL has numbers of 64 bits as text. */
function positionFrom(
  { found, ofId }: Pick<ScannedList, 'found' | 'ofId'>,
  columns: Readonly<Record<string, string | number>>,
): SearchPosition {
  const values = found.map((_, index) => columns[`o${index}`] ?? '');
  return ofId === 'number' ? values.with(-1, Number(values.at(-1))) : values;
}

/** @param positions one more than the page where there are more */
function pageUpTo(positions: readonly SearchPosition[], limit: number): FoundPage {
  const page = positions.slice(0, limit);
  return { positions: page, next: positions.length > limit ? page.at(-1) : undefined };
}

/** What rows of a piece are: hits, the last row that was looked at, and the last one that was scanned. */
const [FOUND, LOOKED, SCANNED] = [0, 1, 2];

/** One statement, so that what it finds and where it ends are of one state of the database. */
function pieceOf(
  { scanned, found, streams, marks, check }: ScannedList,
  after: SearchPosition,
  { rows, looks, wanted }: Readonly<Record<'rows' | 'looks' | 'wanted', number>>,
  ordersStreams: boolean,
): RawBuilder<unknown> {
  const [ofScanned, ofFound] = [namesOf(scanned), namesOf(found)];
  const order = sql.join(ofScanned);
  const end = sql.join(
    found.map((_, index) => (index < scanned.length ? sql.ref(`o${index}`) : sql.lit(LAST_ID))),
  );
  const last = (what: number, of: string) => sql`select * from (select ${sql.lit(what)} as what,
    (select count(*) from ${sql.ref(of)}) as count, ${end} from ${sql.ref(of)}
    order by ${sql.join(ofScanned.map((name) => sql`${name} desc`))} limit 1) as ${sql.ref(`last_${of}`)}`;
  const merged = streams(after).map((stream) =>
    ordersStreams ? sql`(${stream} order by ${order} limit ${sql.lit(rows)})` : stream,
  );
  return sql`with scanned as materialized (
      select * from (${sql.join(merged, sql` union all `)}) as streams order by ${order} limit ${sql.lit(rows)}
    ), looked as materialized (
      select * from scanned where ${joined(marks)} order by ${order} limit ${sql.lit(looks)}
    ), found as materialized (
      ${check(after)} order by ${sql.join(ofFound)} limit ${sql.lit(wanted)}
    )
    select ${sql.lit(FOUND)} as what, 0 as count, ${sql.join(ofFound)} from found
    union all ${last(LOOKED, 'looked')} union all ${last(SCANNED, 'scanned')}
    order by what, ${sql.join(ofFound)}`;
}

/** The names of the columns of an order. */
const namesOf = (order: readonly unknown[]) => order.map((_, index) => sql.ref(`o${index}`));

/** The columns of an order, with their names. */
export const namedColumns = (order: readonly RawBuilder<unknown>[]) =>
  sql.join(order.map((column, index) => sql`${column} as ${sql.ref(`o${index}`)}`));

/**
 * The position of a cursor in an order of texts with the id last.
 * @throws GatewayError `invalid_value` for one of another list
 */
export function positionIn(
  { found, ofId }: Pick<ScannedList, 'found' | 'ofId'>,
  after: SearchPosition | undefined,
): SearchPosition {
  if (after === undefined) return [];
  const isOfList =
    after.length === found.length &&
    after.every((value, index) => typeof value === (index < found.length - 1 ? 'string' : ofId));
  if (isOfList) return after;
  throw new GatewayError('invalid_value', 'The cursor is not one of this list.', { param: 'cursor' });
}
