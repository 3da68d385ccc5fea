// What a holder, a team or a key has of its own beside its tier, as the store keeps it and as commands set it.
import { z } from 'zod';
import { eachPlainLimit, PLAIN_LIMITS, type TierLimits } from './limit-table.ts';
import { decimalText } from './prices.ts';
import { MAX_BUDGET } from './schema/billing-schema.ts';
import { ENDPOINTS } from './schema/endpoint-names.ts';

const amount = z
  .int()
  .min(1)
  .max(MAX_BUDGET * 1e9)
  .nullable()
  .optional();

const ownLimits = {
  /** Of a holder, each replaces the limit of the tier; null removes it. */
  limits: z
    .strictObject(eachPlainLimit(() => z.int().min(1).nullable().optional()))
    .partial()
    .optional(),
  /** As `limits`, in billionths of the currency; `soft` are shares, in ascending order. */
  budget: z
    .strictObject({
      per_day: amount,
      per_month: amount,
      soft: z.array(z.number().gt(0).lt(1)).min(1).readonly().nullable().optional(),
    })
    .optional(),
};

const OwnLimitsSchema = z.strictObject(ownLimits);

/** Every member is optional: an absent one leaves what the tier says. */
const TermsSchema = z.strictObject({
  ...ownLimits,
  /** Public names and patterns of models: a subset of those of the tier. */
  models: z.array(z.string()).min(1).readonly().optional(),
  /** A subset of those of the tier. */
  endpoints: z.array(z.enum(ENDPOINTS)).min(1).readonly().optional(),
  /** Of a holder: by entry of `models`, instead of the limits that its tier has there. */
  model_limits: z.record(z.string(), OwnLimitsSchema).optional(),
});

export type Terms = z.infer<typeof TermsSchema>;

/** Limits and a budget of one owner, or of a holder with one model. */
export type OwnLimits = z.infer<typeof OwnLimitsSchema>;

/** Limits in force, and from which shares of its budgets on there are warnings. */
export type BudgetedLimits = TierLimits & { readonly soft?: readonly number[] };

/** New terms, or those that a change makes of the present ones, so that two changes at a time keep both. */
export type TermsChange = Terms | ((before: Terms) => Terms);

export function changedTerms(before: Terms, change: TermsChange = before): Terms {
  return typeof change === 'function' ? change(before) : change;
}

export const NO_TERMS: Terms = {};
const NO_LIMITS: BudgetedLimits = {};

/**
 * @param text JSON, as `writeTerms` made it
 * @throws Error when it is not: then a newer version wrote it, and ignoring a part could allow too much
 */
export function readTerms(text: string): Terms {
  return text === '{}' ? NO_TERMS : TermsSchema.parse(JSON.parse(text));
}

export function writeTerms(terms: Terms): string {
  return JSON.stringify(terms);
}

/** The limits of a tier, as its holder has them. @param base stays the result where `own` has nothing */
export function limitsWith(
  base: BudgetedLimits = NO_LIMITS,
  { limits, budget }: OwnLimits = NO_TERMS,
): BudgetedLimits {
  if (limits === undefined && budget === undefined) return base;
  const { per_day, per_month, soft } = budget ?? {};
  const own = Object.entries({ ...limits, cost_per_day: per_day, cost_per_month: per_month, soft });
  const all = { ...base, ...Object.fromEntries(own.filter(([, value]) => value !== undefined)) };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null));
}

/** The limits of a budget, by the names that it has in terms. */
export const BUDGET_LIMITS = [
  { name: 'per_day', limit: 'cost_per_day', window: 'day' },
  { name: 'per_month', limit: 'cost_per_month', window: 'month' },
] as const;

/** From which shares of its budgets on an owner of limits is warned about. */
export function softOf({ soft = [] }: BudgetedLimits): readonly number[] {
  return soft;
}

/** A budget in words: `budget 500 a month`, `warnings from 80%`. */
export function budgetTexts(limits: BudgetedLimits, currency = ''): readonly string[] {
  const amounts = BUDGET_LIMITS.flatMap(({ limit, window }) => {
    const max = limits[limit];
    return max === undefined ? [] : [`budget ${`${budgetText(max)} ${currency}`.trimEnd()} a ${window}`];
  });
  const soft = softOf(limits);
  return amounts.length === 0 || soft.length === 0
    ? amounts
    : [...amounts, `warnings from ${shareText(soft)}`];
}

/** `80%`, `50%, 80%` */
export function shareText(shares: readonly number[]): string {
  return shares.map((share) => `${Number((share * 100).toFixed(4))}%`).join(', ');
}

/** @param billionths `12.5` */
export function budgetText(billionths: number): string {
  return decimalText(billionths, 9);
}

const UNSET = 'unset';
const valueText = (value: number | null | undefined, format: (value: number) => string = String): string =>
  value === undefined ? UNSET : value === null ? 'none' : format(value);

/** What an owner has of its own, by name, as text: `limit requests_per_minute` → `500`. */
function textsOf(terms: Terms): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  const add = ({ limits = {}, budget = {} }: OwnLimits, of: string): void => {
    for (const { name } of PLAIN_LIMITS)
      if (name in limits) texts.set(`limit ${name}${of}`, valueText(limits[name]));
    for (const name of ['per_day', 'per_month'] as const)
      if (name in budget) texts.set(`budget ${name}${of}`, valueText(budget[name], budgetText));
    const { soft } = budget;
    if (soft !== undefined) texts.set(`soft thresholds${of}`, soft === null ? 'none' : shareText(soft));
  };
  add(terms, '');
  if (terms.models !== undefined) texts.set('models', terms.models.join(', '));
  if (terms.endpoints !== undefined) texts.set('endpoints', terms.endpoints.join(', '));
  for (const [model, own] of Object.entries(terms.model_limits ?? {})) add(own, ` for ${model}`);
  return texts;
}

/** The differences in words: `limit requests_per_minute unset to 500`. Empty where there are none. */
export function termsChanges(before: Terms, after: Terms): readonly string[] {
  const [old, now] = [textsOf(before), textsOf(after)];
  return [...new Set([...old.keys(), ...now.keys()])].flatMap((name) => {
    const [from = UNSET, to = UNSET] = [old.get(name), now.get(name)];
    return from === to ? [] : [`${name} ${from} to ${to}`];
  });
}
