// The reference model of the limiters: one scope's limits as a list of all its requests, with every figure a sum over it.
import {
  eachLimit,
  eachTotal,
  LIMITS,
  type Limit,
  type LimitName,
  type TierLimits,
  type TotalLimit,
} from '../../src/config/limit-table.ts';
import { WINDOW_MS } from '../../src/limits/limiter.ts';
import type { HolderTotals } from '../../src/store/usage-record.ts';
import { COST } from './of-holder.ts';
import { DAY } from './setting.ts';
import type { StateRecord } from './states.ts';

export const MINUTE = WINDOW_MS;

export interface Request {
  readonly at: number;
  estimate: number;
  /** When the window began that counts it. */
  readonly window: number;
  /** The window that counts its tokens, and the time from which they are reserved. */
  reserved: { window: number; at: number };
  /** Redis was emptied while it ran. */
  isLost: boolean;
  /** Its lease had expired when the totals became known, and the store had not heard of it. */
  isDropped: boolean;
  settled: { readonly at: number; readonly tokens: number; readonly order: number } | undefined;
}

/**
 * What is known of the time before: `nothing` where nobody counts; `since`: counted from 0 by then, as the store did not say;
 * `all`: the store has said what was used before.
 */
type Knowledge = { readonly kind: 'nothing' | 'all' } | { readonly kind: 'since'; readonly order: number };

export class Model {
  readonly requests: Request[] = [];
  /** Used before the first of them. */
  readonly prior: HolderTotals & { readonly at: number };
  knowledge: Knowledge = { kind: 'nothing' };
  readonly #leaseMs: number;
  #window = Number.NEGATIVE_INFINITY;
  #order = 0;

  constructor(leaseMs: number, prior: Model['prior']) {
    this.#leaseMs = leaseMs;
    this.prior = prior;
  }

  states(now: number, limits: TierLimits): StateRecord {
    const used = this.used(now);
    const states: Record<string, unknown> = {};
    for (const { name, window } of LIMITS) {
      const value = limits[name];
      if (value === undefined) continue;
      const remaining = Math.max(0, value - used[name]);
      states[name] = { limit: value, used: used[name], remaining, resetMs: this.#reset(window, now) };
    }
    return states;
  }

  /** Which limit refuses, and how long it does; undefined when none does. @param held a request that runs already */
  refusal(
    now: number,
    limits: TierLimits,
    tokens: number,
    held?: Request,
  ): [LimitName, number | undefined] | undefined {
    const used = this.used(now, held);
    const all = LIMITS.flatMap(({ name, window, counts }): [LimitName, number][] => {
      const isOfTokens = counts === 'tokens' || counts === 'cost';
      if ((held !== undefined && !isOfTokens) || (counts === 'cost' && tokens === 0)) return [];
      const [value, amount] = [limits[name], isOfTokens ? tokens * rateOf(counts) : 1];
      if (value === undefined || used[name] + amount <= value) return [];
      return [[name, amount > value ? Number.POSITIVE_INFINITY : this.#reset(window, now) || 1000]];
    });
    const [first] = all.toSorted(([, one], [, other]) => (one === other ? 0 : other > one ? 1 : -1));
    return first === undefined
      ? undefined
      : [first[0], first[1] === Number.POSITIVE_INFINITY ? undefined : first[1]];
  }

  admit(now: number, estimate: number): Request {
    const window = this.#openWindow(now);
    const reserved = { window, at: now };
    const request: Request = {
      at: now,
      estimate,
      window,
      reserved,
      isLost: false,
      isDropped: false,
      settled: undefined,
    };
    this.requests.push(request);
    return request;
  }

  /** Other tokens for a request that runs. */
  change(now: number, request: Request, estimate: number): void {
    request.estimate = estimate;
    request.reserved = { window: this.#openWindow(now), at: now };
  }

  settle(now: number, request: Request, tokens: number): void {
    this.#order += 1;
    request.settled = { at: now, tokens, order: this.#order };
  }

  /** Nothing of the time before is known, and counting begins. */
  beginFromNothing(): void {
    this.knowledge = { kind: 'since', order: this.#order };
  }

  /** Redis was emptied. */
  flush(): void {
    this.#window = Number.NEGATIVE_INFINITY;
    this.knowledge = { kind: 'nothing' };
    for (const request of this.requests) {
      request.isDropped = false;
      if (request.settled === undefined) request.isLost = true;
    }
  }

  /** The store says what was used before. Whichever of the two figures is higher holds, and what runs is added. */
  learn(now: number): void {
    const ofToday = this.requests.filter((each) => this.#isCounted(each) && isWithin('day', each.at, now));
    const ended = ofToday.filter(({ settled }) => settled !== undefined).length;
    const expired = ofToday.filter((each) => each.settled === undefined && !this.#isRunning(each, now));
    const kept = Math.max(0, ended + expired.length - this.stored(now).requests_per_day);
    for (const request of expired.slice(kept)) request.isDropped = true;
    this.knowledge = { kind: 'all' };
  }

  /** It has its place, and what it has reserved. */
  isHeld(request: Request, now: number): boolean {
    return this.#isRunning(request, now);
  }

  /** What the store says: all that has ended. */
  stored(now: number) {
    const ended = this.requests.filter(({ settled }) => settled !== undefined);
    return eachTotal((limit) => this.#prior(limit, now) + this.#sum(limit, ended, now));
  }

  /** @param without a request whose reservation is left out */
  used(now: number, without?: Request): Record<LimitName, number> {
    const isOpen = now < this.#window + MINUTE;
    const inWindow = this.requests.filter(({ window }) => isOpen && window === this.#window);
    const counted = this.requests.filter((each) => this.#isCounted(each));
    const reservedInWindow = this.requests
      .filter(({ reserved }) => isOpen && reserved.window === this.#window)
      .map((each) => each.settled?.tokens ?? (each === without ? 0 : this.#reserved(each, now)));
    return eachLimit((limit) => {
      switch (limit.window) {
        case 'minute':
          return limit.counts === 'tokens' ? sum(reservedInWindow) : inWindow.length;
        case 'concurrent':
          return this.requests.filter((each) => this.#isRunning(each, now)).length;
        default: {
          const before = this.knowledge.kind === 'all' ? this.#prior(limit, now) : 0;
          const some = counted.filter((each) =>
            limit.counts === 'requests' ? !each.isDropped : each !== without,
          );
          return before + this.#sum(limit, some, now);
        }
      }
    });
  }

  /** Whether day and month have it. Lost ones come back when they end. */
  #isCounted(request: Request): boolean {
    const { settled, isLost } = request;
    if (this.knowledge.kind === 'nothing') return false;
    if (settled === undefined) return !isLost;
    return this.knowledge.kind !== 'since' || settled.order > this.knowledge.order;
  }

  #sum({ window, counts }: TotalLimit, requests: readonly Request[], now: number): number {
    if (counts === 'requests') return requests.filter(({ at }) => isWithin(window, at, now)).length;
    const current = requests.filter(({ settled, reserved }) =>
      isWithin(window, settled?.at ?? reserved.at, now),
    );
    return rateOf(counts) * sum(current.map((each) => each.settled?.tokens ?? this.#reserved(each, now)));
  }

  #prior({ name, window }: TotalLimit, now: number): number {
    return isWithin(window, this.prior.at, now) ? this.prior[name] : 0;
  }

  #openWindow(now: number): number {
    if (now >= this.#window + MINUTE) this.#window = now;
    return this.#window;
  }

  #reset(window: Limit['window'], now: number): number {
    const date = new Date(now);
    switch (window) {
      case 'minute':
        return Math.max(0, this.#window + MINUTE - now);
      case 'day':
        return DAY - (now % DAY);
      case 'month':
        return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1) - now;
      case 'concurrent':
        return 0;
    }
  }

  #isRunning(request: Request, now: number): boolean {
    const { settled, isLost, reserved } = request;
    return settled === undefined && !isLost && now < reserved.at + this.#leaseMs;
  }

  #reserved(request: Request, now: number): number {
    return this.#isRunning(request, now) ? request.estimate : 0;
  }
}

function rateOf(counted: Limit['counts']): number {
  return counted === 'cost' ? COST : 1;
}

function sum(figures: readonly number[]): number {
  return figures.reduce((total, figure) => total + figure, 0);
}

/** Whether two times are in one UTC day or month. */
function isWithin(window: TotalLimit['window'], one: number, other: number): boolean {
  const length = window === 'day' ? 10 : 7;
  return new Date(one).toISOString().slice(0, length) === new Date(other).toISOString().slice(0, length);
}
