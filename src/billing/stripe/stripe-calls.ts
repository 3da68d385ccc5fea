// Calls to Stripe with bounded concurrency, deadlines and a circuit breaker. Errors do not contain Stripe's own text, because it
// may quote the request.
import type { Agent } from 'node:http';
import type Stripe from 'stripe';
import { DrainEstimate } from '../../auth/hashing/drain-estimate.ts';
import { withDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { CircuitBreaker } from '../../upstream/breaker/circuit-breaker.ts';
import { Outbound } from '../../upstream/outbound/outbound.ts';
import { stripePackage } from './stripe-package.ts';

/** The version in which Stripe is asked and answers. The types of the package are those of this version. */
export const STRIPE_API_VERSION = '2026-10-28.endive';
/** Timeout of silence on a connection. The package retries once. */
const SILENCE_MS = 4_000;
/** Deadline of one call, retry included. */
const CALL_MS = 10_000;
const MAX_SOCKETS = 16;
const MAX_CALLS = 64;
/** Assumed duration of a call until one was measured. */
const INITIAL_MS = 300;
interface StripeAddress {
  readonly secret_key: string;
  /** `https://host:port` */
  readonly api_base?: string | undefined;
  /** For the connections. Default: direct ones. */
  readonly outbound?: Outbound;
}

export class StripeCalls {
  readonly #stripe: Stripe;
  readonly #agent: Agent;
  readonly #metrics: Pick<Metrics, 'billing'>;
  readonly #now: () => number;
  readonly #estimate: DrainEstimate;
  readonly #breaker: CircuitBreaker;
  #calls = 0;

  /** @param now monotonic milliseconds */
  constructor(
    { secret_key, api_base, outbound = new Outbound() }: StripeAddress,
    metrics: Pick<Metrics, 'billing'>,
    now: () => number = () => performance.now(),
  ) {
    const base = new URL(api_base ?? 'https://api.stripe.com');
    const isPlain = base.protocol === 'http:';
    this.#agent = outbound.agent(!isPlain, { keepAlive: true, maxSockets: MAX_SOCKETS });
    this.#stripe = new (stripePackage())(secret_key, {
      host: base.hostname.replace(/^\[|\]$/g, ''),
      port: base.port === '' ? (isPlain ? 80 : 443) : Number(base.port),
      protocol: isPlain ? 'http' : 'https',
      timeout: SILENCE_MS,
      apiVersion: STRIPE_API_VERSION,
      maxNetworkRetries: 1,
      telemetry: false,
      httpAgent: this.#agent,
    });
    this.#metrics = metrics;
    this.#now = now;
    // Five failures in a row open it; then one call probes Stripe each ten seconds.
    this.#breaker = new CircuitBreaker({ isSteady: true, now, random: () => 0 });
    this.#estimate = new DrainEstimate({ slots: MAX_SOCKETS, initialMs: INITIAL_MS, now });
  }

  /**
   * @param what purpose of the call, as a metric label
   * @param work is tried twice here; the caller must not retry it
   * @returns undefined when Stripe answers 404
   * @throws GatewayError `payment_unavailable`
   */
  async call<T>(what: string, work: (stripe: Stripe) => Promise<T>): Promise<T | undefined> {
    if (this.#calls >= MAX_CALLS) {
      const retryAfterMs = this.#estimate.retryAfterMs(this.#calls);
      throw unavailable(`${MAX_CALLS} calls to Stripe are in flight`, retryAfterMs);
    }
    const permit = this.#breaker.admit();
    if (permit.kind === 'rejection')
      throw unavailable('Stripe failed recently; the circuit breaker is open', permit.until - this.#now());
    this.#calls += 1;
    const started = this.#now();
    let outcome: keyof typeof EVIDENCE = 'ok';
    try {
      const late = () => new Error(`Stripe did not answer within ${CALL_MS} ms`);
      const result = await withDeadline(work(this.#stripe), CALL_MS, late);
      this.#estimate.measured(this.#now() - started);
      return result;
    } catch (error) {
      outcome = outcomeOf(error);
      if (outcome === 'missing') return undefined;
      if (outcome !== 'refused') throw unavailable(described(error), 5000);
      const message = 'The payment provider rejected the request. The operator has to act.';
      throw new GatewayError('payment_unavailable', message, { cause: described(error), retry: 'no' });
    } finally {
      this.#calls -= 1;
      permit.release({ kind: EVIDENCE[outcome] });
      this.#metrics.billing.providerSeconds.observe({ call: what, outcome }, (this.#now() - started) / 1000);
    }
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** What the outcome of a call says of Stripe: `missing` and `refused` are valid answers. */
const EVIDENCE = {
  ok: 'success',
  missing: 'success',
  refused: 'success',
  limited: 'neutral',
  failed: 'failure',
} as const;

function outcomeOf(error: unknown): keyof typeof EVIDENCE {
  const status = error instanceof stripePackage().errors.StripeError ? error.statusCode : undefined;
  if (status === 404) return 'missing';
  // 409: another request with the same idempotency key is in flight.
  if (status === 429 || status === 409) return 'limited';
  return status !== undefined && status < 500 ? 'refused' : 'failed';
}

function unavailable(why: string | Error, retryAfterMs: number): GatewayError {
  const cause = typeof why === 'string' ? new Error(why) : why;
  return new GatewayError('payment_unavailable', undefined, { cause, retryAfterMs });
}

/** Type, code and request id identify the failure in Stripe's dashboard. */
function described(error: unknown): Error {
  if (!(error instanceof stripePackage().errors.StripeError)) {
    return error instanceof Error ? error : new Error('the call to Stripe failed');
  }
  const { type, code, statusCode, requestId, param } = error;
  const parts = [type, code, param, statusCode, requestId].filter((part) => part !== undefined);
  return new Error(`Stripe: ${parts.join(' ')}`);
}
