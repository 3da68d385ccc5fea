import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test, vi } from 'vitest';
import { KeyIssuer } from '../../src/auth/key-issuer.ts';
import { GatewayError } from '../../src/errors.ts';
import { isPrefix } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import { atOnce, bearer, openSetting, outcome, wrongKey } from './setting.ts';

const code = (error: unknown) => (error instanceof GatewayError ? error.code : error);

describe('issuing', () => {
  test('returns the whole key once and stores its hashes', async () => {
    await using setting = await openSetting();
    const issued = await setting.issuer.issue({ tier: 'Pro', name: '  build server ' });
    expect(issued.key.reveal()).toMatch(/^[0-9a-f]{32}$/);
    expect(issued.prefix).toBe(issued.key.reveal().slice(0, 8));
    expect(issued).toMatchObject({ tier: 'Pro', createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) });
    expect(await setting.store.findKey(issued.prefix)).toMatchObject({
      prefix: issued.prefix,
      tier: 'Pro',
      holderName: 'build server',
      state: 'active',
      holderId: issued.holderId,
    });
    expect(await setting.store.historyOf(issued.prefix)).toMatchObject([{ kind: 'issued', version: 1 }]);
    expect(await outcome((await setting.replica()).authenticator, issued.key)).toBe(issued.prefix);
  });

  test('gives a new holder its terms', async () => {
    await using setting = await openSetting();
    const terms = { limits: { concurrency: 7 } };
    const { prefix } = await setting.issuer.issue({ tier: 'Pro', terms });
    expect(await setting.store.findKey(prefix)).toMatchObject({ holderTerms: terms, terms: {} });
    const plain = await setting.issuer.issue({ tier: 'Pro' });
    expect(await setting.store.findKey(plain.prefix)).toMatchObject({ holderTerms: {}, terms: {} });
  });

  test.each([
    ['is empty', '   '],
    ['is longer than 200 characters', 'x'.repeat(201)],
    ['contains a control character: U+001B at position 2', 'a\u001b[31mb'],
    ['contains a control character: U+000A at position 2', 'a\nb'],
    ['contains a control character: U+202E at position 2', 'a\u202eb'],
    ['contains a control character: U+200B at position 3', ' 😀a\u200b'],
    ['contains a control character: U+200D at position 2', 'a\u200db'],
    ['contains text that looks like a key', `x ${'0123456789abcdef'.repeat(2)}`],
  ])('rejects a name that %s', async (why, name) => {
    await using setting = await openSetting();
    await expect(setting.issuer.issue({ tier: 'Free', name })).rejects.toMatchObject({
      code: 'invalid_value',
      param: 'name',
      message: `The name ${why}.`,
    });
    expect(await setting.store.lastChange()).toBe(0);
  });

  test('takes a name with emoji of several characters', async () => {
    await using setting = await openSetting();
    const name = 'Team 👩‍💻 👨‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿';
    const { prefix } = await setting.issuer.issue({ tier: 'Free', name });
    expect(await setting.store.findKey(prefix)).toMatchObject({ holderName: name });
  });

  test('draws another prefix before hashing when one is taken', async () => {
    const draws = [1, 1, 1, 2];
    await using setting = await openSetting({
      argon2: 'quick',
      random: (size) => new Uint8Array(size).fill(draws.shift() ?? 0),
    });
    expect((await setting.issue()).prefix).toBe('01010101');
    expect((await setting.issue()).prefix).toBe('02020202');
    expect(setting.argon2.hashes).toBe(2);
    expect(draws).toEqual([]);
  });

  test('draws another prefix when one is taken concurrently', async () => {
    const draws = [1, 1, 2];
    await using setting = await openSetting({
      argon2: 'quick',
      random: (size) => new Uint8Array(size).fill(draws.shift() ?? 0),
    });
    const [one, two] = await Promise.all([setting.issue(), setting.issue()]);
    expect([one.prefix, two.prefix].sort()).toEqual(['01010101', '02020202']);
  });

  test('gives up after some draws, with a server error', async () => {
    let draws = 0;
    await using setting = await openSetting({
      argon2: 'quick',
      random: (size) => {
        draws += 1;
        return new Uint8Array(size).fill(7);
      },
    });
    await setting.issue();
    expect(draws).toBe(1);
    await expect(setting.issue()).rejects.toMatchObject({
      code: 'store_unavailable',
      status: 503,
      message: 'The gateway cannot make a key at the moment.',
    });
    expect(draws).toBe(1 + 5);
  });

  test('issues another key for the same holder, even when its key has ended', async () => {
    await using setting = await openSetting();
    const { prefix, holderId } = await setting.issue('Pro');
    await setting.issuer.revoke(prefix);
    const more = await setting.issuer.issueFor(prefix);
    expect(more).toMatchObject({ holderId, tier: 'Pro' });
    expect(await outcome(setting.authenticator, more?.key)).toBe(more?.prefix);
    expect(await setting.issuer.issueFor(wrongKey().prefix)).toBeUndefined();
  });

  test('is in the history with who ordered it and why', async () => {
    await using setting = await openSetting();
    const { issuer, store } = setting;
    const { prefix } = await issuer.issue({ tier: 'Pro', actor: 'operator:ann', reason: 'order 7' });
    const more = await issuer.issueFor(prefix);
    const lost = await issuer.issueFor(prefix, { reason: 'lost', actor: 'operator:bob' });
    const plain = await issuer.issue({ tier: 'Pro' });
    const issued = [prefix, more?.prefix, lost?.prefix, plain.prefix].map(async (each) => {
      const [change] = each === undefined ? [] : await store.historyOf(each);
      return [change?.reason, change?.actor];
    });
    expect(await Promise.all(issued)).toEqual([
      ['order 7', 'operator:ann'],
      [`for the holder of ${prefix}`, null],
      [`for the holder of ${prefix}: lost`, 'operator:bob'],
      [null, null],
    ]);
  });

  test('is announced, as are rotations', async () => {
    await using setting = await openSetting();
    const { store, secret, hasher } = setting;
    const changes: unknown[] = [];
    const listener = {
      changed: (change: unknown) => {
        changes.push(change);
        return true;
      },
      preload: () => undefined,
      lost: () => undefined,
      caughtUp: () => undefined,
    };
    const issuer = new KeyIssuer({ store, secret, hasher, listener });
    const first = await issuer.issue({ tier: 'Pro' });
    const second = await issuer.rotate(first, 3_600_000);
    const third = await issuer.rotate(second);
    const issued = ({ prefix, createdAt: at }: typeof first) => ({ prefix, kind: 'issued', version: 1, at });
    expect(changes).toEqual([
      issued(first),
      { prefix: first.prefix, kind: 'changed', version: 2 },
      issued(second),
      { prefix: second.prefix, kind: 'rotated', version: 2, at: third.createdAt },
      issued(third),
    ]);
    expect([Date.parse(second.validUntil ?? '') - Date.parse(second.createdAt), third.validUntil]).toEqual([
      3_600_000,
      null,
    ]);
    await expect(issuer.rotate(first)).rejects.toMatchObject({
      code: 'key_already_rotated',
      message: `This key was rotated already, and its successor is ${second.prefix}. Rotate that one instead.`,
    });
  });
});

describe('free keys', () => {
  const order = (address: string, perDay = 3) => ({ address, perDay });

  test('concurrent requests get exactly the daily limit', async () => {
    await using setting = await openSetting();
    const outcomes = await Promise.allSettled(
      Array.from({ length: 12 }, () => setting.issuer.issueFree(order('192.0.2.1'))),
    );
    const given = outcomes.filter((one) => one.status === 'fulfilled');
    expect(given).toHaveLength(3);
    for (const one of given) expect(one.value.tier).toBe('Free');
    for (const one of outcomes)
      if (one.status === 'rejected') expect(code(one.reason)).toBe('free_key_limit');
  });

  test('an address at its limit is rejected without a hash', async () => {
    await using setting = await openSetting();
    await setting.issuer.issueFree(order('192.0.2.1', 1));
    for (let index = 0; index < 20; index += 1) {
      await expect(setting.issuer.issueFree(order('192.0.2.1', 1))).rejects.toMatchObject({
        code: 'free_key_limit',
      });
    }
    expect(setting.argon2.hashes).toBe(1);
    await expect(setting.issuer.issueFree(order('192.0.2.2', 0))).rejects.toMatchObject({
      code: 'free_key_limit',
    });
  });

  test('are counted by /64 and per UTC day', async () => {
    let today = new Date('2030-06-30T23:59:59.999Z');
    await using setting = await openSetting({ argon2: 'quick', today: () => today });
    const take = (address: string) => setting.issuer.issueFree(order(address, 1)).then(() => 'given', code);
    expect(await take('2001:db8:0:1::1')).toBe('given');
    expect(await take('2001:db8:0:1:ffff::2')).toBe('free_key_limit');
    expect(await take('2001:db8:0:2::1')).toBe('given');
    expect(await take('::ffff:192.0.2.1')).toBe('given');
    expect(await take('192.0.2.1')).toBe('free_key_limit');
    today = new Date('2030-07-01T00:00:00.000Z');
    expect(await take('192.0.2.1')).toBe('given');
  });

  test('store no address', async () => {
    await using setting = await openSetting();
    await setting.issuer.issueFree(order('203.0.113.77'));
    await setting.issuer.issueFree(order('2001:db8:dead:beef::1'));
    await setting.store.close();
    const files = readdirSync(setting.dir.path).map((name) => readFileSync(setting.dir.file(name), 'latin1'));
    for (const text of files) {
      for (const part of ['203.0.113.77', '203.0.113', 'db8:dead:beef', 'cb00714d'])
        expect(text).not.toContain(part);
    }
  });
});

describe('rotation', () => {
  test('issues a new key to the same holder and ends the old one at once', async () => {
    await using setting = await openSetting();
    const { key, prefix, holderId } = await setting.issue('Pro');
    const caller = atOnce(setting.authenticator.authenticate(bearer(key), ''));
    const rotated = await setting.issuer.rotate(caller);
    expect(rotated).toMatchObject({ replaces: prefix, holderId, tier: 'Pro' });
    expect(rotated.key.reveal()).not.toBe(key.reveal());
    expect(await outcome(setting.authenticator, key)).toBe('invalid_api_key');
    expect(atOnce(setting.authenticator.authenticate(bearer(rotated.key), ''))).toMatchObject({ holderId });
    expect(await setting.store.findKey(prefix)).toMatchObject({
      state: 'invalidated',
      replacedBy: rotated.prefix,
    });
    expect(await setting.store.historyOf(prefix)).toMatchObject([
      { kind: 'issued' },
      { kind: 'rotated', version: 2 },
    ]);
  });

  test('fifty at once: one gets a key, the others get invalid_api_key, and one hash is computed', async () => {
    await using setting = await openSetting();
    const { key, prefix } = await setting.issue();
    const caller = await setting.authenticator.authenticate(bearer(key), '');
    const outcomes = await Promise.allSettled(
      Array.from({ length: 50 }, () => setting.issuer.rotate(caller)),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const one of outcomes) {
      if (one.status === 'rejected') expect(code(one.reason)).toBe('invalid_api_key');
    }
    expect(setting.argon2.hashes).toBe(2);
    expect((await setting.store.listKeys({ limit: 10, state: 'active' })).items).toHaveLength(1);
    expect(await setting.store.findKey(prefix)).toMatchObject({ state: 'invalidated' });
    await expect(setting.issuer.rotate(caller)).rejects.toMatchObject({ code: 'invalid_api_key' });
    expect(setting.argon2.hashes).toBe(2);
  });

  test('by several processes at once: one gets a key', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    const caller = await setting.authenticator.authenticate(bearer(key), '');
    // Stores of their own on the same file, as processes have.
    const stores = await Promise.all([1, 2, 3].map(() => openStore({ kind: 'sqlite', path: setting.path })));
    const { secret, hasher } = setting;
    const issuers = stores.map((store) => new KeyIssuer({ store, secret, hasher }));
    const outcomes = await Promise.allSettled(
      Array.from({ length: 30 }, (_, index) => issuers[index % 3]?.rotate(caller)),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const one of outcomes) {
      if (one.status === 'rejected') expect(code(one.reason)).toBe('invalid_api_key');
    }
    expect((await setting.store.listKeys({ limit: 10, state: 'active' })).items).toHaveLength(1);
    for (const store of stores) await store.close();
  });

  test('with an overlap, by several processes at once: the others learn that it was rotated, because the key is good', async () => {
    await using setting = await openSetting();
    const { key } = await setting.issue();
    const caller = await setting.authenticator.authenticate(bearer(key), '');
    const stores = await Promise.all([1, 2, 3].map(() => openStore({ kind: 'sqlite', path: setting.path })));
    const { secret, hasher } = setting;
    const issuers = stores.map((store) => new KeyIssuer({ store, secret, hasher }));
    const outcomes = await Promise.allSettled(
      Array.from({ length: 12 }, (_, index) => issuers[index % 3]?.rotate(caller, 3_600_000)),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const one of outcomes)
      if (one.status === 'rejected') expect(code(one.reason)).toBe('key_already_rotated');
    for (const store of stores) await store.close();
  });

  test('that the store fails changes nothing, and all callers can retry', async () => {
    await using setting = await openSetting();
    const { key, prefix } = await setting.issue();
    const caller = await setting.authenticator.authenticate(bearer(key), '');
    const rotateKey = vi
      .spyOn(setting.store, 'rotateKey')
      .mockRejectedValue(new GatewayError('store_unavailable'));
    const outcomes = await Promise.allSettled(Array.from({ length: 5 }, () => setting.issuer.rotate(caller)));
    for (const one of outcomes) {
      expect(one.status === 'rejected' && code(one.reason)).toBe('store_unavailable');
    }
    rotateKey.mockRestore();
    expect(await outcome(setting.authenticator, key)).toBe(prefix);
    expect(await setting.issuer.rotate(caller)).toMatchObject({ replaces: prefix });
  });

  test.each(['revoked', 'unknown'])(
    'of a key that is %s is rejected as invalid, without a hash',
    async (how) => {
      await using setting = await openSetting();
      const { key } = await setting.issue();
      const caller = await setting.authenticator.authenticate(bearer(key), '');
      if (how === 'revoked') await setting.issuer.revoke(caller.prefix);
      const subject = how === 'unknown' ? { ...caller, prefix: wrongKey().prefix } : caller;
      await expect(setting.issuer.rotate(subject)).rejects.toMatchObject({ code: 'invalid_api_key' });
      expect(setting.argon2.hashes).toBe(1);
    },
  );

  test('races with a revocation: exactly one of them succeeds', async () => {
    await using setting = await openSetting();
    for (let round = 0; round < 20; round += 1) {
      const { key, prefix } = await setting.issue();
      const caller = await setting.authenticator.authenticate(bearer(key), '');
      const [rotated, revoked] = await Promise.allSettled([
        setting.issuer.rotate(caller),
        new Promise((resolve) => setTimeout(resolve, round % 3)).then(() => setting.issuer.revoke(prefix)),
      ]);
      const won = revoked.status === 'fulfilled' && revoked.value.kind === 'revoked';
      expect(rotated.status).toBe(won ? 'rejected' : 'fulfilled');
      expect((await setting.store.findKey(prefix))?.state).toBe(won ? 'revoked' : 'invalidated');
      expect(await outcome(setting.authenticator, key)).toBe('invalid_api_key');
    }
  });
});

describe('revocation', () => {
  test('returns its result', async () => {
    await using setting = await openSetting();
    const { prefix } = await setting.issue();
    expect(await setting.issuer.revoke(prefix, 'asked for')).toMatchObject({ kind: 'revoked' });
    expect(await setting.issuer.revoke(prefix, 'asked for')).toMatchObject({ kind: 'already' });
    const none = wrongKey().prefix;
    expect(isPrefix(none)).toBe(true);
    expect(await setting.issuer.revoke(none)).toEqual({ kind: 'unknown' });
    expect((await setting.store.historyOf(prefix)).at(-1)).toMatchObject({
      kind: 'revoked',
      reason: 'asked for',
    });
    expect(await setting.store.findKey(none)).toBeUndefined();
  });

  test('rejects a reason that contains a key, and revokes nothing', async () => {
    await using setting = await openSetting();
    const { key, prefix } = await setting.issue();
    await expect(setting.issuer.revoke(prefix, `leaked: ${key.reveal()}`)).rejects.toMatchObject({
      code: 'invalid_value',
      message: expect.not.stringContaining(key.reveal()),
    });
    expect(await outcome(setting.authenticator, key)).toBe(prefix);
  });
});
