// Budgets as clients see them: what is left of the most restrictive one, and a warning beyond a soft threshold.
import { budgetText, softOf } from '../../config/terms.ts';
import type { ScopeStates } from '../../limits/limiter.ts';
import type { Scopes } from '../../limits/scope.ts';

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
  let [least, left, most] = [Number.POSITIVE_INFINITY, 0, 0];
  for (const [index, ofScope] of states.entries()) {
    const { kind, limits } = list[index] ?? list[0];
    const [soft = 1] = softOf(limits);
    for (const each of ofScope.active.byKind.cost) {
      const used = ofScope.used(each);
      const remaining = Math.max(0, each.max - used);
      if (remaining / each.max < least) {
        least = remaining / each.max;
        left = remaining;
      }
      const share = used / each.max;
      if (share < soft || share <= most) continue;
      most = share;
      const period = each.limit.window === 'day' ? 'daily' : 'monthly';
      headers['x-tollgate-budget-warning'] =
        `${Math.floor(100 * share)}% of the ${period} budget of the ${kind} is used`;
    }
  }
  if (least < Number.POSITIVE_INFINITY) headers['x-tollgate-budget-remaining'] = budgetText(left);
}
