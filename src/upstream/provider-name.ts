// The provider of an upstream's API by OpenTelemetry's GenAI conventions (`gen_ai.provider.name`).
import type { UpstreamConfig } from '../config/schema/config-schema.ts';

/** Host name suffix → conventional name. The first match counts. */
const PROVIDERS: readonly (readonly [string, string])[] = [
  ['openai.azure.com', 'azure.ai.openai'],
  ['services.ai.azure.com', 'azure.ai.inference'],
  ['models.ai.azure.com', 'azure.ai.inference'],
  ['openai.com', 'openai'],
  ['anthropic.com', 'anthropic'],
  ['amazonaws.com', 'aws.bedrock'],
  ['generativelanguage.googleapis.com', 'gcp.gemini'],
  ['googleapis.com', 'gcp.vertex_ai'],
  ['cohere.com', 'cohere'],
  ['cohere.ai', 'cohere'],
  ['deepseek.com', 'deepseek'],
  ['groq.com', 'groq'],
  ['mistral.ai', 'mistral_ai'],
  ['moonshot.ai', 'moonshot_ai'],
  ['moonshot.cn', 'moonshot_ai'],
  ['perplexity.ai', 'perplexity'],
  ['x.ai', 'x_ai'],
];

/** @returns the conventional name of a known host, else the upstream's name; the conventions allow any */
export function providerOf(name: string, config: UpstreamConfig): string {
  if (config.kind === 'builtin') return 'tollgate';
  const { hostname } = new URL(config.base_url);
  const known = PROVIDERS.find(([end]) => hostname === end || hostname.endsWith(`.${end}`));
  return known?.[1] ?? name;
}

/** Host and port of an API root, as `server.address` and `server.port` of the conventions. */
export function serverOf(baseUrl: string): { readonly address: string; readonly port: number } {
  const { hostname, port, protocol } = new URL(baseUrl);
  const defaultPort = protocol === 'https:' ? 443 : 80;
  return { address: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? defaultPort : Number(port) };
}
