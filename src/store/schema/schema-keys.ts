// Migration 1: keys, holders, their events and the counts of Free keys. Released migrations are immutable.
import type { Migration } from './migration.ts';

const HEX_PREFIX = (column: string) => `length(${column}) = 8 and ${column} not glob '*[^0-9a-f]*'`;

/**
 * The triggers are a last line of defence: neither a bug nor a manual statement in sqlite3 or psql can reactivate an ended
 * key. In SQLite `insert or replace` deletes without delete triggers, hence the trigger on insert.
 *
 * In PostgreSQL ids are `generated always`, which rejects an explicit id without `overriding system value`.
 */
export const KEYS_MIGRATION: Migration = {
  id: 1,
  name: 'keys',
  sqlite: [
    `create table settings (name text primary key, value blob not null) strict`,
    `create table holders (
       id text primary key,
       tier text not null check (tier in ('Free', 'Lite', 'Pro')),
       label text,
       created_at text not null
     ) strict`,
    `create table keys (
       id integer primary key autoincrement,
       prefix text not null unique check (${HEX_PREFIX('prefix')}),
       holder_id text not null references holders (id),
       argon2 text not null check (argon2 like '$argon2id$%'),
       hmac blob not null check (length(hmac) = 32),
       state text not null check (state in ('active', 'invalidated', 'revoked')),
       version integer not null check (version >= 1),
       created_at text not null,
       ended_at text,
       replaces text unique references keys (prefix),
       check ((state = 'active') = (ended_at is null))
     ) strict`,
    `create index keys_by_holder on keys (holder_id)`,
    `create table key_events (
       id integer primary key autoincrement,
       prefix text not null references keys (prefix),
       kind text not null check (kind in ('issued', 'rotated', 'revoked')),
       version integer not null,
       at text not null,
       reason text
     ) strict`,
    `create index key_events_by_prefix on key_events (prefix, id)`,
    `create table free_key_grants (
       day text not null check (day glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]'),
       address blob not null check (length(address) = 32),
       count integer not null check (count >= 1),
       primary key (day, address)
     ) strict, without rowid`,
    `create trigger keys_begin_active before insert on keys
     when new.state <> 'active' or new.version <> 1
     begin select raise(abort, 'a key begins active, with version 1'); end`,
    `create trigger keys_are_not_replaced before insert on keys
     when exists (
       select 1 from keys where id = new.id or prefix = new.prefix or replaces = new.replaces
     )
     begin select raise(abort, 'a key with this prefix, id or predecessor exists'); end`,
    `create trigger keys_are_not_deleted before delete on keys
     begin select raise(abort, 'keys are never deleted'); end`,
    `create trigger keys_ended_stay before update on keys
     when old.state <> 'active'
     begin select raise(abort, 'nothing leaves the states invalidated and revoked'); end`,
    `create trigger keys_material_stays before update on keys
     when new.id is not old.id or new.prefix is not old.prefix or new.holder_id is not old.holder_id
       or new.argon2 is not old.argon2 or new.hmac is not old.hmac
       or new.created_at is not old.created_at or new.replaces is not old.replaces
     begin select raise(abort, 'identity and material of a key never change'); end`,
    `create trigger keys_version_grows before update on keys
     when new.version <= old.version
     begin select raise(abort, 'every change of a key raises its version'); end`,
    `create trigger key_events_stay before update on key_events
     begin select raise(abort, 'key events never change'); end`,
    `create trigger key_events_are_not_deleted before delete on key_events
     begin select raise(abort, 'key events are never deleted'); end`,
    `create trigger key_events_are_not_replaced before insert on key_events
     when exists (select 1 from key_events where id = new.id)
     begin select raise(abort, 'key events never change'); end`,
  ],
  postgres: [
    `create table settings (name text collate "C" primary key, value bytea not null)`,
    `create table holders (
       id text collate "C" primary key,
       tier text not null check (tier in ('Free', 'Lite', 'Pro')),
       label text,
       created_at text not null
     )`,
    `create table keys (
       id bigint generated always as identity primary key,
       prefix text collate "C" not null unique check (prefix ~ '^[0-9a-f]{8}$'),
       holder_id text collate "C" not null references holders (id),
       argon2 text not null check (argon2 like '$argon2id$%'),
       hmac bytea not null check (octet_length(hmac) = 32),
       state text not null check (state in ('active', 'invalidated', 'revoked')),
       version integer not null check (version >= 1),
       created_at text not null,
       ended_at text,
       replaces text collate "C" unique references keys (prefix),
       check ((state = 'active') = (ended_at is null))
     )`,
    `create index keys_by_holder on keys (holder_id)`,
    `create table key_events (
       id bigint generated always as identity primary key,
       prefix text collate "C" not null references keys (prefix),
       kind text not null check (kind in ('issued', 'rotated', 'revoked')),
       version integer not null,
       at text not null,
       reason text
     )`,
    `create index key_events_by_prefix on key_events (prefix, id)`,
    `create table free_key_grants (
       day text collate "C" not null check (day ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}$'),
       address bytea not null check (octet_length(address) = 32),
       count integer not null check (count >= 1),
       primary key (day, address)
     )`,
    `create function guard_keys() returns trigger language plpgsql as $guard$
     begin
       if tg_op = 'INSERT' then
         if new.state <> 'active' or new.version <> 1 then
           raise exception 'a key begins active, with version 1';
         end if;
         return new;
       end if;
       if tg_op <> 'UPDATE' then
         raise exception 'keys are never deleted';
       end if;
       if old.state <> 'active' then
         raise exception 'nothing leaves the states invalidated and revoked';
       end if;
       if (new.id, new.prefix, new.holder_id, new.argon2, new.hmac, new.created_at, new.replaces)
         is distinct from
         (old.id, old.prefix, old.holder_id, old.argon2, old.hmac, old.created_at, old.replaces) then
         raise exception 'identity and material of a key never change';
       end if;
       if new.version <= old.version then
         raise exception 'every change of a key raises its version';
       end if;
       return new;
     end $guard$`,
    `create trigger keys_guard before insert or update or delete on keys
     for each row execute function guard_keys()`,
    // Truncate runs no row triggers.
    `create trigger keys_are_not_truncated before truncate on keys
     for each statement execute function guard_keys()`,
    `create function guard_key_events() returns trigger language plpgsql as $guard$
     begin
       if tg_op = 'UPDATE' then
         raise exception 'key events never change';
       end if;
       raise exception 'key events are never deleted';
     end $guard$`,
    `create trigger key_events_guard before update or delete on key_events
     for each row execute function guard_key_events()`,
    `create trigger key_events_are_not_truncated before truncate on key_events
     for each statement execute function guard_key_events()`,
  ],
};
