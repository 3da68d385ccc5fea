// All vendors with a recipe in examples/vendors.
import { anthropic } from './fixtures/anthropic.ts';
import { azure } from './fixtures/azure.ts';
import { bedrock } from './fixtures/bedrock.ts';
import { deepseek } from './fixtures/deepseek.ts';
import { groq } from './fixtures/groq.ts';
import { mistral } from './fixtures/mistral.ts';
import { ollama } from './fixtures/ollama.ts';
import { openai } from './fixtures/openai.ts';
import { openrouter } from './fixtures/openrouter.ts';
import { together } from './fixtures/together.ts';
import { vertex } from './fixtures/vertex.ts';
import { vllm } from './fixtures/vllm.ts';
import type { VendorFixture } from './vendor-fixture.ts';

export const VENDORS: readonly VendorFixture[] = [
  openai,
  azure,
  vertex,
  bedrock,
  anthropic,
  groq,
  mistral,
  deepseek,
  openrouter,
  vllm,
  ollama,
  together,
];
