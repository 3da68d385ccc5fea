// Two attempts of one request at the same time, and which of them has the client. The second begins when the first has been
// silent for too long. Whom it asks, and whether it may, is for attempts.ts; how one is ended, for attempt.ts.
import type { Failure } from '../../upstream/error-outcome.ts';
import type { Rivalry } from '../contracts/receiver.ts';

/** An attempt, as the race sees it. None of these is called before `enter` has returned. */
export interface Contender {
  /** The client is its own from now on. */
  won(): void;
  /** Another one has the client: it ends at once, before that one has sent a byte, and nobody is to blame. */
  lost(): void;
  /** The other one has come to nothing: what waited for that may happen now. */
  soleAttempt(): void;
}

export class Race {
  readonly #running: RaceParticipant[] = [];
  #winner: RaceParticipant | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** Attempts that are under way. */
  get running(): number {
    return this.#running.length;
  }

  /** One of them has the client, and no other one is to begin. */
  get isDecided(): boolean {
    return this.#winner !== undefined;
  }

  /** Calls `begin` once after `ms` milliseconds, unless the race is decided or disarmed before. */
  arm(ms: number, begin: () => void): void {
    this.#timer = setTimeout(begin, ms);
  }

  disarm(): void {
    clearTimeout(this.#timer);
  }

  /** An attempt begins. It leaves when it is over, however it ended. */
  enter(contender: Contender): RaceParticipant {
    const participant = new RaceParticipant(this, contender);
    this.#running.push(participant);
    return participant;
  }

  /** @returns whether the client is this one's; then no other one runs any more */
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
export class RaceParticipant implements Rivalry {
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
 * What two failures come to: the answer that the client would have had if the second had been asked after the first. One
 * after which nobody is asked stays the last word.
 */
export function bothFailed(first: Failure, second: Failure): Failure {
  return {
    ...(first.tryNextTarget ? second : first),
    tryNextTarget: first.tryNextTarget && second.tryNextTarget,
    // One request was paid for beyond the first; if one of the two never reached its upstream, so is the next.
    skipsRetryBudget: first.skipsRetryBudget === true || second.skipsRetryBudget === true,
    mayHaveExecuted: first.mayHaveExecuted === true || second.mayHaveExecuted === true,
  };
}
