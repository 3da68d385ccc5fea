// The attempts of one request: which target is asked, whether another one may be, and when to stop. One attempt is
// attempt.ts, the choice plan.ts, and what an answer means outcome.ts.
import type { DynamicConfig } from '../config/schema.ts';
import { GatewayError } from '../errors.ts';
import type { Outcome } from '../upstream/breaker.ts';
import { backoff } from '../upstream/budget.ts';
import { blameFor, type Failure, failure } from '../upstream/outcome.ts';
import { Attempt } from './attempt.ts';
import { type Exhausted, type Next, Plan } from './plan.ts';
import type { AttemptResult, ChatRequest } from './receiver.ts';
import type { RequestScan } from './request-scan.ts';
import type { Resilience } from './resilience.ts';
import { asksForUsage, bodyFor } from './rewrite.ts';
import type { Route, Target } from './route-table.ts';

/** A longer wait is the client's to make: it can go elsewhere, and holds nothing here meanwhile. */
const LONGEST_WAIT_MS = 2000;

export interface AttemptsOptions {
  readonly request: Omit<ChatRequest, 'hideUsage'>;
  readonly route: Route;
  /** The client's body, which `scan` was made from. */
  readonly body: Buffer;
  readonly scan: RequestScan;
  readonly retry: DynamicConfig['retry'];
  readonly resilience: Resilience;
}

type Reason = 'fallback' | 'retry' | 'resend';

export class Attempts {
  readonly #options: AttemptsOptions;
  readonly #plan: Plan<Target>;
  /** Waiting cannot help them, so a second round leaves them out. */
  readonly #hopeless = new Set<Target>();
  /** Some target of this round may do better after a wait. */
  #mayRetry = false;
  /** Rounds over all targets, from 1. */
  #round = 1;
  readonly #endsAt: number;
  /** The one attempt was made that may repeat what an upstream has begun. */
  #hasRisked = false;

  constructor(options: AttemptsOptions) {
    this.#options = options;
    const { route, resilience, retry } = options;
    this.#endsAt = performance.now() + retry.deadline;
    this.#plan = new Plan<Target>({
      targets: route.targets,
      balance: route.balance,
      standing: (target) => resilience.standing(target),
      isHealthy: ({ upstream }) => upstream.isHealthy,
      now: resilience.now,
      random: resilience.random,
    });
  }

  /**
   * Asks one target after the other until one has answered, none is left, or it would not help.
   * @throws GatewayError client_closed or draining, when the exchange was stopped between two attempts
   */
  async run(): Promise<AttemptResult> {
    let step = this.#plan.next();
    if (step.kind === 'exhausted') return { kind: 'failed', failure: refused(step) };
    const { resilience } = this.#options;
    resilience.budget.deposit();
    resilience.roundsAt(step.target.upstream).deposit();
    let result = await this.#ask(step);
    let last = result;
    while (last.kind === 'failed' && this.#mayGoOn(last.failure)) {
      step = this.#plan.next();
      if (step.kind === 'exhausted') {
        if (!this.#mayWait(last.failure, step)) break;
        await this.#wait(step);
        if (this.#leftMs <= 0) break;
        step = this.#plan.next();
        if (step.kind === 'exhausted') break;
      }
      if (!this.#pays(last.failure, step.target)) {
        step.permit.release({ kind: 'neutral' });
        break;
      }
      this.#count(step.target, this.#round === 1 ? 'fallback' : 'retry');
      last = await this.#ask(step);
      // That one is busy is no news about another that has answered.
      if (!isBusy(last)) result = last;
    }
    return result;
  }

  /** One target; a kept connection that it had closed says nothing about it, and is tried again on a new one. */
  async #ask({ target, permit }: Next<Target>): Promise<AttemptResult> {
    const { exchange } = this.#options.request;
    let outcome: Outcome = { kind: 'neutral' };
    try {
      exchange.throwIfStopped();
      let result = await this.#send({ target, permit }, false);
      if (result.kind === 'failed' && result.failure.again === true && !this.#isUsedUp) {
        exchange.throwIfStopped();
        this.#count(target, 'resend');
        result = await this.#send({ target, permit }, true);
      }
      outcome = result.kind === 'answered' ? blameFor(result.outcome) : result.failure.blame;
      if (result.kind === 'failed' && result.failure.retry === true) this.#mayRetry = true;
      else this.#hopeless.add(target);
      return result;
    } finally {
      permit.release(outcome);
    }
  }

  #send({ target, permit }: Pick<Next<Target>, 'target' | 'permit'>, fresh: boolean): Promise<AttemptResult> {
    const { request, body, scan, resilience } = this.#options;
    const { latency } = resilience.standing(target);
    const attempt = new Attempt({ ...request, hideUsage: asksForUsage(target, scan) }, target, {
      onOutput(ms) {
        permit.answered();
        if (ms !== undefined) latency.observe(ms);
      },
      onSilence: (ms) => latency.observe(ms),
    });
    const left = this.#isFirst ? this.#options.retry.deadline : this.#leftMs;
    return attempt.run(bodyFor(target, body, scan), fresh, left);
  }

  #mayGoOn({ next, risky = false }: Failure): boolean {
    if (!next || this.#isUsedUp || this.#leftMs <= 0 || (risky && this.#hasRisked)) return false;
    this.#hasRisked ||= risky;
    this.#options.request.exchange.throwIfStopped();
    return true;
  }

  /** Milliseconds of `retry.deadline` that are left. */
  get #leftMs(): number {
    return this.#endsAt - performance.now();
  }

  get #isFirst(): boolean {
    return this.#options.request.exchange.access.attempts === undefined;
  }

  get #isUsedUp(): boolean {
    return (this.#options.request.exchange.access.attempts ?? 0) >= this.#options.retry.attempts;
  }

  /** What never reached an upstream is no load for anybody, so another attempt costs nothing. */
  #pays({ free = false }: Failure, { upstream }: Target): boolean {
    if (free) return true;
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
  #mayWait({ free = false }: Failure, { retryAfterMs }: Exhausted): boolean {
    if (!this.#mayRetry || retryAfterMs > Math.min(LONGEST_WAIT_MS, this.#leftMs)) return false;
    const { resilience, request } = this.#options;
    if (free || resilience.budget.available >= 1) return true;
    request.metrics.retryBudgetRefusals.inc();
    return false;
  }

  /** @throws GatewayError client_closed or draining, at once when the exchange is stopped */
  async #wait({ retryAfterMs }: Exhausted): Promise<void> {
    const { request, resilience } = this.#options;
    const { exchange } = request;
    const ms = Math.min(backoff(this.#round, resilience.random, retryAfterMs), this.#leftMs);
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

function isBusy(result: AttemptResult): boolean {
  return result.kind === 'failed' && result.failure.error.code === 'upstream_busy';
}

/** The gateway's own answer when no target may be asked. */
function refused({ cause, retryAfterMs }: Exhausted): Failure {
  if (cause === 'tried') {
    const why = new Error('a route without targets');
    return failure(new GatewayError('internal_error', undefined, { cause: why }), false);
  }
  const code = cause === 'limit' ? 'upstream_rate_limited' : 'upstream_busy';
  const why = new Error(`no target may be asked: ${cause}`);
  return failure(new GatewayError(code, undefined, { cause: why, retryAfterMs }), false);
}
