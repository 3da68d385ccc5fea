// What owners have of their own, and what their tier says, as fields of `--json` and as text.
import { PLAIN_LIMITS } from '../config/limit-table.ts';
import type { TierConfig } from '../config/schema/config-schema.ts';
import {
  BUDGET_LIMITS,
  type BudgetedLimits,
  budgetText,
  type OwnLimits,
  shareText,
  type Terms,
} from '../config/terms.ts';

/** The texts of limits, of the budget and of limits with single models; null where there are none. */
export function termsTexts(terms: Terms, tier: BudgetedLimits | undefined, currency = '') {
  const ofModels = Object.entries(terms.model_limits ?? {}).map(
    ([model, own]) =>
      `${model}: ${[...limitParts(own), ...budgetParts(own, undefined, currency)].join(', ')}`,
  );
  return {
    limits: limitParts(terms, tier).join(', ') || null,
    budget: budgetParts(terms, tier, currency).join(', ') || null,
    model_limits: ofModels.join('; ') || null,
  };
}

/** `requests per minute 500; per day 20`; null where it has nothing of its own. */
export function ownText(terms: Terms): string | null {
  const { limits, budget, model_limits } = termsTexts(terms, undefined);
  return [limits, budget, model_limits].filter((text) => text !== null).join('; ') || null;
}

/** `requests per minute 500 (tier 200)` */
function limitParts({ limits = {} }: OwnLimits, tier: BudgetedLimits = {}): readonly string[] {
  return PLAIN_LIMITS.flatMap(({ name }) =>
    part(name.replaceAll('_', ' '), limits[name], tier[name], String),
  );
}

function budgetParts(
  { budget = {} }: OwnLimits,
  tier: BudgetedLimits = {},
  currency: string,
): readonly string[] {
  const format = (max: number) => `${budgetText(max)} ${currency}`.trimEnd();
  const amounts = BUDGET_LIMITS.flatMap(({ name, limit }) =>
    part(name.replaceAll('_', ' '), budget[name], tier[limit], format),
  );
  const soft = part('warnings from', budget.soft, tier.soft, shareText);
  return amounts.length === 0 ? soft.filter(() => budget.soft !== undefined) : [...amounts, ...soft];
}

function part<Value>(
  name: string,
  own: Value | null | undefined,
  tier: Value | undefined,
  format: (value: Value) => string,
): readonly string[] {
  if (own === undefined) return tier === undefined ? [] : [`${name} ${format(tier)} (tier)`];
  const beside = tier === undefined ? '' : ` (tier ${format(tier)})`;
  return [`${name} ${own === null ? 'none' : format(own)}${beside}`];
}

/** Limits and budget of a tier for `explain`; null where it is not offered. */
export function tierLimits(tier: TierConfig | undefined): Readonly<Record<string, number>> | null {
  if (tier === undefined) return null;
  const limits = Object.entries(tier).flatMap(([name, value]): [string, number][] => {
    if (typeof value !== 'number') return [];
    return [name.startsWith('cost_') ? [name.replace('cost', 'budget'), value / 1e9] : [name, value]];
  });
  return Object.fromEntries(limits);
}

export function tierLimitText(limits: Readonly<Record<string, number>> | null): string {
  if (limits === null) return 'not offered';
  const texts = Object.entries(limits).map(([name, limit]) => `${name.replaceAll('_', ' ')} ${limit}`);
  return texts.length === 0 ? 'no limits' : texts.join(', ');
}
