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

/** What a row of days and months is about, besides its time. */
const DIMENSIONS = ['holder_id', 'prefix', 'model', 'upstream', 'team_id', 'tier', 'target', 'endpoint'];

/**
 * Sums by day and month with all dimensions. Processes of the version before write `usage_hours` alone: `rolled_up` counts the additions
 * that are in the other tables too, so triggers of each database add those that do not raise it. `usage_backlog` has the days with usage
 * from before the migration, which `rollUp` adds.
 *
 * Ended keys are never changed, so the lineage of a key is a table of its own; triggers fill it, for all versions.
 */
const ROLLUPS: Migration = {
  id: 9,
  name: 'usage rollups',
  statements: ({ text, integer, isDay, keyedTable }) => [
    ...[
      ['day', isDay('day')],
      ['month', 'length(month) = 7'],
    ].flatMap(([period, check]) => [
      `create table usage_${period}s (
         ${period} ${text} not null check (${check}),
         ${DIMENSIONS.map((name) => `${name} ${text} not null`).join(', ')},
         ${SUMS.map((name) => `${name} ${integer} not null check (${name} >= 0)`).join(', ')},
         primary key (${period}, ${DIMENSIONS.join(', ')})
       )${keyedTable}`,
      `create index usage_${period}s_by_team on usage_${period}s (team_id, ${period})`,
    ]),
    `alter table usage_hours add column rolled_up ${integer} not null default 0`,
    `create table usage_backlog (day ${text} primary key, after_holder ${text} not null)${keyedTable}`,
    // Reads one row of each day.
    `with recursive days (day) as (
       select substr(min(hour), 1, 10) from usage_hours
       union all
       select (select substr(min(hour), 1, 10) from usage_hours where hour > days.day || 'T99') from days
       where days.day is not null
     ) insert into usage_backlog (day, after_holder) select day, '' from days where day is not null`,
    `create table usage_closings (
       month ${text} primary key check (length(month) = 7),
       closed_at text,
       digest text,
       events text not null default '[]'
     )${keyedTable}`,
    `create table usage_late (
       batch_id ${text} not null,
       month ${text} not null,
       requests ${integer} not null,
       cost ${integer} not null,
       primary key (month, batch_id)
     )${keyedTable}`,
    `create table key_lineages (prefix ${text} primary key, first ${text} not null)${keyedTable}`,
    `create index key_lineages_by_first on key_lineages (first)`,
    `with recursive lineages (prefix, first) as (
       select prefix, prefix from keys where replaces is null
       union all
       select keys.prefix, lineages.first from keys join lineages on keys.replaces = lineages.prefix
     ) insert into key_lineages (prefix, first) select prefix, first from lineages where prefix <> first`,
  ],
};

/** For the triggers: adds what an earlier version added to `usage_hours`, for the holder's team and tier of the present. */
export function rollUpStatements(today: string, old: (name: string) => string): readonly string[] {
  const day = `case when exists (
      select 1 from usage_closings where month = substr(new.hour, 1, 7) and closed_at is not null
    ) then ${today} else substr(new.hour, 1, 10) end`;
  return ['day', 'month'].map((period) => {
    const table = `usage_${period}s`;
    const key = [period, ...DIMENSIONS].join(', ');
    const added = SUMS.map((name) => `new.${name} - ${old(name)}`).join(', ');
    const raised = SUMS.map((name) => `${name} = ${table}.${name} + excluded.${name}`).join(', ');
    return `insert into ${table} (${key}, ${SUMS.join(', ')}) values (
      ${period === 'day' ? day : `substr(${day}, 1, 7)`}, new.holder_id, new.prefix, new.model, new.upstream,
      coalesce((select team_id from holders where id = new.holder_id), ''),
      coalesce((select tier from holders where id = new.holder_id), ''), '', '', ${added}
    ) on conflict (${key}) do update set ${raised}`;
  });
}

export const USAGE_MIGRATIONS = [USAGE, ROLLUPS];
