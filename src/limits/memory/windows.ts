// The windows of one scope that count at one time, and what they have counted. Two numbers and one comparison decide for most requests
// that they are still those; scope-counters.ts begins new ones.
import { LIMITS, type Limit } from '../../config/limit-table.ts';
import type { Moment, UtcDate } from '../calendar.ts';
import type { Amounts } from '../limiter.ts';

/** In place of what counted before: other windows have followed, or the scope is forgotten. */
const OVER: readonly number[] = [];

/** What windows count since they began, in the order of `addTo`. */
export const COUNTED: readonly Limit['counts'][] = ['requests', 'tokens', 'cost', 'running'];

/** By the index in the table, the number of `Windows.addTo` that it counts. */
const KINDS = LIMITS.map(({ counts }) => COUNTED.indexOf(counts));

export class Windows {
  /** Of the minute, in monotonic milliseconds; 0 while none is open. */
  end: number;
  /** The day and the month. */
  readonly date: UtcDate;
  /**
   * In the order of the table, when a window began or a count was corrected last: then it is another array. Usages share it. Requests
   * that run since earlier windows are in it.
   */
  before: readonly number[];
  // Counted since then, in all windows alike, with what requests hold.
  requests = 0;
  tokens = 0;
  cost = 0;
  /** Running requests that began in these windows. */
  running = 0;
  // What running requests hold in these windows.
  heldTokens = 0;
  heldCost = 0;

  constructor(end: number, date: UtcDate, before: readonly number[]) {
    this.end = end;
    this.date = date;
    this.before = before;
  }

  isOpenAt({ now, date }: Moment): boolean {
    return now < this.end && date === this.date && this.before !== OVER;
  }

  get isHeld(): boolean {
    return this.running > 0 || this.heldTokens > 0 || this.heldCost > 0;
  }

  /** Appends what is counted since they began. */
  addTo(numbers: number[]): void {
    numbers.push(this.requests, this.tokens, this.cost, this.running);
  }

  finish(): void {
    this.before = OVER;
  }

  /** Counts a request that begins to run. */
  reserve(amounts: Amounts): void {
    this.requests += 1;
    this.running += 1;
    this.hold(amounts);
  }

  hold({ tokens, cost }: Amounts): void {
    this.add(tokens, cost);
    this.heldTokens += tokens;
    this.heldCost += cost;
  }

  /** A running request holds less. */
  release({ tokens, cost }: Amounts): void {
    this.heldTokens -= tokens;
    this.heldCost -= cost;
  }

  /** The request ends that has begun here. @param real counted in place of what it held */
  settle(held: Amounts, real: Amounts): void {
    this.running -= 1;
    this.release(held);
    this.add(real.tokens - held.tokens, real.cost - held.cost);
  }

  add(tokens: number, cost: number): void {
    this.tokens += tokens;
    this.cost += cost;
  }
}

/**
 * In the order of the table.
 * @param since numbers that `Windows.addTo` has appended, from this index
 */
export function countsOf(before: readonly number[], since: readonly number[], from = 0): number[] {
  return before.map((count, index) => Math.max(0, count + (since[from + (KINDS[index] ?? 0)] ?? 0)));
}
