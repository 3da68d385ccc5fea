// What is still to be told to Redis while it is away: settlements of leases, and use that was counted without it. Bounded;
// what finds no place is counted as dropped. It knows nothing of Redis: who owns it sends.
import type { DropReason, LimitMetrics } from './limiter.ts';

/** Real use of one request, or of several of a holder that had no lease in Redis. */
export interface Settlement {
  readonly holder: string;
  /** The lease as Redis has it, or its id alone where no answer told the rest; empty: none. */
  readonly member: string;
  readonly tokens: number;
  /** Requests to count: 0 for a lease, since it has counted its own; -1 to take that back. */
  readonly requests: number;
  /** It may have been carried out, or there may be no such lease: then nothing is counted. */
  readonly mayBeDone: boolean;
}

export class Settlements {
  readonly #limit: number;
  readonly #metrics: Pick<LimitMetrics, 'limitSettlementsDropped'>;
  readonly #kept = new Map<string, Settlement>();

  constructor(limit: number, metrics: Pick<LimitMetrics, 'limitSettlementsDropped'>) {
    this.#limit = limit;
    this.#metrics = metrics;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Use without a lease is added up by holder, so that a long outage takes one place for each. */
  keep(settlement: Settlement): void {
    const isLease = settlement.member !== '';
    // Without a lease to be found by, it cannot be known whether it would be counted a second time.
    if (!isLease && settlement.mayBeDone) {
      this.drop('unknown');
      return;
    }
    const name = isLease ? `lease ${settlement.member}` : `use ${settlement.holder}`;
    const held = this.#kept.get(name);
    if (held === undefined && this.#kept.size >= this.#limit) {
      this.drop('overflow');
      return;
    }
    this.#kept.set(
      name,
      held === undefined || isLease
        ? settlement
        : {
            ...settlement,
            tokens: held.tokens + settlement.tokens,
            requests: held.requests + settlement.requests,
          },
    );
  }

  drop(reason: DropReason): void {
    this.#metrics.limitSettlementsDropped.inc({ reason });
  }

  /** Takes out the oldest, `count` at most. */
  take(count: number): Settlement[] {
    const taken: Settlement[] = [];
    for (const [name, settlement] of this.#kept) {
      if (taken.length === count) break;
      this.#kept.delete(name);
      taken.push(settlement);
    }
    return taken;
  }
}
