// Types of the tables for the query builder; migrations.ts creates the tables.
import type { Generated } from 'kysely';
import type { Tier } from '../../config/schema/config-schema.ts';
import type {
  OrderBillingStatus,
  OrderInterval,
  OrderMode,
  OrderState,
  ProviderName,
  TestPayment,
} from '../billing-record.ts';
import type { BillingStatus, ChangeKind, KeyState, Prefix } from '../key-record.ts';
import type { UsageSums } from '../usage-record.ts';

export interface Tables {
  schema_migrations: { id: number; name: string; applied_at: string };
  settings: { name: string; value: Uint8Array };
  holders: {
    id: string;
    tier: Tier;
    standing: Generated<BillingStatus>;
    label: string | null;
    created_at: string;
  };
  keys: {
    id: Generated<number>;
    prefix: Prefix;
    holder_id: string;
    argon2: string;
    hmac: Uint8Array;
    state: KeyState;
    version: number;
    created_at: string;
    ended_at: string | null;
    replaces: Prefix | null;
  };
  key_events: {
    id: Generated<number>;
    prefix: Prefix;
    kind: ChangeKind;
    version: number;
    at: string;
    reason: string | null;
  };
  free_key_grants: { day: string; address: Uint8Array; count: number };
  usage_hours: {
    hour: string;
    holder_id: string;
    prefix: string;
    model: string;
    upstream: string;
  } & UsageSums;
  usage_batches: { id: string; at: string };
  orders: {
    id: string;
    tier: Tier;
    price: string | null;
    amount: number;
    currency: string;
    mode: OrderMode;
    interval: OrderInterval;
    provider: ProviderName;
    is_live: number;
    claim: Uint8Array | null;
    nonce: Uint8Array | null;
    base_tier: Tier;
    created_at: string;
    state: OrderState;
    standing: OrderBillingStatus;
    reason: string | null;
    session: string | null;
    subscription: string | null;
    payment: string | null;
    customer: string | null;
    is_cancelled: Generated<number>;
    is_trusted: Generated<number>;
    is_replaced: Generated<number>;
    holder_id: string | null;
    key_prefix: Prefix | null;
    key_used_at: string | null;
    claimed_at: string | null;
    paid_at: string | null;
    paid_until: string | null;
    due_at: string | null;
    updated_at: string;
    version: number;
  };
  billing_events: { id: string; type: string; order_id: string | null; at: string };
  test_payments: Omit<TestPayment, 'orderId'> & { order_id: string };
  fleet_tasks: { name: string; owner: string; until: string };
  objects: {
    seq: Generated<number>;
    upstream: string;
    id: string;
    kind: string;
    holder_id: string;
    purpose: string | null;
    created_at: string;
    ended_at: string | null;
  };
  response_items: { id: string; upstream: string; holder_id: string; created_at: string };
  responses: {
    id: string;
    holder_id: string;
    model: string;
    upstream: string;
    upstream_model: string;
    created_at: string;
    charged: number | null;
  };
}
