// Conditions of searches as SQL, and the choice of the one that leads.
import { type RawBuilder, sql } from 'kysely';
import { GatewayError } from '../../../errors.ts';
import type { OwnerLabels } from '../../key-record.ts';
import { marksOf } from '../../schema/schema-search.ts';
import type { SqlDatabase } from '../sql-database.ts';

/** The end of a range of texts with a common beginning; no text in UTF-8 sorts behind it. */
export const LAST = '\u{10ffff}';

/** What searches need of a database. */
export type Searched = Pick<SqlDatabase, 'reader' | 'byBytes' | 'hash'>;

/** A condition of a search. */
export interface Condition {
  /** A query for the ids of what it finds, by an index. */
  readonly ids: RawBuilder<unknown>;
  /** The same of a row that another condition has found. It must not use an index. */
  readonly holds: RawBuilder<boolean>;
  /** Whether it never finds many. */
  readonly isFew?: boolean;
  /** What the marks of all that it finds are of, such as `team=ID`. */
  readonly mark?: string;
  /** Whether `holds` looks at labels for each row, because no mark rules rows out before. */
  readonly isUnmarked?: boolean;
}

/** What all that these conditions find have in a column of marks; nothing where a single condition has its own index. */
export async function hasMarks(
  { reader, hash }: Searched,
  conditions: readonly Condition[],
  column: RawBuilder<unknown>,
): Promise<readonly RawBuilder<boolean>[]> {
  const texts = conditions.flatMap(({ mark }) => (mark === undefined ? [] : [mark]));
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
  return [sql`(${column} & ${marks}) >= ${marks}`];
}

/** The mark of a label with one value; a beginning has none. */
export const markOfLabel = (label: string, value: string) =>
  value.endsWith('*') ? { isUnmarked: true } : { mark: `${label}=${value}` };

/** @param folded an expression of the name in lower case, compared by bytes */
export function nameBeginsWith(folded: RawBuilder<unknown>, name: string): RawBuilder<boolean> {
  const beginning = name.normalize('NFC');
  return sql`${folded} >= lower(${beginning}) and ${folded} < lower(${beginning}) || ${LAST}`;
}

/** @param owner the column with the id of the owner */
export function labelConditions(
  labels: OwnerLabels,
  owner: RawBuilder<unknown>,
): readonly RawBuilder<boolean>[] {
  return Object.entries(labels).map(
    ([name, value]) =>
      sql`${owner} in (select owner_id from labels where name = ${name} and ${matchesLabel(sql`value`, value)} and marks is not null)`,
  );
}

/** @param value as in `HolderFilter`: one that ends with `*` is a beginning */
export function matchesLabel(column: RawBuilder<unknown>, value: string): RawBuilder<boolean> {
  if (!value.endsWith('*')) return sql`${column} = ${value}`;
  const beginning = value.slice(0, -1);
  return sql`${column} >= ${beginning} and ${column} < ${`${beginning}${LAST}`}`;
}

/** Labels `l` of holders, by the index of values. */
export const ofHolders = (label: string, value: string) =>
  sql<boolean>`l.name = ${label} and ${matchesLabel(sql`l.value`, value)} and l.marks <> 0`;

/** The column before the owner in the order of a list. One value is no order: with it PostgreSQL takes a later page for a row, and sorts. */
export const orderOfLabel = (value: string): readonly RawBuilder<unknown>[] =>
  value.endsWith('*') ? [sql`l.value`] : [];

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

/**
 * The ids of a page.
 * @param isBroad whether each of several conditions finds many
 * @throws GatewayError `search_too_broad` when such a search takes longer than a statement of the database may
 */
export async function idsOf<Id>(
  { reader }: Searched,
  page: RawBuilder<unknown>,
  isBroad: boolean,
): Promise<readonly Id[]> {
  try {
    const { rows } = await sql<{ id: Id }>`${page}`.execute(reader);
    return rows.map(({ id }) => id);
  } catch (cause) {
    const isEnded = cause instanceof Error && Reflect.get(cause, 'code') === QUERY_CANCELED;
    throw isBroad && isEnded ? new GatewayError('search_too_broad', undefined, { cause }) : cause;
  }
}

/** In PostgreSQL. */
const QUERY_CANCELED = '57014';

/**
 * The columns of an order in the row that a page continues from.
 * @param row what follows `from`, with the condition that finds it
 * @returns undefined where the list does not have it
 */
export async function valuesAt(
  { reader }: Searched,
  order: readonly RawBuilder<unknown>[],
  row: RawBuilder<unknown>,
): Promise<readonly RawBuilder<unknown>[] | undefined> {
  const columns = order.map((column, index) => sql`${column} as ${sql.ref(`v${index}`)}`);
  const { rows } = await sql<Record<string, unknown>>`select ${sql.join(columns)} from ${row}`.execute(
    reader,
  );
  const [found] = rows;
  return found && order.map((_, index) => sql`${found[`v${index}`]}`);
}

/** The condition on rows behind these values. @param values empty for the first page */
export function isBehind(
  order: readonly RawBuilder<unknown>[],
  values: readonly RawBuilder<unknown>[],
): RawBuilder<boolean> {
  return values.length === 0 ? sql`1 = 1` : sql`(${sql.join(order)}) > (${sql.join(values)})`;
}

/** The condition on rows up to these values. */
export function isUpTo(
  order: readonly RawBuilder<unknown>[],
  values: readonly RawBuilder<unknown>[],
): RawBuilder<boolean> {
  return sql`(${sql.join(order)}) <= (${sql.join(values)})`;
}

export const joined = (conditions: readonly RawBuilder<unknown>[]) => sql.join(conditions, sql` and `);
