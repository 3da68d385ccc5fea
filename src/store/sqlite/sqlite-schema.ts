// What the schema has of its own in SQLite: types, checks and triggers. Released migrations are immutable.
import { type MigrationDialect, ORDER_TERMS, type SqlTypes } from '../schema/migration.ts';
import { UNANNOUNCED_CHANGES } from '../schema/schema-keys.ts';
import { LABEL_MARK_CHANGES, markChanges, SEARCH_CHANGES } from '../schema/schema-search.ts';
import { rollUpStatements } from '../schema/schema-usage.ts';

const EVENT_GUARDS = [
  `create trigger key_events_stay before update on key_events
     begin select raise(abort, 'key events never change'); end`,
  `create trigger key_events_are_not_deleted before delete on key_events
     begin select raise(abort, 'key events are never deleted'); end`,
  `create trigger key_events_are_not_replaced before insert on key_events
     when exists (select 1 from key_events where id = new.id)
     begin select raise(abort, 'key events never change'); end`,
];

const rollUps = (old: (name: string) => string) =>
  rollUpStatements("strftime('%Y-%m-%d', 'now')", old).join('; ');

/** Factors of the characters of a text from its end. */
const FACTORS = [31, 1009, 30_011, 7, 50_021, 263, 9973, 77_777];

const TYPES: SqlTypes = {
  text: 'text',
  integer: 'integer',
  id: 'integer primary key autoincrement',
  key: 'integer primary key',
  bytes: 'blob',
  byteLength: 'length',
  isPrefix: (column) => `length(${column}) = 8 and ${column} not glob '*[^0-9a-f]*'`,
  isDay: (column) => `${column} glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]'`,
  isHour: (column) => `${column} glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]'`,
  byBytes: '',
  // There is no function for it.
  hash: (text) =>
    `((${FACTORS.map((factor, index) => `coalesce(unicode(substr(${text}, -${index + 1}, 1)), 0) * ${factor}`).join(' + ')} + length(${text}) * 97) % 999983)`,
  table: ' strict',
  keyedTable: ' strict, without rowid',
};

const MARK_CHANGES = markChanges(TYPES);

/**
 * Statements of single migrations after the common ones, by id. The triggers are a last line of defence: neither a bug nor a
 * manual statement can reactivate an ended key, change the terms of an order, or delete an order that was paid.
 *
 * `insert or replace` deletes without delete triggers, hence the triggers on insert. SQLite cannot change a check constraint,
 * so migration 3 rebuilds the table of events; it keeps the ids and their counter, so that the change feed never reuses an id.
 * Dropping a table runs no triggers.
 */
const OWN_STATEMENTS = {
  1: [
    `create trigger keys_begin_active before insert on keys
     when new.state <> 'active' or new.version <> 1
     begin select raise(abort, 'a key begins active, with version 1'); end`,
    `create trigger keys_are_not_replaced before insert on keys
     when exists (
       select 1 from keys where id = new.id or prefix = new.prefix or replaces = new.replaces
     )
     begin select raise(abort, 'a key with this prefix, id or predecessor exists'); end`,
    `create trigger keys_are_not_deleted before delete on keys
     begin select raise(abort, 'keys are never deleted'); end`,
    `create trigger keys_ended_stay before update on keys
     when old.state <> 'active'
     begin select raise(abort, 'nothing leaves the states invalidated and revoked'); end`,
    `create trigger keys_material_stays before update on keys
     when new.id is not old.id or new.prefix is not old.prefix or new.holder_id is not old.holder_id
       or new.argon2 is not old.argon2 or new.hmac is not old.hmac
       or new.created_at is not old.created_at or new.replaces is not old.replaces
     begin select raise(abort, 'identity and material of a key never change'); end`,
    `create trigger keys_version_grows before update on keys
     when new.version <= old.version
     begin select raise(abort, 'every change of a key raises its version'); end`,
    ...EVENT_GUARDS,
  ],
  3: [
    `create table key_events_next (
       id integer primary key autoincrement,
       prefix text not null references keys (prefix),
       kind text not null check (kind in ('issued', 'rotated', 'revoked', 'changed')),
       version integer not null,
       at text not null,
       reason text
     ) strict`,
    `insert into key_events_next (id, prefix, kind, version, at, reason)
       select id, prefix, kind, version, at, reason from key_events order by id`,
    `delete from sqlite_sequence where name = 'key_events_next'`,
    `insert into sqlite_sequence (name, seq)
       select 'key_events_next', seq from sqlite_sequence where name = 'key_events'`,
    `drop table key_events`,
    `alter table key_events_next rename to key_events`,
    `create index key_events_by_prefix on key_events (prefix, id)`,
    ...EVENT_GUARDS,
  ],
  4: [
    `create trigger orders_terms_stay before update on orders
     when ${ORDER_TERMS.map((name) => `new.${name} is not old.${name}`).join(' or ')}
     begin select raise(abort, 'what was ordered never changes'); end`,
    `create trigger orders_claimed_stay before update on orders
     when (old.state = 'claimed' and new.state <> 'claimed')
       or (old.holder_id is not null and new.holder_id is not old.holder_id)
     begin select raise(abort, 'a claimed order stays with its holder'); end`,
    `create trigger orders_version_grows before update on orders
     when new.version <= old.version
     begin select raise(abort, 'every change of an order raises its version'); end`,
    `create trigger orders_paid_stay before delete on orders
     when old.state <> 'void' or old.paid_at is not null
     begin select raise(abort, 'only an order that was never paid is forgotten'); end`,
  ],
  9: [
    `create trigger usage_hours_added after insert on usage_hours when new.rolled_up = 0
     begin ${rollUps(() => '0')}; end`,
    `create trigger usage_hours_raised after update on usage_hours when new.rolled_up = old.rolled_up
     begin ${rollUps((name) => `old.${name}`)}; end`,
    `create trigger keys_lineage after insert on keys when new.replaces is not null
     begin insert into key_lineages (prefix, first) values (
       new.prefix, coalesce((select first from key_lineages where prefix = new.replaces), new.replaces)
     ); end`,
  ],
  15: [
    `create trigger keys_search_added after insert on keys begin ${SEARCH_CHANGES.keyAdded}; end`,
    `create trigger keys_search_changed after update of state, expires_at on keys
     when new.state is not old.state or new.expires_at is not old.expires_at
     begin ${SEARCH_CHANGES.keyChanged}; end`,
    `create trigger holders_search_changed after update of tier, standing, label, team_id on holders
     when new.tier is not old.tier or new.standing is not old.standing
       or new.label is not old.label or new.team_id is not old.team_id
     begin ${SEARCH_CHANGES.holderChanged}; end`,
    `create trigger key_uses_search_added after insert on key_uses begin ${SEARCH_CHANGES.keyUsed}; end`,
    `create trigger key_uses_search_changed after update of day on key_uses
     when new.day is not old.day begin ${SEARCH_CHANGES.keyUsed}; end`,
  ],
  16: [
    'drop trigger keys_search_added',
    `create trigger keys_search_added after insert on keys begin ${MARK_CHANGES.keyAdded}; end`,
    `create trigger holders_marks_added after insert on holders begin ${MARK_CHANGES.holderChanged}; end`,
    `create trigger holders_marks_changed after update of tier, standing, team_id on holders
     when new.tier is not old.tier or new.standing is not old.standing or new.team_id is not old.team_id
     begin ${MARK_CHANGES.holderChanged}; end`,
    `create trigger holders_marked after update of marks on holders
     when old.marks is not null and new.marks is not old.marks begin ${MARK_CHANGES.marked}; end`,
    `create trigger labels_marks_added after insert on labels begin ${MARK_CHANGES.labelChanged}; end`,
    `create trigger labels_marks_changed after update of value on labels begin ${MARK_CHANGES.labelChanged}; end`,
    `create trigger labels_marks_removed after delete on labels begin ${MARK_CHANGES.labelRemoved}; end`,
  ],
  17: [
    `create trigger keys_changed after update on keys begin ${UNANNOUNCED_CHANGES.keyChanged}; end`,
    `create trigger holders_changed after update of tier, standing, team_id, terms on holders
     when new.tier is not old.tier or new.standing is not old.standing
       or new.team_id is not old.team_id or new.terms is not old.terms
     begin ${UNANNOUNCED_CHANGES.holderChanged}; end`,
    `create trigger key_events_announce after insert on key_events begin ${UNANNOUNCED_CHANGES.announced}; end`,
  ],
  18: [
    `create trigger labels_marked after update of marks on holders
     when new.marks is not old.marks begin ${LABEL_MARK_CHANGES.marked}; end`,
    'drop trigger labels_marks_added',
    `create trigger labels_marks_added after insert on labels
     begin ${MARK_CHANGES.labelChanged}; ${LABEL_MARK_CHANGES.labelAdded}; end`,
  ],
} as const;

export const SQLITE: MigrationDialect = {
  types: TYPES,
  statements: OWN_STATEMENTS,
  async tables(db) {
    const tables = await db.introspection.getTables();
    return new Map(tables.map(({ name, columns }) => [name, columns.map((column) => column.name)]));
  },
  // Not needed: a transaction begins with the lock of the file.
  async lock() {},
  fillLocks: [],
  forShare: () => '',
};
