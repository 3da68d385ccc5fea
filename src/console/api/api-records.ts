// Single records as the API shows them: before and after a change, and to compare what two operators change.
import { z } from 'zod';
import { isPrefix } from '../../store/key-record.ts';
import { argvOf, commandJson } from '../command-runner.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import { listedFields, orderFields, termsFields, tierFields } from '../record-fields.ts';
import { upstream } from './api-schemas.ts';

const KEYS_OF_HOLDER = 1000;

export async function keyRecord({ store, config }: ConsoleDesk, prefix: string) {
  if (!isPrefix(prefix)) return undefined;
  const [key] = await store.listKeys({ prefix, limit: 1 });
  if (key === undefined) return undefined;
  const [labels, events, orders] = await Promise.all([
    store.organisation.labelsOf(key.holderId),
    store.historyOf(prefix),
    store.billing.ordersOf(key.holderId),
  ]);
  return {
    ...listedFields(key),
    labels,
    ...tierFields(config().dynamic.tiers[key.tier]),
    events: events.map(({ kind, version, at, actor, reason }) => ({ kind, version, at, actor, reason })),
    orders: orders.map(orderFields),
  };
}

/** @param id of a holder, or the prefix of one of its keys */
export async function holderRecord({ store, config }: ConsoleDesk, id: string) {
  const holderId = isPrefix(id) ? (await store.findKey(id))?.holderId : id;
  const holder = holderId === undefined ? undefined : await store.findHolder(holderId);
  if (holder === undefined) return undefined;
  const { name, teamId, tier, standing, terms, createdAt } = holder;
  const [labels, team, keys] = await Promise.all([
    store.organisation.labelsOf(holder.id),
    teamId === null ? undefined : store.organisation.findTeam({ id: teamId }),
    store.listKeys({ holderId: holder.id, limit: KEYS_OF_HOLDER }),
  ]);
  return {
    ...{ holder: holder.id, name, team: team?.name ?? null, tier, standing, labels },
    ...{ ...termsFields(terms), ...tierFields(config().dynamic.tiers[tier]), created_at: createdAt },
    keys: keys.map(listedFields),
  };
}

export async function teamRecord({ store }: ConsoleDesk, name: string) {
  const team = await store.organisation.findTeam({ name });
  if (team === undefined) return undefined;
  const [labels, events] = await Promise.all([
    store.organisation.labelsOf(team.id),
    store.organisation.teamHistory(team.id),
  ]);
  const { limits, budget } = termsFields(team.terms);
  return {
    ...{ name: team.name, labels, limits, budget, created_at: team.createdAt },
    events: events.map(({ what, at, actor, reason }) => ({ what, at, actor, reason })),
  };
}

export async function orderRecord({ store: { billing } }: ConsoleDesk, id: string) {
  const order = (await billing.findOrder({ id })) ?? (await billing.findOrder({ session: id }));
  return order && orderFields(order);
}

/** The states of the upstreams: with Redis of all processes of the fleet, else of those of this gateway. */
export async function upstreamRecords(desk: ConsoleDesk): Promise<readonly z.output<typeof upstream>[]> {
  return z
    .array(upstream)
    .parse(await commandJson(desk, argvOf(['upstreams', 'list'], null, { json: true })));
}

export async function upstreamRecord(desk: ConsoleDesk, name: string) {
  return (await upstreamRecords(desk)).find((each) => each.upstream === name);
}
