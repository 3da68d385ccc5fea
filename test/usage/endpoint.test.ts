// What a holder reads of its own use, over a real listener: sums that agree, all keys of the holder, no other's, no upstream.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import type { Store } from '../../src/store/store.ts';
import { HolderUsage } from '../../src/usage/holder-usage.ts';
import { usageEndpoint } from '../../src/usage/usage-endpoint.ts';
import type { UsageOutbox } from '../../src/usage/usage-outbox.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { errorCode, property, Served } from '../http/served.ts';
import { FaultyStore } from './faulty-store.ts';
import { AT, BY_HAND, open, record } from './samples.ts';

let dir: TempDir;
let store: Store;
let faulty: FaultyStore;
let outbox: UsageOutbox;
let usage: HolderUsage;
let served: Served;
let now: number;
let currency: string | undefined;

beforeEach(async () => {
  now = AT;
  dir = await tempDir();
  store = await openNewStore(dir.file('keys.db'));
  faulty = new FaultyStore(store.usage);
  ({ outbox } = await open(faulty, dir.file('directory'), BY_HAND, () => now));
  usage = new HolderUsage(outbox, faulty, () => now);
  const answerUsage = usageEndpoint({
    identify: async ({
      request: {
        headers: { authorization },
      },
    }) => {
      const holderId = /^Bearer (.+)$/.exec(authorization ?? '')?.[1];
      if (holderId === undefined) throw new GatewayError('missing_api_key');
      return { holderId, prefix: '0123abcd', tier: 'Lite', standing: 'suspended' };
    },
    usage,
    currency: () => currency,
    limits: async ({ holderId }) => [{ of: holderId }],
    plan: async ({ holderId }) => (holderId === 'holder-2' ? { tier: 'Pro' } : undefined),
  });
  served = await Served.start({
    routes: (server) => server.route('GET', '/admin/usage', answerUsage),
  });
});

afterEach(async () => {
  await served[Symbol.asyncDispose]();
  await outbox.abandon();
  await store.close();
  await dir.remove();
});

async function get(query = '', holder = 'holder-1') {
  const authorization = holder === '' ? '' : `authorization: Bearer ${holder}\r\n`;
  const head = `GET /admin/usage${query} HTTP/1.1\r\nhost: x\r\n${authorization}\r\n`;
  return (await served.say(head)).response;
}

describe('GET /admin/usage', () => {
  test('reports days and models of the holder over all of its keys, stored and pending', async () => {
    outbox.record(record({ upstream: 'secret-upstream' }));
    await outbox.flush();
    outbox.record(record({ prefix: 'ffffffff', upstream: 'other-upstream', outcome: 'upstream_error' }));
    outbox.record(record({ model: 'llama', at: AT - 86_400_000, costNanos: undefined, ttftMs: undefined }));
    outbox.record(record({ holderId: 'holder-2' }));
    const response = await get();
    expect(response.status).toBe(200);
    expect(response.header('cache-control')).toBe('no-store');
    const line = {
      requests: 1,
      failed: 0,
      estimated: 0,
      prompt_tokens: 100,
      cached_tokens: 40,
      completion_tokens: 10,
      reasoning_tokens: 3,
      average_duration_ms: 1234,
    };
    expect(response.json()).toEqual({
      prefix: '0123abcd',
      tier: 'Lite',
      standing: 'suspended',
      from: '2029-12-04',
      to: '2030-01-02',
      totals: {
        ...line,
        requests: 3,
        failed: 1,
        prompt_tokens: 300,
        cached_tokens: 120,
        completion_tokens: 30,
        reasoning_tokens: 9,
        cost: 0.000014,
        average_ttft_ms: 56,
      },
      days: [
        { day: '2030-01-01', model: 'llama', ...line, cost: null, average_ttft_ms: null },
        {
          day: '2030-01-02',
          model: 'gpt',
          ...line,
          requests: 2,
          failed: 1,
          prompt_tokens: 200,
          cached_tokens: 80,
          completion_tokens: 20,
          reasoning_tokens: 6,
          cost: 0.000014,
          average_ttft_ms: 56,
        },
      ],
      truncated: false,
      limits: [{ of: 'holder-1' }],
    });
    expect(response.text()).not.toContain('upstream');
  });

  test('reports the plan of a paying holder', async () => {
    expect(property((await get('', 'holder-2')).json(), 'plan')).toEqual({ tier: 'Pro' });
  });

  test('has the currency of its costs, where the configuration has one', async () => {
    expect(property((await get()).json(), 'currency')).toBeUndefined();
    currency = 'EUR';
    expect(property((await get()).json(), 'currency')).toBe('EUR');
    currency = undefined;
  });

  test('covers the requested number of days, including today', async () => {
    for (const daysAgo of [0, 1, 29, 30, 89, 90]) outbox.record(record({ at: AT - daysAgo * 86_400_000 }));
    const requests = async (query: string) =>
      property(property((await get(query)).json(), 'totals'), 'requests');
    for (const [query, expected] of [
      ['', 3],
      ['?days=30', 3],
      ['?days=1', 1],
      ['?days=2', 2],
      ['?days=90', 5],
    ] as const) {
      expect([query, await requests(query)]).toEqual([query, expected]);
      await outbox.flush();
      expect([query, await requests(query)]).toEqual([query, expected]);
    }
  });

  test.each(['0', '91', '-1', '1.5', '', '030', '1e1', 'x', '%20', '7&days=7'])(
    '?days=%s is refused by name',
    async (days) => {
      const response = await get(`?days=${days}`);
      expect(response.status).toBe(400);
      expect(errorCode(response)).toBe('invalid_value');
      expect(property(property(response.json(), 'error'), 'param')).toBe('days');
    },
  );

  test('is 401 without a key, and 503 without the store', async () => {
    expect(errorCode(await get('', ''))).toBe('missing_api_key');
    expect((await get('?days=x', '')).status).toBe(401);
    await store.close();
    const response = await get();
    expect([response.status, errorCode(response)]).toEqual([503, 'store_unavailable']);
    expect(response.header('retry-after')).toBeDefined();
  });
});

describe('totals for limits', () => {
  test('cover the day and the month in UTC, with pending usage', async () => {
    now = Date.parse('2030-02-01T00:00:00Z');
    for (const at of ['2030-01-31T23:59:59Z', '2030-02-01T00:00:00Z', '2030-02-01T00:00:01Z']) {
      outbox.record(record({ at: Date.parse(at) }));
    }
    const totals = () => usage.totalsOf({ kind: 'holder', id: 'holder-1' });
    const used = (day: number, month: number) => ({
      requests_per_day: day,
      tokens_per_day: day * 110,
      tokens_per_month: month * 110,
      cost_per_day: day * 7000,
      cost_per_month: month * 7000,
    });
    expect(await totals()).toEqual(used(2, 2));
    await outbox.flush();
    expect(await totals()).toEqual(used(2, 2));
    outbox.record(record({ at: now }));
    faulty.next.push('refuses');
    await outbox.flush();
    expect(await totals()).toEqual(used(3, 3));
    now = Date.parse('2030-02-02T00:00:00Z');
    expect(await totals()).toEqual(used(0, 3));
    now = Date.parse('2030-03-01T00:00:00Z');
    expect(await totals()).toEqual(used(0, 0));
  });

  test('miss nothing that reaches the store during the read', async () => {
    outbox.record(record({ at: now }));
    faulty.onRead = async () => {
      faulty.onRead = undefined;
      expect(await outbox.flush()).toBe(true);
    };
    expect(await usage.totalsOf({ kind: 'holder', id: 'holder-1' })).toEqual({
      requests_per_day: 1,
      tokens_per_day: 110,
      tokens_per_month: 110,
      cost_per_day: 7000,
      cost_per_month: 7000,
    });
  });

  test('are the same before, during and after a write', async () => {
    for (let round = 1; round <= 20; round += 1) {
      outbox.record(record({ at: now }));
      const reads = Array.from({ length: 5 }, () => usage.totalsOf({ kind: 'holder', id: 'holder-1' }));
      const flushed = outbox.flush();
      const more = Array.from({ length: 5 }, () => usage.totalsOf({ kind: 'holder', id: 'holder-1' }));
      for (const { requests_per_day } of await Promise.all([...reads, ...more]))
        expect(requests_per_day).toBe(round);
      expect(await flushed).toBe(true);
    }
  });
});
