// Closes some connections behind their next responses, announced by `connection: close`, so that their clients open others. Which worker
// keeps how many is decided by connection-shares.ts.

/** A worker that has sent no response by then keeps its connections until the next order. */
const SHED_MS = 1_000;

interface Closable {
  /** @returns whether the current response announces the end of the connection now, and did not before */
  announceEnd(): boolean;
}

export class ConnectionShedding {
  readonly #leaving = new Set<Closable>();
  readonly #now: () => number;
  #keep = Number.POSITIVE_INFINITY;
  #until = 0;

  /** @param now monotonic milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Connections that close behind their response and are still open. */
  get leaving(): number {
    return this.#leaving.size;
  }

  /** Closes all but so many from now on, for a second. Replaces an earlier order. */
  order(keep: number): void {
    this.#keep = keep;
    this.#until = this.#now() + SHED_MS;
  }

  /**
   * Call for each request that begins.
   * @param open connections, with those that are leaving
   * @param isOverloaded other clients wait to be accepted: none is sent to wait behind them
   */
  onRequest(connection: Closable, open: number, isOverloaded: () => boolean): void {
    if (open - this.leaving <= this.#keep) return;
    if (isOverloaded() || this.#now() > this.#until) this.#keep = Number.POSITIVE_INFINITY;
    else if (connection.announceEnd()) this.#leaving.add(connection);
  }

  onClose(connection: Closable): void {
    this.#leaving.delete(connection);
  }
}
