// Rejects requests whose cost would be unknown where a budget counts costs, if the operator wants that.
import { priceAt } from '../../config/prices.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { Scopes } from '../../limits/scope.ts';
import type { Target } from '../routes/route-table.ts';

/**
 * @param scopes of the request; without a limit of cost nothing is rejected
 * @throws GatewayError model_unpriced where a target that may answer has no price in force
 */
export function refuseUnpriced(
  { unpriced }: DynamicConfig['budgets'],
  { maxCost }: Pick<Scopes, 'maxCost'>,
  { targets }: { readonly targets: readonly Pick<Target, 'price' | 'weight'>[] },
): void {
  if (unpriced === 'allow' || maxCost === Number.POSITIVE_INFINITY) return;
  const at = Date.now();
  const isPriced = targets.every(({ price, weight }) => weight === 0 || priceAt(price, at) !== undefined);
  if (!isPriced) throw new GatewayError('model_unpriced');
}
