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
  const state = { failing: false, calls: 0, caughtUp: 0 };
  const metrics = createMetrics();
  const follower = new ChangeFeed({
    store: {
      lastChange: async () => changes.at(-1)?.id ?? 0,
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
  return { add, seen, state, metrics, follower };
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
          changesAfter: async () => {
            state.calls += 1;
            return [];
          },
        },
        listener: { changed: () => true, caughtUp: () => {} },
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
