// What one request may still spend on retries: attempts, time, the retry budgets, and a wait between two rounds over its targets.
import { setTimeout as delay } from 'node:timers/promises';
import type { Failure } from '../../upstream/error-outcome.ts';
import { backoff } from '../../upstream/retry-budget.ts';
import type { RelayRequest } from '../contracts/receiver.ts';
import type { Target } from '../routes/route-table.ts';
import type { Resilience } from '../targets/resilience.ts';
import type { Exhausted } from '../targets/target-plan.ts';

/** Longer waits are left to the client (`retry-after`), which holds no slot here meanwhile. */
const MAX_WAIT_MS = 2000;

export class RetryAllowance {
  readonly #request: RelayRequest;
  readonly #resilience: Resilience;
  /** End of `retry.deadline`, in monotonic milliseconds. */
  readonly endsAt: number;
  /** Targets that the next round leaves out, because waiting cannot help. */
  #nonRetryable: readonly Target[] = [];
  /** A target of this round may succeed after a wait. */
  #mayRetry = false;
  /** Rounds over all targets, from 1. */
  #round = 1;
  /** Requests to upstreams so far. */
  #sent = 0;
  /** The single attempt that may repeat executed work was made. */
  #hasRepeated = false;

  constructor(request: RelayRequest, resilience: Resilience) {
    this.#request = request;
    this.#resilience = resilience;
    this.endsAt = performance.now() + request.config.retry.deadline;
  }

  get isFirstRound(): boolean {
    return this.#round === 1;
  }

  /** Milliseconds left of `retry.deadline`. */
  get remainingMs(): number {
    return this.endsAt - performance.now();
  }

  get isAtAttemptLimit(): boolean {
    return this.#sent >= this.#request.config.retry.attempts;
  }

  /** @returns the number of the attempt that begins, from 1 */
  count(): number {
    this.#sent += 1;
    return this.#sent;
  }

  /** A target has answered, or failed for good or for now. */
  ended(target: Target, mayRetry: boolean): void {
    if (mayRetry) this.#mayRetry = true;
    else this.#nonRetryable = [...this.#nonRetryable, target];
  }

  /** Executed work was repeated, which is permitted once. */
  repeated(): void {
    this.#hasRepeated = true;
  }

  /** Whether another target may be tried after this failure. */
  mayContinue({ tryNextTarget, mayHaveExecuted = false }: Failure): boolean {
    if (!tryNextTarget || this.isAtAttemptLimit || this.remainingMs <= 0) return false;
    if (mayHaveExecuted && this.#hasRepeated) return false;
    this.#hasRepeated ||= mayHaveExecuted;
    return true;
  }

  /** Takes a token from the retry budgets. A request that never reached an upstream adds no load, so its repetition is free. */
  withdraw({ skipsRetryBudget = false }: Pick<Failure, 'skipsRetryBudget'>, { upstream }: Target): boolean {
    if (skipsRetryBudget) return true;
    const { budget } = this.#resilience;
    const own = this.isFirstRound ? undefined : this.#resilience.roundBudgetOf(upstream);
    if ((own === undefined || own.available >= 1) && budget.withdraw()) {
      own?.withdraw();
      return true;
    }
    return this.#refuse();
  }

  /** Whether all targets were tried, and one may recover soon enough to wait for it. */
  mayWait({ skipsRetryBudget = false }: Failure, { retryAfterMs }: Exhausted): boolean {
    if (!this.#mayRetry || retryAfterMs > Math.min(MAX_WAIT_MS, this.remainingMs)) return false;
    return skipsRetryBudget || this.#resilience.budget.available >= 1 || this.#refuse();
  }

  /**
   * Waits for the next round.
   * @returns the targets that it leaves out
   * @throws (rejects with) GatewayError client_closed or draining, at once when the exchange is stopped
   */
  async wait({ retryAfterMs }: Exhausted): Promise<readonly Target[]> {
    const ms = Math.min(backoff(this.#round, this.#resilience.random, retryAfterMs), this.remainingMs);
    // A timer may fire a millisecond early and would find the breaker still open.
    await this.#request.exchange.orStopped(delay(1 + Math.ceil(ms), undefined, { ref: false }));
    this.#round += 1;
    this.#mayRetry = false;
    return this.#nonRetryable;
  }

  #refuse(): false {
    this.#request.metrics.retryBudgetRefusals.inc();
    return false;
  }
}
