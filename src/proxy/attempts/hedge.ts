// The race of two attempts of one request (hedging). The second starts after too long a silence of the first. attempts.ts chooses
// its target and decides whether it may start; attempt.ts ends an attempt.
import type { Failure } from '../../upstream/error-outcome.ts';
import type { RaceHandle } from '../contracts/receiver.ts';

/** An attempt, as the race sees it. Called only after `enter` has returned. */
export interface Contender {
  /** This attempt now owns the client's response. */
  won(): void;
  /** Another attempt won. This one ends at once, before the winner sends a byte, and without blame. */
  lost(): void;
  /** The other attempt failed: perform what waited for the decision. */
  soleAttempt(): void;
}

export class Race {
  readonly #running: RaceParticipant[] = [];
  #winner: RaceParticipant | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** The number of running attempts. */
  get running(): number {
    return this.#running.length;
  }

  /** An attempt has won; no other may start. */
  get isDecided(): boolean {
    return this.#winner !== undefined;
  }

  /** Calls `begin` once after `ms` milliseconds, unless the race is decided or disarmed first. */
  arm(ms: number, begin: () => void): void {
    this.#timer = setTimeout(begin, ms);
  }

  disarm(): void {
    clearTimeout(this.#timer);
  }

  /** Adds an attempt, which calls `leave` when it ends. */
  enter(contender: Contender): RaceParticipant {
    const participant = new RaceParticipant(this, contender);
    this.#running.push(participant);
    return participant;
  }

  /** @returns whether this participant owns the client's response; all others have then ended */
  commit(participant: RaceParticipant): boolean {
    if (this.#winner !== undefined) return this.#winner === participant;
    this.#winner = participant;
    this.disarm();
    for (const other of this.#running.filter((each) => each !== participant)) other.contender.lost();
    participant.contender.won();
    return true;
  }

  leave(participant: RaceParticipant): void {
    const at = this.#running.indexOf(participant);
    if (at === -1) return;
    this.#running.splice(at, 1);
    if (this.#winner === undefined && this.#running.length === 1) this.#running[0]?.contender.soleAttempt();
  }
}

/** One attempt in a race. */
export class RaceParticipant implements RaceHandle {
  readonly contender: Contender;
  readonly #race: Race;

  constructor(race: Race, contender: Contender) {
    this.#race = race;
    this.contender = contender;
  }

  get isUndecided(): boolean {
    return !this.#race.isDecided && this.#race.running > 1;
  }

  commit(): boolean {
    return this.#race.commit(this);
  }

  leave(): void {
    this.#race.leave(this);
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
