// The limits as clients see them: the headers of OpenAI's API and of Anthropic's, and the error of a rejection. The decision is made in limits/.
import { eachLimit } from '../../config/limit-table.ts';
import { GatewayError, MAX_RETRY_AFTER_MS } from '../../errors.ts';
import type { ActiveLimit } from '../../limits/active-limits.ts';
import type { LimitState, LimitStates, Rejected, ScopeStates } from '../../limits/limiter.ts';
import type { ScopeKind } from '../../limits/scope.ts';

interface Family {
  /** Its headers describe one of the limits that count these. */
  readonly counts: 'requests' | 'tokens';
  readonly limit: string;
  readonly remaining: string;
  readonly reset: string;
  /** @param ms until the reset */
  readonly formatReset: (ms: number) => string;
}

/** The two families that both APIs have headers for. */
const KINDS = ['requests', 'tokens'] as const;
const FAMILIES: readonly Family[] = KINDS.map((name) => ({
  counts: name,
  limit: `x-ratelimit-limit-${name}`,
  remaining: `x-ratelimit-remaining-${name}`,
  reset: `x-ratelimit-reset-${name}`,
  formatReset: goDuration,
}));
const ANTHROPIC_FAMILIES: readonly Family[] = KINDS.map((name) => ({
  counts: name,
  limit: `anthropic-ratelimit-${name}-limit`,
  remaining: `anthropic-ratelimit-${name}-remaining`,
  reset: `anthropic-ratelimit-${name}-reset`,
  formatReset: resetTime,
}));

/**
 * `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` of the most restrictive limit of all scopes in each family. A family
 * without limits has none.
 * @param headers to add them to; default: new ones
 * @param isAnthropic whether the client reads those of Anthropic's API: `anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}`
 */
export function limitHeaders(
  states: ScopeStates,
  headers: Record<string, string> = {},
  isAnthropic = false,
): Record<string, string> {
  for (const family of isAnthropic ? ANTHROPIC_FAMILIES : FAMILIES) {
    let nearest: { readonly states: LimitStates; readonly limit: ActiveLimit } | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const ofScope of states) {
      for (const each of ofScope.active.byKind[family.counts]) {
        const share = Math.max(0, each.max - ofScope.used(each)) / each.max;
        if (share >= least) continue;
        least = share;
        nearest = { states: ofScope, limit: each };
      }
    }
    if (nearest !== undefined) setFamily(headers, family, nearest.states.at(nearest.limit));
  }
  return headers;
}

function setFamily(
  headers: Record<string, string>,
  { limit, remaining, reset, formatReset }: Family,
  state: LimitState,
): void {
  headers[limit] = String(state.limit);
  headers[remaining] = String(state.remaining);
  headers[reset] = formatReset(state.resetMs);
}

/** Headers of a rejection: of the limit that rejects, and of the most restrictive limit in the other family. */
export function rejectionHeaders(
  { limit, state, states }: Rejected,
  isAnthropic = false,
): Record<string, string> {
  const headers = limitHeaders(states, {}, isAnthropic);
  const own = (isAnthropic ? ANTHROPIC_FAMILIES : FAMILIES).find(
    ({ counts }) => counts === BY_NAME[limit].counts,
  );
  if (own !== undefined) setFamily(headers, own, state);
  return headers;
}

const BY_NAME = eachLimit((limit) => limit);

/** Whose limit rejects; the client need not be told that its own limits are its own. */
const OF_SCOPE: Readonly<Record<ScopeKind, string>> = {
  holder: '',
  key: ' of the key',
  team: ' of the team',
  model: ' of the model',
};

/** @param tokens requested, by the gateway's estimate */
export function rejectionError(
  { scope, limit, reason, retryAfterMs, state }: Rejected,
  tokens: number,
): GatewayError {
  const { rate, window, counts } = BY_NAME[limit];
  if (counts === 'cost') return budgetError(scope.kind, window === 'day' ? 'daily' : 'monthly', reason);
  const max = `${state.limit} ${rate}${OF_SCOPE[scope.kind]}`;
  const type = counts === 'tokens' ? ({ type: 'tokens' } as const) : {};
  if (reason === 'too_large') {
    const text = `This request may need about ${tokens} tokens, and the limit is ${max}. Ask for a shorter answer, or send less.`;
    return new GatewayError('rate_limit_exceeded', text, { ...type, retry: 'no' });
  }
  const text = `The limit of ${max} is reached.`;
  // Only another tier or a later month helps.
  if (window === 'month') return new GatewayError('insufficient_quota', text);
  // Some SDKs obey `retry-after` without a cap, others not beyond a minute: send no longer wait.
  const helps = retryAfterMs !== undefined && Math.ceil(retryAfterMs) <= MAX_RETRY_AFTER_MS;
  return new GatewayError('rate_limit_exceeded', text, {
    ...type,
    ...(helps ? { retryAfterMs: Math.max(retryAfterMs, 1) } : { retry: 'no' as const }),
  });
}

/** Neither a wait nor another attempt helps, so clients stop as they do for OpenAI's quota. */
function budgetError(kind: ScopeKind, period: 'daily' | 'monthly', reason: Rejected['reason']): GatewayError {
  const budget = `${period} budget of the ${kind}`;
  const text =
    reason === 'too_large'
      ? `This request may cost more than the whole ${budget}. Ask for a shorter answer, or send less.`
      : `The ${budget} is spent.`;
  return new GatewayError('insufficient_quota', text);
}

/** As Go writes a duration (`time.Duration.String`), which is what OpenAI sends: `2ms`, `8.64s`, `1m23s`, `23h59m45s`. */
export function goDuration(ms: number): string {
  const whole = Math.max(0, Math.ceil(ms));
  if (whole === 0) return '0s';
  if (whole < 1000) return `${whole}ms`;
  const hours = Math.floor(whole / 3_600_000);
  const minutes = Math.floor((whole % 3_600_000) / 60_000);
  const seconds = (whole % 60_000) / 1000;
  return `${hours > 0 ? `${hours}h` : ''}${hours > 0 || minutes > 0 ? `${minutes}m` : ''}${seconds}s`;
}

/** RFC 3339, in whole seconds. */
function resetTime(ms: number): string {
  const seconds = Math.ceil((Date.now() + Math.max(0, ms)) / 1000);
  return new Date(seconds * 1000).toISOString().replace('.000Z', 'Z');
}
