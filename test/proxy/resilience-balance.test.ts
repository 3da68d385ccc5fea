// Who gets how much: the balance of a model, seen from three upstreams, and groups of priorities whose targets fail.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  HostileUpstream,
  json,
  type Script,
  sse,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

const NAMES = ['a', 'b', 'c'] as const;

interface TargetOptions {
  readonly weight?: number;
  readonly priority?: number;
}

let upstreams: HostileUpstream[] = [];
let gateway: Gateway | undefined;
let now = 1_000_000;

beforeEach(async () => {
  now = 1_000_000;
  upstreams = await Promise.all(NAMES.map(() => HostileUpstream.start(json(200, completion()))));
});
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
  await Promise.all(upstreams.map((upstream) => upstream.close()));
});

/** The same chance in every run, evenly from 0 to 1. */
function chance(): () => number {
  let state = 20_261_128;
  return () => {
    // xorshift32
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** `test-model` at `a`, `b` and `c`. `a`: more of the configuration of that upstream. */
async function start(
  balance: string,
  targets: readonly TargetOptions[],
  a: Readonly<Record<string, { readonly [name: string]: string }>> = {},
): Promise<Gateway> {
  gateway = await startGateway({
    upstreams: Object.fromEntries(NAMES.map((name, index) => [name, upstreams[index]?.baseUrl ?? ''])),
    now: () => now,
    random: chance(),
    config: {
      upstreams: { a },
      retry: { budget: 1 },
      models: {
        'test-model': {
          balance,
          targets: NAMES.map((upstream, index) => ({ upstream, model: 'm', ...targets[index] })),
        },
      },
    },
  });
  await gateway.key();
  return gateway;
}

const counts = () => upstreams.map(({ requests }) => requests.length);
const total = () => counts().reduce((sum, count) => sum + count, 0);

function script(index: number, answer: Script): void {
  upstreams[index]?.always(answer);
}

function held(go: Promise<void>): Script {
  return async (c) => {
    await c.waitFor(go);
    await json(200, completion())(c);
  };
}

async function expectAnswers(running: Gateway, count: number, extra: object = {}): Promise<void> {
  for (let i = 0; i < count; i += 1) expect((await running.chat(chatRequest(extra))).status).toBe(200);
}

describe('weighted', () => {
  test('splits by weight, within what chance allows', async () => {
    const running = await start('weighted', [{ weight: 6 }, { weight: 3 }, { weight: 1 }]);
    await Promise.all(Array.from({ length: 10 }, () => expectAnswers(running, 60)));
    const shares = [0.6, 0.3, 0.1];
    for (const [index, share] of shares.entries()) {
      const count = counts()[index] ?? 0;
      // Four standard deviations of a binomial distribution.
      expect(Math.abs(count - 600 * share)).toBeLessThan(4 * Math.sqrt(600 * share * (1 - share)));
    }
    expect(total()).toBe(600);
  });

  test('leaves out a target without weight, also when all others fail', async () => {
    const running = await start('weighted', [{}, {}, { weight: 0 }]);
    for (const index of [0, 1]) script(index, json(500, upstreamError('oops')));
    expect((await running.chat(chatRequest())).status).toBe(500);
    expect(counts()[2]).toBe(0);
  });
});

describe('least_requests', () => {
  test('gives nothing more to the one that does not answer', async () => {
    const running = await start('least_requests', [{}, {}, {}]);
    const go = Promise.withResolvers<void>();
    script(0, held(go.promise));
    const stuckOnes: Promise<{ status: number }>[] = [];
    for (let i = 0; i < 60; i += 1) {
      const answer = running.chat(chatRequest());
      let isOver = false;
      void answer.then(() => (isOver = true));
      const before = counts()[0];
      await until(() => isOver || counts()[0] !== before, 'the request to be answered, or stuck');
      if (!isOver) stuckOnes.push(answer);
    }
    const [stuck = 0, second = 0, third = 0] = counts();
    expect([stuck, second + third]).toEqual([1, 59]);
    expect(Math.min(second, third)).toBeGreaterThan(59 / 4);
    go.resolve();
    expect((await Promise.all(stuckOnes)).map(({ status }) => status)).toEqual([200]);
  });

  test('shares what is under way by weight', async () => {
    const running = await start('least_requests', [{ weight: 2 }, { weight: 1 }, { weight: 1 }]);
    const go = Promise.withResolvers<void>();
    for (const index of NAMES.keys()) script(index, held(go.promise));
    const all: Promise<{ status: number }>[] = [];
    for (let i = 0; i < 40; i += 1) {
      all.push(running.chat(chatRequest()));
      await until(() => total() === i + 1, 'the request to arrive');
    }
    const [double = 0, second = 0, third = 0] = counts();
    expect(Math.abs(double - 20)).toBeLessThanOrEqual(4);
    expect(Math.abs(second - third)).toBeLessThanOrEqual(4);
    go.resolve();
    await Promise.all(all);
  });
});

describe('latency', () => {
  const firstTokenAfter =
    (ms: number): Script =>
    async (c) => {
      await c.wait(ms);
      await sse([contentChunk('x')])(c);
    };

  test('gives little to the one whose first token is late, and finds out when it has become quick', async () => {
    const running = await start('latency', [{}, {}, {}]);
    const stream = { stream: true };
    // Far enough apart that a machine under load does not confuse them.
    script(0, firstTokenAfter(500));
    for (const index of [1, 2]) script(index, firstTokenAfter(50));
    await expectAnswers(running, 30, stream);
    const [slow = 0, ...quick] = counts();
    expect(slow).toBe(1);
    expect(Math.min(...quick)).toBeGreaterThan(5);
    script(0, firstTokenAfter(0));
    // What is known of it fades: then it is tried, and found to be the quickest.
    now += 300_000;
    await expectAnswers(running, 20, stream);
    expect(counts()[0]).toBeGreaterThan(4);
  });

  test('gives nothing more to the one whose first token did not come in time', async () => {
    const running = await start('latency', [{}, {}, {}], { timeouts: { first_token: '1s' } });
    script(0, async (c) => {
      await c.head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' });
      await c.silence();
    });
    for (const index of [1, 2]) script(index, firstTokenAfter(5));
    await expectAnswers(running, 30, { stream: true });
    expect(counts()[0]).toBe(1);
    // It is the balance that leaves it alone.
    expect(running.app.breaker('a', 'm')?.state).toBe('closed');
  });
});

describe('a time to wait of one of three', () => {
  test('is kept by all requests, who are shared among the others; then it has its share again', async () => {
    const running = await start('weighted', [{}, {}, {}]);
    upstreams[0]?.next(json(429, upstreamError('slow down'), { 'retry-after': '5' }));
    await until(async () => {
      await expectAnswers(running, 1);
      return counts()[0] === 1;
    });
    const [, ...before] = counts();
    now += 4_999;
    await expectAnswers(running, 40);
    const [limited, ...others] = counts();
    expect(limited).toBe(1);
    for (const [index, count] of others.entries()) expect(count - (before[index] ?? 0)).toBeGreaterThan(8);
    now += 2;
    await expectAnswers(running, 30);
    expect(counts()[0]).toBeGreaterThan(3);
  });
});

describe('two targets of priority 1 and one of priority 2', () => {
  const groups = [{}, {}, { priority: 2 }];
  const says = (status: number, headers: Record<string, string> = {}): Script =>
    json(status, upstreamError(`says ${status}`), headers);

  test('the second group gets nothing while one of the first answers', async () => {
    const running = await start('weighted', groups);
    script(0, says(500));
    await expectAnswers(running, 20);
    const [first = 0, second, third] = counts();
    // Its breaker opened.
    expect([first, second, third]).toEqual([5, 20, 0]);
  });

  test.each<[string, Script, Script]>([
    ['a limit and a failure', says(429, { 'retry-after': '30' }), says(500)],
    ['a refused credential and a limit', says(401), says(429)],
    ['a closed connection and nonsense', says(503), (c) => c.send('nonsense\r\n\r\n')],
    ['an error in the first frame, twice', sse([upstreamError('first')], { done: false }), says(529)],
  ])('%s: each of the first is asked once, then the second group answers', async (_, one, two) => {
    const running = await start('weighted', groups);
    script(0, one);
    script(1, two);
    const response = await running.chat(chatRequest({ stream: true }));
    expect([response.status, counts()]).toEqual([200, [1, 1, 1]]);
    expect(await running.accessLine(response)).toMatchObject({ attempts: 3, upstream: 'c' });
  });

  test('no more than `retry.attempts`, and the last of them is what the client reads', async () => {
    const running = await start('weighted', [{}, { priority: 2 }, { priority: 3 }]);
    script(0, says(500));
    script(1, says(503, { 'retry-after': '30' }));
    script(2, says(529, { 'retry-after': '30' }));
    const response = await running.chat(chatRequest());
    expect([response.status, response.json(), counts()]).toEqual([529, upstreamError('says 529'), [1, 1, 1]]);
  });

  test('all limited but the last, which fails: 503 for who comes later, with the soonest of the three', async () => {
    const running = await start('weighted', groups);
    script(0, says(429, { 'retry-after': '20' }));
    script(1, says(429, { 'retry-after': '40' }));
    script(2, says(503, { 'retry-after': '10' }));
    expect((await running.chat(chatRequest())).status).toBe(503);
    const later = await running.chat(chatRequest());
    expect([later.status, later.header('retry-after'), later.json()]).toMatchObject([
      503,
      '10',
      { error: { code: 'upstream_busy' } },
    ]);
    expect(counts()).toEqual([1, 1, 1]);
    // The first of the first group may be asked before the second is.
    for (const index of NAMES.keys()) script(index, json(200, completion()));
    now += 20_001;
    await expectAnswers(running, 3);
    expect(counts()).toEqual([4, 1, 1]);
  });

  test('goes back to the first group when its breakers let it', async () => {
    const running = await start('weighted', groups);
    for (const index of [0, 1]) script(index, says(500));
    for (let i = 0; i < 8; i += 1) {
      // The budget of retries lets three of a second through.
      now += 1_000;
      await expectAnswers(running, 1);
    }
    expect(counts()).toEqual([5, 5, 8]);
    for (const index of [0, 1]) script(index, json(200, completion()));
    now += 10_001;
    await expectAnswers(running, 10);
    const [one = 0, two = 0, three] = counts();
    expect([one + two, three]).toEqual([20, 8]);
  });
});
