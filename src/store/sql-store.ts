// The store's operations as queries. Dialects differ below this file; rules about keys are above it, in auth/issuer.ts.
//
// In SQLite a transaction has the database alone from its beginning. In PostgreSQL (read committed) others write between any
// two statements, so a decision is never a read followed by a write: it is in the `where` of an update or in `on conflict`.
import { type Kysely, sql, type Transaction } from 'kysely';
import type { BillingStore } from './billing-record.ts';
import { guarded } from './guarded.ts';
import type { ObjectStore } from './object-record.ts';
import type {
  AddOutcome,
  ChangeOutcome,
  FreeGrant,
  Holder,
  HolderChange,
  HolderOf,
  KeyChange,
  KeyFilter,
  KeyRecord,
  KeySummary,
  NewKey,
  Prefix,
  RevokeOutcome,
  RotateOutcome,
} from './record.ts';
import type { ResponseStore } from './response-record.ts';
import { SqlBilling } from './sql-billing.ts';
import { changeHolderIn, holdHolder } from './sql-holders.ts';
import { insertEvent, recordOf, SUMMARY, type TakeTurn, withHolder } from './sql-keys.ts';
import { SqlObjects } from './sql-objects.ts';
import { SqlResponses } from './sql-responses.ts';
import { SqlUsage, type UsageParts } from './sql-usage.ts';
import type { Store, UsageStore } from './store.ts';
import type { Tables } from './tables.ts';
import type { WriteState } from './write-state.ts';

const SECRET_CHECK = 'secret_check';

const HEARTBEAT = 'heartbeat';

const CHANGE = ['id', 'prefix', 'kind', 'version', 'at', 'reason'] as const;

export interface SqlParts extends UsageParts {
  /** What the writes of `writer` came to. */
  readonly writable: WriteState;
  readonly takeTurn: TakeTurn;
  /** Ends the connections, also those that Kysely never used and so would not close. */
  readonly close: () => Promise<void>;
}

/** Thrown inside a transaction: takes back what it wrote, and is an outcome of the operation all the same. */
class PrefixTaken extends Error {}

export class SqlStore implements Store {
  readonly usage: UsageStore;
  readonly billing: BillingStore;
  readonly objects: ObjectStore;
  readonly responses: ResponseStore;
  readonly #reader: Kysely<Tables>;
  readonly #writer: Kysely<Tables>;
  readonly #writable: WriteState;
  readonly #takeTurn: SqlParts['takeTurn'];
  readonly #close: () => Promise<void>;

  constructor({ reader, writer, writable, elementsOf, takeTurn, close }: SqlParts) {
    this.usage = new SqlUsage({ reader, writer, elementsOf });
    const isTakenError = (error: unknown) => error instanceof PrefixTaken;
    const keys = { isTakenError, isTaken, countGrant, insertKey, mustFind };
    this.billing = new SqlBilling({ reader, writer, takeTurn, keys });
    this.objects = new SqlObjects({ reader, writer, elementsOf });
    this.responses = new SqlResponses({ reader, writer });
    this.#reader = reader;
    this.#writer = writer;
    this.#writable = writable;
    this.#takeTurn = takeTurn;
    this.#close = close;
  }

  findKey(prefix: Prefix): Promise<KeyRecord | undefined> {
    return guarded(() => recordOf(this.#reader, prefix));
  }

  addKey(key: NewKey, holder: HolderOf, reason: string | null, grant?: FreeGrant): Promise<AddOutcome> {
    return this.#storingKey(async (trx): Promise<AddOutcome> => {
      if (await isTaken(trx, key.prefix)) return { kind: 'prefix_taken' };
      const holderId = holder.kind === 'new' ? holder.id : await holderOf(trx, holder.prefix);
      if (holderId === undefined) return { kind: 'unknown_holder' };
      if (grant !== undefined && !(await countGrant(trx, grant))) return { kind: 'free_limit' };
      if (holder.kind === 'of') await holdHolder(trx, holderId);
      if (holder.kind === 'new') {
        const { id, tier, label } = holder;
        await trx.insertInto('holders').values({ id, tier, label, created_at: key.createdAt }).execute();
      }
      await this.#takeTurn(trx);
      await insertKey(trx, key, holderId, null);
      await insertEvent(trx, key.prefix, 'issued', 1, key.createdAt, reason);
      return { kind: 'added', record: await mustFind(trx, key.prefix) };
    });
  }

  rotateKey(old: { prefix: Prefix }, successor: NewKey): Promise<RotateOutcome> {
    return this.#storingKey(async (trx): Promise<RotateOutcome> => {
      if (await isTaken(trx, successor.prefix)) return { kind: 'prefix_taken' };
      const holderId = await holderOf(trx, old.prefix);
      if (holderId === undefined) return { kind: 'not_active' };
      await holdHolder(trx, holderId);
      const ended = await trx
        .updateTable('keys')
        .set((eb) => ({
          state: 'invalidated',
          version: eb('version', '+', 1),
          ended_at: successor.createdAt,
        }))
        .where('prefix', '=', old.prefix)
        .where('state', '=', 'active')
        .returning('version')
        .executeTakeFirst();
      if (ended === undefined) return { kind: 'not_active' };
      await this.#takeTurn(trx);
      await insertKey(trx, successor, holderId, old.prefix);
      await insertEvent(trx, old.prefix, 'rotated', ended.version, successor.createdAt, null);
      await insertEvent(trx, successor.prefix, 'issued', 1, successor.createdAt, 'rotation');
      const record = await mustFind(trx, successor.prefix);
      return { kind: 'rotated', record, endedVersion: ended.version };
    });
  }

  revokeKey(prefix: Prefix, reason: string | null, at: string): Promise<RevokeOutcome> {
    return this.#transaction(async (trx): Promise<RevokeOutcome> => {
      if ((await recordOf(trx, prefix)) === undefined) return { kind: 'unknown' };
      const ended = await trx
        .updateTable('keys')
        .set((eb) => ({ state: 'revoked', version: eb('version', '+', 1), ended_at: at }))
        .where('prefix', '=', prefix)
        .where('state', '=', 'active')
        .returning('version')
        .executeTakeFirst();
      if (ended === undefined) return { kind: 'already', record: await mustFind(trx, prefix) };
      await this.#takeTurn(trx);
      await insertEvent(trx, prefix, 'revoked', ended.version, at, reason);
      return { kind: 'revoked', record: await mustFind(trx, prefix) };
    });
  }

  findHolder(holderId: string): Promise<Holder | undefined> {
    return guarded(() =>
      this.#reader
        .selectFrom('holders')
        .select(['id', 'tier', 'standing', 'label', 'created_at as createdAt'])
        .where('id', '=', holderId)
        .executeTakeFirst(),
    );
  }

  changeHolder(
    holderId: string,
    change: HolderChange,
    reason: string | null,
    at: string,
  ): Promise<ChangeOutcome> {
    return this.#transaction((trx) => changeHolderIn(trx, this.#takeTurn, { holderId, change, reason, at }));
  }

  listKeys(filter: KeyFilter): Promise<readonly KeySummary[]> {
    return guarded(() => {
      const { tier, state, after } = filter;
      let query = withHolder(this.#reader).select(SUMMARY);
      if (tier !== undefined) query = query.where('holders.tier', '=', tier);
      if (state !== undefined) query = query.where('keys.state', '=', state);
      if (after !== undefined) {
        const position = this.#reader.selectFrom('keys as k').select('k.id').where('k.prefix', '=', after);
        query = query.where('keys.id', '>', position);
      }
      return query.orderBy('keys.id').limit(filter.limit).execute();
    });
  }

  historyOf(prefix: Prefix): Promise<readonly KeyChange[]> {
    return guarded(() =>
      this.#reader
        .selectFrom('key_events')
        .select(CHANGE)
        .where('prefix', '=', prefix)
        .orderBy('id')
        .execute(),
    );
  }

  freeGrants(day: string, address: Uint8Array): Promise<number> {
    return guarded(async () => {
      const row = await this.#reader
        .selectFrom('free_key_grants')
        .select('count')
        .where('day', '=', day)
        .where('address', '=', address)
        .executeTakeFirst();
      return row?.count ?? 0;
    });
  }

  lastChange(): Promise<number> {
    return guarded(async () => {
      const row = await this.#reader
        .selectFrom('key_events')
        .select('id')
        .orderBy('id', 'desc')
        .limit(1)
        .executeTakeFirst();
      return row?.id ?? 0;
    });
  }

  changesAfter(after: number, limit: number): Promise<readonly KeyChange[]> {
    return guarded(() =>
      this.#reader
        .selectFrom('key_events')
        .select(CHANGE)
        .where('id', '>', after)
        .orderBy('id')
        .limit(limit)
        .execute(),
    );
  }

  secretCheck(): Promise<Uint8Array | undefined> {
    return guarded(() => readSetting(this.#reader, SECRET_CHECK));
  }

  pinSecret(check: Uint8Array): Promise<Uint8Array> {
    return this.#transaction(async (trx) => {
      await trx
        .insertInto('settings')
        .values({ name: SECRET_CHECK, value: check })
        .onConflict((conflict) => conflict.column('name').doNothing())
        .execute();
      const pinned = await readSetting(trx, SECRET_CHECK);
      if (pinned === undefined) throw new Error('a setting that was just written is not there');
      return pinned;
    });
  }

  async ping(): Promise<void> {
    await guarded(() => Promise.all([sql`select 1`.execute(this.#reader), this.#writable.check()]));
  }

  close(): Promise<void> {
    return this.#close();
  }

  async #transaction<T>(work: (trx: Transaction<Tables>) => Promise<T>): Promise<T> {
    return guarded(() => this.#writer.transaction().execute(work));
  }

  async #storingKey<T>(
    work: (trx: Transaction<Tables>) => Promise<T>,
  ): Promise<T | { kind: 'prefix_taken' }> {
    return guarded(async () => {
      try {
        return await this.#writer.transaction().execute(work);
      } catch (error) {
        if (error instanceof PrefixTaken) return { kind: 'prefix_taken' };
        throw error;
      }
    });
  }
}

/** The smallest real write: what it takes to commit is what any other write takes. */
export async function writeHeartbeat(writer: Kysely<Tables>): Promise<void> {
  const at = new Date().toISOString();
  await writer
    .insertInto('fleet_tasks')
    .values({ name: HEARTBEAT, owner: '', until: at })
    .onConflict((conflict) => conflict.column('name').doUpdateSet({ until: at }))
    .execute();
}

async function mustFind(trx: Transaction<Tables>, prefix: Prefix): Promise<KeyRecord> {
  const record = await recordOf(trx, prefix);
  if (record === undefined) throw new Error('a key that was just written is not there');
  return record;
}

async function isTaken(trx: Transaction<Tables>, prefix: Prefix): Promise<boolean> {
  return (
    (await trx.selectFrom('keys').select('id').where('prefix', '=', prefix).executeTakeFirst()) !== undefined
  );
}

async function holderOf(trx: Transaction<Tables>, prefix: Prefix): Promise<string | undefined> {
  const key = await trx
    .selectFrom('keys')
    .select('holder_id')
    .where('prefix', '=', prefix)
    .executeTakeFirst();
  return key?.holder_id;
}

/** Counts one more free key, unless the limit is reached. Days that are over are forgotten. */
async function countGrant(trx: Transaction<Tables>, grant: FreeGrant): Promise<boolean> {
  await trx.deleteFrom('free_key_grants').where('day', '<', grant.day).execute();
  if (grant.perDay < 1) return false;
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

/** @throws PrefixTaken when somebody else stored a key with this prefix since it was looked for */
async function insertKey(
  trx: Transaction<Tables>,
  key: NewKey,
  holderId: string,
  replaces: Prefix | null,
): Promise<void> {
  const inserted = await trx
    .insertInto('keys')
    .values({
      prefix: key.prefix,
      holder_id: holderId,
      argon2: key.argon2,
      hmac: key.hmac,
      state: 'active',
      version: 1,
      created_at: key.createdAt,
      ended_at: null,
      replaces,
    })
    .onConflict((conflict) => conflict.column('prefix').doNothing())
    .returning('id')
    .executeTakeFirst();
  if (inserted === undefined) throw new PrefixTaken();
}

async function readSetting(db: Kysely<Tables>, name: string): Promise<Uint8Array | undefined> {
  const row = await db.selectFrom('settings').select('value').where('name', '=', name).executeTakeFirst();
  return row?.value;
}
