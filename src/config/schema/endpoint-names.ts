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

/** The endpoints of a model that a tier, a holder or a key allows; without a list, all. */
export function offered(
  model: readonly EndpointName[],
  allowed: readonly EndpointName[] | undefined,
): readonly EndpointName[] {
  return allowed === undefined ? model : model.filter((name) => allowed.includes(name));
}
