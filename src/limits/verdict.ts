// The rules of the limits, without counters: which limit rejects a request, and what is left of each. Both limiters use them;
// reserve.lua repeats the check whether a request fits, since only Redis can decide that atomically.
import { isTotal, LIMITS, type Limit, type LimitName, type TierLimits } from '../config/limit-table.ts';
import type { UtcDate } from './calendar.ts';
import type { LimitStates, Rejected } from './limiter.ts';

/** What a holder has used at one moment. */
export interface LimitUsage {
  readonly wallMs: number;
  readonly date: UtcDate;
  /** Until the minute window ends; 0 when none is open. */
  readonly windowLeftMs: number;
  /** In the order of the table. */
  readonly counts: readonly number[];
}

/** The end of a running request cannot be predicted: retry after this time. */
const CONCURRENCY_WAIT_MS = 1000;

/** The limits that a tier has. */
export interface ActiveLimits {
  readonly list: readonly ActiveLimit[];
  /** Needs to know what was used before this process, or Redis, started to count. */
  readonly needTotals: boolean;
  /** The lowest limit of tokens; infinite without one. */
  readonly maxTokens: number;
  /** In the order of the table; -1: no limit. */
  readonly maxima: readonly number[];
}

interface ActiveLimit {
  readonly limit: Limit;
  readonly max: number;
}

/** By the objects of the configuration, which stay the same until a reload. */
const active = new WeakMap<TierLimits, ActiveLimits>();

/** Resolves the limits of a tier once, instead of looking each of them up by name for every request. */
export function activeLimits(limits: TierLimits): ActiveLimits {
  const known = active.get(limits);
  if (known !== undefined) return known;
  const maxima = LIMITS.map(({ name }) => limits[name] ?? -1);
  const list = LIMITS.flatMap((limit) => {
    const max = limits[limit.name];
    return max === undefined ? [] : [{ limit, max }];
  });
  const needTotals = list.some(({ limit }) => isTotal(limit));
  const maxTokens = Math.min(...list.map(({ limit, max }) => (limit.counts === 'tokens' ? max : Infinity)));
  const made = { list, needTotals, maxTokens, maxima };
  active.set(limits, made);
  return made;
}

export interface RejectionOptions {
  /** The request is counted and runs: only its tokens are checked. */
  readonly hasSlot?: boolean;
  /** Where less than the limits may be used: how much, in the order of the table. */
  readonly caps?: readonly number[] | undefined;
}

/** The limit with the longest wait of those that reject a request; undefined when it fits. */
export function rejectionOf(
  usage: LimitUsage,
  { list }: ActiveLimits,
  tokens: number,
  { hasSlot = false, caps }: RejectionOptions = {},
): Omit<Rejected, 'states'> | undefined {
  let found: LimitName | undefined;
  let longest = -1;
  for (const { limit, max } of list) {
    const isOfTokens = limit.counts === 'tokens';
    if (hasSlot && !isOfTokens) continue;
    const cost = isOfTokens ? tokens : 1;
    if (countOf(usage, limit) + cost <= (caps?.[limit.index] ?? max)) continue;
    // A cap may reject where no window is open.
    const wait = cost > max ? Number.POSITIVE_INFINITY : waitOf(usage, limit) || CONCURRENCY_WAIT_MS;
    if (wait <= longest) continue;
    found = limit.name;
    longest = wait;
  }
  if (found === undefined) return undefined;
  return longest === Number.POSITIVE_INFINITY
    ? { kind: 'refused', limit: found, reason: 'too_large', retryAfterMs: undefined }
    : { kind: 'refused', limit: found, reason: 'spent', retryAfterMs: longest };
}

/** Limits of which only a share of the rest may be used. @param usage what was used before */
export function capsOf(
  usage: LimitUsage | undefined,
  { list }: ActiveLimits,
  share: (left: number) => number,
): number[] {
  const caps: number[] = LIMITS.map(() => 0);
  for (const { limit, max } of list) {
    const before = usage === undefined ? 0 : countOf(usage, limit);
    caps[limit.index] = before + share(Math.max(0, max - before));
  }
  return caps;
}

/** The sum of what two counted independently. */
export function sumOf(one: LimitUsage, other: LimitUsage): LimitUsage {
  return {
    wallMs: one.wallMs,
    date: one.date,
    windowLeftMs: Math.max(one.windowLeftMs, other.windowLeftMs),
    counts: one.counts.map((count, index) => count + (other.counts[index] ?? 0)),
  };
}

/** A state for each limit of the tier. */
export function limitStatesOf(usage: LimitUsage, { list }: ActiveLimits): LimitStates {
  const states: { -readonly [Name in LimitName]?: LimitStates[Name] } = {};
  for (const { limit, max } of list) {
    const used = countOf(usage, limit);
    const resetMs = limit.window === 'concurrent' ? 0 : waitOf(usage, limit);
    states[limit.name] = { limit: max, used, remaining: Math.max(0, max - used), resetMs };
  }
  return states;
}

function countOf({ counts }: LimitUsage, { index }: Limit): number {
  return counts[index] ?? 0;
}

function waitOf({ wallMs, date, windowLeftMs }: LimitUsage, { window }: Limit): number {
  switch (window) {
    case 'minute':
      return windowLeftMs;
    case 'concurrent':
      return CONCURRENCY_WAIT_MS;
    default:
      return date.ends[window] - wallMs;
  }
}
