// Options of commands for limits and budgets of a team, a holder, a key, or a holder with one model; and these as fields and text.
import { PLAIN_LIMITS, type PlainLimit } from '../../config/limit-table.ts';
import { readBudget, sortedShares } from '../../config/schema/billing-schema.ts';
import type { DynamicConfig, Tier } from '../../config/schema/config-schema.ts';
import { currencyFault } from '../../config/schema/price-schema.ts';
import { readInteger } from '../../config/schema/units.ts';
import {
  type BudgetedLimits,
  budgetText,
  limitsWith,
  type OwnLimits,
  type Terms,
} from '../../config/terms.ts';
import { didYouMean, oneOf, UsageError } from '../program/arguments.ts';
import { type Given, list, text } from '../program/command.ts';

/** Options of every owner. */
export const LIMIT_OPTIONS = {
  limit: list('LIMIT', 'a limit of its own, such as requests_per_minute=500'),
  budget: list('BUDGET', 'a budget of its own, such as 500/month or 20/day'),
  soft: text('SHARES', 'where in the budget there are warnings, such as 80%, 50%,80% or none'),
} as const;
/** And of a holder, for one of the models. */
export const MODEL_LIMIT_OPTIONS = {
  modelLimit: list('MODEL:LIMIT', 'a limit with this model'),
  modelBudget: list('MODEL:BUDGET', 'a budget with this model'),
} as const;

export const LIMITS_HELP = `LIMIT is NAME=NUMBER or NAME=none; NAME is ${PLAIN_LIMITS.map(({ name }) => name).join(', ')}. BUDGET is an amount in a day or month, or none, as in none/month.`;

/** Of whom, and what it is compared with. */
export interface LimitOwner {
  readonly kind: 'team' | 'holder' | 'key';
  readonly config: DynamicConfig;
  /** Undefined for a team, which has none. */
  readonly tier?: Tier;
  /** The limits of a key's holder, which the key has in any case. */
  readonly holderTerms?: Terms;
}

/** A changed value: null removes the limit, undefined goes back to the tier's. */
type Change<Value> = Value | null | undefined;
const BUDGET_WINDOWS = ['day', 'month'] as const;
const BUDGET_FORM = 'such as 500/month or 20/day';

/**
 * `--limit`, `--budget` and `--soft`.
 * @param isForced whether it may be more than the tier allows
 * @returns the terms with these changes; undefined without such options
 * @throws UsageError that names what is wrong, and the nearest right name
 */
export function limitOptions(
  { limit: limits, budget: budgets, soft }: Given<typeof LIMIT_OPTIONS>,
  before: Terms,
  owner: LimitOwner,
  isForced: boolean,
): Terms | undefined {
  if (limits.length + budgets.length === 0 && soft === undefined) return undefined;
  const { config, tier, holderTerms } = owner;
  const changes = new OwnChanges(owner);
  for (const each of limits) changes.limit('--limit', each);
  for (const each of budgets) changes.budget('--budget', each);
  if (soft !== undefined) changes.soft(soft);
  const { limits: _limits, budget: _budget, ...others } = before;
  const base = limitsWith(tier && config.tiers[tier], holderTerms);
  return { ...others, ...changes.apply(before, base, isForced) };
}

/** `--model-limit` and `--model-budget`, as `limitOptions`. */
export function modelLimitOptions(
  given: Given<typeof MODEL_LIMIT_OPTIONS>,
  before: Terms,
  owner: LimitOwner,
  isForced: boolean,
): Terms | undefined {
  const changes = modelChanges(given, owner);
  if (changes.size === 0) return undefined;
  const { config, tier } = owner;
  const { model_limits, ...others } = before;
  const models = new Map(Object.entries(model_limits ?? {}));
  for (const [model, changed] of changes) {
    // What was set for a model that is gone, or is not for the tier any more, can still be removed.
    if (!models.has(model) || !changed.goesBack()) requireEntry(model, owner);
    const ofTier = tier && config.models[model]?.limits?.[tier];
    const next = changed.apply(models.get(model) ?? {}, ofTier ?? {}, isForced);
    if (Object.keys(next).length === 0) models.delete(model);
    else models.set(model, next);
  }
  return { ...others, ...(models.size > 0 && { model_limits: Object.fromEntries(models) }) };
}

function modelChanges(
  { modelLimit, modelBudget }: Given<typeof MODEL_LIMIT_OPTIONS>,
  owner: LimitOwner,
): ReadonlyMap<string, OwnChanges> {
  const changes = new Map<string, OwnChanges>();
  const given = { 'model-limit': modelLimit, 'model-budget': modelBudget } as const;
  for (const option of ['model-limit', 'model-budget'] as const)
    for (const each of given[option]) {
      // Names of models may have colons.
      const at = each.lastIndexOf(':');
      const [model, rest] = [each.slice(0, at).trim(), each.slice(at + 1)];
      if (at === -1)
        throw new UsageError(
          option === 'model-limit'
            ? '--model-limit is MODEL:NAME=NUMBER, such as gpt-4o:tokens_per_day=100000'
            : '--model-budget is MODEL:AMOUNT, such as gpt-4o:20/day',
        );
      const known = changes.get(model) ?? new OwnChanges(owner);
      changes.set(model, known);
      if (option === 'model-limit') known.limit(`--${option}`, rest);
      else known.budget(`--${option}`, rest);
    }
  return changes;
}

/** @throws UsageError where the configuration has no such entry, or not for the tier */
function requireEntry(model: string, { config: { models }, tier }: LimitOwner): void {
  const found = Object.hasOwn(models, model) ? models[model] : undefined;
  if (found === undefined)
    throw new UsageError(
      `the model of a limit is no entry of \`models\`${didYouMean(model, Object.keys(models))}`,
    );
  if (tier !== undefined && !found.tiers.includes(tier))
    throw new UsageError(`the model of a limit is not offered to the tier ${tier}`);
}

/** The options for one set of limits. */
class OwnChanges {
  readonly #owner: LimitOwner;
  readonly #limits = new Map<PlainLimit['name'], Change<number>>();
  readonly #budgets = new Map<'per_day' | 'per_month', Change<number>>();
  #soft: { readonly value: Change<readonly number[]> } | undefined;

  constructor(owner: LimitOwner) {
    this.#owner = owner;
  }

  /** @param text `requests_per_minute=500` */
  limit(option: string, text: string): void {
    const at = text.indexOf('=');
    if (at === -1) throw new UsageError(`${option} is NAME=NUMBER, such as requests_per_minute=500`);
    const names = PLAIN_LIMITS.map(({ name }) => name);
    // Texts for people have spaces in the names.
    const name = oneOf(text.slice(0, at).trim().replaceAll(' ', '_'), names, 'limit');
    if (this.#limits.has(name)) throw new UsageError(`the limit ${name} is given twice`);
    const value = text.slice(at + 1).trim();
    const word = this.#wordOf(value, option);
    const reading = readInteger(value);
    if (word === undefined && (!reading.ok || reading.value < 1))
      throw new UsageError(
        `the limit ${name} is a whole number from 1, or none${this.#orTier(', or tier for that of the tier')}`,
      );
    this.#limits.set(name, word === undefined ? (reading.ok ? reading.value : null) : word.value);
  }

  /** @param text `500/month`, `20 eur/day`, `none/month`, or `none` for both */
  budget(option: string, text: string): void {
    const [, left = '', window] = /^([^/]*)(?:\/\s*(\w+)\s*)?$/.exec(text.trim()) ?? [];
    const amount = left.trim();
    const word = this.#wordOf(amount, option);
    if (window === undefined && word === undefined)
      throw new UsageError(`${option} is an amount in a day or a month, ${BUDGET_FORM}`);
    const named =
      window === undefined ? BUDGET_WINDOWS : [oneOf(window, BUDGET_WINDOWS, 'window of a budget')];
    const value = word === undefined ? this.#amountOf(option, amount) : word.value;
    for (const each of named) {
      const name = `per_${each}` as const;
      if (this.#budgets.has(name)) throw new UsageError(`the budget of a ${each} is given twice`);
      this.#budgets.set(name, value);
    }
  }

  /** @param text `80%`, `0.5,0.8`, `none` */
  soft(text: string): void {
    const word = this.#wordOf(text.trim(), '--soft');
    const shares = text.split(',').map((each) => {
      const [, digits = '', percent] = /^(\d{1,2}(?:\.\d{1,6})?)\s*(%?)$/.exec(each.trim()) ?? [];
      return digits === '' ? Number.NaN : Number(digits) / (percent === '%' ? 100 : 1);
    });
    const value = word === undefined ? sortedShares(shares) : word.value;
    if (word === undefined && value === undefined)
      throw new UsageError(
        '--soft is a share of the budget between 0 and 1, such as 80%, or up to five, such as 50%,80%',
      );
    this.#soft = { value };
  }

  /** Whether all that is given goes back to what the tier says. */
  goesBack(): boolean {
    return [...this.#limits.values(), ...this.#budgets.values()].every((value) => value === undefined);
  }

  /** @param base what the tier says @throws UsageError for what the tier does not allow, unless it is forced */
  apply({ limits, budget }: OwnLimits, base: BudgetedLimits, isForced: boolean): OwnLimits {
    const allLimits = merged(limits ?? {}, this.#limits);
    const soft = this.#soft === undefined ? [] : [['soft', this.#soft.value] as const];
    const allBudgets = merged(budget ?? {}, [...this.#budgets, ...soft]);
    const own: OwnLimits = {
      ...(Object.keys(allLimits).length > 0 && { limits: allLimits }),
      ...(Object.keys(allBudgets).length > 0 && { budget: allBudgets }),
    };
    const result = limitsWith(base, own);
    if (!isForced) {
      // A form of the console gives again what the owner has, perhaps by force.
      for (const [name, value] of this.#limits)
        if (value !== limits?.[name]) this.#requireAllowed(name, value, base[name], String);
      for (const [name, value] of this.#budgets)
        if (value !== budget?.[name])
          this.#requireAllowed(`budget ${name}`, value, base[`cost_${name}`], budgetText);
    }
    const hasBudget = result.cost_per_day !== undefined || result.cost_per_month !== undefined;
    if (this.#soft?.value && !hasBudget) throw new UsageError('--soft needs a budget: give --budget, too');
    return own;
  }

  #requireAllowed(
    name: string,
    value: Change<number>,
    max: number | undefined,
    format: (value: number) => string,
  ): void {
    const { kind, tier } = this.#owner;
    if (max === undefined || value === undefined || (value !== null && value <= max)) return;
    if (kind === 'key' && value === null) return;
    const text = value === null ? 'none' : format(value);
    const whose = kind === 'key' ? 'its holder' : `the tier ${tier}`;
    throw new UsageError(
      `${name} is ${text}, and ${whose} has ${format(max)}: give --force for more than that`,
    );
  }

  /** @returns undefined for any other text */
  #wordOf(text: string, option: string): { readonly value: null | undefined } | undefined {
    const { kind } = this.#owner;
    // Without a tier below it, to remove a value is to have none.
    if (text === 'none') return { value: kind === 'holder' ? null : undefined };
    if (text !== 'tier') return undefined;
    if (kind === 'holder') return { value: undefined };
    throw new UsageError(`${option}: limits of a ${kind} are its own, so it goes back to no tier; use none`);
  }

  #orTier(text: string): string {
    return this.#owner.kind === 'holder' ? text : '';
  }

  #amountOf(option: string, text: string): number {
    const reading = readBudget(text);
    if (!reading.ok)
      throw new UsageError(
        `${option} ${reading.fault}; with its time, ${BUDGET_FORM}${this.#orTier(', or tier/month for that of the tier')}`,
      );
    const { billionths, currency } = reading.value;
    const fault = currency && currencyFault(currency, this.#owner.config.currency);
    if (fault !== undefined) throw new UsageError(`${option} ${fault}`);
    if (!hasPrices(this.#owner.config))
      throw new UsageError(
        `${option}: the configuration has no prices, so nothing would count towards a budget`,
      );
    return billionths;
  }
}

function hasPrices({ models, prices }: DynamicConfig): boolean {
  if (prices !== undefined) return true;
  return Object.values(models).some(
    ({ price, targets }) => price !== undefined || targets.some((target) => target.price !== undefined),
  );
}

/** The members with these changes. */
function merged<Values extends object>(
  before: Values,
  changes: Iterable<readonly [string, unknown]>,
): Values {
  const all: Values = { ...before };
  for (const [name, value] of changes)
    if (value === undefined) Reflect.deleteProperty(all, name);
    else Reflect.set(all, name, value);
  return all;
}
