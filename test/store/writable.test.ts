// Ready means writable: checks use the results of real writes, notice a lock of another process, and write rarely.
import { copyFileSync, renameSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { WriteState } from '../../src/store/write-state.ts';
import { startGateway } from '../helpers/gateway.ts';
import { until } from '../helpers/wait.ts';

function replace(file: string): void {
  copyFileSync(file, `${file}.copy`);
  renameSync(`${file}.copy`, file);
}

interface Report {
  readonly status: string;
  readonly checks: { readonly store: string };
  readonly ready?: boolean;
}

test('while another process holds the lock of the file: writes 503, not ready, degraded, and ok afterwards', async () => {
  await using gateway = await startGateway();
  const write = async () => {
    const headers = { 'content-type': 'application/json' };
    const body = '{"tier":"Free"}';
    const answer = await fetch(`${gateway.url}/checkout`, { method: 'POST', headers, body });
    await answer.arrayBuffer();
    return { status: answer.status, retryAfter: answer.headers.get('retry-after') };
  };
  const states = async () => {
    const [ready, health] = await Promise.all([
      fetch(`${gateway.adminUrl}/readyz`),
      fetch(`${gateway.url}/health`),
    ]);
    const { status, checks, ready: isReady } = (await health.json()) as Report;
    await ready.arrayBuffer();
    return [ready.status, health.status, status, checks.store, isReady];
  };
  const served = async () =>
    (await gateway.chat({ model: 'test-model', messages: [{ role: 'user', content: 'hello' }] })).status;
  await gateway.key();
  expect(await states()).toEqual([200, 200, 'ok', 'ok', undefined]);
  const other = new DatabaseSync(gateway.directory.file('tollgate.db'));
  other.exec('begin exclusive');
  expect(await write()).toEqual({ status: 503, retryAfter: expect.stringMatching(/^\d+$/) });
  await until(async () => (await states())[0] === 503, 'unreadiness');
  expect(await states()).toEqual([503, 200, 'degraded', 'degraded', false]);
  expect(await served()).toBe(200);
  await until(async () => (await gateway.metric('tollgate_store_writable')) === 0, 'the metric');
  await gateway.logLine(({ msg }) => String(msg).startsWith('the store is not writable'));
  other.exec('rollback');
  other.close();
  await until(async () => (await states())[0] === 200, 'readiness');
  expect(await states()).toEqual([200, 200, 'ok', 'ok', undefined]);
  expect((await write()).status).toBe(201);
  expect(await gateway.metric('tollgate_store_writable')).toBe(1);
  await gateway.logLine(({ msg }) => msg === 'the store is writable again');
});

test.concurrent.each<[string, (file: string) => void]>([
  ['deleted', (file) => rmSync(file)],
  ['replaced', replace],
  ['without its log', (file) => rmSync(`${file}-wal`)],
])('a file that is %s while it is open takes no write that would be lost', async (_how, damage) => {
  await using gateway = await startGateway();
  const chat = async () =>
    (await gateway.chat({ model: 'test-model', messages: [{ role: 'user', content: 'hello' }] })).status;
  const isReady = async () => (await fetch(`${gateway.adminUrl}/readyz`)).status === 200;
  expect([await chat(), await isReady()]).toEqual([200, true]);
  damage(gateway.directory.file('tollgate.db'));
  await expect(gateway.issueKey()).rejects.toThrow();
  await until(async () => !(await isReady()), 'unreadiness');
  expect(await chat()).toBe(200);
  const { err } = await gateway.logLine(({ msg }) => String(msg).startsWith('the store is not writable'));
  expect(JSON.stringify(err)).toMatch(/deleted|replaced/);
});

describe('the state', () => {
  const setting = () => {
    const own = { now: 0, writes: 0, works: true };
    const state = new WriteState({
      now: () => own.now,
      write: async () => {
        own.writes += 1;
        if (!own.works) throw new Error('read-only');
      },
    });
    const check = () =>
      state.check().then(
        () => true,
        () => false,
      );
    return { own, state, check };
  };

  test('is unwritable at once when a write certainly fails, and writable at once when one succeeds', async () => {
    const { own, state, check } = setting();
    expect(await check()).toBe(true);
    state.failed(new Error('disk full'), true);
    expect(await check()).toBe(false);
    state.succeeded();
    expect(await check()).toBe(true);
    expect(own.writes).toBe(1);
  });

  test('after an uncertain failure the next check makes a write', async () => {
    const { own, state, check } = setting();
    await check();
    state.failed(new Error('a row is locked'), false);
    expect(await check()).toBe(true);
    expect(own.writes).toBe(2);
  });

  test('concurrent checks share one write', async () => {
    const { own, check } = setting();
    expect(await Promise.all([check(), check(), check()])).toEqual([true, true, true]);
    expect(own.writes).toBe(1);
  });

  test('is never older than five seconds, and costs at most one write a second', async () => {
    const step = fc.record({ after: fc.integer({ min: 0, max: 3000 }), works: fc.boolean() });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 60 }), async (steps) => {
        const { own, check } = setting();
        const changedAt = { good: 0, bad: 0 };
        for (const { after, works } of steps) {
          own.now += after;
          if (works !== own.works) changedAt[works ? 'good' : 'bad'] = own.now;
          own.works = works;
          const said = await check();
          if (said !== works) {
            const since = own.now - changedAt[works ? 'good' : 'bad'];
            expect(since).toBeLessThan(works ? 1000 : 5000);
          }
        }
        expect(own.writes).toBeLessThanOrEqual(1 + own.now / 1000);
      }),
      { numRuns: 200 },
    );
  });
});
