// Reads and writes of keys and their events within the transactions of sql-store.ts, sql-holders.ts and sql-billing.ts. Writes
// here are deferred (deferred-statements.ts).
import type { Kysely, Transaction } from 'kysely';
import type { Tier } from '../../config/schema/config-schema.ts';
import type { ChangeKind, FreeGrant, Holder, KeyRecord, NewKey, Prefix } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';
import { rowOf } from './row-names.ts';

/** The columns of a key without its hashes. */
export const SUMMARY = [
  'keys.prefix as prefix',
  'keys.holder_id as holderId',
  'holders.tier as tier',
  'holders.standing as standing',
  'holders.label as label',
  'keys.state as state',
  'keys.version as version',
  'keys.created_at as createdAt',
  'keys.ended_at as endedAt',
  'keys.replaces as replaces',
  'successors.prefix as replacedBy',
] as const;

const RECORD = [...SUMMARY, 'keys.argon2 as argon2', 'keys.hmac as hmac'] as const;

/** Keys joined with their holders, which have tier, standing and label. */
export function withHolder(db: Kysely<Tables>) {
  return db
    .selectFrom('keys')
    .innerJoin('holders', 'holders.id', 'keys.holder_id')
    .leftJoin('keys as successors', 'successors.replaces', 'keys.prefix');
}

export async function recordOf(db: Kysely<Tables>, prefix: Prefix): Promise<KeyRecord | undefined> {
  const row = await withHolder(db).select(RECORD).where('keys.prefix', '=', prefix).executeTakeFirst();
  return row && { ...row, hmac: bytes(row.hmac) };
}

/** Active keys of a holder in the order of issue. */
export async function activeRecordsOf(db: Kysely<Tables>, holderId: string): Promise<readonly KeyRecord[]> {
  const rows = await withHolder(db)
    .select(RECORD)
    .where('keys.holder_id', '=', holderId)
    .where('keys.state', '=', 'active')
    .orderBy('keys.id')
    .execute();
  return rows.map((row) => ({ ...row, hmac: bytes(row.hmac) }));
}

/** A Buffer over the same bytes, so that records of both databases have one class. */
function bytes({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** The fields of a key record that come from its holder. */
type HolderFacts = Pick<Holder, 'id' | 'tier' | 'standing' | 'label'>;

export function newHolder(id: string, tier: Tier, label: string | null = null): HolderFacts {
  return { id, tier, standing: 'good', label };
}

/** The record of a key that is being stored, without a read. */
export function newRecord(key: NewKey, holder: HolderFacts, replaces: Prefix | null): KeyRecord {
  const { id: holderId, tier, standing, label } = holder;
  const state = { state: 'active', version: 1, endedAt: null, replaces, replacedBy: null } as const;
  return { ...key, hmac: bytes(key.hmac), holderId, tier, standing, label, ...state };
}

/** Call it under `LockChangeFeed`. A taken prefix fails the transaction: see `transactWithKey`. */
export async function insertKey(
  trx: Transaction<Tables>,
  key: NewKey,
  holderId: string,
  replaces: Prefix | null,
): Promise<void> {
  const state = { state: 'active', version: 1, ended_at: null, replaces } as const;
  await defer(trx, trx.insertInto('keys').values({ ...rowOf(key), holder_id: holderId, ...state }));
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

/** Call it under `LockChangeFeed`. @param at RFC 3339, UTC */
export async function insertEvent(
  trx: Transaction<Tables>,
  prefix: Prefix,
  kind: ChangeKind,
  version: number,
  at: string,
  reason: string | null,
): Promise<void> {
  await defer(trx, trx.insertInto('key_events').values({ prefix, kind, version, at, reason }));
}
