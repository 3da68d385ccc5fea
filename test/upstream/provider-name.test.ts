// The provider and the server of an upstream, as traces name them.
import { expect, test } from 'vitest';
import { providerOf, serverOf } from '../../src/upstream/provider-name.ts';
import { load, withUpstream } from '../config/sample.ts';

test.each([
  ['https://mine.openai.azure.com/openai/v1', 'azure.ai.openai'],
  ['https://mine.services.ai.azure.com/models', 'azure.ai.inference'],
  ['https://mine.models.ai.azure.com/v1', 'azure.ai.inference'],
  ['https://api.openai.com/v1', 'openai'],
  ['https://api.anthropic.com/v1', 'anthropic'],
  ['https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1', 'aws.bedrock'],
  ['https://generativelanguage.googleapis.com/v1beta/openai', 'gcp.gemini'],
  ['https://europe-west1-aiplatform.googleapis.com/v1', 'gcp.vertex_ai'],
  ['https://api.cohere.com/v2', 'cohere'],
  ['https://api.cohere.ai/compatibility/v1', 'cohere'],
  ['https://api.deepseek.com', 'deepseek'],
  ['https://api.groq.com/openai/v1', 'groq'],
  ['https://api.mistral.ai/v1', 'mistral_ai'],
  ['https://api.moonshot.ai/v1', 'moonshot_ai'],
  ['https://api.moonshot.cn/v1', 'moonshot_ai'],
  ['https://api.perplexity.ai', 'perplexity'],
  ['https://api.x.ai/v1', 'x_ai'],
  ['https://x.ai/v1', 'x_ai'],
  ['https://notx.ai/v1', 'u'],
  ['https://openai.com.example.com/v1', 'u'],
])('the provider at %s is %s', (url, provider) => {
  const { u } = load(withUpstream(`base_url: ${url}\napi_key: k`)).dynamic.upstreams;
  expect(u && providerOf('u', u)).toBe(provider);
});

test.each([
  ['https://host.test/v1', { address: 'host.test', port: 443 }],
  ['http://host.test/v1', { address: 'host.test', port: 80 }],
  ['http://[::1]:8000/v1', { address: '::1', port: 8000 }],
])('the server of %s', (url, server) => {
  expect(serverOf(url)).toEqual(server);
});
