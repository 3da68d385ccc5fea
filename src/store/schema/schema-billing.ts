// Migration 4: orders, events of the payment provider, test payments, and leases on tasks of the fleet. Released migrations
// are immutable.
import type { Migration } from './migration.ts';

const STATES = `'pending', 'paid', 'claimed', 'void', 'refused'`;
const STANDINGS = `'none', 'active', 'past_due', 'held', 'lapsed', 'ended'`;

/** The table for both databases; `text` sorts by bytes in both. Keys are never deleted, so the prefix needs no foreign key. */
const orders = (text: string, integer: string, blob: string, bytes: string): string =>
  `create table orders (
       id ${text} primary key,
       tier text not null check (tier in ('Free', 'Lite', 'Pro')),
       price text,
       amount ${integer} not null check (amount >= 0),
       currency text not null,
       mode text not null check (mode in ('free', 'payment', 'subscription')),
       "interval" text not null check ("interval" in ('month', 'year', 'once')),
       provider text not null check (provider in ('none', 'stripe', 'test')),
       is_live integer not null check (is_live in (0, 1)),
       claim ${blob} check (claim is null or ${bytes}(claim) = 32),
       nonce ${blob} unique check (nonce is null or ${bytes}(nonce) = 32),
       base_tier text not null check (base_tier in ('Free', 'Lite', 'Pro')),
       created_at ${text} not null,
       state text not null check (state in (${STATES})),
       standing text not null check (standing in (${STANDINGS})),
       reason text,
       session ${text} unique,
       subscription ${text} unique,
       payment ${text} unique,
       customer text,
       is_cancelled integer not null default 0 check (is_cancelled in (0, 1)),
       is_trusted integer not null default 0 check (is_trusted in (0, 1)),
       is_replaced integer not null default 0 check (is_replaced in (0, 1)),
       holder_id ${text} references holders (id),
       key_prefix ${text} unique,
       key_used_at text,
       claimed_at ${text},
       paid_at text,
       paid_until text,
       due_at ${text},
       updated_at ${text} not null,
       version ${integer} not null check (version >= 1)
     )`;

const INDEXES = [
  `create index orders_by_holder on orders (holder_id)`,
  `create index orders_by_due on orders (due_at)`,
  `create index orders_by_state on orders (state, updated_at)`,
];

const TERMS = [
  'id',
  'tier',
  'price',
  'amount',
  'currency',
  'mode',
  '"interval"',
  'provider',
  'is_live',
  'claim',
  'nonce',
  'base_tier',
  'created_at',
];

/**
 * The triggers are a last line of defence: terms of an order are immutable, a claimed order keeps its state and its holder, and
 * paid orders are not deleted.
 */
export const BILLING_MIGRATION: Migration = {
  id: 4,
  name: 'billing',
  sqlite: [
    `${orders('text', 'integer', 'blob', 'length')} strict`,
    ...INDEXES,
    `create table billing_events (
       id text primary key,
       type text not null,
       order_id text,
       at text not null
     ) strict, without rowid`,
    `create index billing_events_by_time on billing_events (at)`,
    `create table test_payments (
       session text primary key,
       order_id text not null unique references orders (id),
       payment text not null check (payment in ('open', 'paid', 'declined', 'expired')),
       subscription text not null check (subscription in ('none', 'active', 'past_due', 'canceled')),
       refund text not null check (refund in ('none', 'partial', 'full')),
       dispute text not null check (dispute in ('none', 'open', 'won', 'lost')),
       since text not null
     ) strict, without rowid`,
    `create table fleet_tasks (name text primary key, owner text not null, until text not null) strict, without rowid`,
    `create trigger orders_terms_stay before update on orders
     when ${TERMS.map((name) => `new.${name} is not old.${name}`).join(' or ')}
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
  postgres: [
    orders('text collate "C"', 'bigint', 'bytea', 'octet_length'),
    ...INDEXES,
    `create table billing_events (
       id text collate "C" primary key,
       type text not null,
       order_id text collate "C",
       at text collate "C" not null
     )`,
    `create index billing_events_by_time on billing_events (at)`,
    `create table test_payments (
       session text collate "C" primary key,
       order_id text collate "C" not null unique references orders (id),
       payment text not null check (payment in ('open', 'paid', 'declined', 'expired')),
       subscription text not null check (subscription in ('none', 'active', 'past_due', 'canceled')),
       refund text not null check (refund in ('none', 'partial', 'full')),
       dispute text not null check (dispute in ('none', 'open', 'won', 'lost')),
       since text not null
     )`,
    `create table fleet_tasks (name text collate "C" primary key, owner text not null, until text collate "C" not null)`,
    `create function guard_orders() returns trigger language plpgsql as $guard$
     begin
       if tg_op = 'DELETE' then
         if old.state <> 'void' or old.paid_at is not null then
           raise exception 'only an order that was never paid is forgotten';
         end if;
         return old;
       end if;
       if (${TERMS.map((name) => `new.${name}`).join(', ')})
         is distinct from
         (${TERMS.map((name) => `old.${name}`).join(', ')}) then
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
};
