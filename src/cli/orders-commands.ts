// `tollgate orders`: shows orders, and the few changes that support may make. billing/ has the rules.
import { announceChanged } from '../auth/holder-change.ts';
import { Providers } from '../billing/billing-wiring.ts';
import { FAKE_EVENTS, FakeProvider } from '../billing/fake-provider.ts';
import { PaymentReconciliation } from '../billing/payment-reconciliation.ts';
import type { Config } from '../config/schema/config-schema.ts';
import { ORDER_STATES, type Order } from '../store/billing-record.ts';
import type { Store } from '../store/store.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { createMetrics } from '../telemetry/metrics/all-metrics.ts';
import { Outbound } from '../upstream/outbound/outbound.ts';
import { oneOf, readArguments } from './arguments.ts';
import { type CommandIo, runSubcommand, write, writeList } from './support-command.ts';
import { fieldLines, openFleet, withStore } from './support-desk.ts';

const ORDERS_USAGE = `Usage: tollgate orders COMMAND [--config FILE]

  list [--state STATE] [--json]
  show ORDER [--json]               one order
  check ORDER [--json]              reconciles it with the payment provider
  trust ORDER [--json]              releases an order held by a fraud warning
  lapse ORDER [--as EVENT] [--json] with the test provider: simulates a payment event; the default is failed

ORDER is the name of an order or of its payment session; STATE is ${ORDER_STATES.join(', ')};
EVENT is ${FAKE_EVENTS.join(', ')}. The key of a paid order: tollgate keys issue --order ORDER.
`;

const TEXT = { name: 'orders', usage: ORDERS_USAGE };
const COMMANDS = { list, show, check, trust, lapse };

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
  const until = order.paidUntil === null ? '' : `, paid until ${order.paidUntil}`;
  const why = order.reason === null ? '' : `: ${order.reason}`;
  return `${order.createdAt}  ${order.id} ${order.tier} ${order.state}, ${order.standing}${until}${why}`;
}

/** An order as `--json` shows it. */
export function orderFields(order: Order) {
  return {
    order: order.id,
    tier: order.tier,
    state: order.state,
    standing: order.standing,
    reason: order.reason,
    amount: order.amount,
    currency: order.currency,
    interval: order.interval,
    provider: order.provider,
    live: order.isLive,
    price: order.price,
    session: order.session,
    subscription: order.subscription,
    payment: order.payment,
    customer: order.customer,
    cancelled: order.isCancelled,
    trusted: order.isTrusted,
    replaced: order.isReplaced,
    holder: order.holderId,
    key: order.keyPrefix,
    key_used_at: order.keyUsedAt,
    created_at: order.createdAt,
    paid_at: order.paidAt,
    claimed_at: order.claimedAt,
    paid_until: order.paidUntil,
    due_at: order.dueAt,
  };
}

async function list(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', state: 'text', json: 'flag' });
  const wanted = given.text('state');
  const state = wanted === undefined ? undefined : oneOf(wanted, ORDER_STATES, 'state');
  return withStore(given, io, 'must exist', async (store) => {
    const page = (limit: number, last?: Order) =>
      store.billing.listOrders({ limit, ...(state && { state }), ...(last && { after: last.id }) });
    await writeList(io, given.flag('json'), page, orderFields, orderLine);
    return 0;
  });
}

async function show(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(argv, {}, io, async ({ order }) => order);
}

async function check(argv: readonly string[], io: CommandIo): Promise<number> {
  return onOrder(argv, {}, io, ({ order, reconciliation }) => reconciliation.settle(order.id));
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
  return onOrder(argv, { as: 'text' }, io, async ({ order, config, provider, reconciliation, as }) => {
    if (!(provider instanceof FakeProvider))
      throw new Error('lapse works only with the test provider; `billing.provider` is not `test`');
    const event = oneOf(as ?? 'failed', FAKE_EVENTS, 'event');
    const grace = config.dynamic.billing?.grace ?? 0;
    // Dated before the grace period, so that the event takes effect at once.
    await provider.simulate(order, event, event === 'failed' ? grace + 1000 : 0);
    return reconciliation.settle(order.id);
  });
}

interface Desk {
  readonly order: Order;
  readonly store: Store;
  readonly config: Config;
  readonly provider: ReturnType<Providers['of']>;
  readonly reconciliation: PaymentReconciliation;
  readonly as: string | undefined;
}

/** Runs `work` on the named order and prints the result. */
async function onOrder(
  argv: readonly string[],
  options: { readonly as?: 'text' },
  io: CommandIo,
  work: (desk: Desk) => Promise<Order>,
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
      const result = await work({ order, store, config, provider, reconciliation, as: given.text('as') });
      const fields = orderFields(result);
      const text = given.flag('json') ? JSON.stringify(fields, null, 2) : fieldLines(fields, 14).join('\n');
      await write(io.stdout, `${text}\n`);
      return 0;
    } finally {
      providers.close();
    }
  });
}
