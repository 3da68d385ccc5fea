// The search for keys. It reads the table `key_search`, whose indexes begin with the kind of a key: what many keys have in common is one
// stream of an index for each kind, in the order of the list. A condition that few keys meet leads, and the others are checked.
import { type RawBuilder, sql } from 'kysely';
import { TIERS } from '../../../config/schema/config-schema.ts';
import {
  BILLING_STATUSES,
  KEY_STATES,
  type KeyFilter,
  type ListedKey,
  type SearchPage,
  type SearchPosition,
} from '../../key-record.ts';
import { SUMMARY, withHolder, withTerms } from '../sql-keys.ts';
import {
  foundAmongFew,
  foundInBounds,
  LAST_ID,
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
  /** Of a row of the table, by the index of the order. Without it, the table is read in the order of issue. */
  readonly leads?: Range;
  /** For a list of a label: the condition on labels `l`, which it reads in their order. */
  readonly ofLabels?: Range;
}

/**
 * Keys, ordered by the first of these that the filter has: name of the holder, expiry, last use (keys that were never used are first),
 * beginning of a label (value and holder); a single label is in the order of holders, and all else in that of issue.
 */
export async function listKeys(
  database: Searched,
  filter: KeyFilter,
  bounds: SearchBounds = SEARCH_BOUNDS,
): Promise<SearchPage<ListedKey>> {
  const { reader } = database;
  const { limit, tier, standing } = filter;
  const kinds = kindsOf(filter);
  const lists = listsOf(filter, kinds);
  const conditions = lists.flatMap(({ condition }) => (condition === undefined ? [] : [condition]));
  const isOfKinds = kinds.length < ALL_KINDS.length;
  // By the others: PostgreSQL takes what is in a list for few rows, and sorts them all.
  const otherKinds = ALL_KINDS.filter((kind) => !kinds.includes(kind));
  const ofKinds = isOfKinds ? [sql<boolean>`(s.kind || '') not in (${texts(otherKinds)})`] : [];
  const byKind: Condition = {
    ids: sql`select s.key_id as id from key_search as s where s.kind in (${texts(kinds)})`,
    holds: sql`${joined(ofKinds)}`,
  };
  const [list = { order: [], from: sql`key_search as s` }]: readonly List[] = lists;
  const { leads, ofLabels } = list;
  const isAlone = lists.length === 1 && leads !== undefined;
  const few =
    conditions.find(({ isFew }) => isFew) ??
    (isAlone
      ? undefined
      : await narrowest(database, isOfKinds ? [...conditions, byKind] : conditions, bounds.maxFew));
  const isLed = leads !== undefined || ofLabels !== undefined;
  const checked = conditions.filter((each) => each !== (few ?? (isLed ? list.condition : undefined)));
  const holds = checked.map((each) => each.holds);
  const order = [...list.order, KEY];
  const shape = { found: order, ofId: 'number' } as const;
  const after = positionIn(shape, filter.after);
  const { positions, next } = few === undefined ? await inBounds() : await ofFew(few);
  const ids = positions.map((position) => Number(position.at(-1)));
  if (ids.length === 0) return { items: [], next };
  const keys = await withHolder(reader)
    .leftJoin('key_uses', 'key_uses.prefix', 'keys.prefix')
    .select([...SUMMARY, 'key_uses.day as lastUsed', 'keys.id as id'])
    .where('keys.id', 'in', ids)
    .execute();
  const byId = new Map(keys.map(({ id, ...key }) => [Number(id), withTerms(key)]));
  return { items: ids.flatMap((id) => byId.get(id) ?? []), next };

  function ofFew({ ids }: Condition) {
    const rows = sql`(${ids}) as few cross join ${list.from} where ${joined([sql`${KEY} = few.id`, ...ofKinds, ...holds])}`;
    return foundAmongFew(database, shape, rows, limit, after);
  }

  async function inBounds() {
    const scanned = ofLabels === undefined ? order : list.order;
    const checks = ofLabels === undefined ? holds : [...ofKinds, ...holds];
    const isWhole = checks.length === 0 && ofLabels === undefined;
    const texts = checked.flatMap(({ mark }) => mark ?? []);
    const ofOwner = [tier && `tier=${tier}`, standing && `standing=${standing}`].flatMap(
      (mark) => mark ?? [],
    );
    const marks = await hasMarks(database, ofLabels === undefined ? texts : [...texts, ...ofOwner]);
    const isFound = (id: RawBuilder<unknown>) =>
      checks.length === 0
        ? []
        : [
            sql`exists (select 1 from key_search as s where s.key_id = ${id} and ${joined(checks)} limit 1 offset 0)`,
          ];
    const stream = (from: RawBuilder<unknown>, marks: RawBuilder<unknown>, where: RawBuilder<unknown>[]) =>
      sql`select ${namedColumns(scanned)}, ${marks} as marks from ${from} where ${joined(where)}`;
    const ofTable = (after: SearchPosition) => {
      const ranges = [...(leads === undefined ? [] : [leads(after)]), isBehind(order, after)];
      const isIssueOrder = !isOfKinds && lists.length === 0;
      const where = isIssueOrder ? [ranges] : kinds.map((kind) => [sql`s.kind = ${kind}`, ...ranges]);
      const column = marks.length === 0 ? sql`0` : sql`s.marks`;
      return where.map((each) => stream(sql`key_search as s`, column, each));
    };
    if (ofLabels === undefined) {
      const id = sql.ref(`o${order.length - 1}`);
      const check = () => sql`select * from looked where ${joined(isFound(id))}`;
      return foundInBounds(
        database,
        { ...shape, scanned, marks, isWhole, streams: ofTable, check },
        limit,
        after,
        bounds,
      );
    }
    const streams = (after: SearchPosition) => {
      // The last holder may have more keys.
      const isBehindLast = isBehind(list.order, after.slice(0, -1), after.at(-1) !== LAST_ID);
      return [stream(sql`labels as l`, sql`l.marks`, [ofLabels(after), isBehindLast])];
    };
    const names = [...list.order.map((_, index) => sql.ref(`o${index}`)), sql`k.id`];
    const owner = sql.ref(`o${list.order.length - 1}`);
    const check = (after: SearchPosition) => sql`select ${namedColumns(names)}
      from looked join keys as k on k.holder_id = ${owner}
      where ${joined([...isFound(sql`k.id`), isBehind(names, after)])}`;
    return foundInBounds(
      database,
      { ...shape, scanned, marks, isWhole, streams, check },
      limit,
      after,
      bounds,
    );
  }
}

/** The conditions, of which the first gives the list its order. */
function listsOf(filter: KeyFilter, kinds: readonly string[]): readonly List[] {
  const { name, labels = {}, teamId, prefix, holderId, unusedSince, expiresBefore } = filter;
  const from = sql`key_search as s`;
  const ofTable = (
    order: readonly RawBuilder<unknown>[],
    leads: Range,
    holds: RawBuilder<boolean>,
    mark: Pick<Condition, 'mark'> = {},
  ) => ({
    condition: {
      ids: sql`select s.key_id as id from key_search as s where s.kind in (${texts(kinds)}) and ${leads([])}`,
      holds,
      ...mark,
    },
    order,
    from,
    leads,
  });
  const of = (column: string, value: string): List => {
    const found = sql`select k.id as id from keys as k where ${sql.ref(`k.${column}`)} = ${value}`;
    const leads = sql<boolean>`${KEY} in (${found})`;
    return { order: [], from, leads: () => leads, condition: { ids: found, holds: leads, isFew: true } };
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
    if (condition.mark !== undefined && !isAlone) return { condition, order: [], from };
    return {
      condition,
      ofLabels: (after) => ofHolders(label, value, after.length > 0),
      order: [...orderOfLabel(value, sql`l.value`), sql`l.owner_id`],
      from: sql`(select * from labels as l where ${matches}) as l
        join keys as k on k.holder_id = l.owner_id join key_search as s on s.key_id = k.id`,
    };
  });
  return [
    ...(name === undefined
      ? []
      : [
          ofTable(
            [NAME],
            (after) => nameBeginsWith(NAME, name, after.length > 0),
            nameBeginsWith(OTHER_NAME, name),
          ),
        ]),
    ...(expiresBefore === undefined
      ? []
      : [
          ofTable([EXPIRY], () => sql`${EXPIRY} < ${expiresBefore}`, sql`${OTHER_EXPIRY} < ${expiresBefore}`),
        ]),
    ...(unusedSince === undefined
      ? []
      : [ofTable([USE], () => sql`${USE} < ${unusedSince}`, sql`${OTHER_USE} < ${unusedSince}`)]),
    ...ofLabels.filter((list) => list.ofLabels !== undefined),
    ...(teamId === undefined
      ? []
      : [
          ofTable(
            [],
            () => sql`s.team_id = ${teamId}`,
            sql`exists (select 1 from key_search as own where own.key_id = s.key_id and own.team_id || '' = ${teamId} limit 1 offset 0)`,
            {
              mark: `team=${teamId}`,
            },
          ),
        ]),
    ...ofLabels.filter((list) => list.ofLabels === undefined),
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
