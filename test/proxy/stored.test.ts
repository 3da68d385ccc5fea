// What is noted of stored responses when the store does not do as it should, and what becomes of old ones.
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import type { AttemptUse } from '../../src/proxy/contracts/receiver.ts';
import { responseRegistrar, StoredResponses } from '../../src/proxy/objects/stored-responses.ts';
import type { ResponseStore, StoredResponse } from '../../src/store/response-record.ts';
import { until } from '../helpers/wait.ts';

/** A store in memory, of which each method can be replaced. */
function memory(replaced: Partial<ResponseStore> = {}) {
  const rows = new Map<string, StoredResponse>();
  const calls: string[] = [];
  const store: ResponseStore = {
    addResponse: async (response) => {
      calls.push('add');
      if (!rows.has(response.id)) rows.set(response.id, response);
    },
    findResponse: async (id) => {
      calls.push('find');
      return rows.get(id);
    },
    settleResponse: async (id) => {
      calls.push('settle');
      const row = rows.get(id);
      if (row === undefined || row.charged === null) return false;
      rows.set(id, { ...row, charged: null });
      return true;
    },
    removeResponse: async (id) => void rows.delete(id),
    forgetResponses: async (before, limit) => {
      calls.push(`forget ${before} ${limit}`);
      return 0;
    },
    ...replaced,
  };
  const warnings: unknown[] = [];
  const logger = { warn: (...line: unknown[]) => void warnings.push(line) };
  let now = Date.UTC(2040, 0, 31);
  const stored = new StoredResponses({ store, logger, clock: () => now });
  return { stored, rows, calls, warnings, pass: (ms: number) => (now += ms) };
}

const about = (id: string, more: object = {}) => ({
  id,
  holderId: 'h',
  model: 'm',
  upstream: 'up',
  upstreamModel: 'there',
  charged: null,
  ...more,
});

const away = async (): Promise<never> => {
  throw new GatewayError('store_unavailable');
};

test('what was found is not asked for again; what was not found is', async () => {
  const { stored, calls } = memory();
  await stored.register(about('a'));
  await stored.find('a', 'h');
  expect((await stored.find('a', 'h')).upstream).toBe('up');
  expect(calls.filter((call) => call === 'find')).toHaveLength(1);
  for (const _ of [1, 2])
    await expect(stored.find('b', 'h')).rejects.toMatchObject({ code: 'response_not_found' });
  expect(calls.filter((call) => call === 'find')).toHaveLength(3);
});

test.each(['', 'a/b', 'a b', 'x'.repeat(129), 'ä', '../x'])(
  'an id that nobody gives is neither kept nor asked for: %j',
  async (id) => {
    const { stored, calls } = memory();
    await stored.register(about(id));
    await expect(stored.find(id, 'h')).rejects.toMatchObject({ code: 'response_not_found' });
    expect(calls).toEqual([]);
  },
);

test('an upstream that gives an id a second time does not give the response away', async () => {
  const { stored } = memory();
  await stored.register(about('a'));
  await stored.register(about('a', { holderId: 'thief', upstream: 'other' }));
  await expect(stored.find('a', 'thief')).rejects.toMatchObject({ code: 'response_not_found' });
  expect((await stored.find('a', 'h')).upstream).toBe('up');
});

describe('a store that is away', () => {
  test('holds no answer back for long, and says so once', async () => {
    const { stored, warnings } = memory({ addResponse: () => new Promise(() => undefined) });
    const started = performance.now();
    await Promise.all([stored.register(about('a')), stored.register(about('b'))]);
    expect(performance.now() - started).toBeGreaterThan(900);
    expect(warnings).toHaveLength(1);
  });

  test('is told as what it is: not that there is no response', async () => {
    const { stored } = memory({ findResponse: away });
    await expect(stored.find('a', 'h')).rejects.toMatchObject({ code: 'store_unavailable' });
  });

  test('counts nothing twice', async () => {
    const { stored, warnings } = memory({ settleResponse: away, removeResponse: away });
    expect(await stored.settle('a')).toBe(false);
    await stored.remove('a');
    expect(warnings).toHaveLength(1);
  });
});

test('what is older than 30 days is forgotten, now and then and not at every response', async () => {
  const { stored, calls, pass } = memory();
  for (const id of ['a', 'b', 'c']) await stored.register(about(id));
  pass(3_600_000);
  await stored.register(about('d'));
  expect(calls.filter((call) => call.startsWith('forget'))).toEqual([
    'forget 2040-01-01T00:00:00.000Z 1000',
    'forget 2040-01-01T01:00:00.000Z 1000',
  ]);
});

describe('a response in the background', () => {
  const use = {
    upstream: 'up',
    provider: 'up',
    target: 'm',
    outputs: 0,
    isSent: true,
    outcome: 'ok' as const,
  };
  const usage = { prompt: 5, completion: 1, total: 6, cached: 0, reasoning: 0 };
  const upstream = Object({ name: 'up' });
  const MADE = { id: 'a', isStored: true, items: [] };
  const making = (stored: StoredResponses, isBackground: boolean) =>
    responseRegistrar({
      stored,
      objects: { record: async () => undefined },
      isStored: true,
      principal: { holderId: 'h' },
      route: { model: 'm' },
      facts: { isBackground, estimate: { prompt: 3, completion: 0, isBounded: true } },
      meter: { add: () => undefined },
    });

  test('is to be counted later, unless its own answer told its use', async () => {
    const { stored, rows } = memory();
    const open = making(stored, true);
    await open.register(MADE, { upstream, model: 'there', entry: 'there', weight: 1, priority: 1 });
    open.meter.add({ ...use, usage: null });
    expect(rows.get('a')?.charged).toBe(3);
    open.meter.add({ ...use, usage });
    await until(() => rows.get('a')?.charged === null, 'it to be settled');
  });

  test('that its client leaves counts as its prompt until then', async () => {
    const noted: unknown[] = [];
    const { stored } = memory();
    const { meter } = responseRegistrar({
      stored,
      objects: { record: async () => undefined },
      isStored: true,
      principal: { holderId: 'h' },
      route: { model: 'm' },
      facts: { isBackground: true, estimate: { prompt: 3, completion: 0, isBounded: true } },
      meter: { add: (each) => void noted.push(each) },
    });
    meter.add({ ...use, usage: null, outputs: 9, outcome: 'client_closed' });
    expect(noted).toEqual([{ ...use, usage: null, outputs: 0, outcome: 'client_closed' }]);
  });

  test('that its client leaves before its id is known counts at once, because nobody can ask for it', async () => {
    const noted: AttemptUse[] = [];
    const { stored } = memory();
    const { register, meter } = responseRegistrar({
      stored,
      objects: { record: async () => undefined },
      isStored: true,
      principal: { holderId: 'h' },
      route: { model: 'm' },
      facts: { isBackground: true, estimate: { prompt: 3, completion: 0, isBounded: true } },
      meter: { add: (each) => void noted.push(each) },
    });
    const unreported = { textBytes: 0, silentMs: 5, isReserved: true };
    meter.add({ ...use, usage: null, unreported, outcome: 'client_closed' });
    expect(noted.at(-1)?.unreported).toEqual(unreported);
    await register(MADE, { upstream, model: 'there', entry: 'there', weight: 1, priority: 1 });
    meter.add({ ...use, usage: null, unreported, outcome: 'client_closed' });
    expect(noted.at(-1)?.unreported).toBeUndefined();
  });

  test('and any other one is counted at once', async () => {
    const { stored, rows, calls } = memory();
    const closed = making(stored, false);
    await closed.register(MADE, { upstream, model: 'there', entry: 'there', weight: 1, priority: 1 });
    closed.meter.add({ ...use, usage });
    expect([rows.get('a')?.charged, calls.includes('settle')]).toEqual([null, false]);
  });
});
