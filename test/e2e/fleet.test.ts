// Three replicas on one Redis and one PostgreSQL: a key that changes anywhere has changed everywhere, and what fails between
// them costs neither a holder the access nor lets a dead key live on.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { FLEET_TIMEOUT, type Fleet, startFleet } from '../helpers/fleet.ts';
import type { Gateway } from '../helpers/gateway.ts';
import { until } from '../helpers/wait.ts';
import { ask, bearer, field, listModels, rotate, statusOf, textField } from './holder.ts';

let fleet: Fleet;

beforeAll(async () => {
  fleet = await startFleet({ gateway: { process: false } });
}, FLEET_TIMEOUT);
afterAll(() => fleet?.[Symbol.asyncDispose]());

/** Everything as it was, and every replica knows. */
afterEach(async () => {
  fleet.redis.resume();
  fleet.postgres.resume();
  for (const { cable } of fleet.replicas) cable.pass();
  for (const { gateway } of fleet.replicas) {
    await until(async () => field(await health(gateway), 'status') === 'ok', 'a replica that is well');
  }
  const registered = async () => fleet.redis.command('ZCARD', 'tollgate:replicas');
  await until(async () => (await registered()) === fleet.replicas.length, 'the registration of all replicas');
});

async function health(gateway: Gateway): Promise<unknown> {
  return (await fetch(new URL('/health', gateway.url))).json();
}

/** What each replica says of this key. */
function everywhere(key: string): Promise<readonly number[]> {
  return Promise.all(fleet.replicas.map(({ gateway }) => statusOf(gateway.url, key)));
}

/** The tier that a replica believes this key to have. */
async function tierAt(gateway: Gateway, key: string): Promise<unknown> {
  const target = '/admin/usage?days=1';
  const response = await ask(gateway.url, { method: 'GET', target, headers: bearer(key) });
  return field(response.json(), 'tier') ?? response.status;
}

function tiers(key: string): Promise<readonly unknown[]> {
  return Promise.all(fleet.replicas.map(({ gateway }) => tierAt(gateway, key)));
}

async function issue(tier = 'Pro'): Promise<string> {
  const { code, stdout } = await fleet.keys('issue', '--tier', tier);
  expect(code).toBe(0);
  return stdout.trim();
}

async function verifications(): Promise<number> {
  return fleet.metric('tollgate_argon2_runs_total{purpose="verify"}');
}

describe('a key', () => {
  test('that was issued by the command line works everywhere, and nobody proves it again', async () => {
    const before = await verifications();
    const key = await issue();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    expect((await verifications()) - before).toBe(0);
  });

  test('that Redis has forgotten is proved by one replica alone, however many meet it at once', async () => {
    let runs = 0;
    // On a machine that stalls for longer than Redis is waited for, each proves for itself.
    for (let round = 0; round < 5 && runs !== 1; round += 1) {
      const key = await issue();
      await fleet.redis.flush();
      const before = await verifications();
      expect(await everywhere(key)).toEqual([200, 200, 200]);
      runs = (await verifications()) - before;
    }
    expect(runs).toBe(1);
  });

  test('is rotated once, and the old one is bad everywhere before a second has passed', async () => {
    const key = await issue();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    const answers = await Promise.all(
      fleet.replicas.flatMap(({ gateway }) => [rotate(gateway.url, key), rotate(gateway.url, key)]),
    );
    const won = answers.filter(({ status }) => status === 200);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401, 401, 401, 401]);
    expect(await everywhere(key)).toEqual([401, 401, 401]);
    expect(await everywhere(textField(won[0]?.json(), 'key'))).toEqual([200, 200, 200]);
  });
});

describe('the command that revokes', () => {
  test('says how many replicas refuse the key, and they do', async () => {
    const key = await issue();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    const { code, stdout, stderr } = await fleet.keys('revoke', key.slice(0, 8));
    expect({ code, stdout, stderr }).toEqual({
      code: 0,
      stdout: expect.stringMatching(
        /^\w{8} is revoked\. 3 of 3 replicas reject it in \d+ ms; hard bound 5 s\.\n$/,
      ),
      stderr: '',
    });
    const answers = await Promise.all(fleet.replicas.map(({ gateway }) => listModels(gateway.url, key)));
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 401]);
  });

  test('counts the replicas that a Redis without data has not registered again', async () => {
    const key = await issue();
    await fleet.redis.flush();
    const { code, stdout } = await fleet.keys('revoke', key.slice(0, 8), '--json');
    expect({ code, answer: JSON.parse(stdout) }).toMatchObject({
      code: 0,
      answer: { outcome: 'revoked', replicas: { confirmed: 3, total: 3 } },
    });
    expect(await everywhere(key)).toEqual([401, 401, 401]);
  });

  test('fails loudly when a replica is cut off, which rejects the key all the same', async () => {
    const key = await issue();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    const [cutOff] = fleet.replicas;
    await cutOff?.cable.cut();
    const { code, stdout, stderr } = await fleet.keys('revoke', key.slice(0, 8), '--json');
    expect(code).toBe(3);
    expect(JSON.parse(stdout)).toMatchObject({ outcome: 'revoked', replicas: { confirmed: 2, total: 3 } });
    expect(stderr).toMatch(/Warning: not confirmed by \S+, last seen \d+ s ago/);
    expect(await everywhere(key)).toEqual([401, 401, 401]);
  });

  test('is not stopped by a Redis that is away, and the replicas read it in the store', async () => {
    const key = await issue();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    fleet.redis.pause();
    const { code, stdout, stderr } = await fleet.keys('revoke', key.slice(0, 8));
    expect([code, stdout]).toEqual([3, expect.stringMatching(/is revoked\. No replica has confirmed it\./)]);
    expect(stderr).toMatch(/failed to notify/);
    await until(async () => (await everywhere(key)).every((status) => status === 401), 'the end of the key');
    // What Redis remembers from before is not believed when it comes back.
    fleet.redis.resume();
    await until(async () => (await fleet.metric('tollgate_redis_up')) === 3, 'Redis in every replica');
    expect(await everywhere(key)).toEqual([401, 401, 401]);
    await until(
      async () =>
        String(await fleet.redis.command('GET', `tollgate:key:{${key.slice(0, 8)}}`)).endsWith('ended'),
      'the mark in Redis',
    );
  });
});

describe('a holder', () => {
  test('with another tier has it on every replica when the command returns', async () => {
    const key = await issue('Free');
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    const { code, stdout, stderr } = await fleet.keys(
      'tier',
      key.slice(0, 8),
      '--tier',
      'Pro',
      '--reason',
      'paid',
    );
    expect({ code, stdout, stderr }).toEqual({
      code: 0,
      stdout: expect.stringMatching(
        /^The holder of (\w{8}) has the tier Pro\. Active keys: \1\. 3 of 3 replicas apply it in \d+ ms; hard bound 5 s\.\n$/,
      ),
      stderr: '',
    });
    expect(await tiers(key)).toEqual(['Pro', 'Pro', 'Pro']);
    const shown = await fleet.keys('show', key.slice(0, 8));
    expect(shown.stdout).toMatch(/changed, version 2 by \S+: tier Free to Pro: paid\n/);
  });

  test('with another tier has it on replicas that a Redis without data has not registered again', async () => {
    const key = await issue('Free');
    await fleet.redis.flush();
    const { code, stdout } = await fleet.keys('tier', key.slice(0, 8), '--tier', 'Pro', '--json');
    expect({ code, answer: JSON.parse(stdout) }).toMatchObject({
      code: 0,
      answer: { replicas: { confirmed: 3, total: 3 } },
    });
    expect(await tiers(key)).toEqual(['Pro', 'Pro', 'Pro']);
  });

  test('that is suspended is answered 403 by every replica, and 200 when it is resumed', async () => {
    const key = await issue();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    expect((await fleet.keys('suspend', key.slice(0, 8))).code).toBe(0);
    expect(await everywhere(key)).toEqual([403, 403, 403]);
    expect(await tiers(key)).toEqual(['Pro', 'Pro', 'Pro']);
    expect((await fleet.keys('resume', key.slice(0, 8))).code).toBe(0);
    expect(await everywhere(key)).toEqual([200, 200, 200]);
  });

  test('is obeyed by a replica that is cut off from Redis, which the command misses', async () => {
    const key = await issue();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    const [cutOff] = fleet.replicas;
    await cutOff?.cable.cut();
    const { code, stderr } = await fleet.keys('suspend', key.slice(0, 8));
    expect(code).toBe(3);
    expect(stderr).toMatch(/Warning: not confirmed by \S+, last seen \d+ s ago/);
    // The command has waited for 5 s.
    expect(await everywhere(key)).toEqual([403, 403, 403]);
  });

  test('is obeyed by all within 5 s while Redis is away, and what Redis remembers is not believed afterwards', async () => {
    const key = await issue('Free');
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    fleet.redis.pause();
    const { code, stderr } = await fleet.keys('tier', key.slice(0, 8), '--tier', 'Pro');
    expect([code, stderr]).toEqual([3, expect.stringMatching(/failed to notify/)]);
    const began = performance.now();
    await until(async () => (await tiers(key)).every((tier) => tier === 'Pro'), 'the new tier everywhere');
    console.log(
      `Redis away: all replicas apply it ${Math.round(performance.now() - began)} ms after the command`,
    );
    fleet.redis.resume();
    await until(async () => (await fleet.metric('tollgate_redis_up')) === 3, 'Redis in every replica');
    expect(await tiers(key)).toEqual(['Pro', 'Pro', 'Pro']);
  });

  test('changes again and again while its key is rotated everywhere, and no good key is 401', async () => {
    let key = await issue('Free');
    const prefix = key.slice(0, 8);
    let isOver = false;
    const desk = (async () => {
      for (let turn = 0; !isOver; turn += 1) {
        const { code } = await fleet.keys('tier', prefix, '--tier', turn % 2 === 0 ? 'Pro' : 'Lite');
        expect(code).toBe(0);
      }
    })();
    for (let turn = 0; turn < 12; turn += 1) {
      const { gateway } = fleet.replicas[turn % 3] ?? {};
      if (gateway === undefined) throw new Error('no replica');
      expect(await everywhere(key)).toEqual([200, 200, 200]);
      const rotated = await rotate(gateway.url, key);
      // On a machine that stalls nothing has changed then, and the key is as good as before.
      if (rotated.status !== 503) {
        expect(rotated.status).toBe(200);
        key = textField(rotated.json(), 'key');
      }
    }
    isOver = true;
    await desk;
    const last = JSON.parse((await fleet.keys('show', key.slice(0, 8), '--json')).stdout);
    expect(await tiers(key)).toEqual([last.tier, last.tier, last.tier]);
  });
});

describe('while Redis is away', () => {
  test('keys that were never met are checked against the store, and health says degraded', async () => {
    fleet.redis.pause();
    const key = await issue();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    for (const { gateway } of fleet.replicas) {
      await until(async () => field(await health(gateway), 'checks', 'redis') === 'degraded', 'degraded');
      expect(await health(gateway)).toMatchObject({ status: 'degraded', checks: { store: 'ok' } });
    }
  });
});

describe('while the store is away', () => {
  test('keys that Redis knows work on replicas that never met them, and others are 503', async () => {
    const key = await issue();
    fleet.postgres.pause();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
    for (const { gateway } of fleet.replicas) {
      expect((await listModels(gateway.url, '00112233445566778899aabbccddeeff')).status).toBe(503);
      expect((await rotate(gateway.url, key)).status).toBe(503);
    }
    fleet.postgres.resume();
    expect(await everywhere(key)).toEqual([200, 200, 200]);
  });
});

describe('while both are away', () => {
  test('keys that were verified go on, others are 503, and nothing is 401', async () => {
    const [known, unknown] = [await issue(), await issue()];
    expect(await everywhere(known)).toEqual([200, 200, 200]);
    fleet.postgres.pause();
    fleet.redis.pause();
    for (let round = 0; round < 5; round += 1) {
      for (const { gateway } of fleet.replicas) {
        expect((await listModels(gateway.url, known)).status).toBe(200);
        expect((await listModels(gateway.url, unknown)).status).toBe(503);
      }
    }
  });
});
