// The set of running exchanges.
import type { Exchange } from './exchange.ts';

/**
 * An unordered array in which each exchange stores its index. A `Set` is rehashed every few hundred requests, and V8 lets each old
 * table retain its exchanges until the next full garbage collection: at high rates, almost every request with all that it references.
 */
export class Exchanges implements Iterable<Exchange> {
  readonly #members: Exchange[] = [];

  get size(): number {
    return this.#members.length;
  }

  /** Call once per exchange. */
  add(exchange: Exchange): void {
    exchange.index = this.#members.push(exchange) - 1;
  }

  /** No effect for an exchange that is not in the set. */
  delete(exchange: Exchange): void {
    const { index } = exchange;
    if (index === undefined) return;
    exchange.index = undefined;
    const last = this.#members.pop();
    if (last === undefined || last === exchange) return;
    this.#members[index] = last;
    last.index = index;
  }

  /** Iterates over a copy, since stopped exchanges may leave meanwhile. */
  [Symbol.iterator](): Iterator<Exchange> {
    return this.#members.slice().values();
  }
}
