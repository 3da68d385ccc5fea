// The search for keys and holders. Each condition has an index, so that a search among a million holders reads little more than it
// returns.
import { type RawBuilder, sql } from 'kysely';
import type { HolderFilter, KeyFilter, ListedKey, OwnerLabels } from '../key-record.ts';
import type { HolderSummary } from '../organisation-record.ts';
import type { SqlDatabase } from './sql-database.ts';
import { holderFrom } from './sql-holders.ts';
import { SUMMARY, withHolder, withTerms } from './sql-keys.ts';

/** The end of a range of texts with a common beginning; no text in UTF-8 sorts behind it. */
const LAST = '\u{10ffff}';

/**
 * Keys in the order of the index that their main condition reads, so that a page costs the same whatever else matches: by the name of
 * the holder, by holder, by expiry, or else in the order of issue.
 */
export async function listKeys(database: SqlDatabase, filter: KeyFilter): Promise<readonly ListedKey[]> {
  const { reader, byBytes } = database;
  const { name, state, prefix, holderId, unusedSince, expiresBefore, after, limit } = filter;
  const isEnded = state !== undefined && state !== 'active';
  let query = withHolder(reader)
    .leftJoin('key_uses', 'key_uses.prefix', 'keys.prefix')
    .select([...SUMMARY, 'key_uses.day as lastUsed']);
  const { tier, standing, ...ofFew } = filter;
  const ofHolder = holderConditions(database, ofFew);
  // Many holders have a tier or a standing, and few keys have ended: then their indexes are kept out of it by an expression.
  const wide = (column: string) => (isEnded ? sql`coalesce(${sql.ref(column)}, '')` : sql.ref(column));
  if (tier !== undefined) query = query.where(sql<boolean>`${wide('holders.tier')} = ${tier}`);
  if (standing !== undefined) query = query.where(sql<boolean>`${wide('holders.standing')} = ${standing}`);
  for (const condition of ofHolder) query = query.where(condition);
  // A literal, for the partial indexes.
  if (state !== undefined) query = query.where(sql<boolean>`keys.state = ${sql.lit(state)}`);
  if (isEnded) query = query.where(sql<boolean>`keys.state <> 'active'`);
  if (prefix !== undefined) query = query.where('keys.prefix', '=', prefix);
  if (holderId !== undefined) query = query.where('keys.holder_id', '=', holderId);
  if (expiresBefore !== undefined) query = query.where('keys.expires_at', '<', expiresBefore);
  if (unusedSince !== undefined)
    query = query.where((eb) =>
      eb.or([eb('key_uses.day', '<', unusedSince), eb('key_uses.day', 'is', null)]),
    );
  const byHolder = [sql`holders.id`, sql`keys.id`];
  const order =
    name !== undefined
      ? [foldedName(byBytes), ...byHolder]
      : ofHolder.length > 0 || (!isEnded && (tier ?? standing) !== undefined)
        ? byHolder
        : [...(expiresBefore === undefined ? [] : [sql`keys.expires_at`]), sql`keys.id`];
  if (after !== undefined) {
    const row = withHolder(reader).where('keys.prefix', '=', after);
    query = query.where(await behind(row.select(valuesOf(order)), order));
  }
  for (const each of order) query = query.orderBy(each);
  const rows = await query.limit(limit).execute();
  return rows.map(withTerms);
}

/** The name of the holder, as the index has it. */
const foldedName = (byBytes: RawBuilder<unknown>) => sql`lower(holders.label)${byBytes}`;

const valuesOf = (order: readonly RawBuilder<unknown>[]) => order.map((each, index) => each.as(`v${index}`));

/**
 * Whether a row is behind another one in an order.
 * @param position selects the values of the other one; without a row nothing is behind it
 */
async function behind(
  position: { executeTakeFirst(): Promise<object | undefined> },
  order: readonly RawBuilder<unknown>[],
): Promise<RawBuilder<boolean>> {
  const row = await position.executeTakeFirst();
  if (row === undefined) return sql`1 = 0`;
  const values: readonly unknown[] = order.map((_, index) => Reflect.get(row, `v${index}`));
  const later = order.reduceRight<RawBuilder<unknown>>((rest, each, index) => {
    const value = values[index];
    return sql`(${each} > ${value} or (${each} = ${value} and ${rest}))`;
  }, sql`1 = 0`);
  // The beginning of an index.
  return sql`${order[0]} >= ${values[0]} and ${later}`;
}

export async function searchHolders(
  database: SqlDatabase,
  filter: HolderFilter,
  limit: number,
  after?: string,
): Promise<readonly HolderSummary[]> {
  const { reader } = database;
  let query = reader
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
    ]);
  for (const condition of holderConditions(database, filter)) query = query.where(condition);
  const order = [...(filter.name === undefined ? [] : [foldedName(database.byBytes)]), sql`holders.id`];
  if (after !== undefined) {
    const row = reader.selectFrom('holders').where('holders.id', '=', after);
    query = query.where(await behind(row.select(valuesOf(order)), order));
  }
  for (const each of order) query = query.orderBy(each);
  const rows = await query.limit(limit).execute();
  const labels = await labelsOf(
    database,
    rows.map(({ id }) => id),
  );
  return rows.map((row) => ({
    ...holderFrom(row),
    team: row.team,
    labels: labels.get(row.id) ?? {},
    keys: Number(row.keys),
    lastUsed: row.lastUsed,
    createdAt: row.created_at,
  }));
}

/** @param ids at most 1000 */
export async function labelsOf(
  { reader }: SqlDatabase,
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

function holderConditions(
  database: SqlDatabase,
  { name, labels = {}, teamId, tier, standing }: HolderFilter,
): readonly RawBuilder<boolean>[] {
  const { byBytes } = database;
  const conditions: RawBuilder<boolean>[] = [];
  if (name !== undefined) {
    conditions.push(nameBeginsWith(foldedName(byBytes), name));
  }
  if (teamId !== undefined) conditions.push(sql`holders.team_id = ${teamId}`);
  if (tier !== undefined) conditions.push(sql`holders.tier = ${tier}`);
  if (standing !== undefined) conditions.push(sql`holders.standing = ${standing}`);
  return [...conditions, ...labelConditions(labels, sql`holders.id`)];
}

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
      sql`${owner} in (select owner_id from labels where name = ${name} and ${matchesLabel(sql`value`, value)})`,
  );
}

/** @param value as in `HolderFilter`: one that ends with `*` is a beginning */
export function matchesLabel(column: RawBuilder<unknown>, value: string): RawBuilder<unknown> {
  if (!value.endsWith('*')) return sql`${column} = ${value}`;
  const beginning = value.slice(0, -1);
  return sql`${column} >= ${beginning} and ${column} < ${`${beginning}${LAST}`}`;
}
