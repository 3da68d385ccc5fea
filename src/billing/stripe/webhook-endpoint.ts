// `POST /webhooks/stripe`: an event is checked, the order it names is settled, and only then is it acknowledged. What cannot be
// done now is answered 503, and Stripe sends it again.
import type { BillingConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import { type BodyPace, readBody } from '../../http/body/read-body.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answerJson } from '../../http/exchange/response-writer.ts';
import type { BillingEvent, BillingStore } from '../../store/billing-record.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { PaymentProvider } from '../payment-provider.ts';
import type { PaymentReconciliation } from '../payment-reconciliation.ts';
import { isOfInterest, orderIdOf, readStripeEvent, type StripeEvent } from './stripe-events.ts';
import { StripeProvider } from './stripe-provider.ts';

const MAX_BODY = 256 * 1024;
/** Bodies that are read at once, of whoever it is, … */
const MAX_READ = 128;
/** … and genuine events that are applied. Stripe sends again what is refused; buyers do not wait behind a flood of events. */
const MAX_APPLIED = 64;
const BUSY = 'Too many events at once.';
/** Stripe gives up on an endpoint after about this time. */
const PACE: BodyPace = { silence: 5_000, grace: 10_000, rate: 64 * 1024 };

interface WebhooksOptions {
  readonly store: BillingStore;
  readonly reconciliation: PaymentReconciliation;
  readonly provider: () => PaymentProvider | undefined;
  readonly config: () => BillingConfig | undefined;
  readonly logger: Pick<Logger, 'warn'>;
  readonly metrics: Pick<Metrics, 'billing'>;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

type Outcome = 'applied' | 'known' | 'foreign' | 'ignored';

export class Webhooks {
  readonly #parts: WebhooksOptions;
  readonly #now: () => number;
  #reading = 0;
  #applying = 0;

  constructor(parts: WebhooksOptions) {
    this.#parts = parts;
    this.#now = parts.now ?? Date.now;
  }

  /**
   * @throws GatewayError `unknown_url` where Stripe takes no payments, `unsupported_content_encoding`, `request_too_large`,
   *   `invalid_signature`, `invalid_event`, `payment_unavailable`, `store_unavailable`
   */
  async answer(exchange: Exchange): Promise<void> {
    const { metrics } = this.#parts;
    const provider = this.#parts.provider();
    const secret = this.#parts.config()?.webhook_secret;
    if (!(provider instanceof StripeProvider) || secret === undefined) throw new GatewayError('unknown_url');
    // Signed are the bytes as they are sent, and Stripe sends none that are compressed.
    if (exchange.request.headers['content-encoding'] !== undefined)
      throw new GatewayError('unsupported_content_encoding', 'An event is sent without content-encoding.');
    try {
      const event = await this.#read(exchange, secret);
      const outcome = await this.#admit(event, provider);
      metrics.billing.events.inc({ outcome });
      answerJson(exchange, 200, { received: true, outcome }, { 'cache-control': 'no-store' });
    } catch (error) {
      metrics.billing.events.inc({ outcome: outcomeOf(error) });
      throw error;
    }
  }

  async #read(exchange: Exchange, secret: string): Promise<StripeEvent> {
    if (this.#reading >= MAX_READ) throw busy();
    this.#reading += 1;
    try {
      const body = await readBody(exchange, MAX_BODY, PACE);
      return readStripeEvent(body, exchange.request.headers['stripe-signature'], secret, this.#now());
    } finally {
      this.#reading -= 1;
    }
  }

  async #admit(event: StripeEvent, provider: StripeProvider): Promise<Outcome> {
    if (this.#applying >= MAX_APPLIED) throw busy();
    this.#applying += 1;
    try {
      return await this.#apply(event, provider);
    } finally {
      this.#applying -= 1;
    }
  }

  async #apply(event: StripeEvent, provider: StripeProvider): Promise<Outcome> {
    const { store, reconciliation, logger } = this.#parts;
    const now = this.#now();
    if (event.livemode !== provider.isLive) {
      logger.warn({ event: event.id, livemode: event.livemode }, 'an event of the other mode was refused');
      throw new GatewayError('invalid_event');
    }
    const record: BillingEvent = { id: event.id, type: event.type, at: new Date(now).toISOString() };
    if (await store.isEventKnown(event.id)) return 'known';
    // Of an account that is connected to the operator's: no order was made there.
    const isOwn = event.account == null && isOfInterest(event);
    const found = isOwn ? await orderIdOf(event, store, provider) : undefined;
    if (found === undefined || found.order.provider !== 'stripe') {
      await store.addEvent(record);
      return isOwn ? 'foreign' : 'ignored';
    }
    await reconciliation.settle(found.order.id, { event: record, session: found.session });
    return 'applied';
  }
}

function busy(): GatewayError {
  return new GatewayError('payment_unavailable', BUSY, { retryAfterMs: 5000 });
}

function outcomeOf(error: unknown): 'refused' | 'busy' | 'failed' {
  if (!(error instanceof GatewayError)) return 'failed';
  if (error.message === BUSY) return 'busy';
  return error.status < 500 ? 'refused' : 'failed';
}
