// The second step of the schema: use by the hour, and which batches of it were counted. Released steps are never edited.
import type { Migration } from './migration.ts';

/** Written out here: a later version may know other sums, and this step remains. */
const SUMS = [
  'requests',
  'failed',
  'estimated',
  'priced',
  'attempts',
  'prompt',
  'completion',
  'cached',
  'reasoning',
  'cost',
  'duration_ms',
  'ttft_ms',
  'ttft_count',
];

const sums = (type: string): string =>
  SUMS.map((name) => `${name} ${type} not null check (${name} >= 0)`).join(',\n       ');

/**
 * No foreign key to keys and holders: what was used is to be counted whatever became of them. The hour is text in UTC, so
 * that a day and a month are its beginning.
 */
export const USAGE_MIGRATION: Migration = {
  id: 2,
  name: 'usage',
  sqlite: [
    `create table usage_hours (
       hour text not null check (hour glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]'),
       holder_id text not null,
       prefix text not null,
       model text not null,
       upstream text not null,
       ${sums('integer')},
       primary key (holder_id, hour, prefix, model, upstream)
     ) strict, without rowid`,
    `create index usage_hours_by_hour on usage_hours (hour)`,
    `create table usage_batches (id text primary key, at text not null) strict, without rowid`,
    `create index usage_batches_by_time on usage_batches (at)`,
  ],
  postgres: [
    `create table usage_hours (
       hour text collate "C" not null check (hour ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}$'),
       holder_id text collate "C" not null,
       prefix text collate "C" not null,
       model text collate "C" not null,
       upstream text collate "C" not null,
       ${sums('bigint')},
       primary key (holder_id, hour, prefix, model, upstream)
     )`,
    `create index usage_hours_by_hour on usage_hours (hour)`,
    `create table usage_batches (id text collate "C" primary key, at text collate "C" not null)`,
    `create index usage_batches_by_time on usage_batches (at)`,
  ],
};
