// Sends the batches of the outbox file to the store one by one, each until the store accepts it or has rejected it for good.
import { withDeadline } from '../../deadline.ts';
import { singleFlight } from '../../single-flight.ts';
import type { CountingStore } from '../../store/store.ts';
import type { AddedUsage, UsageRow } from '../../store/usage-record.ts';
import type { OutboxDisk } from './outbox-disk.ts';
import type { OutboxBatch } from './outbox-file.ts';
import { readRows } from './outbox-row.ts';

interface BatchSenderOptions {
  readonly store: Pick<CountingStore, 'addUsage'>;
  readonly disk: OutboxDisk;
  /** Milliseconds since 1970. */
  readonly clock: () => number;
  readonly onBatch: (outcome: AddedUsage | 'failed') => void;
  readonly onStoreError: (error: unknown) => void;
  readonly onDiskError: (error: unknown) => void;
  /** The store rejects a batch for good. */
  readonly onRefused: (requests: number) => void;
}

/** The store's own deadline is 1.5 s; this one is for a store that misses it. */
const STORE_MS = 5000;
/** A batch is set aside after this many attempts, if the store accepted as many others meanwhile. */
const MAX_FAILURES = 20;

export class BatchSender {
  readonly #options: BatchSenderOptions;
  /** Failed batches: the number of attempts, and `written` at the first one. */
  readonly #failures = new Map<string, { count: number; readonly written: number }>();
  /** Number of batches that the store accepted. */
  written = 0;
  #attempts = 0;
  /** The current call to the store. Never rejects. */
  #storing: Promise<unknown> | undefined;
  #holds = 0;
  #resume: (() => void) | undefined;
  #isFailing = false;
  #isStopped = false;

  constructor(options: BatchSenderOptions) {
    this.#options = options;
  }

  /** Whether the store may have the batch without having confirmed it. */
  isUncertain({ id, isInherited }: Omit<OutboxBatch, 'rows'>): boolean {
    return isInherited || this.#failures.has(id);
  }

  /** Sends all batches, until the store does not accept one. Never rejects. @returns whether none is left */
  readonly drain = singleFlight(() => this.#drain());

  /** Runs `work` without delaying the next batch. @returns undefined if a batch was sent meanwhile */
  async glance<T>(work: () => Promise<T>): Promise<T | undefined> {
    const before = this.#attempts;
    if (this.#storing !== undefined) return undefined;
    const result = await work();
    return this.#attempts === before ? result : undefined;
  }

  /** Runs `work` while no batch is sent. Only for readers that a batch disturbed, so that it cannot delay the sender for long. */
  async hold<T>(work: () => Promise<T>): Promise<T> {
    this.#holds += 1;
    try {
      await this.#storing;
      return await work();
    } finally {
      this.#holds -= 1;
      if (this.#holds === 0) this.#resume?.();
    }
  }

  /** While the store accepts nothing, the file has the only copy: each commit must then survive a power failure. */
  setSync(): void {
    this.#options.disk.call('setSync', this.#isFailing).catch(() => {});
  }

  /** Sends no more batches. */
  stop(): void {
    this.#isStopped = true;
  }

  async #drain(): Promise<boolean> {
    const { disk, onDiskError } = this.#options;
    try {
      for (let next = await disk.callInTime('next'); next !== undefined; next = await disk.callInTime('next'))
        if (this.#isStopped || !(await this.#send(next.batch.id, readRows(next.cells)))) return false;
      this.#setFailing(false);
      return true;
    } catch (error) {
      onDiskError(error);
      return false;
    }
  }

  /** @returns whether to continue with the next one */
  async #send(id: string, rows: readonly UsageRow[]): Promise<boolean> {
    const { store, disk, clock, onBatch, onStoreError, onRefused } = this.#options;
    while (this.#holds > 0) await new Promise<void>((resolve) => (this.#resume = resolve));
    this.#attempts += 1;
    const failures = this.#failures.get(id) ?? { count: 0, written: this.written };
    const added = store.addUsage({ id, rows, at: new Date(clock()).toISOString() });
    const late = () => new Error(`the store took more than ${STORE_MS} ms`);
    let removed: Promise<unknown> | undefined;
    const storing = withDeadline(added, STORE_MS, late).then(
      (outcome) => {
        onBatch(outcome);
        this.written += 1;
        // Before the removal: a reader that still finds the batch in the file must treat it as uncertain.
        this.#failures.set(id, failures);
        removed = disk.callInTime('remove', id);
      },
      (error: unknown) => {
        onBatch('failed');
        onStoreError(error);
        failures.count += 1;
        this.#failures.set(id, failures);
      },
    );
    this.#storing = storing;
    await storing;
    this.#storing = undefined;
    const isRefused = failures.count >= MAX_FAILURES && this.written - failures.written >= MAX_FAILURES;
    if (removed === undefined && !isRefused) {
      this.#setFailing(true);
      // Others are next, so that a batch that the store never accepts does not delay them.
      await disk.callInTime('postpone', id);
      return false;
    }
    if (removed === undefined) {
      onRefused(rows.reduce((sum, { sums }) => sum + sums.requests, 0));
      removed = disk.callInTime('setAside', id);
    }
    await removed;
    this.#failures.delete(id);
    return true;
  }

  #setFailing(isFailing: boolean): void {
    if (this.#isFailing === isFailing) return;
    this.#isFailing = isFailing;
    this.setSync();
  }
}
