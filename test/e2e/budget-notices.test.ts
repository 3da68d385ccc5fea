// Notices of one budget in a fleet: three replicas that reach its soft threshold at once, of which one has no webhook, and a receiver that
// fails at first.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FLEET_TIMEOUT, type Fleet, startFleet } from '../helpers/fleet.ts';
import { chatRequest, HostileUpstream } from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';
import { bearer, field } from './holder.ts';

/** Of each replica. */
const REQUESTS = 100;
/** Exact as a number. */
const PRICE = 1 / 64;

let upstream: HostileUpstream;
let fleet: Fleet;
let receiver: Server;
/** Statuses of the next answers of the webhook; afterwards 204. */
let statuses: number[];
let received: unknown[];

beforeAll(async () => {
  [statuses, received] = [[], []];
  receiver = createServer(async (request, response) => {
    const pieces: Buffer[] = await request.toArray();
    received.push(JSON.parse(Buffer.concat(pieces).toString()));
    response.writeHead(statuses.shift() ?? 204).end();
  });
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  const { port } = receiver.address() as AddressInfo;
  upstream = await HostileUpstream.start();
  const budgets = { webhook: { url: `http://127.0.0.1:${port}/`, secret: 'x' } };
  const price = { input: 0, output: 0, request: PRICE };
  const config = {
    upstreams: { up: { base_url: upstream.baseUrl } },
    models: { m: { targets: [{ upstream: 'up', model: 'x' }], price } },
    currency: 'EUR',
    tiers: {
      Pro: { budget: { per_month: 500, soft: [0.005] } },
      Lite: { budget: { per_day: 8, soft: [0.5] } },
    },
  };
  fleet = await startFleet({ replicas: 1, postgres: 'shared', gateway: { config, process: false } });
  await fleet.join({ budgets });
  await fleet.join({ budgets });
}, FLEET_TIMEOUT);
afterAll(async () => {
  await fleet?.[Symbol.asyncDispose]();
  await upstream?.close();
  receiver?.close();
});

const issue = async (tier: string) => (await fleet.keys('issue', '--tier', tier)).stdout.trim();

async function chat(index: number, key: string): Promise<number> {
  const { gateway } = fleet.replicas[index] ?? expect.fail();
  const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { ...bearer(key), 'content-type': 'application/json' },
    body: JSON.stringify(chatRequest({ model: 'm' })),
  });
  await answer.arrayBuffer();
  return answer.status;
}

const lines = () =>
  fleet.replicas.flatMap(({ gateway }) => gateway.logs.filter(({ msg }) => /^a budget is/.test(String(msg))));

test('a share that three replicas reach at once is sent once, also after the webhook has failed', async () => {
  statuses = [500];
  const key = await issue('Pro');
  const sent = fleet.replicas.flatMap((_, index) => Array.from({ length: REQUESTS }, () => chat(index, key)));
  expect(new Set(await Promise.all(sent))).toEqual(new Set([200]));
  // While Redis is late, each replica sees its own requests, and the share is noticed with the next one.
  const all = [0, 1, 2];
  await until(async () => {
    if (received.length === 0) await Promise.all(all.map((index) => chat(index, key)));
    return received.length === 2;
  }, 'the message, and its repetition');
  await until(
    async () => (await fleet.metric('tollgate_budget_webhooks_waiting')) === 0,
    'no message that waits',
  );
  expect(lines()).toHaveLength(1);
  expect(await fleet.metric('tollgate_budget_notices_total{scope="holder",type="threshold"}')).toBe(1);
  expect(new Set(received.map((each) => field(each, 'id'))).size).toBe(1);
  // The other replicas write theirs within seconds.
  await until(async () => {
    const usage = await fetch(`${fleet.replicas[0]?.gateway.url}/admin/usage`, { headers: bearer(key) });
    return field(await usage.json(), 'totals', 'cost') === upstream.requests.length * PRICE;
  }, 'the sum over the requests of the upstream');
});

test('a share that is reached at a replica without a webhook is sent by another', async () => {
  const key = await issue('Lite');
  for (let count = 0; count < 300; count += 50)
    await Promise.all(Array.from({ length: 50 }, () => chat(0, key)));
  const [message] = await until(() => {
    const found = received.filter((each) => field(each, 'budget') === '8');
    return found.length > 0 && found;
  }, 'the message');
  expect(message).toMatchObject({ type: 'budget.threshold', window: 'day', threshold: 0.5 });
  const [line] = lines().filter(({ budget }) => budget === '8');
  expect(fleet.replicas[0]?.gateway.logs).toContain(line);
});
