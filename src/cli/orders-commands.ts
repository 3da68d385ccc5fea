// `tollgate orders`: shows orders, and the few changes that support may make. billing/ has the rules.
import { announceChanged } from '../auth/holder-change.ts';
import { Providers } from '../billing/billing-wiring.ts';
import { FAKE_EVENTS, FakeProvider } from '../billing/fake-provider.ts';
import { InvoiceProvider } from '../billing/invoice-provider.ts';
import type { PaymentProvider } from '../billing/payment-provider.ts';
import { PaymentReconciliation } from '../billing/payment-reconciliation.ts';
import type { Config } from '../config/schema/config-schema.ts';
import { orderFields } from '../console/record-fields.ts';
import { ORDER_STATES, type Order } from '../store/billing-record.ts';
import type { Store } from '../store/store.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { createMetrics } from '../telemetry/metrics/all-metrics.ts';
import { Outbound } from '../upstream/outbound/outbound.ts';
import { type Arguments, type OptionKind, oneOf, readArguments, readTime, UsageError } from './arguments.ts';
import { runSubcommand, writeList } from './support-command.ts';
import { fieldLines, openFleet, withStore } from './support-desk.ts';
import { type CommandIo, write } from './terminal.ts';

const ORDERS_USAGE = `Usage: tollgate orders COMMAND [--config FILE]

  list [--state STATE] [--json]     oldest first
  show ORDER [--json]               one order
  check ORDER [--json]              reconciles it with the payment provider
  cancel ORDER [--now | --undo] [--json]
                                    ends its subscription with the paid period; --now ends it and its tier at once
  refund ORDER [--json]             refunds the last payment in full, and ends its subscription and its tier
  portal-link ORDER                 the URL of the customer portal, for the buyer of the order
  paid ORDER [--until TIME] [--json]
                                    an order by invoice: marks it as paid, until 2030-01-31 or for 30d
  trust ORDER [--json]              releases an order held by a fraud warning
  lapse ORDER [--as EVENT] [--json] with the test provider: simulates a payment event; the default is failed

ORDER is the name of an order or of its payment session; STATE is ${ORDER_STATES.join(', ')};
EVENT is ${FAKE_EVENTS.join(', ')}. The key of a paid order: tollgate keys issue --order ORDER.
`;

const DAY = 86_400_000;

const TEXT = { name: 'orders', usage: ORDERS_USAGE };

export { orderFields };

const COMMANDS = { list, show, check, cancel, refund, 'portal-link': portalLink, paid, trust, lapse };

/**
 * @param argv arguments after `tollgate orders`
 * @returns the exit code: 0 done, 1 rejected or not found, 2 wrong usage
 */
export function runOrders(argv: readonly string[], io: CommandIo): Promise<number> {
  return runSubcommand(TEXT, COMMANDS, argv, io);
}

/** Finds an order by its name or that of its payment session. @throws Error when there is none */
export async function findOrder({ billing }: Store, name: string): Promise<Order> {
  const order = (await billing.findOrder({ id: name })) ?? (await billing.findOrder({ session: name }));
  if (order === undefined) throw new Error('no order with this name');
  return order;
}

/** An order in one line, for people. */
export function orderLine(order: Order): string {
  const ends = order.endsAt === null ? '' : `, ends at ${order.endsAt}`;
  const until = `${order.paidUntil === null ? '' : `, paid until ${order.paidUntil}`}${ends}`;
  const why = order.reason === null ? '' : `: ${order.reason}`;
  return `${order.createdAt}  ${order.id} ${order.tier} ${order.state}, ${order.standing}${until}${why}`;
}

async function list(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', state: 'text', json: 'flag' });
  const wanted = given.text('state');
  const state = wanted === undefined ? undefined : oneOf(wanted, ORDER_STATES, 'state');
  return withStore(given, io, 'must exist', async (store) => {
    const page = (limit: number, last?: Order) =>
      store.billing.listOrders({ limit, ...(state && { state }), ...(last && { after: last }) });
    await writeList(io, given.flag('json'), page, orderFields, orderLine);
    return 0;
  });
}

async function show(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', json: 'flag' }, ['ORDER']);
  return withStore(given, io, 'must exist', async (store) => {
    const order = await findOrder(store, given.operands[0] ?? '');
    await write(io.stdout, `${orderText(order, given.flag('json'))}\n`);
    return 0;
  });
}

async function check(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(argv, {}, io, ({ order, reconciliation }) => reconciliation.settle(order.id));
}

async function cancel(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(
    argv,
    { now: 'flag', undo: 'flag' },
    io,
    async ({ order, provider, reconciliation, given }) => {
      if (given.flag('now') && given.flag('undo')) throw new UsageError('give --now or --undo, not both');
      if (order.state === 'pending') await provider.end(order);
      else if (order.subscription === null)
        throw new Error(
          'the order has no subscription to cancel; `tollgate orders refund` takes a payment back',
        );
      else if (given.flag('undo') && order.isCancelled)
        throw new Error('the subscription has ended, which is final; the holder can order again');
      else
        await provider.cancel(order, given.flag('now') ? 'now' : given.flag('undo') ? 'never' : 'period_end');
      return reconciliation.settle(order.id);
    },
  );
}

async function refund(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(argv, {}, io, async ({ order, provider, reconciliation }) => {
    if (order.paidAt === null) throw new Error('nothing was paid for the order');
    await provider.refund(order);
    return reconciliation.settle(order.id);
  });
}

async function portalLink(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(argv, {}, io, async ({ order, provider, config }) => {
    const url = await provider.portal(order, config.dynamic.public_url);
    if (url === undefined) throw new Error('the order has no subscription with a customer portal');
    return url;
  });
}

async function paid(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(argv, { until: 'text' }, io, async ({ order, provider, reconciliation, given }) => {
    if (!(provider instanceof InvoiceProvider))
      throw new Error('paid works only for orders by invoice; `billing.provider` is not `invoice`');
    if (order.isCancelled) throw new Error('the order has ended, which is final; the holder can order again');
    const until = given.text('until');
    if (order.mode === 'payment' && until !== undefined)
      throw new UsageError('--until is for a price by the month or year; this order is paid once');
    if (order.mode === 'subscription' && until === undefined)
      throw new UsageError('--until is missing: the end of the period that was paid, such as 2030-01-31');
    await provider.markPaid(order, until === undefined ? null : endOfPeriod(until));
    return reconciliation.settle(order.id);
  });
}

/** A day counts to its end, UTC. */
function endOfPeriod(until: string): number {
  const now = Date.now();
  const at = Date.parse(readTime(until, '--until', now, 1)) + (/^\d{4}-/.test(until) ? DAY - 1 : 0);
  if (at > now) return at;
  throw new UsageError('--until is in the past');
}

async function trust(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(argv, {}, io, async ({ order, store, reconciliation }) => {
    const at = new Date().toISOString();
    const changed = await store.billing.changeOrder(order.id, order.version, { isTrusted: true }, at);
    if (changed === undefined)
      throw new Error('the order was changed at the same time; run the command again');
    return reconciliation.settle(order.id);
  });
}

async function lapse(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(argv, { as: 'text' }, io, async ({ order, config, provider, reconciliation, given }) => {
    if (!(provider instanceof FakeProvider))
      throw new Error('lapse works only with the test provider; `billing.provider` is not `test`');
    const event = oneOf(given.text('as') ?? 'failed', FAKE_EVENTS, 'event');
    const grace = config.dynamic.billing?.grace ?? 0;
    // Dated before the grace period, so that the event takes effect at once.
    await provider.simulate(order, event, event === 'failed' ? grace + 1000 : 0);
    return reconciliation.settle(order.id);
  });
}

function orderText(order: Order, isJson: boolean): string {
  const fields = orderFields(order);
  return isJson ? JSON.stringify(fields, null, 2) : fieldLines(fields, 14).join('\n');
}

interface Desk {
  readonly order: Order;
  readonly store: Store;
  readonly config: Config;
  /** The one that the order was made with. */
  readonly provider: PaymentProvider;
  readonly reconciliation: PaymentReconciliation;
  readonly given: Arguments<string>;
}

/** Runs `work` on the named order and prints its result: the order, or a line. */
async function onOrder(
  argv: readonly string[],
  options: Readonly<Record<string, OptionKind>>,
  io: CommandIo,
  work: (desk: Desk) => Promise<Order | string>,
): Promise<number> {
  const given = readArguments<string>(argv, { config: 'text', json: 'flag', ...options }, ['ORDER']);
  return withStore(given, io, 'must exist', async (store, config) => {
    const order = await findOrder(store, given.operands[0] ?? '');
    await using fleet = await openFleet(config);
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
      const result = await work({ order, store, config, provider, reconciliation, given });
      const text = typeof result === 'string' ? result : orderText(result, given.flag('json'));
      await write(io.stdout, `${text}\n`);
      return 0;
    } finally {
      providers.close();
    }
  });
}
