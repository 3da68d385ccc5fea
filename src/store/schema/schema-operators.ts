// Migration 13: operators, their sessions, and what they do.
import type { Migration } from './migration.ts';

const OPERATORS: Migration = {
  id: 13,
  name: 'operators',
  statements: ({ text, integer, id, bytes, byteLength, byBytes, isPrefix, table, keyedTable }) => [
    `create table operators (
       id ${text} primary key,
       name text not null,
       role text not null check (role in ('viewer', 'support', 'admin')),
       prefix ${text} not null unique check (${isPrefix('prefix')}),
       argon2 text not null,
       hmac ${bytes} not null check (${byteLength}(hmac) = 32),
       created_at text not null,
       expires_at text,
       used_at text
     )${keyedTable}`,
    `create unique index operators_by_name on operators (lower(name)${byBytes})`,
    `create table operator_sessions (
       id ${text} primary key,
       operator_id ${text} not null references operators (id) on delete cascade,
       hash ${bytes} not null unique,
       previous ${bytes} unique,
       rotated_at text not null,
       created_at ${text} not null,
       used_at ${text} not null,
       address text not null
     )${keyedTable}`,
    `create index operator_sessions_by_operator on operator_sessions (operator_id)`,
    `create table operator_events (
       id ${id},
       at ${text} not null,
       actor ${text} not null,
       address text,
       what ${text} not null,
       target ${text},
       reason text,
       before text,
       after text,
       status ${integer},
       request_key ${text},
       digest text
     )${table}`,
    `create unique index operator_events_by_request on operator_events (actor, request_key)`,
    `create index operator_events_by_time on operator_events (at)`,
    `create index operator_events_by_target on operator_events (target, id)`,
    `create index operator_events_by_what on operator_events (what, id)`,
  ],
};

export const OPERATORS_MIGRATIONS = [OPERATORS];
