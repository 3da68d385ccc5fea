// `tollgate orders`: shows orders, and the few changes that support may make. billing/ has the rules.
import { announceChanged } from '../auth/holder-change.ts';
import { Providers } from '../billing/billing-wiring.ts';
import { FAKE_EVENTS, FakeProvider } from '../billing/fake-provider.ts';
import { InvoiceProvider } from '../billing/invoice-provider.ts';
import { SUSPECTED } from '../billing/order-verdict.ts';
import type { PaymentProvider } from '../billing/payment-provider.ts';
import { PaymentReconciliation } from '../billing/payment-reconciliation.ts';
import type { Config } from '../config/schema/config-schema.ts';
import { dayStart } from '../config/schema/units.ts';
import { orderFields } from '../console/record-fields.ts';
import { ORDER_STATES, type Order } from '../store/billing-record.ts';
import type { Store } from '../store/store.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { createMetrics } from '../telemetry/metrics/all-metrics.ts';
import { Outbound } from '../upstream/outbound/outbound.ts';
import { readTime, UsageError } from './program/arguments.ts';
import {
  choice,
  command,
  flag,
  type Given,
  group,
  type Operand,
  SHOW_OPTIONS,
  text,
} from './program/command.ts';
import { print, writeList } from './program/table.ts';
import { type CommandIo, write } from './program/terminal.ts';
import { fieldLines, openFleet, withStore } from './support-desk.ts';

const DAY = 86_400_000;
const ORDER: Operand = { name: 'ORDER', about: 'the order, or its payment session' };
const EXAMPLE = '5b1f7c1e-8d3a-4a3b-9f0e-0c7d2f6a9e21';

/** Finds an order by its name or that of its payment session. @throws Error when there is none */
export async function findOrder({ billing }: Store, name: string): Promise<Order> {
  const order = (await billing.findOrder({ id: name })) ?? (await billing.findOrder({ session: name }));
  if (order === undefined) throw new Error('no order with this name');
  return order;
}

/** The orders of a holder, for people; no lines without one. */
export function orderLines(orders: readonly ReturnType<typeof orderFields>[]): readonly string[] {
  return orders.length === 0 ? [] : ['orders', ...orders.map((order) => `  ${orderLine(order)}`)];
}

function orderLine(order: ReturnType<typeof orderFields>): string {
  const ends = order.ends_at === null ? '' : `, ends at ${order.ends_at}`;
  const until = `${order.paid_until === null ? '' : `, paid until ${order.paid_until}`}${ends}`;
  const why = order.reason === null ? '' : `: ${order.reason}`;
  return `${order.created_at}  ${order.order} ${order.tier} ${order.state}, ${order.standing}${until}${why}`;
}

const COLUMNS = ['created_at', 'order', 'tier', 'state', 'standing', 'paid_until', 'ends_at', 'reason'];

const list = command('list', 'list orders, oldest first', {
  options: {
    state: choice(ORDER_STATES, 'STATE', 'only in this state'),
    ...SHOW_OPTIONS,
  },
  examples: ['orders list --state paid', 'orders list --json'],
  run: (given, io) =>
    withStore(given, io, 'must exist', async (store) => {
      const { state } = given;
      const page = (limit: number, last?: Order) => store.billing.listOrders({ limit, state, after: last });
      return writeList(io, given.json, page, orderFields, COLUMNS);
    }),
});

const show = command('show', 'show an order', {
  operand: ORDER,
  options: SHOW_OPTIONS,
  examples: [`orders show ${EXAMPLE}`],
  run: (given, io, operand) =>
    withStore(given, io, 'must exist', async (store) => {
      return printOrder(io, given.json, await findOrder(store, operand));
    }),
});

const check = command('check', 'reconcile an order with the payment provider', {
  operand: ORDER,
  options: SHOW_OPTIONS,
  examples: [`orders check ${EXAMPLE}`],
  run: onOrder(({ order, reconciliation }) => reconciliation.settle(order.id)),
});

const cancel = command('cancel', 'end the subscription of an order with the paid period', {
  operand: ORDER,
  options: {
    now: flag('end it and its tier at once', ['undo']),
    undo: flag('take a cancellation back', ['now']),
    ...SHOW_OPTIONS,
  },
  examples: [`orders cancel ${EXAMPLE}`, `orders cancel ${EXAMPLE} --now`],
  run: onOrder(async ({ order, provider, reconciliation }, { now, undo }) => {
    if (undo && order.state === 'pending')
      throw new Error('the order is not paid yet, so nothing is cancelled');
    else if (order.state === 'pending') await provider.end(order);
    else if (order.subscription === null)
      throw new Error(
        'the order has no subscription to cancel; `tollgate orders refund` takes a payment back',
      );
    else if (undo && order.isCancelled)
      throw new Error('the subscription has ended, which is final; the holder can order again');
    else await provider.cancel(order, now ? 'now' : undo ? 'never' : 'period_end');
    return reconciliation.settle(order.id);
  }),
});

const refund = command('refund', 'refund the last payment in full, and end the subscription and its tier', {
  operand: ORDER,
  options: SHOW_OPTIONS,
  examples: [`orders refund ${EXAMPLE}`],
  run: onOrder(async ({ order, provider, reconciliation }) => {
    if (order.paidAt === null) throw new Error('nothing was paid for the order');
    await provider.refund(order);
    return reconciliation.settle(order.id);
  }),
});

const portalLink = command(
  'portal-link',
  'print the URL of the customer portal, for the buyer of the order',
  {
    operand: ORDER,
    options: SHOW_OPTIONS,
    examples: [`orders portal-link ${EXAMPLE}`],
    run: onOrder(async ({ order, provider, config }) => {
      const url = await provider.portal(order, config.dynamic.public_url);
      if (url === undefined) throw new Error('the order has no subscription with a customer portal');
      return url;
    }),
  },
);

const paid = command('paid', 'mark an order by invoice as paid', {
  operand: ORDER,
  options: {
    until: text('TIME', 'the end of the period that was paid, such as 2030-01-31 or 30d'),
    ...SHOW_OPTIONS,
  },
  examples: [`orders paid ${EXAMPLE} --until 2030-01-31`],
  run: onOrder(async ({ order, provider, reconciliation }, { until }) => {
    if (!(provider instanceof InvoiceProvider))
      throw new Error('paid works only for orders by invoice; `billing.provider` is not `invoice`');
    if (order.isCancelled) throw new Error('the order has ended, which is final; the holder can order again');
    if (order.mode === 'payment' && until !== undefined)
      throw new UsageError('--until is for a price by the month or year; this order is paid once');
    if (order.mode === 'subscription' && until === undefined)
      throw new UsageError('--until is missing: the end of the period that was paid, such as 2030-01-31');
    await provider.markPaid(order, until === undefined ? null : endOfPeriod(until));
    return reconciliation.settle(order.id);
  }),
});

/** A day counts to its end, UTC. */
function endOfPeriod(until: string): number {
  const now = Date.now();
  const at = Date.parse(readTime(until, '--until', now, 1)) + (dayStart(until) === undefined ? 0 : DAY - 1);
  if (at > now) return at;
  throw new UsageError('--until is in the past');
}

const trust = command('trust', 'release an order that a fraud warning holds', {
  operand: ORDER,
  options: SHOW_OPTIONS,
  examples: [`orders trust ${EXAMPLE}`],
  run: onOrder(async ({ order: { id }, store, reconciliation }) => {
    const order = await reconciliation.settle(id);
    // Trust is permanent, so an order without a warning cannot be trusted in advance.
    if (order.reason !== SUSPECTED) throw new Error('no fraud warning holds the order');
    const at = new Date().toISOString();
    const changed = await store.billing.changeOrder(order.id, order.version, { isTrusted: true }, at);
    if (changed === undefined)
      throw new Error('the order was changed at the same time; run the command again');
    return reconciliation.settle(order.id);
  }),
});

const lapse = command('lapse', 'simulate a payment event, with the test provider', {
  operand: ORDER,
  options: { as: choice(FAKE_EVENTS, 'EVENT', 'the default is failed'), ...SHOW_OPTIONS },
  examples: [`orders lapse ${EXAMPLE} --as refunded`],
  run: onOrder(async ({ order, config, provider, reconciliation }, { as: event = 'failed' }) => {
    if (!(provider instanceof FakeProvider))
      throw new Error('lapse works only with the test provider; `billing.provider` is not `test`');
    const grace = config.dynamic.billing?.grace ?? 0;
    // Dated before the grace period, so that the event takes effect at once.
    if (!(await provider.simulate(order, event, event === 'failed' ? grace + 1000 : 0)))
      throw new Error(`nothing changed: ${event} does not happen to this order at present`);
    return reconciliation.settle(order.id);
  }),
});

function printOrder(io: CommandIo, isJson: boolean, order: Order): Promise<number> {
  const fields = orderFields(order);
  return print(io, isJson, fields, fieldLines(fields, 14));
}

interface Desk {
  readonly order: Order;
  readonly store: Store;
  readonly config: Config;
  /** The one that the order was made with. */
  readonly provider: PaymentProvider;
  readonly reconciliation: PaymentReconciliation;
}

/** Runs `work` on the named order and prints its result: the order, or a line. */
function onOrder<Options extends Given<typeof SHOW_OPTIONS>>(
  work: (desk: Desk, given: Options) => Promise<Order | string>,
) {
  return (given: Options, io: CommandIo, operand: string): Promise<number> =>
    withStore(given, io, 'must exist', async (store, config) => {
      const order = await findOrder(store, operand);
      await using fleet = await openFleet(config, io);
      const announcer = fleet?.confirmingAnnouncer();
      const metrics = createMetrics();
      const outbound = new Outbound(config.dynamic.outbound);
      const providers = new Providers({ store: store.billing, metrics, outbound });
      const provider = providers.of(config.dynamic.billing);
      const reconciliation = new PaymentReconciliation({
        store: store.billing,
        // Needs no secret, like a revocation: the replicas re-read the store.
        issuer: { announceChanged: (records, at) => announceChanged({ announcer }, records, at) },
        provider: () => provider,
        config: () => config.dynamic.billing,
        logger: createLogger(undefined, 'silent'),
        metrics,
        now: Date.now,
      });
      try {
        if (provider?.name !== order.provider)
          throw new Error('the order was made with another payment provider than `billing.provider` names');
        const result = await work({ order, store, config, provider, reconciliation }, given);
        if (typeof result !== 'string') return await printOrder(io, given.json, result);
        await write(io.stdout, `${result}\n`);
        return 0;
      } finally {
        providers.close();
      }
    });
}

export const ORDERS = group('orders', 'orders and their payments', [
  list,
  show,
  check,
  cancel,
  refund,
  portalLink,
  paid,
  trust,
  lapse,
]);
