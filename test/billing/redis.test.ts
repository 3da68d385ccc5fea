// With a shared Redis: a claimed key has no record there before its first use, and the key itself is never there.
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { codeOf, statusOf } from '../e2e/holder.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { Shop } from './shop.ts';

let redis: RedisServer;
let shop: Shop;

beforeAll(async () => {
  redis = await startRedis();
  shop = await Shop.open({ redis: redis.url, secret: 'a secret of the test that is long' });
}, REDIS_TIMEOUT);
afterAll(async () => {
  await shop?.[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
});

/** All that is there, as text. */
async function content(): Promise<string> {
  const client = new Redis(redis.url);
  try {
    const parts: string[] = [];
    for (const name of await client.keys('*')) {
      const dump = await client.dumpBuffer(name);
      parts.push(name, dump.toString('latin1'));
    }
    return parts.join('\n');
  } finally {
    client.disconnect();
  }
}

test('a claimed key has a record in Redis only after its first use', async () => {
  const { bought, key } = await shop.holder('Lite');
  expect(await content()).not.toContain(key.slice(0, 8));
  expect(await statusOf(shop.url, key)).toBe(200);
  await expect.poll(content, { timeout: 20_000 }).toContain(key.slice(0, 8));
  const after = await content();
  expect(after).not.toContain(key);
  expect(after).not.toContain(bought.cookie.split('=')[1] ?? '-');
  expect(codeOf(await shop.claim(bought))).toBe('order_closed');
});
