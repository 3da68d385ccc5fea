// Budgets as clients see them: what is left of the most restrictive one, and a warning beyond a soft threshold.
import { BUDGET_LIMITS, budgetText, softOf } from '../../config/terms.ts';
import type { ScopeStates } from '../../limits/limiter.ts';
import type { Scopes } from '../../limits/scope.ts';

const PERIODS = { day: 'daily', month: 'monthly' } as const;

/**
 * `x-tollgate-budget-remaining: 12.5`, in the currency of the prices, and `x-tollgate-budget-warning: 83% of the monthly budget of the
 * team is used`. Without a budget neither.
 */
export function budgetHeaders(
  { list, maxCost }: Scopes,
  states: ScopeStates,
  headers: Record<string, string>,
): void {
  if (maxCost === Number.POSITIVE_INFINITY) return;
  let [least, most] = [Number.POSITIVE_INFINITY, 0];
  for (const [index, { kind, limits }] of list.entries()) {
    const [soft = 1] = softOf(limits);
    for (const { limit, window } of BUDGET_LIMITS) {
      const state = states[index]?.of(limit);
      if (state === undefined) continue;
      const left = state.remaining / state.limit;
      if (left < least) {
        least = left;
        headers['x-tollgate-budget-remaining'] = budgetText(state.remaining);
      }
      const used = state.used / state.limit;
      if (used < soft || used <= most) continue;
      most = used;
      headers['x-tollgate-budget-warning'] =
        `${Math.floor(100 * used)}% of the ${PERIODS[window]} budget of the ${kind} is used`;
    }
  }
}
