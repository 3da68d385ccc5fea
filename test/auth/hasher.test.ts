import { hash } from 'argon2';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Argon2, Hasher, SLOTS } from '../../src/auth/hashing/hasher.ts';
import { Key } from '../../src/auth/key/key.ts';
import { GatewayError } from '../../src/errors.ts';
import { retryHeaders } from '../../src/http/exchange/response-writer.ts';
import { createMetrics, type Metrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { counted } from './setting.ts';

const key = Key.generate();
const PHC =
  '$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0c2FsdA$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g';
let metrics: Metrics;

beforeEach(() => {
  metrics = createMetrics();
});

describe('Argon2id', () => {
  test('hashes with 19 MiB, 2 passes and 1 lane, with a new salt each time, and verifies', async () => {
    const hasher = new Hasher(metrics);
    const [one, two] = [await hasher.hash(key), await hasher.hash(key)];
    expect(one).toMatch(
      /^\$argon2id\$v=19\$m=19456,(t=2,p=1|p=1,t=2)\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/,
    );
    expect(one).not.toBe(two);
    expect(one).not.toContain(key.reveal());
    expect(await hasher.verify(one, key)).toBe(true);
    expect(await hasher.verify(two, key)).toBe(true);
    expect(await hasher.verify(one, Key.generate())).toBe(false);
    expect(await counted(metrics.argon2Runs)).toEqual({ hash: 2, verify: 3 });
  });

  test('accepts hashes of other, moderate parameters', async () => {
    const phc = await hash(key.reveal(), { memoryCost: 8192, timeCost: 3, parallelism: 2 });
    expect(await new Hasher(metrics).verify(phc, key)).toBe(true);
  });

  test('never uses all threads of libuv, and at most 38 MiB', () => {
    expect(SLOTS).toBeGreaterThanOrEqual(1);
    expect(SLOTS).toBeLessThanOrEqual(2);
  });

  test.each([
    ['too much memory', PHC.replace('m=19456', 'm=999999')],
    ['more memory than a number can say', PHC.replace('m=19456', 'm=4294967295')],
    ['no memory', PHC.replace('m=19456', 'm=0')],
    ['too many passes', PHC.replace('t=2', 't=11')],
    ['too many lanes', PHC.replace('p=1', 'p=5')],
    ['a missing parameter', PHC.replace(',p=1', '')],
    ['one parameter twice', PHC.replace('p=1', 'm=8')],
    ['a negative parameter', PHC.replace('t=2', 't=-2')],
    ['another kind', PHC.replace('argon2id', 'argon2d')],
    ['another version', PHC.replace('v=19', 'v=16')],
    ['no hash', PHC.slice(0, PHC.lastIndexOf('$') + 1)],
    ['more text after it', `${PHC}$x`],
    ['nothing', ''],
  ])('does not run on a record with %s, which is not the client’s error', async (_, phc) => {
    const hasher = new Hasher(metrics);
    await expect(hasher.verify(phc, key)).rejects.toMatchObject({ code: 'auth_unavailable', status: 503 });
    expect(await counted(metrics.argon2Runs)).toEqual({});
  });
});

/** Computations that end when the test says so. */
function held() {
  const running: { readonly end: (value?: boolean) => void; readonly fail: () => void }[] = [];
  const argon2: Argon2 = {
    hash: () =>
      new Promise((resolve, reject) =>
        running.push({ end: () => resolve(PHC), fail: () => reject(new Error('no memory')) }),
      ),
    verify: () =>
      new Promise((resolve, reject) =>
        running.push({ end: (value = true) => resolve(value), fail: () => reject(new Error('no memory')) }),
      ),
  };
  return { running, argon2 };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('the queue', () => {
  test('runs as many at once as there are slots, and the next when one ends', async () => {
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const all = Array.from({ length: SLOTS + 3 }, () => hasher.verify(PHC, key));
    await settle();
    expect(running).toHaveLength(SLOTS);
    expect(await counted(metrics.argon2Queue)).toEqual({ '': 3 });
    running[0]?.end();
    await settle();
    expect(running).toHaveLength(SLOTS + 1);
    for (let index = 1; index < SLOTS + 3; index += 1) {
      running[index]?.end();
      await settle();
    }
    expect(await Promise.all(all)).toEqual(Array(SLOTS + 3).fill(true));
    expect(await counted(metrics.argon2Queue)).toEqual({ '': 0 });
  });

  test('holds 16 verifications and rejects the next at once', async () => {
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const waiting = Array.from({ length: SLOTS + 16 }, () => hasher.verify(PHC, key));
    const settled = Promise.allSettled(waiting);
    await expect(hasher.verify(PHC, key)).rejects.toMatchObject({
      code: 'key_hashing_overloaded',
      retryAfterMs: expect.any(Number),
    });
    // Those in the queue give up in their time, those that run are waited for.
    for (const outcome of await Promise.allSettled(waiting.slice(SLOTS))) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'key_hashing_overloaded' } });
    }
    expect(running).toHaveLength(SLOTS);
    for (const one of running) one.end();
    const outcomes = await settled;
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(SLOTS);
    expect(await hasherIsFree(hasher, running)).toBe(true);
  });

  test('a computation beyond its deadline is given up and keeps its slot until it ends', async () => {
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const stuck = Array.from({ length: SLOTS }, () => hasher.verify(PHC, key));
    for (const outcome of await Promise.allSettled(stuck)) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'key_hashing_overloaded' } });
    }
    await expect(hasher.verify(PHC, key)).rejects.toMatchObject({ code: 'key_hashing_overloaded' });
    expect(running).toHaveLength(SLOTS);
    for (const one of running.splice(0)) one.end();
    await settle();
    expect(await hasherIsFree(hasher, running)).toBe(true);
  });

  test('a computation that fails frees its slot and is not the client’s error', async () => {
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    for (let round = 0; round < SLOTS + 1; round += 1) {
      const failing = hasher.verify(PHC, key);
      await settle();
      running.pop()?.fail();
      await expect(failing).rejects.toMatchObject({ code: 'key_hashing_overloaded' });
    }
    const hashing = hasher.hash(key);
    await settle();
    running.pop()?.fail();
    await expect(hashing).rejects.toMatchObject({ code: 'key_hashing_overloaded' });
    expect(await hasherIsFree(hasher, running)).toBe(true);
  });

  test('gives verification priority over issuing', async () => {
    const { running, argon2 } = held();
    const order: string[] = [];
    const hasher = new Hasher(metrics, {
      hash: (text) => {
        order.push('hash');
        return argon2.hash(text);
      },
      verify: (phc, text) => {
        order.push('verify');
        return argon2.verify(phc, text);
      },
    });
    const all = [
      ...Array.from({ length: SLOTS }, () => hasher.hash(key)),
      hasher.hash(key),
      hasher.verify(PHC, key),
    ];
    await settle();
    for (let index = 0; index < all.length; index += 1) {
      running[index]?.end();
      await settle();
    }
    await Promise.all(all);
    expect(order.slice(SLOTS)).toEqual(['verify', 'hash']);
  });
});

/** Whether as many computations as ever run at once. */
async function hasherIsFree(hasher: Hasher, running: { readonly end: () => void }[]): Promise<boolean> {
  running.splice(0);
  const all = Array.from({ length: SLOTS }, () => hasher.verify(PHC, key));
  await settle();
  const started = running.length;
  for (const one of running) one.end();
  await Promise.all(all);
  return started === SLOTS;
}

describe('the announced wait', () => {
  test('grows with the rejected keys and differs between them', async () => {
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const told = async (count: number): Promise<readonly number[]> => {
      const all = await Promise.allSettled(Array.from({ length: count }, () => hasher.verify(PHC, key)));
      return all.map((one) => (one.status === 'rejected' ? Number(one.reason.retryAfterMs) : 0));
    };
    const filling = told(SLOTS + 16);
    const first = await told(20);
    await told(2000);
    const last = await told(20);
    expect(Math.max(...first)).toBeLessThan(Math.min(...last));
    expect(Math.max(...last)).toBeLessThanOrEqual(30_000);
    expect(Math.min(...last)).toBeGreaterThanOrEqual(10_000);
    expect(new Set(last).size).toBeGreaterThan(10);
    for (const one of running) one.end();
    await filling;
  });

  test('after a cold start admits all callers that obey it', async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    let runs = 0;
    const pass = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
    const hasher = new Hasher(metrics, {
      hash: async () => PHC,
      // Slower than the hasher assumes, and much slower at first.
      verify: async () => {
        runs += 1;
        await pass(runs < 10 ? 200 : 50);
        return true;
      },
    });
    const keys = Array.from({ length: 60 }, () => Key.generate());
    const told: number[] = [];
    const obey = async (one: Key): Promise<number> => {
      for (let attempt = 1; ; attempt += 1) {
        try {
          expect(await hasher.verify(PHC, one)).toBe(true);
          return attempt;
        } catch (error) {
          if (!(error instanceof GatewayError)) throw error;
          expect(error).toMatchObject({ code: 'key_hashing_overloaded', status: 503 });
          const headers = retryHeaders(error);
          const ms = Number(headers['retry-after-ms']);
          expect(headers['retry-after']).toBe(String(Math.ceil(ms / 1000)));
          told.push(ms);
          await pass(ms);
        }
      }
    };
    const all = Promise.all(keys.map(obey));
    await vi.runAllTimersAsync();
    const attempts = await all;
    expect(told.length).toBeGreaterThan(20);
    expect(Math.min(...told)).toBeGreaterThanOrEqual(1000);
    // As the official SDKs do: the first try and a few more.
    expect(Math.max(...attempts)).toBeLessThanOrEqual(6);
  });
});
