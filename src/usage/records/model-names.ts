// Under which name a request is booked. With patterns, clients invent names: each would be a row of its own.
import { RecentMap } from '../../recent-map.ts';
import type { UsageRecord } from './request-usage.ts';

/** Names that an upstream accepted and that are remembered. */
const MAX_ACCEPTED = 10_000;
/** Names that may have rows although no upstream has accepted them. Beyond them, failures are booked under the pattern. */
const MAX_FAILED = 1000;

export class ModelNames {
  readonly #accepted = new RecentMap<string, true>(MAX_ACCEPTED);
  readonly #failed = new Set<string>();

  /** The name that was asked for, as long as it is known or few others are unknown; otherwise the entry of the configuration. */
  nameOf({ model, entry = model, outcome }: Pick<UsageRecord, 'model' | 'entry' | 'outcome'>): string {
    if (model === entry || this.#accepted.has(model)) return model;
    if (outcome === 'ok') this.#accepted.set(model, true);
    else if (!this.#failed.has(model)) {
      if (this.#failed.size >= MAX_FAILED) return entry;
      this.#failed.add(model);
    }
    return model;
  }
}
