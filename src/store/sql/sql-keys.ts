// Reads and writes of keys and their events within the transactions of sql-store.ts, sql-holders.ts and sql-billing.ts. Writes
// here are deferred (deferred-statements.ts).
import { type InferResult, type Kysely, sql, type Transaction } from 'kysely';
import type { Tier } from '../../config/schema/config-schema.ts';
import { NO_TERMS, readTerms, writeTerms } from '../../config/terms.ts';
import type { Authorship, ChangeKind, FreeGrant, Holder, KeyRecord, NewKey, Prefix } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';

/** As in `KeySummary`. Only keys that replaced one have a row in the table. */
export const LINEAGE = sql<Prefix>`coalesce(
  (select first from key_lineages where key_lineages.prefix = keys.prefix), keys.prefix)`;

/** The columns of a key without its hashes. */
export const SUMMARY = [
  'keys.prefix as prefix',
  'keys.holder_id as holderId',
  'holders.tier as tier',
  'holders.standing as standing',
  'holders.label as holderName',
  'holders.team_id as teamId',
  'holders.terms as holderTerms',
  'keys.name as name',
  'keys.state as state',
  'keys.version as version',
  'keys.created_at as createdAt',
  'keys.ended_at as endedAt',
  'keys.replaces as replaces',
  'keys.expires_at as expiresAt',
  'keys.terms as terms',
  'successors.prefix as replacedBy',
  LINEAGE.as('lineage'),
] as const;

const RECORD = [...SUMMARY, 'keys.argon2 as argon2', 'keys.hmac as hmac'] as const;

/** Keys joined with their holders. */
export function withHolder(db: Kysely<Tables>) {
  return db
    .selectFrom('keys')
    .innerJoin('holders', 'holders.id', 'keys.holder_id')
    .leftJoin('keys as successors', 'successors.replaces', 'keys.prefix');
}

export function recordOf(db: Kysely<Tables>, prefix: Prefix): Promise<KeyRecord | undefined> {
  return recordReader(db)(prefix);
}

/** Reads the record of a key. The query is made once: to make it costs more than to run it. */
export function recordReader(db: Kysely<Tables>): (prefix: Prefix) => Promise<KeyRecord | undefined> {
  const query = withHolder(db).select(RECORD).where('keys.prefix', '=', sql<Prefix>`${''}`);
  const compiled = query.compile();
  return async (prefix) => {
    const { rows } = await db.executeQuery<InferResult<typeof query>[number]>({
      ...compiled,
      parameters: [prefix],
    });
    const [row] = rows;
    return row && recordFrom(row);
  };
}

/** What the successor of a key has like the key. */
export function ownOf(db: Kysely<Tables>, prefix: Prefix) {
  return db
    .selectFrom('keys')
    .select(['name', 'expires_at as expiresAt', 'terms'])
    .where('prefix', '=', prefix);
}

/** Active keys of a holder in the order of issue. */
export async function activeRecordsOf(db: Kysely<Tables>, holderId: string): Promise<readonly KeyRecord[]> {
  const rows = await withHolder(db)
    .select(RECORD)
    .where('keys.holder_id', '=', holderId)
    .where('keys.state', '=', 'active')
    .orderBy('keys.id')
    .execute();
  return rows.map(recordFrom);
}

/** The terms of a row, which has them as JSON. */
export function withTerms<Row extends { readonly terms: string; readonly holderTerms: string }>(row: Row) {
  return { ...row, terms: readTerms(row.terms), holderTerms: readTerms(row.holderTerms) };
}

function recordFrom<
  Row extends { readonly terms: string; readonly holderTerms: string; readonly hmac: Uint8Array },
>(row: Row) {
  return { ...withTerms(row), hmac: bytes(row.hmac) };
}

/** A Buffer over the same bytes, so that records of both databases have one class. */
function bytes({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** The fields of a key record that come from its holder. */
type HolderFacts = Omit<Holder, 'createdAt'>;

export function newHolder(
  id: string,
  tier: Tier,
  { name = null, teamId = null, terms = NO_TERMS }: Partial<Pick<Holder, 'name' | 'teamId' | 'terms'>> = {},
): HolderFacts {
  return { id, tier, standing: 'good', name, teamId, terms };
}

/** The record of a key that is being stored, without a read. */
export function newRecord(
  key: NewKey,
  holder: HolderFacts,
  rotated?: Pick<KeyRecord, 'prefix' | 'lineage'>,
): KeyRecord {
  const { id: holderId, tier, standing, name: holderName, teamId, terms: holderTerms } = holder;
  const { prefix, argon2, hmac, createdAt, name = null, expiresAt = null, terms = NO_TERMS } = key;
  const { prefix: replaces = null, lineage = prefix } = rotated ?? {};
  const state = { state: 'active', version: 1, endedAt: null, replaces, replacedBy: null, lineage } as const;
  const owner = { holderId, tier, standing, holderName, teamId, holderTerms };
  return { prefix, argon2, hmac: bytes(hmac), createdAt, name, expiresAt, terms, ...owner, ...state };
}

/** Call it under `LockChangeFeed`. A taken prefix fails the transaction: see `transactWithKey`. */
export async function insertKey(
  trx: Transaction<Tables>,
  key: NewKey,
  holderId: string,
  replaces: Prefix | null,
): Promise<void> {
  const state = { state: 'active', version: 1, ended_at: null, replaces } as const;
  const { prefix, argon2, hmac, createdAt: created_at, name, expiresAt: expires_at, terms = NO_TERMS } = key;
  const own = { prefix, argon2, hmac, created_at, name, expires_at, terms: writeTerms(terms) };
  await defer(trx, trx.insertInto('keys').values({ ...own, holder_id: holderId, ...state }));
}

/** Counts a Free key and deletes the counts of past days. @returns false when the limit is reached */
export async function countGrant(trx: Transaction<Tables>, grant: FreeGrant): Promise<boolean> {
  const forget = trx.deleteFrom('free_key_grants').where('day', '<', grant.day);
  if (grant.perDay < 1) {
    await forget.execute();
    return false;
  }
  await defer(trx, forget);
  const counted = await trx
    .insertInto('free_key_grants')
    .values({ day: grant.day, address: grant.address, count: 1 })
    .onConflict((conflict) =>
      conflict
        .columns(['day', 'address'])
        .doUpdateSet((eb) => ({ count: eb('free_key_grants.count', '+', 1) }))
        .where('free_key_grants.count', '<', grant.perDay),
    )
    .returning('count')
    .executeTakeFirst();
  return counted !== undefined;
}

/** Call it under `LockChangeFeed`. */
export async function insertEvent(
  trx: Transaction<Tables>,
  prefix: Prefix,
  kind: ChangeKind,
  version: number,
  { at, reason, actor }: Authorship,
): Promise<void> {
  await defer(trx, trx.insertInto('key_events').values({ prefix, kind, version, at, reason, actor }));
}
