// Budgets of a fleet whose replicas have different prices and currencies for a while.
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FLEET_TIMEOUT, type Fleet, startFleet } from '../helpers/fleet.ts';
import { chatRequest, completion, HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';
import { bearer, field } from './holder.ts';

/** Exact as numbers. */
const [OLD, NEW] = [1 / 64, 3 / 64];

let upstream: HostileUpstream;
let fleet: Fleet;
const pricedAt = (request: number) => ({
  targets: [{ upstream: 'up', model: 'x' }],
  price: { input: 0, output: 0, request },
});

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  const config = {
    upstreams: { up: { base_url: upstream.baseUrl } },
    models: { m: pricedAt(OLD), other: pricedAt(1) },
    currency: 'EUR',
    tiers: { Pro: { budget: { per_month: 100 } } },
  };
  fleet = await startFleet({ replicas: 1, postgres: 'shared', gateway: { config, process: false } });
  // The one that gets signals.
  await fleet.join({}, true);
}, FLEET_TIMEOUT);
afterAll(async () => {
  await fleet?.[Symbol.asyncDispose]();
  await upstream?.close();
});

function chat(index: number, key: string): Promise<Response> {
  const { gateway } = fleet.replicas[index] ?? expect.fail();
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { ...bearer(key), 'content-type': 'application/json' },
    body: JSON.stringify(chatRequest({ model: 'm' })),
  });
}

async function usedBy(key: string, index: number): Promise<readonly unknown[]> {
  const { gateway } = fleet.replicas[index] ?? expect.fail();
  const answer = await fetch(`${gateway.url}/admin/usage`, { headers: bearer(key) });
  const usage: unknown = await answer.json();
  return [
    field(usage, 'totals', 'requests'),
    field(usage, 'totals', 'cost'),
    field(usage, 'limits', '0', 'used'),
  ];
}

test('each request costs what the replica that began it has, and the budget is their sum', async () => {
  const key = (await fleet.keys('issue', '--tier', 'Pro')).stdout.trim();
  const gate = Promise.withResolvers<void>();
  upstream.always([() => gate.promise, json(200, completion())]);
  const [, second] = fleet.replicas;
  const { gateway } = second ?? expect.fail();
  const running = [0, 1, 1].map((index) => chat(index, key));
  await until(() => upstream.requests.length === 3, 'running requests');
  const text = await readFile(gateway.configFile, 'utf8');
  const reload = async (changed: string, message: string) => {
    const before = gateway.logs.length;
    await writeFile(gateway.configFile, changed);
    gateway.child.kill('SIGHUP');
    await until(() => gateway.logs.slice(before).find(({ msg }) => msg === message), message);
  };
  await reload(text.replace(String(OLD), String(NEW)), 'configuration reloaded');
  const later = [0, 1].map((index) => chat(index, key));
  await until(() => upstream.requests.length === 5, 'later requests');
  // Without a price.
  await reload(
    text.replace(/^ *price:\n(?: +(?:input|output|request):.*\n)+/m, ''),
    'configuration reloaded',
  );
  const free = chat(1, key);
  await until(() => upstream.requests.length === 6, 'a request without a price');
  await reload(
    text.replace('currency: EUR', 'currency: USD'),
    'failed to apply the configuration; keeping the previous one',
  );
  gate.resolve();
  const statuses = (await Promise.all([...running, ...later, free])).map(({ status }) => status);
  expect(statuses).toEqual(Array(6).fill(200));
  const cost = 3 * OLD + OLD + NEW;
  for (const index of [0, 1])
    await until(async () => {
      expect(await usedBy(key, index)).toEqual([6, cost, cost]);
      return true;
    }, 'the sum of all prices');
  await expect(fleet.join({ currency: 'USD' })).rejects.toThrow('`currency` is USD');
});
