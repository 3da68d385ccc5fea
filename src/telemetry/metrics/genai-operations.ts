// `gen_ai.operation.name` of each endpoint, by OpenTelemetry's GenAI conventions.
import type { EndpointName } from '../../config/schema/endpoint-names.ts';

/** The conventions allow other names; an operation without a standard one has the name of its endpoint. */
export const GENAI_OPERATIONS: Readonly<Record<EndpointName, string>> = {
  chat: 'chat',
  completions: 'text_completion',
  embeddings: 'embeddings',
  responses: 'chat',
  moderations: 'moderation',
  rerank: 'rerank',
  score: 'score',
  tokenize: 'tokenize',
  images: 'generate_content',
  audio: 'generate_content',
  realtime: 'realtime',
  messages: 'chat',
};
