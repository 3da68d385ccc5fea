import { hash } from 'argon2';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Argon2, Hasher, SLOTS } from '../../src/auth/hashing/hasher.ts';
import { Key } from '../../src/auth/key/key.ts';
import { GatewayError } from '../../src/errors.ts';
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
    ['a little too much memory', PHC.replace('m=19456', 'm=65537')],
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
    for (const check of [() => hasher.verify(phc, key), () => hasher.prove(phc, key)])
      await expect(check()).rejects.toMatchObject({ code: 'auth_unavailable', status: 503 });
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

  test('proves keys in the order of their calls, and says when the turn of each comes', async () => {
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const late: (() => GatewayError)[] = [];
    const onQueued = (error: () => GatewayError) => void late.push(error);
    const done: number[] = [];
    const all = Array.from({ length: SLOTS + 400 }, (_, index) =>
      hasher.prove(PHC, key, { onQueued }).then(() => done.push(index)),
    );
    await settle();
    expect([running.length, late.length]).toEqual([SLOTS, 400]);
    const told = () => late.map((error) => error().retryAfterMs ?? 0);
    const before = told();
    expect(before).toEqual(before.toSorted((a, b) => a - b));
    expect(before[0]).toBe(1000);
    // The estimate of a computation is 25 ms, until one is measured, and callers return half as late again.
    expect(before[399]).toBe(Math.round((1.5 * 401 * 25) / SLOTS));
    for (let index = 0; index < 300; index += 1) {
      running[index]?.end();
      await settle();
    }
    expect(late[399]?.()).toMatchObject({ code: 'key_hashing_overloaded', status: 503 });
    expect(told()[399]).toBeLessThan((before[399] ?? 0) / 2);
    expect(done).toEqual(Array.from({ length: 300 }, (_, index) => index));
    for (let index = 300; index < SLOTS + 400; index += 1) {
      running[index]?.end();
      await settle();
    }
    await Promise.all(all);
    expect(await counted(metrics.argon2Queue)).toEqual({ '': 0 });
  });

  test('accepts as many proofs as can be computed in a minute, and tells the others to come later', async () => {
    const { argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    let accepted = 0;
    const onQueued = () => {
      accepted += 1;
    };
    const told: number[] = [];
    for (let index = 0; index < 5000; index += 1) {
      void hasher.prove(PHC, key, { onQueued }).catch((error: unknown) => {
        if (!(error instanceof GatewayError)) throw error;
        expect(error.code).toBe('key_hashing_overloaded');
        told.push(error.retryAfterMs ?? 0);
      });
    }
    await settle();
    expect(accepted).toBe(Math.min(4096, Math.floor((59_999 * SLOTS) / 25) - SLOTS + 1));
    expect(told).toHaveLength(5000 - SLOTS - accepted);
    expect(Math.min(...told)).toBeGreaterThan(20_000);
    expect(Math.max(...told)).toBeLessThan(60_000);
    expect(new Set(told).size).toBeGreaterThan(100);
  });

  test('asks whether a proof is still needed when its turn comes, and else computes nothing', async () => {
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const first = Array.from({ length: SLOTS }, () => hasher.prove(PHC, key));
    let asked = 0;
    const isNeeded = async () => {
      asked += 1;
      return asked > 2;
    };
    const waiting = Array.from({ length: 3 }, () => hasher.prove(PHC, key, { isNeeded }));
    await settle();
    expect(asked).toBe(0);
    running[0]?.end();
    await settle();
    expect([asked, running.length]).toEqual([3, SLOTS + 1]);
    for (const one of running) one.end();
    expect(await Promise.all(waiting)).toEqual([undefined, undefined, true]);
    await Promise.all(first);
    expect(await hasherIsFree(hasher, running)).toBe(true);
  });

  test('holds 64 new keys for 5 s and rejects the next at once', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const proofs = Array.from({ length: SLOTS }, () => hasher.prove(PHC, key).catch(() => 'late'));
    const waiting = Array.from({ length: 64 }, (_, index) =>
      index % 2 === 0 ? hasher.hash(key) : hasher.verify(PHC, key),
    );
    const settled = Promise.allSettled(waiting);
    await settle();
    for (const next of [hasher.hash(key), hasher.verify(PHC, key)])
      await expect(next).rejects.toMatchObject({
        code: 'key_hashing_overloaded',
        retryAfterMs: expect.any(Number),
      });
    await vi.advanceTimersByTimeAsync(4999);
    expect(await counted(metrics.argon2Queue)).toEqual({ '': 64 });
    await vi.advanceTimersByTimeAsync(1);
    for (const outcome of await settled) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'key_hashing_overloaded' } });
    }
    expect(running).toHaveLength(SLOTS);
    for (const one of running) one.end();
    await Promise.all(proofs);
    expect(await hasherIsFree(hasher, running)).toBe(true);
  });

  test('a computation beyond its deadline is given up and keeps its slot until it ends', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const stuck = Array.from({ length: SLOTS }, () => hasher.verify(PHC, key));
    const settled = Promise.allSettled(stuck);
    const next = expect(hasher.verify(PHC, key)).rejects.toMatchObject({ code: 'key_hashing_overloaded' });
    await vi.advanceTimersByTimeAsync(2000);
    for (const outcome of await settled) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'key_hashing_overloaded' } });
    }
    await vi.advanceTimersByTimeAsync(3000);
    await next;
    expect(running).toHaveLength(SLOTS);
    for (const one of running.splice(0)) one.end();
    await settle();
    expect(await hasherIsFree(hasher, running)).toBe(true);
  });

  test('a proof that takes long keeps its slot and its caller', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    const proofs = Array.from({ length: SLOTS + 1 }, () => hasher.prove(PHC, key));
    await settle();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(running).toHaveLength(SLOTS);
    for (const one of running.splice(0)) one.end();
    await settle();
    for (const one of running.splice(0)) one.end();
    expect(await Promise.all(proofs)).toEqual(proofs.map(() => true));
  });

  test('a computation that fails frees its slot and is not the client’s error', async () => {
    const { running, argon2 } = held();
    const hasher = new Hasher(metrics, argon2);
    for (let round = 0; round < SLOTS + 1; round += 1) {
      const failing = hasher.verify(PHC, key);
      await settle();
      running.pop()?.fail();
      await expect(failing).rejects.toMatchObject({
        code: 'key_hashing_overloaded',
        message: 'The gateway is checking too many new keys at the moment. The key itself was not rejected.',
      });
    }
    const hashing = hasher.hash(key);
    await settle();
    running.pop()?.fail();
    await expect(hashing).rejects.toMatchObject({
      code: 'key_hashing_overloaded',
      message: 'The gateway is issuing too many keys at the moment.',
    });
    expect(await hasherIsFree(hasher, running)).toBe(true);
  });

  test('gives proofs priority over issuing, which gets every eighth turn', async () => {
    const { running, argon2 } = held();
    const order: string[] = [];
    const hasher = new Hasher(metrics, {
      hash: (text) => {
        order.push('hash');
        return argon2.hash(text);
      },
      verify: (phc, text) => {
        order.push('proof');
        return argon2.verify(phc, text);
      },
    });
    const all = [
      ...Array.from({ length: SLOTS + 3 }, () => hasher.hash(key)),
      ...Array.from({ length: 18 }, () => hasher.prove(PHC, key)),
    ];
    for (let index = 0; index < all.length; index += 1) {
      await settle();
      running[index]?.end();
    }
    await Promise.all(all);
    const seven = Array(7).fill('proof');
    expect(order.slice(SLOTS)).toEqual([
      ...seven,
      'hash',
      ...seven,
      'hash',
      ...Array(4).fill('proof'),
      'hash',
    ]);
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
