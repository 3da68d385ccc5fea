// What the schema has of its own in PostgreSQL: types, checks and triggers. Released migrations are immutable.
import { sql } from 'kysely';
import { type MigrationDialect, ORDER_TERMS, type SqlTypes } from '../schema/migration.ts';
import { UNANNOUNCED_CHANGES } from '../schema/schema-keys.ts';
import { LABEL_MARK_CHANGES, markChanges, SEARCH_CHANGES } from '../schema/schema-search.ts';
import { rollUpStatements } from '../schema/schema-usage.ts';

/** Key of an advisory lock in the database. It is random, because programs that share it must not use the same. */
const MIGRATION_LOCK = 6_105_893_427_155_234n;

/** Uses of keys are recorded in the same order, so that neither waits for the other. */
const LOCK_KEYS = `perform 1 from key_search as s join keys as k on k.id = s.key_id where k.holder_id = new.id
  order by k.prefix for update of s`;

const TYPES: SqlTypes = {
  // Sorted by bytes.
  text: 'text collate "C"',
  integer: 'bigint',
  id: 'bigint generated always as identity primary key',
  key: 'bigint primary key',
  bytes: 'bytea',
  byteLength: 'octet_length',
  isPrefix: (column) => `${column} ~ '^[0-9a-f]{8}$'`,
  isDay: (column) => `${column} ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}$'`,
  isHour: (column) => `${column} ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}$'`,
  byBytes: ' collate "C"',
  hash: (text) => `('x' || substr(encode(sha256(convert_to(${text}, 'UTF8')), 'hex'), 1, 6))::bit(24)::int`,
  table: '',
  keyedTable: '',
};

const MARK_CHANGES = markChanges(TYPES);

/**
 * Statements of single migrations after the common ones, by id. The triggers are a last line of defence: neither a bug nor a
 * manual statement can reactivate an ended key, change the terms of an order, or delete an order that was paid.
 *
 * Ids are `generated always`, which rejects an explicit id without `overriding system value`.
 */
const OWN_STATEMENTS = {
  1: [
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
  3: [
    `alter table key_events drop constraint key_events_kind_check`,
    `alter table key_events add constraint key_events_kind_check
       check (kind in ('issued', 'rotated', 'revoked', 'changed'))`,
  ],
  4: [
    `create function guard_orders() returns trigger language plpgsql as $guard$
     begin
       if tg_op = 'DELETE' then
         if old.state <> 'void' or old.paid_at is not null then
           raise exception 'only an order that was never paid is forgotten';
         end if;
         return old;
       end if;
       if (${ORDER_TERMS.map((name) => `new.${name}`).join(', ')})
         is distinct from
         (${ORDER_TERMS.map((name) => `old.${name}`).join(', ')}) then
         raise exception 'what was ordered never changes';
       end if;
       if (old.state = 'claimed' and new.state <> 'claimed')
         or (old.holder_id is not null and new.holder_id is distinct from old.holder_id) then
         raise exception 'a claimed order stays with its holder';
       end if;
       if new.version <= old.version then
         raise exception 'every change of an order raises its version';
       end if;
       return new;
     end $guard$`,
    `create trigger orders_guard before update or delete on orders
     for each row execute function guard_orders()`,
  ],
  9: [
    `create function roll_up_usage() returns trigger language plpgsql as $roll$
     begin
       ${rollUpStatements("to_char(now() at time zone 'utc', 'YYYY-MM-DD')", (name) => `coalesce(old.${name}, 0)`).join('; ')};
       return null;
     end $roll$`,
    `create trigger usage_hours_added after insert on usage_hours
     for each row when (new.rolled_up = 0) execute function roll_up_usage()`,
    `create trigger usage_hours_raised after update on usage_hours
     for each row when (new.rolled_up = old.rolled_up) execute function roll_up_usage()`,
    `create function record_key_lineage() returns trigger language plpgsql as $lineage$
     begin
       insert into key_lineages (prefix, first) values (
         new.prefix, coalesce((select first from key_lineages where prefix = new.replaces), new.replaces)
       );
       return null;
     end $lineage$`,
    `create trigger keys_lineage after insert on keys
     for each row when (new.replaces is not null) execute function record_key_lineage()`,
  ],
  15: [
    ...triggerFunction('search_added_key', SEARCH_CHANGES.keyAdded),
    ...triggerFunction('search_changed_key', SEARCH_CHANGES.keyChanged),
    ...triggerFunction(
      'search_changed_holder',
      `${LOCK_KEYS};
       ${SEARCH_CHANGES.holderChanged}`,
    ),
    ...triggerFunction('search_used_key', SEARCH_CHANGES.keyUsed),
    `create trigger keys_search_added after insert on keys
     for each row execute function search_added_key()`,
    `create trigger keys_search_changed after update of state, expires_at on keys
     for each row when (new.state is distinct from old.state or new.expires_at is distinct from old.expires_at)
     execute function search_changed_key()`,
    `create trigger holders_search_changed after update of tier, standing, label, team_id on holders
     for each row when ((new.tier, new.standing, new.label, new.team_id)
       is distinct from (old.tier, old.standing, old.label, old.team_id))
     execute function search_changed_holder()`,
    `create trigger key_uses_search_added after insert on key_uses
     for each row execute function search_used_key()`,
    `create trigger key_uses_search_changed after update of day on key_uses
     for each row when (new.day is distinct from old.day) execute function search_used_key()`,
  ],
  16: [
    ...triggerFunction('search_added_key', MARK_CHANGES.keyAdded),
    ...triggerFunction('mark_holder', MARK_CHANGES.holderChanged),
    ...triggerFunction('mark_marked_holder', `${LOCK_KEYS}; ${MARK_CHANGES.marked}`),
    ...triggerFunction('mark_labelled_holder', MARK_CHANGES.labelChanged),
    ...triggerFunction('mark_unlabelled_holder', MARK_CHANGES.labelRemoved),
    `create trigger holders_marks_added after insert on holders for each row execute function mark_holder()`,
    `create trigger holders_marks_changed after update of tier, standing, team_id on holders
     for each row when ((new.tier, new.standing, new.team_id) is distinct from (old.tier, old.standing, old.team_id))
     execute function mark_holder()`,
    `create trigger holders_marked after update of marks on holders
     for each row when (old.marks is not null and new.marks is distinct from old.marks)
     execute function mark_marked_holder()`,
    `create trigger labels_marks_changed after insert or update of value on labels
     for each row execute function mark_labelled_holder()`,
    `create trigger labels_marks_removed after delete on labels
     for each row execute function mark_unlabelled_holder()`,
  ],
  17: [
    ...triggerFunction('key_changed', UNANNOUNCED_CHANGES.keyChanged),
    ...triggerFunction(
      'holder_changed',
      // Rows of keys are locked before those of the table, as by a change of a key.
      `perform 1 from keys where holder_id = new.id and state = 'active' order by prefix for update;
       ${UNANNOUNCED_CHANGES.holderChanged}`,
    ),
    ...triggerFunction('key_announced', UNANNOUNCED_CHANGES.announced),
    `create trigger keys_changed after update on keys
     for each row execute function key_changed()`,
    `create trigger holders_changed after update of tier, standing, team_id, terms on holders
     for each row when ((new.tier, new.standing, new.team_id, new.terms)
       is distinct from (old.tier, old.standing, old.team_id, old.terms))
     execute function holder_changed()`,
    `create trigger key_events_announce after insert on key_events
     for each row execute function key_announced()`,
  ],
  18: [
    ...triggerFunction('mark_labels', LABEL_MARK_CHANGES.marked),
    ...triggerFunction('mark_added_label', `${MARK_CHANGES.labelChanged}; ${LABEL_MARK_CHANGES.labelAdded}`),
    `create trigger labels_marked after update of marks on holders
     for each row when (new.marks is distinct from old.marks) execute function mark_labels()`,
    'drop trigger labels_marks_changed on labels',
    `create trigger labels_marks_added after insert on labels for each row execute function mark_added_label()`,
    `create trigger labels_marks_changed after update of value on labels
     for each row execute function mark_labelled_holder()`,
    // Those of an index of some rows are not used, and without any it sorts all holders of a name.
    `create statistics holders_name on (lower(label) collate "C") from holders`,
    'analyze holders',
  ],
} as const;

/** A trigger's function of one statement or more. It has the privileges of its owner: roles of earlier versions have none on the table. */
function triggerFunction(name: string, statements: string): readonly string[] {
  return [
    `create or replace function ${name}() returns trigger language plpgsql
     security definer set search_path from current as $search$
     begin
       ${statements};
       return null;
     end $search$`,
  ];
}

export const POSTGRES: MigrationDialect = {
  types: TYPES,
  statements: OWN_STATEMENTS,
  /** Tables in the schema where this connection would create tables, without those of extensions. */
  async tables(db) {
    const { rows } = await sql<{ name: string; columns: string[] }>`
      select c.relname::text as name, array_agg(a.attname::text) as columns
      from pg_catalog.pg_class c
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where n.nspname = current_schema() and c.relkind in ('r', 'p', 'v', 'm', 'f')
        and not exists (
          select from pg_catalog.pg_depend d
          where d.classid = 'pg_catalog.pg_class'::regclass and d.objid = c.oid and d.deptype = 'e'
        )
      group by c.relname`.execute(db);
    return new Map(rows.map(({ name, columns }) => [name, columns]));
  },
  async lock(trx) {
    await sql`select pg_advisory_xact_lock(${sql.lit(MIGRATION_LOCK)})`.execute(trx);
  },
  // The row of a key's use may not be there yet, so the table is locked.
  fillLocks: ['lock table key_uses in share mode'],
  forShare: (tables) => `for share of ${tables}`,
};
