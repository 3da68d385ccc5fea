// What a request may cost, before its target is known.
import { costOf, type TokenPrice } from '../../usage/records/token-price.ts';
import { eachTokenPart } from '../../wire/token-usage.ts';
import type { Estimate } from '../request/token-estimate.ts';
import type { Route } from '../routes/route-table.ts';

const NO_PARTS = eachTokenPart(() => 0);

/** The highest cost among the targets of a route, in billionths; 0 where none has a price. */
export function estimatedCost(
  { targets }: Pick<Route, 'targets'>,
  { prompt, completion }: Pick<Estimate, 'prompt' | 'completion'>,
): number {
  let highest = 0;
  let last: TokenPrice | undefined;
  for (const { price } of targets) {
    // Targets without a price of their own share the one of their model.
    if (price === undefined || price === last) continue;
    highest = Math.max(
      highest,
      costOf(price, { ...NO_PARTS, prompt: Math.ceil(prompt), completion: Math.ceil(completion) }),
    );
    last = price;
  }
  return highest;
}
