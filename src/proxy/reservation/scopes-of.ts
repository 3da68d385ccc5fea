// The scopes of a request: whose limits it uses up. limits/ counts in them.
import type { Principal } from '../../auth/key/principal.ts';
import type { TierLimits } from '../../config/limit-table.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { makeScope, makeScopes, type Scopes } from '../../limits/scope.ts';

const NO_LIMITS: TierLimits = {};

/** By the objects of authentication, which stay the same while a key is cached. */
const known = new WeakMap<Principal, Scopes>();

/**
 * The same object for the same principal, until the configuration changes.
 * @param _entry the entry of `models` that the request uses; undefined before the model is known
 */
export function scopesOf(principal: Principal, { tiers }: DynamicConfig, _entry?: string): Scopes {
  const limits = tiers[principal.tier] ?? NO_LIMITS;
  const cached = known.get(principal);
  if (cached !== undefined && cached.list[0].limits === limits) return cached;
  const { holderId: id } = principal;
  const scopes = makeScopes(id, [makeScope({ kind: 'holder', id }, limits)]);
  known.set(principal, scopes);
  return scopes;
}
