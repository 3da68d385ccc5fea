// Recorded errors of Groq, Mistral, DeepSeek, Together, OpenRouter, and of servers of one's own: vLLM, Ollama, llama.cpp.
import type { VendorError } from './vendor-error.ts';

export const MODEL_HOSTS: readonly VendorError[] = [
  // https://github.com/HunorLaczko/ha-groq-cloud-api/issues/27
  {
    vendor: 'Groq',
    reason: 'rate_limited',
    status: 413,
    body: '{"error":{"message":"Request too large for model llama-3.1-8b-instant in organization org_x service tier on_demand on tokens per minute (TPM): Limit 6000, Requested 12328, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing","type":"tokens","code":"rate_limit_exceeded"}}',
  },
  // https://docs.mistral.ai/resources/known-limitations
  {
    vendor: 'Mistral',
    reason: 'context_length_exceeded',
    status: 400,
    body: '{"object":"error","message":"Prompt contains 300000 tokens, too large for model with 131072 maximum context length","type":"invalid_request_error","param":null,"code":"3051"}',
  },
  // As several public clients of the API recorded it in their tests
  {
    vendor: 'Mistral',
    reason: 'rate_limited',
    status: 429,
    body: '{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300","raw_status_code":429}',
  },
  // https://github.com/Aider-AI/aider/issues/4851
  {
    vendor: 'DeepSeek',
    reason: 'insufficient_quota',
    status: 402,
    body: '{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}',
  },
  // https://github.com/evalstate/fast-agent/issues/621
  {
    vendor: 'DeepSeek',
    reason: 'context_length_exceeded',
    status: 400,
    body: `{"error":{"message":"This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`,
  },
  // https://github.com/666ghj/BettaFish/issues/108
  {
    vendor: 'DeepSeek',
    reason: 'content_filter',
    status: 400,
    body: '{"error":{"message":"Content Exists Risk","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}',
  },
  // https://github.com/deepseek-ai/DeepSeek-V2/issues/30
  { vendor: 'DeepSeek', reason: 'content_filter', status: 400, body: '{"detail":"Content Exists Risk"}' },
  // https://github.com/expectedparrot/edsl/issues/2098
  {
    vendor: 'Together',
    reason: 'insufficient_quota',
    status: 402,
    body: '{"id":"x","error":{"message":"Credit limit exceeded. Please navigate to https://api.together.xyz/settings/billing to add credit or upgrade your plan.","type":"credit_limit","param":null,"code":null}}',
  },
  // https://github.com/togethercomputer/MoA/issues/27
  {
    vendor: 'Together',
    reason: 'rate_limited',
    status: 429,
    body: '{"error":{"message":"You have been rate limited. Your rate limit is 60 queries per minute. Please navigate to https://api.together.xyz/settings/billing to upgrade to a paid plan.","type":"credit_limit","param":null,"code":null}}',
  },
  // The text: https://github.com/stanford-crfm/helm/pull/2079
  {
    vendor: 'Together',
    reason: 'context_length_exceeded',
    status: 422,
    body: '{"error":{"message":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2019 `inputs` tokens and 30 `max_new_tokens`","type":"invalid_request_error","param":null,"code":null}}',
  },
  // https://github.com/refly-ai/refly/issues/1177
  {
    vendor: 'OpenRouter',
    reason: 'context_length_exceeded',
    status: 400,
    body: `{"error":{"message":"This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input). Please reduce the length of either one, or use the \\"middle-out\\" transform to compress your prompt automatically.","code":400}}`,
  },
  // The vendor's reason is in `raw`: https://github.com/open-webui/computer/issues/293
  {
    vendor: 'OpenRouter',
    reason: 'rate_limited',
    status: 429,
    body: '{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"z-ai/glm-5.3-flash is temporarily rate-limited upstream. Please retry shortly, or add your own key to accumulate your rate limits: ...","provider_name":"BaseTen","limit_source":"upstream_provider_shared_pool","remedy_hint":"Retry shortly, add your own provider key, or route to another provider"}}}',
  },
  // https://github.com/diegosouzapw/OmniRoute/issues/3044
  {
    vendor: 'OpenRouter',
    reason: undefined,
    status: 400,
    body: `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\\"error\\":{\\"type\\":\\"invalid_request_error\\",\\"code\\":\\"invalid_request_error\\",\\"message\\":\\"Model 'moonshotai/kimi-k2.6' supports at most 1 image per prompt.\\",\\"request_id\\":\\"req_x\\"}}","provider_name":"Crucible","is_byok":false}},"user_id":"user_x"}`,
  },
  // https://github.com/astrio-labs/forall/issues/76
  {
    vendor: 'OpenRouter',
    reason: 'insufficient_quota',
    status: 402,
    body: '{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 64000 tokens, but can only afford 2666. To increase, visit https://openrouter.ai/settings/credits and upgrade to a paid account","code":402,"metadata":{"provider_name":null}},"user_id":"user_x"}',
  },
  // In a 200: https://github.com/vercel/ai/issues/2698
  {
    vendor: 'OpenRouter',
    reason: 'rate_limited',
    status: 200,
    body: '{"error":{"message":"{\\n  \\"error\\": {\\n    \\"code\\": 429,\\n    \\"message\\": \\"Resource has been exhausted (e.g. check quota).\\",\\n    \\"status\\": \\"RESOURCE_EXHAUSTED\\"\\n  }\\n}\\n","code":429}}',
  },
  // Moderation, and an event of a stream: https://openrouter.ai/docs/api/reference/errors-and-debugging
  {
    vendor: 'OpenRouter',
    reason: 'content_filter',
    status: 403,
    body: '{"error":{"code":403,"message":"The model requires moderation on OpenInference. Your input was flagged for \\"violence\\".","metadata":{"reasons":["violence"],"flagged_input":"...","provider_name":"OpenInference","model_slug":"x/y"}}}',
  },
  {
    vendor: 'OpenRouter',
    reason: 'rate_limited',
    status: 200,
    body: '{"id":"gen-x","object":"chat.completion.chunk","created":1,"model":"x/y","provider":"z","error":{"code":429,"message":"Rate limit exceeded","metadata":{"error_type":"rate_limit_exceeded"}},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}',
  },
  // https://github.com/elotl/GenAI-infra-stack/issues/62
  {
    vendor: 'vLLM',
    reason: 'context_length_exceeded',
    status: 400,
    body: `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 6379 tokens (6029 in the messages, 350 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}`,
  },
  // https://github.com/vllm-project/vllm/issues/4667
  {
    vendor: 'vLLM',
    reason: 'context_length_exceeded',
    status: 400,
    body: '{"object":"error","message":"max_tokens must be at least 1, got -186.","type":"BadRequestError","param":null,"code":400}',
  },
  // https://github.com/ggml-org/llama.cpp/pull/15780
  {
    vendor: 'llama.cpp',
    reason: 'context_length_exceeded',
    status: 500,
    body: '{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}',
  },
  // https://github.com/oobabooga/textgen/issues/7257, with status 200
  {
    vendor: 'llama.cpp',
    reason: 'context_length_exceeded',
    status: 200,
    body: '{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}',
  },
  // Quotes llama.cpp: https://github.com/microsoft/vscode/issues/320558
  {
    vendor: 'Ollama',
    reason: 'context_length_exceeded',
    status: 400,
    body: '{"error":{"message":"{\\"error\\":{\\"code\\":400,\\"message\\":\\"request (26528 tokens) exceeds the available context size (16384 tokens), try increasing it\\",\\"type\\":\\"exceed_context_size_error\\",\\"n_prompt_tokens\\":26528,\\"n_ctx\\":16384}}","type":"invalid_request_error","param":null,"code":null}}',
  },
];
