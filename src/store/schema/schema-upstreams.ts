// Migration 11: upstreams that operators have drained, and changes of the states of upstreams.
import type { Migration } from './migration.ts';

/** There is no foreign key to upstreams: they are in the configuration. Older versions know neither table. */
const UPSTREAMS: Migration = {
  id: 11,
  name: 'upstreams',
  statements: ({ text, id, table, keyedTable }) => [
    `create table upstream_drains (
       upstream ${text} primary key,
       at text not null,
       until text,
       actor text not null,
       reason text
     )${keyedTable}`,
    `create table upstream_events (
       id ${id},
       at text not null,
       upstream ${text} not null,
       model text,
       what text not null,
       reason text,
       replica text,
       actor text
     )${table}`,
    `create index upstream_events_by_upstream on upstream_events (upstream, id)`,
  ],
};

export const UPSTREAMS_MIGRATIONS = [UPSTREAMS];
