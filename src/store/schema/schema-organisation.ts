// Migration 8: teams, names and labels of holders, names, expiry and last use of keys, and who made a change.
import type { Migration } from './migration.ts';

/**
 * Processes of the version before write holders and keys without the new columns, so each has a default.
 *
 * The last use of a key is not a column of `keys`: every update there is a change that all replicas learn of.
 */
const ORGANISATION: Migration = {
  id: 8,
  name: 'organisation',
  statements: ({ text, integer, id, byBytes, table, keyedTable }) => [
    `create table teams (
       id ${text} primary key,
       name text not null,
       terms text not null,
       version ${integer} not null unique,
       created_at text not null
     )${table}`,
    `create unique index teams_by_name on teams (lower(name)${byBytes})`,
    `create table team_events (
       id ${id},
       team_id ${text} not null,
       what text not null,
       at text not null,
       actor text,
       reason text
     )${table}`,
    `create index team_events_by_team on team_events (team_id, id)`,
    `create table labels (
       owner_id ${text} not null,
       name ${text} not null,
       value ${text} not null,
       primary key (owner_id, name)
     )${keyedTable}`,
    `create index labels_by_value on labels (name, value, owner_id)`,
    `alter table holders add column team_id ${text} references teams (id)`,
    `alter table holders add column terms text not null default '{}'`,
    `create index holders_by_team on holders (team_id, id)`,
    `create index holders_by_name on holders (lower(label)${byBytes}, id)`,
    `create index holders_by_tier on holders (tier, id)`,
    `create index holders_by_standing on holders (standing, id)`,
    `alter table keys add column name text`,
    `alter table keys add column expires_at ${text}`,
    `alter table keys add column terms text not null default '{}'`,
    `create index keys_by_expiry on keys (expires_at)`,
    `create table key_uses (prefix ${text} primary key, day ${text} not null)${keyedTable}`,
    `create index key_uses_by_day on key_uses (day)`,
    `alter table key_events add column actor text`,
  ],
};

export const ORGANISATION_MIGRATIONS = [ORGANISATION];
