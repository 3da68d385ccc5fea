// How replicas learn of each other's changes: messages, tombstones in Redis and the change feed, and the bounds when all of
// them fail.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Authenticator } from '../../src/auth/authenticator.ts';
import type { Key } from '../../src/auth/key/key.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { connect, marksIn, openFleetSetting, recordKey, type SharedReplica } from './fleet-setting.ts';
import { bearer, counted, outcome, wrongKey } from './setting.ts';

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, REDIS_TIMEOUT);
beforeEach(() => server.flush());
afterEach(() => server.resume());
afterAll(() => server?.stop());

/** Whether the key is accepted without asking anybody. Where it is not, the question that was begun is shared by who asks next. */
function isInMemory(authenticator: Authenticator, key: Key): boolean {
  const answer = authenticator.authenticate(bearer(key), '');
  if (!(answer instanceof Promise)) return true;
  answer.catch(() => {});
  return false;
}

/** A key that `replica` has verified. */
async function verified(replica: SharedReplica, issuer: SharedReplica = replica) {
  const issued = await issuer.issuer.issue({ tier: 'Lite' });
  expect(await outcome(replica.authenticator, issued.key)).toBe(issued.prefix);
  expect(isInMemory(replica.authenticator, issued.key)).toBe(true);
  return issued;
}

/** What Redis holds for a key, raw. */
const held = (prefix: string) => server.command('GET', `tollgate:key:{${prefix}}`);

describe('a message', () => {
  test('about an ended key invalidates it here at once and counts once', async () => {
    await using fleet = await openFleetSetting(server.url);
    const [one, other] = [await fleet.replica(), await fleet.replica()];
    const { key, prefix } = await verified(other, one);
    await one.issuer.revoke(prefix);
    // It is in the store and marked in Redis, and this replica has not heard of it.
    expect(isInMemory(other.authenticator, key)).toBe(true);
    const message = one.sent.at(-1) ?? '';
    expect(JSON.parse(message)).toEqual({ prefix, kind: 'revoked', version: 2, at: expect.any(String) });
    other.fleet.receive(message);
    expect(isInMemory(other.authenticator, key)).toBe(false);
    expect(await outcome(other.authenticator, key)).toBe('invalid_api_key');
    other.fleet.receive(message);
    await other.changes.poll();
    expect(await counted(other.metrics.keyChanges)).toEqual({ revoked: 1 });
  });

  test('about a rotation invalidates the old key; the new one works everywhere without another proof', async () => {
    await using fleet = await openFleetSetting(server.url);
    const [one, other] = [await fleet.replica(), await fleet.replica()];
    const { key } = await verified(other, one);
    const next = await one.issuer.rotate(await one.authenticator.authenticate(bearer(key), ''));
    for (const message of one.sent) other.fleet.receive(message);
    expect(await outcome(other.authenticator, key)).toBe('invalid_api_key');
    expect(await outcome(other.authenticator, next.key)).toBe(next.prefix);
    expect(fleet.setting.argon2.verifies).toBe(0);
  });

  test('about an issued key clears its entry in the negative cache', async () => {
    const bytes = Uint8Array.from({ length: 16 }, (_, index) => 0xf0 + index);
    await using fleet = await openFleetSetting(server.url);
    const other = await fleet.replica();
    const early = Buffer.from(bytes).toString('hex');
    expect(await outcome(other.authenticator, `Bearer ${early}`)).toBe('invalid_api_key');
    other.fleet.receive(
      JSON.stringify({ prefix: early.slice(0, 8), kind: 'issued', version: 1, at: 'today' }),
    );
    const before = fleet.setting.lookups;
    expect(await outcome(other.authenticator, `Bearer ${early}`)).toBe('invalid_api_key');
    expect(fleet.setting.lookups - before).toBe(1);
  });

  test.each([
    ['', 'nothing'],
    ['{', 'half of JSON'],
    ['null', 'null'],
    ['[]', 'a list'],
    ['{"prefix":"PREFIX"}', 'half of it'],
    ['{"prefix":"PREFIX","kind":"revoked","version":"2","at":""}', 'a version that is text'],
    ['{"prefix":"PREFIX","kind":"revoked","version":0,"at":""}', 'version 0'],
    ['{"prefix":"PREFIX","kind":"revoked","version":1.5,"at":""}', 'version 1.5'],
    ['{"prefix":"PREFIX","kind":"revoked","version":1e400,"at":""}', 'an infinite version'],
    ['{"prefix":"PREFIX","kind":"deleted","version":2,"at":""}', 'an unknown kind'],
    ['{"prefix":"PREFIX0","kind":"revoked","version":2,"at":""}', 'another prefix'],
    ['{"prefix":"*","kind":"revoked","version":2,"at":""}', 'a pattern'],
    ['{"__proto__":{"prefix":"PREFIX"},"kind":"revoked","version":2,"at":""}', 'a prototype'],
  ])('that is %j (%s) changes nothing', async (text) => {
    await using fleet = await openFleetSetting(server.url);
    const replica = await fleet.replica();
    const { key, prefix } = await verified(replica);
    replica.fleet.receive(text.replace('PREFIX', prefix));
    expect(isInMemory(replica.authenticator, key)).toBe(true);
    expect(await counted(replica.metrics.keyChanges)).toEqual({});
  });

  test('that is forged costs a look-up and a proof, and blocks no holder', async () => {
    await using fleet = await openFleetSetting(server.url);
    const { setting } = fleet;
    const replica = await fleet.replica();
    const { key, prefix } = await verified(replica);
    const before = setting.lookups;
    for (const version of [1, 2, 7, Number.MAX_SAFE_INTEGER]) {
      replica.fleet.receive(JSON.stringify({ prefix, kind: 'revoked', version, at: 'never' }));
      expect(isInMemory(replica.authenticator, key)).toBe(false);
      expect(await outcome(replica.authenticator, key)).toBe(prefix);
      expect(isInMemory(replica.authenticator, key)).toBe(true);
    }
    // Version 1 is what Redis has; the others are newer than that, so that the store is asked.
    expect(setting.lookups - before).toBe(3);
    expect(setting.argon2.verifies).toBeLessThanOrEqual(3);
    // A key that is bad stays bad, whatever is said.
    await replica.issuer.revoke(prefix);
    replica.fleet.receive(JSON.stringify({ prefix, kind: 'issued', version: 9, at: 'never' }));
    expect(await outcome(replica.authenticator, key)).toBe('invalid_api_key');
  });
});

describe('a tombstone in Redis', () => {
  test('of an ended key applies at the next look-up, before any message', async () => {
    await using fleet = await openFleetSetting(server.url);
    const [one, other] = [await fleet.replica(), await fleet.replica()];
    const { key, prefix } = await verified(other, one);
    await one.issuer.revoke(prefix);
    fleet.setting.advance(5001);
    expect(await outcome(other.authenticator, key)).toBe('invalid_api_key');
  });

  test('that is forged causes a look-up; while the store is away the key is not served stale', async () => {
    await using fleet = await openFleetSetting(server.url);
    const { setting } = fleet;
    const replica = await fleet.replica();
    const { key, prefix } = await verified(replica);
    const unmarked = await verified(replica);
    expect(await marksIn(replica.redis).write('ended', prefix, 2)).toBe(true);
    setting.advance(5001);
    expect(await outcome(replica.authenticator, key)).toBe(prefix);
    setting.mood = 'failing';
    await server.command('DEL', recordKey(unmarked.prefix));
    setting.advance(5001);
    expect(await outcome(replica.authenticator, key)).toBe('auth_unavailable');
    // Nobody says anything of this one: it goes on.
    expect(await outcome(replica.authenticator, unmarked.key)).toBe(unmarked.prefix);
    setting.mood = 'well';
    expect(await outcome(replica.authenticator, key)).toBe(prefix);
  });

  test('is restored by a replica that reads the change feed', async () => {
    await using fleet = await openFleetSetting(server.url);
    const replica = await fleet.replica();
    const { key, prefix } = await verified(replica);
    const old = await held(prefix);
    // By a process that has no way to Redis.
    await fleet.setting.issuer.revoke(prefix);
    expect(await held(prefix)).toBe(old);
    await replica.changes.poll();
    await until(async () => (await held(prefix)) === '2 ended');
    expect(await outcome(replica.authenticator, key)).toBe('invalid_api_key');
  });

  test('that Redis lost is written again when Redis is back', async () => {
    await using fleet = await openFleetSetting(server.url);
    const replica = await fleet.replica({ commandMs: 500 });
    const keys = [await verified(replica), await verified(replica), await verified(replica)];
    for (const { prefix } of keys) await fleet.setting.issuer.revoke(prefix);
    await replica.changes.poll();
    const areMarked = async () => {
      const marks = await Promise.all(keys.map(({ prefix }) => held(prefix)));
      return marks.every((mark) => mark === '2 ended');
    };
    await until(areMarked);
    await server.kill();
    await until(() => !replica.redis.isUp, 'Redis to be away');
    await server.start();
    await until(areMarked);
    expect(await server.command('DBSIZE')).toBeGreaterThanOrEqual(3);
  });
});

describe('a replica that starts after a key has ended', () => {
  test('rejects it, even when Redis has an old record again', async () => {
    await using fleet = await openFleetSetting(server.url);
    const { setting } = fleet;
    const one = await fleet.replica();
    const { key, prefix } = await verified(one);
    const old = String(await held(prefix));
    expect(old).toContain('"version":1');
    await one.issuer.revoke(prefix);
    // As after a failover that lost the mark.
    await server.command('SET', recordKey(prefix), old);
    const late = await fleet.replica();
    expect(await outcome(late.authenticator, key)).toBe('invalid_api_key');
    expect(await outcome(one.authenticator, key)).toBe('invalid_api_key');
    // With the store away nobody can say that the key is bad, and nobody lets it in.
    setting.mood = 'failing';
    setting.advance(20_000);
    expect(await outcome(late.authenticator, key)).toBe('auth_unavailable');
  });
});

describe('a replica without messages', () => {
  /** Whether a request with the key asks anybody now. */
  async function asks(replica: SharedReplica, key: Key): Promise<boolean> {
    if (isInMemory(replica.authenticator, key)) return false;
    expect(await outcome(replica.authenticator, key)).toBe(key.prefix);
    return true;
  }

  test('whose change feed is behind looks keys up at once, then each second; once subscribed again, at once', async () => {
    await using fleet = await openFleetSetting(server.url);
    const { setting } = fleet;
    const replica = await fleet.replica();
    const keys = [
      (await verified(replica)).key,
      (await verified(replica)).key,
      (await verified(replica)).key,
    ];
    const ask = async () => {
      const answers: boolean[] = [];
      for (const key of keys) answers.push(await asks(replica, key));
      return new Set(answers);
    };
    setting.advance(10);
    replica.authenticator.unlinked();
    expect(await ask()).toEqual(new Set([true]));
    expect(await ask()).toEqual(new Set([false]));
    setting.advance(1000);
    expect(await ask()).toEqual(new Set([false]));
    setting.advance(1);
    expect(await ask()).toEqual(new Set([true]));
    setting.advance(500);
    expect(await ask()).toEqual(new Set([false]));
    replica.authenticator.linked();
    // What the look-ups of the last second brought is no better than what is known.
    setting.advance(600);
    expect(await ask()).toEqual(new Set([true]));
    expect(setting.argon2.verifies).toBe(0);
  });

  test('looks no key up while it reads the change feed', async () => {
    await using fleet = await openFleetSetting(server.url);
    const { setting } = fleet;
    const replica = await fleet.replica();
    const { key } = await verified(replica);
    setting.advance(10);
    replica.authenticator.unlinked();
    expect(isInMemory(replica.authenticator, key)).toBe(false);
    await replica.changes.poll();
    expect(isInMemory(replica.authenticator, key)).toBe(true);
    setting.advance(1000);
    expect(isInMemory(replica.authenticator, key)).toBe(true);
    setting.advance(1);
    expect(isInMemory(replica.authenticator, key)).toBe(false);
    replica.authenticator.linked();
    await replica.changes.poll();
    setting.advance(5000);
    expect(isInMemory(replica.authenticator, key)).toBe(true);
    setting.advance(1);
    expect(isInMemory(replica.authenticator, key)).toBe(false);
  });

  test('accepts a key that ended elsewhere for at most a second', async () => {
    await using fleet = await openFleetSetting(server.url);
    const { setting } = fleet;
    const replica = await fleet.replica();
    const { key, prefix } = await verified(replica);
    setting.advance(10);
    replica.authenticator.unlinked();
    expect(await outcome(replica.authenticator, key)).toBe(prefix);
    await setting.issuer.revoke(prefix);
    // Neither does Redis know.
    expect(String(await held(prefix))).toContain('"version":1');
    setting.advance(1001);
    await replica.changes.poll();
    expect(await outcome(replica.authenticator, key)).toBe('invalid_api_key');
  });

  test('and without store and Redis serves for 60 s after the last confirmation, then answers 503', async () => {
    await using fleet = await openFleetSetting(server.url);
    const { setting } = fleet;
    const replica = await fleet.replica({ commandMs: 200 });
    const { key, prefix } = await verified(replica);
    const strange = wrongKey(prefix);
    server.pause();
    await until(() => !replica.redis.isUp, 'Redis to be away');
    setting.mood = 'failing';
    replica.authenticator.unlinked();
    for (let second = 0; second < 60; second += 2) {
      expect(await outcome(replica.authenticator, key)).toBe(prefix);
      expect(await outcome(replica.authenticator, strange)).toBe('auth_unavailable');
      setting.advance(2000);
    }
    expect(await outcome(replica.authenticator, key)).toBe(prefix);
    setting.advance(1);
    for (let round = 0; round < 3; round += 1) {
      expect(await outcome(replica.authenticator, key)).toBe('auth_unavailable');
      expect(await outcome(replica.authenticator, strange)).toBe('auth_unavailable');
      setting.advance(60_000);
    }
    // The store alone is enough.
    setting.mood = 'well';
    expect(await outcome(replica.authenticator, key)).toBe(prefix);
    expect(await outcome(replica.authenticator, strange)).toBe('invalid_api_key');
  });

  test('and without the store accepts records of Redis for 60 s after the last poll of the feed, then answers 503', async () => {
    await using fleet = await openFleetSetting(server.url);
    const { setting } = fleet;
    const replica = await fleet.replica();
    const { key, prefix } = await verified(replica);
    const met = await replica.issuer.issue({ tier: 'Free' });
    // Its revocation is in the store and nowhere else, and what stands in Redis is the record from before.
    await setting.issuer.revoke(prefix);
    setting.mood = 'failing';
    for (let second = 0; second <= 60; second += 6) {
      expect(await outcome(replica.authenticator, key)).toBe(prefix);
      expect(await outcome(replica.authenticator, met.key)).toBe(met.prefix);
      expect(isInMemory(replica.authenticator, key)).toBe(true);
      setting.advance(6000);
    }
    expect(setting.lookups).toBe(0);
    expect(await outcome(replica.authenticator, key)).toBe('auth_unavailable');
    expect(await outcome(replica.authenticator, met.key)).toBe('auth_unavailable');
    setting.mood = 'well';
    await replica.changes.poll();
    expect(await outcome(replica.authenticator, key)).toBe('invalid_api_key');
    expect(await outcome(replica.authenticator, met.key)).toBe(met.prefix);
  });
});

test('changes of a replica without Redis reach the others through the feed', async () => {
  await using fleet = await openFleetSetting(server.url);
  const [one, other] = [await fleet.replica({ commandMs: 200 }), await fleet.replica({ commandMs: 200 })];
  const { key, prefix } = await verified(other, one);
  server.pause();
  await one.issuer.revoke(prefix);
  const issued = await one.issuer.issue({ tier: 'Free' });
  expect(isInMemory(other.authenticator, key)).toBe(true);
  await other.changes.poll();
  await until(async () => (await outcome(other.authenticator, key)) === 'invalid_api_key');
  expect(await outcome(other.authenticator, issued.key)).toBe(issued.prefix);
  server.resume();
  await until(async () => (await held(prefix)) === '2 ended', 'the mark');
});

test('Redis has no key, and nothing to guess one from', async () => {
  await using fleet = await openFleetSetting(server.url);
  const replica = await fleet.replica();
  const { key } = await verified(replica);
  const client = await connect(server.url);
  try {
    const names = await client.run((commands) => commands.keys('*'));
    const values = await Promise.all(
      names.map((name) => client.run((commands) => commands.dump(name)).then(String)),
    );
    const all = [...names, ...values, ...replica.sent].join('\n');
    expect(all).toContain(key.prefix);
    expect(all).not.toContain(key.reveal().slice(8));
    expect(all).not.toContain(Buffer.from(key.reveal(), 'hex').toString('base64'));
  } finally {
    await client.close();
  }
});
