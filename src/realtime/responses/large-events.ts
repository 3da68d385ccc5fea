// Turns for large events of clients, which take memory before a response of theirs is limited: of each holder, a few arrive at once, over
// all its connections. The others are not read meanwhile.

import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';

const MAX_AT_ONCE = 4;

interface Turn {
  readonly onTurn: () => void;
}

export class LargeEvents {
  /** Of each holder, the turns that have begun, and behind them those that wait. */
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

/** The turn of the event that arrives on one connection. */
export class LargeEventTurn {
  readonly #enter: (onTurn: () => void) => () => void;
  readonly #onTurn: () => void;
  #leave: (() => void) | undefined;
  /** Nothing more of it may be read. */
  isHeld = false;

  /** @param enter as `LargeEvents.enter`, of the holder @param onTurn called when more may be read */
  constructor(enter: (onTurn: () => void) => () => void, onTurn: () => void) {
    this.#enter = enter;
    this.#onTurn = onTurn;
  }

  /** @param bytes of the event, as far as they are announced */
  watch(bytes: number): void {
    if (bytes <= LARGE_BODY) this.end();
    else if (this.#leave === undefined) {
      this.isHeld = true;
      this.#leave = this.#enter(() => {
        this.isHeld = false;
        this.#onTurn();
      });
    }
  }

  /** The event has arrived, or the connection has ended. */
  end(): void {
    this.#leave?.();
    this.#leave = undefined;
    this.isHeld = false;
  }
}
