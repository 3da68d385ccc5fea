// When a crowd fails together: how often its upstream is asked, and at which times.
// Runs beside one other: it measures what more tests at the same time would change.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  HostileUpstream,
  json,
  type Script,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';

const CROWD = 50;
/** Further attempts a second that no budget refuses. */
const FLOOR = 3;

let upstream: HostileUpstream;
let gateway: Gateway | undefined;

beforeEach(async () => {
  upstream = await HostileUpstream.start();
});
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
  await upstream.close();
});

async function start(retry: { readonly [name: string]: string | number }): Promise<Gateway> {
  gateway = await startGateway({ upstreams: { one: upstream.baseUrl }, config: { retry } });
  await gateway.key();
  return gateway;
}

/** The first requests are refused together, when so many are there; those that come later too, or else answered. */
function refuse(status: number, headers: Record<string, string> = {}, first = CROWD, later = false): void {
  const all = Promise.withResolvers<void>();
  const no = json(status, upstreamError(`says ${status}`), headers);
  upstream.next(
    ...Array.from(
      { length: first },
      (): Script => async (c) => {
        if (upstream.requests.length >= first) all.resolve();
        await c.waitFor(all.promise);
        await no(c);
      },
    ),
  );
  upstream.always(later ? no : json(200, completion()));
}

/** So many requests at once; the statuses, and how long it took in seconds. */
async function storm(running: Gateway): Promise<{ statuses: number[]; seconds: number }> {
  const began = performance.now();
  const answers = await Promise.all(Array.from({ length: CROWD }, () => running.chat(chatRequest())));
  return { statuses: answers.map(({ status }) => status), seconds: (performance.now() - began) / 1000 };
}

/** Milliseconds between the attempts of one request, for each further one: of the second attempts, of the third and so on. */
function waits(): number[][] {
  const times = new Map<string, number[]>();
  for (const request of upstream.requests) {
    const id = request.header('x-request-id') ?? '';
    times.set(id, [...(times.get(id) ?? []), request.headAt]);
  }
  const rounds: number[][] = [];
  for (const [first = 0, ...others] of times.values()) {
    let last = first;
    for (const [round, at] of others.entries()) {
      rounds[round] = [...(rounds[round] ?? []), at - last];
      last = at;
    }
  }
  return rounds;
}

/** The most of these that fall into one stretch of `ms` milliseconds. */
function densest(times: readonly number[], ms: number): number {
  return Math.max(0, ...times.map((from) => times.filter((at) => at >= from && at < from + ms).length));
}

const spread = (times: readonly number[]) =>
  `${Math.min(...times).toFixed(0)} to ${Math.max(...times).toFixed(0)} ms, at most ${densest(times, 10)} within 10 ms`;

describe('fifty requests that are refused together', () => {
  test('with 503: the breaker opens, so that few ask again', async () => {
    const running = await start({ budget: 1, attempts: 3 });
    refuse(503, {}, CROWD, true);
    const { statuses, seconds } = await storm(running);
    expect(statuses).toEqual(Array.from({ length: CROWD }, () => 503));
    const extra = upstream.requests.length - CROWD;
    console.info(`${CROWD} × 503: ${extra} further requests within ${seconds.toFixed(2)} s`);
    // Those whose wait began before the fifth failure.
    expect(extra).toBeLessThan(5);
    expect(running.app.breaker('one', 'upstream-model')?.state).toBe('open');
  });

  test('with 429 and a time, which opens no breaker: the budget bounds how many ask again', async () => {
    const running = await start({ budget: 0.2, attempts: 3 });
    refuse(429, { 'retry-after-ms': '20' });
    const { statuses, seconds } = await storm(running);
    const extra = upstream.requests.length - CROWD;
    expect(statuses.filter((status) => status === 200)).toHaveLength(extra);
    expect(statuses.filter((status) => status === 429)).toHaveLength(CROWD - extra);
    console.info(`${CROWD} × 429: ${extra} further requests within ${seconds.toFixed(2)} s`);
    expect(extra).toBeGreaterThanOrEqual(0.2 * CROWD);
    expect(extra).toBeLessThanOrEqual(0.2 * CROWD + FLOOR * (1 + seconds));
    const counted = 'tollgate_upstream_extra_attempts_total{upstream="one",reason="retry"}';
    expect(await running.metric(counted)).toBe(extra);
    // The others were rejected by the budget, or their wait ended while a later 429 still counted: on a slow machine many.
    expect(await running.metric('tollgate_retry_budget_refusals_total')).toBeGreaterThan(0);
    expect(running.app.breaker('one', 'upstream-model')?.state).toBe('closed');
  });

  test.each([1, 400])('come back %i ms later and more, as asked, and not as a second wave', async (ms) => {
    const running = await start({ budget: 1, attempts: 2 });
    refuse(429, { 'retry-after-ms': String(ms) });
    await storm(running);
    const [second = []] = waits();
    console.info(`second attempts, ${ms} ms asked for: ${spread(second)}`);
    // A request whose wait ends while a later 429 still counts does not try again: on a slow machine these are many.
    expect(second.length).toBeGreaterThan(CROWD / 10);
    // Since the answer, and a timer may be a millisecond early.
    expect(Math.min(...second)).toBeGreaterThan(ms - 2);
    expect(densest(second, 10)).toBeLessThan(0.9 * second.length);
    expect(Math.max(...second) - Math.min(...second)).toBeGreaterThan(40);
  });

  test('do not come back when they have left', async () => {
    const running = await start({ budget: 1, attempts: 3 });
    refuse(429, { 'retry-after-ms': '700' }, 10);
    const clients = await Promise.all(Array.from({ length: 10 }, () => running.open(chatRequest())));
    await until(() => upstream.requests.length === 10 && upstream.answering === 0, 'all to be refused');
    for (const client of clients) client.destroy();
    await until(() => running.app.inFlight === 0, 'the end of the requests');
    await pause(1_000);
    expect(upstream.requests).toHaveLength(10);
  });

  test('are refused again by the first that asks too early: the others do not ask', async () => {
    const running = await start({ budget: 1, attempts: 3 });
    refuse(429, { 'retry-after-ms': '300' }, CROWD, true);
    const { statuses } = await storm(running);
    expect(statuses).toEqual(Array.from({ length: CROWD }, () => 429));
    const extra = upstream.requests.length - CROWD;
    console.info(`${CROWD} × 429, and again: ${extra} further requests`);
    expect(extra).toBeGreaterThan(0);
    expect(extra).toBeLessThan(CROWD / 2);
  });
});
