// Fallback by reason: which rejections of a request lead to another target, to which, and what the client receives if all reject it.
import type { FallbackReason } from '../../config/schema/model-schema.ts';
import { isAboutRequest } from '../../upstream/error-class.ts';
import type { Failure } from '../../upstream/error-outcome.ts';
import { type AttemptEnd, failed } from '../contracts/receiver.ts';
import type { Target } from '../routes/route-table.ts';
import type { Exhausted, PlannedTarget, TargetPlan } from '../targets/target-plan.ts';
import type { Contender } from './hedge.ts';

interface Refusal {
  readonly target: Target;
  readonly failure: Failure;
  readonly attempt: Contender | undefined;
}

/** The rejections of one request. */
export class Refusals {
  readonly #reasons: readonly FallbackReason[];
  readonly #plan: TargetPlan<Target>;
  /** Because of the size or the content of the request, in order. */
  readonly #refusals: Refusal[] = [];

  /** @param reasons `fallback_on` of the model */
  constructor(reasons: readonly FallbackReason[] = [], plan: TargetPlan<Target>) {
    this.#reasons = reasons;
    this.#plan = plan;
  }

  /**
   * The last rejection because of the request itself outranks later failures of other targets: without them the client would have
   * received it, and only the client can act on it.
   * @param result of all attempts
   * @returns the result for the client
   */
  preferred(result: AttemptEnd): AttemptEnd {
    const refusal = this.#refusals.at(-1);
    if (refusal === undefined || result.kind !== 'failed') return result;
    if (result.failure.error.code === 'internal_error') return result;
    refusal.attempt?.sign();
    return failed(refusal.failure);
  }

  /** @returns the failure, which allows another target if its reason is listed */
  judge(target: Target, attempt: Contender | undefined, failure: Failure): Failure {
    const { reason } = failure;
    if (reason === undefined || !this.#reasons.includes(reason)) return failure;
    const allowed = { ...failure, tryNextTarget: true };
    if (!isAboutRequest(reason)) return allowed;
    // It says nothing about load, and each target is asked once at most: no retry budget is needed against a storm.
    const free = { ...allowed, skipsRetryBudget: true };
    this.#refusals.push({ target, failure: free, attempt });
    return free;
  }

  /** Whether the model of this upstream has not rejected the request. */
  mayTake({ upstream, model }: Pick<Target, 'upstream' | 'model'>): boolean {
    return !this.#refusals.some(({ target }) => target.upstream === upstream && target.model === model);
  }

  /** The next target. After a prompt that was too long, another model comes first. */
  next(): PlannedTarget<Target> | Exhausted {
    if (this.#refusals.length === 0) return this.#plan.next();
    const isLong = ({ failure }: Refusal) => failure.reason === 'context_length_exceeded';
    const models = this.#refusals.filter(isLong).map(({ target }) => target.model);
    const other = this.#plan.next((target) => this.mayTake(target) && !models.includes(target.model));
    return other.kind === 'target' ? other : this.#plan.next((target) => this.mayTake(target));
  }
}
