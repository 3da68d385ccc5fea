// The forms of what the API takes and answers.
import { z } from 'zod';
import { PLAIN_LIMITS } from '../../config/limit-table.ts';
import { TIERS } from '../../config/schema/config-schema.ts';
import { ORDER_BILLING_STATUSES, ORDER_STATES } from '../../store/billing-record.ts';
import { BILLING_STATUSES, KEY_STATES } from '../../store/key-record.ts';
import { ROLES } from '../../store/operator-record.ts';
import { upstreamState } from '../../upstream/state/upstream-state.ts';

/** Members of one form. */
function each<Form extends z.ZodType>(form: Form, ...names: readonly string[]): Record<string, Form> {
  return Object.fromEntries(names.map((name) => [name, form]));
}

const time = z.string().describe('RFC 3339, UTC.');
const optionalTime = time.nullable();
export const tier = z.enum(TIERS);
export const standing = z.enum(BILLING_STATUSES);
export const keyState = z.enum(KEY_STATES);
export const orderState = z.enum(ORDER_STATES);
const labels = z.record(z.string(), z.string());
const limitValues = z.record(z.string(), z.union([z.number(), z.literal('none')]));
const budgetValues = z.record(z.string(), z.union([z.number(), z.literal('none'), z.array(z.number())]));

const ownLimits = { limits: limitValues.nullable(), budget: budgetValues.nullable() };
const terms = {
  models: z.array(z.string()).nullable(),
  endpoints: z.array(z.string()).nullable(),
  ...ownLimits,
  model_limits: z.record(z.string(), z.strictObject(ownLimits)).nullable(),
};
const tierLimits = { tier_limits: limitValues, tier_budget: budgetValues.nullable() };
const change = { at: time, actor: z.string().nullable(), reason: z.string().nullable() };

const keyFields = {
  prefix: z.string(),
  state: keyState,
  tier,
  standing,
  holder: z.string(),
  holder_name: z.string().nullable(),
  name: z.string().nullable(),
  version: z.number(),
  created_at: time,
  ended_at: optionalTime,
  replaces: z.string().nullable(),
  replaced_by: z.string().nullable(),
  expires_at: optionalTime,
  ...terms,
};
export const listedKey = z.strictObject({ ...keyFields, last_used: z.string().nullable() });

export const order = z.strictObject({
  order: z.string(),
  tier,
  state: orderState,
  standing: z.enum(ORDER_BILLING_STATUSES),
  reason: z.string().nullable(),
  amount: z.number(),
  currency: z.string(),
  interval: z.string(),
  provider: z.string(),
  live: z.boolean(),
  ...each(z.string().nullable(), 'price', 'session', 'subscription', 'payment', 'customer', 'holder', 'key'),
  ...each(z.boolean(), 'cancelled', 'trusted', 'replaced'),
  created_at: time,
  ...each(optionalTime, 'key_used_at', 'paid_at', 'claimed_at'),
  ...each(optionalTime, 'paid_until', 'ends_at', 'retry_at', 'due_at'),
});

export const key = z.strictObject({
  ...listedKey.shape,
  labels,
  ...tierLimits,
  events: z.array(z.strictObject({ kind: z.string(), version: z.number(), ...change })),
  orders: z.array(order),
});

export const listedHolder = z.strictObject({
  holder: z.string(),
  name: z.string().nullable(),
  tier,
  standing,
  team: z.string().nullable(),
  labels,
  keys: z.number().describe('Number of active keys.'),
  ...terms,
  last_used: z.string().nullable(),
  created_at: time,
});
export const holder = z.strictObject({
  holder: z.string(),
  name: z.string().nullable(),
  team: z.string().nullable(),
  tier,
  standing,
  labels,
  ...terms,
  ...tierLimits,
  created_at: time,
  keys: z.array(listedKey).describe('The first 1000; `GET /keys?holder=` lists all.'),
  events: z
    .array(z.strictObject({ kind: z.string(), keys: z.array(z.string()), ...change }))
    .describe('Changes of the holder and of its keys, oldest first: the last 1000.'),
  orders: z.array(order),
});

const teamFields = { name: z.string(), labels, ...ownLimits, created_at: time };
export const listedTeam = z.strictObject({ ...teamFields, holders: z.number() });
export const team = z.strictObject({
  ...teamFields,
  events: z.array(z.strictObject({ what: z.string(), ...change })),
});

/** A gateway reports it; otherwise only what the store and the configuration say is known. */
export const upstream = z.union([
  upstreamState,
  z.strictObject({
    upstream: z.string(),
    state: z.enum(['unknown', 'drained', 'disabled']),
    drained: upstreamState.shape.drained,
  }),
]);
export const upstreamEvent = z.strictObject({
  id: z.number(),
  at: time,
  upstream: z.string(),
  model: z.string().nullable(),
  what: z.string(),
  reason: z.string().nullable(),
  replica: z.string().nullable(),
  actor: z.string().nullable(),
});

export const nearBudget = z.strictObject({
  scope: z.enum(['holder', 'team', 'key', 'model']),
  id: z.string().describe('Of the holder, the name of the team, or the prefix of the key.'),
  name: z.string().nullable(),
  model: z.string().nullable(),
  window: z.enum(['day', 'month']),
  budget: z.number().describe('In units of the currency.'),
  used: z.number().describe('As of the last seconds.'),
  share: z.number().describe('1: all of it is used.'),
});

export const operator = z.strictObject({
  name: z.string(),
  role: z.enum(ROLES),
  prefix: z.string(),
  created_at: time,
  expires_at: optionalTime,
  last_used: optionalTime,
});

export const operatorEvent = z.strictObject({
  id: z.number(),
  at: time,
  actor: z.string(),
  address: z.string().nullable(),
  what: z.string(),
  target: z.string().nullable(),
  reason: z.string().nullable(),
  before: z.unknown(),
  after: z.unknown(),
  status: z.number().nullable().describe('Null for a change whose outcome is not known.'),
});

const replicas = z
  .looseObject({ confirmed: z.number() })
  .nullable()
  .describe(
    'Which replicas have confirmed the change; null without Redis: they learn of it within a second.',
  );

/** What a change answers: the record as it is now. */
export function changed(record: z.ZodType) {
  return z.strictObject({ record, replicas });
}

// --- what changes take ---------------------------------------------------------------------------------------------

const limitName = z.enum(PLAIN_LIMITS.map(({ name }) => name));
const none = z.literal('none');
/** Keys and teams have limits of their own, so they cannot go back to those of a tier. */
export const limitChanges = limitsOf(z.union([z.number(), none]), none);
const orTier = z.literal('tier');
const limitsOfHolder = limitsOf(
  z.union([z.number(), none, orTier]),
  z.union([none, orTier]),
  '`tier` goes back to the limit of the tier.',
);
const restrictions = {
  force: z.boolean().optional().describe('Allows more than the tier has.'),
  models: z.array(z.string()).min(1).nullable().optional().describe('Null: all of the tier.'),
  endpoints: z.array(z.string()).min(1).nullable().optional(),
};
export const keyTerms = { ...limitChanges, ...restrictions };
export const holderTerms = { ...limitsOfHolder, ...restrictions };
export const modelLimits = z
  .record(z.string(), z.strictObject({ limits: limitsOfHolder.limits, budget: limitsOfHolder.budget }))
  .optional();
export const labelChange = z
  .record(z.string(), z.string().nullable())
  .optional()
  .describe('Null removes a label.');
export const newLabels = labels.optional();
export const reason = { reason: z.string().max(200).optional().describe('For the history.') };

type Limits = z.output<z.ZodObject<typeof limitsOfHolder>>;

function limitsOf<V extends z.ZodType, W extends z.ZodType>(value: V, word: W, about = '') {
  const limits = z.partialRecord(limitName, value).optional();
  return {
    limits: about === '' ? limits : limits.describe(about),
    budget: z.strictObject({ per_day: value, per_month: value }).partial().optional(),
    soft: z.union([z.array(z.number()).min(1), word]).optional(),
  };
}

/** Options of commands for these limits. @param model for the limits of a holder with one model */
export function limitArguments(
  { limits = {}, budget = {}, soft }: Limits,
  model?: string,
): Readonly<Record<string, string | readonly string[]>> {
  const [of, kind] = model === undefined ? ['', ''] : [`${model}:`, 'model-'];
  const budgets = Object.entries(budget).map(
    ([name, amount]) => `${of}${amount}/${name.slice('per_'.length)}`,
  );
  return {
    [`${kind}limit`]: Object.entries(limits).map(([name, amount]) => `${of}${name}=${amount}`),
    [`${kind}budget`]: budgets,
    ...(soft !== undefined && { soft: String(soft) }),
  };
}
