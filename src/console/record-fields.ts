// What the API shows of keys, holders, teams and orders: the fields of the command line's `--json`.
import { PLAIN_LIMITS } from '../config/limit-table.ts';
import {
  BUDGET_LIMITS,
  type BudgetedLimits,
  budgetText,
  type OwnLimits,
  softOf,
  type Terms,
} from '../config/terms.ts';
import type { Order } from '../store/billing-record.ts';
import type { KeySummary, ListedKey } from '../store/key-record.ts';
import type { HolderSummary, TeamSummary } from '../store/organisation-record.ts';

/** A key of a list as `--json` shows it. */
export function listedFields(key: ListedKey) {
  return { ...publicFields(key), last_used: key.lastUsed };
}

/** A key as `--json` shows it. */
export function publicFields(key: KeySummary) {
  return {
    prefix: key.prefix,
    state: key.state,
    tier: key.tier,
    standing: key.standing,
    holder: key.holderId,
    holder_name: key.holderName,
    name: key.name,
    version: key.version,
    created_at: key.createdAt,
    ended_at: key.endedAt,
    replaces: key.replaces,
    replaced_by: key.replacedBy,
    expires_at: key.expiresAt,
    ...termsFields(key.terms),
  };
}

/** Terms of an owner; null where it has none of its own, `none` for a limit of the tier that it does not have. */
export function termsFields(terms: Terms) {
  const { models = null, endpoints = null, model_limits } = terms;
  const ofModels = Object.entries(model_limits ?? {}).map(([model, own]) => [model, ownFields(own)]);
  return {
    models,
    endpoints,
    ...ownFields(terms),
    model_limits: ofModels.length === 0 ? null : Object.fromEntries(ofModels),
  };
}

function ownFields({ limits, budget }: OwnLimits) {
  const { soft, ...amounts } = budget ?? {};
  return {
    limits: limits === undefined ? null : valuesOf(limits, (value) => value),
    budget:
      budget === undefined
        ? null
        : { ...valuesOf(amounts, units), ...(soft !== undefined && { soft: soft ?? 'none' }) },
  };
}

function valuesOf(
  values: Readonly<Record<string, number | null | undefined>>,
  shown: (value: number) => number,
) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === 'number' ? shown(value) : 'none']),
  );
}

/** What the tier says; `budget` is null without one. */
export function tierFields(tier: BudgetedLimits = {}) {
  const limits = PLAIN_LIMITS.flatMap(({ name }) => (tier[name] === undefined ? [] : [[name, tier[name]]]));
  const amounts = BUDGET_LIMITS.flatMap(({ name, limit }) => {
    const max = tier[limit];
    return max === undefined ? [] : [[name, units(max)] as const];
  });
  const soft = softOf(tier);
  return {
    tier_limits: Object.fromEntries(limits),
    tier_budget:
      amounts.length === 0 ? null : { ...Object.fromEntries(amounts), ...(soft.length > 0 && { soft }) },
  };
}

/** An amount of at most nine million with six decimals has fewer digits than a number can have. */
function units(billionths: number): number {
  return Number(budgetText(billionths));
}

/** An order as `--json` shows it. */
export function orderFields(order: Order) {
  return {
    order: order.id,
    tier: order.tier,
    state: order.state,
    standing: order.standing,
    reason: order.reason,
    amount: order.amount,
    currency: order.currency,
    interval: order.interval,
    provider: order.provider,
    live: order.isLive,
    price: order.price,
    session: order.session,
    subscription: order.subscription,
    payment: order.payment,
    customer: order.customer,
    cancelled: order.isCancelled,
    trusted: order.isTrusted,
    replaced: order.isReplaced,
    holder: order.holderId,
    key: order.keyPrefix,
    key_used_at: order.keyUsedAt,
    created_at: order.createdAt,
    paid_at: order.paidAt,
    claimed_at: order.claimedAt,
    paid_until: order.paidUntil,
    ends_at: order.endsAt,
    retry_at: order.retryAt,
    due_at: order.dueAt,
  };
}

/** A holder of a list. */
export function holderFields({ id, lastUsed, createdAt, teamId: _id, terms, ...holder }: HolderSummary) {
  return { holder: id, ...holder, ...termsFields(terms), last_used: lastUsed, created_at: createdAt };
}

/** A team of a list. */
export function teamFields({ name, labels, holders, terms, createdAt: created_at }: TeamSummary) {
  const { limits, budget } = termsFields(terms);
  return { name, labels, holders, limits, budget, created_at };
}
