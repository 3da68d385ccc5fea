// The lease of a request that the limiter in memory has admitted, and the windows of each scope that hold it.
import type { Moment } from '../calendar.ts';
import { type Amounts, SettledOnce } from '../limiter.ts';
import type { ScopeCounters } from './scope-counters.ts';
import type { Windows } from './windows.ts';

export class MemoryLease extends SettledOnce {
  override amounts: Amounts;
  counters: readonly ScopeCounters[];
  /** Of each of the counters, those in which the request began, and those that hold the amounts. */
  #begun: readonly Windows[];
  #windows: readonly Windows[];

  constructor(
    amounts: Amounts,
    counters: readonly ScopeCounters[],
    windows: readonly Windows[],
    onSettled: (amounts: Amounts) => void,
  ) {
    super(onSettled);
    this.amounts = amounts;
    this.counters = counters;
    this.#begun = windows;
    this.#windows = windows;
  }

  windowsIn(counters: ScopeCounters): Windows | undefined {
    return this.#windows[this.counters.indexOf(counters)];
  }

  /** Replaces the amounts, and reserves the request in scopes that are new. */
  change(moment: Moment, all: readonly ScopeCounters[], amounts: Amounts): void {
    const held = this.amounts;
    const added = all.filter((counters) => !this.counters.includes(counters));
    this.#windows = this.#windows.map(
      (windows, index) => this.counters[index]?.change(moment, windows, held, amounts) ?? windows,
    );
    const reserved = added.map((counters) => counters.reserve(moment, amounts));
    this.counters = [...this.counters, ...added];
    this.#windows = [...this.#windows, ...reserved];
    this.#begun = [...this.#begun, ...reserved];
    this.amounts = amounts;
  }

  /** @param real counted in place of the amounts */
  release(moment: Moment, real: Amounts): void {
    const [begun, held, { amounts }] = [this.#begun, this.#windows, this];
    for (let index = 0; index < held.length; index += 1) {
      const [windows, first] = [held[index], begun[index]];
      if (windows === undefined || first === undefined) continue;
      if (windows === first && windows.isOpenAt(moment)) windows.settle(amounts, real);
      else this.counters[index]?.settle(moment, first, windows, amounts, real);
    }
  }
}
