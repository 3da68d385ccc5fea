// The contract of limiters: what the ones in memory and in Redis take and return. It counts nothing.
import type { LimitName, TierLimits } from '../config/limit-table.ts';
import { MAX_RETRY_AFTER_MS } from '../errors.ts';
import type { HolderTotals } from '../store/usage-record.ts';

/** Length of a minute window: one millisecond less, so that SDKs obey every wait. */
export const WINDOW_MS = MAX_RETRY_AFTER_MS;

/** How far one limit is used. No figure is negative. */
export interface LimitState {
  readonly limit: number;
  /** Above `limit` where requests used more tokens than estimated, or the limit was lowered. */
  readonly used: number;
  readonly remaining: number;
  /** Milliseconds until the window ends and nothing of it is used; 0 for concurrency. */
  readonly resetMs: number;
}

/** A state for each limit that the tier has. */
export type LimitStates = { readonly [Name in LimitName]?: LimitState };

/** What one request holds: its estimated tokens, and a slot of its holder's concurrency. */
export interface Lease {
  /** Reserved tokens. */
  readonly tokens: number;
  /**
   * Releases the slot and replaces the estimate by the real tokens. Called once, on every path; later calls do nothing.
   * Never throws.
   * @param tokens really used; may exceed the estimate
   */
  settle(tokens: number): void;
}

/** A lease that passes its first settlement on. */
export abstract class SettledOnce implements Lease {
  #onSettled: ((tokens: number) => void) | undefined;

  /** @param onSettled takes whole tokens */
  constructor(onSettled: (tokens: number) => void) {
    this.#onSettled = onSettled;
  }

  abstract get tokens(): number;

  get isSettled(): boolean {
    return this.#onSettled === undefined;
  }

  settle(tokens: number): void {
    const onSettled = this.#onSettled;
    this.#onSettled = undefined;
    onSettled?.(wholeTokens(tokens));
  }
}

export interface Admitted {
  readonly kind: 'admitted';
  readonly lease: Lease;
  /** This request is included. */
  readonly states: LimitStates;
}

export interface Rejected {
  readonly kind: 'refused';
  /** Of the limits that reject, the one with the longest wait. */
  readonly limit: LimitName;
  /** `too_large`: the request alone exceeds the limit, so waiting never helps. */
  readonly reason: 'spent' | 'too_large';
  /**
   * Milliseconds until this limit may admit the same request: exact for windows; a guess for concurrency, since the end of
   * a request cannot be predicted. Undefined for `too_large`.
   */
  readonly retryAfterMs: number | undefined;
  readonly states: LimitStates;
}

export type Admission = Admitted | Rejected;

export interface Limiter {
  /**
   * Reserves a request, its tokens and a slot in one step, or nothing.
   * @param holder owner of the limits: never a key, so that rotation resets nothing
   * @param tokens estimate of input and output together
   * @param held an unsettled lease of the same limiter and holder. Its request and slot are kept, `tokens` replace its
   *   tokens, and the returned lease replaces it. A rejection leaves it unchanged
   */
  admit(holder: string, limits: TierLimits, tokens: number, held?: Lease): Admission | Promise<Admission>;
  /**
   * Counts tokens of a running request now, in the present windows, and not when it ends. Never throws.
   * @param tokens really used
   */
  use(holder: string, tokens: number): void;
  /** How far the limits are used. Reserves nothing. */
  peek(holder: string, limits: TierLimits): LimitStates | Promise<LimitStates>;
  /** Delivers pending releases as far as possible at once, and stops timers. */
  close(): Promise<void>;
}

/** Reads totals from the usage store. */
export type ReadTotals = (holder: string) => Promise<HolderTotals>;

/** Metrics of the limiters: limits-metrics.ts says what they mean. */
export interface LimitMetrics {
  readonly limitsDegraded: { set(value: number): void };
  readonly limitHolders: { set(value: number): void };
  readonly limitLeases: { add(by: number): void };
  readonly limitSeedFailures: { inc(): void };
  readonly limitSettlementsDropped: { inc(labels: { reason: ReleaseDropReason }): void };
}

/**
 * - `overflow`: Redis was unavailable and the queue was full.
 * - `unknown`: no reply came, so Redis may have applied it. A retry did not find the lease, or there is no lease to find it by.
 * - `error`: Redis rejected the command.
 * - `closed`: this process ended first.
 */
export type ReleaseDropReason = 'overflow' | 'unknown' | 'error' | 'closed';

/** A count of tokens that counters can take: whole, not negative, exact. */
export function wholeTokens(tokens: number): number {
  return tokens > 0 ? Math.min(Math.ceil(tokens), Number.MAX_SAFE_INTEGER) : 0;
}
