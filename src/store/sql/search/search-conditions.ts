// Conditions of searches as SQL, and the choice of the one that leads.
import { type RawBuilder, sql } from 'kysely';
import type { SearchPosition } from '../../key-record.ts';
import { marksOf } from '../../schema/schema-search.ts';
import type { SqlDatabase } from '../sql-database.ts';

/** The end of a range of texts with a common beginning; no text in UTF-8 sorts behind it. */
export const LAST = '\u{10ffff}';

/** What searches need of a database. */
export type Searched = Pick<SqlDatabase, 'reader' | 'byBytes' | 'hash' | 'ordersStreams'>;

export interface Condition {
  /** A query for the ids of what it finds, by an index. */
  readonly ids: RawBuilder<unknown>;
  /** The same of a row that another condition has found. It must not use an index. */
  readonly holds: RawBuilder<boolean>;
  /** Whether it never finds many. */
  readonly isFew?: boolean;
  /** What the marks of all that it finds are of, such as `team=ID`. */
  readonly mark?: string;
}

/** Conditions on a column `marks`: what all have that have these marks. */
export async function hasMarks(
  { reader, hash }: Searched,
  texts: readonly string[],
): Promise<readonly RawBuilder<boolean>[]> {
  if (texts.length === 0) return [];
  const [before, after] = marksOf(hash);
  const query = sql.join(
    texts.map((text) => sql`select cast(${text} as text) as t`),
    sql` union all `,
  );
  const { rows } = await sql<{ marks: string | number }>`
    select ${sql.raw(before)}${query}${sql.raw(after)} as marks`.execute(reader);
  const marks = sql.lit(Number(rows[0]?.marks));
  // It is never more. PostgreSQL takes an equality for few rows, and sorts them all.
  return [sql`(marks & ${marks}) >= ${marks}`];
}

/** The mark of a label with one value; a beginning has none. */
export const markOfLabel = (label: string, value: string) =>
  value.endsWith('*') ? {} : { mark: `${label}=${value}` };

/**
 * The condition that leads a list, as a range of its index. On a later page it has no beginning: the position is one, and SQLite would pass over
 * all rows between the two.
 */
export type Range = (after: SearchPosition) => RawBuilder<boolean>;

/** @param folded an expression of the name in lower case, compared by bytes */
export function nameBeginsWith(
  folded: RawBuilder<unknown>,
  name: string,
  isLater = false,
): RawBuilder<boolean> {
  const beginning = name.normalize('NFC');
  const end = sql<boolean>`${folded} < lower(${beginning}) || ${LAST}`;
  return isLater ? end : sql`${folded} >= lower(${beginning}) and ${end}`;
}

/** @param value as in `HolderFilter`: one that ends with `*` is a beginning */
export function matchesLabel(
  column: RawBuilder<unknown>,
  value: string,
  isLater = false,
): RawBuilder<boolean> {
  if (!value.endsWith('*')) return sql`${column} = ${value}`;
  const beginning = value.slice(0, -1);
  const end = sql<boolean>`${column} < ${`${beginning}${LAST}`}`;
  return isLater ? end : sql`${column} >= ${beginning} and ${end}`;
}

/** Labels `l` of holders, by the index of values. */
export const ofHolders = (label: string, value: string, isLater = false) =>
  sql<boolean>`l.name = ${label} and ${matchesLabel(sql`l.value`, value, isLater)} and l.marks <> 0`;

/** The column before the owner in the order of a list. One value is no order: with it PostgreSQL takes a later page for a row, and sorts. */
export const orderOfLabel = (value: string, column: RawBuilder<unknown>): readonly RawBuilder<unknown>[] =>
  value.endsWith('*') ? [column] : [];

/** Whether an owner has a label, by the key of the table. The offset keeps PostgreSQL from a join, whose rows it takes for few. */
export function hasLabel(owner: RawBuilder<unknown>, [name, value]: readonly [string, string]) {
  return sql<boolean>`exists (select 1 from labels as held
    where held.owner_id = ${owner} and held.name = ${name} and ${matchesLabel(sql`held.value || ''`, value)}
    limit 1 offset 0)`;
}

/** The condition that finds the fewest; undefined where all find many, or where there is only one. */
export async function narrowest(
  { reader }: Searched,
  conditions: readonly Condition[],
  maxFew: number,
): Promise<Condition | undefined> {
  if (conditions.length < 2) return undefined;
  const counts = conditions.map(
    ({ ids }, index) =>
      sql`(select count(*) from (select 1 from (${ids}) as found limit ${sql.lit(maxFew + 1)}) as counted) as ${sql.ref(`n${index}`)}`,
  );
  const { rows } = await sql<Record<string, number | string>>`select ${sql.join(counts)}`.execute(reader);
  const found = conditions
    .map((condition, index) => ({ condition, count: Number(rows[0]?.[`n${index}`]) }))
    .toSorted((a, b) => a.count - b.count);
  const [first] = found;
  return first !== undefined && first.count <= maxFew ? first.condition : undefined;
}

/** The condition on rows behind a position, or from it on. @param position empty for the first page */
export function isBehind(
  order: readonly RawBuilder<unknown>[],
  position: SearchPosition,
  isFrom = false,
): RawBuilder<boolean> {
  if (position.length === 0) return sql`1 = 1`;
  const values = position.map((value) => (typeof value === 'number' ? sql.lit(value) : sql`${value}`));
  return sql`(${sql.join(order)}) ${isFrom ? sql`>=` : sql`>`} (${sql.join(values)})`;
}

/** All of these; without any, each row. */
export const joined = (conditions: readonly RawBuilder<unknown>[]) =>
  conditions.length === 0 ? sql`1 = 1` : sql.join(conditions, sql` and `);
