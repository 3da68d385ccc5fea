// A client that waits exactly as announced is admitted, as each SDK reads the headers, unless others were faster.
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FailureLimit } from '../../src/auth/failure-limits.ts';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { GatewayError } from '../../src/errors.ts';
import { retryHeaders } from '../../src/http/exchange/response-writer.ts';
import { rejectionError } from '../../src/proxy/reservation/limit-headers.ts';
import { REDIS_TIMEOUT } from '../helpers/redis.ts';
import { admitted, DAY, type MakeRig, memoryRig, NOON, newHolder, RedisSetting, refused } from './setting.ts';

let setting: RedisSetting;

beforeAll(async () => {
  setting = await RedisSetting.start();
}, REDIS_TIMEOUT);
afterAll(() => setting?.stop());

/** What an SDK waits, in milliseconds; undefined where it obeys neither header, or does not try again. */
type Reader = (headers: Record<string, string>) => number | undefined;

const isTold = (headers: Record<string, string>) => headers['x-should-retry'] !== 'false';
const ms = (headers: Record<string, string>) => Number(headers['retry-after-ms']);
const seconds = (headers: Record<string, string>) => 1000 * Number(headers['retry-after']);

/** What each client obeys: milliseconds first, then seconds, and up to which wait. */
const READERS: readonly (readonly [string, Reader])[] = [
  ['openai-node', (headers) => within(ms(headers), (wait) => wait < 60_000)],
  ['openai-python', (headers) => within(ms(headers), (wait) => wait > 0 && wait <= 60_000)],
  ['a client that reads retry-after alone', (headers) => within(seconds(headers), (wait) => wait <= 60_000)],
];

function within(wait: number, isObeyed: (wait: number) => boolean): number | undefined {
  return isObeyed(wait) ? wait : undefined;
}

test.each<[string, MakeRig, number]>([
  ['in memory', memoryRig, 200],
  ['in Redis', () => setting.rig(), 60],
])('a limit of the tier, %s', async (_name, makeRig, numRuns) => {
  await using rig = await makeRig();
  const isWhole = rig.flush !== undefined;
  const pass = fc.oneof(
    fc.constantFrom(0, 1, 2, 998, 999, 1000, 1001, 58_998, 58_999, 59_997, 59_998),
    isWhole ? fc.integer({ min: 0, max: 59_998 }) : fc.double({ min: 0, max: 59_998, noNaN: true }),
  );
  const limits: fc.Arbitrary<TierLimits> = fc.constantFrom<TierLimits>(
    { requests_per_minute: 1 },
    { tokens_per_minute: 10 },
    { requests_per_day: 1 },
  );
  const starts = fc.constantFrom(
    NOON,
    NOON + DAY / 2 - 60_001,
    NOON + DAY / 2 - 59_999,
    NOON + DAY / 2 - 30_000,
  );
  await fc.assert(
    fc.asyncProperty(
      starts,
      limits,
      pass,
      fc.constantFrom(...READERS),
      async (start, limit, later, [, read]) => {
        const holder = newHolder();
        await rig.setWall(start);
        admitted(await rig.limiter.admit(holder, limit, 10)).lease.settle(10);
        await rig.settled();
        await rig.advance(later);
        const again = await rig.limiter.admit(holder, limit, 10);
        // The day may have ended meanwhile.
        if (again.kind === 'admitted') return;
        const headers = retryHeaders(rejectionError(refused(again).real, 10));
        if (!isTold(headers)) {
          expect(limit.requests_per_day).toBeDefined();
          return;
        }
        const wait = read(headers);
        if (wait === undefined) throw new Error(`not obeyed: ${JSON.stringify(headers)}`);
        await rig.advance(wait);
        admitted(await rig.limiter.admit(holder, limit, 10));
      },
    ),
    { numRuns },
  );
});

test('a new window, at any fraction of a millisecond', async () => {
  const moments = fc.double({ min: 0, max: 1e9, noNaN: true });
  await fc.assert(
    fc.asyncProperty(moments, async (now) => {
      await using rig = await memoryRig();
      await rig.advance(now);
      const [holder, limit] = [newHolder(), { requests_per_minute: 1 }];
      admitted(await rig.limiter.admit(holder, limit, 0)).lease.settle(0);
      const { retryAfterMs } = refused(await rig.limiter.admit(holder, limit, 0));
      expect(retryAfterMs).toBe(59_999);
    }),
    { numRuns: 100 },
  );
});

test('failures of an address', () => {
  const passes = fc.array(fc.oneof(fc.constantFrom(0, 1, 59_998), fc.integer({ min: 0, max: 3000 })), {
    maxLength: 40,
  });
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 60 }),
      passes,
      fc.constantFrom(...READERS),
      (limit, all, [, read]) => {
        let now = 0;
        const failures = new FailureLimit(
          () => limit,
          () => now,
          (text) => text,
        );
        for (const pass of all) {
          const retryAfterMs = failures.waitFor('192.0.2.1');
          if (retryAfterMs > 0) {
            const wait = read(
              retryHeaders(new GatewayError('too_many_failed_keys', undefined, { retryAfterMs })),
            );
            if (wait === undefined) throw new Error(`not obeyed: ${retryAfterMs}`);
            now += wait;
            expect(failures.waitFor('192.0.2.1')).toBe(0);
          }
          failures.record('192.0.2.1');
          now += pass;
        }
      },
    ),
  );
});
