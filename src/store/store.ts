// What a durable store promises. How one is opened is in open.ts; who may have which key is decided in auth/.
import type { BillingStore } from './billing-record.ts';
import type {
  AddResult,
  ChangeResult,
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
  RevokeResult,
  RotateResult,
} from './key-record.ts';
import type { ObjectStore } from './object-record.ts';
import type { ResponseStore } from './response-record.ts';
import type { HolderTotals, UsageBatch, UsageLine, UsageQuery } from './usage-record.ts';

/**
 * Every method settles within 1.5 s where the store says nothing, and within 5 s where it is far away. One that cannot do its work rejects with GatewayError `store_unavailable` (the
 * original as `cause`) and has then changed nothing, with one exception that no store can avoid: the connection to a
 * database server may break during a commit.
 */
export interface Store {
  /** Whether opening it has made it: it holds no keys. */
  readonly isNew: boolean;
  /** What was used. */
  readonly usage: UsageStore;
  /** Who ordered what, and whether it is paid. */
  readonly billing: BillingStore;

  /** Whose the objects are that upstreams keep. */
  readonly objects: ObjectStore;
  /** Where stored responses are. */
  readonly responses: ResponseStore;

  /** The key with this prefix, in whatever state, or undefined when there is none. */
  findKey(prefix: Prefix): Promise<KeyRecord | undefined>;

  /** Stores a new active key, with its holder and its count against a free limit, in one transaction. */
  addKey(key: NewKey, holder: HolderOf, reason: string | null, grant?: FreeGrant): Promise<AddResult>;

  /**
   * Ends `old` as invalidated and stores its successor for the same holder, in one transaction. Of several at once one
   * succeeds, because an ended key is not active any more; what version it had is of no matter, so that a change of the holder
   * in between makes no good key bad.
   */
  rotateKey(old: { readonly prefix: Prefix }, successor: NewKey): Promise<RotateResult>;

  /** Ends an active key as revoked. @param at RFC 3339, UTC */
  revokeKey(prefix: Prefix, reason: string | null, at: string): Promise<RevokeResult>;

  /** The holder with this id, or undefined when there is none. */
  findHolder(holderId: string): Promise<Holder | undefined>;

  /**
   * Changes tier or standing of a holder and, in the same transaction, raises the version of each of its active keys with one
   * event `changed` for each. The events say what changed, and the reason after it.
   * @param at RFC 3339, UTC
   */
  changeHolder(
    holderId: string,
    change: HolderChange,
    reason: string | null,
    at: string,
  ): Promise<ChangeResult>;

  /** Keys in the order of issue. */
  listKeys(filter: KeyFilter): Promise<readonly KeySummary[]>;

  /** What happened to one key, oldest first. */
  historyOf(prefix: Prefix): Promise<readonly KeyChange[]>;

  /** How many free keys this address received on this day. */
  freeGrants(day: string, address: Uint8Array): Promise<number>;

  /** Id of the newest change, 0 when there is none. */
  lastChange(): Promise<number>;

  /** Changes with an id above `after`, in order, at most `limit` of them. */
  changesAfter(after: number, limit: number): Promise<readonly KeyChange[]>;

  /** The check value of the keyed-hash secret that the keys here were made with, or undefined in a fresh store. */
  secretCheck(): Promise<Uint8Array | undefined>;

  /** Sets the check value if there is none yet, and returns the one that counts. */
  pinSecret(check: Uint8Array): Promise<Uint8Array>;

  /**
   * Resolves when the store answers and can be written. That is judged by what real writes came to in the last seconds, and by a tiny
   * one of its own where there was none.
   */
  ping(): Promise<void>;

  /** Lets what runs finish, then closes. Calls after it reject with `store_unavailable`. */
  close(): Promise<void>;
}

/** The part of the store that keeps what was used. The contract of `Store` holds for its methods. */
export interface UsageStore {
  /**
   * Adds the rows of a batch, unless a batch with this id was added before: by whom and when does not matter. So a batch
   * whose writing failed, perhaps after its commit, is sent again.
   */
  addUsage(batch: UsageBatch): Promise<'written' | 'known'>;

  /**
   * Forgets ids of batches that were added before a time. A batch that is sent again after that counts twice.
   * @param before RFC 3339, UTC
   * @param limit most to forget in this call
   * @returns how many were forgotten
   */
  forgetBatches(before: string, limit: number): Promise<number>;

  /** Which of these batches were added, and are not forgotten. */
  knownBatches(ids: readonly string[]): Promise<ReadonlySet<string>>;

  /** Sums, in the order of their groups. */
  usageReport(query: UsageQuery): Promise<readonly UsageLine[]>;

  /**
   * What a holder used on a day, and in the month of that day.
   * @param day `YYYY-MM-DD`, UTC
   */
  usageOf(holderId: string, day: string): Promise<HolderTotals>;
}
