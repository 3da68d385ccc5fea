// The exchanges that are under way, to count them and to reach each of them. What is done with them is for the server.
import type { Exchange } from './exchange.ts';

/**
 * A set as an array in no order, in which each exchange knows its place. A `Set` would be made anew every few hundred
 * requests, and V8 lets each old table hold on to the exchanges in it until the next full garbage collection: at high rates
 * that is almost every request, with all that hangs on it.
 */
export class Exchanges implements Iterable<Exchange> {
  readonly #members: Exchange[] = [];

  get size(): number {
    return this.#members.length;
  }

  /** Once for each exchange. */
  add(exchange: Exchange): void {
    exchange.place = this.#members.push(exchange) - 1;
  }

  /** Without effect for one that is not in it. */
  delete(exchange: Exchange): void {
    const { place } = exchange;
    if (place === undefined) return;
    exchange.place = undefined;
    const last = this.#members.pop();
    if (last === undefined || last === exchange) return;
    this.#members[place] = last;
    last.place = place;
  }

  /** Over those that are in it now: who is told to end may leave meanwhile. */
  [Symbol.iterator](): Iterator<Exchange> {
    return this.#members.slice().values();
  }
}
