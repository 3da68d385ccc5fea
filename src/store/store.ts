// The interface and the guarantees of a durable store. open.ts opens one.
import type { BillingStore } from './billing-record.ts';
import type { BudgetStore } from './budget-record.ts';
import type {
  ActiveKeyChange,
  AddResult,
  Authorship,
  ChangeResult,
  FreeGrant,
  Holder,
  HolderChange,
  HolderOf,
  KeyChange,
  KeyChangeResult,
  KeyFilter,
  KeyRecord,
  ListedKey,
  NewKey,
  Prefix,
  RevokeResult,
  RotateResult,
  SearchPage,
} from './key-record.ts';
import type { ObjectStore } from './object-record.ts';
import type { OperatorStore } from './operator-record.ts';
import type { OrganisationStore } from './organisation-record.ts';
import type { ResponseStore } from './response-record.ts';
import type { UpstreamStore } from './upstream-record.ts';
import type {
  AddedUsage,
  ExactLine,
  HolderTotals,
  MonthRow,
  UsageBatch,
  UsageKept,
  UsageLine,
  UsageMonth,
  UsageQuery,
  UsageScope,
} from './usage-record.ts';

/** What a store keeps for good: the check value of the secret that its keys were made with, and the currency of its costs (ISO 4217). */
export type PinName = 'secret_check' | 'currency';

/** The facts that are set; none before the first start. */
export type Pins = Readonly<Partial<Record<PinName, Uint8Array>>>;

/** What a start would find, read without one. */
export interface Trial {
  readonly pins: Pins;
  /** Numbers of holders with an active key, by tier. */
  readonly holders: ReadonlyMap<string, number>;
}

/** Of a store that a start would create. */
export const EMPTY_TRIAL: Trial = { pins: {}, holders: new Map() };

/**
 * Every method settles within 1.5 s when the store is silent, and within 5 s when it is distant. A failed method rejects with
 * GatewayError `store_unavailable` (the original as `cause`) and has changed nothing, with one unavoidable exception: the
 * connection to a database server may break during a commit.
 */
export interface Store {
  /** Whether opening created it: it has no keys. */
  readonly isNew: boolean;
  readonly usage: UsageStore;
  readonly billing: BillingStore;
  readonly budgets: BudgetStore;
  /** Operators, their sessions and what they do. */
  readonly operators: OperatorStore;
  /** Teams, labels, and the search for holders. */
  readonly organisation: OrganisationStore;

  /** Owners of the objects that upstreams store. */
  readonly objects: ObjectStore;
  /** Drains and state changes of upstreams. */
  readonly upstreams: UpstreamStore;
  /** Owners and upstreams of stored responses. */
  readonly responses: ResponseStore;

  /** The key with this prefix, in any state, or undefined when there is none. */
  findKey(prefix: Prefix): Promise<KeyRecord | undefined>;

  /** Stores a new active key, with its holder and its count against a free limit, in one transaction. */
  addKey(
    key: NewKey,
    holder: HolderOf,
    reason: string | null,
    grant?: FreeGrant,
    actor?: string | null,
  ): Promise<AddResult>;

  /**
   * Stores the successor of `old` for the same holder, with name, expiry and terms of `old`, and ends `old` as invalidated, in one
   * transaction. Of concurrent rotations one succeeds, because a key has one successor. The version is not compared, so a concurrent change of the holder does not fail the
   * rotation.
   * @param keepUntil the old key stays active and expires then, or at its own earlier expiry. RFC 3339, UTC
   * @param by who rotates it, and why. Default: its holder
   */
  rotateKey(
    old: { readonly prefix: Prefix },
    successor: NewKey,
    keepUntil?: string,
    by?: Omit<Authorship, 'at'>,
  ): Promise<RotateResult>;

  /** Revokes an active key. @param at RFC 3339, UTC */
  revokeKey(prefix: Prefix, reason: string | null, at: string, actor?: string | null): Promise<RevokeResult>;

  /** The holder with this id, or undefined when there is none. */
  findHolder(holderId: string): Promise<Holder | undefined>;

  /**
   * Changes tier or standing of a holder and, in the same transaction, raises the version of each of its active keys and writes
   * an event `changed` for each. The event's reason is a description of the change followed by `reason`.
   * @param at RFC 3339, UTC
   */
  changeHolder(
    holderId: string,
    change: HolderChange,
    reason: string | null,
    at: string,
    actor?: string | null,
  ): Promise<ChangeResult>;

  /** Changes an active key and, in the same transaction, raises its version and writes an event `changed`. */
  changeKey(prefix: Prefix, change: ActiveKeyChange, by: Authorship): Promise<KeyChangeResult>;

  /** Keys by the name of the holder where that is a condition, else by expiry, last use, label, or in the order of issue. */
  listKeys(filter: KeyFilter): Promise<SearchPage<ListedKey>>;

  /** The changes of one key, oldest first. */
  historyOf(prefix: Prefix): Promise<readonly KeyChange[]>;

  /** The changes of all keys of a holder, newest first. */
  holderHistory(holderId: string, limit: number): Promise<readonly KeyChange[]>;

  /** Number of Free keys that this address received on this day. */
  freeGrants(day: string, address: Uint8Array): Promise<number>;

  /** Id of the newest change, 0 when there is none. */
  lastChange(): Promise<number>;

  /** Changes with an id above `after`, in order, at most `limit`. */
  changesAfter(after: number, limit: number): Promise<readonly KeyChange[]>;

  /**
   * Writes events for keys that changed without one, by a statement in the database, and raises their versions, so that what comes before
   * `changesAfter` is complete.
   * @param at time of the events, RFC 3339, UTC
   * @param limit of keys
   * @returns the number of keys
   */
  announceChanges(at: string, limit: number): Promise<number>;

  /** A fact that never changes, or undefined before it is set. */
  pinned(name: PinName): Promise<Uint8Array | undefined>;

  /** Sets the fact if it is not set. @returns the stored one */
  pin(name: PinName, value: Uint8Array): Promise<Uint8Array>;

  /**
   * Resolves when the store answers and accepts writes. It uses the result of a write in the last seconds, or makes a small
   * write when there was none.
   */
  ping(): Promise<void>;

  /** Waits for calls in flight, then closes. Later calls reject with `store_unavailable`. */
  close(): Promise<void>;
}

/** Usage in the store. The guarantees of `Store` apply to its methods. */
export interface UsageStore {
  /**
   * Adds the rows of a batch. It is idempotent by the id of the batch, so a batch whose write failed, perhaps after its commit,
   * can be sent again.
   * @returns `late` when usage of a closed month was booked in the hour of the batch's `at`
   */
  addUsage(batch: UsageBatch): Promise<AddedUsage>;

  /**
   * Deletes ids of batches that were added before a time. A batch that is sent again after that counts twice.
   * @param before RFC 3339, UTC
   * @param limit maximum number to delete in this call
   * @returns the number deleted
   */
  forgetBatches(before: string, limit: number): Promise<number>;

  /** The ids among these of batches that were added and whose ids are not deleted. */
  knownBatches(ids: readonly string[]): Promise<ReadonlySet<string>>;

  /** Sums, in the order of their groups. */
  usageReport(query: UsageQuery): Promise<readonly UsageLine[]>;

  /** As `usageReport`, with sums of any size. */
  exactReport(query: UsageQuery): Promise<readonly ExactLine[]>;

  /** Names by the ids of holders and teams, also of removed teams. Those without a name are missing. */
  namesOf(ids: readonly string[]): Promise<ReadonlyMap<string, string>>;

  /** Usage on a day and in the month of that day. @param day `YYYY-MM-DD`, UTC */
  usageOf(scope: UsageScope, day: string): Promise<HolderTotals>;

  /** As `usageOf`, of many holders; those without usage are missing. */
  usageOfHolders(ids: readonly string[], day: string): Promise<ReadonlyMap<string, HolderTotals>>;

  /**
   * Adds usage from before days and months to their tables, a bounded part in each call.
   * @returns whether there is more
   */
  rollUp(): Promise<boolean>;

  /**
   * Deletes usage by the hour or by the day, the oldest first; days that are not rolled up stay.
   * @param before `YYYY-MM-DD`
   * @param limit maximum number of rows in this call
   * @returns the number deleted
   */
  forgetUsage(of: 'hours' | 'days', before: string, limit: number): Promise<number>;

  /** What `forgetUsage` left. */
  usageKept(): Promise<UsageKept>;

  /** Months with usage or a closing, in order. */
  months(): Promise<readonly UsageMonth[]>;

  /** Rows of a month in the order of their texts, by bytes. @param after the texts of a row */
  monthRows(month: string, limit: number, after?: readonly string[]): Promise<readonly MonthRow[]>;

  /**
   * Closes a month: usage of it that arrives later is booked in the present one. Its rows do not change any more.
   * @returns `backlog` when `rollUp` has to be called before
   */
  closeMonth(month: string, by: Authorship): Promise<'closed' | 'already' | 'backlog'>;

  /** Sets the digest of a closed month that has none. */
  setDigest(month: string, digest: string): Promise<void>;

  reopenMonth(month: string, by: Authorship): Promise<'reopened' | 'open'>;

  /** The holder of a lineage, empty when there is no such key, and its keys. @param lineage as in `KeySummary` */
  keysOf(lineage: string): Promise<{ readonly holderId: string; readonly prefixes: readonly string[] }>;
}

/** What counts and limits need of it. */
export type CountingStore = Pick<
  UsageStore,
  'addUsage' | 'forgetBatches' | 'knownBatches' | 'usageReport' | 'usageOf' | 'usageOfHolders' | 'keysOf'
>;
