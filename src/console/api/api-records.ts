// Single records as the API shows them: by themselves, before and after a change, and to compare what two operators change.
import { z } from 'zod';
import { isPrefix } from '../../store/key-record.ts';
import { argvOf, commandJson } from '../command-runner.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import { operatorFields } from '../operator-tokens.ts';
import { wholeHolder, wholeKey, wholeTeam } from '../owner-records.ts';
import { orderFields } from '../record-fields.ts';
import { type ApiRoute, HOLDER, NAME, PREFIX, reading, requireRecord } from './api-route.ts';
import { holder, key, operator, order, team, upstream } from './api-schemas.ts';

export async function keyRecord({ store, config }: ConsoleDesk, prefix: string) {
  const [key] = isPrefix(prefix) ? (await store.listKeys({ prefix, limit: 1 })).items : [];
  return key && wholeKey(store, config().dynamic, key);
}

/** @param id of a holder, or the prefix of one of its keys */
async function holderRecord({ store, config }: ConsoleDesk, id: string) {
  const holderId = isPrefix(id) ? (await store.findKey(id))?.holderId : id;
  const holder = holderId === undefined ? undefined : await store.findHolder(holderId);
  return holder && wholeHolder(store, config().dynamic, holder);
}

async function teamRecord({ store }: ConsoleDesk, name: string) {
  const team = await store.organisation.findTeam({ name });
  return team && wholeTeam(store, team);
}

async function orderRecord({ store: { billing } }: ConsoleDesk, id: string) {
  const order = (await billing.findOrder({ id })) ?? (await billing.findOrder({ session: id }));
  return order && orderFields(order);
}

async function operatorRecord({ store }: ConsoleDesk, name: string) {
  const operator = await store.operators.findOperator({ name });
  return operator && operatorFields(operator);
}

/** The states of the upstreams: with Redis of all processes of the fleet, else of those of this gateway. */
export async function upstreamRecords(desk: ConsoleDesk): Promise<readonly z.output<typeof upstream>[]> {
  return z
    .array(upstream)
    .parse(await commandJson(desk, argvOf(['upstreams', 'list'], null, { json: true })));
}

async function upstreamRecord(desk: ConsoleDesk, name: string) {
  return (await upstreamRecords(desk)).find((each) => each.upstream === name);
}

/** What an event is about: teams and operators are found whatever the case of the given name, and events have that of the record. */
export function eventTarget(kind: string, given: string | null, record: object | undefined): string | null {
  const name: unknown = /^(?:teams|operators)/.test(kind) ? Reflect.get(record ?? {}, 'name') : undefined;
  return typeof name === 'string' ? name : given;
}

interface Kind {
  /** Who changes such a record. */
  readonly role: 'support' | 'admin';
  /** The parameter of the path that names a record, and its form. */
  readonly param: string;
  readonly form: z.ZodString;
  readonly answer: z.ZodType;
  readonly recordOf: (desk: ConsoleDesk, name: string) => Promise<object | undefined>;
}

export const KINDS = {
  keys: { role: 'support', param: 'prefix', form: PREFIX, answer: key, recordOf: keyRecord },
  holders: { role: 'support', param: 'holder', form: HOLDER, answer: holder, recordOf: holderRecord },
  teams: { role: 'admin', param: 'name', form: NAME, answer: team, recordOf: teamRecord },
  orders: { role: 'support', param: 'order', form: NAME, answer: order, recordOf: orderRecord },
  upstreams: { role: 'admin', param: 'name', form: NAME, answer: upstream, recordOf: upstreamRecord },
  operators: { role: 'admin', param: 'name', form: NAME, answer: operator, recordOf: operatorRecord },
} as const satisfies Record<string, Kind>;

export type KindName = keyof typeof KINDS;

/** The call that reads one record. */
export function showRoute(kind: KindName, about: string): ApiRoute {
  const { param, form, answer, recordOf } = KINDS[kind];
  return reading({
    path: `/${kind}/:${param}`,
    name: `${kind}.show`,
    about,
    answer,
    role: kind === 'operators' ? 'admin' : 'viewer',
    params: { [param]: form },
    run: async ({ desk, params }) =>
      requireRecord(kind.slice(0, -1), await recordOf(desk, params[param] ?? '')),
  });
}
