// Collects reservations and releases, so that those of one event-loop turn for the same scopes are one call. A release that may wait
// goes with the next reservation of its scopes. It does not know Redis: its owner sends.
import type { Admission, Amounts } from './limiter.ts';
import type { PendingRelease } from './pending-releases.ts';
import { scriptScopesOf } from './reserve-script.ts';
import type { Scopes } from './scope.ts';

/** How long the release of a holder that is far from its limits waits for a reservation to go with. */
export const RELEASE_WAIT_MS = 100;

/** A reservation that waits for its decision. */
export interface Waiting {
  readonly id: string;
  readonly amounts: Amounts;
  readonly resolve: (admission: Admission) => void;
  readonly reject: (error: unknown) => void;
}

export interface CallBatch {
  readonly scopes: Scopes;
  /** They come first. */
  readonly releases: PendingRelease[];
  readonly reservations: Waiting[];
}

export class CallBatches {
  readonly #maxSize: number;
  readonly #maxWaitMs: number;
  readonly #send: (batch: CallBatch) => void;
  /** Of this turn. By the name of the scopes. */
  readonly #due = new Map<string, CallBatch>();
  /** Releases alone, which may wait. */
  readonly #held = new Map<string, CallBatch>();
  #turn: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param maxSize of a batch; a larger one is sent in parts
   * @param maxWaitMs how long a release waits, in milliseconds
   */
  constructor(maxSize: number, maxWaitMs: number, send: (batch: CallBatch) => void) {
    this.#maxSize = maxSize;
    this.#maxWaitMs = maxWaitMs;
    this.#send = send;
  }

  /** Rejects as the call does. */
  reserve(scopes: Scopes, id: string, amounts: Amounts): Promise<Admission> {
    return new Promise((resolve, reject) => {
      const { name } = scriptScopesOf(scopes);
      const batch = this.#dueFor(name, scopes);
      batch.reservations.push({ id, amounts, resolve, reject });
      this.#sendIfFull(name, batch);
    });
  }

  release(release: PendingRelease, mayWait: boolean): void {
    const { scopes } = release;
    const { name } = scriptScopesOf(scopes);
    const batch = mayWait && !this.#due.has(name) ? this.#heldFor(name, scopes) : this.#dueFor(name, scopes);
    batch.releases.push(release);
    this.#sendIfFull(name, batch);
  }

  /** Sends everything. */
  flush(): void {
    this.#sendHeld();
    this.#sendDue();
  }

  #dueFor(name: string, scopes: Scopes): CallBatch {
    const batch = this.#due.get(name) ?? this.#held.get(name) ?? { scopes, releases: [], reservations: [] };
    this.#held.delete(name);
    this.#due.set(name, batch);
    this.#turn ??= setImmediate(() => this.#sendDue());
    return batch;
  }

  #heldFor(name: string, scopes: Scopes): CallBatch {
    const batch = this.#held.get(name) ?? { scopes, releases: [], reservations: [] };
    this.#held.set(name, batch);
    this.#timer ??= setTimeout(() => this.#sendHeld(), this.#maxWaitMs);
    return batch;
  }

  #sendIfFull(name: string, batch: CallBatch): void {
    if (batch.releases.length + batch.reservations.length < this.#maxSize) return;
    this.#due.delete(name);
    this.#held.delete(name);
    this.#send(batch);
  }

  #sendDue(): void {
    clearImmediate(this.#turn);
    this.#turn = undefined;
    for (const batch of this.#due.values()) this.#send(batch);
    this.#due.clear();
  }

  #sendHeld(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const batch of this.#held.values()) this.#send(batch);
    this.#held.clear();
  }
}
