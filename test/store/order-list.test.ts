// The list of orders, in each kind of store.
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { paidTerms } from '../../src/billing/new-order.ts';
import type { Order } from '../../src/store/billing-record.ts';
import { openStore } from '../../src/store/open.ts';
import { STORE_KINDS, type StoreSource } from './stores.ts';

describe.each(STORE_KINDS)('$name', (kind) => {
  let source: StoreSource;
  beforeAll(async () => {
    source = await kind.start();
  }, kind.timeout);
  afterAll(() => source?.[Symbol.asyncDispose]());

  test('orders are listed by time, on pages of any size, those of one moment once each', async () => {
    const store = await openStore(await source.fresh());
    try {
      const price = { amount: 900, currency: 'chf', interval: 'month' } as const;
      const start = Date.UTC(2030, 0, 1);
      // Ids are random; the times are not in the order of the writes, and three are the same.
      for (const minute of [5, 2, 2, 9, 2, 0, 7]) {
        const buyer = { claim: randomBytes(32), nonce: randomBytes(32), baseTier: 'Free' } as const;
        const at = new Date(start + minute * 60_000);
        const terms = paidTerms('Lite', { price }, { name: 'none', isLive: false }, buyer, at);
        if (terms === undefined) throw new Error('no terms');
        await store.billing.addOrder(terms, null);
      }
      for (const limit of [1, 2, 3, 7, 8]) {
        const listed: Order[] = [];
        for (;;) {
          const after = listed.at(-1);
          const page = await store.billing.listOrders({ limit, state: 'pending', ...(after && { after }) });
          listed.push(...page);
          if (page.length < limit) break;
        }
        const minutes = listed.map(({ createdAt }) => (Date.parse(createdAt) - start) / 60_000);
        expect(minutes).toEqual([0, 2, 2, 2, 5, 7, 9]);
        expect(new Set(listed.map(({ id }) => id)).size).toBe(7);
      }
    } finally {
      await store.close();
    }
  });
});
