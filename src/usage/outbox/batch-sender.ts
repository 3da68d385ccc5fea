// Sends the batches of the outbox file to the store, one after the other, each until the store has it or has refused it for good.
import { withDeadline } from '../../deadline.ts';
import type { UsageStore } from '../../store/store.ts';
import type { OutboxDisk } from './outbox-disk.ts';
import type { OutboxBatch } from './outbox-file.ts';

export interface BatchSenderOptions {
  readonly store: Pick<UsageStore, 'addUsage'>;
  readonly disk: OutboxDisk;
  /** Milliseconds since 1970. */
  readonly clock: () => number;
  readonly onBatch: (outcome: 'written' | 'known' | 'failed') => void;
  readonly onStoreError: (error: unknown) => void;
  readonly onDiskError: (error: unknown) => void;
  /** The store refuses a batch. */
  readonly onRefused: (requests: number) => void;
}

/** The store promises 1.5 s. This is for one that does not keep it. */
const STORE_MS = 5000;
/** A batch is given up after so many attempts, when the store took as many others meanwhile. */
const MAX_FAILURES = 20;

export class BatchSender {
  readonly #options: BatchSenderOptions;
  /** Batches that the store did not take: how often, and how many it had taken when it first did not. */
  readonly #failures = new Map<string, { count: number; readonly written: number }>();
  #written = 0;
  #attempts = 0;
  #running: Promise<boolean> | undefined;
  /** The call to the store that is under way. Never rejects. */
  #storing: Promise<unknown> | undefined;
  #holds = 0;
  #resume: (() => void) | undefined;
  #isFailing = false;
  #isStopped = false;

  constructor(options: BatchSenderOptions) {
    this.#options = options;
  }

  /** How many batches the store has taken. */
  get written(): number {
    return this.#written;
  }

  /** Whether the store may have a batch though it did not say so. */
  isUncertain({ id, isInherited }: OutboxBatch): boolean {
    return isInherited || this.#failures.has(id);
  }

  /**
   * Sends what waits, until the store does not take something. Never rejects.
   * @returns whether nothing is left
   */
  drain(): Promise<boolean> {
    this.#running ??= this.#drain().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /**
   * Runs `work` without making the next batch wait.
   * @returns undefined where a batch was sent meanwhile
   */
  async glance<T>(work: () => Promise<T>): Promise<T | undefined> {
    const before = this.#attempts;
    if (this.#storing !== undefined) return undefined;
    const result = await work();
    return this.#attempts === before ? result : undefined;
  }

  /** Runs `work` while no batch is sent. Only readers that a batch disturbed call it, so it cannot stop the sender for long. */
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

  /** What waits stays where it is. */
  stop(): void {
    this.#isStopped = true;
  }

  async #drain(): Promise<boolean> {
    const { disk, onDiskError } = this.#options;
    try {
      for (
        let batch = await disk.callInTime('next');
        batch !== undefined;
        batch = await disk.callInTime('next')
      )
        if (this.#isStopped || !(await this.#send(batch))) return false;
      this.#setFailing(false);
      return true;
    } catch (error) {
      onDiskError(error);
      return false;
    }
  }

  /** @returns whether to go on with the next one */
  async #send({ id, rows }: OutboxBatch): Promise<boolean> {
    const { store, disk, clock, onBatch, onStoreError, onRefused } = this.#options;
    while (this.#holds > 0) await new Promise<void>((resolve) => (this.#resume = resolve));
    this.#attempts += 1;
    const failures = this.#failures.get(id) ?? { count: 0, written: this.#written };
    const added = store.addUsage({ id, rows, at: new Date(clock()).toISOString() });
    const late = () => new Error(`the store took more than ${STORE_MS} ms`);
    let removed: Promise<unknown> | undefined;
    const storing = withDeadline(added, STORE_MS, late).then(
      (outcome) => {
        onBatch(outcome);
        this.#written += 1;
        // Readers call the thread after this, so that they find the batch neither there nor, if that fails, certain.
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
    const isRefused = failures.count >= MAX_FAILURES && this.#written - failures.written >= MAX_FAILURES;
    if (removed === undefined && !isRefused) {
      this.#setFailing(true);
      // The next attempt is with another one, so that one that is never taken does not hold up the others.
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

  /** While the store takes nothing, the file is all there is: then each commit must survive a loss of power. */
  #setFailing(isFailing: boolean): void {
    if (this.#isFailing === isFailing) return;
    this.#isFailing = isFailing;
    this.#options.disk.call('setSync', isFailing).catch(() => {});
  }
}
