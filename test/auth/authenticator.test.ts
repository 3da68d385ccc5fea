import { DatabaseSync } from 'node:sqlite';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { Authenticator } from '../../src/auth/authenticator.ts';
import { Hasher } from '../../src/auth/hashing/hasher.ts';
import { KeySecret } from '../../src/auth/hashing/hashing-secret.ts';
import type { Key } from '../../src/auth/key/key.ts';
import type { KeyRecord } from '../../src/store/key-record.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import {
  atOnce,
  bearer,
  counted,
  openSetting,
  outcome,
  quickArgon2,
  type Setting,
  wrongKey,
} from './setting.ts';

/** An authenticator that has not seen any key. The one of the setting has learned those that its issuer made. */
async function fresh(setting: Setting): Promise<Authenticator> {
  return (await setting.replica()).authenticator;
}

describe('an Authorization header', () => {
  test('that is absent or empty is a missing key and does not count as a failure', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 1 });
    const { key } = await setting.issue();
    const authenticator = await fresh(setting);
    for (let index = 0; index < 10; index += 1) {
      expect(() => authenticator.authenticate(undefined, '192.0.2.1')).toThrow(/No API key/);
      expect(() => authenticator.authenticate('', '192.0.2.1')).toThrow(/No API key/);
    }
    expect(await outcome(authenticator, key)).toBe(key.prefix);
  });

  test('that is malformed is rejected without a look-up and counts as a failure', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 5 });
    const { key } = await setting.issue();
    const authenticator = await fresh(setting);
    for (const header of ['Bearer', 'Bearer x', bearer(key).toUpperCase(), `${bearer(key)} `, 'Basic eDp5']) {
      expect(() => authenticator.authenticate(header, '192.0.2.1')).toThrow(/not valid|No API key/);
    }
    expect(setting.lookups).toBe(0);
    expect(await outcome(authenticator, key)).toBe('too_many_failed_keys');
    expect(await outcome(authenticator, key, '192.0.2.2')).toBe(key.prefix);
    // It stays 401: the form is checked before everything else.
    expect(await outcome(authenticator, 'Bearer x')).toBe('invalid_api_key');
  });
});

describe('a valid key', () => {
  test('costs one look-up and one Argon2 run, then is served from the cache synchronously', async () => {
    await using setting = await openSetting();
    const { key, holderId } = await setting.issue('Pro');
    const authenticator = await fresh(setting);
    const caller = await authenticator.authenticate(bearer(key), '192.0.2.1');
    expect(caller).toMatchObject({ prefix: key.prefix, holderId, tier: 'Pro', standing: 'good', version: 1 });
    for (let index = 0; index < 100; index += 1) {
      expect(atOnce(authenticator.authenticate(bearer(key), '192.0.2.1'))).toEqual(caller);
    }
    expect([setting.lookups, setting.argon2.verifies]).toEqual([1, 1]);
  });

  test('in many concurrent requests is looked up and hashed once (single-flight)', async () => {
    await using setting = await openSetting({});
    const { key } = await setting.issue();
    const { authenticator, metrics } = await setting.replica();
    const outcomes = await Promise.all(Array.from({ length: 100 }, () => outcome(authenticator, key)));
    expect(new Set(outcomes)).toEqual(new Set([key.prefix]));
    expect(setting.lookups).toBe(1);
    expect(await counted(metrics.argon2Runs)).toEqual({ verify: 1 });
    expect(await counted(metrics.authOutcomes)).toMatchObject({ verified: 100 });
  });

  test('is confirmed in the store after 5 s, without Argon2', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    const authenticator = await fresh(setting);
    await outcome(authenticator, key);
    setting.advance(5000);
    atOnce(authenticator.authenticate(bearer(key), ''));
    setting.advance(1);
    expect(await outcome(authenticator, key)).toBe(key.prefix);
    atOnce(authenticator.authenticate(bearer(key), ''));
    setting.advance(3_600_000);
    expect(await outcome(authenticator, key)).toBe(key.prefix);
    expect([setting.lookups, setting.argon2.verifies]).toEqual([3, 1]);
  });

  test('that this process issued is cached from the start', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    expect(atOnce(setting.authenticator.authenticate(bearer(key), '')).prefix).toBe(key.prefix);
    expect([setting.lookups, setting.argon2.verifies]).toEqual([0, 0]);
  });

  test('gets a new tier of its holder within 5 s', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue('Lite');
    const database = new DatabaseSync(setting.path);
    database.exec(`update holders set tier = 'Pro'`);
    database.close();
    setting.advance(5001);
    expect(await setting.authenticator.authenticate(bearer(key), '')).toMatchObject({ tier: 'Pro' });
  });
});

describe('a wrong key', () => {
  test('is looked up once, then rejected from the negative cache for 10 s', async () => {
    await using setting = await openSetting();
    const key = wrongKey();
    expect(await outcome(setting.authenticator, key)).toBe('invalid_api_key');
    for (let index = 0; index < 100; index += 1) {
      expect(() => setting.authenticator.authenticate(bearer(key), '')).toThrow(/not valid/);
    }
    expect([setting.lookups, setting.argon2.verifies]).toEqual([1, 0]);
    setting.advance(10_000);
    expect(await outcome(setting.authenticator, key)).toBe('invalid_api_key');
    expect(setting.lookups).toBe(2);
  });

  test('with the prefix of a valid key never reaches Argon2 and does not affect the valid key', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 1e6 });
    const { key } = await setting.issue();
    const authenticator = await fresh(setting);
    const wrong = Array.from({ length: 1000 }, () => outcome(authenticator, wrongKey(key.prefix)));
    expect(new Set(await Promise.all(wrong))).toEqual(new Set(['invalid_api_key']));
    // They share one look-up, too.
    expect([setting.lookups, setting.argon2.verifies]).toEqual([1, 0]);
    expect(await outcome(authenticator, key)).toBe(key.prefix);
    expect(await outcome(authenticator, wrongKey(key.prefix))).toBe('invalid_api_key');
    expect(setting.argon2.verifies).toBe(1);
    atOnce(authenticator.authenticate(bearer(key), ''));
  });

  test('that repeats does not use up the attempts of its address', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 3 });
    const { key } = await setting.issue();
    const authenticator = await fresh(setting);
    const forgotten = wrongKey();
    for (let index = 0; index < 100; index += 1) await outcome(authenticator, forgotten);
    await Promise.all(Array.from({ length: 100 }, () => outcome(authenticator, forgotten)));
    expect(await outcome(authenticator, key)).toBe(key.prefix);
  });

  test('sent many times at once counts as one failure', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 2 });
    const wrong = wrongKey();
    await Promise.all(Array.from({ length: 50 }, () => outcome(setting.authenticator, wrong)));
    expect(await outcome(setting.authenticator, wrongKey())).toBe('invalid_api_key');
    expect(await outcome(setting.authenticator, wrongKey())).toBe('too_many_failed_keys');
  });
});

describe('a flood of wrong keys from one address', () => {
  test('gets a 429 with retry-after, without a look-up', async () => {
    await using setting = await openSetting();
    for (let index = 0; index < 60; index += 1) {
      expect(await outcome(setting.authenticator, wrongKey())).toBe('invalid_api_key');
    }
    const before = setting.lookups;
    for (let index = 0; index < 500; index += 1) {
      expect(await outcome(setting.authenticator, wrongKey())).toBe('too_many_failed_keys');
    }
    expect([setting.lookups - before, setting.argon2.verifies]).toEqual([0, 0]);
    expect(() => setting.authenticator.authenticate(bearer(wrongKey()), '192.0.2.1')).toThrow(
      expect.objectContaining({ status: 429, retryAfterMs: 1000 }),
    );
    setting.advance(1000);
    expect(await outcome(setting.authenticator, wrongKey())).toBe('invalid_api_key');
    expect(await outcome(setting.authenticator, wrongKey())).toBe('too_many_failed_keys');
    expect(await counted(setting.metrics.authOutcomes)).toEqual({ refused: 61, limited: 502 });
  });

  test('affects neither verified keys, even those that need a refresh, nor other addresses', async () => {
    await using setting = await openSetting();
    const [used, unused] = [await setting.issue(), await setting.issue()];
    const authenticator = await fresh(setting);
    await outcome(authenticator, used.key);
    for (let index = 0; index < 100; index += 1) await outcome(authenticator, wrongKey());
    atOnce(authenticator.authenticate(bearer(used.key), '192.0.2.1'));
    setting.advance(100_000);
    for (let index = 0; index < 100; index += 1) await outcome(authenticator, wrongKey());
    expect(await outcome(authenticator, used.key)).toBe(used.prefix);
    expect(await outcome(authenticator, unused.key)).toBe('too_many_failed_keys');
    expect(await outcome(authenticator, unused.key, '192.0.2.2')).toBe(unused.prefix);
    expect(await outcome(authenticator, unused.key)).toBe(unused.prefix);
  });

  test('does not block a key that a rotation has just issued', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    for (let index = 0; index < 100; index += 1) await outcome(setting.authenticator, wrongKey());
    const caller = await setting.authenticator.authenticate(bearer(key), '192.0.2.1');
    const rotated = await setting.issuer.rotate(caller);
    expect(await outcome(setting.authenticator, rotated.key)).toBe(rotated.prefix);
  });
});

describe('when the store fails', () => {
  test.each(['failing', 'silent'] as const)('(%s) an unverified key gets a 503', async (mood) => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    const authenticator = await fresh(setting);
    setting.mood = mood;
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const keys = [key, wrongKey(), wrongKey(key.prefix)];
    const outcomes = Promise.all(keys.map((each) => outcome(authenticator, each)));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await outcomes).toEqual(keys.map(() => 'auth_unavailable'));
    if (mood === 'failing') {
      setting.mood = 'well';
      expect(await outcome(authenticator, key)).toBe(key.prefix);
    }
  });

  test('its failures are not counted as bad keys', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 2 });
    const { key } = await setting.issue();
    const authenticator = await fresh(setting);
    setting.mood = 'failing';
    for (let index = 0; index < 20; index += 1) await outcome(authenticator, wrongKey());
    setting.mood = 'well';
    expect(await outcome(authenticator, key)).toBe(key.prefix);
  });

  test.each(['failing', 'silent'] as const)(
    '(%s) a verified key is served stale for 60 s after its last confirmation, then gets a 503',
    async (mood) => {
      await using setting = await openSetting();
      const { key } = await setting.issue();
      const authenticator = await fresh(setting);
      await outcome(authenticator, key);
      setting.mood = mood;
      for (let second = 0; second < 60; second += 6) {
        expect(await outcome(authenticator, key)).toBe(key.prefix);
        setting.advance(6000);
      }
      expect(await outcome(authenticator, key)).toBe(key.prefix);
      setting.advance(1);
      expect(await outcome(authenticator, key)).toBe('auth_unavailable');
      if (mood === 'failing') {
        setting.mood = 'well';
        expect(await outcome(authenticator, key)).toBe(key.prefix);
        atOnce(authenticator.authenticate(bearer(key), ''));
      }
    },
  );

  test('a key is looked up once a second, and requests in between do not wait', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    setting.mood = 'failing';
    setting.advance(6000);
    await outcome(setting.authenticator, key);
    for (let index = 0; index < 100; index += 1) atOnce(setting.authenticator.authenticate(bearer(key), ''));
    expect(setting.lookups).toBe(1);
    setting.advance(1001);
    await outcome(setting.authenticator, key);
    expect(setting.lookups).toBe(2);
  });

  test('a key that has ended is not served stale', async () => {
    await using setting = await openSetting();
    const { key, prefix } = await setting.issue();
    const other = await setting.replica();
    await outcome(other.authenticator, key);
    await setting.issuer.revoke(prefix);
    await other.changes.poll();
    setting.mood = 'failing';
    expect(await outcome(other.authenticator, key)).toBe('auth_unavailable');
    expect(await outcome(setting.authenticator, key)).toBe('auth_unavailable');
    setting.mood = 'well';
    expect(await outcome(other.authenticator, key)).toBe('invalid_api_key');
  });

  test('look-ups beyond the queue get a 503', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 1e6 });
    setting.mood = 'silent';
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const ended: string[] = [];
    const all = Array.from({ length: 32 + 512 + 10 }, async () => {
      ended.push(await outcome(setting.authenticator, wrongKey()));
    });
    await vi.advanceTimersByTimeAsync(0);
    expect(ended).toEqual(Array.from({ length: 10 }, () => 'auth_unavailable'));
    await vi.advanceTimersByTimeAsync(10_000);
    await Promise.all(all);
    expect(new Set(ended)).toEqual(new Set(['auth_unavailable']));
    expect(setting.lookups).toBe(32);
  });

  test.each([
    [
      'a hash that denies the key',
      '$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g',
    ],
    [
      'a hash that would take all memory',
      '$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g',
    ],
  ])('a record with %s is damaged data, not an invalid key', async (_, argon2) => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    const database = new DatabaseSync(setting.path);
    database.exec('drop trigger keys_material_stays');
    database.prepare('update keys set version = 2, argon2 = ?').run(argon2);
    database.close();
    expect(await outcome(await fresh(setting), key)).toBe('auth_unavailable');
  });
});

describe('a key that changes', () => {
  test('by this process is invalid at once in the whole process', async () => {
    await using setting = await openSetting();
    const [revoked, rotated] = [await setting.issue(), await setting.issue()];
    await setting.issuer.revoke(revoked.prefix);
    expect(await outcome(setting.authenticator, revoked.key)).toBe('invalid_api_key');
    const caller = await setting.authenticator.authenticate(bearer(rotated.key), '');
    const next = await setting.issuer.rotate(caller);
    expect(await outcome(setting.authenticator, rotated.key)).toBe('invalid_api_key');
    expect(await outcome(setting.authenticator, next.key)).toBe(next.prefix);
  });

  test('by another process is invalid after the next poll, or after 5 s without one', async () => {
    await using setting = await openSetting();
    const [one, two] = [await setting.issue(), await setting.issue()];
    const other = await setting.replica();
    await outcome(other.authenticator, one.key);
    await outcome(other.authenticator, two.key);
    await setting.issuer.revoke(one.prefix);
    await other.changes.poll();
    expect(await outcome(other.authenticator, one.key)).toBe('invalid_api_key');
    await setting.issuer.revoke(two.prefix);
    expect(await outcome(other.authenticator, two.key)).toBe(two.prefix);
    setting.advance(5001);
    expect(await outcome(other.authenticator, two.key)).toBe('invalid_api_key');
  });

  test('that was rejected before it was issued works as soon as it is issued', async () => {
    const bytes = Uint8Array.from({ length: 16 }, (_, index) => index);
    await using setting = await openSetting({ argon2: 'quick', random: () => bytes });
    const other = await setting.replica();
    const early = '000102030405060708090a0b0c0d0e0f';
    expect(await outcome(setting.authenticator, `Bearer ${early}`)).toBe('invalid_api_key');
    expect(await outcome(other.authenticator, `Bearer ${early}`)).toBe('invalid_api_key');
    await setting.issue();
    expect(await outcome(setting.authenticator, `Bearer ${early}`)).toBe('00010203');
    expect(await outcome(other.authenticator, `Bearer ${early}`)).toBe('invalid_api_key');
    await other.changes.poll();
    expect(await outcome(other.authenticator, `Bearer ${early}`)).toBe('00010203');
  });
});

/** An authenticator whose store answers when the test says so. */
async function manual(setting: Setting) {
  const asked: { answer: (record: KeyRecord | undefined) => void }[] = [];
  const count = { hashes: 0, verifies: 0 };
  let verifying = (): Promise<void> => Promise.resolve();
  const quick = quickArgon2(count);
  const metrics = createMetrics();
  const authenticator = new Authenticator({
    store: { findKey: () => new Promise((answer) => asked.push({ answer })) },
    secret: setting.secret,
    hasher: new Hasher(metrics, {
      ...quick,
      verify: async (phc, text) => {
        await verifying();
        return quick.verify(phc, text);
      },
    }),
    metrics,
    failuresPerMinute: () => 60,
    now: () => 0,
  });
  return {
    authenticator,
    asked,
    count,
    whileVerifying(work: () => void) {
      verifying = async () => work();
    },
  };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('a change during a check', () => {
  async function prepared(): Promise<{ setting: Setting; key: Key; active: KeyRecord; ended: KeyRecord }> {
    const setting = await openSetting();
    const { key, prefix } = await setting.issue();
    const active = await setting.store.findKey(prefix);
    await setting.issuer.revoke(prefix);
    const ended = await setting.store.findKey(prefix);
    if (active === undefined || ended === undefined) throw new Error('gone');
    return { setting, key, active, ended };
  }

  test('during the look-up discards the old answer', async () => {
    const { setting, key, active, ended } = await prepared();
    await using _ = setting;
    const { authenticator, asked } = await manual(setting);
    const result = outcome(authenticator, key);
    await settle();
    authenticator.changed({ prefix: key.prefix, kind: 'revoked', version: 2 });
    asked[0]?.answer(active);
    await settle();
    expect(asked).toHaveLength(2);
    asked[1]?.answer(ended);
    expect(await result).toBe('invalid_api_key');
  });

  test('during Argon2 discards the old answer', async () => {
    const { setting, key, active, ended } = await prepared();
    await using _ = setting;
    const { authenticator, asked, whileVerifying } = await manual(setting);
    whileVerifying(() => authenticator.changed({ prefix: key.prefix, kind: 'revoked', version: 2 }));
    const result = outcome(authenticator, key);
    await settle();
    asked[0]?.answer(active);
    await settle();
    asked[1]?.answer(ended);
    expect(await result).toBe('invalid_api_key');
  });

  test('of another key makes no difference', async () => {
    const { setting, key, active } = await prepared();
    await using _ = setting;
    const { authenticator, asked } = await manual(setting);
    const result = outcome(authenticator, key);
    await settle();
    authenticator.changed({ prefix: wrongKey().prefix, kind: 'revoked', version: 2 });
    asked[0]?.answer(active);
    expect(await result).toBe(key.prefix);
    expect(asked).toHaveLength(1);
  });

  test('in every round ends with a 503', async () => {
    const { setting, key, active } = await prepared();
    await using _ = setting;
    const { authenticator, asked } = await manual(setting);
    const result = outcome(authenticator, key);
    for (let round = 0; round < 3; round += 1) {
      await settle();
      authenticator.changed({ prefix: key.prefix, kind: 'rotated', version: 2 });
      asked[round]?.answer(active);
    }
    expect(await result).toBe('auth_unavailable');
    expect(asked).toHaveLength(3);
  });

  test('a key issued during its look-up is looked up again', async () => {
    const { setting, key, active } = await prepared();
    await using _ = setting;
    const { authenticator, asked } = await manual(setting);
    const result = outcome(authenticator, key);
    await settle();
    authenticator.changed({ prefix: key.prefix, kind: 'issued', version: 2 });
    asked[0]?.answer(undefined);
    await settle();
    asked[1]?.answer(active);
    expect(await result).toBe(key.prefix);
  });
});

test('under another secret no key is accepted, and Argon2 does not run', async () => {
  await using setting = await openSetting();
  const { key } = await setting.issue();
  const count = { hashes: 0, verifies: 0 };
  const metrics = createMetrics();
  const authenticator = new Authenticator({
    store: setting.store,
    secret: new KeySecret('another'),
    hasher: new Hasher(metrics, quickArgon2(count)),
    metrics,
    failuresPerMinute: () => 60,
  });
  expect(await outcome(authenticator, key)).toBe('invalid_api_key');
  expect(count.verifies).toBe(0);
});

test('each cache has a metric of its size', async () => {
  await using setting = await openSetting();
  await setting.issue();
  await outcome(setting.authenticator, wrongKey());
  await outcome(setting.authenticator, wrongKey(), '192.0.2.9');
  expect(await counted(setting.metrics.authCacheEntries)).toEqual({ positive: 1, negative: 2, failures: 2 });
});
