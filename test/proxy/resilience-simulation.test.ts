// Crowds of clients against upstreams that are away or fail: what reaches whom, and who waits for whom.
import { expect, test } from 'vitest';
import { closedPort } from '../helpers/closed-port.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  HostileUpstream,
  json,
  standardAnswer,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

/** Connections that are opened at once: a longer queue may be rejected on a busy machine, which is not what is shown here. */
const WAVE = 25;

/** So many clients, each with a connection of its own and asking one thing after the other. @returns all statuses */
async function crowd(gateway: Gateway, model: string, size: number, each: number): Promise<number[]> {
  using stack = new DisposableStack();
  const clients: RawClient[] = [];
  while (clients.length < size) {
    const wave = Array.from({ length: Math.min(WAVE, size - clients.length) }, () => gateway.connect());
    clients.push(...(await Promise.all(wave)).map((client) => stack.use(client)));
  }
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  const statuses: number[] = [];
  const askAll = async (client: RawClient) => {
    for (let i = 0; i < each; i += 1)
      statuses.push((await client.ask({ headers, body: chatRequest({ model }) })).status);
  };
  await Promise.all(clients.map(askAll));
  return statuses;
}

const failures = (statuses: readonly number[]) => statuses.filter((status) => status !== 200);

test('one of two upstreams is dead: every request succeeds, and few ask it', async () => {
  await using alive = await HostileUpstream.start();
  const dead = `http://127.0.0.1:${await closedPort()}/v1`;
  await using gateway = await startGateway({
    // Its cool-down does not end, however slow the machine is.
    now: () => 0,
    upstreams: { dead, alive: alive.baseUrl },
    config: {
      models: { both: { targets: ['dead', 'alive'].map((upstream) => ({ upstream, model: 'm' })) } },
    },
  });
  expect(failures(await crowd(gateway, 'both', 20, 20))).toEqual([]);
  const asked = await gateway.metric(
    'tollgate_upstream_attempts_total{upstream="dead",outcome="upstream_unreachable"}',
  );
  // Five failures open the breaker; those that were under way with them add to it.
  expect(asked).toBeGreaterThanOrEqual(5);
  expect(asked).toBeLessThan(5 + 20);
});

test('a vendor fails half its requests: amplification at most 1.2, and the other vendor does not notice', async () => {
  const [clients, others, each] = [200, 40, 6];
  let count = 0;
  let hold: Promise<void> | undefined;
  await using flaky = await HostileUpstream.start(async (c) => {
    count += 1;
    const answer = count % 2 === 0 ? json(500, upstreamError('oops')) : standardAnswer;
    if (hold !== undefined) await c.waitFor(hold);
    await answer(c);
  });
  await using steady = await HostileUpstream.start(standardAnswer);
  const targets = (upstream: string) => ({ targets: [{ upstream, model: 'm' }] });
  await using gateway = await startGateway({
    upstreams: { flaky: flaky.baseUrl, steady: steady.baseUrl },
    config: { models: { flaky: targets('flaky'), steady: targets('steady') } },
  });
  const began = performance.now();
  const [troubled, calm] = await Promise.all([
    crowd(gateway, 'flaky', clients, each),
    crowd(gateway, 'steady', others, each),
  ]);
  const seconds = (performance.now() - began) / 1000;
  const amplification = flaky.requests.length / troubled.length;
  expect(amplification).toBeGreaterThan(1);
  // The budget grants three a second beside the share.
  expect(amplification).toBeLessThanOrEqual(1.2 + (3 * (1 + seconds)) / troubled.length);
  expect([failures(calm), steady.requests.length]).toEqual([[], others * each]);
  // With all requests of the one vendor held, those of the other are answered to the last: they wait for nothing in common.
  const gate = Promise.withResolvers<void>();
  hold = gate.promise;
  const held = crowd(gateway, 'flaky', clients, 1);
  await until(() => flaky.answering === clients, 'all to be held');
  expect(failures(await crowd(gateway, 'steady', others, each))).toEqual([]);
  expect(flaky.answering).toBe(clients);
  gate.resolve();
  await held;
});
