// How keys are read and written, and their events, inside the transaction of a caller. What may change when is the caller's
// matter: sql-store.ts, sql-holders.ts, sql-billing.ts. What is written here is sent with what follows it (deferred-statements.ts).
import type { Kysely, Transaction } from 'kysely';
import type { Tier } from '../../config/schema/config-schema.ts';
import type { ChangeKind, FreeGrant, Holder, KeyRecord, NewKey, Prefix } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';

/** A key without what proves it. */
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

/**
 * Resolves when no other transaction can commit before this one that comes after it here. Ids of events are drawn after
 * that, so that they become visible in their order.
 */
export type LockChangeFeed = (trx: Transaction<Tables>) => Promise<void>;

/** A key is read with its holder always: tier, standing and label are the holder's. */
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

/** In the order of issue. */
export async function activeRecordsOf(db: Kysely<Tables>, holderId: string): Promise<readonly KeyRecord[]> {
  const rows = await withHolder(db)
    .select(RECORD)
    .where('keys.holder_id', '=', holderId)
    .where('keys.state', '=', 'active')
    .orderBy('keys.id')
    .execute();
  return rows.map((row) => ({ ...row, hmac: bytes(row.hmac) }));
}

/** The same bytes in the one class that all records have, whichever database they are from. */
function bytes({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** What a key's record has from its holder. */
type HolderFacts = Pick<Holder, 'id' | 'tier' | 'standing' | 'label'>;

export function newHolder(id: string, tier: Tier, label: string | null = null): HolderFacts {
  return { id, tier, standing: 'good', label };
}

/** The record of a key that is being stored, without reading it again. */
export function newRecord(key: NewKey, holder: HolderFacts, replaces: Prefix | null): KeyRecord {
  return {
    prefix: key.prefix,
    holderId: holder.id,
    tier: holder.tier,
    standing: holder.standing,
    label: holder.label,
    state: 'active',
    version: 1,
    createdAt: key.createdAt,
    endedAt: null,
    replaces,
    replacedBy: null,
    argon2: key.argon2,
    hmac: bytes(key.hmac),
  };
}

/** A prefix that is taken makes the transaction fail: see `isPrefixTaken`. To be called in turn. */
export async function insertKey(
  trx: Transaction<Tables>,
  key: NewKey,
  holderId: string,
  replaces: Prefix | null,
): Promise<void> {
  await defer(
    trx,
    trx.insertInto('keys').values({
      prefix: key.prefix,
      holder_id: holderId,
      argon2: key.argon2,
      hmac: key.hmac,
      state: 'active',
      version: 1,
      created_at: key.createdAt,
      ended_at: null,
      replaces,
    }),
  );
}

/** Whether a transaction failed because there is a key with the prefix of the one that it stores. */
export function isPrefixTaken(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const isPostgres = Reflect.get(error, 'code') === '23505';
  // Of SQLite, and of the trigger that comes before its constraint.
  const isSqlite = /UNIQUE constraint failed: keys\.prefix|a key with this prefix/.test(error.message);
  return isSqlite || (isPostgres && Reflect.get(error, 'constraint') === 'keys_prefix_key');
}

/** Counts one more free key, unless the limit is reached. Days that are over are forgotten. */
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

/** To be called in turn. @param at RFC 3339, UTC */
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
