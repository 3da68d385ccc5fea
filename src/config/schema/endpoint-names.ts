// The endpoint names of the configuration, and the paths without one. proxy/endpoints/json-endpoints.ts has their paths.

/** In display order. */
export const ENDPOINTS = [
  'chat',
  'completions',
  'embeddings',
  'responses',
  'moderations',
  'rerank',
  'score',
  'tokenize',
  'images',
  'audio',
  'realtime',
  'messages',
] as const;

export type EndpointName = (typeof ENDPOINTS)[number];

/** The API that an upstream speaks. */
export const PROTOCOLS = ['openai', 'anthropic'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

/** The endpoints of each API. */
export const ENDPOINTS_OF: Readonly<Record<Protocol, readonly EndpointName[]>> = {
  openai: ENDPOINTS.filter((name) => name !== 'messages'),
  anthropic: ['messages'],
};

/** The endpoints of a model that a tier, a holder or a key allows; without a list, all. */
export function offered(
  model: readonly EndpointName[],
  allowed: readonly EndpointName[] | undefined,
): readonly EndpointName[] {
  return allowed === undefined ? model : model.filter((name) => allowed.includes(name));
}

/** The paths that can be passed through without a model. */
export const PASSTHROUGH_PATHS = [
  '/v1/files',
  '/v1/uploads',
  '/v1/batches',
  '/v1/vector_stores',
  '/v1/conversations',
  '/v1/containers',
  '/v1/skills',
  '/v1/videos',
] as const;
