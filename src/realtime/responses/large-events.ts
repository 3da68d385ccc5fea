// Turns for large events of clients, which take memory before the concurrency limit of their response applies. A few large events of a
// holder are read at a time, over all its connections; the others wait unread.

import { startDeadline } from '../../deadline.ts';
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';

const MAX_AT_ONCE = 4;
/** As within a body. */
const SILENCE_MS = 30_000;

interface Turn {
  readonly onTurn: () => void;
}

export class LargeEvents {
  /** Turns by holder: first those that have begun, then those that wait. */
  readonly #holders = new Map<string, Turn[]>();

  /**
   * @param onTurn called once, perhaps at once: the event may be read
   * @returns ends the turn, also before it has begun; idempotent
   */
  enter(holder: string, onTurn: () => void): () => void {
    const turns = this.#holders.get(holder) ?? [];
    const turn = { onTurn };
    this.#holders.set(holder, turns);
    if (turns.push(turn) <= MAX_AT_ONCE) onTurn();
    return () => {
      const at = turns.indexOf(turn);
      if (at === -1) return;
      turns.splice(at, 1);
      if (turns.length === 0) this.#holders.delete(holder);
      // The first of those that wait takes its place.
      if (at < MAX_AT_ONCE) turns[MAX_AT_ONCE - 1]?.onTurn();
    };
  }
}

interface TurnEvents {
  /** More may be read. */
  onTurn(): void;
  /** Nothing of the event has arrived for 30 s. */
  onSilence(): void;
}

/** The turn of the event that arrives on one connection. */
export class LargeEventTurn {
  readonly #enter: (onTurn: () => void) => () => void;
  readonly #client: { isPaused(): boolean };
  readonly #events: TurnEvents;
  #leave: (() => void) | undefined;
  #stopSilence = () => {};
  /** The event waits for its turn: nothing more of it may be read. */
  isHeld = false;

  /** @param enter as `LargeEvents.enter`, of the holder @param client the connection */
  constructor(
    enter: (onTurn: () => void) => () => void,
    client: { isPaused(): boolean },
    events: TurnEvents,
  ) {
    this.#enter = enter;
    this.#client = client;
    this.#events = events;
  }

  /** @param bytes of the event, as far as its frames announce them */
  watch(bytes: number): void {
    if (bytes <= LARGE_BODY) {
      this.end();
      return;
    }
    this.#watchSilence();
    if (this.#leave !== undefined) return;
    this.isHeld = true;
    this.#leave = this.#enter(() => {
      this.isHeld = false;
      this.#events.onTurn();
    });
  }

  /** A client that stops sending must not keep others waiting. */
  #watchSilence(): void {
    this.#stopSilence();
    this.#stopSilence = startDeadline(SILENCE_MS, () => {
      // What is not read cannot arrive.
      if (this.#client.isPaused()) this.#watchSilence();
      else this.#events.onSilence();
    });
  }

  /** The event has arrived, or the connection has ended. */
  end(): void {
    this.#stopSilence();
    this.#leave?.();
    this.#leave = undefined;
    this.isHeld = false;
  }
}
