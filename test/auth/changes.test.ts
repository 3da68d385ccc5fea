import { DatabaseSync } from 'node:sqlite';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { ChangeFeed } from '../../src/auth/records/change-feed.ts';
import { GatewayError } from '../../src/errors.ts';
import type { ChangeKind, KeyChange, Prefix } from '../../src/store/key-record.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { until } from '../helpers/wait.ts';
import { startChild } from '../store/processes.ts';
import { prefix } from '../store/samples.ts';
import { atOnce, bearer, counted, openSetting, outcome } from './setting.ts';

let running: ChangeFeed | undefined;

afterEach(() => running?.stop());

/** A feed of which the test holds the end, and what its follower took over. */
function feed(intervalMs = 5) {
  const changes: KeyChange[] = [];
  const seen: [Prefix, ChangeKind][] = [];
  const state = { failing: false, calls: 0, caughtUp: 0, lost: 0 };
  const metrics = createMetrics();
  const follower = new ChangeFeed({
    store: {
      lastChange: async () => changes.at(-1)?.id ?? 0,
      announceChanges: async () => 0,
      changesAfter: async (after, limit) => {
        state.calls += 1;
        if (state.failing) throw new GatewayError('store_unavailable');
        return changes.filter(({ id }) => id > after).slice(0, limit);
      },
    },
    listener: {
      changed: ({ prefix, kind }) => {
        seen.push([prefix, kind]);
        return true;
      },
      caughtUp: () => {
        state.caughtUp += 1;
      },
      lost: () => {
        state.lost += 1;
      },
    },
    metrics,
    intervalMs,
  });
  running = follower;
  const add = (kind: ChangeKind, count = 1) => {
    for (let index = 0; index < count; index += 1) {
      const id = changes.length + 1;
      const name = prefix(id.toString(16).padStart(8, '0'));
      changes.push({ id, prefix: name, kind, version: 2, at: '2030', reason: null, actor: null });
    }
  };
  return { add, changes, seen, state, metrics, follower };
}

describe('the change feed', () => {
  test('starts with the most recent changes, then delivers each change once, in any number', async () => {
    const { add, seen, metrics, follower } = feed(3_600_000);
    add('issued', 1010);
    await follower.start();
    // Of what is past it needs to know what Redis may not know yet.
    expect(seen).toHaveLength(1000);
    expect(seen[0]).toEqual(['0000000b', 'issued']);
    seen.length = 0;
    add('revoked', 1234);
    await follower.poll();
    expect(seen).toHaveLength(1234);
    add('rotated');
    await follower.poll();
    await follower.poll();
    expect(seen).toHaveLength(1235);
    expect(new Set(seen.map(([name]) => name)).size).toBe(1235);
    expect(seen[0]).toEqual(['000003f3', 'revoked']);
    expect(await counted(metrics.keyChanges)).toEqual({ revoked: 1234, rotated: 1 });
  });

  test('survives a store that does not answer, counts the failures and catches up', async () => {
    const { add, seen, state, metrics, follower } = feed();
    await follower.start();
    state.failing = true;
    add('revoked', 3);
    await until(() => state.calls >= 5);
    expect(seen).toEqual([]);
    state.failing = false;
    await until(() => seen.length === 3);
    const failures = (await counted(metrics.keyPollFailures))[''];
    expect(failures).toBeGreaterThanOrEqual(4);
  });

  test('does not start without the position of the feed', async () => {
    await using setting = await openSetting();
    await setting.store.close();
    await expect(setting.changes.start()).rejects.toMatchObject({ code: 'store_unavailable' });
  });

  test('polls no more after stop', async () => {
    const { add, seen, state, follower } = feed(1);
    await follower.start();
    await until(() => state.calls > 2);
    await follower.stop();
    const { calls } = state;
    add('revoked');
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(state.calls).toBe(calls);
    expect(seen).toEqual([]);
  });

  test('polls twice a second by default and does not keep the process alive', async () => {
    vi.useFakeTimers();
    try {
      const { follower, state } = feed(undefined);
      // The interval of the feed above is a default of the test; this one is the follower's own.
      await follower.stop();
      const metrics = createMetrics();
      const own = new ChangeFeed({
        store: {
          lastChange: async () => 0,
          announceChanges: async () => 0,
          changesAfter: async () => {
            state.calls += 1;
            return [];
          },
        },
        listener: { changed: () => true, caughtUp: () => {}, lost: () => {} },
        metrics,
      });
      await own.start();
      state.calls = 0;
      await vi.advanceTimersByTimeAsync(5000);
      expect(state.calls).toBe(10);
      await own.stop();
    } finally {
      vi.useRealTimers();
    }
  });
});

test('a key revoked by another process is rejected before its cache entry expires', async () => {
  await using setting = await openSetting();
  const { key, prefix: name } = await setting.issue();
  const follower = new ChangeFeed({
    store: setting.store,
    listener: setting.authenticator,
    metrics: setting.metrics,
  });
  await follower.start();
  await using child = startChild('revoke-key.ts', [setting.path, name]);
  expect(await child.nextLine()).toBe('revoked');
  const revokedAt = performance.now();
  // The clock of the authenticator stands still: nothing but the feed can tell it.
  await until(async () => (await outcome(setting.authenticator, key)) === 'invalid_api_key');
  // The promise is 1 s; the rest is for a slow machine.
  expect(performance.now() - revokedAt).toBeLessThan(5000);
  await follower.stop();
});

test('a key issued by another process is not cached here, and works', async () => {
  await using setting = await openSetting();
  await using child = startChild('issue-keys.ts', [setting.path, '1']);
  const text = await child.nextLine();
  expect(await child.ended).toBe(0);
  const { authenticator, changes } = setting;
  // The child used a stand-in for Argon2 of its own, in the same form as this one.
  expect(await outcome(authenticator, `Bearer ${text}`)).toBe(text.slice(0, 8));
  await changes.poll();
  expect(atOnce(authenticator.authenticate(bearer(text), '')).prefix).toBe(text.slice(0, 8));
});

describe('a verified key of which the feed says nothing', () => {
  test('needs no look-up within 5 s of the last reading, for an hour', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    const { authenticator, changes, advance } = setting;
    const isInMemory = () => !(authenticator.authenticate(bearer(key), '') instanceof Promise);
    for (let waited = 0; waited < 3_600_000; waited += 5000) {
      expect(isInMemory()).toBe(true);
      advance(5000);
      await changes.poll();
    }
    expect(setting.lookups).toBe(0);
    expect(isInMemory()).toBe(true);
    advance(1);
    await changes.poll();
    await authenticator.authenticate(bearer(key), '');
    expect(setting.lookups).toBe(1);
    advance(5001);
    expect(isInMemory()).toBe(false);
  });

  test('is served stale for 60 s after the last reading, and no longer', async () => {
    await using setting = await openSetting();
    const { key, prefix: name } = await setting.issue();
    setting.advance(100_000);
    await setting.changes.poll();
    setting.mood = 'failing';
    setting.advance(60_000);
    expect(await outcome(setting.authenticator, key)).toBe(name);
    setting.advance(1);
    expect(await outcome(setting.authenticator, key)).toBe('auth_unavailable');
  });

  test('is looked up when a change of it has been read', async () => {
    await using setting = await openSetting();
    const { key, prefix: name } = await setting.issue();
    const other = await setting.replica();
    expect(await outcome(other.authenticator, key)).toBe(name);
    await setting.issuer.revoke(name);
    setting.advance(6000);
    await other.changes.poll();
    expect(await outcome(other.authenticator, key)).toBe('invalid_api_key');
  });

  test.each([
    [
      'its expiry',
      `update keys set expires_at = '2020-01-01T00:00:00.000Z', version = version + 1`,
      'api_key_expired',
    ],
    [
      'its state',
      `update keys set state = 'revoked', ended_at = '2030', version = version + 1`,
      'invalid_api_key',
    ],
    ['its holder', `update holders set standing = 'suspended'`, 'billing_not_active'],
  ])('is looked up after a statement by hand that changes %s', async (_, statement, expected) => {
    await using setting = await openSetting();
    const { key, prefix: name } = await setting.issue();
    setting.advance(6000);
    const database = new DatabaseSync(setting.path);
    database.exec(statement);
    database.close();
    await setting.changes.poll();
    expect(await outcome(setting.authenticator, key)).toBe(expected);
    const events = await setting.store.historyOf(name);
    expect(events.at(-1)).toMatchObject({ reason: 'changed in the database', actor: null });
    await setting.changes.poll();
    expect(await setting.store.historyOf(name)).toHaveLength(2);
  });

  test('is looked up while a change by hand cannot be announced', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    setting.advance(6000);
    const { store, authenticator, metrics } = setting;
    const blocked = new ChangeFeed({
      store: {
        lastChange: () => store.lastChange(),
        changesAfter: (after, limit) => store.changesAfter(after, limit),
        announceChanges: () => Promise.reject(new GatewayError('store_unavailable')),
      },
      listener: authenticator,
      metrics,
      now: setting.now,
    });
    await blocked.poll();
    await authenticator.authenticate(bearer(key), '');
    expect(setting.lookups).toBe(1);
  });
});

test('a feed whose latest change is gone, or is another one, starts again and trusts no cached key', async () => {
  for (const rewrite of [
    (changes: KeyChange[]) => changes.splice(1),
    (changes: KeyChange[]) =>
      changes.splice(1, 2, ...changes.slice(1).map((one) => ({ ...one, version: 9 }))),
  ]) {
    const { add, changes, seen, state, follower } = feed(3_600_000);
    add('changed', 3);
    await follower.start();
    await follower.poll();
    expect(state.lost).toBe(0);
    rewrite(changes);
    const { caughtUp } = state;
    seen.length = 0;
    await follower.poll();
    expect(state).toMatchObject({ lost: 1, caughtUp });
    expect(seen).toHaveLength(changes.length);
    add('revoked');
    await follower.poll();
    expect(seen.at(-1)).toEqual([changes.at(-1)?.prefix, 'revoked']);
    expect(state).toMatchObject({ lost: 1, caughtUp: caughtUp + 1 });
    await follower.stop();
  }
});
