// What Redis last said of one holder. It is where a replica goes on from while Redis does not answer.

import { dayNumberOf, monthOf } from './calendar.ts';
import type { Used } from './verdict.ts';

/** Where this replica stands among those that are there. */
export interface FleetPlace {
  /** From 0. */
  readonly index: number;
  readonly count: number;
}

export interface LastKnownOptions {
  readonly used: Used;
  /** Whether the figures of day and month are known to be complete. */
  readonly hasTotals: boolean;
  /** Monotonic milliseconds, of this process. */
  readonly now: number;
  /** Requests of this process that are among those that run. */
  readonly own: number;
  /** Requests of others are believed to run for this long, in milliseconds. */
  readonly leaseMs: number;
}

export class LastKnownCounters {
  readonly hasTotals: boolean;
  /** Monotonic milliseconds: the end of the window, in the past where none was open. */
  readonly windowEndsAt: number;
  readonly #requests: number;
  #tokens: number;
  readonly #day: number;
  readonly #dayRequests: number;
  readonly #month: number;
  #monthTokens: number;
  readonly #others: number;
  readonly #othersUntil: number;
  #own: number;

  constructor({ used, hasTotals, now, own, leaseMs }: LastKnownOptions) {
    this.hasTotals = hasTotals;
    this.windowEndsAt = now + used.windowLeftMs;
    this.#requests = used.requests;
    this.#tokens = used.tokens;
    this.#day = dayNumberOf(used.wallMs);
    this.#dayRequests = used.dayRequests;
    this.#month = monthOf(used.wallMs);
    this.#monthTokens = used.monthTokens;
    this.#others = Math.max(0, used.running - own);
    this.#othersUntil = now + leaseMs;
    this.#own = own;
  }

  /** A request of this process has ended, which Redis had admitted. */
  settled(reserved: number, tokens: number): void {
    this.#own = Math.max(0, this.#own - 1);
    this.#tokens = Math.max(0, this.#tokens - reserved + tokens);
    this.#monthTokens = Math.max(0, this.#monthTokens - reserved + tokens);
  }

  /** A request of this process that was admitted here has a lease in Redis since. What it took is counted here. */
  entered(): void {
    this.#own += 1;
  }

  /** What of it still counts. */
  at(now: number, wallMs: number): Used {
    const windowLeftMs = Math.max(0, this.windowEndsAt - now);
    const isOpen = windowLeftMs > 0;
    return {
      wallMs,
      windowLeftMs,
      requests: isOpen ? this.#requests : 0,
      tokens: isOpen ? this.#tokens : 0,
      dayRequests: this.hasTotals && dayNumberOf(wallMs) === this.#day ? this.#dayRequests : 0,
      monthTokens: this.hasTotals && monthOf(wallMs) === this.#month ? this.#monthTokens : 0,
      running: this.#own + (now < this.#othersUntil ? this.#others : 0),
    };
  }
}

/** How much of what is left one replica may use while it hears nothing of the others: all of them together use no more. */
export function shareOf(left: number, holder: string, { index, count }: FleetPlace): number {
  // What a division leaves over goes to other replicas for other holders.
  const rank = (index + hashOf(holder)) % count;
  return Math.floor((left + count - 1 - rank) / count);
}

/** FNV-1a. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}
