// When the limiter in memory reads the totals of a scope from the store: before a decision needs them, while they are provisional, and
// from time to time.
import type { Moment } from '../calendar.ts';
import type { InitialTotals } from '../initial-totals.ts';
import type { Scope, Scopes } from '../scope.ts';
import type { ScopeCounters } from './scope-counters.ts';

export class ScopeTotals {
  readonly #store: InitialTotals;
  readonly #checkMs: number;
  readonly #moment: () => Moment;

  /** @param checkMs how often the totals of a scope in use are compared with the store */
  constructor(store: InitialTotals, checkMs: number, moment: () => Moment) {
    this.#store = store;
    this.#checkMs = checkMs;
    this.#moment = moment;
  }

  /** The scopes whose totals are needed and not known. Those that are provisional are read beside. */
  missing({ list }: Scopes, all: readonly ScopeCounters[], { date }: Moment): Scope[] {
    return list.filter(({ active }, index) => {
      const counters = all[index];
      if (!active.needTotals || counters === undefined) return false;
      if (!counters.knowsTotals(date)) return true;
      if (counters.isProvisional) this.#learn(counters);
      return false;
    });
  }

  /** @param countersOf called after the read: the limiter may have forgotten the scope meanwhile */
  async read(scope: Scope, countersOf: () => ScopeCounters): Promise<void> {
    const totals = await this.#store.read(scope);
    const counters = countersOf();
    const { date } = this.#moment();
    // Another request may have been first.
    if (!counters.knowsTotals(date)) counters.setTotals(totals, date);
  }

  /** A scope that nothing limited for a while, and that was not counted then, lacks what the store knows. */
  compare({ list }: Scopes, all: readonly ScopeCounters[], { now, date }: Moment): void {
    for (const [index, counters] of all.entries()) {
      if (list[index]?.active.needTotals !== true || now < counters.checkAt) continue;
      counters.checkAt = now + this.#checkMs;
      if (this.#store.isBackingOff(counters.scope)) continue;
      void this.#store.read(counters.scope, 'compare').then((totals) => {
        // Totals of the day before must not count in the next one.
        if (totals !== undefined && this.#moment().date === date) counters.raiseTotals(totals, date);
      });
    }
  }

  /** Reads totals that were not available, while requests continue. */
  #learn(counters: ScopeCounters): void {
    if (this.#store.isBackingOff(counters.scope)) return;
    void this.#store.read(counters.scope).then((totals) => {
      if (totals !== undefined && counters.isProvisional) counters.setTotals(totals, this.#moment().date);
    });
  }
}
