// Types of the tables for the query builder; migrations.ts creates the tables.
import type { Generated } from 'kysely';
import type { BillingEvent, Order, StoredPayment } from '../billing-record.ts';
import type { NoticeKey } from '../budget-record.ts';
import type {
  BillingStatus,
  FreeGrant,
  Holder,
  KeyChange,
  KeyRecord,
  NewKey,
  Prefix,
} from '../key-record.ts';
import type { ItemRecord, ObjectRecord } from '../object-record.ts';
import type { OperatorEvent, OperatorRecord, OperatorSession } from '../operator-record.ts';
import type { Team, TeamEvent } from '../organisation-record.ts';
import type { StoredResponse } from '../response-record.ts';
import type { UpstreamDrain, UpstreamEvent } from '../upstream-record.ts';
import type { UsageBatch, UsageKey, UsageSums } from '../usage-record.ts';

/** `holderId` becomes `holder_id`. */
type ColumnName<Field extends string> = Field extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${ColumnName<Rest>}`
  : '';

/** The row of a record. Truth values are 0 and 1. */
export type Columns<Row> = {
  -readonly [Field in keyof Row & string as ColumnName<Field>]: Row[Field] extends boolean | undefined
    ? number
    : Row[Field];
};

export interface Tables {
  schema_migrations: { id: number; name: string; applied_at: string };
  settings: { name: string; value: Uint8Array };
  holders: Columns<Pick<Holder, 'id' | 'tier' | 'createdAt'>> & {
    standing: Generated<BillingStatus>;
    /** The name; the column is older than names. */
    label: string | null;
    team_id: Generated<string | null>;
    /** JSON of `Terms`, as in `teams` and `keys`. */
    terms: Generated<string>;
    /** Bits of tier, standing, team and labels, for searches; triggers write them. */
    marks: Generated<number | null>;
  };
  teams: Columns<Omit<Team, 'terms'>> & { terms: string };
  team_events: Columns<Omit<TeamEvent, 'id'>> & { id: Generated<number> };
  /** `marks` are those of the holder, 0 of a team; triggers write them. */
  labels: { owner_id: string; name: string; value: string; marks: Generated<number | null> };
  keys: Columns<Pick<KeyRecord, 'prefix' | 'holderId' | 'state' | 'version' | 'endedAt' | 'replaces'>> &
    Columns<Pick<NewKey, 'argon2' | 'hmac' | 'createdAt'>> & {
      id: Generated<number>;
      name: Generated<string | null>;
      expires_at: Generated<string | null>;
      terms: Generated<string>;
    };
  key_uses: { prefix: Prefix; day: string };
  /** Keys that changed without an event; triggers write it. */
  keys_unannounced: { prefix: Prefix };
  /** For searches; triggers write it. */
  key_search: {
    key_id: number;
    /** Initials of tier, standing and state. */
    kind: string;
    /** The holder's, in lower case. */
    name: string | null;
    team_id: string | null;
    expires_at: string | null;
    /** The last day of use; empty before the first. */
    used: string;
    /** The holder's. */
    marks: Generated<number | null>;
  };
  key_events: Columns<Omit<KeyChange, 'id' | 'actor'>> & {
    id: Generated<number>;
    actor: Generated<string | null>;
  };
  free_key_grants: Columns<Omit<FreeGrant, 'perDay'>> & { count: number };
  key_lineages: { prefix: Prefix; first: Prefix };
  usage_hours: Columns<Pick<UsageKey, 'hour' | 'holderId' | 'prefix' | 'model' | 'upstream'>> & UsageSums;
  usage_days: Columns<Omit<UsageKey, 'hour'>> & UsageSums & { day: string };
  usage_months: Columns<Omit<UsageKey, 'hour'>> & UsageSums & { month: string };
  /** Days with usage that is in `usage_hours` alone, and up to which holder it is added. */
  usage_backlog: { day: string; after_holder: string };
  usage_closings: {
    month: string;
    closed_at: string | null;
    digest: string | null;
    /** JSON of `MonthEvent[]`. */
    events: Generated<string>;
  };
  /** Usage of a closed month that was booked in a later one. */
  usage_late: { batch_id: string; month: string; requests: number; cost: number };
  upstream_drains: Columns<UpstreamDrain>;
  upstream_events: Columns<Omit<UpstreamEvent, 'id'>> & { id: Generated<number> };
  usage_batches: Columns<Omit<UsageBatch, 'rows'>>;
  orders: Columns<Order>;
  billing_events: Columns<BillingEvent> & { order_id: string | null };
  test_payments: Columns<StoredPayment>;
  budget_notices: Columns<NoticeKey> & {
    id: Generated<number>;
    at: string;
    body: string | null;
    due_at: string | null;
    attempts: Generated<number>;
  };
  operators: Columns<OperatorRecord>;
  operator_sessions: Columns<OperatorSession>;
  operator_events: Columns<Omit<OperatorEvent, 'id'>> & { id: Generated<number> };
  fleet_tasks: { name: string; owner: string; until: string };
  objects: Columns<ObjectRecord> & { seq: Generated<number>; ended_at: string | null };
  response_items: Columns<ItemRecord>;
  responses: Columns<StoredResponse>;
}
