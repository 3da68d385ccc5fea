// Changes of a holder with active keys: which requests are admitted, which errors the others get, and that a higher version
// invalidates no key.
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { atOnce, bearer, counted, openSetting, outcome, type Replica, wrongKey } from './setting.ts';

const code = (error: unknown) => (error instanceof GatewayError ? error.code : String(error));

/** Who is let in although suspended, by standing; or the code of the error. */
async function standing({ authenticator }: Replica, key: { reveal(): string }): Promise<string> {
  try {
    return (await authenticator.authenticate(`Bearer ${key.reveal()}`, '192.0.2.1', 'any')).standing;
  } catch (error) {
    return code(error);
  }
}

describe('a changed tier', () => {
  test('applies at once in the process that changed it, and in others with their next poll', async () => {
    await using setting = await openSetting();
    const other = await setting.replica();
    const { key, holderId, prefix } = await setting.issue('Free');
    expect(await outcome(other.authenticator, key)).toBe(prefix);
    expect(await setting.changeHolder(holderId, { tier: 'Pro' }, 'paid')).toMatchObject({
      kind: 'changed',
      records: [{ prefix, tier: 'Pro', version: 2 }],
    });
    expect(await setting.authenticator.authenticate(bearer(key), '')).toMatchObject({
      tier: 'Pro',
      version: 2,
    });
    expect(atOnce(other.authenticator.authenticate(bearer(key), ''))).toMatchObject({ tier: 'Free' });
    await other.changes.poll();
    expect(await other.authenticator.authenticate(bearer(key), '')).toMatchObject({
      tier: 'Pro',
      version: 2,
    });
    expect(await counted(other.metrics.keyChanges)).toEqual({ issued: 1, changed: 1 });
  });

  test('applies after 5 s without a poll', async () => {
    await using setting = await openSetting();
    const other = await setting.replica();
    const { key, holderId } = await setting.issue('Free');
    await other.authenticator.authenticate(bearer(key), '');
    await setting.changeHolder(holderId, { tier: 'Pro' });
    setting.advance(5001);
    expect(await other.authenticator.authenticate(bearer(key), '')).toMatchObject({ tier: 'Pro' });
  });

  test('costs one look-up and no Argon2 run', async () => {
    await using setting = await openSetting();
    const other = await setting.replica();
    const { key, holderId } = await setting.issue('Free');
    await other.authenticator.authenticate(bearer(key), '');
    const before = [setting.lookups, setting.argon2.verifies];
    expect(before).toEqual([1, 1]);
    await setting.changeHolder(holderId, { tier: 'Pro' });
    await other.changes.poll();
    for (let index = 0; index < 10; index += 1) await other.authenticator.authenticate(bearer(key), '');
    expect([setting.lookups, setting.argon2.verifies]).toEqual([2, 1]);
  });

  test('does not subject the key to the failure limit of its address', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 2 });
    const { key, holderId, prefix } = await setting.issue('Free');
    for (let index = 0; index < 4; index += 1) await outcome(setting.authenticator, wrongKey());
    expect(await outcome(setting.authenticator, wrongKey())).toBe('too_many_failed_keys');
    await setting.changeHolder(holderId, { tier: 'Pro' });
    expect(await outcome(setting.authenticator, key)).toBe(prefix);
  });

  test('is not replaced by the previous tier while the store is away: the answer is 503', async () => {
    await using setting = await openSetting();
    const { key, holderId, prefix } = await setting.issue('Free');
    const other = await setting.issue('Free');
    await setting.changeHolder(holderId, { tier: 'Pro' });
    setting.mood = 'failing';
    expect(await outcome(setting.authenticator, key)).toBe('auth_unavailable');
    setting.advance(6000);
    expect(await outcome(setting.authenticator, other.key)).toBe(other.prefix);
    setting.mood = 'well';
    expect(await outcome(setting.authenticator, key)).toBe(prefix);
  });

  test('that the holder already has is announced again and changes no version', async () => {
    await using setting = await openSetting();
    const { holderId, prefix } = await setting.issue('Pro');
    const changed = vi.spyOn(setting.authenticator, 'changed');
    expect(await setting.changeHolder(holderId, { tier: 'Pro' })).toMatchObject({ kind: 'same' });
    expect(changed).toHaveBeenCalledWith({ prefix, kind: 'changed', version: 1 });
    expect(await setting.changeHolder('nobody', { tier: 'Pro' })).toEqual({ kind: 'unknown' });
  });

  test('written in a transaction of the caller applies when it is announced', async () => {
    await using setting = await openSetting();
    const { key, holderId } = await setting.issue('Free');
    const at = '2030-01-01T00:00:00.000Z';
    const written = await setting.store.changeHolder(holderId, { tier: 'Lite' }, null, at);
    if (written.kind !== 'changed') throw new Error(written.kind);
    expect(atOnce(setting.authenticator.authenticate(bearer(key), '')).tier).toBe('Free');
    await setting.issuer.announceChanged(written.records, at);
    expect((await setting.authenticator.authenticate(bearer(key), '')).tier).toBe('Lite');
  });

  test('between the insert of a key and its announcement is not lost', async () => {
    await using setting = await openSetting();
    const addKey = setting.store.addKey.bind(setting.store);
    vi.spyOn(setting.store, 'addKey').mockImplementation(async (...order) => {
      const added = await addKey(...order);
      if (added.kind === 'added') {
        await setting.store.changeHolder(added.record.holderId, { standing: 'suspended' }, null, '2030');
        await setting.changes.poll();
      }
      return added;
    });
    const { key } = await setting.issue('Pro');
    expect(await outcome(setting.authenticator, key)).toBe('billing_not_active');
  });

  test('with a reason that contains a key is rejected and changes nothing', async () => {
    await using setting = await openSetting();
    const { key, holderId } = await setting.issue('Free');
    await expect(setting.changeHolder(holderId, { tier: 'Pro' }, `of ${key.reveal()}`)).rejects.toMatchObject(
      { code: 'invalid_value', message: expect.not.stringContaining(key.reveal()) },
    );
    expect((await setting.store.findHolder(holderId))?.tier).toBe('Free');
  });
});

describe('a suspended holder', () => {
  test('gets billing_not_active, also from the cache, and is admitted where any standing is allowed', async () => {
    await using setting = await openSetting();
    const { key, prefix, holderId } = await setting.issue();
    await setting.changeHolder(holderId, { standing: 'suspended' });
    expect(await outcome(setting.authenticator, key)).toBe('billing_not_active');
    expect(() => setting.authenticator.authenticate(bearer(key), '')).toThrow(
      /known, but its holder is suspended/,
    );
    expect(await standing(setting, key)).toBe('suspended');
    expect(await counted(setting.metrics.authOutcomes)).toEqual({ suspended: 2, cached: 1 });
    await setting.changeHolder(holderId, { standing: 'good' });
    expect(await outcome(setting.authenticator, key)).toBe(prefix);
  });

  test('gets billing_not_active at the first request; a wrong key with its prefix does not reveal it', async () => {
    await using setting = await openSetting();
    const other = await setting.replica();
    const { key, prefix, holderId } = await setting.issue();
    await setting.changeHolder(holderId, { standing: 'suspended' });
    expect(await outcome(other.authenticator, key)).toBe('billing_not_active');
    expect(await outcome(other.authenticator, wrongKey(prefix))).toBe('invalid_api_key');
    await setting.issuer.revoke(prefix);
    expect(await outcome(setting.authenticator, key)).toBe('invalid_api_key');
  });

  test('does not count as a failure', async () => {
    await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 2 });
    const { key, holderId } = await setting.issue();
    const fresh = await setting.issue();
    await setting.changeHolder(holderId, { standing: 'suspended' });
    const other = await setting.replica();
    for (let index = 0; index < 5; index += 1) await outcome(other.authenticator, key);
    expect(await outcome(other.authenticator, fresh.key)).toBe(fresh.prefix);
  });

  test.each(['failing', 'silent'] as const)(
    'is not served stale as suspended: with the store %s the answer is 503',
    async (mood) => {
      await using setting = await openSetting();
      const { key, holderId } = await setting.issue();
      await setting.changeHolder(holderId, { standing: 'suspended' });
      expect(await outcome(setting.authenticator, key)).toBe('billing_not_active');
      setting.mood = mood;
      setting.advance(4000);
      expect(await outcome(setting.authenticator, key)).toBe('billing_not_active');
      setting.advance(1001);
      expect(await outcome(setting.authenticator, key)).toBe('auth_unavailable');
      expect(await standing(setting, key)).toBe('auth_unavailable');
    },
  );

  test('may rotate, and stays suspended', async () => {
    await using setting = await openSetting();
    const { key, holderId } = await setting.issue('Pro');
    await setting.changeHolder(holderId, { standing: 'suspended' });
    const caller = await setting.authenticator.authenticate(bearer(key), '', 'any');
    const next = await setting.issuer.rotate(caller);
    expect(await outcome(setting.authenticator, key)).toBe('invalid_api_key');
    expect(await outcome(setting.authenticator, next.key)).toBe('billing_not_active');
    const more = await setting.issuer.issueFor(next.prefix);
    expect(more && (await standing(setting, more.key))).toBe('suspended');
  });
});

describe('rotation and changes of the holder at the same time', () => {
  test('a principal from before the change can rotate', async () => {
    await using setting = await openSetting();
    const { key, holderId, prefix } = await setting.issue('Free');
    const caller = await setting.authenticator.authenticate(bearer(key), '');
    await setting.changeHolder(holderId, { tier: 'Pro' });
    expect(await setting.issuer.rotate(caller)).toMatchObject({ replaces: prefix, tier: 'Pro' });
    expect((await setting.store.historyOf(prefix)).at(-1)).toMatchObject({ kind: 'rotated', version: 3 });
  });

  test('in any order valid keys stay valid, and the last key has the tier of the holder', async () => {
    await using setting = await openSetting();
    const other = await setting.replica();
    const change = fc.record(
      { tier: fc.constantFrom('Free', 'Lite', 'Pro'), standing: fc.constantFrom('good', 'suspended') },
      { requiredKeys: [] },
    );
    const step = fc.oneof(
      { weight: 2, arbitrary: fc.record({ kind: fc.constant('change' as const), change }) },
      fc.constant({ kind: 'rotate' as const }),
      fc.constant({ kind: 'check' as const }),
      fc.constant({ kind: 'poll' as const }),
    );
    /** Steps beside each other, one after the other. */
    const plan = fc.array(fc.array(step, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(plan, async (turns) => {
        const issued = await setting.issue('Lite');
        const { holderId } = issued;
        let { key } = issued;
        for (const turn of turns) {
          let isRotating = false;
          const work = turn.map(async (each, index) => {
            const { authenticator, issuer, changeHolder } = index % 2 === 0 ? setting : other;
            if (each.kind === 'change') await changeHolder(holderId, each.change);
            else if (each.kind === 'poll') await other.changes.poll();
            else if (each.kind === 'check') {
              const answer = await outcome(authenticator, key);
              // While it is rotated it may be bad already; else it is good, suspended, or changes all the time.
              if (!turn.some(({ kind }) => kind === 'rotate')) {
                expect([key.prefix, 'billing_not_active', 'auth_unavailable']).toContain(answer);
              }
            } else if (!isRotating) {
              isRotating = true;
              const caller = await authenticator.authenticate(bearer(key), '', 'any');
              return await issuer.rotate(caller);
            }
            return undefined;
          });
          const rotated = (await Promise.all(work)).find((each) => each !== undefined);
          if (rotated !== undefined) key = rotated.key;
          await other.changes.poll();
          await setting.changes.poll();
        }
        const holder = await setting.store.findHolder(holderId);
        for (const { authenticator } of [setting, other]) {
          const { tier, standing: found } = await authenticator.authenticate(bearer(key), '', 'any');
          expect({ tier, standing: found }).toEqual({ tier: holder?.tier, standing: holder?.standing });
        }
      }),
      { numRuns: 60 },
    );
  });
});
