// The limits of one holder as a list of all its requests: every figure is a sum over it. The reference for the limiters.
import { dayNumberOf, monthLeftMs, monthOf } from '../../src/limits/calendar.ts';
import {
  LIMIT_NAMES,
  type LimitName,
  type LimitStates,
  type TierLimits,
  WINDOW_MS,
} from '../../src/limits/limiter.ts';
import { DAY } from './setting.ts';

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
  readonly prior: { readonly dayRequests: number; readonly monthTokens: number; readonly at: number };
  knowledge: Knowledge = { kind: 'nothing' };
  readonly #leaseMs: number;
  #window = Number.NEGATIVE_INFINITY;
  #order = 0;

  constructor(leaseMs: number, prior: Model['prior']) {
    this.#leaseMs = leaseMs;
    this.prior = prior;
  }

  states(now: number, limits: TierLimits): LimitStates {
    const used = this.used(now);
    const resets = { ...this.#resets(now), concurrency: 0 };
    const states: Record<string, unknown> = {};
    for (const name of LIMIT_NAMES) {
      const value = limits[name];
      if (value === undefined) continue;
      const remaining = Math.max(0, value - used[name]);
      states[name] = { limit: value, used: used[name], remaining, resetMs: resets[name] };
    }
    return states;
  }

  /** Which limit refuses, and how long it does; undefined when none does. @param held a request that runs already */
  refusal(
    now: number,
    limits: TierLimits,
    cost: number,
    held?: Request,
  ): [LimitName, number | undefined] | undefined {
    const used = this.used(now, held);
    const waits = { ...this.#resets(now), concurrency: 1000 };
    const all = LIMIT_NAMES.flatMap((name): [LimitName, number][] => {
      const isOfTokens = name.startsWith('tokens');
      if (held !== undefined && !isOfTokens) return [];
      const [value, amount] = [limits[name], isOfTokens ? cost : 1];
      if (value === undefined || used[name] + amount <= value) return [];
      return [[name, amount > value ? Number.POSITIVE_INFINITY : waits[name] || 1000]];
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
    const ofToday = this.requests.filter(
      (each) => this.#isCounted(each) && dayNumberOf(each.at) === dayNumberOf(now),
    );
    const ended = ofToday.filter(({ settled }) => settled !== undefined).length;
    const expired = ofToday.filter((each) => each.settled === undefined && !this.#isRunning(each, now));
    const kept = Math.max(0, ended + expired.length - this.stored(now).dayRequests);
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
    return {
      dayRequests:
        this.#priorRequests(now) + ended.filter(({ at }) => dayNumberOf(at) === dayNumberOf(now)).length,
      monthTokens: this.#priorTokens(now) + this.#tokensOf(ended, now),
    };
  }

  /** @param without a request whose reservation is left out */
  used(now: number, without?: Request): Record<LimitName, number> {
    const isOpen = now < this.#window + MINUTE;
    const inWindow = this.requests.filter(({ window }) => isOpen && window === this.#window);
    const counted = this.requests.filter((each) => this.#isCounted(each));
    const isAll = this.knowledge.kind === 'all';
    const reservedInWindow = this.requests
      .filter(({ reserved }) => isOpen && reserved.window === this.#window)
      .map((each) => each.settled?.tokens ?? (each === without ? 0 : this.#reserved(each, now)));
    return {
      requests_per_minute: inWindow.length,
      tokens_per_minute: sum(reservedInWindow),
      requests_per_day:
        (isAll ? this.#priorRequests(now) : 0) +
        counted.filter(({ at, isDropped }) => dayNumberOf(at) === dayNumberOf(now) && !isDropped).length,
      tokens_per_month:
        (isAll ? this.#priorTokens(now) : 0) +
        this.#tokensOf(
          counted.filter((each) => each !== without),
          now,
        ),
      concurrency: this.requests.filter((each) => this.#isRunning(each, now)).length,
    };
  }

  /** Whether day and month have it. Lost ones come back when they end. */
  #isCounted(request: Request): boolean {
    const { settled, isLost } = request;
    if (this.knowledge.kind === 'nothing') return false;
    if (settled === undefined) return !isLost;
    return this.knowledge.kind !== 'since' || settled.order > this.knowledge.order;
  }

  #tokensOf(requests: readonly Request[], now: number): number {
    return sum(
      requests.map((each) => {
        const at = each.settled?.at ?? each.reserved.at;
        return monthOf(at) === monthOf(now) ? (each.settled?.tokens ?? this.#reserved(each, now)) : 0;
      }),
    );
  }

  #priorRequests(now: number): number {
    return dayNumberOf(this.prior.at) === dayNumberOf(now) ? this.prior.dayRequests : 0;
  }

  #priorTokens(now: number): number {
    return monthOf(this.prior.at) === monthOf(now) ? this.prior.monthTokens : 0;
  }

  #openWindow(now: number): number {
    if (now >= this.#window + MINUTE) this.#window = now;
    return this.#window;
  }

  #resets(now: number): Record<Exclude<LimitName, 'concurrency'>, number> {
    const window = Math.max(0, this.#window + MINUTE - now);
    return {
      requests_per_minute: window,
      tokens_per_minute: window,
      requests_per_day: DAY - (now % DAY),
      tokens_per_month: monthLeftMs(now),
    };
  }

  #isRunning(request: Request, now: number): boolean {
    const { settled, isLost, reserved } = request;
    return settled === undefined && !isLost && now < reserved.at + this.#leaseMs;
  }

  #reserved(request: Request, now: number): number {
    return this.#isRunning(request, now) ? request.estimate : 0;
  }
}

function sum(figures: readonly number[]): number {
  return figures.reduce((total, figure) => total + figure, 0);
}
