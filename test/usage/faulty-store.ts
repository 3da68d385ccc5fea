// A store that fails as it is told: before it did anything, or after it did, or so late that nobody waits any more.
import { GatewayError } from '../../src/errors.ts';
import type { CountingStore } from '../../src/store/store.ts';
import type {
  AddedUsage,
  UsageBatch,
  UsageLine,
  UsageQuery,
  UsageScope,
} from '../../src/store/usage-record.ts';

export const FAULTS = ['none', 'refuses', 'forgets to answer', 'commits and fails', 'is late'] as const;
export type StoreFault = (typeof FAULTS)[number];

export class FaultyStore implements CountingStore {
  readonly #store: CountingStore;
  /** For the next calls, in order; then `rest`. */
  readonly next: StoreFault[] = [];
  rest: StoreFault = 'none';
  /** Batches that it never takes. */
  readonly refused = new Set<string>();
  readonly seen: UsageBatch[] = [];
  /** Writes that go on after their caller was told that they failed. */
  readonly late: Promise<unknown>[] = [];

  /** Called between a read and its answer. */
  onRead: (() => Promise<unknown>) | undefined;

  constructor(store: CountingStore) {
    this.#store = store;
  }

  async addUsage(batch: UsageBatch): Promise<AddedUsage> {
    this.seen.push(batch);
    if (this.refused.has(batch.id)) throw new GatewayError('store_unavailable');
    switch (this.next.shift() ?? this.rest) {
      case 'none':
        return this.#store.addUsage(batch);
      case 'refuses':
        throw new GatewayError('store_unavailable');
      case 'forgets to answer':
        await new Promise((done) => setTimeout(done, 20));
        throw new GatewayError('store_unavailable');
      case 'commits and fails':
        await this.#store.addUsage(batch);
        throw new GatewayError('store_unavailable');
      case 'is late':
        this.late.push(new Promise((done) => setTimeout(done, 5)).then(() => this.#store.addUsage(batch)));
        throw new GatewayError('store_unavailable');
    }
  }

  forgetBatches(before: string, limit: number): Promise<number> {
    return this.#store.forgetBatches(before, limit);
  }

  knownBatches(ids: readonly string[]): Promise<ReadonlySet<string>> {
    return this.#store.knownBatches(ids);
  }

  usageReport(query: UsageQuery): Promise<readonly UsageLine[]> {
    return this.#store.usageReport(query);
  }

  keysOf(lineage: string) {
    return this.#store.keysOf(lineage);
  }

  async usageOfHolders(ids: readonly string[], day: string) {
    const use = await this.#store.usageOfHolders(ids, day);
    await this.onRead?.();
    return use;
  }

  async usageOf(scope: UsageScope, day: string) {
    const use = await this.#store.usageOf(scope, day);
    await this.onRead?.();
    return use;
  }
}
