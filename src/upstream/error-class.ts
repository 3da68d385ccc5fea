// Classifies upstream error responses: whose fault it is and what follows, and why the request was rejected where vendors give the same
// reason in different shapes. The first table is the source for the code and docs/relay.md.
import type { FallbackReason } from '../config/schema/model-schema.ts';
import type { ErrorCode } from '../errors.ts';
import type { ErrorAnswer } from '../wire/error-answer.ts';

export interface AnswerClass {
  readonly fault: 'caller' | 'operator' | 'vendor';
  /** The responses in the class, for the docs. */
  readonly answers: string;
  readonly code: ErrorCode;
  /** The client receives the upstream's status and text; otherwise those of `code`. */
  readonly isShown: boolean;
  readonly triesNextTarget: boolean;
  /** Evidence about the target for its circuit breaker. A text that a prompt could cause is no evidence. */
  readonly vote: 'none' | 'failure' | 'limited';
  /** The alert in examples/prometheus/alerts.yaml that it triggers. Default: none. */
  readonly alert?: string;
}

const OPERATOR = {
  fault: 'operator',
  isShown: false,
  triesNextTarget: true,
  alert: 'TollgateUpstreamRefusesCredential',
} as const;
const CREDENTIAL = { ...OPERATOR, code: 'upstream_auth_error' } as const;
const ACCOUNT = { ...OPERATOR, code: 'upstream_account_error' } as const;
const REJECTED = { fault: 'caller', code: 'upstream_error', isShown: true, vote: 'none' } as const;
const VENDOR = { fault: 'vendor', code: 'upstream_error', isShown: true, triesNextTarget: true } as const;

export const ANSWER_CLASSES = {
  credential: {
    ...CREDENTIAL,
    answers: '401; 403 whose `code` or `type` names the credential or a permission',
    vote: 'failure',
  },
  credential_text: {
    ...CREDENTIAL,
    answers:
      '403 whose text names them; another 4xx whose text starts with such words ("API key not valid.")',
    vote: 'none',
  },
  account: {
    ...ACCOUNT,
    answers:
      '402; another 4xx whose `code` or `type` names the quota or the state of the account (`insufficient_quota`)',
    vote: 'failure',
  },
  account_text: {
    ...ACCOUNT,
    answers: 'another 4xx whose text starts with such words ("Your credit balance is too low")',
    vote: 'none',
  },
  prompt: { ...REJECTED, answers: '403 that names moderation or a policy', triesNextTarget: false },
  forbidden: { ...REJECTED, answers: '403 that names neither (a firewall, a proxy)', triesNextTarget: true },
  request: { ...REJECTED, answers: 'any other 4xx', triesNextTarget: false },
  limit: {
    ...VENDOR,
    answers: '429; 498 whose `code` is `capacity_exceeded` (Groq; SDKs do not repeat it)',
    vote: 'limited',
  },
  gateway: {
    ...VENDOR,
    answers:
      '424; 4xx whose `code` is `upstream_auth_error`, `upstream_account_error`, `upstream_tls` or `upstream_proxy_denied` (another gateway whose upstream failed)',
    vote: 'failure',
  },
  failure: { ...VENDOR, answers: '408, 5xx', vote: 'failure' },
  unusable: {
    ...VENDOR,
    answers: '2xx other than 200, 3xx, anything beyond 599',
    code: 'upstream_invalid_response',
    isShown: false,
    vote: 'failure',
  },
} as const satisfies Record<string, AnswerClass>;

export type AnswerClassName = keyof typeof ANSWER_CLASSES;

/** Words of `code` and `type` with which vendors mark a rejected prompt. */
const PROMPT_WORD =
  /moderat|content[_-]?(?:filter|policy)|policy[_-]?violation|safety|responsible_?ai|prompt[_-]?block/;
/** Vendors such as OpenRouter mark it in the message only. */
const PROMPT_TEXT =
  /\b(?:moderat\w*|flagged|content (?:filter|policy|management policy)|usage polic(?:y|ies)|safety)\b/i;
const ACCOUNT_WORD =
  /insufficient_(?:quota|balance|credits?|funds)|billing|payment_required|account_?(?:deactivated|suspended|disabled|overdue)|arrearage|budget_exceeded|exceeded_current_quota|access_terminated|organization_restricted|credits?_exhausted/;
/** Anchored at the start: further on, a message may quote the prompt. */
const ACCOUNT_TEXT =
  /^\W*(?:error:? )?(?:your (?:credit balance|account|subscription|plan|billing|organization (?:has been|is|must be)|team .{1,80}credits)|insufficient (?:balance|credits?|funds|quota)|you (?:exceeded your current quota|have (?:exceeded your|reached your|run out of|insufficient))|(?:(?:the|this) )?(?:account|organization|project|team|workspace) .{0,80}(?:not active|deactivated|suspended|disabled|restricted|blocked|delinquent)|payment required|billing )/i;
const CREDENTIAL_WORD =
  /api_?key|authenticat|unauthori[sz]ed|invalid_token|token_expired|permission|access_?denied|insufficient_scope|unsupported_country|request_forbidden/;
const CREDENTIAL_TEXT =
  /^\W*(?:error:? )?(?:(?:incorrect|invalid|expired|missing|unknown) (?:api[ _-]?key|authentication|access token|bearer|credentials?|x-api-key)|(?:the |your )?(?:api[ _-]?key|access token|credentials?) .{0,80}(?:not valid|invalid|expired|revoked|disabled|restricted)|authentication (?:failed|required)|unauthori[sz]ed|user location is not supported)/i;
/** For 403 only, whose status already means missing permission. */
const PERMISSION_TEXT =
  /\b(?:api[ _-]?key|credentials?|access token|permissions?|not (?:authorized|permitted|allowed) to|access to (?:the |this )?(?:model|project|resource|deployment|organization)|account|organization|project|subscription|tenant|workspace|country|region|territory|virtual network|ip address)\b/i;

/** Codes of a gateway like this one whose operator has to act. */
const GATEWAY_WORD = /^upstream_(?:auth_error|account_error|tls|proxy_denied)$/;

/** @param status of the response, or the status that an error object in a 200 names */
export function classify(status: number, { words, message }: ErrorAnswer): AnswerClassName {
  const isNamed = (pattern: RegExp) => words.some((word) => pattern.test(word));
  if (status < 400 || status > 599) return 'unusable';
  if (status >= 500 || status === 408) return 'failure';
  if (status === 424 || isNamed(GATEWAY_WORD)) return 'gateway';
  if (status === 401) return 'credential';
  if (status === 402) return 'account';
  if (status === 403) {
    if (isNamed(PROMPT_WORD)) return 'prompt';
    if (isNamed(ACCOUNT_WORD)) return 'account';
    if (isNamed(CREDENTIAL_WORD)) return 'credential';
    if (ACCOUNT_TEXT.test(message)) return 'account_text';
    if (PROMPT_TEXT.test(message)) return 'prompt';
    return PERMISSION_TEXT.test(message) || CREDENTIAL_TEXT.test(message) ? 'credential_text' : 'forbidden';
  }
  if (status === 498 && isNamed(/^capacity_exceeded$/)) return 'limit';
  if (isNamed(ACCOUNT_WORD)) return 'account';
  // The text does not separate Google's per-minute limit from an exhausted account.
  if (status === 429) return 'limit';
  if (ACCOUNT_TEXT.test(message)) return 'account_text';
  return CREDENTIAL_TEXT.test(message) ? 'credential_text' : 'request';
}

interface Refusal {
  readonly reason: FallbackReason;
  /** The classes of error-class.ts that say it. */
  readonly classes: readonly AnswerClassName[];
  /** Names in `code`, `type` and the members that other vendors have for them. */
  readonly names: readonly RegExp[];
  /** The beginning of the text: further on, a message may quote the prompt. */
  readonly texts: readonly RegExp[];
}

/** In this order: the first that matches counts. */
const REFUSALS: readonly Refusal[] = [
  {
    reason: 'insufficient_quota',
    classes: ['account', 'account_text'],
    names: [ACCOUNT_WORD],
    texts: [],
  },
  {
    reason: 'context_length_exceeded',
    classes: [],
    names: [
      /context_?(?:length|window|size)_?exceeded|exceed_context_size/,
      /model_context_window|token_limit_exceeded|request_too_large/,
    ],
    texts: [
      // OpenAI, Azure, DeepSeek, vLLM, OpenRouter; xAI.
      /^(?:max_tokens' .{0,60} is too large: .{0,20} )?this (?:model|endpoint)'s maximum (?:context|prompt) length/,
      /^your (?:input exceeds the context window|request exceeded model token limit)/,
      /^(?:input tokens exceed the configured limit|requested token count exceeds the model's maximum context)/,
      // Anthropic, also through Bedrock.
      /^prompt is too long|^input length and `?max_tokens`? exceed/,
      // Bedrock; Google.
      /^input is too long for requested model|^the input token count .{0,24}exceeds the maximum/,
      // Groq; Mistral; Together.
      /^please reduce the length of the messages|^prompt contains .{0,60} too large for model/,
      /^input validation error: `inputs` (?:tokens \+|must have less)|^the input \(\d+ tokens\) is longer than/,
      // vLLM; llama.cpp, Ollama, LM Studio.
      /^the (?:decoder )?prompt \(length \d+\) is longer than|^max_tokens must be at least 1, got -/,
      /^(?:the )?request (?:\(\d+ tokens\) )?exceeds the available context size|^prompt too long; exceeded/,
      /^the number of tokens to keep from the initial prompt is greater than/,
      // Poolside, MiniMax, DashScope.
      /^input length \d+ exceeds the maximum|^invalid params, context window exceeds|^range of input length should/,
    ],
  },
  {
    reason: 'content_filter',
    classes: ['prompt'],
    names: [
      PROMPT_WORD,
      /data_inspection_failed|unsafe_generation|prohibited_content|guardrail|^\w+_policy$/,
    ],
    texts: [
      // Azure; Anthropic; DeepSeek.
      /^the response was filtered due to|^output blocked by content filtering|^content exists risk/,
      // OpenAI; xAI; Alibaba.
      /^invalid prompt: your prompt was flagged|^your request was (?:rejected as a result of our safety|flagged)/,
      /^content violates usage guidelines|^(?:input|output) data may contain inappropriate/,
    ],
  },
  {
    reason: 'rate_limited',
    classes: ['limit'],
    names: [/rate_?limit|throttl|too_?many_?requests|resource_exhausted|slow_down|request_quota_exceeded/],
    texts: [
      /^(?:requests? )?rate limit|^you have been rate limited|^too many (?:requests|tokens, please wait)/,
      /^request too large for .{0,240} on tokens per min/,
    ],
  },
];

/** Texts of other gateways and SDKs that stand before the vendor's own. */
const PREFIX = /^\W*(?:(?:the model returned the following errors|error|\w{1,40}(?:error|exception)): )?/;

/**
 * @param named the class of the answer
 * @param type of an Amazon error, from its header
 * @returns undefined for any other reason
 */
export function refusalReason(
  { names, texts }: ErrorAnswer,
  named: AnswerClassName,
  type: unknown,
): FallbackReason | undefined {
  if (named === 'credential' || named === 'credential_text' || named === 'unusable') return undefined;
  const all = typeof type === 'string' ? [...names, type.toLowerCase()] : names;
  const begins = texts.map((text) => text.slice(0, 512).toLowerCase().replace(PREFIX, ''));
  const found =
    REFUSALS.find(({ classes }) => classes.includes(named)) ??
    REFUSALS.find((row) => row.names.some((pattern) => all.some((name) => pattern.test(name)))) ??
    REFUSALS.find((row) => row.texts.some((pattern) => begins.some((text) => pattern.test(text))));
  return found?.reason;
}

/** Whether the request itself is the reason: its size or its content, and nothing about the target. */
export function isAboutRequest(reason: FallbackReason | undefined): boolean {
  return reason === 'context_length_exceeded' || reason === 'content_filter';
}
