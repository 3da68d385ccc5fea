// Single records as the API shows them: before and after a change, and to compare what two operators change.
import { z } from 'zod';
import { isPrefix } from '../../store/key-record.ts';
import { argvOf, commandJson } from '../command-runner.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import { wholeHolder, wholeKey, wholeTeam } from '../owner-records.ts';
import { orderFields } from '../record-fields.ts';
import { upstream } from './api-schemas.ts';

export async function keyRecord({ store, config }: ConsoleDesk, prefix: string) {
  const [key] = isPrefix(prefix) ? await store.listKeys({ prefix, limit: 1 }) : [];
  return key && wholeKey(store, config().dynamic, key);
}

/** @param id of a holder, or the prefix of one of its keys */
export async function holderRecord({ store, config }: ConsoleDesk, id: string) {
  const holderId = isPrefix(id) ? (await store.findKey(id))?.holderId : id;
  const holder = holderId === undefined ? undefined : await store.findHolder(holderId);
  return holder && wholeHolder(store, config().dynamic, holder);
}

export async function teamRecord({ store }: ConsoleDesk, name: string) {
  const team = await store.organisation.findTeam({ name });
  return team && wholeTeam(store, team);
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
