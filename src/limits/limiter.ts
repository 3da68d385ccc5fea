// The contract of limiters: what the ones in memory and in Redis take and return. It counts nothing.
import type { LimitName } from '../config/limit-table.ts';
import { MAX_RETRY_AFTER_MS } from '../errors.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import type { ActiveLimit, ActiveLimits } from './active-limits.ts';
import type { UtcDate } from './calendar.ts';
import type { Scope, Scopes } from './scope.ts';

/** Length of a minute window: one millisecond less, so that SDKs obey every wait. */
export const WINDOW_MS = MAX_RETRY_AFTER_MS;
/** How often the totals of a scope in use are compared with the store, in milliseconds. */
export const CHECK_MS = 60_000;

/** What a request uses, beside itself and a slot. */
export interface Amounts {
  /** Of input and output together. */
  readonly tokens: number;
  /** In billionths of the unit of the configured prices. */
  readonly cost: number;
}

export const NO_AMOUNTS: Amounts = { tokens: 0, cost: 0 };

/** How far one limit is used. No figure is negative. */
export interface LimitState {
  readonly limit: number;
  /** Above `limit` where requests used more than estimated, or the limit was lowered. */
  readonly used: number;
  readonly remaining: number;
  /** Milliseconds until the window ends and nothing of it is used; 0 for concurrency. */
  readonly resetMs: number;
}

/** How far the limits of one scope are used. A state is made when somebody asks for it: most requests need one or two. */
export interface LimitStates {
  readonly active: ActiveLimits;
  /** By which days and months are counted. */
  readonly date: UtcDate;
  /** @returns undefined where the scope has no such limit */
  of(name: LimitName): LimitState | undefined;
  /** @param limit one of `active` */
  at(limit: ActiveLimit): LimitState;
  /** The same without the rest. */
  used(limit: ActiveLimit): number;
}

/** In the order of the scopes. */
export type ScopeStates = readonly LimitStates[];

/** What one request holds in all of its scopes: itself, its estimate, and a slot. */
export interface Lease {
  /** What is reserved. */
  readonly amounts: Amounts;
  /**
   * Releases the slots and replaces the estimate by the real amounts. Called once, on every path; later calls do nothing.
   * Never throws.
   * @param amounts really used; may exceed the estimate
   */
  settle(amounts: Amounts): void;
}

/** A lease that passes its first settlement on. */
export abstract class SettledOnce implements Lease {
  #onSettled: ((amounts: Amounts) => void) | undefined;

  /** @param onSettled takes whole amounts */
  constructor(onSettled: (amounts: Amounts) => void) {
    this.#onSettled = onSettled;
  }

  abstract get amounts(): Amounts;

  get isSettled(): boolean {
    return this.#onSettled === undefined;
  }

  settle(amounts: Amounts): void {
    const onSettled = this.#onSettled;
    this.#onSettled = undefined;
    onSettled?.(wholeAmounts(amounts));
  }
}

export interface Admitted {
  readonly kind: 'admitted';
  readonly lease: Lease;
  /** This request is included. */
  readonly states: ScopeStates;
}

export interface Rejected {
  readonly kind: 'refused';
  /** Whose limit rejects. */
  readonly scope: Scope;
  /** Of the limits that reject, the one with the longest wait. */
  readonly limit: LimitName;
  /** `too_large`: the request alone exceeds the limit, so waiting never helps. */
  readonly reason: 'spent' | 'too_large';
  /**
   * Milliseconds until this limit may admit the same request: exact for windows; a guess for concurrency, since the end of
   * a request cannot be predicted. Undefined for `too_large`.
   */
  readonly retryAfterMs: number | undefined;
  /** Of the limit that rejects. */
  readonly state: LimitState;
  /** By which that limit is counted. */
  readonly date: UtcDate;
  readonly states: ScopeStates;
}

export type Admission = Admitted | Rejected;

export interface Limiter {
  /**
   * Reserves a request, its amounts and a slot in all scopes in one step, or nothing.
   * @param amounts the estimate
   * @param held an unsettled lease of the same limiter, slot and holder. Its request and slot are kept in the scopes that it has,
   *   `amounts` replace its amounts, and the returned lease replaces it. In other scopes the request is reserved as a new one. A
   *   rejection leaves the lease unchanged
   */
  admit(scopes: Scopes, amounts: Amounts, held?: Lease): Admission | Promise<Admission>;
  /**
   * Counts amounts of a running request now, in the present windows, and not when it ends. Never throws.
   * @param amounts really used
   */
  use(scopes: Scopes, amounts: Amounts): void;
  /** How far the limits are used. Reserves nothing. */
  peek(scopes: Scopes): ScopeStates | Promise<ScopeStates>;
  /** Delivers pending releases as far as possible at once, and stops timers. */
  close(): Promise<void>;
}

/** Reads totals from the usage store. */
export type ReadTotals = (scope: Scope) => Promise<HolderTotals>;

/** Reads totals for which no request waits, those of many scopes together; undefined for scopes that are not read together. */
export type CompareTotals = (scope: Scope) => Promise<HolderTotals> | undefined;

/** Why totals are read: a request needs them, or those that are counted are compared with them. */
export type TotalsReading = 'first' | 'compare';

/** Metrics of the limiters: limits-metrics.ts says what they mean. */
export interface LimitMetrics {
  readonly limitsDegraded: { set(value: number): void };
  readonly limitHolders: { set(value: number): void };
  readonly limitLeases: { add(by: number): void };
  readonly limitSeedFailures: { inc(labels: { reading: TotalsReading }): void };
  readonly limitSettlementsDropped: { inc(labels: { reason: ReleaseDropReason }): void };
}

/**
 * - `overflow`: Redis was unavailable and the queue was full.
 * - `unknown`: no reply came, so Redis may have applied it. A retry did not find the lease, or there is no lease to find it by.
 * - `error`: Redis rejected the command.
 * - `closed`: this process ended first.
 */
export type ReleaseDropReason = 'overflow' | 'unknown' | 'error' | 'closed';

/** Amounts that counters can take: whole, not negative, exact. */
export function wholeAmounts(amounts: Amounts): Amounts {
  const [tokens, cost] = [whole(amounts.tokens), whole(amounts.cost)];
  return tokens === amounts.tokens && cost === amounts.cost ? amounts : { tokens, cost };
}

function whole(amount: number): number {
  return amount > 0 ? Math.min(Math.ceil(amount), Number.MAX_SAFE_INTEGER) : 0;
}
