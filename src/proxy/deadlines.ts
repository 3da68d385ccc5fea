// The deadlines of one attempt: what it waits for now, and all of it together. It measures and reports; what a passed
// deadline means is for the attempt.
import type { UpstreamConfig } from '../config/schema.ts';

/**
 * What an attempt waits for: a connection, that a long body goes on, the head of the answer, its first output, the next
 * output; or, when it needs nothing more of the answer, the text of a refusal or what follows the last frame.
 */
export type Phase = 'connect' | 'upload' | 'headers' | 'first_token' | 'idle' | 'refusal' | 'end';

/** The text of a refusal is good to have, but its status is known already. */
const REFUSAL_MS = 5_000;

/** Enough for what follows the last frame: the second half of its line end, the final chunk. */
export const END_MS = 500;

export interface Timers {
  set(callback: () => void, ms: number): NodeJS.Timeout;
  clear(timer: NodeJS.Timeout | undefined): void;
}

const REAL: Timers = { set: setTimeout, clear: clearTimeout };

export class Deadlines {
  readonly #limits: UpstreamConfig['timeouts'];
  readonly #passed: (which: Phase | 'total') => void;
  readonly #timers: Timers;
  readonly #total: NodeJS.Timeout;
  #phase: Phase = 'connect';
  #timer: NodeJS.Timeout | undefined;
  #isHeld = false;
  #isOver = false;

  /**
   * Begins with `connect`, and with the total.
   * @param limits milliseconds
   * @param passed called once for a deadline that passed; the others go on
   */
  constructor(
    limits: UpstreamConfig['timeouts'],
    passed: (which: Phase | 'total') => void,
    timers: Timers = REAL,
  ) {
    this.#limits = limits;
    this.#passed = passed;
    this.#timers = timers;
    this.#total = timers.set(() => passed('total'), limits.total);
    this.#arm();
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** A long body is being sent, and it is the client that does not go on. */
  get awaitsClient(): boolean {
    return this.#phase === 'upload' && this.#isHeld;
  }

  /** Something else is waited for from now on, and its time begins, or will begin with `resume`. */
  enter(phase: Phase): void {
    if (this.#phase === 'upload') this.#isHeld = false;
    this.#phase = phase;
    this.#arm();
  }

  /** A long body is being sent. Only while the upstream takes no more of it is it the upstream that is waited for. */
  upload(isStalled: boolean): void {
    this.#phase = 'upload';
    if (isStalled) this.resume();
    else this.hold();
  }

  /** The present wait begins anew. */
  refresh(): void {
    this.#timer?.refresh();
  }

  /** The present wait does not count while the client is the one who makes everybody wait. The total goes on. */
  hold(): void {
    this.#isHeld = true;
    this.#timers.clear(this.#timer);
    this.#timer = undefined;
  }

  /** After `hold`: the present wait begins anew. */
  resume(): void {
    this.#isHeld = false;
    this.#arm();
  }

  /** Nothing is waited for any more. */
  stop(): void {
    this.#isOver = true;
    this.#timers.clear(this.#timer);
    this.#timers.clear(this.#total);
  }

  #arm(): void {
    if (this.#isOver || this.#isHeld) return;
    this.#timers.clear(this.#timer);
    this.#timer = this.#timers.set(this.#onTimer, this.#limit());
  }

  #limit(): number {
    switch (this.#phase) {
      case 'refusal':
        return REFUSAL_MS;
      case 'end':
        return END_MS;
      case 'upload':
        return this.#limits.idle;
      default:
        return this.#limits[this.#phase];
    }
  }

  readonly #onTimer = () => this.#passed(this.#phase);
}
