// `POST /webhooks/stripe`: an event is checked, the order it names is settled, and only then is it acknowledged. What cannot be
// done now is answered 503, and Stripe sends it again.
import type { BillingConfig } from '../config/schema.ts';
import { GatewayError } from '../errors.ts';
import { answerJson } from '../http/answer.ts';
import { type BodyPace, readBody } from '../http/body.ts';
import type { Exchange } from '../http/exchange.ts';
import type { BillingEvent, BillingStore } from '../store/billing-record.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { PaymentProvider } from './provider.ts';
import type { Settlement } from './settlement.ts';
import { StripeProvider } from './stripe.ts';
import { isOfInterest, orderOf, readStripeEvent } from './stripe-events.ts';

const MAX_BODY = 256 * 1024;
/** At once. Stripe sends again what is refused; people who pay are not to wait behind a flood of events. */
const MOST_EVENTS = 64;
/** Stripe gives up on an endpoint after about this time. */
const PACE: BodyPace = { silence: 5_000, grace: 10_000, rate: 64 * 1024 };

export interface WebhooksParts {
  readonly store: BillingStore;
  readonly settlement: Settlement;
  readonly provider: () => PaymentProvider | undefined;
  readonly config: () => BillingConfig | undefined;
  readonly logger: Pick<Logger, 'warn'>;
  readonly metrics: Pick<Metrics, 'billing'>;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

type Outcome = 'applied' | 'known' | 'foreign' | 'ignored';

export class Webhooks {
  readonly #parts: WebhooksParts;
  readonly #now: () => number;
  #running = 0;

  constructor(parts: WebhooksParts) {
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
    if (this.#running >= MOST_EVENTS) {
      metrics.billing.events.inc({ outcome: 'busy' });
      throw new GatewayError('payment_unavailable', 'Too many events at once.', { retryAfterMs: 5000 });
    }
    this.#running += 1;
    try {
      const body = await readBody(exchange, MAX_BODY, PACE);
      const outcome = await this.#apply(body, exchange.request.headers['stripe-signature'], secret, provider);
      metrics.billing.events.inc({ outcome });
      answerJson(exchange, 200, { received: true, outcome }, { 'cache-control': 'no-store' });
    } catch (error) {
      const isRefused = error instanceof GatewayError && error.status < 500;
      metrics.billing.events.inc({ outcome: isRefused ? 'refused' : 'failed' });
      throw error;
    } finally {
      this.#running -= 1;
    }
  }

  async #apply(
    body: Buffer,
    signature: string | readonly string[] | undefined,
    secret: string,
    provider: StripeProvider,
  ): Promise<Outcome> {
    const { store, settlement, logger } = this.#parts;
    const now = this.#now();
    const event = readStripeEvent(body, signature, secret, now);
    if (event.livemode !== provider.isLive) {
      logger.warn({ event: event.id, livemode: event.livemode }, 'an event of the other mode was refused');
      throw new GatewayError('invalid_event');
    }
    const record: BillingEvent = { id: event.id, type: event.type, at: new Date(now).toISOString() };
    if (await store.isEventKnown(event.id)) return 'known';
    // Of an account that is connected to the operator's: no order was made there.
    const isOwn = event.account == null && isOfInterest(event);
    const found = isOwn ? await orderOf(event, store, provider) : undefined;
    if (found === undefined || found.order.provider !== 'stripe') {
      await store.addEvent(record);
      return isOwn ? 'foreign' : 'ignored';
    }
    await settlement.settle(found.order.id, { event: record, session: found.session });
    return 'applied';
  }
}
