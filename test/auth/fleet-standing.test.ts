// A change of a holder in a fleet: the records of its keys in Redis, which replicas accept them, and what remains when messages
// or Redis fail.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { changeHolder } from '../../src/auth/holder-change.ts';
import { KeyAnnouncer } from '../../src/auth/records/key-broadcast.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import {
  connect,
  marksIn,
  openFleetSetting,
  proofKey,
  recordKey,
  type SharedReplica,
} from './fleet-setting.ts';
import { bearer, counted, outcome } from './setting.ts';

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, REDIS_TIMEOUT);
beforeEach(() => server.flush());
afterEach(() => server.resume());
afterAll(() => server?.stop());

const tierAt = async ({ authenticator }: SharedReplica, key: { reveal(): string }) =>
  (await authenticator.authenticate(`Bearer ${key.reveal()}`, '', 'any')).tier;

const held = async (prefix: string) => String(await server.command('GET', `tollgate:key:{${prefix}}`));

test('a change replaces the record in Redis, which stays proven, and applies without a read of the store', async () => {
  await using fleet = await openFleetSetting(server.url);
  const [one, other] = [await fleet.replica(), await fleet.replica()];
  const { key, prefix, holderId } = await one.issuer.issue({ tier: 'Free' });
  expect(await tierAt(other, key)).toBe('Free');
  await one.changeHolder(holderId, { tier: 'Pro' });
  expect(await held(prefix)).toMatch(/^2 .*"tier":"Pro","standing":"good"/);
  const lookups = fleet.setting.lookups;
  const message = one.sent.at(-1) ?? '';
  expect(JSON.parse(message)).toEqual([{ prefix, kind: 'changed', version: 2, at: expect.any(String) }]);
  other.fleet.receive(message);
  expect(await tierAt(other, key)).toBe('Pro');
  expect(await tierAt(one, key)).toBe('Pro');
  // Nor is there anything left to do for one that was not there.
  expect(await tierAt(await fleet.replica(), key)).toBe('Pro');
  expect([fleet.setting.lookups - lookups, fleet.setting.argon2.verifies]).toEqual([0, 0]);
  other.fleet.receive(message);
  await other.changes.poll();
  expect(await counted(other.metrics.keyChanges)).toMatchObject({ changed: 1 });
});

test('one message has all keys of a holder', async () => {
  await using fleet = await openFleetSetting(server.url);
  const [one, other] = [await fleet.replica(), await fleet.replica()];
  const first = await one.issuer.issue({ tier: 'Pro' });
  const second = await one.issuer.issueFor(first.prefix);
  if (second === undefined) throw new Error('no second key');
  for (const { key } of [first, second]) await outcome(other.authenticator, key);
  const before = one.sent.length;
  await one.changeHolder(first.holderId, { standing: 'suspended' });
  expect(one.sent.length - before).toBe(1);
  other.fleet.receive(one.sent.at(-1) ?? '');
  for (const { key } of [first, second]) {
    expect(await outcome(other.authenticator, key)).toBe('billing_not_active');
  }
});

test('a slow reader cannot restore the previous record', async () => {
  await using fleet = await openFleetSetting(server.url);
  const [one, other] = [await fleet.replica(), await fleet.replica()];
  const { key, prefix, holderId } = await one.issuer.issue({ tier: 'Pro' });
  const slow = await fleet.setting.store.findKey(prefix);
  if (slow === undefined) throw new Error('no record');
  await one.changeHolder(holderId, { tier: 'Free' });
  await other.shared.publish(slow);
  expect(await held(prefix)).toMatch(/^2 /);
  await server.flush();
  await marksIn(one.redis).write('changed', prefix, 2);
  await other.shared.publish(slow);
  expect(await held(prefix)).toBe('2 changed');
  // The mark makes everybody ask the store, and who did puts the record in its place.
  expect(await tierAt(other, key)).toBe('Free');
  await until(async () => (await held(prefix)).startsWith('2 ') && (await held(prefix)) !== '2 changed');
  // A mark that comes after the record says nothing new.
  await marksIn(one.redis).write('changed', prefix, 2);
  expect(await held(prefix)).not.toBe('2 changed');
});

test('without the secret a tombstone is written, and replicas that have proven the key do not prove it again', async () => {
  await using fleet = await openFleetSetting(server.url);
  const one = await fleet.replica();
  const { key, prefix, holderId } = await one.issuer.issue({ tier: 'Pro' });
  // As the command line does it.
  const desk = await connect(server.url);
  const sent: string[] = [];
  const announcer = new KeyAnnouncer({ redis: desk, send: async (body) => void sent.push(body) });
  await changeHolder({ store: fleet.setting.store, announcer }, holderId, { standing: 'suspended' });
  expect(await held(prefix)).toBe('2 changed');
  one.fleet.receive(sent[0] ?? '');
  expect(await outcome(one.authenticator, key)).toBe('billing_not_active');
  expect(fleet.setting.argon2.verifies).toBe(0);
  // It has put the record in the place of the mark. Where that got lost,
  await until(async () => (await held(prefix)) !== '2 changed');
  await server.command('SET', recordKey(prefix), '2 changed');
  // one that has not proved the key does, and waits for nobody who claimed the proof of an earlier version.
  await server.command('SET', proofKey(prefix, 1), '1');
  expect(await outcome((await fleet.replica()).authenticator, key)).toBe('billing_not_active');
  expect(fleet.setting.argon2.verifies).toBe(1);
  expect(await server.command('EXISTS', proofKey(prefix, 2))).toBe(1);
  await desk.close();
});

test('a change in the feed puts a tombstone over older records only', async () => {
  await using fleet = await openFleetSetting(server.url);
  const one = await fleet.replica();
  const { prefix, holderId } = await one.issuer.issue({ tier: 'Free' });
  await one.changeHolder(holderId, { tier: 'Pro' });
  const record = await held(prefix);
  const read = { prefix, kind: 'changed', version: 2, at: '2030' } as const;
  await one.fleet.onFeedChange(read);
  expect(await held(prefix)).toBe(record);
  await one.fleet.onFeedChange({ ...read, version: 3 });
  expect(await held(prefix)).toBe('3 changed');
});

test('a reader of the feed repairs a change that Redis missed', async () => {
  await using fleet = await openFleetSetting(server.url);
  const [one, other] = [await fleet.replica({ commandMs: 200 }), await fleet.replica({ commandMs: 200 })];
  const { key, prefix, holderId } = await one.issuer.issue({ tier: 'Pro' });
  expect(await tierAt(other, key)).toBe('Pro');
  server.pause();
  await one.changeHolder(holderId, { tier: 'Free' });
  expect(await tierAt(one, key)).toBe('Free');
  await other.changes.poll();
  expect(await tierAt(other, key)).toBe('Free');
  server.resume();
  await until(() => one.redis.isUp && other.redis.isUp, 'Redis');
  await until(async () => (await held(prefix)).startsWith('2 '), 'the mark');
  expect(await tierAt(await fleet.replica(), key)).toBe('Free');
});

test('a waiting replica accepts the proof of a key whose holder changed meanwhile', async () => {
  await using fleet = await openFleetSetting(server.url);
  const { key, prefix, holderId } = await fleet.setting.issue('Free');
  let release = () => {};
  const blocked = new Promise<void>((resolve) => {
    release = resolve;
  });
  const one = await fleet.replica({ verifying: () => blocked });
  const other = await fleet.replica();
  const before = await fleet.setting.store.findKey(prefix);
  if (before === undefined) throw new Error('no record');
  const first = tierAt(one, key);
  await until(() => fleet.setting.argon2.verifies === 1);
  const waiting = other.shared.waitForProof(before);
  const changed = await fleet.setting.store.changeHolder(holderId, { tier: 'Pro' }, null, '2030');
  if (changed.kind !== 'changed') throw new Error(changed.kind);
  await one.changes.poll();
  release();
  expect(await first).toBe('Pro');
  expect(await waiting).toBe(true);
  expect(await held(prefix)).toMatch(/^2 /);
});

test.each([
  'nonsense',
  '[]',
  '[{"prefix":"x","kind":"changed","version":2,"at":""}]',
  '{"prefix":7}',
  '[[]]',
])('a message with %s is ignored', async (text) => {
  await using fleet = await openFleetSetting(server.url);
  const one = await fleet.replica();
  const { key } = await one.issuer.issue({ tier: 'Free' });
  one.fleet.receive(text);
  expect(one.authenticator.authenticate(bearer(key), '')).not.toBeInstanceOf(Promise);
});

test('a record without a standing, from an older version, is not accepted', async () => {
  await using fleet = await openFleetSetting(server.url);
  const one = await fleet.replica();
  const { prefix } = await one.issuer.issue({ tier: 'Free' });
  const payload = JSON.stringify({
    ...JSON.parse((await held(prefix)).split(' ').slice(2).join(' ')),
    standing: undefined,
  });
  const mac = fleet.setting.secret.recordDigest(`1 ${payload}`).toString('base64');
  await server.command('SET', recordKey(prefix), `1 ${mac} ${payload}`);
  expect(await one.shared.find(prefix)).toEqual({ kind: 'nothing' });
});
