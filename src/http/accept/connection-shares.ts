// Even shares of the client connections of several workers: which worker has too many, and how many it keeps. The system decides which one
// accepts a connection; of a burst one may get nearly all, and they stay there. connection-shedding.ts closes the surplus.

/** Shares that differ by less are even: another connection costs its client a handshake. */
const TOLERANCE = 0.1;
/** Wait after an order, once for each order in a row: connections that send no request stay, and a worker that hangs takes none. */
const WAIT_MS = 200;
const MAX_WAIT_MS = 10_000;

/** A worker that accepts connections. */
export interface ConnectionHolder {
  /** Its open client connections, without those that it is about to close. */
  readonly connections: number;
}

export class ConnectionShares {
  /** Orders in a row. */
  #orders = 0;
  #nextAt = Number.NEGATIVE_INFINITY;

  /**
   * @param holders all that accept connections
   * @param now monotonic milliseconds
   * @returns those that have too many, and how many they should keep; undefined if there are none, or soon after the last ones
   */
  excess<Holder extends ConnectionHolder>(
    holders: readonly Holder[],
    now: number,
  ): { readonly above: readonly Holder[]; readonly keep: number } | undefined {
    const total = holders.reduce((sum, { connections }) => sum + connections, 0);
    const share = Math.ceil(total / holders.length);
    const max = share + Math.floor(share * TOLERANCE);
    const above = holders.filter(({ connections }) => connections > max);
    if (above.length === 0) {
      this.#orders = 0;
      return undefined;
    }
    if (now < this.#nextAt) return undefined;
    this.#orders += 1;
    this.#nextAt = now + Math.min(MAX_WAIT_MS, this.#orders * WAIT_MS);
    return { above, keep: share };
  }
}
