// The one way in which an order learns of its payment: webhook, landing page, sweep and support all come here. It asks the
// provider, judges, and writes, if nobody has written since it read; then it asks again.
import type { KeyIssuer } from '../auth/key-issuer.ts';
import type { BillingConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type { BillingEvent, BillingStore, Order } from '../store/billing-record.ts';
import type { KeyRecord } from '../store/key-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { changedTarget, orderVerdict, replacedBy } from './order-verdict.ts';
import type { PaymentProvider } from './payment-provider.ts';

/** Replicas that settle one order at the same time make each other ask again. */
const ROUNDS = 8;

interface PaymentReconciliationOptions {
  readonly store: BillingStore;
  readonly issuer: Pick<KeyIssuer, 'announceChanged'>;
  /** The one that the configuration in force names. */
  readonly provider: () => PaymentProvider | undefined;
  readonly config: () => BillingConfig | undefined;
  readonly logger: Pick<Logger, 'info' | 'warn'>;
  readonly metrics: Pick<Metrics, 'billing'>;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

interface Hint {
  /** To be remembered with what comes of it. */
  readonly event?: BillingEvent;
  /** The session, for an order that does not know its own. */
  readonly session?: string | undefined;
}

interface Work {
  readonly events: BillingEvent[];
  session: string | undefined;
  readonly done: Promise<Order>;
}

export class PaymentReconciliation {
  readonly #parts: PaymentReconciliationOptions;
  readonly #now: () => number;
  /** Per order: what has not begun to ask. Everybody who comes before it does so is served by it. */
  readonly #waiting = new Map<string, Work>();
  readonly #running = new Map<string, Promise<unknown>>();

  constructor(parts: PaymentReconciliationOptions) {
    this.#parts = parts;
    this.#now = parts.now ?? Date.now;
  }

  /**
   * Asks the provider about an order and writes what it comes to. Callers at the same time share one question, if it has not
   * been asked yet when they come.
   *
   * @returns the order as it is then
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
    for (let round = 0; round < ROUNDS; round += 1) {
      // Before the provider is asked: what is written must be newer than what is overwritten.
      const before = await store.findOrder({ id });
      if (before === undefined) throw new GatewayError('unknown_order');
      const { provider, config } = this.#responsible(before);
      if (before.isReplaced && !before.isCancelled) await provider.end(before);
      const facts = await provider.look(before, session);
      const now = this.#now();
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
      await this.#tell(before, outcome.order, outcome.changed);
      return outcome.order;
    }
    throw new GatewayError('payment_unavailable', 'The order is being settled elsewhere.');
  }

  /** @throws GatewayError `payment_unavailable` where the order is of another provider than the present one */
  #responsible(order: Order): { provider: PaymentProvider; config: BillingConfig } {
    const [provider, config] = [this.#parts.provider(), this.#parts.config()];
    if (provider === undefined || config === undefined || provider.name !== order.provider) {
      throw new GatewayError('payment_unavailable', undefined, {
        cause: new Error(`order ${order.id} is of provider ${order.provider}, which is not configured`),
        retry: 'no',
      });
    }
    return { provider, config };
  }

  async #tell(before: Order, order: Order, changed: readonly KeyRecord[]): Promise<void> {
    const { issuer, logger, metrics } = this.#parts;
    if (changed.length > 0) await issuer.announceChanged(changed, order.updatedAt);
    if (before.state !== order.state || before.standing !== order.standing) {
      metrics.billing.transitions.inc({ state: order.state, standing: order.standing });
      const { id, tier, state, standing, reason, holderId } = order;
      const line = { order: id, tier, state, standing, reason, holder: holderId };
      if (state === 'refused') logger.warn(line, 'an order was paid otherwise than it was made');
      else logger.info(line, 'an order changed');
    }
    // What it replaced is ended at the provider now; where that fails the sweep does it, for which it is due.
    if (!isReplacing(before, order)) return;
    const orders = await this.#parts.store.ordersOf(order.holderId ?? '');
    for (const each of orders) {
      if (each.isReplaced && !each.isCancelled) this.settle(each.id).catch(() => undefined);
    }
  }
}

/** Whether the order came to be paid just now, for a holder who had others. */
function isReplacing(before: Order, order: Order): boolean {
  return before.state === 'pending' && order.state === 'claimed' && order.holderId !== null;
}
