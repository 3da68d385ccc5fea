import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Key } from '../../src/auth/key/key.ts';
import type { Principal } from '../../src/auth/key/principal.ts';
import {
  ChangeClock,
  Fingerprints,
  FRESH_MS,
  KeyCache,
  NegativeCache,
  STALE_MS,
} from '../../src/auth/records/key-cache.ts';
import { isPrefix } from '../../src/store/key-record.ts';

const NO_OWN_TERMS = { teamId: null, holderTerms: {}, terms: {}, expiresAtMs: undefined };
const fingerprints = new Fingerprints();

function numbered(index: number): Key {
  const key = Key.parse(index.toString(16).padStart(8, '0') + '0'.repeat(24));
  if (key === undefined) throw new Error('not a key');
  return key;
}

function callerFor(key: Key): Principal {
  return {
    prefix: key.prefix,
    lineage: key.prefix,
    holderId: 'holder',
    tier: 'Lite',
    standing: 'good',
    version: 1,
    ...NO_OWN_TERMS,
  };
}

describe('a fingerprint', () => {
  test('identifies one key in one process and does not contain it', () => {
    const [one, two] = [Key.generate(), Key.generate()];
    expect(fingerprints.of(one)).toBe(fingerprints.of(one));
    expect(fingerprints.of(one)).not.toBe(fingerprints.of(two));
    expect(new Fingerprints().of(one)).not.toBe(fingerprints.of(one));
    const bytes = Buffer.from(fingerprints.of(one), 'base64');
    expect(bytes).toHaveLength(32);
    expect(bytes.toString('hex')).not.toContain(one.reveal());
  });
});

describe('the change clock', () => {
  test('rejects answers requested before a change, after any number of changes', () => {
    const clock = new ChangeClock();
    const early = clock.now();
    for (let index = 0; index < 25_000; index += 1) clock.record(numbered(index).prefix, 2);
    for (const index of [0, 1, 9_999, 10_000, 20_000, 24_999]) {
      expect(clock.isUnchangedSince(numbered(index).prefix, early)).toBe(false);
      expect(clock.isUnchangedSince(numbered(index).prefix, clock.now())).toBe(true);
    }
  });

  test('accepts answers requested after the last change of the key', () => {
    const few = fc.integer({ min: 0, max: 5 });
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.constant('ask' as const), few)), few, (events, subject) => {
        const clock = new ChangeClock();
        let asked = clock.now();
        let changed = false;
        for (const event of events) {
          if (event === 'ask') {
            asked = clock.now();
            changed = false;
          } else {
            clock.record(numbered(event).prefix, 2);
            changed ||= event === subject;
          }
        }
        expect(clock.isUnchangedSince(numbered(subject).prefix, asked)).toBe(!changed);
      }),
    );
  });
});

describe('the versions known to the change clock', () => {
  test('older versions are not allowed, and a late notice does not lower the version', () => {
    const clock = new ChangeClock();
    const { prefix } = numbered(1);
    expect(clock.allows(prefix, 1)).toBe(true);
    expect(clock.record(prefix, 3)).toBe(true);
    expect(clock.record(prefix, 2)).toBe(false);
    expect(clock.record(prefix, 3)).toBe(false);
    expect([1, 2, 3, 4].map((version) => clock.allows(prefix, version))).toEqual([false, false, true, true]);
    expect(clock.allows(numbered(2).prefix, 1)).toBe(true);
  });

  test('are kept for the most recently changed keys', () => {
    const clock = new ChangeClock();
    for (let index = 0; index < 10_500; index += 1) clock.record(numbered(index).prefix, 2);
    expect(clock.allows(numbered(10_499).prefix, 1)).toBe(false);
    expect(clock.allows(numbered(500).prefix, 1)).toBe(false);
    expect(clock.allows(numbered(499).prefix, 1)).toBe(true);
  });
});

describe('the positive cache', () => {
  test('has fresh entries for 5 s after a look-up, which prove the key for longer', () => {
    const known = new KeyCache();
    const key = Key.generate();
    known.refresh(fingerprints.of(key), callerFor(key), 1000);
    expect(known.get(fingerprints.of(key), key.prefix)).toMatchObject({
      principal: callerFor(key),
      confirmedAt: 1000,
      soughtAt: 1000,
      freshUntil: 1000 + FRESH_MS,
    });
    expect(FRESH_MS).toBe(5000);
    expect(STALE_MS).toBe(60_000);
  });

  test('serves stale up to 60 s after the confirmation', () => {
    const known = new KeyCache();
    const key = Key.generate();
    const print = fingerprints.of(key);
    known.refresh(print, callerFor(key), 0);
    const entry = () => {
      const found = known.get(print, key.prefix);
      if (found === undefined) throw new Error('gone');
      return found;
    };
    expect(known.serveStale(print, key.prefix, 6000)).toBe(true);
    expect(entry()).toMatchObject({ confirmedAt: 0, freshUntil: 7000 });
    expect(known.serveStale(print, key.prefix, 59_900)).toBe(true);
    expect(entry()).toMatchObject({ confirmedAt: 0, freshUntil: 60_000 });
    expect(known.serveStale(print, key.prefix, 60_001)).toBe(false);
  });

  test('has no fresh entries after changes may have been missed, but can still serve stale', () => {
    const known = new KeyCache();
    const name = fingerprints.of(numbered(1));
    known.refresh(name, callerFor(numbered(1)), 0);
    const fresh = (now: number) => {
      const entry = known.get(name, numbered(1).prefix);
      return entry !== undefined && known.isFresh(entry, now);
    };
    expect(fresh(1000)).toBe(true);
    known.expire(1000, 1000);
    expect(fresh(1000)).toBe(false);
    const entry = known.get(name, numbered(1).prefix);
    expect(entry !== undefined && known.serveStale(name, numbered(1).prefix, 1500)).toBe(true);
    expect([fresh(1500), fresh(2500), fresh(2501)]).toEqual([true, true, false]);
    known.refresh(name, callerFor(numbered(1)), 3000);
    expect([fresh(4000), fresh(4001)]).toEqual([true, false]);
    known.expire(4001, FRESH_MS);
    known.refresh(name, callerFor(numbered(1)), 4001);
    expect([fresh(9001), fresh(9002)]).toEqual([true, false]);
  });

  test('does not serve dropped entries stale', () => {
    const known = new KeyCache();
    const key = Key.generate();
    const print = fingerprints.of(key);
    known.refresh(print, callerFor(key), 0);
    known.drop(key.prefix);
    expect(known.get(print, key.prefix)).toBeUndefined();
    expect(known.serveStale(print, key.prefix, 1)).toBe(false);
    expect(known.size).toBe(0);
    const other = numbered(7).prefix;
    expect(isPrefix(other)).toBe(true);
    known.drop(other);
  });

  test('knows the whole key and not its prefix', () => {
    const known = new KeyCache();
    const key = Key.generate();
    known.refresh(fingerprints.of(key), callerFor(key), 0);
    const other = Key.parse(key.prefix + Key.generate().reveal().slice(8));
    if (other === undefined) throw new Error('not a key');
    expect(known.get(fingerprints.of(other), key.prefix)).toBeUndefined();
    expect(known.serveStale(fingerprints.of(other), key.prefix, 1)).toBe(false);
    expect(known.get(fingerprints.of(key), key.prefix)).toBeDefined();
  });

  test('is bounded and evicts the entry confirmed longest ago', () => {
    const known = new KeyCache();
    const print = (index: number) => fingerprints.of(numbered(index));
    for (let index = 0; index < 250_000; index += 1) {
      known.refresh(print(index), callerFor(numbered(index)), index);
    }
    known.refresh(print(0), callerFor(numbered(0)), 250_000);
    known.refresh(print(250_000), callerFor(numbered(250_000)), 250_001);
    expect(known.size).toBe(250_000);
    expect(known.get(print(0), numbered(0).prefix)).toBeDefined();
    expect(known.get(print(1), numbered(1).prefix)).toBeUndefined();
    expect(known.get(print(2), numbered(2).prefix)).toBeDefined();
  });
});

describe('the negative cache', () => {
  test('rejects for 10 s', () => {
    const refused = new NegativeCache(new ChangeClock());
    const key = Key.generate();
    refused.add(fingerprints.of(key), 1000, 0);
    expect(refused.has(fingerprints.of(key), key.prefix, 10_999)).toBe(true);
    expect(refused.has(fingerprints.of(key), key.prefix, 11_000)).toBe(false);
    expect(refused.size).toBe(0);
  });

  test('forgets an entry when a key with its prefix changes, even if the answer came after the change', () => {
    const clock = new ChangeClock();
    const refused = new NegativeCache(clock);
    const key = Key.generate();
    const position = clock.now();
    refused.add(fingerprints.of(key), 0, position);
    clock.record(key.prefix, 2);
    expect(refused.has(fingerprints.of(key), key.prefix, 1)).toBe(false);
    refused.add(fingerprints.of(key), 0, position);
    expect(refused.has(fingerprints.of(key), key.prefix, 1)).toBe(false);
  });

  test('is bounded and evicts the oldest entry', () => {
    const refused = new NegativeCache(new ChangeClock());
    const has = (index: number) => refused.has(fingerprints.of(numbered(index)), numbered(index).prefix, 1);
    for (let index = 0; index <= 100_000; index += 1) refused.add(fingerprints.of(numbered(index)), 0, 0);
    expect(refused.size).toBe(100_000);
    expect([has(0), has(1), has(100_000)]).toEqual([false, true, true]);
  });
});
