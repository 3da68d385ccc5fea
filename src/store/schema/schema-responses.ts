// Migration 5: owners and upstreams of stored responses. Released migrations are immutable.
import type { Migration } from './migration.ts';

/** No foreign key to holders: rows are short-lived and found by id only. */
export const RESPONSES_MIGRATION: Migration = {
  id: 5,
  name: 'responses',
  sqlite: [
    `create table responses (
       id text primary key,
       holder_id text not null,
       model text not null,
       upstream text not null,
       upstream_model text not null,
       created_at text not null,
       charged integer
     ) strict, without rowid`,
    `create index responses_by_time on responses (created_at)`,
  ],
  postgres: [
    `create table responses (
       id text collate "C" primary key,
       holder_id text collate "C" not null,
       model text collate "C" not null,
       upstream text collate "C" not null,
       upstream_model text collate "C" not null,
       created_at text collate "C" not null,
       charged bigint
     )`,
    `create index responses_by_time on responses (created_at)`,
  ],
};
