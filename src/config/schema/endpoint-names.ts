// The endpoints that models and tiers may be offered at, by the names that stand in YAML. What each of them is on the wire
// is in proxy/endpoints/json-endpoints.ts.

/** In the order in which they are listed to people. */
export const ENDPOINTS = [
  'chat',
  'completions',
  'embeddings',
  'responses',
  'moderations',
  'images',
  'audio',
  'realtime',
] as const;

export type EndpointName = (typeof ENDPOINTS)[number];

/** What a tier offers of what a model offers. A tier that says nothing takes nothing away. */
export function offered(
  model: readonly EndpointName[],
  tier: readonly EndpointName[] | undefined,
): readonly EndpointName[] {
  return tier === undefined ? model : model.filter((name) => tier.includes(name));
}
