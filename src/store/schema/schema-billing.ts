// Migration 4: orders, events of the payment provider, stored payments, and leases on tasks of the fleet. Migration 10: what
// is shown to a holder about its subscription.
import type { Migration } from './migration.ts';

const STATES = `'pending', 'paid', 'claimed', 'void', 'refused'`;
const STANDINGS = `'none', 'active', 'past_due', 'held', 'lapsed', 'ended'`;

/** Keys are never deleted, so the prefix of an order needs no foreign key. */
const BILLING: Migration = {
  id: 4,
  name: 'billing',
  statements: ({ text, integer, bytes, byteLength, table, keyedTable }) => [
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
       claim ${bytes} check (claim is null or ${byteLength}(claim) = 32),
       nonce ${bytes} unique check (nonce is null or ${byteLength}(nonce) = 32),
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
     )${table}`,
    `create index orders_by_holder on orders (holder_id)`,
    `create index orders_by_due on orders (due_at)`,
    `create index orders_by_state on orders (state, updated_at)`,
    `create table billing_events (
       id ${text} primary key,
       type text not null,
       order_id ${text},
       at ${text} not null
     )${keyedTable}`,
    `create index billing_events_by_time on billing_events (at)`,
    `create table test_payments (
       session ${text} primary key,
       order_id ${text} not null unique references orders (id),
       payment text not null check (payment in ('open', 'paid', 'declined', 'expired')),
       subscription text not null check (subscription in ('none', 'active', 'past_due', 'canceled')),
       refund text not null check (refund in ('none', 'partial', 'full')),
       dispute text not null check (dispute in ('none', 'open', 'won', 'lost')),
       since text not null
     )${keyedTable}`,
    `create table fleet_tasks (name ${text} primary key, owner text not null, until ${text} not null)${keyedTable}`,
  ],
};

/** Older versions beside leave the columns as they are, and the next check of the order writes them. */
const SUBSCRIPTIONS: Migration = {
  id: 10,
  name: 'subscriptions',
  statements: () => [
    `alter table orders add column ends_at text`,
    `alter table orders add column retry_at text`,
    `alter table test_payments add column paid_until text`,
    `alter table test_payments add column ends_at text`,
  ],
};

export const BILLING_MIGRATIONS = [BILLING, SUBSCRIPTIONS];
