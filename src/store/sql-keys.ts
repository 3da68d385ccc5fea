// How keys are read and how their events are written, inside whichever transaction does it. What may change when is the
// caller's matter: sql-store.ts, sql-holders.ts.
import type { Kysely, Transaction } from 'kysely';
import type { ChangeKind, KeyRecord, Prefix } from './record.ts';
import type { Tables } from './tables.ts';

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
export type TakeTurn = (trx: Transaction<Tables>) => Promise<void>;

/** A key is read with its holder always: tier, standing and label are the holder's. */
export function withHolder(db: Kysely<Tables>) {
  return db
    .selectFrom('keys')
    .innerJoin('holders', 'holders.id', 'keys.holder_id')
    .leftJoin('keys as successors', 'successors.replaces', 'keys.prefix');
}

export async function recordOf(db: Kysely<Tables>, prefix: Prefix): Promise<KeyRecord | undefined> {
  return withHolder(db).select(RECORD).where('keys.prefix', '=', prefix).executeTakeFirst();
}

/** In the order of issue. */
export async function activeRecordsOf(db: Kysely<Tables>, holderId: string): Promise<readonly KeyRecord[]> {
  return withHolder(db)
    .select(RECORD)
    .where('keys.holder_id', '=', holderId)
    .where('keys.state', '=', 'active')
    .orderBy('keys.id')
    .execute();
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
  await trx.insertInto('key_events').values({ prefix, kind, version, at, reason }).execute();
}
