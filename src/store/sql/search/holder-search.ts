// The search for holders. The condition that finds few leads, and the others are checked; where all find many, the first one that has the
// order of the list.
import { type RawBuilder, sql } from 'kysely';
import type { HolderFilter, OwnerLabels } from '../../key-record.ts';
import type { HolderSummary } from '../../organisation-record.ts';
import { holderFrom } from '../sql-holders.ts';
import {
  type Condition,
  hasLabel,
  hasMarks,
  idsOf,
  isBehind,
  joined,
  LAST,
  markOfLabel,
  nameBeginsWith,
  narrowest,
  ofHolders,
  type Searched,
  valuesAt,
} from './search-conditions.ts';
import { idsInPieces, type Position, SEARCH_BOUNDS, type SearchBounds } from './search-pieces.ts';

const ID = sql`h.id`;
const HOLDERS = sql`holders as h`;
/** Indexes are of these; all holders have marks. */
const HAS_MARKS = sql`h.marks is not null`;

interface List {
  readonly condition: Condition;
  /** Of a row of the tables, by the index of the order. */
  readonly leads: RawBuilder<boolean>;
  readonly order: readonly RawBuilder<unknown>[];
  readonly from: RawBuilder<unknown>;
}

/** Holders, ordered by the first of these that the filter has: name, value that begins with the text of a label; else by id. */
export async function searchHolders(
  database: Searched,
  filter: HolderFilter,
  limit: number,
  after?: string,
  { maxFew, pieceRows }: SearchBounds = SEARCH_BOUNDS,
): Promise<readonly HolderSummary[]> {
  const lists = listsOf(database, filter);
  const [list] = lists;
  const from = list?.from ?? HOLDERS;
  const order = [...(list?.order ?? []), ID];
  const last =
    after === undefined ? [] : await valuesAt(database, order, sql`${from} where ${ID} = ${after}`);
  if (last === undefined) return [];
  const all = lists.map(({ condition }) => condition);
  const few = await narrowest(database, all, maxFew);
  const marks = few === undefined && all.length > 1 ? await hasMarks(database, all, sql`h.marks`) : [];
  const rest = lists.filter(({ condition }) => condition !== (few ?? list?.condition));
  const leads = list === undefined || few !== undefined ? [] : [list.leads];
  const conditions = [...marks, ...rest.map(({ condition }) => condition.holds)];
  const rows = few === undefined ? from : sql`(${few.ids}) as few cross join ${from}`;
  const isOfFew = few === undefined ? [] : [sql`${ID} = few.id`];
  const behind = (position: Position) => joined([...isOfFew, ...leads, isBehind(order, position)]);
  const inOrder = sql`order by ${sql.join(order)}`;
  const page = (position: Position, end: Position | undefined, limit: number) => {
    const read = sql`${rows} where ${behind(position)}`;
    const found =
      end === undefined
        ? sql`${joined([read, ...conditions])}`
        : sql`(select h.* from ${read} ${inOrder} limit ${sql.lit(pieceRows)}) as h where ${joined(conditions)}`;
    return sql`select ${ID} as id from ${found} ${inOrder} limit ${sql.lit(limit)}`;
  };
  const endOf = (position: Position) => {
    const row = sql`${rows} where ${behind(position)} ${inOrder} limit 1 offset ${sql.lit(pieceRows - 1)}`;
    return valuesAt(database, order, row);
  };
  const ids =
    few === undefined && rest.some(({ condition }) => condition.isUnmarked === true)
      ? await idsInPieces<string>(database, { endOf, page }, limit, last)
      : await idsOf<string>(database, page(last, undefined, limit), few === undefined && all.length > 1);
  const [labels, summaries] = await Promise.all([labelsOf(database, ids), summariesOf(database, ids)]);
  return ids.flatMap((id) => {
    const summary = summaries.get(id);
    return summary === undefined ? [] : [{ ...summary, labels: labels.get(id) ?? {} }];
  });
}

async function summariesOf(
  { reader }: Searched,
  ids: readonly string[],
): Promise<ReadonlyMap<string, Omit<HolderSummary, 'labels'>>> {
  if (ids.length === 0) return new Map();
  const rows = await reader
    .selectFrom('holders')
    .leftJoin('teams', 'teams.id', 'holders.team_id')
    .select(['holders.id', 'holders.tier', 'holders.standing', 'holders.label', 'holders.team_id'])
    .select(['holders.terms', 'holders.created_at', 'teams.name as team'])
    .select((eb) => [
      eb
        .selectFrom('keys')
        .whereRef('keys.holder_id', '=', 'holders.id')
        .where('keys.state', '=', 'active')
        .select(eb.fn.countAll<number>().as('n'))
        .as('keys'),
      eb
        .selectFrom('keys')
        .innerJoin('key_uses', 'key_uses.prefix', 'keys.prefix')
        .whereRef('keys.holder_id', '=', 'holders.id')
        .select(({ fn }) => fn.max('key_uses.day').as('day'))
        .as('lastUsed'),
    ])
    .where('holders.id', 'in', ids)
    .execute();
  return new Map(
    rows.map((row) => [
      row.id,
      {
        ...holderFrom(row),
        team: row.team,
        keys: Number(row.keys),
        lastUsed: row.lastUsed,
        createdAt: row.created_at,
      },
    ]),
  );
}

/** @param ids at most 1000 */
export async function labelsOf(
  { reader }: Searched,
  ids: readonly string[],
): Promise<ReadonlyMap<string, OwnerLabels>> {
  const found = new Map<string, Record<string, string>>();
  if (ids.length === 0) return found;
  const query = reader.selectFrom('labels').selectAll().where('owner_id', 'in', ids);
  for (const { owner_id, name, value } of await query.orderBy('name').execute()) {
    const labels = found.get(owner_id) ?? {};
    labels[name] = value;
    found.set(owner_id, labels);
  }
  return found;
}

/** The conditions, of which the first gives the list its order. */
function listsOf(
  { byBytes }: Searched,
  { name, labels = {}, teamId, tier, standing }: HolderFilter,
): readonly List[] {
  const of = (
    order: readonly RawBuilder<unknown>[],
    leads: RawBuilder<boolean>,
    holds: RawBuilder<boolean>,
    mark: Pick<Condition, 'mark'> = {},
  ) => ({
    ...{ order, leads, from: HOLDERS },
    // In the order of the index, or PostgreSQL reads the table from its beginning to count them.
    condition: {
      ids: sql`select h.id as id from holders as h where ${leads} order by ${sql.join([...order, ID])}`,
      holds,
      ...mark,
    },
  });
  const equal = (column: string, value: string | undefined, mark: string): readonly List[] => {
    if (value === undefined) return [];
    const own = sql.ref(`h.${column}`);
    const leads = sql<boolean>`${own} = ${value} and ${HAS_MARKS}`;
    // Not of the row: PostgreSQL reads an index alone only where that has all columns of the query.
    const holds = sql<boolean>`exists (select 1 from holders as own
      where own.id = h.id and ${sql.ref(`own.${column}`)} || '' = ${value} limit 1 offset 0)`;
    return [of([], leads, holds, { mark: `${mark}=${value}` })];
  };
  const folded = sql`lower(h.label)${byBytes}`;
  const other = sql`coalesce(lower(h.label), ${sql.lit(LAST)})${byBytes}`;
  const ofLabels = Object.entries(labels).map(([label, value]): List => {
    const found = sql`select l.owner_id as id, l.value, l.marks from labels as l where ${ofHolders(label, value)}`;
    return {
      leads: sql<boolean>`1 = 1`,
      order: value.endsWith('*') ? [sql`h.value`] : [],
      from: sql`(${found}) as h`,
      condition: {
        ids: found,
        holds: hasLabel(ID, [label, value]),
        ...markOfLabel(label, value),
      },
    };
  });
  return [
    ...(name === undefined
      ? []
      : [of([folded], sql`${nameBeginsWith(folded, name)} and ${HAS_MARKS}`, nameBeginsWith(other, name))]),
    ...ofLabels.filter(({ order }) => order.length > 0),
    // First those with marks in their indexes.
    ...equal('standing', standing, 'standing'),
    ...equal('tier', tier, 'tier'),
    ...ofLabels.filter(({ order }) => order.length === 0),
    ...equal('team_id', teamId, 'team'),
  ];
}
