// What a key may use: the models and endpoints of its tier, restricted by the terms of its holder and by its own.
import type { DynamicConfig, Tier } from '../../config/schema/config-schema.ts';
import { type EndpointName, offered } from '../../config/schema/endpoint-names.ts';
import type { Terms } from '../../config/terms.ts';
import { GatewayError } from '../../errors.ts';

/** A principal; of commands only the tier. */
export interface Access {
  readonly tier: Tier;
  readonly holderTerms?: Terms;
  readonly terms?: Terms;
}

/** @param endpoints those of a model, or all */
export function allowedEndpoints(
  endpoints: readonly EndpointName[],
  { tier, holderTerms, terms }: Access,
  tiers: DynamicConfig['tiers'],
): readonly EndpointName[] {
  const ofHolder = offered(offered(endpoints, tiers[tier]?.endpoints), holderTerms?.endpoints);
  return offered(ofHolder, terms?.endpoints);
}

/** Whether the terms allow a model with this public name. */
export function allowsModel(name: string, { holderTerms, terms }: Access): boolean {
  return hasModel(holderTerms?.models, name) && hasModel(terms?.models, name);
}

function hasModel(models: Terms['models'], name: string): boolean {
  return models === undefined || models.some((each) => matchesModel(each, name));
}

/** Whether the terms allow some models only. */
export function isRestricted({ holderTerms, terms }: Access): boolean {
  return holderTerms?.models !== undefined || terms?.models !== undefined;
}

/** Rejects calls whose models the gateway does not see. @throws GatewayError endpoint_not_offered */
export function requireAllModels(access: Access, what: string): void {
  if (!isRestricted(access)) return;
  const message = `This key is restricted to some models, and the gateway cannot see those of ${what}.`;
  throw new GatewayError('endpoint_not_offered', message);
}

/** @param allowed a name, or a pattern with one `*`, as in `models` of the configuration */
export function matchesModel(allowed: string, name: string): boolean {
  const star = allowed.indexOf('*');
  if (star === -1) return allowed === name;
  const [prefix, suffix] = [allowed.slice(0, star), allowed.slice(star + 1)];
  return name.length >= prefix.length + suffix.length && name.startsWith(prefix) && name.endsWith(suffix);
}
