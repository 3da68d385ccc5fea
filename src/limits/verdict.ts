// The rules of the limits, without any counter: which limit refuses a request, what is left of each.
// Both limiters use them; reserve.lua repeats the question whether it fits, since only Redis can decide that atomically.
import { dayLeftMs, monthLeftMs } from './calendar.ts';
import { LIMIT_NAMES, type LimitName, type LimitStates, type Rejected, type TierLimits } from './limiter.ts';

/** What is used at one moment. */
export interface Used {
  readonly wallMs: number;
  /** Until the minute window ends; 0 when none is open. */
  readonly windowLeftMs: number;
  readonly requests: number;
  readonly tokens: number;
  readonly dayRequests: number;
  readonly monthTokens: number;
  readonly running: number;
}

/** Nobody knows when a request ends, so this is when to ask again. */
const CONCURRENCY_WAIT_MS = 1000;

export interface RejectionOptions {
  /** The request is counted and runs: only its tokens are asked for. */
  readonly hasPlace?: boolean;
  /** Where less than the limits may be used: up to where. */
  readonly caps?: TierLimits;
}

/** Which limit refuses a request that does not fit, with the longest wait; undefined when it fits. */
export function rejectionOf(
  used: Used,
  limits: TierLimits,
  tokens: number,
  { hasPlace = false, caps = limits }: RejectionOptions = {},
): Omit<Rejected, 'states'> | undefined {
  let found: LimitName | undefined;
  let longest = -1;
  for (const name of LIMIT_NAMES) {
    const limit = limits[name];
    if (limit === undefined || (hasPlace && !isOfTokens(name))) continue;
    if (usedOf(used, name) + costOf(name, tokens) <= (caps[name] ?? limit)) continue;
    // A cap may refuse where no window is open.
    const wait =
      costOf(name, tokens) > limit ? Number.POSITIVE_INFINITY : waitOf(used, name) || CONCURRENCY_WAIT_MS;
    if (wait <= longest) continue;
    found = name;
    longest = wait;
  }
  if (found === undefined) return undefined;
  return longest === Number.POSITIVE_INFINITY
    ? { kind: 'refused', limit: found, reason: 'too_large', retryAfterMs: undefined }
    : { kind: 'refused', limit: found, reason: 'spent', retryAfterMs: longest };
}

/** Limits of which only a share may be used of what was left. @param used what was used before */
export function capsOf(used: Used, limits: TierLimits, share: (left: number) => number): TierLimits {
  const caps: { -readonly [Name in LimitName]?: number } = {};
  for (const name of LIMIT_NAMES) {
    const limit = limits[name];
    if (limit === undefined) continue;
    const before = usedOf(used, name);
    caps[name] = before + share(Math.max(0, limit - before));
  }
  return caps;
}

/** What two have counted apart from each other. */
export function totalTokensOf(one: Used, other: Used): Used {
  return {
    wallMs: one.wallMs,
    windowLeftMs: Math.max(one.windowLeftMs, other.windowLeftMs),
    requests: one.requests + other.requests,
    tokens: one.tokens + other.tokens,
    dayRequests: one.dayRequests + other.dayRequests,
    monthTokens: one.monthTokens + other.monthTokens,
    running: one.running + other.running,
  };
}

/** A state for each limit that there is. */
export function limitStatesOf(used: Used, limits: TierLimits): LimitStates {
  const states: { -readonly [Name in LimitName]?: LimitStates[Name] } = {};
  for (const name of LIMIT_NAMES) {
    const limit = limits[name];
    if (limit === undefined) continue;
    const value = usedOf(used, name);
    const resetMs = name === 'concurrency' ? 0 : waitOf(used, name);
    states[name] = { limit, used: value, remaining: Math.max(0, limit - value), resetMs };
  }
  return states;
}

function usedOf(used: Used, name: LimitName): number {
  switch (name) {
    case 'requests_per_minute':
      return used.requests;
    case 'tokens_per_minute':
      return used.tokens;
    case 'requests_per_day':
      return used.dayRequests;
    case 'tokens_per_month':
      return used.monthTokens;
    case 'concurrency':
      return used.running;
  }
}

function costOf(name: LimitName, tokens: number): number {
  return isOfTokens(name) ? tokens : 1;
}

function isOfTokens(name: LimitName): boolean {
  return name === 'tokens_per_minute' || name === 'tokens_per_month';
}

function waitOf(used: Used, name: LimitName): number {
  switch (name) {
    case 'requests_per_minute':
    case 'tokens_per_minute':
      return used.windowLeftMs;
    case 'requests_per_day':
      return dayLeftMs(used.wallMs);
    case 'tokens_per_month':
      return monthLeftMs(used.wallMs);
    case 'concurrency':
      return CONCURRENCY_WAIT_MS;
  }
}
