// The rules of the limits, without counters: which limit rejects a request, and what is left of each. Both limiters use them;
// reserve.lua repeats the check whether a request fits, since only Redis can decide that atomically.
import { LIMITS, type Limit, type LimitName } from '../config/limit-table.ts';
import type { ActiveLimit, ActiveLimits } from './active-limits.ts';
import type { UtcDate } from './calendar.ts';
import type { Amounts, LimitState, LimitStates, Rejected, ScopeStates } from './limiter.ts';
import type { Scopes } from './scope.ts';

/** What the owner of one scope has used at one moment. */
export interface LimitUsage {
  readonly wallMs: number;
  readonly date: UtcDate;
  /** Until the minute window ends; 0 when none is open. */
  readonly windowLeftMs: number;
  /** In the order of the table. */
  readonly counts: readonly number[];
}

/** The wait where no window gives one: the end of a running request cannot be predicted. */
const UNKNOWN_WAIT_MS = 1000;
const NO_STATE: LimitState = { limit: 0, used: 0, remaining: 0, resetMs: 0 };

/** What decides in one scope. */
export interface ScopeCheck {
  /** What is used, without what the request itself has reserved. */
  readonly usage: LimitUsage;
  /** The request is counted and runs: only its amounts are checked. */
  readonly hasSlot: boolean;
  /** Where less than the limits may be used: how much, in the order of the table. */
  readonly caps?: readonly number[] | undefined;
}

/**
 * The limit with the longest wait of those that reject a request; undefined when it fits in all scopes.
 * @param checks one for each scope
 * @param states for the answer; called for a rejection
 */
export function rejectionOf(
  { list }: Scopes,
  checks: readonly ScopeCheck[],
  amounts: Amounts,
  states: () => ScopeStates,
): Rejected | undefined {
  let found: { readonly index: number; readonly limit: LimitName; readonly date: UtcDate } | undefined;
  let longest = -1;
  for (const [index, { usage, hasSlot, caps }] of checks.entries()) {
    for (const { limit, max } of list[index]?.active.list ?? []) {
      const amount = amountOf(limit, amounts, hasSlot);
      if (amount === undefined || countOf(usage, limit) + amount <= (caps?.[limit.index] ?? max)) continue;
      // A cap may reject where no window is open.
      const wait = amount > max ? Number.POSITIVE_INFINITY : waitOf(usage, limit) || UNKNOWN_WAIT_MS;
      if (wait <= longest) continue;
      found = { index, limit: limit.name, date: usage.date };
      longest = wait;
    }
  }
  if (found === undefined) return undefined;
  const { index, limit, date } = found;
  const isTooLarge = longest === Number.POSITIVE_INFINITY;
  const all = states();
  return {
    kind: 'refused',
    scope: list[index] ?? list[0],
    limit,
    reason: isTooLarge ? 'too_large' : 'spent',
    retryAfterMs: isTooLarge ? undefined : longest,
    state: all[index]?.of(limit) ?? NO_STATE,
    date,
    states: all,
  };
}

/** What a request adds to a limit. @returns undefined where the limit does not concern it: what costs nothing fits in any budget */
function amountOf({ counts }: Limit, { tokens, cost }: Amounts, hasSlot: boolean): number | undefined {
  switch (counts) {
    case 'tokens':
      return tokens;
    case 'cost':
      return cost === 0 ? undefined : cost;
    default:
      return hasSlot ? undefined : 1;
  }
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

/** What was used before a request, which is counted. */
export function usageBefore(usage: LimitUsage, { tokens, cost }: Amounts): LimitUsage {
  const counts = LIMITS.map(({ index, counts: kind }) => {
    const own = kind === 'tokens' ? tokens : kind === 'cost' ? cost : 1;
    return Math.max(0, (usage.counts[index] ?? 0) - own);
  });
  // The request may have opened the minute window.
  const isOpen = LIMITS.some(({ index, window }) => window === 'minute' && counts[index] !== 0);
  return { ...usage, windowLeftMs: isOpen ? usage.windowLeftMs : 0, counts };
}

/** Requests. */
const MIN_DISTANCE = 32;

/** Whether at least `MIN_DISTANCE` more requests of these amounts would use no more than half of any limit. */
export function isFarFromLimits({ list }: Scopes, usages: readonly LimitUsage[], amounts: Amounts): boolean {
  return list.every(({ active }, index) => {
    const usage = usages[index];
    if (usage === undefined) return false;
    return active.list.every(({ limit, max }) => {
      const amount = amountOf(limit, amounts, false) ?? 0;
      return countOf(usage, limit) + MIN_DISTANCE * amount <= max / 2;
    });
  });
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

/** The states that follow from what was used at one moment. */
export class UsageStates implements LimitStates {
  readonly active: ActiveLimits;
  readonly #read: () => LimitUsage;
  #known: LimitUsage | undefined;

  /** @param read called when somebody asks; returns what was used at that one moment */
  constructor(read: () => LimitUsage, active: ActiveLimits) {
    this.#read = read;
    this.active = active;
  }

  get #usage(): LimitUsage {
    this.#known ??= this.#read();
    return this.#known;
  }

  get date(): UtcDate {
    return this.#usage.date;
  }

  of(name: LimitName): LimitState | undefined {
    const found = this.active.list.find(({ limit }) => limit.name === name);
    return found && this.at(found);
  }

  at({ limit, max }: ActiveLimit): LimitState {
    const used = countOf(this.#usage, limit);
    return { limit: max, used, remaining: Math.max(0, max - used), resetMs: waitOf(this.#usage, limit) };
  }

  used({ limit }: ActiveLimit): number {
    return countOf(this.#usage, limit);
  }
}

function countOf({ counts }: LimitUsage, { index }: Limit): number {
  return counts[index] ?? 0;
}

/** Until the window ends; 0 where none is open. */
function waitOf({ wallMs, date, windowLeftMs }: LimitUsage, { window }: Limit): number {
  switch (window) {
    case 'minute':
      return windowLeftMs;
    case 'concurrent':
      return 0;
    default:
      return date.ends[window] - wallMs;
  }
}
