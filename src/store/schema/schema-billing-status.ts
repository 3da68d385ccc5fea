// Migration 3: the standing of holders, and `changed` events of keys. Released migrations are immutable.
import type { Migration } from './migration.ts';

/**
 * SQLite cannot change a check constraint, so the table of events is rebuilt. It keeps the ids and their counter, so that the
 * change feed never reuses an id. Dropping a table runs no triggers.
 */
export const BILLING_STATUS_MIGRATION: Migration = {
  id: 3,
  name: 'standing',
  sqlite: [
    `alter table holders add column standing text not null default 'good'
       check (standing in ('good', 'suspended'))`,
    `create table key_events_next (
       id integer primary key autoincrement,
       prefix text not null references keys (prefix),
       kind text not null check (kind in ('issued', 'rotated', 'revoked', 'changed')),
       version integer not null,
       at text not null,
       reason text
     ) strict`,
    `insert into key_events_next (id, prefix, kind, version, at, reason)
       select id, prefix, kind, version, at, reason from key_events order by id`,
    `delete from sqlite_sequence where name = 'key_events_next'`,
    `insert into sqlite_sequence (name, seq)
       select 'key_events_next', seq from sqlite_sequence where name = 'key_events'`,
    `drop table key_events`,
    `alter table key_events_next rename to key_events`,
    `create index key_events_by_prefix on key_events (prefix, id)`,
    `create trigger key_events_stay before update on key_events
     begin select raise(abort, 'key events never change'); end`,
    `create trigger key_events_are_not_deleted before delete on key_events
     begin select raise(abort, 'key events are never deleted'); end`,
    `create trigger key_events_are_not_replaced before insert on key_events
     when exists (select 1 from key_events where id = new.id)
     begin select raise(abort, 'key events never change'); end`,
  ],
  postgres: [
    `alter table holders add column standing text not null default 'good'
       check (standing in ('good', 'suspended'))`,
    `alter table key_events drop constraint key_events_kind_check`,
    `alter table key_events add constraint key_events_kind_check
       check (kind in ('issued', 'rotated', 'revoked', 'changed'))`,
  ],
};
