// Calls of the API that change something. Each is a command of the command line, with its rules and checks.
import { z } from 'zod';
import { GatewayError } from '../../errors.ts';
import { isPrefix } from '../../store/key-record.ts';
import { argvOf, commandJson, done } from '../command-runner.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import { holderRecord, keyRecord, orderRecord, teamRecord, upstreamRecord } from './api-records.ts';
import { type AnyCall, type ApiRoute, HOLDER, NAME, PREFIX, requireRecord, route } from './api-route.ts';
import {
  changed,
  holder,
  key,
  labelChange,
  limitArguments,
  limitFields,
  modelLimits,
  newLabels,
  order,
  reason,
  team,
  termsFields,
  tier,
  upstream,
} from './api-schemas.ts';

type RecordOf = NonNullable<ApiRoute['record']>;

const ofKey: RecordOf = ({ desk, params }) => keyRecord(desk, params['prefix'] ?? '');
const ofHolder: RecordOf = ({ desk, params }) => holderRecord(desk, params['holder'] ?? '');
const ofTeam: RecordOf = ({ desk, params }) => teamRecord(desk, params['name'] ?? '');
const ofOrder: RecordOf = ({ desk, params }) => orderRecord(desk, params['order'] ?? '');
const ofUpstream: RecordOf = ({ desk, params }) => upstreamRecord(desk, params['name'] ?? '');

const KEY = { role: 'support', params: { prefix: PREFIX }, answer: changed(key), record: ofKey } as const;
const OF_HOLDER = {
  role: 'support',
  params: { holder: HOLDER },
  answer: changed(holder),
  record: ofHolder,
} as const;
const TEAM = { role: 'admin', params: { name: NAME }, answer: changed(team), record: ofTeam } as const;
const ORDER = { role: 'support', params: { order: NAME }, answer: changed(order), record: ofOrder } as const;
const UPSTREAM = {
  role: 'admin',
  params: { name: NAME },
  answer: changed(upstream),
  record: ofUpstream,
} as const;

const output = z.looseObject({ replicas: z.looseObject({}).exactOptional() });

type Options = Parameters<typeof argvOf>[2];

/** Runs the command of a call, and shows the record as it is then. */
async function change(
  { desk, actor, params }: AnyCall,
  words: readonly string[],
  operand: string,
  options: Options,
  record: RecordOf,
) {
  const { replicas = null } = output.parse(
    await commandJson(desk, argvOf(words, operand, { actor, json: true, ...options })),
  );
  return { record: requireRecord('record', await record({ desk, params })), replicas };
}

/** Options that only set, and those that remove where the member is null. */
function named(name: string | null | undefined, option: string, removal: string): Options {
  return name === null ? { [removal]: true } : { [option]: name };
}

function labelOptions(labels: Readonly<Record<string, string | null>> = {}): Options {
  const entries = Object.entries(labels);
  return {
    label: entries.flatMap(([name, value]) => (value === null ? [] : [`${name}=${value}`])),
    'remove-label': entries.flatMap(([name, value]) => (value === null ? [name] : [])),
  };
}

const listed = (names: readonly string[] | null | undefined) => (names === null ? 'all' : names?.join(','));

const terms = z.strictObject(termsFields);

function termsOptions(body: z.output<typeof terms>): Options {
  const { models, endpoints, force } = body;
  return { ...limitArguments(body), models: listed(models), endpoints: listed(endpoints), force };
}

function modelOptions(models: z.output<typeof modelLimits> = {}): Options {
  const each = Object.entries(models).map(([model, own]) => limitArguments(own, model));
  return {
    'model-limit': each.flatMap((options) => options['model-limit'] ?? []),
    'model-budget': each.flatMap((options) => options['model-budget'] ?? []),
  };
}

/** An order is changed at its provider, which keeps no actor. */
function orderRoute<Body extends z.ZodObject<z.ZodRawShape, z.core.$strict>>(
  action: string,
  about: string,
  body: Body,
  options: (body: z.output<Body>) => Options = () => ({}),
): ApiRoute {
  return route({
    ...ORDER,
    method: 'POST',
    path: `/orders/:order/${action}`,
    name: `orders.${action}`,
    about,
    body,
    run: async ({ desk, params, body: given }) => {
      const id = params['order'] ?? '';
      await commandJson(desk, argvOf(['orders', action], id, { json: true, ...options(given) }));
      return { record: requireRecord('order', await orderRecord(desk, id)), replicas: null };
    },
  });
}

function holderRoute(action: 'suspend' | 'resume', about: string): ApiRoute {
  return route({
    ...OF_HOLDER,
    method: 'POST',
    path: `/holders/:holder/${action}`,
    name: `holders.${action}`,
    about,
    body: z.strictObject(reason),
    run: (call) => change(call, ['holders', action], call.params['holder'] ?? '', call.body, ofHolder),
  });
}

const issueBody = z.strictObject({
  tier: tier.optional().describe('For a new holder.'),
  for: PREFIX.optional().describe('For the holder of this key.'),
  order: z.string().optional().describe('The key of a paid order.'),
  holder: z.string().optional().describe('Name of the new holder.'),
  team: z.string().optional(),
  labels: newLabels,
  name: z.string().optional(),
  expires: z.string().optional().describe('Such as `90d` or `2030-01-31`.'),
  ...termsFields,
  ...reason,
});

async function issue(desk: ConsoleDesk, actor: string, body: z.output<typeof issueBody>) {
  const {
    tier: ofTier,
    for: holderOf,
    order: paid,
    holder: holderName,
    team: teamName,
    labels,
    name,
    expires,
  } = body;
  const argv = argvOf(['keys', 'issue'], null, {
    ...{ tier: ofTier, for: holderOf, order: paid, holder: holderName, team: teamName, name, expires, actor },
    ...labelOptions(labels),
    ...termsOptions(body),
  });
  const text = (await done(desk, argv)).stdout.trim();
  const prefix = text.slice(0, 8);
  if (!isPrefix(prefix))
    throw new GatewayError('internal_error', undefined, { cause: 'the command printed no key' });
  return { key: text, record: requireRecord('key', await keyRecord(desk, prefix)), replicas: null };
}

const newKey = changed(key).extend({
  key: z.string().nullable().describe('Null where the answer is repeated for the same Idempotency-Key.'),
});
const rotated = output.extend({
  key: z.string(),
  prefix: z.string(),
  old_key_expires_at: z.string().nullable(),
});

export const CHANGE_ROUTES: readonly ApiRoute[] = [
  route({
    method: 'POST',
    path: '/keys',
    name: 'keys.issue',
    role: 'support',
    about: 'A new key, which is in this answer and nowhere else.',
    body: issueBody,
    answer: newKey,
    secrets: ['key'],
    run: ({ desk, actor, body }) => issue(desk, actor, body),
  }),
  route({
    ...KEY,
    method: 'PATCH',
    path: '/keys/:prefix',
    name: 'keys.set',
    about: 'Name, expiry, limits and restrictions of a key.',
    body: z.strictObject({
      name: z.string().nullable().optional(),
      expires: z.string().nullable().optional(),
      ...termsFields,
      ...reason,
    }),
    run: (call) => {
      const { name, expires, reason: why } = call.body;
      const own = {
        ...named(name, 'name', 'no-name'),
        ...named(expires, 'expires', 'no-expiry'),
        reason: why,
      };
      return change(
        call,
        ['keys', 'set'],
        call.params['prefix'] ?? '',
        { ...own, ...termsOptions(call.body) },
        ofKey,
      );
    },
  }),
  route({
    ...KEY,
    method: 'POST',
    path: '/keys/:prefix/rotate',
    name: 'keys.rotate',
    about: 'Replaces a key. The new one is the record of this answer, and is shown nowhere else.',
    body: z.strictObject({
      overlap: z
        .string()
        .optional()
        .describe('How long the old key stays valid, such as `24h`; at most `auth.max_rotation_overlap`.'),
      ...reason,
    }),
    answer: newKey.extend({
      old_key_expires_at: z.string().nullable().describe('RFC 3339, UTC; null: the old key has ended.'),
    }),
    secrets: ['key'],
    run: async ({ desk, actor, params, body }) => {
      const argv = argvOf(['keys', 'rotate'], params['prefix'] ?? '', { actor, json: true, ...body });
      const { prefix, replicas = null, ...shown } = rotated.parse(await commandJson(desk, argv));
      const { key: text, old_key_expires_at } = shown;
      const record = requireRecord('key', await keyRecord(desk, prefix));
      return { record, replicas, key: text, old_key_expires_at };
    },
  }),
  route({
    ...KEY,
    method: 'POST',
    path: '/keys/:prefix/revoke',
    name: 'keys.revoke',
    about: 'Ends a key for good; a reason that begins with `compromised` also ends its running requests.',
    body: z.strictObject(reason),
    run: (call) => change(call, ['keys', 'revoke'], call.params['prefix'] ?? '', call.body, ofKey),
  }),
  route({
    ...OF_HOLDER,
    method: 'PATCH',
    path: '/holders/:holder',
    name: 'holders.set',
    about: 'Name, team, labels, limits and restrictions of a holder.',
    body: z.strictObject({
      name: z.string().nullable().optional(),
      team: z.string().nullable().optional(),
      labels: labelChange,
      model_limits: modelLimits,
      ...termsFields,
      ...reason,
    }),
    run: (call) => {
      const { name, team: teamName, labels, model_limits, reason: why } = call.body;
      const options = {
        ...{ ...named(name, 'name', 'no-name'), ...named(teamName, 'team', 'no-team'), reason: why },
        ...{ ...labelOptions(labels), ...termsOptions(call.body), ...modelOptions(model_limits) },
      };
      return change(call, ['holders', 'set'], call.params['holder'] ?? '', options, ofHolder);
    },
  }),
  route({
    ...OF_HOLDER,
    method: 'POST',
    path: '/holders/:holder/tier',
    name: 'holders.tier',
    about: 'Gives a holder another tier.',
    body: z.strictObject({ tier, ...reason }),
    run: (call) => change(call, ['holders', 'tier'], call.params['holder'] ?? '', call.body, ofHolder),
  }),
  holderRoute('suspend', 'All keys of the holder get a 403 until `resume`.'),
  holderRoute('resume', 'Ends a suspension.'),
  route({
    method: 'POST',
    path: '/teams',
    name: 'teams.add',
    role: 'admin',
    about: 'A new team.',
    body: z.strictObject({ name: NAME, labels: newLabels, ...limitFields, ...reason }).omit({ force: true }),
    answer: changed(team),
    run: (call) => {
      const { name, labels, reason: why } = call.body;
      const options = { ...limitArguments(call.body), ...labelOptions(labels), reason: why };
      return change(call, ['teams', 'add'], name, options, ({ desk }) => teamRecord(desk, name.trim()));
    },
  }),
  route({
    ...TEAM,
    method: 'PATCH',
    path: '/teams/:name',
    name: 'teams.set',
    about: 'Name, labels and limits of a team.',
    body: z
      .strictObject({ name: NAME.optional(), labels: labelChange, ...limitFields, ...reason })
      .omit({ force: true }),
    run: (call) => {
      const { name, labels, reason: why } = call.body;
      const options = { name, ...limitArguments(call.body), ...labelOptions(labels), reason: why };
      const now = name?.trim() ?? call.params['name'] ?? '';
      return change(call, ['teams', 'set'], call.params['name'] ?? '', options, ({ desk }) =>
        teamRecord(desk, now),
      );
    },
  }),
  route({
    ...TEAM,
    method: 'DELETE',
    path: '/teams/:name',
    name: 'teams.remove',
    about: 'Removes a team without holders; its usage stays.',
    answer: z.strictObject({ record: z.null(), replicas: z.null() }),
    run: async ({ desk, actor, params }) => {
      await done(desk, argvOf(['teams', 'remove'], params['name'] ?? '', { actor }));
      return { record: null, replicas: null };
    },
  }),
  route({
    ...UPSTREAM,
    method: 'POST',
    path: '/upstreams/:name/drain',
    name: 'upstreams.drain',
    about: 'Takes an upstream out of service.',
    body: z.strictObject({
      for: z.string().optional().describe('Such as `1h`; without it until `resume`.'),
      ...reason,
    }),
    run: (call) => change(call, ['upstreams', 'drain'], call.params['name'] ?? '', call.body, ofUpstream),
  }),
  route({
    ...UPSTREAM,
    method: 'POST',
    path: '/upstreams/:name/resume',
    name: 'upstreams.resume',
    about: 'Ends a drain.',
    body: z.strictObject(reason),
    run: (call) => change(call, ['upstreams', 'resume'], call.params['name'] ?? '', call.body, ofUpstream),
  }),
  orderRoute('check', 'Asks the provider again.', z.strictObject(reason)),
  orderRoute(
    'cancel',
    'Cancels a subscription at the end of its period.',
    z.strictObject({ now: z.boolean().optional(), undo: z.boolean().optional(), ...reason }),
    ({ now, undo }) => ({ now, undo }),
  ),
  orderRoute('refund', 'Takes a payment back.', z.strictObject(reason)),
  orderRoute(
    'paid',
    'Marks an invoice as paid.',
    z.strictObject({ until: z.string().optional(), ...reason }),
    ({ until }) => ({ until }),
  ),
  orderRoute('trust', 'Fraud warnings do not hold the order any more.', z.strictObject(reason)),
];
