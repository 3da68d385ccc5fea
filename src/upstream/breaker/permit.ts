// The contract between a circuit breaker and a request: the permit to send one, or its rejection, and how the request went.
import type { ErrorCode } from '../../errors.ts';

/**
 * How an admitted request went.
 * - `success`: the target did the work.
 * - `failure`: a fault of the target. `retryAfterMs` is the wait that it asked for, such as with a 503.
 * - `limited`: rate-limited by the target (429). Pauses the target for `retryAfterMs`; not a failure, opens nothing.
 * - `neutral`: no evidence: the client left, the request was at fault, or it was never sent.
 */
export type ResultClass =
  | { readonly kind: 'success' | 'neutral' }
  | {
      readonly kind: 'failure' | 'limited';
      readonly retryAfterMs?: number;
      /** What failed, for reports. */
      readonly code?: ErrorCode;
    };

/**
 * Why a request is not admitted.
 * - `limit`: the target answered 429, and its pause is not over.
 * - `pause`: the target failed with a `retry-after`, and that pause is not over.
 * - `open`: the breaker is open; the cool-down is not over.
 * - `probing`: the cool-down is over, and a probe is in flight.
 */
type RejectionCause = 'limit' | 'pause' | 'open' | 'probing';

export interface BreakerRejection {
  readonly kind: 'rejection';
  readonly cause: RejectionCause;
  /** When to try again, in milliseconds of the injected clock; an estimate for `probing`. */
  readonly until: number;
}

/** The right to send one request. Release it once, on every path; later calls do nothing. */
export interface Permit {
  readonly kind: 'permit';
  /** Whether this request is the half-open probe. */
  readonly probe: boolean;
  /** Reports the first output. It closes a half-open breaker before a long response ends; `release` still reports the result. */
  answered(): void;
  release(outcome: ResultClass): void;
}

export class Ticket implements Permit {
  readonly kind = 'permit';
  readonly probe: boolean;
  readonly forced: boolean;
  period: number;
  readonly #onAnswered: (ticket: Ticket) => void;
  #onRelease: ((ticket: Ticket, outcome: ResultClass) => void) | undefined;

  constructor(
    period: number,
    probe: boolean,
    forced: boolean,
    onAnswered: (ticket: Ticket) => void,
    onRelease: (ticket: Ticket, outcome: ResultClass) => void,
  ) {
    this.period = period;
    this.probe = probe;
    this.forced = forced;
    this.#onAnswered = onAnswered;
    this.#onRelease = onRelease;
  }

  answered(): void {
    if (this.#onRelease !== undefined) this.#onAnswered(this);
  }

  release(outcome: ResultClass): void {
    const onRelease = this.#onRelease;
    this.#onRelease = undefined;
    onRelease?.(this, outcome);
  }
}
