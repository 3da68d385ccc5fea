import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { reasonOf } from '../../src/auth/key/auth-unavailable.ts';
import type { CheckableKey } from '../../src/auth/key/principal.ts';
import { ChangeClock, type KeyNotice, STALE_MS } from '../../src/auth/records/key-cache.ts';
import { type FoundRecord, RecordLookup } from '../../src/auth/records/record-lookup.ts';
import type { SharedAnswer } from '../../src/auth/records/shared-records.ts';
import { GatewayError } from '../../src/errors.ts';
import type { KeyRecord, Prefix } from '../../src/store/key-record.ts';
import { until } from '../helpers/wait.ts';
import { numbered, recordOf } from './fleet-setting.ts';

const ONE = numbered(1);

function stored(prefix: Prefix, version = 1): KeyRecord {
  return {
    ...recordOf(prefix, version),
    holderName: null,
    teamId: null,
    name: null,
    expiresAt: null,
    terms: {},
    holderTerms: {},
    createdAt: '2030-01-01T00:00:00.000Z',
    endedAt: null,
    replaces: null,
    replacedBy: null,
  };
}

/** A look-up that writes down whom it asks, and whose store answers at once, or when the test says so. */
function open(options: { readonly isManual?: boolean; readonly caughtUpAt?: number } = {}) {
  const asked: string[] = [];
  const marked: KeyNotice[] = [];
  const clock = new ChangeClock();
  // The feed is read all the time.
  clock.caughtUp(options.caughtUpAt ?? Number.MAX_SAFE_INTEGER);
  const held: { readonly prefix: Prefix; readonly answer: () => void }[] = [];
  const state = {
    time: 1000,
    isFailing: false,
    inRedis: (_: Prefix): SharedAnswer => ({ kind: 'nothing' }),
  };
  const lookup = new RecordLookup({
    store: {
      findKey: async (prefix) => {
        asked.push(`store ${prefix}`);
        if (state.isFailing) throw new GatewayError('store_unavailable');
        if (options.isManual)
          await new Promise<void>((resolve) => held.push({ prefix, answer: () => resolve() }));
        return stored(prefix);
      },
    },
    shared: {
      find: async (prefix) => {
        asked.push(`redis ${prefix}`);
        return state.inRedis(prefix);
      },
    },
    clock,
    now: () => state.time,
    onTombstone: (notice) => {
      marked.push(notice);
      clock.record(notice.prefix, notice.version);
    },
  });
  return { lookup, asked, marked, clock, held, state };
}

const record = (version: number, of: CheckableKey = recordOf(ONE, version)) =>
  ({ kind: 'record', record: of }) as const;

async function late(work: Promise<FoundRecord>): Promise<string> {
  try {
    return (await work).record?.prefix ?? 'no record';
  } catch (error) {
    if (error instanceof GatewayError && error.cause instanceof Error)
      return `${error.code} (${reasonOf(error)}): ${error.cause.message}`;
    throw error;
  }
}

describe('a record is looked up', () => {
  test('in Redis, then in the store, then for one second in the cache', async () => {
    const { lookup, asked, state } = open();
    expect(await lookup.find(ONE, false)).toMatchObject({
      record: { prefix: ONE },
      isProved: false,
      at: 1000,
    });
    expect(asked).toEqual([`redis ${ONE}`, `store ${ONE}`]);
    state.time = 1999;
    expect(await lookup.find(ONE, false)).toMatchObject({ record: { prefix: ONE }, at: 1000 });
    expect(asked).toHaveLength(2);
    state.time = 2000;
    await lookup.find(ONE, false);
    expect(asked).toHaveLength(4);
  });

  test('in Redis alone when it has the record, which is then proven', async () => {
    const { lookup, asked, state } = open();
    state.inRedis = () => record(1);
    expect(await lookup.find(ONE, false)).toMatchObject({ record: { version: 1 }, isProved: true });
    expect(asked).toEqual([`redis ${ONE}`]);
  });

  test('once for all concurrent callers (single-flight)', async () => {
    const { lookup, asked } = open();
    const found = await Promise.all(Array.from({ length: 100 }, () => lookup.find(ONE, false)));
    expect(new Set(found).size).toBe(1);
    expect(asked).toEqual([`redis ${ONE}`, `store ${ONE}`]);
  });

  test('again when the key has changed, but not when another has', async () => {
    const { lookup, asked, clock } = open();
    await lookup.find(ONE, false);
    clock.record(numbered(2), 2);
    await lookup.find(ONE, false);
    expect(asked).toHaveLength(2);
    clock.record(ONE, 1);
    await lookup.find(ONE, false);
    expect(asked).toHaveLength(4);
  });

  test('again after a failure, which is not cached', async () => {
    const { lookup, state } = open();
    state.isFailing = true;
    expect(await late(lookup.find(ONE, false))).toBe('auth_unavailable (store): the store failed');
    state.isFailing = false;
    expect(await late(lookup.find(ONE, false))).toBe(ONE);
  });
});

describe('a record in Redis', () => {
  test('is not accepted when a newer version is known, and is when it has that version', async () => {
    const { lookup, asked, clock, state } = open();
    clock.record(ONE, 2);
    state.inRedis = () => record(1);
    expect(await lookup.find(ONE, false)).toMatchObject({ isProved: false });
    expect(asked).toEqual([`redis ${ONE}`, `store ${ONE}`]);
    clock.record(ONE, 2);
    state.inRedis = () => record(2);
    expect(await lookup.find(ONE, false)).toMatchObject({ record: { version: 2 }, isProved: true });
  });

  test.each([
    ['ended', 'revoked'],
    ['changed', 'changed'],
  ] as const)('that is a tombstone (%s) is reported, and the store decides', async (tombstone, kind) => {
    const { lookup, asked, clock, marked, state } = open();
    state.inRedis = () => ({ kind: 'tombstone', tombstone, version: 2 });
    const found = await lookup.find(ONE, true);
    expect(marked).toEqual([{ prefix: ONE, kind, version: 2 }]);
    expect(asked).toEqual([`redis ${ONE}`, `store ${ONE}`]);
    // The answer of the store was asked for after the change that Redis claims, and counts.
    expect(found).toMatchObject({ record: { version: 1 }, isProved: false });
    expect(clock.isUnchangedSince(ONE, found.position)).toBe(true);
  });

  test.each([
    [STALE_MS, ['redis']],
    [STALE_MS + 1, ['store']],
  ])('is asked for while the change feed was read within a minute (%i ms)', async (age, places) => {
    const { lookup, asked, state } = open({ caughtUpAt: 100_000 - age });
    state.time = 100_000;
    state.inRedis = () => record(1);
    expect(await lookup.find(ONE, false)).toMatchObject({
      soughtAt: 100_000,
      isProved: places[0] === 'redis',
    });
    expect(asked.map((each) => each.split(' ')[0])).toEqual(places);
  });

  test('that is a tombstone older than the known version is ignored', async () => {
    const { lookup, clock, marked, state } = open();
    clock.record(ONE, 3);
    state.inRedis = () => ({ kind: 'tombstone', tombstone: 'ended', version: 2 });
    await lookup.find(ONE, true);
    expect(marked).toEqual([]);
  });
});

describe('while the store is silent', () => {
  test('a verified key is given up after 250 ms, and another one keeps its place', async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const { lookup, held } = open({ isManual: true });
    const known = late(lookup.find(ONE, true));
    let found = 'nothing yet';
    const unknown = late(lookup.find(numbered(2), false)).then((result) => {
      found = result;
    });
    await vi.advanceTimersByTimeAsync(60_000);
    expect([await known, found]).toEqual([
      'auth_unavailable (late): the store did not answer within 250 ms',
      'nothing yet',
    ]);
    for (const { answer } of held) answer();
    await unknown;
    expect(found).toBe(numbered(2));
  });
});

describe('when many look-ups wait', () => {
  /** As many as may run at once, none of which gets an answer before the test says so. */
  async function busy() {
    const setting = open({ isManual: true });
    const all: Promise<string>[] = [];
    const find = (index: number, isKnown: boolean) =>
      all.push(late(setting.lookup.find(numbered(index), isKnown)));
    for (let index = 0; index < 32; index += 1) find(index, false);
    await until(() => setting.held.length === 32);
    return { ...setting, find, all };
  }

  test('verified keys take priority', async () => {
    const { held, find, all } = await busy();
    for (let index = 100; index < 120; index += 1) find(index, false);
    for (let index = 200; index < 205; index += 1) find(index, true);
    for (let done = 0; done < 57; done += 1) {
      await until(() => held.length > done);
      held[done]?.answer();
    }
    expect(held.slice(32).map(({ prefix }) => prefix)).toEqual([
      ...[200, 201, 202, 203, 204].map(numbered),
      ...Array.from({ length: 20 }, (_, index) => numbered(100 + index)),
    ]);
    await Promise.all(all);
  });

  test('32 run, 512 wait and others are rejected at once; verified keys have their own queue', async () => {
    const { asked, held, find, lookup, all } = await busy();
    for (let index = 1000; index < 1512; index += 1) find(index, false);
    expect(await late(lookup.find(numbered(2000), false))).toBe(
      'auth_unavailable (queue): the queue of key look-ups is full',
    );
    find(3000, true);
    expect(asked.filter((each) => each.startsWith('store'))).toHaveLength(32);
    held[0]?.answer();
    await until(() => held.length === 33);
    expect(held[32]?.prefix).toBe(numbered(3000));
    for (let done = 1; done < 32 + 1 + 512; done += 1) {
      await until(() => held.length > done);
      held[done]?.answer();
    }
    expect(await Promise.all(all)).not.toContainEqual(expect.stringContaining('auth_unavailable'));
  });

  test('the wait grows with the time of look-ups, and each that ends leaves its slot', async () => {
    const { state, held, find, lookup, all } = await busy();
    state.time += 1000;
    for (const { answer } of held) answer();
    await Promise.all(all);
    for (let index = 100; index < 132; index += 1) find(index, false);
    await until(() => held.length === 64);
    for (let index = 1000; index < 1512; index += 1) find(index, false);
    const error: unknown = await lookup.find(numbered(2000), false).catch((each: unknown) => each);
    // The mean has come near to 1 s for a look-up, 32 of which run at once; half as much is added by chance.
    const wait = error instanceof GatewayError ? (error.retryAfterMs ?? 0) : 0;
    expect(wait > 15_000 && wait < 26_000).toBe(true);
    for (let done = 32; done < 64 + 512; done += 1) {
      await until(() => held.length > done);
      held[done]?.answer();
    }
    await Promise.all(all);
  });

  test('a second caller for a waiting key takes no second slot', async () => {
    const { held, find, all } = await busy();
    for (let index = 0; index < 600; index += 1) find(5000, false);
    for (const { answer } of held) answer();
    await until(() => held.length === 33);
    held[32]?.answer();
    await Promise.all(all);
    expect(held).toHaveLength(33);
  });
});
