// The search for holders. The condition that finds few leads, and the others are checked; where all find many, the first one that has the
// order of the list.
import { type RawBuilder, sql } from 'kysely';
import type { HolderFilter, OwnerLabels, SearchPage, SearchPosition } from '../../key-record.ts';
import type { HolderSummary } from '../../organisation-record.ts';
import { holderFrom } from '../sql-holders.ts';
import {
  foundAmongFew,
  foundInBounds,
  namedColumns,
  positionIn,
  SEARCH_BOUNDS,
  type SearchBounds,
} from './search-bounds.ts';
import {
  type Condition,
  hasLabel,
  hasMarks,
  isBehind,
  joined,
  LAST,
  markOfLabel,
  nameBeginsWith,
  narrowest,
  ofHolders,
  orderOfLabel,
  type Range,
  type Searched,
} from './search-conditions.ts';

const ID = sql`h.id`;
const HOLDERS = sql`holders as h`;
/** Indexes are of these; all holders have marks. */
const HAS_MARKS = sql`h.marks is not null`;

interface List {
  readonly condition?: Condition;
  /** Of a row of the tables, by the index of the order. */
  readonly leads: Range;
  readonly order: readonly RawBuilder<unknown>[];
  readonly from: (after: SearchPosition) => RawBuilder<unknown>;
}

/** Holders, ordered by the first of these that the filter has: name, value that begins with the text of a label; else by id. */
export async function searchHolders(
  database: Searched,
  filter: HolderFilter,
  limit: number,
  from?: SearchPosition,
  bounds: SearchBounds = SEARCH_BOUNDS,
): Promise<SearchPage<HolderSummary>> {
  const lists = listsOf(database, filter);
  const [list = { order: [], from: () => HOLDERS, leads: () => sql<boolean>`1 = 1` }]: readonly List[] =
    lists;
  const conditions = lists.flatMap(({ condition }) => condition ?? []);
  const few = await narrowest(database, conditions, bounds.maxFew);
  const checked = conditions.filter((each) => each !== (few ?? list.condition));
  const holds = checked.map((each) => each.holds);
  const order = [...list.order, ID];
  const shape = { found: order, ofId: 'string' } as const;
  const after = positionIn(shape, from);
  const { positions, next } = few === undefined ? await inBounds() : await ofFew(few);
  const ids = positions.map((position) => String(position.at(-1)));
  const [labels, summaries] = await Promise.all([labelsOf(database, ids), summariesOf(database, ids)]);
  const items = ids.flatMap((id) => {
    const summary = summaries.get(id);
    return summary === undefined ? [] : [{ ...summary, labels: labels.get(id) ?? {} }];
  });
  return { items, next };

  function ofFew({ ids }: Condition) {
    const rows = sql`(${ids}) as few cross join ${list.from([])} where ${joined([sql`${ID} = few.id`, ...holds])}`;
    return foundAmongFew(database, shape, rows, limit, after);
  }

  async function inBounds() {
    const marks = await hasMarks(
      database,
      checked.flatMap(({ mark }) => mark ?? []),
    );
    const column = marks.length === 0 ? sql`0` : sql`h.marks`;
    const id = sql.ref(`o${order.length - 1}`);
    const isFound =
      holds.length === 0
        ? []
        : [
            sql`exists (select 1 from holders as h where ${ID} = ${id} and ${joined(holds)} limit 1 offset 0)`,
          ];
    const streams = (after: SearchPosition) => [
      sql`select ${namedColumns(order)}, ${column} as marks from ${list.from(after)}
        where ${list.leads(after)} and ${isBehind(order, after)}`,
    ];
    const check = () => sql`select * from looked where ${joined(isFound)}`;
    const scanned = { ...shape, scanned: order, streams, marks, check, isWhole: holds.length === 0 };
    return foundInBounds(database, scanned, limit, after, bounds);
  }
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
    leads: Range,
    holds: RawBuilder<boolean>,
    mark: Pick<Condition, 'mark'> = {},
  ) => ({
    order,
    leads,
    from: () => HOLDERS,
    // In the order of the index, or PostgreSQL reads the table from its beginning to count them.
    condition: {
      ids: sql`select h.id as id from holders as h where ${leads([])} order by ${sql.join([...order, ID])}`,
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
    return [of([], () => leads, holds, { mark: `${mark}=${value}` })];
  };
  const folded = sql`lower(h.label)${byBytes}`;
  const other = sql`coalesce(lower(h.label), ${sql.lit(LAST)})${byBytes}`;
  const ofLabels = Object.entries(labels).map(([label, value]): List => {
    const found = (after: SearchPosition) =>
      sql`select l.owner_id as id, l.value, l.marks from labels as l where ${ofHolders(label, value, after.length > 0)}`;
    return {
      leads: () => sql<boolean>`1 = 1`,
      order: orderOfLabel(value, sql`h.value`),
      from: (after) => sql`(${found(after)}) as h`,
      condition: {
        ids: found([]),
        holds: hasLabel(ID, [label, value]),
        ...markOfLabel(label, value),
      },
    };
  });
  return [
    ...(name === undefined
      ? []
      : [
          of(
            [folded],
            // SQLite has an index of an expression for a comparison of this alone, not of several columns.
            ([from]) =>
              sql`${nameBeginsWith(folded, name, from !== undefined)} and ${from === undefined ? sql`1 = 1` : sql`${folded} >= ${from}`} and ${HAS_MARKS}`,
            nameBeginsWith(other, name),
          ),
        ]),
    ...ofLabels.filter(({ order }) => order.length > 0),
    // First those with marks in their indexes.
    ...equal('standing', standing, 'standing'),
    ...equal('tier', tier, 'tier'),
    ...ofLabels.filter(({ order }) => order.length === 0),
    ...equal('team_id', teamId, 'team'),
  ];
}
