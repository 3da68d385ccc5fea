// A fleet whose Redis keeps an append-only file (everysec) and is killed while requests run: budgets, requests and slots agree with
// the store and with what the upstream answered.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FLEET_TIMEOUT, type Fleet, startFleet } from '../helpers/fleet.ts';
import { chatRequest, completion, HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';
import { bearer, field } from './holder.ts';

/** Exact as a number. */
const PRICE = 1 / 64;
const KEYS = 4;
const KILLS = 3;
/** Requests of a key at one time. */
const RUNNING = 6;

let upstream: HostileUpstream;
let fleet: Fleet;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  const config = {
    upstreams: { up: { base_url: upstream.baseUrl } },
    models: {
      m: { targets: [{ upstream: 'up', model: 'x' }], price: { input: 0, output: 0, request: PRICE } },
    },
    currency: 'EUR',
    tiers: { Pro: { requests_per_day: 1_000_000, concurrency: 50, budget: { per_month: 100_000 } } },
  };
  fleet = await startFleet({
    replicas: 2,
    postgres: 'shared',
    redis: { isDurable: true },
    gateway: { config },
  });
}, FLEET_TIMEOUT);
afterAll(async () => {
  await fleet?.[Symbol.asyncDispose]();
  await upstream?.close();
});

async function usedBy(key: string, index: number): Promise<Readonly<Record<string, number>>> {
  const { gateway } = fleet.replicas[index] ?? expect.fail();
  const answer = await fetch(`${gateway.url}/admin/usage`, { headers: bearer(key) });
  const usage: unknown = await answer.json();
  const limits: readonly unknown[] = Array.from(Object(field(usage, 'limits')));
  return {
    cost: Number(field(usage, 'totals', 'cost')),
    requests: Number(field(usage, 'totals', 'requests')),
    ...Object.fromEntries(limits.map((each) => [field(each, 'limit'), Number(field(each, 'used'))])),
  };
}

test('a Redis that is killed and started with its file loses no cost, doubles none, and returns the slots', async () => {
  upstream.always([() => pause(20), json(200, completion())]);
  const earlier = upstream.requests.length;
  const keys = await Promise.all(
    Array.from({ length: KEYS }, async () => (await fleet.keys('issue', '--tier', 'Pro')).stdout.trim()),
  );
  const answered = new Map(keys.map((key) => [key, 0]));
  const statuses = new Set<number>();
  let isOver = false;
  const clients = keys.flatMap((key) =>
    fleet.replicas.flatMap(({ gateway }) =>
      Array.from({ length: RUNNING / 2 }, async () => {
        while (!isOver) {
          const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
            method: 'POST',
            headers: { ...bearer(key), 'content-type': 'application/json' },
            body: JSON.stringify(chatRequest({ model: 'm' })),
          });
          await answer.arrayBuffer();
          statuses.add(answer.status);
          if (answer.status === 200) answered.set(key, (answered.get(key) ?? 0) + 1);
        }
      }),
    ),
  );
  for (let kill = 0; kill < KILLS; kill += 1) {
    const before = upstream.requests.length;
    await until(() => upstream.requests.length > before + 100, 'requests');
    await fleet.redis.kill();
    const during = upstream.requests.length;
    await until(() => upstream.requests.length > during + 50, 'requests without Redis');
    await fleet.redis.start();
    await until(async () => (await fleet.metric('tollgate_limits_degraded')) === 0, 'the return of Redis');
  }
  isOver = true;
  await Promise.all(clients);
  expect([...statuses]).toEqual([200]);
  for (const key of keys) {
    const count = answered.get(key) ?? 0;
    const cost = count * PRICE;
    const expected = { requests: count, cost, cost_per_month: cost, concurrency: 0 };
    for (const index of [0, 1]) {
      await until(async () => {
        const { requests_per_day = 0, ...others } = await usedBy(key, index);
        expect(others).toEqual(expected);
        expect(requests_per_day - count).toBeGreaterThanOrEqual(0);
        // Redis writes its file late while it syncs: of a request that has ended then, it may know the beginning alone.
        expect(requests_per_day - count).toBeLessThanOrEqual(KILLS * RUNNING);
        return true;
      }, 'the sum of what was answered');
    }
  }
  expect(upstream.requests.length - earlier).toBe(
    [...answered.values()].reduce((sum, count) => sum + count, 0),
  );
});
