// The limits of one scope in the form that the limiters use. verdict.ts decides by them.
import { isTotal, LIMITS, type Limit, type TierLimits } from '../config/limit-table.ts';

/** The limits that a scope has. */
export interface ActiveLimits {
  readonly list: readonly ActiveLimit[];
  /** The same by what they count. */
  readonly byKind: Readonly<Record<Limit['counts'], readonly ActiveLimit[]>>;
  /** Needs to know what was used before this process, or Redis, started to count. */
  readonly needTotals: boolean;
  /** The lowest limit of tokens; infinite without one. */
  readonly maxTokens: number;
  /** The lowest limit of cost; infinite without one. */
  readonly maxCost: number;
}

export interface ActiveLimit {
  readonly limit: Limit;
  readonly max: number;
}

/** By the objects of the configuration, which stay the same until a reload. */
const active = new WeakMap<TierLimits, ActiveLimits>();

/** Resolves limits once, instead of looking each of them up by name for every request. */
export function activeLimits(limits: TierLimits): ActiveLimits {
  const known = active.get(limits);
  if (known !== undefined) return known;
  const list = LIMITS.flatMap((limit) => {
    const max = limits[limit.name];
    return max === undefined ? [] : [{ limit, max }];
  });
  const of = (kind: Limit['counts']) => list.filter(({ limit }) => limit.counts === kind);
  const byKind = { requests: of('requests'), tokens: of('tokens'), cost: of('cost'), running: of('running') };
  const lowest = (some: readonly ActiveLimit[]) => Math.min(...some.map(({ max }) => max));
  const resolved = {
    list,
    byKind,
    needTotals: list.some(({ limit }) => isTotal(limit)),
    maxTokens: lowest(byKind.tokens),
    maxCost: lowest(byKind.cost),
  };
  active.set(limits, resolved);
  return resolved;
}

/**
 * How much may still be counted of each kind until the first of some limits is reached.
 * @param counts what is counted already, in the order of the table
 */
export function roomIn(active: ActiveLimits, counts: readonly number[]): Record<Limit['counts'], number> {
  const room = { requests: Infinity, tokens: Infinity, cost: Infinity, running: Infinity };
  for (const { limit, max } of active.list)
    room[limit.counts] = Math.min(room[limit.counts], max - (counts[limit.index] ?? 0));
  return room;
}
