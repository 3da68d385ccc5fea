// Drains of upstreams and changes of their states in each kind of database.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import type { UpstreamDrain, UpstreamEvent } from '../../src/store/upstream-record.ts';
import { STORE_KINDS, type StoreSource } from './stores.ts';

const AT = '2030-01-02T03:04:05.006Z';
const BY = { actor: 'cli:alice', reason: null, at: AT };
const row = (upstream: string, given: Partial<UpstreamDrain> = {}): UpstreamDrain => ({
  upstream,
  at: AT,
  until: null,
  actor: 'cli:alice',
  reason: 'because',
  ...given,
});
const event = (upstream: string, what: string): Omit<UpstreamEvent, 'id'> => ({
  at: AT,
  upstream,
  model: 'm',
  what,
  reason: 'x',
  replica: 'host:1',
  actor: null,
});

describe.each(STORE_KINDS)('in $name', ({ start, timeout }) => {
  let source: StoreSource;
  let store: Store;

  beforeAll(async () => {
    source = await start();
  }, timeout);
  afterAll(() => source[Symbol.asyncDispose]());
  beforeEach(async () => {
    store = await openStore(await source.fresh());
  });
  afterEach(() => store.close());

  const history = async () =>
    (await store.upstreams.events({ limit: 100 })).map(({ upstream, what, reason, actor }) => [
      upstream,
      what,
      reason,
      actor,
    ]);

  test('a drain is replaced by the next one, and ended once', async () => {
    const { upstreams } = store;
    await upstreams.drain(row('b'));
    await upstreams.drain(row('a'));
    await upstreams.drain(row('a', { until: '2030-02-01T00:00:00.000Z', actor: 'bob', reason: null }));
    expect(await upstreams.drains()).toEqual([
      row('a', { until: '2030-02-01T00:00:00.000Z', actor: 'bob', reason: null }),
      row('b'),
    ]);
    expect(await upstreams.resume('b', BY)).toEqual(row('b'));
    expect(await upstreams.resume('b', BY)).toBeUndefined();
    expect(await history()).toEqual([
      ['b', 'resumed', null, 'cli:alice'],
      ['a', 'drained until 2030-02-01T00:00:00.000Z', null, 'bob'],
      ['a', 'drained', 'because', 'cli:alice'],
      ['b', 'drained', 'because', 'cli:alice'],
    ]);
  });

  test('of several processes one ends a drain whose time is over, and none a later drain', async () => {
    const { upstreams } = store;
    const over = row('a', { until: '2020-01-01T00:00:00.000Z' });
    await upstreams.drain(over);
    await Promise.all([upstreams.expire(over), upstreams.expire(over), upstreams.expire(over)]);
    expect(await upstreams.drains()).toEqual([]);
    expect((await history()).filter(([, what]) => what === 'resumed')).toEqual([
      ['a', 'resumed', 'the time of the drain is over', null],
    ]);
    await upstreams.drain(row('a'));
    await upstreams.expire(over);
    expect(await upstreams.drains()).toEqual([row('a')]);
  });

  test('events are read newest first, by upstream and before one, and the oldest are deleted', async () => {
    const { upstreams } = store;
    await upstreams.addEvents([
      event('a', 'breaker open'),
      event('b', 'unhealthy'),
      event('a', 'breaker closed'),
    ]);
    const of = await upstreams.events({ upstream: 'a', limit: 10 });
    expect(of).toMatchObject([event('a', 'breaker closed'), event('a', 'breaker open')]);
    const [last] = of;
    expect(await upstreams.events({ before: last?.id ?? 0, limit: 1 })).toMatchObject([
      event('b', 'unhealthy'),
    ]);
    for (let round = 0; round < 11; round += 1)
      await upstreams.addEvents(Array.from({ length: 1000 }, (_, at) => event('c', `${round * 1000 + at}`)));
    const all = await upstreams.events({ limit: 20_000 });
    expect([all.length, all.at(0)?.what, all.at(-1)?.what]).toEqual([10_000, '10999', '1000']);
  });

  test('both survive a reopening', async () => {
    const address = await source.fresh();
    const first = await openStore(address);
    await first.upstreams.drain(row('a'));
    await first.close();
    const again = await openStore(address);
    expect([await again.upstreams.drains(), (await again.upstreams.events({ limit: 5 })).length]).toEqual([
      [row('a')],
      1,
    ]);
    await again.close();
    await expect(again.upstreams.drains()).rejects.toMatchObject({ code: 'store_unavailable' });
  });
});
