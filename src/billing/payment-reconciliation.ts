// The only way in which an order is updated from its payment; webhook, landing page, sweep and support call it. It reads the
// order, asks the provider, and writes with optimistic locking: it starts again when the order changed in between.
import type { BillingConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type { BillingEvent, Order } from '../store/billing-record.ts';
import type { KeyRecord } from '../store/key-record.ts';
import { changedTarget, orderVerdict, replacedBy } from './order-verdict.ts';
import type { BillingParts, PaymentProvider } from './payment-provider.ts';

/** Attempts when replicas settle one order at the same time. */
const MAX_ATTEMPTS = 8;

interface PaymentReconciliationOptions
  extends Pick<BillingParts, 'store' | 'provider' | 'logger' | 'metrics' | 'now'> {
  readonly issuer: Pick<BillingParts['issuer'], 'announceChanged'>;
  readonly config: () => BillingConfig | undefined;
}

interface Hint {
  /** Recorded in the same transaction. */
  readonly event?: BillingEvent;
  /** The session, for an order that has none yet. */
  readonly session?: string | undefined;
}

interface Work {
  readonly events: BillingEvent[];
  session: string | undefined;
  readonly done: Promise<Order>;
}

export class PaymentReconciliation {
  readonly #parts: PaymentReconciliationOptions;
  /** Single-flight by order: calls that have not asked the provider yet. Callers join until then. */
  readonly #waiting = new Map<string, Work>();
  readonly #running = new Map<string, Promise<unknown>>();

  constructor(parts: PaymentReconciliationOptions) {
    this.#parts = parts;
  }

  /**
   * Asks the provider about an order and writes the result. Concurrent callers share a call that has not asked yet.
   *
   * @returns the order after the write
   * @throws GatewayError `unknown_order`, `payment_unavailable`, `store_unavailable`
   */
  settle(id: string, { event, session }: Hint = {}): Promise<Order> {
    let work = this.#waiting.get(id);
    if (work === undefined) {
      const events: BillingEvent[] = [];
      const before = this.#running.get(id) ?? Promise.resolve();
      const begin = async (): Promise<Order> => {
        const own = this.#waiting.get(id);
        this.#waiting.delete(id);
        return this.#settle(id, events, own?.session);
      };
      const done = before.then(begin, begin);
      const settled = done
        .catch(() => undefined)
        .finally(() => {
          if (this.#running.get(id) === settled) this.#running.delete(id);
        });
      this.#running.set(id, settled);
      work = { events, session: undefined, done };
      this.#waiting.set(id, work);
    }
    if (event !== undefined) work.events.push(event);
    work.session ??= session;
    return work.done;
  }

  async #settle(id: string, events: readonly BillingEvent[], session: string | undefined): Promise<Order> {
    const { store } = this.#parts;
    const unique = [...new Map(events.map((event) => [event.id, event])).values()];
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      // Read before the provider is asked: the facts that are written must be newer than the order that they overwrite.
      const before = await store.findOrder({ id });
      if (before === undefined) throw new GatewayError('unknown_order');
      const { provider, config } = this.#responsible(before);
      if (before.isReplaced && !before.isCancelled) await provider.end(before);
      const facts = await provider.readFacts(before, session);
      const now = this.#parts.now();
      const change = orderVerdict(before, facts, { now, grace: config.grace });
      const outcome = await store.settle({
        before,
        change,
        events: unique,
        at: new Date(now).toISOString(),
        targetOf: (older, newer) => changedTarget(older, newer, config.on_lapse),
        replacedBy,
      });
      if (outcome.kind === 'stale') continue;
      if (outcome.kind === 'known') return (await store.findOrder({ id })) ?? before;
      await this.#announce(before, outcome.order, outcome.changed);
      return outcome.order;
    }
    throw new GatewayError('payment_unavailable', 'The order is being updated by another process.');
  }

  /** @throws GatewayError `payment_unavailable` when the order belongs to another provider than the configured one */
  #responsible(order: Order): { provider: PaymentProvider; config: BillingConfig } {
    const [provider, config] = [this.#parts.provider(), this.#parts.config()];
    if (provider === undefined || config === undefined || provider.name !== order.provider) {
      throw new GatewayError('payment_unavailable', undefined, {
        cause: new Error(`order ${order.id} belongs to provider ${order.provider}, which is not configured`),
        retry: 'no',
      });
    }
    return { provider, config };
  }

  async #announce(before: Order, order: Order, changed: readonly KeyRecord[]): Promise<void> {
    const { issuer, logger, metrics } = this.#parts;
    if (changed.length > 0) await issuer.announceChanged(changed, order.updatedAt);
    if (before.state !== order.state || before.standing !== order.standing) {
      metrics.billing.transitions.inc({ state: order.state, standing: order.standing });
      const { id, tier, state, standing, reason, holderId } = order;
      const line = { order: id, tier, state, standing, reason, holder: holderId };
      if (state === 'refused')
        logger.warn(line, 'the payment of an order does not match it; review the order');
      else logger.info(line, 'an order changed');
    }
    // Cancel the replaced orders at the provider now. If that fails, the sweep does it, because they are due.
    if (!isReplacing(before, order)) return;
    const orders = await this.#parts.store.ordersOf(order.holderId ?? '');
    for (const each of orders) {
      if (each.isReplaced && !each.isCancelled) this.settle(each.id).catch(() => undefined);
    }
  }
}

/** Whether the order was paid just now, for a holder who may have others. */
function isReplacing(before: Order, order: Order): boolean {
  return before.state === 'pending' && order.state === 'claimed' && order.holderId !== null;
}
