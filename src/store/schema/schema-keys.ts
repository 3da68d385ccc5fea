// Migrations 1, 3, 14 and 17: keys, holders, their events and the counts of Free keys; the billing status of holders; lists by state;
// changes without an event.
import type { Migration } from './migration.ts';

const KEYS: Migration = {
  id: 1,
  name: 'keys',
  statements: ({ text, id, bytes, byteLength, isPrefix, isDay, table, keyedTable }) => [
    `create table settings (name ${text} primary key, value ${bytes} not null)${table}`,
    `create table holders (
       id ${text} primary key,
       tier text not null check (tier in ('Free', 'Lite', 'Pro')),
       label text,
       created_at text not null
     )${table}`,
    `create table keys (
       id ${id},
       prefix ${text} not null unique check (${isPrefix('prefix')}),
       holder_id ${text} not null references holders (id),
       argon2 text not null check (argon2 like '$argon2id$%'),
       hmac ${bytes} not null check (${byteLength}(hmac) = 32),
       state text not null check (state in ('active', 'invalidated', 'revoked')),
       version integer not null check (version >= 1),
       created_at text not null,
       ended_at text,
       replaces ${text} unique references keys (prefix),
       check ((state = 'active') = (ended_at is null))
     )${table}`,
    `create index keys_by_holder on keys (holder_id)`,
    `create table key_events (
       id ${id},
       prefix ${text} not null references keys (prefix),
       kind text not null check (kind in ('issued', 'rotated', 'revoked')),
       version integer not null,
       at text not null,
       reason text
     )${table}`,
    `create index key_events_by_prefix on key_events (prefix, id)`,
    `create table free_key_grants (
       day ${text} not null check (${isDay('day')}),
       address ${bytes} not null check (${byteLength}(address) = 32),
       count integer not null check (count >= 1),
       primary key (day, address)
     )${keyedTable}`,
  ],
};

/** Each database lets `key_events` have the kind `changed` in its own way. */
const BILLING_STATUS: Migration = {
  id: 3,
  name: 'standing',
  statements: () => [
    `alter table holders add column standing text not null default 'good'
       check (standing in ('good', 'suspended'))`,
  ],
};

/**
 * Partial, so that without statistics SQLite prefers neither to an index of holders where a query asks for the active keys of one; only a
 * query with the state as a literal can use them. `if not exists`: where the table is long, operators make them before without blocking
 * writers.
 */
const KEY_STATES: Migration = {
  id: 14,
  name: 'key_states',
  statements: () => [
    "create index if not exists keys_active on keys (id) where state = 'active'",
    "create index if not exists keys_ended on keys (state, id) where state <> 'active'",
  ],
};

/**
 * Keys that changed without an event. Triggers add and remove the rows, so that a transaction that writes its events leaves none: what is
 * left is what statements by hand have changed.
 */
const UNANNOUNCED: Migration = {
  id: 17,
  name: 'keys_unannounced',
  statements: ({ text, keyedTable }) => [
    `create table keys_unannounced (prefix ${text} primary key)${keyedTable}`,
  ],
};

/** Statements of the triggers, which also see what earlier versions write. */
export const UNANNOUNCED_CHANGES = {
  keyChanged: 'insert into keys_unannounced (prefix) values (new.prefix) on conflict do nothing',
  holderChanged: `insert into keys_unannounced (prefix)
    select prefix from keys where holder_id = new.id and state = 'active' on conflict do nothing`,
  announced: 'delete from keys_unannounced where prefix = new.prefix',
};

export const KEYS_MIGRATIONS = [KEYS, BILLING_STATUS, KEY_STATES, UNANNOUNCED];
