// What a request does in the words of OpenTelemetry's conventions for generative models (`gen_ai.operation.name`).
import type { EndpointName } from '../../config/schema/endpoint-names.ts';

/** Where the conventions have no word, the endpoint's own: they allow others. */
export const GENAI_OPERATIONS: Readonly<Record<EndpointName, string>> = {
  chat: 'chat',
  completions: 'text_completion',
  embeddings: 'embeddings',
  responses: 'chat',
  moderations: 'moderation',
  images: 'generate_content',
  audio: 'generate_content',
  realtime: 'realtime',
};
