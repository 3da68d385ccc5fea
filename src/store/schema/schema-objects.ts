// Migrations 5 to 7: owners of stored responses, of objects at upstreams (files, batches, vector stores, conversations), and of
// the items of responses. There are no foreign keys to holders: an object keeps its owner even without the holder, so that no
// other holder can get it. Ended objects stay for the same reason, and as cursors of list pages.
import type { Migration } from './migration.ts';

const RESPONSES: Migration = {
  id: 5,
  name: 'responses',
  statements: ({ text, integer, keyedTable }) => [
    `create table responses (
       id ${text} primary key,
       holder_id ${text} not null,
       model ${text} not null,
       upstream ${text} not null,
       upstream_model ${text} not null,
       created_at ${text} not null,
       charged ${integer}
     )${keyedTable}`,
    `create index responses_by_time on responses (created_at)`,
  ],
};

const OBJECTS: Migration = {
  id: 6,
  name: 'objects',
  statements: ({ text, id, table }) => [
    `create table objects (
       seq ${id},
       upstream ${text} not null,
       id ${text} not null,
       kind ${text} not null,
       holder_id ${text} not null,
       purpose ${text},
       created_at ${text} not null,
       ended_at ${text},
       unique (upstream, id)
     )${table}`,
    `create index objects_of_holder on objects (holder_id, upstream, kind, seq)`,
  ],
};

/** Items are kept as long as responses. Look-ups by id include all upstreams, because two of them may be one account. */
const ITEMS: Migration = {
  id: 7,
  name: 'items',
  statements: ({ text, keyedTable }) => [
    `create table response_items (
       id ${text} not null,
       upstream ${text} not null,
       holder_id ${text} not null,
       created_at ${text} not null,
       primary key (id, upstream)
     )${keyedTable}`,
    `create index response_items_by_time on response_items (created_at)`,
    `create index objects_by_id on objects (id)`,
  ],
};

export const OBJECTS_MIGRATIONS = [RESPONSES, OBJECTS, ITEMS];
