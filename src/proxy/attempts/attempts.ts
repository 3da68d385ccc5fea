// The attempts of one request: which target is asked, whether another one may be, and when to stop. One attempt is
// attempt.ts, the choice target-plan.ts, and what an answer means outcome.ts.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { ResultClass } from '../../upstream/circuit-breaker.ts';
import { blameFor, type Failure, failure } from '../../upstream/error-outcome.ts';
import { backoff } from '../../upstream/retry-budget.ts';
import type { AttemptEnd, FormBody, RelayRequest } from '../contracts/receiver.ts';
import { bodyFor, requestsUsage } from '../request/request-rewrite.ts';
import type { RequestScan } from '../request/request-scan.ts';
import type { Route, Target } from '../routes/route-table.ts';
import { Attempt } from './attempt.ts';
import { bothFailed, Race } from './hedge.ts';
import type { Resilience } from './resilience.ts';
import { type Exhausted, type Next, TargetPlan } from './target-plan.ts';

/** A longer wait is the client's to make: it can go elsewhere, and holds nothing here meanwhile. */
const MAX_WAIT_MS = 2000;

interface AttemptsOptions {
  /** Without `hideUsage`, which depends on the target. */
  readonly request: RelayRequest;
  readonly route: Route;
  /** The client's body, which `scan` was made from. */
  readonly body: Buffer;
  readonly scan: RequestScan;
  /** Instead of them, a form. */
  readonly form?: FormBody | undefined;
  readonly retry: DynamicConfig['retry'];
  readonly resilience: Resilience;
}

type Reason = 'fallback' | 'retry' | 'resend' | 'hedge';

/** What one target is asked for, where another may be asked at the same time. */
interface Runner {
  readonly race: Race;
  readonly isHedge: boolean;
  /** The last attempt at it. */
  attempt?: Attempt;
}

export class Attempts {
  readonly #options: AttemptsOptions;
  readonly #plan: TargetPlan<Target>;
  /** Waiting cannot help them, so a second round leaves them out. */
  readonly #hopeless: Target[] = [];
  /** Some target of this round may do better after a wait. */
  #mayRetry = false;
  /** Rounds over all targets, from 1. */
  #round = 1;
  readonly #endsAt: number;
  /** Requests to upstreams so far. */
  #sent = 0;
  /** The one attempt was made that may repeat what an upstream has begun. */
  #hasRisked = false;
  /** A request has one hedge at most. */
  #hasHedged = false;

  constructor(options: AttemptsOptions) {
    this.#options = options;
    const { route, resilience, retry } = options;
    this.#endsAt = performance.now() + retry.deadline;
    this.#plan = new TargetPlan<Target>({
      targets: route.targets,
      balance: route.balance,
      standing: resilience.standingOf,
      isHealthy,
      now: resilience.now,
      random: resilience.random,
    });
  }

  /**
   * Asks one target after the other until one has answered, none is left, or it would not help.
   * @returns how the last one that counts ended; of two at the same time, never the one that was superseded
   * @throws GatewayError client_closed or draining, when the exchange was stopped between two attempts
   */
  async run(): Promise<AttemptEnd> {
    let step = this.#plan.next();
    if (step.kind === 'exhausted') return { kind: 'failed', failure: rejectedAttempt(step) };
    const { resilience } = this.#options;
    resilience.budget.deposit();
    resilience.roundsAt(step.target.upstream).deposit();
    let result = await this.#try(step);
    let last = result;
    while (last.kind === 'failed' && this.#mayGoOn(last.failure)) {
      step = this.#plan.next();
      if (step.kind === 'exhausted') {
        const next = await this.#waitForOne(last.failure, step);
        if (next === undefined) break;
        step = next;
      }
      if (!this.#pays(last.failure, step.target)) {
        step.permit.release({ kind: 'neutral' });
        break;
      }
      this.#count(step.target, this.#round === 1 ? 'fallback' : 'retry');
      last = await this.#try(step);
      // That one is busy is no news about another that has answered.
      if (!isBusy(last)) result = last;
    }
    return result;
  }

  /** One target, and where it is silent for too long a second one beside it. */
  #try(step: Next<Target>): Promise<AttemptEnd> {
    const after = this.#hedgeAfter(step.target);
    return after === undefined ? this.#ask(step) : this.#race(step, after);
  }

  /**
   * Milliseconds of silence after which a second target is asked beside this one; undefined for never. An answer as JSON has
   * no first output by which to tell a slow target from a long answer.
   */
  #hedgeAfter(target: Target): number | undefined {
    const { route, request, resilience, form } = this.#options;
    if (form?.isLive === true) return undefined;
    if (route.hedge === undefined || !request.stream || this.#hasHedged || route.targets.length < 2)
      return undefined;
    const { after } = route.hedge;
    return after === 'p95' ? resilience.standing(target).latency.p95 : after;
  }

  async #race(step: Next<Target>, after: number): Promise<AttemptEnd> {
    const race = new Race();
    const [leader, hedge]: [Runner, Runner] = [
      { race, isHedge: false },
      { race, isHedge: true },
    ];
    const hedged: Promise<AttemptEnd | undefined>[] = [];
    // From the attempt's beginning: a connection that does not come about is a kind of silence, too.
    race.arm(after, () => hedged.push(this.#hedge(hedge, step.target)));
    let first: AttemptEnd;
    try {
      first = await this.#ask(step, leader);
    } finally {
      race.disarm();
    }
    const second = await hedged[0];
    if (second === undefined) return first;
    this.#countHedge(second);
    if (first.kind === 'failed' && second.kind === 'failed') {
      // To repeat once what may have begun was allowed, and both may have.
      if (first.failure.mayHaveExecuted === true && second.failure.mayHaveExecuted === true)
        this.#hasRisked = true;
      (first.failure.tryNextTarget ? hedge : leader).attempt?.sign();
      return { kind: 'failed', failure: bothFailed(first.failure, second.failure) };
    }
    const isSecond = first.kind === 'superseded' || second.kind === 'answered';
    return isSecond ? second : first;
  }

  /**
   * The second of a race, if it may begin.
   * @returns how it ended; undefined when it did not begin
   * @throws nothing: the first one is waited for meanwhile, and nobody would hear it
   */
  async #hedge(runner: Runner, running: Target): Promise<AttemptEnd | undefined> {
    try {
      const { exchange } = this.#options.request;
      if (exchange.stopReason !== undefined || this.#isUsedUp || this.#leftMs <= 0) return undefined;
      const step = this.#plan.next(
        ({ upstream, model }) =>
          upstream.isHealthy &&
          upstream.inFlight < upstream.config.max_concurrency &&
          !(upstream === running.upstream && model === running.model),
      );
      if (step.kind === 'exhausted') return undefined;
      if (!this.#pays({}, step.target)) {
        this.#plan.giveBack(step);
        return undefined;
      }
      this.#hasHedged = true;
      exchange.access.hedged = true;
      this.#count(step.target, 'hedge');
      return await this.#ask(step, runner);
    } catch (error) {
      const wrapped =
        error instanceof GatewayError
          ? error
          : new GatewayError('internal_error', undefined, { cause: error });
      return { kind: 'failed', failure: failure(wrapped, false) };
    }
  }

  #countHedge(result: AttemptEnd): void {
    const { metrics, exchange } = this.#options.request;
    if (result.kind === 'answered') metrics.hedges.inc({ result: 'won' });
    else if (result.kind === 'superseded') metrics.hedges.inc({ result: 'lost' });
    else metrics.hedges.inc({ result: exchange.stopReason === undefined ? 'failed' : 'stopped' });
  }

  /**
   * One target; a kept connection that it had closed says nothing about it, and is tried again on a new one.
   * @param runner in a race
   */
  async #ask({ target, permit }: Next<Target>, runner?: Runner): Promise<AttemptEnd> {
    const { exchange } = this.#options.request;
    let outcome: ResultClass = { kind: 'neutral' };
    try {
      exchange.throwIfStopped();
      let result = await this.#send({ target, permit }, false, runner);
      if (result.kind === 'failed' && result.failure.staleConnection === true && this.#mayResend(runner)) {
        exchange.throwIfStopped();
        this.#count(target, 'resend');
        result = await this.#send({ target, permit }, true, runner);
      }
      if (result.kind === 'superseded') return result;
      outcome = result.kind === 'answered' ? blameFor(result.outcome) : result.failure.blame;
      if (result.kind === 'failed' && result.failure.retry === true) this.#mayRetry = true;
      else this.#hopeless.push(target);
      return result;
    } finally {
      permit.release(outcome);
    }
  }

  /** In a race the hedge may take a new connection; for the first, a hedge that runs is as good as that. */
  #mayResend(runner: Runner | undefined): boolean {
    if (this.#isUsedUp) return false;
    return runner === undefined || (!runner.race.isDecided && (runner.isHedge || runner.race.running === 0));
  }

  #send(
    { target, permit }: Pick<Next<Target>, 'target' | 'permit'>,
    fresh: boolean,
    runner?: Runner,
  ): Promise<AttemptEnd> {
    const { request, body, scan, form, resilience } = this.#options;
    const { latency } = resilience.standing(target);
    const watcher = {
      onBegin: () => {
        this.#sent += 1;
        request.exchange.access.attempts = this.#sent;
        return this.#sent;
      },
      onOutput(ms: number | undefined) {
        permit.answered();
        if (ms !== undefined) latency.observe(ms);
      },
      onSilence: (ms: number) => latency.observe(ms),
      onOvertaken: (ms: number) => latency.observeAtLeast(ms),
    };
    const hideUsage = requestsUsage(target, scan, request.endpoint.hasUsageOption);
    // As it is where nothing differs: of a form some of it is not known yet.
    const asked = hideUsage ? { ...request, hideUsage } : request;
    const attempt = new Attempt(asked, target, watcher, runner?.race);
    if (runner !== undefined) runner.attempt = attempt;
    const left = this.#sent === 0 ? this.#options.retry.deadline : this.#leftMs;
    return attempt.run(form?.bodyFor(target) ?? bodyFor(target, body, scan, hideUsage), fresh, left);
  }

  #mayGoOn({ tryNextTarget: next, mayHaveExecuted: risky = false }: Failure): boolean {
    if (
      !next ||
      this.#options.form?.isSpent === true ||
      this.#isUsedUp ||
      this.#leftMs <= 0 ||
      (risky && this.#hasRisked)
    )
      return false;
    this.#hasRisked ||= risky;
    this.#options.request.exchange.throwIfStopped();
    return true;
  }

  /** Milliseconds of `retry.deadline` that are left. */
  get #leftMs(): number {
    return this.#endsAt - performance.now();
  }

  get #isUsedUp(): boolean {
    return this.#sent >= this.#options.retry.attempts;
  }

  /** What never reached an upstream is no load for anybody, so another attempt costs nothing. */
  #pays({ skipsRetryBudget = false }: Pick<Failure, 'skipsRetryBudget'>, { upstream }: Target): boolean {
    if (skipsRetryBudget) return true;
    const { resilience, request } = this.#options;
    const own = this.#round === 1 ? undefined : resilience.roundsAt(upstream);
    if ((own === undefined || own.available >= 1) && resilience.budget.withdraw()) {
      own?.withdraw();
      return true;
    }
    request.metrics.retryBudgetRefusals.inc();
    return false;
  }

  /** Whether all were asked, and one of them may do better soon enough to wait for it here. */
  #mayWait({ skipsRetryBudget: free = false }: Failure, exhausted: Exhausted): boolean {
    if (!this.#mayRetry || !this.#isSoon(exhausted)) return false;
    const { resilience, request } = this.#options;
    if (free || resilience.budget.available >= 1) return true;
    request.metrics.retryBudgetRefusals.inc();
    return false;
  }

  /**
   * Another round, after one wait. When others have learnt meanwhile that it would have to be longer, the client is told so:
   * a crowd that waits on here would only come back together.
   * @returns undefined when none may be asked
   */
  async #waitForOne(failure: Failure, exhausted: Exhausted): Promise<Next<Target> | undefined> {
    if (!this.#mayWait(failure, exhausted)) return undefined;
    await this.#wait(exhausted);
    if (this.#leftMs <= 0) return undefined;
    const step = this.#plan.next();
    return step.kind === 'target' ? step : undefined;
  }

  #isSoon({ retryAfterMs }: Exhausted): boolean {
    return retryAfterMs <= Math.min(MAX_WAIT_MS, this.#leftMs);
  }

  /** @throws GatewayError client_closed or draining, at once when the exchange is stopped */
  async #wait({ retryAfterMs }: Exhausted): Promise<void> {
    const { request, resilience } = this.#options;
    const { exchange } = request;
    // A timer may be a millisecond early, and would then find the target still closed.
    const ms = 1 + Math.ceil(Math.min(backoff(this.#round, resilience.random, retryAfterMs), this.#leftMs));
    await new Promise<void>((resolve) => {
      const end = () => {
        clearTimeout(timer);
        exchange.offStop(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      exchange.onStop(end);
    });
    exchange.throwIfStopped();
    this.#round += 1;
    this.#mayRetry = false;
    this.#plan.again(this.#hopeless);
  }

  #count({ upstream }: Target, reason: Reason): void {
    this.#options.request.metrics.extraAttempts.inc({ upstream: upstream.name, reason });
  }
}

function isHealthy({ upstream }: Target): boolean {
  return upstream.isHealthy;
}

function isBusy(result: AttemptEnd): boolean {
  return result.kind === 'failed' && result.failure.error.code === 'upstream_busy';
}

/** The gateway's own answer when no target may be asked. */
export function rejectedAttempt({ cause, retryAfterMs }: Exhausted): Failure {
  if (cause === 'tried') {
    const why = new Error('a route without targets');
    return failure(new GatewayError('internal_error', undefined, { cause: why }), false);
  }
  const code = cause === 'limit' ? 'upstream_rate_limited' : 'upstream_busy';
  const why = new Error(`no target may be asked: ${cause}`);
  return failure(new GatewayError(code, undefined, { cause: why, retryAfterMs }), false);
}
