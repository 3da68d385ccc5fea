// The tables as the query builder sees them; migrations.ts creates them.
import type { Generated } from 'kysely';
import type { Tier } from '../config/schema.ts';
import type { ChangeKind, KeyState, Prefix } from './record.ts';
import type { UsageSums } from './usage-record.ts';

export interface Tables {
  schema_migrations: { id: number; name: string; applied_at: string };
  settings: { name: string; value: Uint8Array };
  holders: { id: string; tier: Tier; label: string | null; created_at: string };
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
