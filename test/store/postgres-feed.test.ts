// The change feed on PostgreSQL has the order of commits: a reader misses nothing, however writers interleave.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { KeyChange, KeyRecord } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { query } from '../helpers/postgres.ts';
import { type Databases, POSTGRES_TIMEOUT, sharedPostgres } from '../helpers/shared-servers.ts';
import { pause, until } from '../helpers/wait.ts';
import { newHolder, newKey } from './samples.ts';

let server: Databases;
let url: string;
let stores: Store[];

beforeAll(async () => {
  server = await sharedPostgres();
}, POSTGRES_TIMEOUT);

afterAll(() => server[Symbol.asyncDispose]());

beforeEach(async () => {
  url = await server.createDatabase();
  stores = [];
});

afterEach(() => Promise.all(stores.map((store) => store.close())));

async function open(): Promise<Store> {
  const store = await openStore({ kind: 'postgres', url });
  stores.push(store);
  return store;
}

/** Makes commits take their time where the event has this reason: the id is drawn by then, and not yet seen. */
async function slowDown(seconds: string): Promise<void> {
  await query(
    url,
    `create function take_time() returns trigger language plpgsql as $$
     begin perform pg_sleep(${seconds}); return null; end $$`,
  );
  await query(
    url,
    `create constraint trigger take_time after insert on key_events deferrable initially deferred
     for each row when (new.reason = 'slow') execute function take_time()`,
  );
}

/** Reads the feed as another process does, from the last id it saw, until `stop()`; returns what it saw. */
function follow(store: Store): { stop(): Promise<KeyChange[]> } {
  const seen: KeyChange[] = [];
  let stopped = false;
  const following = (async () => {
    for (let last = false; !last; await pause(1)) {
      last = stopped;
      seen.push(...(await store.changesAfter(seen.at(-1)?.id ?? 0, 100)));
    }
  })();
  return {
    async stop() {
      stopped = true;
      await following;
      return seen;
    },
  };
}

test('a change with a slow commit is not overtaken by a later one', async () => {
  const [one, other, reader] = [await open(), await open(), await open()];
  await slowDown('0.4');
  const follower = follow(reader);
  const slow = one.addKey(newKey(), newHolder(), 'slow');
  await until(
    async () => (await query(url, `select 1 from pg_stat_activity where wait_event = 'PgSleep'`)).length > 0,
    'the slow commit',
  );
  const fast = other.addKey(newKey(), newHolder(), 'fast');
  expect([(await slow).kind, (await fast).kind]).toEqual(['added', 'added']);
  expect((await follower.stop()).map(({ reason }) => reason)).toEqual(['slow', 'fast']);
});

test('a list of keys with a later key has the earlier one too, so pages miss nothing', async () => {
  const [one, other] = [await open(), await open()];
  await slowDown('0.4');
  const [first, second] = [newKey(), newKey()];
  const slow = one.addKey(first, newHolder(), 'slow');
  await until(
    async () => (await query(url, `select 1 from pg_stat_activity where wait_event = 'PgSleep'`)).length > 0,
    'the slow commit',
  );
  await other.addKey(second, newHolder(), 'fast');
  expect((await other.listKeys({ limit: 10 })).items.map((key) => key.prefix)).toEqual([
    first.prefix,
    second.prefix,
  ]);
  await slow;
});

test('many writers on several connections lose no change', async () => {
  const writers = [await open(), await open(), await open()];
  const reader = await open();
  await slowDown('random() * 0.005');
  const follower = follow(reader);
  const work = writers.flatMap((store, index) =>
    Array.from({ length: 3 }, async (_, lane) => {
      for (let round = 0; round < 12; round += 1) {
        const reason = (round + lane) % 3 === 0 ? 'slow' : `${index}`;
        const added = await store.addKey(newKey(), newHolder(), reason);
        if (added.kind !== 'added') throw new Error(added.kind);
        await end(store, added.record, round);
      }
    }),
  );
  await Promise.all(work);
  const seen = await follower.stop();
  const all = await reader.changesAfter(0, 1000);
  expect(all.length).toBeGreaterThan(9 * 12);
  expect(seen).toEqual(all);
});

async function end(store: Store, key: KeyRecord, round: number): Promise<void> {
  if (round % 3 === 0) await store.rotateKey(key, newKey());
  if (round % 3 === 1) await store.revokeKey(key.prefix, 'slow', key.createdAt);
}
