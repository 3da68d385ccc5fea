// Two steps of the schema: whose the objects are that upstreams keep (files, batches, vector stores, conversations), and whose
// what was made along with responses.
// Released steps are never edited.
import type { Migration } from './migration.ts';

/**
 * No foreign key to holders: an object stays somebody's whatever became of its holder, so that it never becomes another's. For
 * the same reason, and because pages of a list begin behind it, one that has ended stays too.
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

/** Rows of items live as long as those of responses. An id is looked up at all upstreams, as two of them may be one account. */
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
