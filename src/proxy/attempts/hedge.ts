// The race of two attempts of one request (hedging). The second starts after too long a silence of the first. attempts.ts chooses
// its target and decides whether it may start; attempt.ts ends an attempt.
import type { Failure } from '../../upstream/error-outcome.ts';

/** An attempt, as the race sees it. */
export interface Contender {
  /** This attempt now owns the client's response and the access log line. */
  sign(): void;
  /** Another attempt won. This one ends at once, before the winner sends a byte, and without blame. */
  lost(): void;
  /** The other attempt failed: perform what waited for the decision. */
  soleAttempt(): void;
}

export class Race {
  readonly #running: Contender[] = [];
  #winner: Contender | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** The number of running attempts. */
  get running(): number {
    return this.#running.length;
  }

  /** An attempt has won; no other may start. */
  get isDecided(): boolean {
    return this.#winner !== undefined;
  }

  /** No attempt has won, and more than one is running. */
  get isUndecided(): boolean {
    return this.#winner === undefined && this.#running.length > 1;
  }

  /** Calls `begin` once after `ms` milliseconds, unless the race is decided or disarmed first. */
  arm(ms: number, begin: () => void): void {
    this.#timer = setTimeout(begin, ms);
  }

  disarm(): void {
    clearTimeout(this.#timer);
  }

  /** Adds an attempt, which calls `leave` when it ends. */
  enter(contender: Contender): void {
    this.#running.push(contender);
  }

  /** @returns whether this attempt owns the client's response; all others have then ended */
  commit(contender: Contender): boolean {
    if (this.#winner !== undefined) return this.#winner === contender;
    this.#winner = contender;
    this.disarm();
    for (const other of this.#running.filter((each) => each !== contender)) other.lost();
    contender.sign();
    return true;
  }

  leave(contender: Contender): void {
    const at = this.#running.indexOf(contender);
    if (at === -1) return;
    this.#running.splice(at, 1);
    if (this.#winner === undefined && this.#running.length === 1) this.#running[0]?.soleAttempt();
  }
}

/**
 * Merges two failures into the one the client would have received from sequential attempts. A failure that forbids
 * further attempts takes precedence.
 */
export function mergeFailures(first: Failure, second: Failure): Failure {
  return {
    ...(first.tryNextTarget ? second : first),
    tryNextTarget: first.tryNextTarget && second.tryNextTarget,
    // One request beyond the first is paid for; if either never reached its upstream, the next is free.
    skipsRetryBudget: first.skipsRetryBudget === true || second.skipsRetryBudget === true,
    mayHaveExecuted: first.mayHaveExecuted === true || second.mayHaveExecuted === true,
  };
}
