// One upstream becomes slow, and is asked more than it can bear: it fills its own places and nobody else's.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json, type Script } from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

const PLACES = 4;
const CROWD = 20;
const QUICK_MS = 10;

let slow: HostileUpstream;
let quick: HostileUpstream;
let gateway: Gateway;

beforeEach(async () => {
  slow = await HostileUpstream.start();
  quick = await HostileUpstream.start({ script: after(QUICK_MS) });
  gateway = await startGateway({
    upstreams: { slow: slow.baseUrl, quick: quick.baseUrl },
    config: {
      upstreams: { slow: { max_concurrency: PLACES } },
      models: {
        'of-slow': { targets: [{ upstream: 'slow', model: 'm' }] },
        'of-quick': { targets: [{ upstream: 'quick', model: 'm' }] },
        'of-both': {
          targets: [
            { upstream: 'slow', model: 'm' },
            { upstream: 'quick', model: 'both', priority: 2 },
          ],
        },
      },
    },
  });
  await gateway.key();
});
afterEach(async () => {
  await gateway.close();
  await Promise.all([slow.close(), quick.close()]);
});

function after(ms: number): Script {
  return async (c) => {
    await c.wait(ms);
    await json(200, completion())(c);
  };
}

/** An answer that waits until it is let go. */
function held(go: Promise<void>): Script {
  return async (c) => {
    await c.waitFor(go);
    await json(200, completion())(c);
  };
}

const ask = async (model: string) => (await gateway.chat(chatRequest({ model }))).status;
const crowd = (model: string, size = CROWD) => Array.from({ length: size }, () => ask(model));

/** Milliseconds, ascending, of so many requests one after the other. */
async function times(model: string, count: number): Promise<number[]> {
  const taken: number[] = [];
  for (let i = 0; i < count; i += 1) {
    const began = performance.now();
    expect(await ask(model)).toBe(200);
    taken.push(performance.now() - began);
  }
  return taken.sort((a, b) => a - b);
}

const outcomes = (upstream: string, outcome: string) =>
  gateway.metric(`tollgate_upstream_attempts_total{upstream="${upstream}",outcome="${outcome}"}`);
const tally = (statuses: readonly number[]) =>
  [200, 503].map((status) => statuses.filter((each) => each === status).length);

test('what is too much for the slow one is refused at once, and the other serves all of its own', async () => {
  slow.always(after(QUICK_MS));
  await times('of-quick', 20);
  const before = await times('of-quick', 60);
  const go = Promise.withResolvers<void>();
  slow.always(held(go.promise));
  const stuck = crowd('of-slow');
  await until(() => slow.answering === PLACES, 'the places to be taken');
  const during = await times('of-quick', 60);
  expect(tally(await Promise.all(crowd('of-slow', 5)))).toEqual([0, 5]);
  go.resolve();
  expect(tally(await Promise.all(stuck))).toEqual([PLACES, CROWD - PLACES]);
  expect(slow.peakAnswering).toBe(PLACES);
  expect([slow.requests.length, await outcomes('slow', 'ok')]).toEqual([PLACES, PLACES]);
  // To be busy is no failure of its own.
  expect(gateway.app.breaker('slow', 'm')?.state).toBe('closed');
  expect(await ask('of-slow')).toBe(200);
  const at = (sorted: readonly number[]) => sorted[Math.floor((sorted.length - 1) * 0.99)] ?? Number.NaN;
  console.info(
    `p99 of the other upstream: ${at(before).toFixed(1)} → ${at(during).toFixed(1)} ms, ratio ${(at(during) / at(before)).toFixed(2)}`,
  );
});

test('twenty times slower: all get an answer of their kind, and the places are all given back', async () => {
  slow.always(after(20 * QUICK_MS));
  const mixed = await Promise.all([Promise.all(crowd('of-slow')), Promise.all(crowd('of-quick'))]);
  const [[answered = 0, shed = 0], others] = [tally(mixed[0]), tally(mixed[1])];
  expect([answered + shed, others]).toEqual([CROWD, [CROWD, 0]]);
  expect(answered).toBeGreaterThanOrEqual(PLACES);
  expect(slow.peakAnswering).toBeLessThanOrEqual(PLACES);
  await until(async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="slow"}')) === 0);
});

test('what is too much goes to the next target where there is one, and costs nothing of the budget', async () => {
  const go = Promise.withResolvers<void>();
  slow.always(held(go.promise));
  const all = crowd('of-both');
  await until(() => slow.answering === PLACES && quick.requests.length === CROWD - PLACES, 'all to be sent');
  go.resolve();
  expect(tally(await Promise.all(all))).toEqual([CROWD, 0]);
  expect(await gateway.metric('tollgate_retry_budget_refusals_total')).toBe(0);
});
