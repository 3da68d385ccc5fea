// Checks orders that are due without an event: after a grace period, at the end of a paid period, and when events were lost.
// One process of the fleet does it at a time.
import { randomUUID } from 'node:crypto';
import { Repeat } from '../repeat.ts';
import type { Order } from '../store/billing-record.ts';
import type { BillingParts } from './payment-provider.ts';
import type { PaymentReconciliation } from './payment-reconciliation.ts';

const EVERY_MS = 60_000;
/** The lease on the task, longer than a sweep. After it another process takes over from one that died. */
const LEASE_MS = 180_000;
const MAX_ORDERS = 100;
const AT_ONCE = 4;
/** An order that cannot be settled is retried after this, so that it does not delay the others. */
const RETRY_MS = 10 * 60_000;
/** Stripe repeats an event for three days. */
const EVENTS_KEPT_MS = 30 * 86_400_000;
const UNPAID_KEPT_MS = 30 * 86_400_000;
const MAX_FORGOTTEN = 500;

interface SweepOptions extends Pick<BillingParts, 'store' | 'provider' | 'logger' | 'metrics' | 'now'> {
  readonly reconciliation: PaymentReconciliation;
}

export class Sweep {
  readonly #parts: SweepOptions;
  readonly #owner = randomUUID();
  /** Jitter keeps replicas that started together from sweeping together. */
  readonly #sweeps = new Repeat(() => this.run().then(pause));

  constructor(parts: SweepOptions) {
    this.#parts = parts;
  }

  start(): void {
    this.#sweeps.start(pause());
  }

  /** Resolves when the running sweep has ended. */
  stop(): Promise<void> {
    return this.#sweeps.stop();
  }

  /** Runs a sweep. Never rejects. @returns whether this process had the lease */
  async run(): Promise<boolean> {
    const { store, logger, metrics, provider } = this.#parts;
    if (provider() === undefined) return false;
    try {
      const now = this.#parts.now();
      const at = new Date(now).toISOString();
      const until = new Date(now + LEASE_MS).toISOString();
      if (!(await store.takeTask('billing sweep', this.#owner, at, until))) {
        // The counts of this process are outdated; another process has the current ones.
        metrics.billing.orders.reset();
        return false;
      }
      await this.#settleAll(await store.dueOrders(at, MAX_ORDERS));
      const before = (kept: number) => new Date(now - kept).toISOString();
      await store.forget(before(EVENTS_KEPT_MS), before(UNPAID_KEPT_MS), MAX_FORGOTTEN);
      await this.#count();
      return true;
    } catch (error) {
      logger.warn({ err: error }, 'failed to check orders; retrying in a minute');
      return true;
    }
  }

  async #settleAll(orders: readonly Order[]): Promise<void> {
    const left = [...orders];
    const work = async () => {
      for (let order = left.shift(); order !== undefined && !this.#sweeps.isStopped; order = left.shift()) {
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
      logger.warn({ order: order.id, err: error }, 'failed to check an order');
      const now = this.#parts.now();
      const [at, dueAt] = [new Date(now).toISOString(), new Date(now + RETRY_MS).toISOString()];
      // A concurrent write has set the next check itself.
      await store.changeOrder(order.id, order.version, { dueAt }, at).catch(() => undefined);
    }
  }

  async #count(): Promise<void> {
    const { store, metrics } = this.#parts;
    metrics.billing.orders.reset();
    for (const [state, count] of await store.countOrders()) metrics.billing.orders.set({ state }, count);
  }
}

const pause = () => EVERY_MS * (0.5 + Math.random() / 2);
