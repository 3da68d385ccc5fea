// The search for keys. It reads the table `key_search`, whose indexes begin with the kind of a key: what many keys have in common is one
// stream of an index for each kind, in the order of the list. A condition that few keys meet leads, and the others are checked.
import { type RawBuilder, sql } from 'kysely';
import { TIERS } from '../../../config/schema/config-schema.ts';
import { BILLING_STATUSES, KEY_STATES, type KeyFilter, type ListedKey } from '../../key-record.ts';
import { SUMMARY, withHolder, withTerms } from '../sql-keys.ts';
import {
  type Condition,
  hasLabel,
  hasMarks,
  idsOf,
  isBehind,
  isUpTo,
  joined,
  LAST,
  markOfLabel,
  nameBeginsWith,
  narrowest,
  ofHolders,
  orderOfLabel,
  type Searched,
  valuesAt,
} from './search-conditions.ts';
import { idsInPieces, type Position, SEARCH_BOUNDS, type SearchBounds } from './search-pieces.ts';

/** Columns of the table, as an index has them and as none has. */
const [NAME, EXPIRY, USE] = [sql`s.name`, sql`s.expires_at`, sql`s.used`];
const OTHER_NAME = sql`coalesce(s.name, ${sql.lit(LAST)})`;
const OTHER_EXPIRY = sql`coalesce(s.expires_at, ${sql.lit(LAST)})`;
const OTHER_USE = sql`(s.used || '')`;
const KEY = sql`s.key_id`;

interface List {
  readonly condition?: Condition;
  /** Columns of the order before the id of the key. */
  readonly order: readonly RawBuilder<unknown>[];
  /** The tables of the order. */
  readonly from: RawBuilder<unknown>;
  /** For a list of a label: the same, read in the order of these labels `l`. */
  readonly scan?: (labels: RawBuilder<unknown>) => RawBuilder<unknown>;
  readonly labels?: RawBuilder<unknown>;
  /** Of a row of the table, by the index of the order. Without it the list is of a label. */
  readonly leads?: RawBuilder<boolean>;
  /** Whether it has no index, but marks in all of them. */
  readonly isMarked?: boolean;
}

/** Behind all keys of a holder. */
const LAST_KEY = sql.lit(Number.MAX_SAFE_INTEGER);

/**
 * Keys, ordered by the first of these that the filter has: name of the holder, expiry, last use (keys that were never used are first),
 * beginning of a label (value and holder); a single label is in the order of holders, and all else in that of issue.
 */
export async function listKeys(
  database: Searched,
  filter: KeyFilter,
  { maxFew, pieceRows }: SearchBounds = SEARCH_BOUNDS,
): Promise<readonly ListedKey[]> {
  const { reader } = database;
  const { after, limit } = filter;
  const kinds = kindsOf(filter);
  const lists = listsOf(filter, kinds);
  const conditions = lists.flatMap(({ condition }) => (condition === undefined ? [] : [condition]));
  const isOfKinds = kinds.length < ALL_KINDS.length;
  // By the others: PostgreSQL takes what is in a list for few rows, and sorts them all.
  const otherKinds = ALL_KINDS.filter((kind) => !kinds.includes(kind));
  const ofKinds = isOfKinds
    ? sql<boolean>`(s.kind || '') not in (${texts(otherKinds)})`
    : sql<boolean>`1 = 1`;
  const byKind = {
    ids: sql`select s.key_id as id from key_search as s where s.kind in (${texts(kinds)})`,
    holds: ofKinds,
  };
  const [list = { order: [], from: sql`key_search as s`, leads: sql<boolean>`1 = 1` }] = lists;
  const order = [...list.order, KEY];
  const names = order.map((_, index) => sql.ref(`o${index}`));
  const columns = order.map((column, index) => sql`${column} as ${names[index]}`);
  const cursor = sql`keys as cursor_key cross join ${list.from} where cursor_key.prefix = ${after} and ${KEY} = cursor_key.id`;
  const last = after === undefined ? [] : await valuesAt(database, order, cursor);
  if (last === undefined) return [];
  const alone = lists.length === 1 && list.leads !== undefined && list.isMarked !== true;
  const few =
    conditions.find(({ isFew }) => isFew) ??
    (alone ? undefined : await narrowest(database, isOfKinds ? [...conditions, byKind] : conditions, maxFew));
  const isMarked = few === undefined && (conditions.length > 1 || list.isMarked === true);
  const marks = isMarked
    ? await hasMarks(database, conditions, list.leads === undefined ? sql`l.marks` : sql`s.marks`)
    : [];
  const others = (leading: Condition | undefined) => conditions.filter((each) => each !== leading);
  const isBroad = few === undefined && (conditions.length > 1 || (isOfKinds && conditions.length === 1));
  const isByLabel = list.leads === undefined;
  const looksAtRows =
    (isByLabel && isOfKinds) || others(list.condition).some(({ isUnmarked }) => isUnmarked === true);
  const found =
    isBroad && looksAtRows
      ? await idsInPieces<number | string>(database, { endOf, page }, limit, last)
      : await idsOf<number | string>(database, page(last, undefined, limit), isBroad);
  const ids = found.map(Number);
  if (ids.length === 0) return [];
  const keys = await withHolder(reader)
    .leftJoin('key_uses', 'key_uses.prefix', 'keys.prefix')
    .select([...SUMMARY, 'key_uses.day as lastUsed', 'keys.id as id'])
    .where('keys.id', 'in', ids)
    .execute();
  const byId = new Map(keys.map(({ id, ...key }) => [Number(id), withTerms(key)]));
  return ids.flatMap((id) => byId.get(id) ?? []);

  /** A query for the ids behind a position, up to an end, in order. */
  function page(after: Position, end: Position | undefined, limit: number): RawBuilder<unknown> {
    const position = isBehind(order, after);
    const inOrder = sql`order by ${sql.join(order)} limit ${sql.lit(limit)}`;
    const holding = (all: readonly Condition[]) => all.map(({ holds }) => holds);
    if (few !== undefined)
      return sql`select ${KEY} as id from (${few.ids}) as few cross join ${list.from}
        where ${joined([sql`${KEY} = few.id`, ofKinds, ...holding(others(few)), position])} ${inOrder}`;
    const rest = [...marks, ...holding(others(list.condition))];
    const merged = (streams: readonly RawBuilder<unknown>[]) => sql`select ${names.at(-1)} as id
      from (${sql.join(streams, sql` union all `)}) as streams order by ${sql.join(names)} limit ${sql.lit(limit)}`;
    const { leads, scan, labels = sql`labels as l` } = list;
    if (leads === undefined) {
      const stream = (
        read: RawBuilder<unknown>,
        where: RawBuilder<unknown>,
      ) => sql`select * from (select ${sql.join(columns)} from ${scan?.(read)}
        where ${joined([sql`coalesce(s.key_id, 0) > 0`, ofKinds, ...rest, where])} ${inOrder}) as stream`;
      // The other keys of the last holder, and the next holders: a comparison of all columns at once has no index.
      const owners = isBehind(list.order, after.slice(0, -1));
      const next = stream(end === undefined ? labels : pieceOf(labels, owners), owners);
      if (after.length === 0 || after.at(-1) === LAST_KEY) return merged([next]);
      const ofLast = sql`l.owner_id = ${after.at(-2)} and ${KEY} > ${after.at(-1)}`;
      return merged([stream(labels, ofLast), next]);
    }
    if (!isOfKinds && lists.length === 0)
      return sql`select ${KEY} as id from key_search as s where ${position} ${inOrder}`;
    const streams = kinds.map((kind) => {
      const read = streamOf(kind, leads, after);
      const found =
        end === undefined
          ? read
          : sql`(select s.* from ${read} order by ${sql.join(order)} limit ${sql.lit(pieceRows)}) as s where ${isUpTo(order, end)}`;
      return sql`select * from (select ${sql.join(columns)} from ${joined([found, ...rest])} ${inOrder}) as stream`;
    });
    return merged(streams);
  }

  /** The keys of one kind behind a position. */
  function streamOf(kind: string, leads: RawBuilder<boolean>, after: Position): RawBuilder<unknown> {
    return sql`key_search as s where ${joined([leads, sql`s.kind = ${kind}`, isBehind(order, after)])}`;
  }

  /** The labels of a piece. */
  function pieceOf(labels: RawBuilder<unknown>, behind: RawBuilder<boolean>): RawBuilder<unknown> {
    return sql`(select l.* from ${labels} where ${behind} order by ${sql.join(list.order)} limit ${sql.lit(pieceRows)}) as l`;
  }

  /** The row that ends a piece: of several streams, the first end. */
  async function endOf(after: Position): Promise<Position | undefined> {
    const offset = sql`limit 1 offset ${sql.lit(pieceRows - 1)}`;
    const { leads } = list;
    if (leads === undefined) {
      const behind = isBehind(list.order, after.slice(0, -1));
      const row = sql`${list.labels} where ${behind} order by ${sql.join(list.order)} ${offset}`;
      const end = await valuesAt(database, list.order, row);
      return end && [...end, LAST_KEY];
    }
    const streams = kinds.map(
      (kind) => sql`select * from (select ${sql.join(columns)} from ${streamOf(kind, leads, after)}
        order by ${sql.join(order)} ${offset}) as stream`,
    );
    const ends = sql`(${sql.join(streams, sql` union all `)}) as streams order by ${sql.join(names)} limit 1`;
    return await valuesAt(database, names, ends);
  }
}

/** The conditions, of which the first gives the list its order. */
function listsOf(filter: KeyFilter, kinds: readonly string[]): readonly List[] {
  const { name, labels = {}, teamId, prefix, holderId, unusedSince, expiresBefore } = filter;
  const from = sql`key_search as s`;
  const ofTable = (
    order: readonly RawBuilder<unknown>[],
    leads: RawBuilder<boolean>,
    holds: RawBuilder<boolean>,
    mark: Pick<Condition, 'mark'> = {},
  ) => ({
    condition: {
      ids: sql`select s.key_id as id from key_search as s where s.kind in (${texts(kinds)}) and ${leads}`,
      holds,
      ...mark,
    },
    ...{ order, from, leads },
  });
  const of = (column: string, value: string): List => {
    const found = sql`select k.id as id from keys as k where ${sql.ref(`k.${column}`)} = ${value}`;
    const leads = sql<boolean>`${KEY} in (${found})`;
    return { order: [], from, leads, condition: { ids: found, holds: leads, isFew: true } };
  };
  const given = Object.entries(labels);
  const others = [name, expiresBefore, unusedSince, teamId, prefix, holderId].filter(
    (each) => each !== undefined,
  );
  const isAlone = others.length + given.length === 1 && kinds.length === ALL_KINDS.length;
  const ofLabels = given.map(([label, value]): List => {
    const matches = ofHolders(label, value);
    const owner = sql`(select holder_id from keys where id = ${KEY})`;
    const condition = {
      ids: sql`select k.id as id from labels as l join keys as k on k.holder_id = l.owner_id where ${matches}`,
      holds: hasLabel(owner, [label, value]),
      ...markOfLabel(label, value),
    };
    if (condition.mark !== undefined && !isAlone)
      return { ...{ condition, order: [], from }, leads: condition.holds, isMarked: true };
    const labels = sql`(select * from labels as l where ${matches}) as l`;
    return {
      ...{ condition, labels },
      order: [...orderOfLabel(value), sql`l.owner_id`],
      from: sql`${labels}
        join keys as k on k.holder_id = l.owner_id join key_search as s on s.key_id = k.id`,
      // Outer joins keep PostgreSQL, which takes the rows for few, from reading the labels for each key.
      scan: (read) => sql`${read}
        left join keys as k on k.holder_id = l.owner_id left join key_search as s on s.key_id = k.id`,
    };
  });
  return [
    ...(name === undefined
      ? []
      : [ofTable([NAME], nameBeginsWith(NAME, name), nameBeginsWith(OTHER_NAME, name))]),
    ...(expiresBefore === undefined
      ? []
      : [ofTable([EXPIRY], sql`${EXPIRY} < ${expiresBefore}`, sql`${OTHER_EXPIRY} < ${expiresBefore}`)]),
    ...(unusedSince === undefined
      ? []
      : [ofTable([USE], sql`${USE} < ${unusedSince}`, sql`${OTHER_USE} < ${unusedSince}`)]),
    ...ofLabels.filter(({ isMarked }) => isMarked !== true),
    ...(teamId === undefined
      ? []
      : [
          ofTable(
            [],
            sql`s.team_id = ${teamId}`,
            sql`exists (select 1 from key_search as own where own.key_id = s.key_id and own.team_id || '' = ${teamId} limit 1 offset 0)`,
            {
              mark: `team=${teamId}`,
            },
          ),
        ]),
    ...ofLabels.filter(({ isMarked }) => isMarked === true),
    ...(prefix === undefined ? [] : [of('prefix', prefix)]),
    ...(holderId === undefined ? [] : [of('holder_id', holderId)]),
  ];
}

/** As triggers write them into the table. */
function kindsOf({
  tier,
  standing,
  state,
}: Pick<KeyFilter, 'tier' | 'standing' | 'state'>): readonly string[] {
  const initials = (all: readonly string[], one: string | undefined) =>
    (one === undefined ? all : [one]).map((text) => text.slice(0, 1));
  return initials(TIERS, tier).flatMap((ofTier) =>
    initials(BILLING_STATUSES, standing).flatMap((ofStanding) =>
      initials(KEY_STATES, state).map((ofState) => `${ofTier}${ofStanding}${ofState}`),
    ),
  );
}

const ALL_KINDS = kindsOf({});

const texts = (list: readonly string[]) => sql.join(list.map((text) => sql.lit(text)));
