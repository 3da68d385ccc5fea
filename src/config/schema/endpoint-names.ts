// The endpoint names of the configuration. proxy/endpoints/json-endpoints.ts has their paths.

/** In display order. */
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

/** The endpoints of a model that a tier allows; without a list, a tier allows all. */
export function offered(
  model: readonly EndpointName[],
  tier: readonly EndpointName[] | undefined,
): readonly EndpointName[] {
  return tier === undefined ? model : model.filter((name) => tier.includes(name));
}
