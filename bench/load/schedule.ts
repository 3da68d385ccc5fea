// When the requests of open load are due: the same moments in every run, so that everyone gets the same load. Who waits for them
// is metronome.ts, who sends is requests.ts; each has a schedule of its own.

export class Schedule {
  readonly #end: number;
  readonly #gap: number;
  #due: number;
  #state = 1;

  /**
   * @param began microseconds by the clock of `clockMicroseconds`
   * @param perSecond how many on average; the gaps are exponential, so that arrivals know nothing of each other
   * @param ms from its beginning to its end
   */
  constructor(began: number, perSecond: number, ms: number) {
    this.#due = began;
    this.#end = began + ms * 1000;
    this.#gap = 1e6 / perSecond;
  }

  /** The next moment, in microseconds of the clock; undefined behind the last one. */
  next(): number | undefined {
    this.#due += -Math.log(this.#random()) * this.#gap;
    return this.#due > this.#end ? undefined : this.#due;
  }

  /** A linear congruential generator, with the constants of Numerical Recipes. Above 0, at most 1. */
  #random(): number {
    this.#state = (Math.imul(this.#state, 1_664_525) + 1_013_904_223) >>> 0;
    return (this.#state + 1) / 2 ** 32;
  }
}
