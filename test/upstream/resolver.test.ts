// What is remembered of a name, for how long, and when it is used.
import type { LookupAddress } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { expect, test } from 'vitest';
import { Resolver } from '../../src/upstream/http/resolver.ts';
import { pause, within } from '../helpers/wait.ts';

const A: LookupAddress = { address: '192.0.2.1', family: 4 };
const B: LookupAddress = { address: '2001:db8::1', family: 6 };

/** A system resolver whose lookups end when the test says so. */
class System {
  readonly asked: string[] = [];
  readonly #pending: ((found: Error | LookupAddress[]) => void)[] = [];

  readonly lookup: LookupFunction = (hostname, _options, callback) => {
    this.asked.push(hostname);
    this.#pending.push((found) => (found instanceof Error ? callback(found, '') : callback(null, found)));
  };

  say(found: Error | LookupAddress[]): void {
    this.#pending.shift()?.(found);
  }
}

function setting(patienceMs = 20_000, onStale: (ageMs: number, cause: unknown) => void = () => {}) {
  const system = new System();
  let now = 0;
  const resolver = new Resolver({ patienceMs, lookup: system.lookup, onStale, now: () => now });
  const ask = (all = true) => {
    const asked = new Promise<unknown>((resolve) => {
      resolver.lookup('name.test', { all }, (error, address, family) =>
        resolve(error ?? (all ? address : [address, family])),
      );
    });
    return within(asked, 'the addresses');
  };
  const answered = (found: Error | LookupAddress[], all?: boolean) => {
    const asked = ask(all);
    system.say(found);
    return asked;
  };
  return { system, ask, answered, later: (ms: number) => (now += ms) };
}

const failed = new Error('EAI_AGAIN');

test('a new connection asks again, and gets what is found now', async () => {
  const { answered, system } = setting();
  expect(await answered([A])).toEqual([A]);
  expect(await answered([B, A])).toEqual([B, A]);
  expect(await answered([B, A], false)).toEqual([B.address, 6]);
  expect(system.asked).toEqual(['name.test', 'name.test', 'name.test']);
});

test('the last addresses are used when the resolver fails, for an hour', async () => {
  const { answered, later } = setting();
  expect(await answered(failed)).toBe(failed);
  await answered([B]);
  await answered([A]);
  expect(await answered(failed)).toEqual([A]);
  expect(await answered([])).toEqual([A]);
  later(3_600_000);
  expect(await answered(failed)).toEqual([A]);
  later(1);
  expect(await answered(failed)).toBe(failed);
  expect(await answered([B])).toEqual([B]);
});

test('that old addresses are used is told, once a minute', async () => {
  const told: [number, unknown][] = [];
  const { answered, later } = setting(20_000, (ageMs, cause) => told.push([ageMs, cause]));
  await answered([A]);
  later(5_000);
  await answered(failed);
  await answered(failed);
  expect(told).toEqual([[5_000, failed]]);
  later(60_000);
  await answered(failed);
  expect(told).toEqual([
    [5_000, failed],
    [65_000, failed],
  ]);
  later(3_600_000);
  expect(await answered(failed)).toBe(failed);
  expect(told).toHaveLength(2);
});

test('the last addresses are used when the resolver is slow, and what it finds in the end is used next', async () => {
  const { answered, ask, system } = setting(20);
  await answered([A]);
  const slow = ask();
  expect(await slow).toEqual([A]);
  system.say([B]);
  await pause(0);
  expect(await answered(failed)).toEqual([B]);
});

test('who joins a lookup that is slow already does not wait for it', async () => {
  const { answered, ask, later, system } = setting(60_000);
  await answered([A]);
  const first = ask();
  later(60_000);
  expect(await ask()).toEqual([A]);
  expect(system.asked).toHaveLength(2);
  system.say([B]);
  expect(await first).toEqual([B]);
});

test('one lookup at a time serves all who ask meanwhile, and fails for all', async () => {
  const { ask, system } = setting(1);
  for (const found of [failed, [A], failed]) {
    const all = Promise.all([ask(), ask(), ask()]);
    await pause(10);
    system.say(found);
    const one = system.asked.length === 1 ? failed : [A];
    expect(await all).toEqual([one, one, one]);
  }
  expect(system.asked).toHaveLength(3);
});

test('a name with hundreds of addresses is remembered by the first few', async () => {
  const { answered } = setting();
  expect(await answered(Array.from({ length: 300 }, () => A))).toHaveLength(16);
});
