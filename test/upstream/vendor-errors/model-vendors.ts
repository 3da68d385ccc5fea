// Recorded errors of OpenAI, Azure OpenAI, Anthropic, Google and Amazon Bedrock.
import type { VendorError } from './vendor-error.ts';

export const MODEL_VENDORS: readonly VendorError[] = [
  // https://github.com/chathub-dev/chathub/issues/126
  {
    vendor: 'OpenAI',
    reason: 'context_length_exceeded',
    status: 400,
    body: `{"error":{"message":"This model's maximum context length is 4097 tokens. However, your messages resulted in 4294 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`,
  },
  // https://github.com/vanderschaarlab/climb/issues/1
  {
    vendor: 'OpenAI',
    reason: 'rate_limited',
    status: 429,
    body: '{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 30601. The input or output tokens must be reduced in order to run successfully. Visit https://platform.openai.com/account/rate-limits to learn more.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}',
  },
  // https://github.com/OthersideAI/self-operating-computer/issues/29
  {
    vendor: 'OpenAI',
    reason: 'insufficient_quota',
    status: 429,
    body: '{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}',
  },
  // https://github.com/openai/openai-dotnet/issues/55
  {
    vendor: 'Azure OpenAI',
    reason: 'content_filter',
    status: 400,
    body: `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify your prompt and retry. To learn more about our content filtering policies please read our documentation: https://go.microsoft.com/fwlink/?linkid=2198766","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":false,"severity":"safe"},"self_harm":{"filtered":false,"severity":"safe"},"sexual":{"filtered":true,"severity":"high"},"violence":{"filtered":false,"severity":"safe"}}}}}`,
  },
  // https://github.com/pollinations/pollinations/issues/9707
  {
    vendor: 'Azure OpenAI',
    reason: 'content_filter',
    status: 403,
    body: '{"error":{"code":"Forbidden","message":"Your resource has been temporarily blocked because we detected behavior that may violate our content policy. For more details on Azure OpenAI service content policy, please visit https://aka.ms/aoaicodeofconduct"}}',
  },
  // https://github.com/vanderschaarlab/climb/issues/1
  {
    vendor: 'Azure OpenAI',
    reason: 'rate_limited',
    status: 429,
    headers: { 'retry-after': '86400' },
    body: `{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-08-01-preview have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 86400 seconds. Please go here: https://aka.ms/oai/quotaincrease if you would like to further increase the default rate limit."}}`,
  },
  // https://github.com/anthropics/claude-code/issues/7866
  {
    vendor: 'Anthropic',
    reason: 'context_length_exceeded',
    status: 400,
    body: '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 216327 tokens > 200000 maximum"},"request_id":"req_x"}',
  },
  // https://github.com/anthropics/claude-code/issues/58367
  {
    vendor: 'Anthropic',
    reason: 'content_filter',
    status: 400,
    body: '{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"},"request_id":"req_x"}',
  },
  // The same in a stream: https://github.com/anthropics/claude-code/issues/55789
  {
    vendor: 'Anthropic',
    reason: 'content_filter',
    status: 200,
    body: '{"type":"error","error":{"details":null,"type":"invalid_request_error","message":"Output blocked by content filtering policy"},"request_id":"req_x"}',
  },
  // https://github.com/anthropics/claude-code/issues/55789
  {
    vendor: 'Anthropic',
    reason: 'rate_limited',
    status: 429,
    body: `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account's rate limit. Please try again later."},"request_id":"req_x"}`,
  },
  // https://github.com/anthropics/claude-code/issues/4684
  {
    vendor: 'Anthropic',
    reason: 'insufficient_quota',
    status: 400,
    body: '{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}',
  },
  // https://github.com/ChatGPTNextWeb/NextChat/issues/4964: no other model takes it, or any would.
  {
    vendor: 'Anthropic',
    reason: undefined,
    status: 400,
    body: '{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 10000 > 4096, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20240620"}}',
  },
  // https://github.com/google-gemini/gemini-cli/issues/6678
  {
    vendor: 'Google',
    reason: 'context_length_exceeded',
    status: 400,
    body: '[{"error":{"code":400,"message":"The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).","errors":[{"message":"The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).","domain":"global","reason":"badRequest"}],"status":"INVALID_ARGUMENT"}}]',
  },
  // The same quoted by its SDK: https://github.com/google-gemini/gemini-cli/issues/4231
  {
    vendor: 'Google',
    reason: 'context_length_exceeded',
    status: 400,
    body: '{"error":{"message":"{\\n  \\"error\\": {\\n    \\"code\\": 400,\\n    \\"message\\": \\"The input token count (3475108) exceeds the maximum number of tokens allowed (1048576).\\",\\n    \\"status\\": \\"INVALID_ARGUMENT\\"\\n  }\\n}\\n","code":400,"status":"Bad Request"}}',
  },
  // https://github.com/n4ze3m/page-assist/issues/406
  {
    vendor: 'Google',
    reason: 'rate_limited',
    status: 429,
    body: '[{\n  "error": {\n    "code": 429,\n    "message": "Resource has been exhausted (e.g. check quota).",\n    "status": "RESOURCE_EXHAUSTED"\n  }\n}\n]',
  },
  // https://github.com/google-gemini/gemini-cli/issues/12750
  {
    vendor: 'Google',
    reason: 'rate_limited',
    status: 429,
    body: '[{"error":{"code":429,"message":"Resource exhausted. Please try again later. Please refer to https://cloud.google.com/vertex-ai/generative-ai/docs/error-code-429 for more details.","errors":[{"message":"Resource exhausted. Please try again later.","domain":"global","reason":"rateLimitExceeded"}],"status":"RESOURCE_EXHAUSTED"}}]',
  },
  // https://github.com/ffroliva/gflow-cli/issues/342
  {
    vendor: 'Google',
    reason: 'content_filter',
    status: 400,
    body: '{"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"PUBLIC_ERROR_UNSAFE_GENERATION"}]}}',
  },
  // https://github.com/aws-samples/amazon-bedrock-client-for-mac/issues/99
  {
    vendor: 'Amazon Bedrock',
    reason: 'rate_limited',
    status: 429,
    headers: {
      'x-amzn-errortype': 'ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/',
    },
    body: '{"message":"Too many tokens, please wait before trying again."}',
  },
  // https://github.com/RooCodeInc/Roo-Code/issues/3713
  {
    vendor: 'Amazon Bedrock',
    reason: 'context_length_exceeded',
    status: 400,
    headers: {
      'x-amzn-errortype': 'ValidationException:http://internal.amazon.com/coral/com.amazon.bedrock/',
    },
    body: '{"message":"The model returned the following errors: input length and `max_tokens` exceed context limit: 196395 + 64000 > 204698, decrease input length or `max_tokens` and try again"}',
  },
  // https://github.com/aws-samples/bedrock-chat/issues/95
  {
    vendor: 'Amazon Bedrock',
    reason: 'context_length_exceeded',
    status: 400,
    body: '{"message":"Input is too long for requested model."}',
  },
  // https://github.com/charmbracelet/crush/issues/946
  {
    vendor: 'Amazon Bedrock',
    reason: undefined,
    status: 400,
    body: '{"message":"The maximum tokens you requested exceeds the model limit of 32768"}',
  },
];
