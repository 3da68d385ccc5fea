// Migrations of usage by the hour, and of the batches that were counted.
import type { Migration } from './migration.ts';

/** The sums of the first version. Released migrations are immutable. */
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

/**
 * No foreign key to keys and holders: usage is counted even when they are gone. The hour is text in UTC, so that a day and a
 * month are prefixes of it.
 */
const USAGE: Migration = {
  id: 2,
  name: 'usage',
  statements: ({ text, integer, isHour, keyedTable }) => [
    `create table usage_hours (
       hour ${text} not null check (${isHour('hour')}),
       holder_id ${text} not null,
       prefix ${text} not null,
       model ${text} not null,
       upstream ${text} not null,
       ${SUMS.map((name) => `${name} ${integer} not null check (${name} >= 0)`).join(', ')},
       primary key (holder_id, hour, prefix, model, upstream)
     )${keyedTable}`,
    `create index usage_hours_by_hour on usage_hours (hour)`,
    `create table usage_batches (id ${text} primary key, at ${text} not null)${keyedTable}`,
    `create index usage_batches_by_time on usage_batches (at)`,
  ],
};

export const USAGE_MIGRATIONS = [USAGE];
