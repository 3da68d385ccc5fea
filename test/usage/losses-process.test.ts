// Rows of the table of losses in docs/usage.md that need a whole gateway: how a process ends, and what others do beside it.
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { UsageSums } from '../../src/store/usage-record.ts';
import { readRow } from '../../src/usage/outbox/outbox-row.ts';
import { field, rotate } from '../e2e/holder.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  SSE_HEADERS,
  type Step,
  standardAnswer,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until, within } from '../helpers/wait.ts';
import { row } from './losses.ts';
import { files, open, QUICK, stored } from './samples.ts';

/** Streams that have begun, and end when they are released. */
function heldStreams(): { readonly step: Step; release: () => void } {
  let isReleased = false;
  const step: Step = async (c) => {
    await c.head(200, SSE_HEADERS);
    await c.chunk(frame(contentChunk('begun', { usage: null })));
    await c.waitFor(() => isReleased);
    await c.chunk(
      `${frame(finishChunk('stop', { usage: null }))}${frame(usageChunk({ prompt: 10, completion: 7 }))}${DONE}`,
    );
    await c.lastChunk();
  };
  return {
    step,
    release: () => {
      isReleased = true;
    },
  };
}

async function exit(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await within(once(child, 'exit'), 'the exit');
}

/** What the store has after the next process has sent what the directory holds. */
async function usageAfter(gateway: Gateway): Promise<UsageSums | undefined> {
  const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
  try {
    const directory = gateway.directory.file('usage');
    const { outbox } = await open(store.usage, directory, QUICK);
    await until(() => outbox.flush(), 'an empty outbox');
    await outbox.close(30_000);
    return (await store.usage.usageReport({ from: '2000', by: [], limit: 1 }))[0]?.sums;
  } finally {
    await store.close();
  }
}

async function startWithStreams(upstream: HostileUpstream, step: Step, config = {}) {
  const gateway = await startGateway({ process: true, upstreams: { up: upstream.baseUrl }, config });
  upstream.always(step);
  const clients = await Promise.all(
    Array.from({ length: 3 }, () => gateway.open(chatRequest({ stream: true }))),
  );
  await Promise.all(clients.map((client) => client.readUntil('begun')));
  return { gateway, clients };
}

describe('what happens', () => {
  row('SIGTERM', async () => {
    await using upstream = await HostileUpstream.start();
    const { step, release } = heldStreams();
    const { gateway, clients } = await startWithStreams(upstream, step);
    await using _ = gateway;
    gateway.child.kill('SIGTERM');
    await gateway.logLine((line) => line['msg'] === 'draining');
    release();
    for (const client of clients) expect((await client.response()).complete).toBe(true);
    await exit(gateway.child);
    expect(files(gateway.directory.file('usage'))).toEqual([]);
    expect(await usageAfter(gateway)).toMatchObject({
      requests: 3,
      estimated: 0,
      prompt: 30,
      completion: 21,
    });
  });

  row('a second SIGTERM, or the end of the drain', async () => {
    await using upstream = await HostileUpstream.start();
    const { gateway, clients } = await startWithStreams(upstream, heldStreams().step, {
      drain: { timeout: '10m' },
    });
    await using _ = gateway;
    gateway.child.kill('SIGTERM');
    await gateway.logLine((line) => line['msg'] === 'draining');
    gateway.child.kill('SIGTERM');
    for (const client of clients) expect((await client.response()).complete).toBe(false);
    await exit(gateway.child);
    // Cut answers are recorded too, with what was estimated of them.
    const sums = await usageAfter(gateway);
    expect(sums).toMatchObject({ requests: 3, estimated: 3 });
    expect(sums?.prompt).toBeGreaterThan(0);
    expect(sums?.completion).toBeGreaterThan(0);
  });

  row('the process is killed', async () => {
    await using upstream = await HostileUpstream.start();
    const { gateway, clients } = await startWithStreams(upstream, heldStreams().step);
    await using _ = gateway;
    for (let index = 0; index < 4; index += 1) {
      upstream.next(standardAnswer);
      expect((await gateway.chat(chatRequest())).status).toBe(200);
    }
    // What has ended is in the store, or in lines of the directory.
    const directory = gateway.directory.file('usage');
    const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
    await until(async () => {
      const stored =
        (await store.usage.usageReport({ from: '2000', by: [], limit: 1 }))[0]?.sums.requests ?? 0;
      return stored + requestsIn(directory) >= 4;
    }, 'lines');
    await store.close();
    gateway.child.kill('SIGKILL');
    await exit(gateway.child);
    for (const client of clients) client.destroy();
    // The three that ran are recorded nowhere, and that is all.
    expect(await usageAfter(gateway)).toMatchObject({ requests: 4 });
  });

  row('a key is rotated or revoked', async () => {
    await using upstream = await HostileUpstream.start();
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
    const key = await gateway.issueKey('Pro');
    const { step, release } = heldStreams();
    upstream.next(step);
    const running = await gateway.open(chatRequest({ stream: true }), { key });
    await running.readUntil('begun');
    const next = await rotate(gateway.url, key);
    expect(next.status).toBe(200);
    release();
    expect((await running.response()).complete).toBe(true);
    const fresh = String(field(next.json(), 'key'));
    expect((await gateway.chat(chatRequest(), { key: fresh })).status).toBe(200);
    await gateway.app.close();
    const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
    const byKey = await store.usage.usageReport({ from: '2000', by: ['key'], limit: 10 });
    await store.close();
    const prefixes = [key, fresh].map((each) => each.slice(0, 8));
    expect(byKey.map(({ group, sums }) => [group[0], sums.requests]).toSorted()).toEqual(
      prefixes.map((prefix) => [prefix, 1]).toSorted(),
    );
  });

  describe('with a Redis', () => {
    let redis: RedisServer;
    beforeAll(async () => {
      redis = await startRedis();
    }, REDIS_TIMEOUT);
    afterAll(() => redis?.stop());

    row('Redis loses its counters', async () => {
      await using upstream = await HostileUpstream.start();
      await using gateway = await startGateway({
        upstreams: { up: upstream.baseUrl },
        config: { redis: redis.url, tiers: { Pro: { requests_per_day: 100 } } },
      });
      const key = await gateway.issueKey('Pro');
      const use = async () => expect((await gateway.chat(chatRequest(), { key })).status).toBe(200);
      for (let index = 0; index < 3; index += 1) await use();
      await redis.flush();
      await use();
      const report = await until(async () => {
        const response = await fetch(`${gateway.url}/admin/usage`, {
          headers: { authorization: `Bearer ${key}` },
        });
        const body: unknown = await response.json();
        return field(body, 'totals', 'requests') === 4 ? body : undefined;
      }, 'the report');
      // The counter of the day begins again with what the outbox has.
      expect(field(report, 'limits', '0', 'used')).toBeGreaterThanOrEqual(4);
    });
  });
});

/** Requests in the files of the outbox. */
function requestsIn(directory: string): number {
  return files(directory)
    .flatMap((name) => stored(join(directory, name)))
    .reduce((sum, { cells }) => sum + (readRow(cells)?.sums.requests ?? 0), 0);
}
