// Calls of the API that change something. Each is a command of the command line, with its rules and checks.
import { z } from 'zod';
import { GatewayError } from '../../errors.ts';
import { isPrefix } from '../../store/key-record.ts';
import { argvOf, commandJson, done } from '../command-runner.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import { KINDS, type KindName, keyRecord } from './api-records.ts';
import { type AnyCall, type ApiRoute, HOLDER, NAME, requireRecord, route } from './api-route.ts';
import {
  changed,
  holderTerms,
  key,
  keyTerms,
  labelChange,
  limitArguments,
  limitChanges,
  modelLimits,
  newLabels,
  reason,
  team,
  tier,
} from './api-schemas.ts';

type Options = Parameters<typeof argvOf>[2];

const output = z.looseObject({ replicas: z.looseObject({}).exactOptional() });
const why = z.object(reason);
/** Members of a body that are options of the command by the same names. */
const plain = z.record(z.string(), z.union([z.string(), z.boolean()]).optional());

/** What the calls of one record have in common. */
function ofRecord(kind: KindName) {
  const { role, param, form, answer, recordOf } = KINDS[kind];
  const record: ApiRoute['record'] = ({ desk, params }) => recordOf(desk, params[param] ?? '');
  return { role, params: { [param]: form }, answer: changed(answer), record, path: `/${kind}/:${param}` };
}

/** Runs the command of a call, and shows the record as it is then. @param after its name then */
async function change(
  { desk, actor }: AnyCall,
  [kind, action]: readonly [KindName, string],
  name: string,
  { reason: given, ...options }: Options,
  after = name,
) {
  // An order is changed at its provider, which keeps neither actor nor reason.
  const by = kind === 'orders' ? {} : { actor, reason: given };
  const argv = argvOf([kind, action], name, { ...by, json: true, ...options });
  const { replicas = null } = output.parse(await commandJson(desk, argv));
  return { record: requireRecord('record', await KINDS[kind].recordOf(desk, after)), replicas };
}

/**
 * A call that is the command of the same name, and answers with the record.
 * @param shape of the body, besides the reason
 * @param options of the command. Default: the members of the body
 * @param after the name of the record after the change, where that changes it
 */
function changeRoute<Shape extends z.ZodRawShape>(
  kind: KindName,
  action: string,
  about: string,
  shape: Shape,
  options: (body: z.output<z.ZodObject<Shape>>) => Options = (body) => plain.parse(body),
  after: (body: z.output<z.ZodObject<Shape>>) => string | undefined = () => undefined,
): ApiRoute {
  const { path, ...others } = ofRecord(kind);
  const isSet = action === 'set';
  const own = z.object(shape);
  return route({
    ...others,
    method: isSet ? 'PATCH' : 'POST',
    path: isSet ? path : `${path}/${action}`,
    name: `${kind}.${action}`,
    about,
    body: z.strictObject({ ...shape, ...reason }),
    run: (call) => {
      const body = own.parse(call.body);
      const name = call.params[KINDS[kind].param] ?? '';
      const given = { ...options(body), ...why.parse(call.body) };
      return change(call, [kind, action], name, given, after(body));
    },
  });
}

/** Options that only set, and those that remove where the member is null. */
function named(name: string | null | undefined, option: string, removal: string): Options {
  return name === null ? { [removal]: true } : { [option]: name };
}

function labelOptions(labels: Readonly<Record<string, string | null>> = {}): Options {
  const entries = Object.entries(labels);
  // The command would take it for a part of the value.
  const wrong = entries.find(([name]) => name.includes('='));
  if (wrong !== undefined) throw new GatewayError('invalid_value', 'The name of a label has no `=`.');
  return {
    label: entries.flatMap(([name, value]) => (value === null ? [] : [`${name}=${value}`])),
    'remove-label': entries.flatMap(([name, value]) => (value === null ? [name] : [])),
  };
}

/** As the commands take a list. @throws GatewayError for a name that they would take for another one, for several or for all */
function listed(names: readonly string[] | null | undefined): string | undefined {
  if (names === null || names === undefined) return names === null ? 'all' : undefined;
  if (names.some((name) => name === 'all' || name.includes(',') || name.trim() !== name || name === ''))
    throw new GatewayError(
      'invalid_value',
      'A name in a list is not `all`, and has no comma and no white space around it.',
    );
  return names.join(',');
}

const terms = z.strictObject(holderTerms);

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

const issueBody = z.strictObject({
  tier: tier.optional().describe('For a new holder.'),
  for: HOLDER.optional().describe('For this holder: its id, or the prefix of one of its keys.'),
  order: z.string().optional().describe('The key of a paid order.'),
  holder: z.string().optional().describe('Name of the new holder.'),
  team: z.string().optional(),
  labels: newLabels,
  name: z.string().optional(),
  expires: z.string().optional().describe('Such as `90d` or `2030-01-31`.'),
  ...keyTerms,
  ...reason,
});

async function issue(desk: ConsoleDesk, actor: string, body: z.output<typeof issueBody>) {
  const { labels, reason: why, limits, budget, soft, models, endpoints, force, ...own } = body;
  // The history of the key of an order names the order; the event of the operator has the reason.
  const about = own.order === undefined ? { actor, reason: why } : { actor };
  const restrictions = termsOptions({ limits, budget, soft, models, endpoints, force });
  const argv = argvOf(['keys', 'issue'], null, {
    ...own,
    ...about,
    ...labelOptions(labels),
    ...restrictions,
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
  changeRoute(
    'keys',
    'set',
    'Name, expiry, limits and restrictions of a key.',
    { name: z.string().nullable().optional(), expires: z.string().nullable().optional(), ...keyTerms },
    ({ name, expires, ...own }) => ({
      ...named(name, 'name', 'no-name'),
      ...named(expires, 'expires', 'no-expiry'),
      ...termsOptions(own),
    }),
  ),
  route({
    ...ofRecord('keys'),
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
  changeRoute(
    'keys',
    'revoke',
    'Ends a key for good; a reason that begins with `compromised` also ends its running requests.',
    {},
  ),
  changeRoute(
    'holders',
    'set',
    'Name, team, labels, limits and restrictions of a holder.',
    {
      name: z.string().nullable().optional(),
      team: z.string().nullable().optional(),
      labels: labelChange,
      model_limits: modelLimits,
      ...holderTerms,
    },
    ({ name, team: teamName, labels, model_limits, ...own }) => ({
      ...named(name, 'name', 'no-name'),
      ...named(teamName, 'team', 'no-team'),
      ...labelOptions(labels),
      ...termsOptions(own),
      ...modelOptions(model_limits),
    }),
  ),
  changeRoute('holders', 'tier', 'Gives a holder another tier.', { tier }),
  changeRoute('holders', 'suspend', 'All keys of the holder get a 403 until `resume`.', {}),
  changeRoute('holders', 'resume', 'Ends a suspension.', {}),
  route({
    method: 'POST',
    path: '/teams',
    name: 'teams.add',
    role: 'admin',
    about: 'A new team.',
    body: z.strictObject({ name: NAME, labels: newLabels, ...limitChanges, ...reason }),
    answer: changed(team),
    run: (call) => {
      const { name, labels, reason: why, ...limits } = call.body;
      const options = { ...limitArguments(limits), ...labelOptions(labels), reason: why };
      return change(call, ['teams', 'add'], name, options, name.trim());
    },
  }),
  changeRoute(
    'teams',
    'set',
    'Name, labels and limits of a team.',
    { name: NAME.optional(), labels: labelChange, ...limitChanges },
    ({ name, labels, ...limits }) => ({ name, ...limitArguments(limits), ...labelOptions(labels) }),
    ({ name }) => name?.trim(),
  ),
  route({
    ...ofRecord('teams'),
    method: 'DELETE',
    name: 'teams.remove',
    about: 'Removes a team without holders; its usage stays.',
    query: z.strictObject(reason),
    answer: z.strictObject({ record: z.null(), replicas: z.null() }),
    run: async ({ desk, actor, params, query }) => {
      await done(desk, argvOf(['teams', 'remove'], params['name'] ?? '', { actor, ...query }));
      return { record: null, replicas: null };
    },
  }),
  changeRoute('upstreams', 'drain', 'Takes an upstream out of service.', {
    for: z.string().optional().describe('Such as `1h`; without it until `resume`.'),
  }),
  changeRoute('upstreams', 'resume', 'Ends a drain.', {}),
  changeRoute('orders', 'check', 'Asks the provider again.', {}),
  changeRoute('orders', 'cancel', 'Cancels a subscription at the end of its period.', {
    now: z.boolean().optional(),
    undo: z.boolean().optional(),
  }),
  changeRoute('orders', 'refund', 'Takes a payment back.', {}),
  changeRoute('orders', 'paid', 'Marks an invoice as paid.', { until: z.string().optional() }),
  changeRoute('orders', 'trust', 'Fraud warnings do not hold the order any more.', {}),
];
