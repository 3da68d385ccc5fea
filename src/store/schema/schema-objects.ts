// Migrations 6 and 7: owners of objects at upstreams (files, batches, vector stores, conversations), and of the items of
// responses. Released migrations are immutable.
import type { Migration } from './migration.ts';

/**
 * No foreign key to holders: an object keeps its owner even without the holder, so that no other holder can get it. Ended
 * objects stay for the same reason, and as cursors of list pages.
 */
export const OBJECTS_MIGRATION: Migration = {
  id: 6,
  name: 'objects',
  sqlite: [
    `create table objects (
       seq integer primary key autoincrement,
       upstream text not null,
       id text not null,
       kind text not null,
       holder_id text not null,
       purpose text,
       created_at text not null,
       ended_at text,
       unique (upstream, id)
     ) strict`,
    `create index objects_of_holder on objects (holder_id, upstream, kind, seq)`,
  ],
  postgres: [
    `create table objects (
       seq bigint generated always as identity primary key,
       upstream text collate "C" not null,
       id text collate "C" not null,
       kind text collate "C" not null,
       holder_id text collate "C" not null,
       purpose text collate "C",
       created_at text collate "C" not null,
       ended_at text collate "C",
       unique (upstream, id)
     )`,
    `create index objects_of_holder on objects (holder_id, upstream, kind, seq)`,
  ],
};

/** Items are kept as long as responses. Look-ups by id include all upstreams, because two of them may be one account. */
export const ITEMS_MIGRATION: Migration = {
  id: 7,
  name: 'items',
  sqlite: [
    `create table response_items (
       id text not null,
       upstream text not null,
       holder_id text not null,
       created_at text not null,
       primary key (id, upstream)
     ) strict, without rowid`,
    `create index response_items_by_time on response_items (created_at)`,
    `create index objects_by_id on objects (id)`,
  ],
  postgres: [
    `create table response_items (
       id text collate "C" not null,
       upstream text collate "C" not null,
       holder_id text collate "C" not null,
       created_at text collate "C" not null,
       primary key (id, upstream)
     )`,
    `create index response_items_by_time on response_items (created_at)`,
    `create index objects_by_id on objects (id)`,
  ],
};
