// What a client is told of its limits: OpenAI's headers, and the error of a refusal. Who decides is limits/.
import { GatewayError, MAX_RETRY_AFTER_MS } from '../../errors.ts';
import type { LimitName, LimitStates, Rejected } from '../../limits/limiter.ts';

interface Family {
  /** The limits that may stand in its headers. */
  readonly names: readonly LimitName[];
  readonly limit: string;
  readonly remaining: string;
  readonly reset: string;
}

/** The two families that OpenAI has headers for. */
const FAMILIES: readonly Family[] = [
  family('requests', ['requests_per_minute', 'requests_per_day']),
  family('tokens', ['tokens_per_minute', 'tokens_per_month']),
];

function family(name: string, names: readonly LimitName[]): Family {
  return {
    names,
    limit: `x-ratelimit-limit-${name}`,
    remaining: `x-ratelimit-remaining-${name}`,
    reset: `x-ratelimit-reset-${name}`,
  };
}

/**
 * `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` of the limit in each family that is nearest to refusing. A family
 * without limits has none.
 * @param headers that they are put into; default: new ones
 */
export function limitHeaders(
  states: LimitStates,
  headers: Record<string, string> = {},
): Record<string, string> {
  for (const each of FAMILIES) {
    let nearest: LimitStates[LimitName];
    for (const name of each.names) {
      const state = states[name];
      if (state === undefined) continue;
      if (nearest === undefined || state.remaining / state.limit < nearest.remaining / nearest.limit)
        nearest = state;
    }
    if (nearest !== undefined) tell(headers, each, nearest);
  }
  return headers;
}

function tell(
  headers: Record<string, string>,
  { limit, remaining, reset }: Family,
  state: NonNullable<LimitStates[LimitName]>,
): void {
  headers[limit] = String(state.limit);
  headers[remaining] = String(state.remaining);
  headers[reset] = goDuration(state.resetMs);
}

/** Headers of a refusal: of the limit that refused, and of the other family as it stands. */
export function rejectionHeaders({ limit, states }: Rejected): Record<string, string> {
  const state = states[limit];
  const headers = limitHeaders(states);
  const own = FAMILIES.find(({ names }) => names.includes(limit));
  if (state !== undefined && own !== undefined) tell(headers, own, state);
  return headers;
}

const WORDS: Record<LimitName, string> = {
  requests_per_minute: 'requests per minute',
  requests_per_day: 'requests per day',
  tokens_per_minute: 'tokens per minute',
  tokens_per_month: 'tokens per month',
  concurrency: 'requests at once',
};

/** @param tokens what was asked for, by the gateway's estimate */
export function rejectionError(
  { limit, reason, retryAfterMs, states }: Rejected,
  tokens: number,
): GatewayError {
  const most = states[limit]?.limit ?? 0;
  const type = limit.startsWith('tokens') ? ({ type: 'tokens' } as const) : {};
  if (reason === 'too_large') {
    const text = `This request may need about ${tokens} tokens, and the limit is ${most} ${WORDS[limit]}. Ask for a shorter answer, or send less.`;
    return new GatewayError('rate_limit_exceeded', text, { ...type, retry: 'no' });
  }
  if (limit === 'tokens_per_month') {
    return new GatewayError('insufficient_quota', `The limit of ${most} ${WORDS[limit]} is reached.`);
  }
  // Some SDKs obey `retry-after` without a cap, others not beyond a minute: send no longer wait.
  const helps = retryAfterMs !== undefined && Math.ceil(retryAfterMs) <= MAX_RETRY_AFTER_MS;
  return new GatewayError('rate_limit_exceeded', `The limit of ${most} ${WORDS[limit]} is reached.`, {
    ...type,
    ...(helps ? { retryAfterMs: Math.max(retryAfterMs, 1) } : { retry: 'no' as const }),
  });
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
