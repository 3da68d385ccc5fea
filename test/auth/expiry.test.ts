// Keys that expire, that are rotated with an overlap, and whose use is recorded. The clock of the day is the test's.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { KeyUses } from '../../src/auth/key-uses.ts';
import type { Prefix } from '../../src/store/key-record.ts';
import { prefix } from '../store/samples.ts';
import { openSetting, outcome, type Setting } from './setting.ts';

const NOW = Date.parse('2030-01-02T03:04:05.006Z');
const DAY = 86_400_000;
const at = (ms: number) => new Date(NOW + ms).toISOString();

let setting: Setting;

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: NOW });
  setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 2 });
});

afterEach(async () => {
  vi.useRealTimers();
  await setting[Symbol.asyncDispose]();
});

describe('a key with an expiry', () => {
  test('is good until then and not one millisecond longer, cached or not', async () => {
    const { key } = await setting.issuer.issue({ tier: 'Lite', key: { expiresAt: at(1000) } });
    expect(await outcome(setting.authenticator, key)).toBe(key.prefix);
    vi.setSystemTime(NOW + 999);
    expect(await outcome(setting.authenticator, key)).toBe(key.prefix);
    vi.setSystemTime(NOW + 1000);
    expect(await outcome(setting.authenticator, key)).toBe('api_key_expired');
    const elsewhere = await setting.replica();
    expect(await outcome(elsewhere.authenticator, key)).toBe('api_key_expired');
    await elsewhere.changes.stop();
  });

  test('is no bad key: an address that goes on using it is not locked out', async () => {
    const { key } = await setting.issuer.issue({ tier: 'Lite', key: { expiresAt: at(-1) } });
    for (let round = 0; round < 5; round += 1)
      expect(await outcome(setting.authenticator, key)).toBe('api_key_expired');
    const { key: good } = await setting.issue();
    expect(await outcome(await setting.replica().then(({ authenticator }) => authenticator), good)).toBe(
      good.prefix,
    );
  });

  test('is good again when the expiry is moved', async () => {
    const { key } = await setting.issuer.issue({ tier: 'Lite', key: { expiresAt: at(-1) } });
    expect(await outcome(setting.authenticator, key)).toBe('api_key_expired');
    await setting.store.changeKey(key.prefix, { expiresAt: null }, { actor: null, reason: null, at: at(0) });
    await setting.changes.poll();
    expect(await outcome(setting.authenticator, key)).toBe(key.prefix);
  });

  test('gives its successor name, terms and expiry: a rotation prolongs nothing', async () => {
    const own = { name: 'ci', expiresAt: at(DAY), terms: { endpoints: ['chat'] } } as const;
    const { prefix: old } = await setting.issuer.issue({ tier: 'Lite', key: own });
    const rotated = await setting.issuer.rotate({ prefix: old });
    expect(await setting.store.findKey(rotated.prefix)).toMatchObject(own);
  });
});

describe('a rotation with an overlap', () => {
  test('leaves the old key good until the overlap ends, here and elsewhere', async () => {
    const { key } = await setting.issue();
    expect(await outcome(setting.authenticator, key)).toBe(key.prefix);
    const elsewhere = await setting.replica();
    expect(await outcome(elsewhere.authenticator, key)).toBe(key.prefix);
    const rotated = await setting.issuer.rotate({ prefix: key.prefix }, DAY);
    expect(rotated).toMatchObject({ replaces: key.prefix, validUntil: at(DAY) });
    await elsewhere.changes.poll();
    for (const { authenticator } of [setting, elsewhere]) {
      vi.setSystemTime(NOW + DAY - 1);
      expect(await outcome(authenticator, key)).toBe(key.prefix);
      expect(await outcome(authenticator, rotated.key)).toBe(rotated.prefix);
      vi.setSystemTime(NOW + DAY);
      expect(await outcome(authenticator, key)).toBe('api_key_expired');
      expect(await outcome(authenticator, rotated.key)).toBe(rotated.prefix);
    }
    await elsewhere.changes.stop();
  });

  test('is not followed by a second one of the same key', async () => {
    const { key } = await setting.issue();
    const { prefix: successor } = await setting.issuer.rotate({ prefix: key.prefix }, DAY);
    await expect(setting.issuer.rotate({ prefix: key.prefix })).rejects.toMatchObject({
      code: 'key_already_rotated',
      message: expect.stringContaining(successor),
    });
    expect(await outcome(setting.authenticator, key)).toBe(key.prefix);
  });
});

describe('the last use of keys', () => {
  const uses = (write: (days: ReadonlyMap<Prefix, string>) => Promise<void>) => {
    const warnings: unknown[] = [];
    const logger = { warn: (...line: readonly unknown[]) => void warnings.push(line) };
    return { uses: new KeyUses({ store: { recordUses: write }, logger }), warnings };
  };

  test('is written once a day and key, with the next flush', async () => {
    const written: [Prefix, string][][] = [];
    const { uses: each } = uses(async (days) => void written.push([...days]));
    const one = prefix('00000001');
    let day = each.record(one, undefined);
    for (let count = 0; count < 3; count += 1) day = each.record(one, day);
    await each.flush();
    expect(written).toEqual([[[one, '2030-01-02']]]);
    each.record(one, day);
    await each.flush();
    expect(written).toHaveLength(1);
    vi.setSystemTime(NOW + DAY);
    each.record(one, day);
    await each.close();
    expect(written[1]).toEqual([[one, '2030-01-03']]);
  });

  test('is written in portions, so that other writes do not wait long', async () => {
    const written: Prefix[][] = [];
    const { uses: each } = uses(async (days) => void written.push([...days.keys()]));
    const all = Array.from({ length: 2500 }, (_, index) => prefix(String(index).padStart(8, '0')));
    for (const one of all) each.record(one, undefined);
    await each.flush();
    expect(written.map(({ length }) => length)).toEqual([1000, 1000, 500]);
    expect(written.flat()).toEqual(all);
    await each.close();
  });

  test('waits for a store that does not take it, and is written when it does', async () => {
    let isAway = true;
    const written: ReadonlyMap<Prefix, string>[] = [];
    const { uses: each, warnings } = uses(async (days) => {
      if (isAway) throw new Error('away');
      written.push(new Map(days));
    });
    each.record(prefix('00000001'), undefined);
    await each.flush();
    expect(warnings).toHaveLength(1);
    isAway = false;
    await each.close();
    expect(written).toEqual([new Map([['00000001', '2030-01-02']])]);
  });
});
