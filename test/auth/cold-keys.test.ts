// A cold start: many keys at once that no process has verified, and what their clients see. Time is the test's.
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { Authenticator } from '../../src/auth/authenticator.ts';
import { Hasher, SLOTS } from '../../src/auth/hashing/hasher.ts';
import { KeySecret } from '../../src/auth/hashing/hashing-secret.ts';
import { Key } from '../../src/auth/key/key.ts';
import { GatewayError } from '../../src/errors.ts';
import { retryHeaders } from '../../src/http/exchange/response-writer.ts';
import type { KeyRecord } from '../../src/store/key-record.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { newKey } from '../store/samples.ts';
import { bearer, counted, outcome } from './setting.ts';

function recordOf(key: Key, secret: KeySecret): KeyRecord {
  return {
    ...newKey(key.prefix),
    hmac: secret.digest(key),
    lineage: key.prefix,
    holderId: `holder of ${key.prefix}`,
    holderName: null,
    tier: 'Lite',
    standing: 'good',
    state: 'active',
    version: 1,
    endedAt: null,
    replaces: null,
    replacedBy: null,
    name: null,
    teamId: null,
    holderTerms: {},
    terms: {},
    expiresAt: null,
  };
}

describe('many unverified keys at once', () => {
  /** A process whose Argon2 and store take their time, on fake timers. */
  async function cold(count: number, argon2Ms: number, storeMs = 0) {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const pass = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
    const secret = new KeySecret('a secret');
    const keys = Array.from({ length: count }, () => Key.generate());
    const records = new Map<string, KeyRecord>(keys.map((key) => [key.prefix, recordOf(key, secret)]));
    const metrics = createMetrics();
    const authenticator = new Authenticator({
      store: {
        findKey: async (prefix) => {
          if (storeMs > 0) await pass(storeMs);
          return records.get(prefix);
        },
      },
      secret,
      hasher: new Hasher(metrics, {
        hash: async () => '',
        verify: async () => {
          await pass(argon2Ms);
          return true;
        },
      }),
      metrics,
      failuresPerMinute: () => 60,
    });
    /** As the official SDKs do: two retries, after the time that the error says. */
    const asSdk = async (key: Key): Promise<number> => {
      for (let retries = 0; ; retries += 1) {
        try {
          expect((await authenticator.authenticate(bearer(key), '192.0.2.1')).prefix).toBe(key.prefix);
          return retries;
        } catch (error) {
          if (!(error instanceof GatewayError) || retries === 2) throw error;
          expect(['key_hashing_overloaded', 'auth_unavailable']).toContain(error.code);
          const headers = retryHeaders(error);
          const ms = Number(headers['retry-after-ms']);
          expect(headers['retry-after']).toBe(String(Math.ceil(ms / 1000)));
          expect(ms).toBeLessThan(60_000);
          await pass(ms);
        }
      }
    };
    return { authenticator, keys, records, metrics, asSdk };
  }

  test('are all let in, each by one run of Argon2, while no client asks more than twice', async () => {
    // Slower than the gateway assumes before it has measured.
    const { keys, metrics, asSdk } = await cold(300 * SLOTS, 70);
    const began = performance.now();
    const all = Promise.all(keys.map(asSdk));
    await vi.runAllTimersAsync();
    const retries = await all;
    expect(await counted(metrics.argon2Runs)).toEqual({ verify: keys.length });
    expect(Math.max(...retries)).toBe(1);
    // The work takes 21 s, and goes on while the clients wait.
    expect(retries.filter((count) => count === 0).length).toBeGreaterThan(130 * SLOTS);
    expect(performance.now() - began).toBeLessThan(10_000 + 1.5 * 11_000 + 1000);
  });

  test('keep their place while the store is slow: no client asks in vain', async () => {
    // The last of them is looked up after 9.6 s.
    const { keys, metrics, asSdk } = await cold(256, 10, 1200);
    const all = Promise.all(keys.map(asSdk));
    await vi.runAllTimersAsync();
    expect(new Set(await all)).toEqual(new Set([0]));
    expect(await counted(metrics.argon2Runs)).toEqual({ verify: keys.length });
  });

  test('go on waiting for the store when their callers do not, and are known to it then', async () => {
    const { keys, metrics, asSdk } = await cold(512, 10, 1200);
    const all = Promise.all(keys.map(asSdk));
    await vi.runAllTimersAsync();
    expect(Math.max(...(await all))).toBeLessThanOrEqual(2);
    expect(await counted(metrics.argon2Runs)).toEqual({ verify: keys.length });
  });

  test('are all let in within a minute of work, also beyond the queue of look-ups', async () => {
    const { keys, metrics, asSdk } = await cold(750 * SLOTS, 70);
    const all = Promise.all(keys.map(asSdk));
    await vi.runAllTimersAsync();
    expect(Math.max(...(await all))).toBeLessThanOrEqual(2);
    expect(await counted(metrics.argon2Runs)).toEqual({ verify: keys.length });
  });

  test('are as current as others: one that was revoked while it waited is rejected, also without a notice', async () => {
    const { keys, records, authenticator, metrics } = await cold(100 * SLOTS, 70);
    const [last] = keys.slice(-1);
    if (last === undefined) throw new Error('no key');
    const all = Promise.all(keys.map((key) => outcome(authenticator, key)));
    await vi.advanceTimersByTimeAsync(1000);
    const record = records.get(last.prefix);
    if (record !== undefined) records.set(last.prefix, { ...record, state: 'revoked', version: 2 });
    await vi.runAllTimersAsync();
    const outcomes = await all;
    expect(outcomes.pop()).toBe('invalid_api_key');
    expect(outcomes).toEqual(keys.slice(0, -1).map(({ prefix }) => prefix));
    expect(await counted(metrics.argon2Runs)).toEqual({ verify: keys.length });
  });
});
