// The attempts of one request: targets, retries, hedges. attempt.ts runs one attempt, target-plan.ts chooses a target,
// retry-allowance.ts says when to stop, and error-outcome.ts classifies answers.
import { wrapError } from '../../errors.ts';
import type { ResultClass } from '../../upstream/breaker/permit.ts';
import { blameFor, type Failure, failure, unauthorized } from '../../upstream/error-outcome.ts';
import { type AttemptEnd, failed, type RelayRequest, type RequestContent } from '../contracts/receiver.ts';
import { bodyFor, requestsUsage } from '../request/request-rewrite.ts';
import type { Route, Target } from '../routes/route-table.ts';
import type { Resilience } from '../targets/resilience.ts';
import {
  type Affinity,
  type Exhausted,
  isOwnRejection,
  type PlannedTarget,
  rejectedAttempt,
  type TargetPlan,
} from '../targets/target-plan.ts';
import { Attempt } from './attempt.ts';
import { mergeFailures, Race } from './hedge.ts';
import { Refusals } from './refusals.ts';
import { RetryAllowance } from './retry-allowance.ts';

interface AttemptsOptions {
  /** Without `hideUsage`, which depends on the target. */
  readonly request: RelayRequest;
  readonly route: Route;
  readonly resilience: Resilience;
  /** Of the request, for `balance: affinity`. */
  readonly affinity?: Affinity<Target> | undefined;
  /** The client gets an answer, so that the content is not sent again. Called at most once for each attempt. */
  readonly onCommit?: () => void;
}

type Step = Pick<PlannedTarget<Target>, 'target' | 'permit'>;
type Reason = 'fallback' | 'retry' | 'resend' | 'token' | 'hedge';

/** The attempts at one target. In a race, there are two. */
interface Runner {
  readonly race?: Race;
  readonly isHedge: boolean;
  /** The latest attempt. */
  attempt?: Attempt;
}

export class Attempts {
  readonly #options: AttemptsOptions;
  /** Undefined once an attempt is committed: an open stream holds no prompt. */
  #content: RequestContent | undefined;
  readonly #plan: TargetPlan<Target>;
  readonly #refusals: Refusals;
  readonly #allowance: RetryAllowance;
  /** At most one hedge per request. */
  #hasHedged = false;

  constructor(options: AttemptsOptions, content: RequestContent) {
    this.#options = options;
    this.#content = content;
    const { route, resilience, request } = options;
    this.#allowance = new RetryAllowance(request, resilience);
    this.#plan = resilience.planFor(route, options.affinity);
    this.#refusals = new Refusals(route.fallbackOn, this.#plan);
  }

  /**
   * Tries targets until one answers, none is left, or another attempt is pointless.
   * @returns the end of the last relevant attempt; in a race never that of the loser
   * @throws GatewayError client_closed or draining, when the exchange is stopped between two attempts
   */
  async run(): Promise<AttemptEnd> {
    let step = this.#refusals.next();
    const { resilience, request } = this.#options;
    if (step.kind === 'exhausted') return failed(rejectedAttempt(step));
    const now = resilience.now();
    resilience.budget.deposit(now);
    resilience.roundBudgetOf(step.target.upstream).deposit(now);
    let result = await this.#tryTarget(step);
    let last = result;
    while (last.kind === 'failed' && this.#mayContinue(last.failure)) {
      const from: Target = step.target;
      step = this.#refusals.next();
      if (step.kind === 'exhausted') {
        const next = await this.#waitForTarget(last.failure, step);
        if (next === undefined) break;
        step = next;
      }
      if (!this.#allowance.withdraw(last.failure, step.target)) {
        step.permit.release({ kind: 'neutral' });
        break;
      }
      const { isFirstRound } = this.#allowance;
      this.#countExtra(step.target, isFirstRound ? 'fallback' : 'retry');
      const { reason } = last.failure;
      if (reason !== undefined && isFirstRound)
        request.metrics.fallbacks.inc({ upstream: from.upstream.name, reason });
      last = await this.#tryTarget(step);
      // A busy target must not hide the answer of an earlier one.
      if (last.kind !== 'failed' || !isOwnRejection(last.failure.error.code)) result = last;
    }
    return request.exchange.stopReason === undefined ? this.#refusals.preferred(result) : result;
  }

  /** Asks one target, and hedges with a second one after too long a silence. */
  #tryTarget(step: PlannedTarget<Target>): Promise<AttemptEnd> {
    const after = this.#hedgeAfter(step.target);
    return after === undefined ? this.#runTarget(step) : this.#race(step, after);
  }

  /**
   * Milliseconds of silence before a hedge; undefined for never. A JSON answer has no first output, so a slow target looks
   * the same as a long answer.
   */
  #hedgeAfter(target: Target): number | undefined {
    const { route, request, resilience } = this.#options;
    // One connection answers in the order of its requests.
    if (this.#content?.form?.isLive === true || request.endpoint.session !== undefined) return undefined;
    if (route.hedge === undefined || !request.facts.stream || this.#hasHedged || route.targets.length < 2)
      return undefined;
    const { after } = route.hedge;
    return after === 'p95' ? resilience.statusOf(target).latency.p95 : after;
  }

  async #race(step: PlannedTarget<Target>, after: number): Promise<AttemptEnd> {
    const race = new Race();
    const leader: Runner = { race, isHedge: false };
    const hedge: Runner = { race, isHedge: true };
    const hedged: Promise<AttemptEnd | undefined>[] = [];
    // The silence starts with the attempt: a slow connect counts too.
    race.arm(after, () => hedged.push(this.#hedge(hedge, step.target)));
    let first: AttemptEnd;
    try {
      first = await this.#runTarget(step, leader);
    } finally {
      race.disarm();
    }
    const second = await hedged[0];
    if (second === undefined) return first;
    this.#countHedge(second);
    if (first.kind === 'failed' && second.kind === 'failed') {
      // Both may have executed, so the one permitted repetition is used up.
      if (first.failure.mayHaveExecuted === true && second.failure.mayHaveExecuted === true)
        this.#allowance.repeated();
      (first.failure.tryNextTarget ? hedge : leader).attempt?.sign();
      return failed(mergeFailures(first.failure, second.failure));
    }
    const isSecond = first.kind === 'superseded' || second.kind === 'answered';
    return isSecond ? second : first;
  }

  /**
   * Starts the second attempt of a race if it is allowed.
   * @returns its end; undefined when it did not start
   * @throws nothing: its promise is awaited only after the first attempt ends
   */
  async #hedge(runner: Runner, running: Target): Promise<AttemptEnd | undefined> {
    try {
      const { exchange } = this.#options.request;
      const { isAtAttemptLimit, remainingMs } = this.#allowance;
      if (exchange.stopReason !== undefined || isAtAttemptLimit || remainingMs <= 0) return undefined;
      const step = this.#plan.next(
        ({ upstream, model }) =>
          this.#refusals.mayTake({ upstream, model }) &&
          upstream.isHealthy &&
          upstream.inFlight < upstream.config.max_concurrency &&
          !(upstream === running.upstream && model === running.model),
      );
      if (step.kind === 'exhausted') return undefined;
      if (!this.#allowance.withdraw({}, step.target)) {
        this.#plan.putBack(step);
        return undefined;
      }
      this.#hasHedged = true;
      exchange.access.hedged = true;
      this.#countExtra(step.target, 'hedge');
      return await this.#runTarget(step, runner);
    } catch (error) {
      return failed(failure(wrapError(error, 'internal_error'), false));
    }
  }

  #countHedge(result: AttemptEnd): void {
    const { metrics, exchange } = this.#options.request;
    const unanswered = exchange.stopReason === undefined ? 'failed' : 'stopped';
    const results = { answered: 'won', superseded: 'lost', failed: unanswered } as const;
    metrics.hedges.inc({ result: results[result.kind] });
  }

  /** Asks one target. A stale keep-alive connection is no sign of its health: resends once on a new connection. */
  async #runTarget({ target, permit }: Step, runner: Runner = { isHedge: false }): Promise<AttemptEnd> {
    const { exchange } = this.#options.request;
    let outcome: ResultClass = { kind: 'neutral' };
    try {
      exchange.throwIfStopped();
      const { credential } = target.upstream;
      const { token } = credential;
      let result = await this.#sendAuthorized({ target, permit }, false, runner);
      if (result.kind === 'failed' && result.failure.staleConnection === true && this.#mayResend(runner)) {
        exchange.throwIfStopped();
        this.#countExtra(target, 'resend');
        result = await this.#sendAuthorized({ target, permit }, true, runner);
      }
      const isRejected = result.kind === 'failed' && result.failure.isTokenRejected === true;
      if (isRejected && (await this.#hasNewToken(credential, token ?? credential.token, runner))) {
        this.#countExtra(target, 'token');
        result = await this.#sendAuthorized({ target, permit }, false, runner);
      }
      if (result.kind === 'superseded') return result;
      if (result.kind === 'failed')
        result = failed(this.#refusals.judge(target, runner.attempt, result.failure));
      outcome = result.kind === 'answered' ? blameFor(result.outcome) : result.failure.blame;
      this.#allowance.ended(target, result.kind === 'failed' && result.failure.retry === true);
      return result;
    } finally {
      permit.release(outcome);
    }
  }

  /** In a race, the hedge may resend. The leader may only when no hedge runs: a running hedge replaces its resend. */
  #mayResend({ race, isHedge }: Runner): boolean {
    if (this.#allowance.isAtAttemptLimit) return false;
    return race === undefined || (!race.isDecided && (isHedge || race.running === 0));
  }

  /** Fetches another token than the rejected one. @returns whether the request can be sent again with it */
  async #hasNewToken(
    credential: Target['upstream']['credential'],
    rejected: string | undefined,
    { race }: Runner,
  ): Promise<boolean> {
    if (rejected === undefined) return false;
    const isReplaced = await this.#options.request.exchange.orStopped(credential.replaceToken(rejected));
    return isReplaced && this.#content?.form?.isSpent !== true && race?.isDecided !== true;
  }

  /** Waits for the token of the upstream if there is none. */
  #sendAuthorized(step: Step, fresh: boolean, runner: Runner): Promise<AttemptEnd> {
    const pending = step.target.upstream.credential.ready();
    if (pending === undefined) return this.#send(step, fresh, runner);
    const { exchange } = this.#options.request;
    return exchange.orStopped(pending).then(
      () => this.#send(step, fresh, runner),
      (error: unknown) => {
        exchange.throwIfStopped();
        return failed(unauthorized(error));
      },
    );
  }

  #send({ target, permit }: Step, fresh: boolean, runner: Runner): Promise<AttemptEnd> {
    const { request, resilience } = this.#options;
    const content = this.#content;
    // The other attempt of the race was committed while this one waited for its token.
    if (content === undefined) return Promise.resolve({ kind: 'superseded' });
    const { body, scan, form } = content;
    const { latency } = resilience.statusOf(target);
    const observer = {
      onBegin: () => (request.exchange.access.attempts = this.#allowance.count()),
      onOutput(ms: number | undefined) {
        permit.answered();
        if (ms !== undefined) latency.observe(ms);
      },
      onSilence: (ms: number) => latency.observe(ms),
      onLost: (ms: number) => latency.observeAtLeast(ms),
      onCommit: () => {
        this.#content = undefined;
        this.#options.onCommit?.();
      },
    };
    const hideUsage = requestsUsage(target, scan, request.endpoint.hasUsageOption === true);
    const relayed = hideUsage ? { ...request, hideUsage } : request;
    const attempt = new Attempt(relayed, target, observer, runner.race);
    runner.attempt = attempt;
    const sent = form?.bodyFor(target) ?? bodyFor(target, body, scan, hideUsage);
    return attempt.run(sent, fresh, this.#allowance.endsAt);
  }

  #mayContinue(failure: Failure): boolean {
    if (this.#content?.form?.isSpent === true || !this.#allowance.mayContinue(failure)) return false;
    this.#options.request.exchange.throwIfStopped();
    return true;
  }

  /**
   * Waits once and starts another round. If the targets now need a longer wait, the client receives that as `retry-after`:
   * requests that wait here would return all at once (thundering herd).
   * @returns undefined when no target is available
   */
  async #waitForTarget(failure: Failure, exhausted: Exhausted): Promise<PlannedTarget<Target> | undefined> {
    if (!this.#allowance.mayWait(failure, exhausted)) return undefined;
    this.#plan.startRound(await this.#allowance.wait(exhausted));
    if (this.#allowance.remainingMs <= 0) return undefined;
    const step = this.#refusals.next();
    return step.kind === 'target' ? step : undefined;
  }

  #countExtra({ upstream }: Target, reason: Reason): void {
    this.#options.request.metrics.extraAttempts.inc({ upstream: upstream.name, reason });
  }
}
