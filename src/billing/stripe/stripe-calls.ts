// How Stripe is called: so many at once, each within its time, none while it is away. What a failure says is kept short: Stripe's
// own text may quote what it was sent.
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import Stripe from 'stripe';
import { DrainEstimate } from '../../auth/hashing/drain-estimate.ts';
import { withDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';

/** Of silence on a connection; the package tries once more after a failure. */
const SILENCE_MS = 4_000;
/** For one call with everything in it. */
const CALL_MS = 10_000;
const MAX_SOCKETS = 16;
const MAX_CALLS = 64;
/** Of one call, until one was measured. */
const USUAL_MS = 300;
/** Failures in a row after which Stripe is taken to be away, and for how long. */
const OPENS_AFTER = 5;
const AWAY_MS = 10_000;

interface StripeAddress {
  readonly secret_key: string;
  /** `https://host:port` */
  readonly api_base?: string | undefined;
}

export class StripeCalls {
  readonly #stripe: Stripe;
  readonly #agent: HttpAgent;
  readonly #metrics: Pick<Metrics, 'billing'>;
  readonly #now: () => number;
  readonly #estimate: DrainEstimate;
  #calls = 0;
  #failures = 0;
  #awayUntil = 0;

  /** @param now monotonic milliseconds */
  constructor(
    { secret_key, api_base }: StripeAddress,
    metrics: Pick<Metrics, 'billing'>,
    now: () => number = () => performance.now(),
  ) {
    const base = new URL(api_base ?? 'https://api.stripe.com');
    const isPlain = base.protocol === 'http:';
    const options = { keepAlive: true, maxSockets: MAX_SOCKETS };
    this.#agent = isPlain ? new HttpAgent(options) : new HttpsAgent(options);
    this.#stripe = new Stripe(secret_key, {
      host: base.hostname.replace(/^\[|\]$/g, ''),
      port: base.port === '' ? (isPlain ? 80 : 443) : Number(base.port),
      protocol: isPlain ? 'http' : 'https',
      timeout: SILENCE_MS,
      maxNetworkRetries: 1,
      telemetry: false,
      httpAgent: this.#agent,
    });
    this.#metrics = metrics;
    this.#now = now;
    this.#estimate = new DrainEstimate({ slots: MAX_SOCKETS, initialMs: USUAL_MS, now });
  }

  /**
   * @param what the call is for, as a label of the metrics
   * @param work must not be asked again by the caller in a loop: it is tried twice here
   * @returns undefined where Stripe says that there is no such thing
   * @throws GatewayError `payment_unavailable`
   */
  async call<T>(what: string, work: (stripe: Stripe) => Promise<T>): Promise<T | undefined> {
    const wait = this.#awayUntil - this.#now();
    if (wait > 0) throw unavailable('Stripe did not answer of late', wait);
    if (this.#calls >= MAX_CALLS) {
      const retryAfterMs = this.#estimate.retryAfterMs(this.#calls);
      throw unavailable(`${MAX_CALLS} calls of Stripe are under way`, retryAfterMs);
    }
    // While it is taken to be away one call at a time finds out whether it still is.
    if (this.#failures >= OPENS_AFTER) this.#awayUntil = this.#now() + AWAY_MS;
    this.#calls += 1;
    const started = this.#now();
    let outcome = 'ok';
    try {
      const late = () => new Error(`Stripe did not answer within ${CALL_MS} ms`);
      const result = await withDeadline(work(this.#stripe), CALL_MS, late);
      this.#isThere();
      this.#estimate.measured(this.#now() - started);
      return result;
    } catch (error) {
      if (error instanceof GatewayError) throw error;
      outcome = this.#judge(error);
      if (outcome === 'missing') return undefined;
      throw outcome === 'refused'
        ? new GatewayError('payment_unavailable', 'The payment provider refused. The operator has to act.', {
            cause: described(error),
            retry: 'no',
          })
        : unavailable(described(error), 5000);
    } finally {
      this.#calls -= 1;
      this.#metrics.billing.providerSeconds.observe({ call: what, outcome }, (this.#now() - started) / 1000);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #isThere(): void {
    this.#failures = 0;
    this.#awayUntil = 0;
  }

  /** What a failure says about Stripe: `missing` and `refused` are answers, the others are none. */
  #judge(error: unknown): 'missing' | 'refused' | 'limited' | 'failed' {
    const status = error instanceof Stripe.errors.StripeError ? error.statusCode : undefined;
    if (status === 404) {
      this.#isThere();
      return 'missing';
    }
    // A conflict (409) is another request with the same idempotency key under way.
    if (status === 429 || status === 409) return 'limited';
    if (status !== undefined && status < 500) {
      this.#isThere();
      return 'refused';
    }
    this.#failures += 1;
    if (this.#failures >= OPENS_AFTER) this.#awayUntil = this.#now() + AWAY_MS;
    return 'failed';
  }
}

function unavailable(why: string | Error, retryAfterMs: number): GatewayError {
  const cause = typeof why === 'string' ? new Error(why) : why;
  return new GatewayError('payment_unavailable', undefined, { cause, retryAfterMs });
}

/** Kind, code and request id: enough to find it in Stripe's dashboard. */
function described(error: unknown): Error {
  if (!(error instanceof Stripe.errors.StripeError)) {
    return error instanceof Error ? error : new Error('Stripe could not be called');
  }
  const { type, code, statusCode, requestId, param } = error;
  const parts = [type, code, param, statusCode, requestId].filter((part) => part !== undefined);
  return new Error(`Stripe: ${parts.join(' ')}`);
}
