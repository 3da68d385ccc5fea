// Orders and payments of a store from before subscriptions could be cancelled, and of an older version that runs beside.
import { expect, test } from 'vitest';
import { FakeProvider } from '../../src/billing/fake-provider.ts';
import { openStore } from '../../src/store/open.ts';
import { MIGRATIONS } from '../../src/store/schema/migrations.ts';
import { migrateTo, run } from '../store/older.ts';
import { POSTGRES_KIND, STORE_KINDS } from '../store/stores.ts';

const AT = '2030-01-01T00:00:00.000Z';

/** Statements of the older version: they name no newer column. */
const older = (id: string): string[] => [
  `insert into orders (id, tier, price, amount, currency, mode, "interval", provider, is_live, base_tier, created_at, state,
     standing, paid_until, updated_at, version)
   values ('${id}', 'Lite', 'played_Lite', 900, 'usd', 'subscription', 'month', 'test', 0, 'Free', '${AT}', 'claimed',
     'active', '2030-01-31T00:00:00.000Z', '${AT}', 1)`,
  `insert into test_payments (session, order_id, payment, subscription, refund, dispute, since)
   values ('cs_played_${id}', '${id}', 'paid', 'active', 'none', 'none', '${AT}')`,
];

test.each(STORE_KINDS)(
  'in $name: they are read, and written by both versions',
  async ({ start }) => {
    await using source = await start();
    const address = await source.empty();
    const before = MIGRATIONS.findIndex(({ name }) => name === 'subscriptions');
    await migrateTo(address, MIGRATIONS.slice(0, before));
    await run(address, older('ord_before'));
    const store = await openStore(address);
    try {
      await run(address, older('ord_beside'));
      const provider = new FakeProvider(store.billing, () => Date.parse(AT) + 1000);
      for (const id of ['ord_before', 'ord_beside']) {
        const order = await store.billing.findOrder({ id });
        expect(order).toMatchObject({ standing: 'active', endsAt: null, retryAt: null });
        if (order === undefined) throw new Error('no order');
        await provider.cancel(order, 'period_end');
        const endsAt = '2030-01-31T00:00:00.000Z';
        expect(await store.billing.storedPayment({ orderId: id })).toMatchObject({ endsAt, paidUntil: null });
        await store.billing.changeOrder(id, order.version, { endsAt }, AT);
        // The older version changes what it knows, and leaves the rest.
        await run(address, [
          `update orders set standing = 'past_due', version = version + 1 where id = '${id}'`,
        ]);
        expect(await store.billing.findOrder({ id })).toMatchObject({ standing: 'past_due', endsAt });
      }
    } finally {
      await store.close();
    }
  },
  POSTGRES_KIND.timeout,
);
