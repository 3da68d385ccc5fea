// What falls due by time alone: a grace that is over, a paid period that ends, and orders of which no event came. One process
// of the fleet does it at a time.
import { randomUUID } from 'node:crypto';
import type { BillingStore, Order } from '../store/billing-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { PaymentReconciliation } from './payment-reconciliation.ts';

const EVERY_MS = 60_000;
/** Longer than a sweep: whoever dies in it is followed by another process after this. */
const TURN_MS = 180_000;
const MAX_ORDERS = 100;
const AT_ONCE = 4;
/** Others are to have their turn before one that cannot be settled is tried again. */
const AGAIN_MS = 10 * 60_000;
/** Stripe sends an event again for three days. */
const EVENTS_KEPT_MS = 30 * 86_400_000;
const UNPAID_KEPT_MS = 30 * 86_400_000;
const MAX_FORGOTTEN = 500;

interface SweepOptions {
  readonly store: BillingStore;
  readonly reconciliation: PaymentReconciliation;
  /** Whether somebody takes payments. */
  readonly isOn: () => boolean;
  readonly logger: Pick<Logger, 'warn'>;
  readonly metrics: Pick<Metrics, 'billing'>;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

export class Sweep {
  readonly #parts: SweepOptions;
  readonly #now: () => number;
  readonly #owner = randomUUID();
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #isStopped = false;

  constructor(parts: SweepOptions) {
    this.#parts = parts;
    this.#now = parts.now ?? Date.now;
  }

  start(): void {
    this.#plan();
  }

  /** Resolves when the sweep that runs has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  /** One sweep, now. Never rejects. @returns whether it was this process's turn */
  async run(): Promise<boolean> {
    const { store, logger, metrics, isOn } = this.#parts;
    if (!isOn()) return false;
    try {
      const now = this.#now();
      const at = new Date(now).toISOString();
      const until = new Date(now + TURN_MS).toISOString();
      if (!(await store.takeTask('billing sweep', this.#owner, at, until))) {
        // What this process counted before is old by now.
        metrics.billing.orders.reset();
        return false;
      }
      await this.#settleAll(await store.dueOrders(at, MAX_ORDERS));
      const before = (kept: number) => new Date(now - kept).toISOString();
      await store.forget(before(EVENTS_KEPT_MS), before(UNPAID_KEPT_MS), MAX_FORGOTTEN);
      await this.#count();
      return true;
    } catch (error) {
      logger.warn({ err: error }, 'orders could not be looked at; they will be in a minute');
      return true;
    }
  }

  async #settleAll(orders: readonly Order[]): Promise<void> {
    const left = [...orders];
    const work = async () => {
      for (let order = left.shift(); order !== undefined && !this.#isStopped; order = left.shift()) {
        await this.#settle(order);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  }

  async #settle(order: Order): Promise<void> {
    const { reconciliation, store, logger, metrics } = this.#parts;
    try {
      await reconciliation.settle(order.id);
      metrics.billing.sweeps.inc({ outcome: 'settled' });
    } catch (error) {
      metrics.billing.sweeps.inc({ outcome: 'failed' });
      logger.warn({ order: order.id, err: error }, 'an order could not be looked at');
      const [at, dueAt] = [0, AGAIN_MS].map((later) => new Date(this.#now() + later).toISOString());
      // Whoever wrote since has said when it is due.
      await store
        .changeOrder(order.id, order.version, { dueAt: dueAt ?? null }, at ?? '')
        .catch(() => undefined);
    }
  }

  async #count(): Promise<void> {
    const { store, metrics } = this.#parts;
    metrics.billing.orders.reset();
    for (const [state, count] of await store.countOrders()) metrics.billing.orders.set({ state }, count);
  }

  /** Between half of the time and all of it, so that replicas that started together do not ask together for ever. */
  #plan(): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(
      () => {
        this.#running = this.run().then(() => this.#plan());
      },
      EVERY_MS * (0.5 + Math.random() / 2),
    );
    this.#timer.unref();
  }
}
