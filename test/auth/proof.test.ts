// Argon2 in a fleet: replicas on one real Redis that see a key at the same time prove it once.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { SLOTS } from '../../src/auth/hashing/hasher.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { pause, until } from '../helpers/wait.ts';
import { openFleetSetting, proofKey, recordKey, recordOf } from './fleet-setting.ts';
import { atOnce, bearer, counted, outcome } from './setting.ts';

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, REDIS_TIMEOUT);
beforeEach(() => server.flush());
afterAll(() => server?.stop());

/** Verifications that the test ends. */
function gate() {
  const waiting: (() => void)[] = [];
  let isOpen = false;
  return {
    waiting,
    verifying: () => (isOpen ? Promise.resolve() : new Promise<void>((resolve) => waiting.push(resolve))),
    open: () => {
      isOpen = true;
      for (const go of waiting) go();
    },
  };
}

test('a key that three replicas see at once is proven once', async () => {
  await using fleet = await openFleetSetting(server.url);
  const { setting } = fleet;
  // Slow enough for the others to come while it runs.
  const verifying = () => pause(60);
  const replicas = [
    await fleet.replica({ verifying }),
    await fleet.replica({ verifying }),
    await fleet.replica({ verifying }),
  ];
  for (let round = 1; round <= 5; round += 1) {
    const { key } = await setting.issue();
    const outcomes = await Promise.all(
      replicas.flatMap(({ authenticator }) => [outcome(authenticator, key), outcome(authenticator, key)]),
    );
    expect(outcomes).toEqual(Array.from({ length: 6 }, () => key.prefix));
    expect(setting.argon2.verifies).toBe(round);
    for (const { authenticator } of replicas) atOnce(authenticator.authenticate(bearer(key), ''));
  }
});

test('a proven key is neither proven nor looked up in the store by a replica that starts later', async () => {
  await using fleet = await openFleetSetting(server.url);
  const { setting } = fleet;
  const { key, prefix } = await setting.issue();
  await outcome((await fleet.replica()).authenticator, key);
  await until(async () => (await server.command('EXISTS', recordKey(prefix))) === 1);
  const before = setting.lookups;
  const late = await fleet.replica();
  expect(await outcome(late.authenticator, key)).toBe(prefix);
  expect([setting.argon2.verifies, setting.lookups - before]).toEqual([1, 0]);
});

test('a key issued by a replica is proven for all', async () => {
  await using fleet = await openFleetSetting(server.url);
  const [one, other] = [await fleet.replica(), await fleet.replica()];
  const { key } = await one.issuer.issue({ tier: 'Pro' });
  expect(await outcome(other.authenticator, key)).toBe(key.prefix);
  expect([fleet.setting.argon2.verifies, fleet.setting.lookups]).toEqual([0, 0]);
});

test('when the claiming replica is gone, another proves the key after the claim expires', async () => {
  await using fleet = await openFleetSetting(server.url);
  const { setting } = fleet;
  const { key, prefix } = await setting.issue();
  const [one, other] = [await fleet.replica(), await fleet.replica()];
  // It took the claim, and was killed.
  expect(await one.shared.claimProof(recordOf(prefix))).toBe(true);
  expect(await outcome(other.authenticator, key)).toBe(prefix);
  expect(setting.argon2.verifies).toBe(1);
  // By then every replica may take the word of this one.
  await until(async () => (await server.command('EXISTS', recordKey(prefix))) === 1);
  expect(await outcome(one.authenticator, key)).toBe(prefix);
  expect(setting.argon2.verifies).toBe(1);
});

test('when the proof takes too long, the others prove the key themselves', async () => {
  await using fleet = await openFleetSetting(server.url);
  const slow = gate();
  const one = await fleet.replica({ verifying: slow.verifying });
  const other = await fleet.replica();
  const { key } = await fleet.setting.issue();
  const first = outcome(one.authenticator, key);
  await until(() => slow.waiting.length === 1);
  expect(await outcome(other.authenticator, key)).toBe(key.prefix);
  expect(fleet.setting.argon2.verifies).toBe(2);
  slow.open();
  expect(await first).toBe(key.prefix);
});

test('a key that waits for a slot is not claimed, and takes the proof of another replica when its turn comes', async () => {
  await using fleet = await openFleetSetting(server.url);
  const { setting } = fleet;
  const blocked = gate();
  const one = await fleet.replica({ verifying: blocked.verifying });
  const other = await fleet.replica();
  const busy = [];
  for (let index = 0; index < SLOTS; index += 1) {
    const { key } = await setting.issue();
    busy.push(outcome(one.authenticator, key));
    await until(() => blocked.waiting.length === index + 1);
  }
  const { key, prefix } = await setting.issue();
  const waiting = outcome(one.authenticator, key);
  await until(async () => (await counted(one.metrics.argon2Queue))[''] === 1, 'the key to wait');
  expect(await server.command('EXISTS', proofKey(prefix))).toBe(0);
  const before = setting.argon2.verifies;
  expect(await outcome(other.authenticator, key)).toBe(prefix);
  expect(setting.argon2.verifies - before).toBe(1);
  await until(async () => (await server.command('EXISTS', recordKey(prefix))) === 1);
  // However old the claim of the other one is.
  await server.command('DEL', proofKey(prefix));
  blocked.open();
  expect(await waiting).toBe(prefix);
  await Promise.all(busy);
  expect(setting.argon2.verifies - before).toBe(1);
});

test('a proof that fails gives the claim back, so that another replica can prove the key at once', async () => {
  await using fleet = await openFleetSetting(server.url);
  const failing = () => Promise.reject(new Error('no memory'));
  const [one, other] = [await fleet.replica({ verifying: failing }), await fleet.replica()];
  const { key, prefix } = await fleet.setting.issue();
  expect(await outcome(one.authenticator, key)).toBe('key_hashing_overloaded');
  expect(await counted(one.metrics.authUnavailable)).toEqual({ hashing: 1 });
  await until(
    async () => (await server.command('EXISTS', proofKey(prefix))) === 0,
    'the claim to be released',
  );
  expect(await outcome(other.authenticator, key)).toBe(prefix);
});

test('keys that all replicas see at once are proven once each, and no slot waits for another replica', async () => {
  await using fleet = await openFleetSetting(server.url);
  const { setting } = fleet;
  const verifying = () => pause(20);
  const replicas = [
    await fleet.replica({ verifying }),
    await fleet.replica({ verifying }),
    await fleet.replica({ verifying }),
  ];
  const issued = await Promise.all(Array.from({ length: 60 }, () => setting.issue()));
  const keys = issued.map(({ key }) => key);
  const outcomes = await Promise.all(
    replicas.map(({ authenticator }) => Promise.all(keys.map((key) => outcome(authenticator, key)))),
  );
  for (const each of outcomes) expect(each).toEqual(keys.map(({ prefix }) => prefix));
  expect(setting.argon2.verifies).toBe(60);
  const runs = await Promise.all(replicas.map(({ metrics }) => counted(metrics.argon2Runs)));
  // Each does its share, more or less.
  for (const { verify = 0 } of runs) expect(verify).toBeGreaterThan(10);
});

test('a wrong key claims no proof and is never proven', async () => {
  await using fleet = await openFleetSetting(server.url, { failuresPerMinute: () => 1e6 });
  const { setting } = fleet;
  const { prefix } = await setting.issue();
  const replicas = [await fleet.replica(), await fleet.replica()];
  for (let index = 0; index < 50; index += 1) {
    const wrong = `Bearer ${prefix}${index.toString(16).padStart(24, '0')}`;
    for (const { authenticator } of replicas) {
      expect(await outcome(authenticator, wrong)).toBe('invalid_api_key');
    }
  }
  expect(setting.argon2.verifies).toBe(0);
  expect(await server.command('EXISTS', proofKey(prefix), recordKey(prefix))).toBe(0);
});

test('without Redis every replica proves the key itself', async () => {
  await using fleet = await openFleetSetting(server.url);
  const { setting } = fleet;
  const { key } = await setting.issue();
  const replicas = [await fleet.replica({ commandMs: 200 }), await fleet.replica({ commandMs: 200 })];
  server.pause();
  try {
    for (const { authenticator } of replicas) {
      await until(async () => {
        setting.advance(1000);
        return (await outcome(authenticator, key)) === key.prefix;
      }, 'the key to be accepted');
    }
    expect(setting.argon2.verifies).toBe(2);
  } finally {
    server.resume();
  }
});
