// Whose limits a request uses up: those of its holder, and beside them those of its key, its team and its model. A request
// reserves in all of them or in none.
import type { TierLimits } from '../config/limit-table.ts';
import type { UsageScope } from '../store/usage-record.ts';
import { type ActiveLimits, activeLimits } from './active-limits.ts';

export type ScopeKind = UsageScope['kind'];

/** An owner of limits, and what it may use. */
export interface Scope {
  readonly kind: ScopeKind;
  /** The name of its counters, unique over all kinds. */
  readonly id: string;
  readonly owner: UsageScope;
  readonly limits: TierLimits;
  readonly active: ActiveLimits;
}

/** All scopes of a request. Made once for a key and a model, not for each request. */
export interface Scopes {
  /** The hash tag of their counters in Redis, so that a Cluster keeps them together: the id of the team, else that of the holder. */
  readonly slot: string;
  /** The holder's first. */
  readonly list: readonly [Scope, ...Scope[]];
  /** Whether any of them has a limit. */
  readonly isLimited: boolean;
  /** Whether one of them has a limit over a day or a month. */
  readonly needTotals: boolean;
  /** The lowest limit of tokens; infinite without one. */
  readonly maxTokens: number;
  /** The lowest limit of cost; infinite without one. */
  readonly maxCost: number;
}

/** @param limits the same object for all scopes with these limits, so that they are resolved once */
export function makeScope(owner: UsageScope, limits: TierLimits): Scope {
  return { kind: owner.kind, id: idOf(owner), owner, limits, active: activeLimits(limits) };
}

export function makeScopes(slot: string, list: readonly [Scope, ...Scope[]]): Scopes {
  return {
    slot,
    list,
    isLimited: list.some(({ active }) => active.list.length > 0),
    needTotals: list.some(({ active }) => active.needTotals),
    maxTokens: Math.min(...list.map(({ active }) => active.maxTokens)),
    maxCost: Math.min(...list.map(({ active }) => active.maxCost)),
  };
}

/** The same scopes with other limits. */
export function changeLimits(scopes: Scopes, change: (limits: TierLimits) => TierLimits): Scopes {
  const [first, ...rest] = scopes.list;
  const changed = ({ owner, limits }: Scope) => makeScope(owner, change(limits));
  return makeScopes(scopes.slot, [changed(first), ...rest.map(changed)]);
}

/** Ids of holders and teams are UUIDs. */
function idOf(owner: UsageScope): string {
  switch (owner.kind) {
    case 'holder':
    case 'team':
      return owner.id;
    case 'key':
      return `key:${owner.lineage}`;
    case 'model':
      return `model:${owner.holderId}:${owner.model}`;
  }
}
