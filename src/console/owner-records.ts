// A key, a holder and a team with all that the API and `--json` show of one of them.
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import {
  type Holder,
  KEY_STATES,
  type KeyChange,
  type KeyFilter,
  type ListedKey,
} from '../store/key-record.ts';
import type { Team } from '../store/organisation-record.ts';
import type { Store } from '../store/store.ts';
import { listedFields, orderFields, termsFields, tierFields } from './record-fields.ts';

/** Keys that are shown with their holder: the first that were issued. */
export const KEYS_OF_HOLDER = 1000;
/** Of all its keys: the last ones. */
const EVENTS_OF_HOLDER = 1000;

/** Keys that have expired, and those of suspended holders, are active in the store. */
export const SHOWN_STATES = [...KEY_STATES, 'expired', 'suspended'] as const;

/** @param now RFC 3339, as `expiresBefore` */
export function stateFilter(
  state: (typeof SHOWN_STATES)[number] | undefined,
  now: string,
  expiresBefore: string | undefined,
): Pick<KeyFilter, 'state' | 'standing' | 'expiresBefore'> {
  if (state === 'suspended') return { state: 'active', standing: state, expiresBefore };
  if (state !== 'expired') return { state, expiresBefore };
  return {
    state: 'active',
    expiresBefore: expiresBefore !== undefined && expiresBefore < now ? expiresBefore : now,
  };
}

export async function wholeKey(store: Store, { tiers }: DynamicConfig, key: ListedKey) {
  const [labels, events, orders] = await Promise.all([
    store.organisation.labelsOf(key.holderId),
    store.historyOf(key.prefix),
    store.billing.ordersOf(key.holderId),
  ]);
  return {
    ...listedFields(key),
    labels,
    ...tierFields(tiers[key.tier]),
    events: events.map(({ kind, version, at, actor, reason }) => ({ kind, version, at, actor, reason })),
    orders: orders.map(orderFields),
  };
}

export async function wholeHolder(store: Store, { tiers }: DynamicConfig, holder: Holder) {
  const { name, teamId, tier, standing, terms, createdAt } = holder;
  const [labels, team, keys, events, orders] = await Promise.all([
    store.organisation.labelsOf(holder.id),
    teamId === null ? undefined : store.organisation.findTeam({ id: teamId }),
    store.listKeys({ holderId: holder.id, limit: KEYS_OF_HOLDER }),
    store.holderHistory(holder.id, EVENTS_OF_HOLDER),
    store.billing.ordersOf(holder.id),
  ]);
  return {
    holder: holder.id,
    name,
    team: team?.name ?? null,
    tier,
    standing,
    labels,
    ...termsFields(terms),
    ...tierFields(tiers[tier]),
    created_at: createdAt,
    keys: keys.items.map(listedFields),
    events: holderEvents(events),
    orders: orders.map(orderFields),
  };
}

/** A change of the holder is an event of each active key: they are one here. @param newest newest first */
function holderEvents(newest: readonly KeyChange[]) {
  const all = Map.groupBy(newest.toReversed(), ({ kind, at, actor, reason }) =>
    JSON.stringify([kind, at, actor, reason]),
  );
  return [...all.values()].flatMap((same) => {
    const keys = same.map(({ prefix }) => prefix);
    return same.slice(0, 1).map(({ kind, at, actor, reason }) => ({ kind, keys, at, actor, reason }));
  });
}

export async function wholeTeam({ organisation }: Store, { id, name, terms, createdAt }: Team) {
  const [labels, events] = await Promise.all([organisation.labelsOf(id), organisation.teamHistory(id)]);
  const { limits, budget } = termsFields(terms);
  return {
    name,
    labels,
    limits,
    budget,
    created_at: createdAt,
    events: events.map(({ what, at, actor, reason }) => ({ what, at, actor, reason })),
  };
}
