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

/** Keys in the order of issue; those of some holders by holder, as the indexes of holders have them. */
export async function listKeys(database: SqlDatabase, filter: KeyFilter): Promise<readonly ListedKey[]> {
  const { reader } = database;
  const { state, prefix, holderId, unusedSince, expiresBefore, after, limit } = filter;
  let query = withHolder(reader)
    .leftJoin('key_uses', 'key_uses.prefix', 'keys.prefix')
    .select([...SUMMARY, 'key_uses.day as lastUsed']);
  for (const condition of holderConditions(database, filter)) query = query.where(condition);
  if (state !== undefined) query = query.where('keys.state', '=', state);
  if (prefix !== undefined) query = query.where('keys.prefix', '=', prefix);
  if (holderId !== undefined) query = query.where('keys.holder_id', '=', holderId);
  if (expiresBefore !== undefined) query = query.where('keys.expires_at', '<', expiresBefore);
  if (unusedSince !== undefined)
    query = query.where((eb) =>
      eb.or([eb('key_uses.day', '<', unusedSince), eb('key_uses.day', 'is', null)]),
    );
  if (after !== undefined) {
    const position = reader.selectFrom('keys as k').select('k.id').where('k.prefix', '=', after);
    query = query.where('keys.id', '>', position);
  }
  const rows = await query.orderBy('keys.id').limit(limit).execute();
  return rows.map(withTerms);
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
  if (after !== undefined) query = query.where('holders.id', '>', after);
  const rows = await query.orderBy('holders.id').limit(limit).execute();
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
    conditions.push(nameBeginsWith(sql`lower(holders.label)${byBytes}`, name));
  }
  if (teamId !== undefined) conditions.push(sql`holders.team_id = ${teamId}`);
  if (tier !== undefined) conditions.push(sql`holders.tier = ${tier}`);
  if (standing !== undefined) conditions.push(sql`holders.standing = ${standing}`);
  return [...conditions, ...labelConditions(labels, sql`holders.id`)];
}

/** @param folded an expression of the name in lower case, compared by bytes */
export function nameBeginsWith(folded: RawBuilder<unknown>, name: string): RawBuilder<boolean> {
  return sql`${folded} >= lower(${name}) and ${folded} < lower(${name}) || ${LAST}`;
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
