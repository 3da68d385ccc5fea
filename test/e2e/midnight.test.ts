// Requests that cross midnight and the end of a month, with a price that changes then: the cost of the answer, the usage rows, the budgets
// of the day and the month, and reports agree with a sum over what the upstream answered.
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  SSE_HEADERS,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';
import { bearer, field } from './holder.ts';

const MIDNIGHT = Date.parse('2031-02-01T00:00:00.000Z');
const TOKENS = { prompt: 1001, completion: 77 };
/** In billionths of EUR, with the prices of the old and the new month. */
const OLD = 1001 * 2 + 77 * 8;
const NEW = 1001 * 3 + 77 * 12;

let upstream: HostileUpstream;
let broken: HostileUpstream;
let gateway: Gateway;
/** Ends the answers that wait. */
let finish: () => void;
let waiting: Promise<void>;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  broken = await HostileUpstream.start();
  vi.useFakeTimers({ toFake: ['Date'], now: MIDNIGHT - 500 });
  const price = [
    { input: 0.002, output: 0.008 },
    { input: 0.003, output: 0.012, from: '2031-02-01' },
  ];
  const dear = { input: 9, output: 9 };
  gateway = await startGateway({
    config: {
      upstreams: { up: { base_url: upstream.baseUrl }, down: { base_url: broken.baseUrl } },
      currency: 'EUR',
      models: {
        m: { targets: [{ upstream: 'up', model: 'x' }], price },
        f: {
          targets: [
            { upstream: 'down', model: 'x', price: dear },
            { upstream: 'up', model: 'y' },
          ],
          price,
        },
      },
      tiers: { Pro: { budget: { per_day: 1, per_month: 2 } } },
    },
  });
});
afterAll(async () => {
  vi.useRealTimers();
  await gateway?.close();
  await upstream?.close();
  await broken?.close();
});

/** The next answers are streams that wait for `finish` before their last chunks. */
function streams(): void {
  waiting = new Promise((resolve) => {
    finish = resolve;
  });
  upstream.always([
    head(200, SSE_HEADERS),
    (c) => c.chunk(frame(contentChunk('Hello'))),
    async (c) => {
      await waiting;
      await c.chunk(`${frame(finishChunk()) + frame(usageChunk(TOKENS))}data: [DONE]\n\n`);
    },
    lastChunk(),
  ]);
}

interface Totals {
  readonly cost: number | null;
  readonly days: Readonly<Record<string, number>>;
  readonly limits: Readonly<Record<string, number>>;
}

/** In billionths. */
async function usageOf(key: string): Promise<Totals> {
  const answer = await fetch(`${gateway.url}/admin/usage?days=31`, { headers: bearer(key) });
  const usage: unknown = await answer.json();
  const nanos = (value: unknown) => Math.round(Number(value) * 1e9);
  const rows = (name: string): readonly unknown[] => Array.from(Object(field(usage, name)));
  const days: Record<string, number> = {};
  for (const row of rows('days')) {
    const day = String(field(row, 'day'));
    days[day] = (days[day] ?? 0) + nanos(field(row, 'cost'));
  }
  const limits = rows('limits').map((row) => [field(row, 'limit'), nanos(field(row, 'used'))]);
  return { cost: nanos(field(usage, 'totals', 'cost')), days, limits: Object.fromEntries(limits) };
}

/** By the command. */
async function reportOf(month: string): Promise<number> {
  const words = ['usage', '--month', month, '--json', '--config', gateway.configFile];
  const { stdout } = await runCommand(words, { TEST_DIR: gateway.directory.path });
  return Math.round(Number(field(JSON.parse(stdout), 'totals', 'cost')) * 1e9);
}

const budgets = (cost: number) => ({ cost_per_day: cost, cost_per_month: cost });
const ended = () => until(() => gateway.app.inFlight === 0, 'the end of the requests');

test('a stream, a fallback, and a clock that passes the end of a month twice', async () => {
  streams();
  broken.always(json(503, {}));
  const key = await gateway.issueKey();
  using plain = await gateway.open(chatRequest({ model: 'm', stream: true }), { key });
  using fallback = await gateway.open(chatRequest({ model: 'f', stream: true }), { key });
  await plain.readUntil('data: ');
  await fallback.readUntil('data: ');
  const before = await usageOf(key);
  expect(before.days).toEqual({});
  expect(before.limits['cost_per_month']).toBeGreaterThan(0);
  vi.setSystemTime(MIDNIGHT);
  // What is reserved stays with the month in which it was.
  expect((await usageOf(key)).limits).toEqual(budgets(0));
  finish();
  await plain.response();
  await fallback.response();
  await ended();
  expect(await usageOf(key)).toEqual({
    cost: 2 * NEW,
    days: { '2031-02-01': 2 * NEW },
    limits: budgets(2 * NEW),
  });

  upstream.always(json(200, completion({ tokens: TOKENS })));
  vi.setSystemTime(MIDNIGHT - 2000);
  await gateway.chat(chatRequest({ model: 'm' }), { key });
  await ended();
  expect((await usageOf(key)).limits).toEqual(budgets(OLD));
  vi.setSystemTime(MIDNIGHT + 10);
  await gateway.chat(chatRequest({ model: 'm' }), { key });
  await ended();
  expect(await usageOf(key)).toEqual({
    cost: OLD + 3 * NEW,
    days: { '2031-01-31': OLD, '2031-02-01': 3 * NEW },
    limits: budgets(3 * NEW),
  });
  await until(async () => (await reportOf('2031-02')) === 3 * NEW, 'the report of the new month');
  expect(await reportOf('2031-01')).toBe(OLD);
});
