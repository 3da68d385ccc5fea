// The records in a real Redis: the overwrite rules, and that no damaged, forged or outdated record is accepted. FUZZ_RUNS sets the number of
// runs of each property.
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { KeySecret } from '../../src/auth/hashing/hashing-secret.ts';
import type { CheckableKey } from '../../src/auth/key/principal.ts';
import { KeyTombstones, SharedRecords } from '../../src/auth/records/shared-records.ts';
import type { RedisClient } from '../../src/redis/redis-client.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { connect, marksIn, numbered, proofKey, recordKey, recordOf } from './fleet-setting.ts';
import { counted } from './setting.ts';

const SECRET = new KeySecret('a secret of the test');
const ONE = numbered(1);
/** Each with hundreds of steps, or a thousand races. */
const RUNS = Number(process.env['FUZZ_RUNS'] ?? 20);

let server: RedisServer;
let redis: RedisClient;

beforeAll(async () => {
  server = await startRedis();
  redis = await connect(server.url);
}, REDIS_TIMEOUT);
beforeEach(() => server.flush());
afterAll(async () => {
  await redis?.close();
  await server?.stop();
});

function sharing(client: RedisClient = redis, secret = SECRET) {
  const metrics = createMetrics();
  return { shared: new SharedRecords({ redis: client, secret, metrics }), metrics };
}

function put(value: string | Buffer, name = recordKey(ONE)): Promise<unknown> {
  return redis.run((commands) => commands.set(name, value));
}

/** What `keep` writes for this record. */
async function kept(record: CheckableKey): Promise<Buffer> {
  await sharing().shared.publish(record);
  const value = await redis.run((commands) => commands.getBuffer(recordKey(record.prefix)));
  if (value === null) throw new Error('nothing was kept');
  return value;
}

describe('a record', () => {
  test('is found by every replica as it was published', async () => {
    const { shared, metrics } = sharing();
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
    await shared.publish(recordOf(ONE, 3));
    expect(await sharing().shared.find(ONE)).toEqual({ kind: 'record', record: recordOf(ONE, 3) });
    expect(await shared.find(ONE)).toEqual({ kind: 'record', record: recordOf(ONE, 3) });
    expect(await shared.find(numbered(2))).toEqual({ kind: 'nothing' });
    expect(await counted(metrics.sharedRecords)).toEqual({ hit: 1, miss: 2 });
  });

  test('keeps team, terms, expiry and lineage, and without them reads as in earlier versions', async () => {
    const own: CheckableKey = {
      ...recordOf(ONE, 3),
      lineage: numbered(2),
      teamId: 'a team',
      holderTerms: { limits: { concurrency: 7, tokens_per_day: null } },
      terms: { models: ['gpt-*'], endpoints: ['chat'] },
      expiresAt: '2030-01-02T03:04:05.006Z',
    };
    await sharing().shared.publish(own);
    expect(await sharing().shared.find(ONE)).toEqual({ kind: 'record', record: own });
    const plain = (await kept(recordOf(ONE, 4))).toString();
    expect(Object.keys(JSON.parse(plain.slice(plain.indexOf('{'))))).toEqual([
      'prefix',
      'holder',
      'tier',
      'standing',
      'version',
      'argon2',
      'hmac',
    ]);
  });

  test('with terms of a newer version is not used, so that the store decides', async () => {
    const { shared, metrics } = sharing();
    // A newer version may have members that this one does not know.
    const newer = { ...recordOf(ONE, 3), terms: JSON.parse('{"later":1}') };
    await shared.publish(newer);
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
    expect(await counted(metrics.sharedRecords)).toEqual({ damaged: 1 });
  });

  test('is found again after SCRIPT FLUSH', async () => {
    const { shared } = sharing();
    await shared.publish(recordOf(ONE));
    await server.command('SCRIPT', 'FLUSH');
    await shared.publish(recordOf(ONE, 2));
    expect(await shared.find(ONE)).toMatchObject({ kind: 'record', record: { version: 2 } });
  });

  test('of an ended key is a tombstone that a slow reader cannot overwrite', async () => {
    const { shared, metrics } = sharing();
    await shared.publish(recordOf(ONE, 1));
    expect(await marksIn(redis).write('ended', ONE, 2)).toBe(true);
    await shared.publish(recordOf(ONE, 1));
    expect(await shared.find(ONE)).toEqual({ kind: 'tombstone', tombstone: 'ended', version: 2 });
    expect(await counted(metrics.sharedRecords)).toEqual({ ended: 1 });
  });

  test('of the same version overwrites a false tombstone', async () => {
    const { shared } = sharing();
    await marksIn(redis).write('ended', ONE, 1);
    await shared.publish(recordOf(ONE, 1));
    expect(await shared.find(ONE)).toMatchObject({ kind: 'record' });
  });
});

test('every key in Redis expires', async () => {
  const { shared } = sharing();
  await shared.publish(recordOf(numbered(1)));
  await shared.publish(recordOf(numbered(1), 2));
  await marksIn(redis).write('ended', numbered(2), 2);
  await marksIn(redis).write('ended', numbered(2), 3);
  expect(await shared.claimProof(recordOf(numbered(3)))).toBe(true);
  const lives: Record<string, number> = {};
  for (const name of await redis.run((commands) => commands.keys('*'))) {
    // The client's own, which is not always there.
    if (name === 'tollgate:probe') continue;
    lives[name] = await redis.run((commands) => commands.pttl(name));
  }
  const hours = (count: number) => count * 3_600_000;
  expect(Object.keys(lives).sort()).toEqual(
    [recordKey(numbered(1)), recordKey(numbered(2)), proofKey(numbered(3))].sort(),
  );
  expect(Math.min(...Object.values(lives))).toBeGreaterThan(0);
  expect(lives[recordKey(numbered(1))]).toBeLessThanOrEqual(hours(6));
  // A mark outlives every record that could be put back against it.
  expect(lives[recordKey(numbered(2))]).toBeGreaterThan(hours(23));
  expect(lives[proofKey(numbered(3))]).toBeLessThanOrEqual(2000);
});

describe('in any order of operations by replicas', () => {
  // Calls of one client are carried out in the order in which they were made, so that a batch need not wait for each.
  type Step =
    | { readonly kind: 'keep' | 'ended' | 'changed'; readonly version: number }
    | { readonly kind: 'forget' | 'find' };

  const step: fc.Arbitrary<Step> = fc.oneof(
    fc.record({ kind: fc.constantFrom('keep', 'ended', 'changed'), version: fc.integer({ min: 1, max: 4 }) }),
    fc.constantFrom({ kind: 'find' as const }, { kind: 'find' as const }, { kind: 'forget' as const }),
  );

  test('Redis has the newest value that was written since its last flush', async () => {
    const { shared } = sharing();
    const marks = marksIn(redis);
    // So that Redis knows both scripts: one that it does not know is sent again, behind others.
    await shared.publish(recordOf(ONE));
    await marks.write('changed', ONE, 1);
    const property = fc.asyncProperty(
      fc.array(fc.tuple(fc.integer({ min: 0, max: 9 }), step), { minLength: 100, maxLength: 300 }),
      async (steps) => {
        await server.command('FLUSHALL');
        const model = new Map<
          number,
          { readonly kind: 'record' | 'ended' | 'changed'; readonly version: number }
        >();
        const found: { readonly expected: string; readonly answer: Promise<string> }[] = [];
        const under: Promise<unknown>[] = [];
        for (const [index, { kind, ...rest }] of steps) {
          const prefix = numbered(index);
          const held = model.get(index);
          if (kind === 'find') {
            const answer = shared
              .find(prefix)
              .then(
                (it) =>
                  `${it.kind === 'tombstone' ? it.tombstone : it.kind} ${it.kind === 'record' ? it.record.version : 'version' in it ? it.version : 0}`,
              );
            found.push({ expected: `${held?.kind ?? 'nothing'} ${held?.version ?? 0}`, answer });
          } else if (kind === 'forget') {
            model.delete(index);
            under.push(redis.run((commands) => commands.del(recordKey(prefix))));
          } else if ('version' in rest) {
            const { version } = rest;
            under.push(
              kind === 'keep'
                ? shared.publish(recordOf(prefix, version))
                : marks.write(kind, prefix, version),
            );
            // That there is a newer version is said by the record of that version, too.
            const least = kind === 'changed' ? version - 1 : version;
            if (held === undefined || held.version <= least)
              model.set(index, { kind: kind === 'keep' ? 'record' : kind, version });
          }
        }
        await Promise.all(under);
        for (const { expected, answer } of found) expect(await answer).toBe(expected);
      },
    );
    await fc.assert(property, { numRuns: RUNS });
  });

  test('no key with a tombstone comes back in thousands of races, unless Redis loses the tombstone', async () => {
    // Three readers ask the store and write what they saw, each as late as it likes; one process ends the key.
    const actors = ['a.ask', 'a.put', 'b.ask', 'b.put', 'c.ask', 'c.put', 'commit', 'mark'];
    const race = fc.tuple(fc.shuffledSubarray(actors, { minLength: actors.length }), fc.nat({ max: 79 }));
    const { shared } = sharing();
    const marks = marksIn(redis);
    await shared.publish(recordOf(ONE));
    let ends = 0;
    let resurrections = 0;
    let forgotten = 0;
    const property = fc.asyncProperty(fc.array(race, { minLength: 1000, maxLength: 1000 }), async (races) => {
      await server.command('FLUSHALL');
      const answers = races.map(([order, forgetAt], index) => {
        const prefix = numbered(index);
        const record = recordOf(prefix, 1);
        const seen = new Set<string>();
        let isCommitted = false;
        let isMarked = false;
        let isForgotten = false;
        for (const [place, name] of order.entries()) {
          const [reader = '', act] = name.split('.');
          if (act === 'ask') {
            if (!isCommitted) seen.add(reader);
          } else if (act === 'put') {
            if (seen.has(reader)) void shared.publish(record);
          } else if (name === 'commit') isCommitted = true;
          else {
            // The mark follows the commit, or is repaired by whoever reads of it.
            isCommitted = true;
            isMarked = true;
            void marks.write('ended', prefix, 2);
          }
          if (place === forgetAt) {
            void redis.run((commands) => commands.del(recordKey(prefix)));
            isForgotten = isMarked;
          }
        }
        return shared.find(prefix).then(({ kind }) => ({ kind, isForgotten }));
      });
      for (const { kind, isForgotten } of await Promise.all(answers)) {
        if (isForgotten) forgotten += kind === 'record' ? 1 : 0;
        else {
          ends += kind === 'tombstone' ? 1 : 0;
          resurrections += kind === 'record' ? 1 : 0;
        }
      }
      return resurrections === 0;
    });
    await fc.assert(property, { numRuns: RUNS, endOnFailure: true });
    expect(resurrections).toBe(0);
    expect(ends).toBeGreaterThan(800 * RUNS);
    // The order is as wild as it should be: what the mark prevents happens without it.
    expect(forgotten).toBeGreaterThan(RUNS);
  });
});

describe('a value that no replica wrote', () => {
  async function expectDamaged(value: string | Buffer): Promise<void> {
    const { shared, metrics } = sharing();
    await put(value);
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
    expect(await counted(metrics.sharedRecords)).toEqual({ damaged: 1 });
    await removed();
  }

  /** A client that waits too long for the removal answers before it. */
  const removed = () =>
    until(
      async () => (await server.command('EXISTS', recordKey(ONE))) === 0,
      'the damaged value to be removed',
    );

  const signed = (version: number, payload: string, secret = SECRET) =>
    `${version} ${secret.recordDigest(`${version} ${payload}`).toString('base64')} ${payload}`;

  test('is rejected and removed: truncated at any place', async () => {
    const value = await kept(recordOf(ONE));
    for (let length = 0; length < value.length; length += 1) await expectDamaged(value.subarray(0, length));
  });

  test('… with any one bit flipped', async () => {
    const value = await kept(recordOf(ONE));
    const { shared, metrics } = sharing();
    const names = value.length * 8;
    for (let bit = 0; bit < names; bit += 1) {
      const changed = Buffer.from(value);
      changed.writeUInt8(changed.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      await put(changed);
      const answer = await shared.find(ONE);
      if (answer.kind !== 'nothing') throw new Error(`bit ${bit} makes it ${JSON.stringify(answer)}`);
      if ((await redis.run((commands) => commands.exists(recordKey(ONE)))) !== 0)
        throw new Error(`with bit ${bit} the other way it is not removed`);
    }
    expect(await counted(metrics.sharedRecords)).toEqual({ damaged: names });
  });

  test('… with a tier, version or holder other than the signed one', async () => {
    const value = String(await kept(recordOf(ONE)));
    expect(value).toContain('"tier":"Lite"');
    await expectDamaged(value.replace('"Lite"', '"Pro"'));
    await expectDamaged(value.replace(/^1 /, '2 '));
    await expectDamaged(value.replace('"version":1', '"version":2'));
    await expectDamaged(value.replace(/^1 /, '2 ').replace('"version":1', '"version":2'));
    await expectDamaged(value.replace('holder of', 'friend of'));
    await expectDamaged(`${value} `);
    await expectDamaged(`${value}\n`);
  });

  test('… the record of another key', async () => {
    await expectDamaged(await kept(recordOf(numbered(2))));
  });

  test('… signed with another secret', async () => {
    const other = new KeySecret('another');
    const { shared } = sharing(redis, other);
    await shared.publish(recordOf(ONE));
    expect(await shared.find(ONE)).toMatchObject({ kind: 'record' });
    await expectDamaged((await redis.run((commands) => commands.getBuffer(recordKey(ONE)))) ?? '');
    // Each removes what it cannot read, and writes its own: neither takes the other's for true.
    await sharing().shared.publish(recordOf(ONE));
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
  });

  test('… signed but not a record', async () => {
    const payload = (await kept(recordOf(ONE))).toString().split(' ').slice(2).join(' ');
    await put(signed(1, payload));
    expect((await sharing().shared.find(ONE)).kind).toBe('record');
    for (const other of [
      payload.replace('"Lite"', '"Gold"'),
      payload.replace('"version":1', '"version":0'),
      payload.replace('"version":1', '"version":2'),
      payload.replace('"version":1', '"version":"1"'),
      payload.replace('{', '{"state":"active",'),
      payload.replace(/"hmac":"[^"]*"/, '"hmac":"*"'),
      payload.replace(ONE, 'no prefix'),
      payload.slice(0, -1),
      'null',
      '[]',
      '{}',
      '1',
    ]) {
      await expectDamaged(signed(1, other));
    }
  });

  test.each([
    ['empty', ''],
    ['a word', 'ended'],
    ['no version', ' ended'],
    ['a version that is none', 'x ended'],
    ['a negative version', '-1 ended'],
    ['a version of 30 digits', `${'9'.repeat(30)} ended`],
    ['a huge version without more', `${'9'.repeat(15)} `],
    ['JSON alone', JSON.stringify({ prefix: ONE, tier: 'Pro', version: 1 })],
    ['bytes that are no text', Buffer.from([0xff, 0x00, 0xc3, 0x28, 0x80])],
    ['a version and bytes', Buffer.from([0x31, 0x20, 0xff, 0xfe, 0x00])],
    ['a mebibyte', Buffer.alloc(1_048_576, 0x31)],
  ])('… %s', async (_, value) => {
    await expectDamaged(value);
  });

  test.each([
    ['list', ['RPUSH', 'x']],
    ['hash', ['HSET', 'x', '1']],
    ['set', ['SADD', 'x']],
    ['sorted set', ['ZADD', '1', 'x']],
    ['stream', ['XADD', '*', 'x', '1']],
  ] as const)('… a %s', async (_, [command, ...args]) => {
    const { shared, metrics } = sharing();
    await server.command(command, recordKey(ONE), ...args);
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
    expect(await counted(metrics.sharedRecords)).toEqual({ damaged: 1 });
    expect(await server.command('EXISTS', recordKey(ONE))).toBe(0);
    // Who does not look before writing finds no hindrance either.
    await server.command(command, recordKey(ONE), ...args);
    await shared.publish(recordOf(ONE));
    expect(await shared.find(ONE)).toMatchObject({ kind: 'record' });
    await server.command('DEL', recordKey(ONE));
    await server.command(command, recordKey(ONE), ...args);
    expect(await marksIn(redis).write('ended', ONE, 2)).toBe(true);
    expect(await shared.find(ONE)).toEqual({ kind: 'tombstone', tombstone: 'ended', version: 2 });
  });

  test('blocks a record only until it is read', async () => {
    const { shared } = sharing();
    await put(`${'9'.repeat(6)} rubbish`);
    await shared.publish(recordOf(ONE));
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
    await shared.publish(recordOf(ONE));
    expect(await shared.find(ONE)).toMatchObject({ kind: 'record' });
  });

  test('blocks no record by an impossible version', async () => {
    const { shared } = sharing();
    await put(`${'9'.repeat(15)} ended`);
    await shared.publish(recordOf(ONE));
    expect(await shared.find(ONE)).toMatchObject({ kind: 'record' });
  });
});

describe('when Redis fails', () => {
  afterEach(async () => {
    server.resume();
    await server.config('maxmemory', 0);
    await server.promote();
    await until(() => redis.isUp, 'Redis');
  });

  async function expectHarmless(client: RedisClient): Promise<void> {
    const { shared } = sharing(client);
    await expect(shared.publish(recordOf(ONE))).resolves.toBeUndefined();
    expect(await new KeyTombstones(client).write('ended', ONE, 2)).toBe(false);
    // Whoever cannot ask has to prove the key itself.
    expect(await shared.claimProof(recordOf(ONE))).toBe(true);
    await expect(shared.releaseProof(recordOf(ONE))).resolves.toBeUndefined();
    expect(await shared.waitForProof(recordOf(numbered(2)))).toBe(false);
  }

  test('paused: look-ups find nothing and do not reject', async () => {
    await using client = await impatient();
    await sharing().shared.publish(recordOf(ONE));
    server.pause();
    const { shared, metrics } = sharing(client);
    const answers = await Promise.all(Array.from({ length: 20 }, () => shared.find(ONE)));
    expect(new Set(answers.map(({ kind }) => kind))).toEqual(new Set(['nothing']));
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
    expect(await counted(metrics.sharedRecords)).toEqual({ unavailable: 21 });
    await expectHarmless(client);
    server.resume();
    await until(() => client.isUp, 'Redis');
    expect(await shared.find(ONE)).toMatchObject({ kind: 'record' });
  });

  test('unavailable: likewise', async () => {
    await using gone = await startRedis();
    await using client = await impatient(gone.url);
    await gone.kill();
    const { shared, metrics } = sharing(client);
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
    expect(await counted(metrics.sharedRecords)).toEqual({ unavailable: 1 });
    await expectHarmless(client);
  });

  test('read-only: likewise after the first write', async () => {
    await using client = await impatient();
    await sharing().shared.publish(recordOf(ONE));
    await server.replicaOf();
    await expectHarmless(client);
    expect(await sharing(client).shared.find(ONE)).toEqual({ kind: 'nothing' });
  });

  test('out of memory: existing records are read, and failed writes are ignored', async () => {
    await using client = await impatient();
    await sharing().shared.publish(recordOf(numbered(3)));
    await server.config('maxmemory', 1);
    await expectHarmless(client);
    const { shared } = sharing(client);
    // The connection may have been given up, because its own probe is a write too.
    await until(
      async () => ['record', 'nothing'].includes((await shared.find(numbered(3))).kind),
      'an answer',
    );
    expect(await shared.find(ONE)).toEqual({ kind: 'nothing' });
  });

  /** A client with the deadlines of a gateway. */
  async function impatient(url = server.url): Promise<RedisClient & AsyncDisposable> {
    const client = await connect(url, 200);
    await until(() => client.isUp, 'Redis');
    return Object.assign(client, { [Symbol.asyncDispose]: () => client.close() });
  }
});
