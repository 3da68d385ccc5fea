// Whose API an upstream is, in the words of OpenTelemetry's conventions for GenAI (`gen_ai.provider.name`).
import type { UpstreamConfig } from '../config/schema/config-schema.ts';

/** End of a host name → the conventions' name. The first that fits counts. */
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

/** @returns the conventions' name where the host is known, else the upstream's own name: the conventions allow any */
export function providerOf(name: string, config: UpstreamConfig): string {
  if (config.kind === 'builtin') return 'tollgate';
  const { hostname } = new URL(config.base_url);
  const known = PROVIDERS.find(([end]) => hostname === end || hostname.endsWith(`.${end}`));
  return known?.[1] ?? name;
}

/** Host and port of an API root, as `server.address` and `server.port` of the conventions. */
export function serverOf(baseUrl: string): { readonly address: string; readonly port: number } {
  const { hostname, port, protocol } = new URL(baseUrl);
  const usual = protocol === 'https:' ? 443 : 80;
  return { address: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? usual : Number(port) };
}
