// All vendors with a recipe in examples/vendors, and all errors that are known of them.
import { MODEL_HOSTS } from '../upstream/vendor-errors/model-hosts.ts';
import { MODEL_VENDORS } from '../upstream/vendor-errors/model-vendors.ts';
import type { VendorError as RecordedError } from '../upstream/vendor-errors/vendor-error.ts';
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
import type { VendorError, VendorFixture } from './vendor-fixture.ts';

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

const KINDS = {
  context_length_exceeded: 'context length',
  content_filter: 'content filter',
  rate_limited: 'rate limit',
  insufficient_quota: 'quota',
} as const;

/** The longest time that a target is left alone, in seconds. */
const LONGEST = 59.999;

/** The errors of the fixture, and those recorded for the reasons of a fallback. Errors in a 200 are for the tests of that. */
export function errorsOf({ vendor, errors }: VendorFixture): readonly VendorError[] {
  const recorded = [...MODEL_VENDORS, ...MODEL_HOSTS].filter(
    (error) => error.vendor === vendor && error.status !== 200,
  );
  return [...errors, ...recorded.map(asFixture)];
}

function asFixture({ reason, status, headers, body }: RecordedError, index: number): VendorError {
  const named = Number(headers?.['retry-after'] ?? 0);
  return {
    kind: reason === undefined ? 'parameter' : KINDS[reason],
    source: `test/upstream/vendor-errors, ${index}`,
    status,
    ...(headers === undefined ? {} : { headers }),
    body,
    seen:
      reason === 'insufficient_quota' ? 'upstream_account_error' : isShaped(body) ? 'verbatim' : { text: '' },
    ...(named > 0 ? { retryAfter: String(named), coolDown: Math.min(named, LONGEST) } : {}),
  };
}

/** Whether it is an error object of OpenAI's shape. */
function isShaped(body: string): boolean {
  const value: { error?: { message?: unknown } } = JSON.parse(body);
  return typeof value.error?.message === 'string';
}
