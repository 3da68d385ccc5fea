// What a limiter is asked and what it answers: the types that the limiters in memory and in Redis share. It counts nothing.
import type { TierConfig } from '../config/schema/config-schema.ts';
import { MAX_RETRY_AFTER_MS } from '../errors.ts';

/** How long a window of the limits of a minute lasts: a millisecond less, so that every wait is one that SDKs obey. */
export const WINDOW_MS = MAX_RETRY_AFTER_MS;

export const LIMIT_NAMES = [
  'requests_per_minute',
  'tokens_per_minute',
  'requests_per_day',
  'tokens_per_month',
  'concurrency',
] as const;
export type LimitName = (typeof LIMIT_NAMES)[number];

/** The limits of a tier, as the configuration has them at this moment. One that is absent is no limit. */
export type TierLimits = Pick<TierConfig, LimitName>;

/** How far one limit is used. None of the figures is negative. */
export interface LimitState {
  readonly limit: number;
  /** Above `limit` where requests took more tokens than was estimated, or the limit was lowered. */
  readonly used: number;
  readonly remaining: number;
  /** Milliseconds until nothing of it is used: the end of the window, of the UTC day, of the UTC month; 0 for concurrency. */
  readonly resetMs: number;
}

/** A state for each limit that there is. */
export type LimitStates = { readonly [Name in LimitName]?: LimitState };

/** What one request holds: its estimate in tokens, and a place among those of its holder that run. */
export interface Lease {
  /** Tokens that are reserved. */
  readonly tokens: number;
  /**
   * Gives the place back and puts the real tokens where the estimate was. It is called once, on every path; later calls
   * do nothing. Never throws.
   * @param tokens what was really used; it may exceed the estimate, and is 0 where nothing was
   */
  settle(tokens: number): void;
}

export interface Admitted {
  readonly kind: 'admitted';
  readonly lease: Lease;
  /** With this request in them. */
  readonly states: LimitStates;
}

export interface Rejected {
  readonly kind: 'refused';
  /** Of those that refuse, the one with the longest wait. */
  readonly limit: LimitName;
  /** `too_large`: the request alone exceeds the whole limit, so that waiting never helps. */
  readonly reason: 'spent' | 'too_large';
  /**
   * Milliseconds until this limit may admit the same request: exact for a minute, a day and a month; a guess for concurrency,
   * since nobody knows when a request ends. Undefined for `too_large`.
   */
  readonly retryAfterMs: number | undefined;
  readonly states: LimitStates;
}

export type Admission = Admitted | Rejected;

export interface Limiter {
  /**
   * One step that reserves everything (a request, its tokens, a place) or nothing.
   * @param holder whose limits they are: never a key, so that rotating one resets nothing
   * @param tokens the estimate for input and output together
   * @param held an unsettled lease of the same limiter and holder. Its request and its place are kept, `tokens` replace its
   *   tokens, and the lease of the result replaces it. After a refusal it is as before
   */
  admit(holder: string, limits: TierLimits, tokens: number, held?: Lease): Admission | Promise<Admission>;
  /**
   * Counts tokens of a request that goes on: now, in the present minute, day and month, and not when it ends. Never throws.
   * @param tokens what was really used
   */
  use(holder: string, tokens: number): void;
  /** How far the limits are used. Reserves nothing. */
  peek(holder: string, limits: TierLimits): LimitStates | Promise<LimitStates>;
  /** Delivers what is still to be settled as far as that can be done at once, and ends timers. */
  close(): Promise<void>;
}

/** What a holder has used of the present UTC day and month. */
export interface HolderTotals {
  readonly dayRequests: number;
  readonly monthTokens: number;
}

/** Reads totals from where usage is kept for good. */
export type ReadTotals = (holder: string) => Promise<HolderTotals>;

/** Where limiters count. */
export interface LimitMetrics {
  /** 1 while the limits are those of this process alone, though Redis is configured. */
  readonly limitsDegraded: { set(value: number): void };
  /** Holders in the memory of this process. */
  readonly limitHolders: { set(value: number): void };
  /** Requests that were admitted here and are not settled. */
  readonly limitLeases: { add(by: number): void };
  /** Totals that the usage store did not give. */
  readonly limitSeedFailures: { inc(): void };
  /** Settlements that will not reach Redis, in which the lease expires instead. */
  readonly limitSettlementsDropped: { inc(labels: { reason: ReleaseDropReason }): void };
}

/**
 * - `overflow`: Redis was away and the queue was full.
 * - `unknown`: no answer came, so it may have been settled, and was not found when it was tried again; or it was use without
 *   a lease, which is not sent twice.
 * - `error`: Redis refused the command.
 * - `closed`: this process ended first.
 */
export type ReleaseDropReason = 'overflow' | 'unknown' | 'error' | 'closed';

/** A count of tokens that counters can take: whole, not negative, exact. */
export function wholeTokens(tokens: number): number {
  return tokens > 0 ? Math.min(Math.ceil(tokens), Number.MAX_SAFE_INTEGER) : 0;
}

/** Whether these limits need to know what was used before this process, or Redis, began to count. */
export function needTotals(limits: TierLimits): boolean {
  return limits.requests_per_day !== undefined || limits.tokens_per_month !== undefined;
}
