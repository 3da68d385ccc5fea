// Calls of the API that read keys, holders and teams.
import { z } from 'zod';
import { suggestion } from '../../config/source/schema-issues.ts';
import { GatewayError } from '../../errors.ts';
import type { Store } from '../../store/store.ts';
import { SHOWN_STATES, stateFilter } from '../owner-records.ts';
import { holderFields, listedFields, teamFields } from '../record-fields.ts';
import { showRoute } from './api-records.ts';
import { PAGE, pageOf, reading, readPage, readSearch, requireRecord } from './api-route.ts';
import { listedHolder, listedKey, listedTeam, standing, tier } from './api-schemas.ts';

export const labelFilter = z
  .union([z.string(), z.array(z.string())])
  .optional()
  .describe('`NAME=VALUE`, any number of times; a VALUE may end with `*`.');
const dayOrTime = z.union([z.iso.date(), z.iso.datetime({ offset: true })]);
const holderFilter = {
  name: z.string().optional().describe('Beginning of the name of the holder.'),
  team: z.string().optional(),
  tier: tier.optional(),
  label: labelFilter,
};

/** Conditions for the store. @throws GatewayError `invalid_value`, `record_not_found` */
async function holderConditions(
  store: Store,
  { name, team, tier, label }: z.output<z.ZodObject<typeof holderFilter>>,
) {
  const found = team === undefined ? undefined : await store.organisation.findTeam({ name: team });
  if (team !== undefined) requireRecord('team', found);
  return { name, tier, teamId: found?.id, labels: await labelsIn(store, label) };
}

/** @throws GatewayError `invalid_value`, also where nobody has such a label */
async function labelsIn(
  { organisation }: Store,
  given: z.output<typeof labelFilter> = [],
): Promise<Readonly<Record<string, string>>> {
  const labels = [given].flat().map((text): readonly [string, string] => {
    const at = text.indexOf('=');
    if (at < 1) throw new GatewayError('invalid_value', 'A label is NAME=VALUE.', { param: 'label' });
    return [text.slice(0, at), text.slice(at + 1)];
  });
  const found = new Map(labels);
  if (found.size < labels.length)
    throw new GatewayError('invalid_value', 'The name of a label is given twice.', { param: 'label' });
  const known = labels.length === 0 ? [] : await organisation.labelNames();
  for (const name of found.keys())
    if (!known.includes(name)) {
      const near = suggestion(name, known) || '.';
      const message = `No holder and no team has a label with this name${near}`;
      throw new GatewayError('invalid_value', message, { param: 'label' });
    }
  return Object.fromEntries(found);
}

export const OWNER_ROUTES = [
  reading({
    path: '/keys',
    name: 'keys.list',
    about:
      'Keys: with `name` by the name of the holder, else with `expires_before` by expiry, with `unused_since` by last use (never used first), with a label by its value and holder, else in the order of issue.',
    query: z.strictObject({
      ...PAGE,
      ...holderFilter,
      state: z
        .enum(SHOWN_STATES)
        .optional()
        .describe('`expired` keys, and `suspended` ones of suspended holders, have the state `active`.'),
      holder: z.string().optional().describe('Id of the holder.'),
      unused_since: dayOrTime.optional().describe('Last used before this day, or never.'),
      expires_before: dayOrTime.optional(),
    }),
    answer: pageOf(listedKey),
    run: async ({ desk: { store, now }, query }) => {
      const { state, holder: holderId, unused_since: unused, expires_before: before } = query;
      const filter = {
        ...(await holderConditions(store, query)),
        holderId,
        unusedSince: unused && new Date(unused).toISOString().slice(0, 10),
        // Times are compared as text.
        ...stateFilter(state, new Date(now()).toISOString(), before && new Date(before).toISOString()),
      };
      return readSearch(query, (limit, after) => store.listKeys({ ...filter, limit, after }), listedFields);
    },
  }),
  showRoute('keys', 'A key with its history.'),
  reading({
    path: '/holders',
    name: 'holders.list',
    about: 'Holders, ordered by id; with `name` by name, else with a label by its value.',
    query: z.strictObject({ ...PAGE, ...holderFilter, standing: standing.optional() }),
    answer: pageOf(listedHolder),
    run: async ({ desk: { store }, query }) => {
      const filter = { ...(await holderConditions(store, query)), standing: query.standing };
      return readSearch(
        query,
        (limit, after) => store.organisation.searchHolders(filter, limit, after),
        holderFields,
      );
    },
  }),
  showRoute('holders', 'A holder and its keys.'),
  reading({
    path: '/teams',
    name: 'teams.list',
    about: 'Teams, ordered by name.',
    query: z.strictObject({
      ...PAGE,
      name: z.string().optional().describe('Beginning of the name.'),
      label: labelFilter,
    }),
    answer: pageOf(listedTeam),
    run: async ({ desk: { store }, query: { name, label, ...page } }) => {
      const filter = { ...(name !== undefined && { name }), labels: await labelsIn(store, label) };
      return readPage(
        page,
        z.strictObject({ name: z.string() }),
        (limit, after) => store.organisation.listTeams({ ...filter, limit, after: after?.name }),
        (found) => ({ name: found.name }),
        teamFields,
      );
    },
  }),
  showRoute('teams', 'A team with its history.'),
];
