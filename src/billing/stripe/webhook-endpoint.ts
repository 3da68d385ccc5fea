// `POST /webhooks/stripe`: verifies an event, settles the order that it names, and then acknowledges it. A 503 makes Stripe send
// it again.
import { GatewayError } from '../../errors.ts';
import { type BodyPace, readBody } from '../../http/body/read-body.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answerJson } from '../../http/exchange/response-writer.ts';
import type { BillingEvent } from '../../store/billing-record.ts';
import type { BillingParts } from '../payment-provider.ts';
import type { PaymentReconciliation } from '../payment-reconciliation.ts';
import { isOfInterest, orderIdOf, readStripeEvent, type StripeEvent } from './stripe-events.ts';
import { StripeProvider } from './stripe-provider.ts';

const MAX_BODY = 256 * 1024;
/** Maximum number of bodies that are read at once, signed or not. */
const MAX_READ = 128;
/** Maximum number of verified events that are applied at once, so that a flood of events does not delay buyers. */
const MAX_APPLIED = 64;
const BUSY = 'Too many events at once.';
/** Stripe's own timeout is about as long. */
const PACE: BodyPace = { silence: 5_000, grace: 10_000, rate: 64 * 1024 };

interface WebhooksOptions
  extends Pick<BillingParts, 'store' | 'provider' | 'config' | 'logger' | 'metrics' | 'now'> {
  readonly reconciliation: PaymentReconciliation;
}

type Outcome = 'applied' | 'known' | 'foreign' | 'ignored';

export class Webhooks {
  readonly #parts: WebhooksOptions;
  readonly #reading = new EventSlots(MAX_READ);
  readonly #applying = new EventSlots(MAX_APPLIED);

  constructor(parts: WebhooksOptions) {
    this.#parts = parts;
  }

  /**
   * @throws GatewayError `unknown_url` when Stripe is not the provider, `unsupported_content_encoding`, `request_too_large`,
   *   `invalid_signature`, `invalid_event`, `payment_unavailable`, `store_unavailable`
   */
  async answer(exchange: Exchange): Promise<void> {
    const { metrics } = this.#parts;
    const provider = this.#parts.provider();
    const secret = this.#parts.config().billing?.webhook_secret;
    if (!(provider instanceof StripeProvider) || secret === undefined) throw new GatewayError('unknown_url');
    // The signature covers the bytes as sent, and Stripe does not compress them.
    if (exchange.request.headers['content-encoding'] !== undefined)
      throw new GatewayError('unsupported_content_encoding', 'Send events without content-encoding.');
    try {
      const body = await this.#reading.run(() => readBody(exchange, MAX_BODY, PACE));
      const event = readStripeEvent(
        body,
        exchange.request.headers['stripe-signature'],
        secret,
        this.#parts.now(),
      );
      const outcome = await this.#applying.run(() => this.#apply(event, provider));
      metrics.billing.events.inc({ outcome });
      answerJson(exchange, 200, { received: true, outcome }, { 'cache-control': 'no-store' });
    } catch (error) {
      metrics.billing.events.inc({ outcome: outcomeOf(error) });
      throw error;
    }
  }

  async #apply(event: StripeEvent, provider: StripeProvider): Promise<Outcome> {
    const { store, reconciliation, logger } = this.#parts;
    const now = this.#parts.now();
    if (event.livemode !== provider.isLive) {
      logger.warn(
        { event: event.id, livemode: event.livemode },
        'rejected an event of the other mode (live or test)',
      );
      throw new GatewayError('invalid_event');
    }
    const record: BillingEvent = { id: event.id, type: event.type, at: new Date(now).toISOString() };
    if (await store.isEventKnown(event.id)) return 'known';
    // Connected accounts have no orders of this gateway.
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

/** Runs one step of some events at a time, and no more. */
export class EventSlots {
  readonly #max: number;
  #taken = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** @throws GatewayError `payment_unavailable` when all slots are taken, with a wait */
  async run<T>(step: () => Promise<T>): Promise<T> {
    if (this.#taken >= this.#max) throw new GatewayError('payment_unavailable', BUSY, { retryAfterMs: 5000 });
    this.#taken += 1;
    try {
      return await step();
    } finally {
      this.#taken -= 1;
    }
  }
}

function outcomeOf(error: unknown): 'refused' | 'busy' | 'failed' {
  if (!(error instanceof GatewayError)) return 'failed';
  if (error.message === BUSY) return 'busy';
  return error.status < 500 ? 'refused' : 'failed';
}
