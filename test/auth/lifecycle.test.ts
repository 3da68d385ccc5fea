import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Key } from '../../src/auth/key/key.ts';
import { openSetting, outcome, type Replica, type Setting, wrongKey } from './setting.ts';

// Two processes on one store, and a model that knows only what the rules say. Commands come in any order; after each of
// them what the gateway answers must be what the model allows.

interface ModelKey {
  readonly holder: number;
  state: 'active' | 'invalidated' | 'revoked';
  /** When it ended, in the model's time. */
  endedAt: number;
  /** Whether the other process has heard of the end. */
  heard: boolean;
}

interface Model {
  readonly keys: ModelKey[];
  now: number;
  storeIsWell: boolean;
}

interface Real {
  readonly setting: Setting;
  /** Starts the other process anew, with empty caches. */
  other: Replica;
  /** The same index as in the model. */
  readonly keys: Key[];
  readonly holders: string[];
}

type Command = fc.AsyncCommand<Model, Real>;

function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('the model and the run differ in what there is');
  return value;
}

/** Which of the keys a number means: the last ones are more interesting than the first. */
function pick<T>(list: readonly T[], number: number): number {
  return list.length - 1 - (number % list.length);
}

class Issue implements Command {
  check = () => true;
  async run(model: Model, real: Real): Promise<void> {
    const issued = await real.setting.issuer.issue({ tier: 'Lite' });
    real.keys.push(issued.key);
    model.keys.push({
      holder: real.holders.push(issued.holderId) - 1,
      state: 'active',
      endedAt: 0,
      heard: true,
    });
  }
  toString = () => 'issue';
}

abstract class OnKey implements Command {
  readonly number: number;
  constructor(number: number) {
    this.number = number;
  }
  check = (model: Readonly<Model>) => model.keys.length > 0;
  async run(model: Model, real: Real): Promise<void> {
    const index = pick(model.keys, this.number);
    await this.act(present(model.keys[index]), present(real.keys[index]), model, real);
  }
  abstract act(expected: ModelKey, key: Key, model: Model, real: Real): Promise<void>;
  toString(): string {
    return `${this.constructor.name}(${this.number})`;
  }
}

class IssueFor extends OnKey {
  async act(expected: ModelKey, key: Key, model: Model, real: Real) {
    const issued = present(await real.setting.issuer.issueFor(key.prefix));
    expect(issued.holderId).toBe(real.holders[expected.holder]);
    real.keys.push(issued.key);
    model.keys.push({ holder: expected.holder, state: 'active', endedAt: 0, heard: true });
  }
}

class Revoke extends OnKey {
  async act(expected: ModelKey, key: Key, model: Model, real: Real) {
    const { kind } = await real.setting.issuer.revoke(key.prefix);
    expect(kind).toBe(expected.state === 'active' ? 'revoked' : 'already');
    if (expected.state === 'active') end(expected, 'revoked', model);
  }
}

class Rotate extends OnKey {
  async act(expected: ModelKey, key: Key, model: Model, real: Real) {
    const record = present(await real.setting.store.findKey(key.prefix));
    const rotation = real.setting.issuer.rotate(record);
    if (expected.state !== 'active') {
      await expect(rotation).rejects.toMatchObject({ code: 'invalid_api_key' });
      return;
    }
    const rotated = await rotation;
    expect(rotated).toMatchObject({ replaces: key.prefix, holderId: real.holders[expected.holder] });
    end(expected, 'invalidated', model);
    real.keys.push(rotated.key);
    model.keys.push({ holder: expected.holder, state: 'active', endedAt: 0, heard: true });
  }
}

function end(key: ModelKey, state: 'invalidated' | 'revoked', model: Model): void {
  key.state = state;
  key.endedAt = model.now;
  key.heard = false;
}

/** In the process that made all changes, nothing is ever late. */
class AuthenticateHere extends OnKey {
  async act(expected: ModelKey, key: Key, model: Model, real: Real) {
    const result = await outcome(real.setting.authenticator, key);
    const right = expected.state === 'active' ? key.prefix : 'invalid_api_key';
    expect(model.storeIsWell ? [right] : [right, 'auth_unavailable']).toContain(result);
  }
}

/** In the other one an end may be late by 5 s, or by 60 s while the store is away, until it has heard of it. */
class AuthenticateThere extends OnKey {
  async act(expected: ModelKey, key: Key, model: Model, real: Real) {
    const result = await outcome(real.other.authenticator, key);
    const allowed = new Set<string>(model.storeIsWell ? [] : ['auth_unavailable']);
    if (expected.state === 'active') allowed.add(key.prefix);
    else {
      allowed.add('invalid_api_key');
      const late = model.now - expected.endedAt;
      if (!expected.heard && late <= (model.storeIsWell ? 5000 : 60_000)) allowed.add(key.prefix);
    }
    expect([...allowed]).toContain(result);
  }
}

class AuthenticateWrongly extends OnKey {
  async act(_expected: ModelKey, key: Key, model: Model, real: Real) {
    const result = await outcome(real.setting.authenticator, wrongKey(key.prefix));
    expect(result).toBe(model.storeIsWell ? 'invalid_api_key' : 'auth_unavailable');
  }
}

class Poll implements Command {
  check = () => true;
  async run(model: Model, real: Real): Promise<void> {
    await real.other.changes.poll();
    for (const key of model.keys) key.heard = true;
  }
  toString = () => 'poll';
}

class Restart implements Command {
  check = () => true;
  async run(model: Model, real: Real): Promise<void> {
    await real.other.changes.stop();
    real.other = await real.setting.replica();
    for (const key of model.keys) key.heard = true;
  }
  toString = () => 'restart';
}

class Wait implements Command {
  readonly ms: number;
  constructor(ms: number) {
    this.ms = ms;
  }
  check = () => true;
  async run(model: Model, real: Real): Promise<void> {
    model.now += this.ms;
    real.setting.advance(this.ms);
  }
  toString = () => `wait(${this.ms})`;
}

class StoreBecomes implements Command {
  readonly well: boolean;
  constructor(well: boolean) {
    this.well = well;
  }
  check = (model: Readonly<Model>) => model.storeIsWell !== this.well;
  async run(model: Model, real: Real): Promise<void> {
    model.storeIsWell = this.well;
    real.setting.mood = this.well ? 'well' : 'failing';
    // Without an answer a key may have been accepted a second ahead of time; the model need not know when it was asked.
    model.now += 1001;
    real.setting.advance(1001);
  }
  toString = () => (this.well ? 'store recovers' : 'store fails');
}

const number = fc.nat({ max: 20 });
const commands = [
  fc.constant(new Issue()),
  ...[
    IssueFor,
    Revoke,
    Rotate,
    AuthenticateHere,
    AuthenticateHere,
    AuthenticateThere,
    AuthenticateThere,
    AuthenticateWrongly,
  ].map((OfKey) => number.map((which) => new OfKey(which))),
  fc.constant(new Poll()),
  fc.constant(new Restart()),
  fc.constantFrom(1, 1000, 2500, 5000, 5001, 30_000, 60_001).map((ms) => new Wait(ms)),
  fc.boolean().map((well) => new StoreBecomes(well)),
];

test('any sequence of operations on keys gives the answers of the model', async () => {
  await fc.assert(
    fc.asyncProperty(fc.commands(commands, { size: 'large', maxCommands: 60 }), async (run) => {
      await using setting = await openSetting({ argon2: 'quick', failuresPerMinute: () => 1_000_000 });
      const other = await setting.replica();
      const real: Real = { setting, other, keys: [], holders: [] };
      const model: Model = { keys: [], now: 0, storeIsWell: true };
      await fc.asyncModelRun(() => ({ model, real }), run);
      await real.other.changes.stop();
      // What is left in the store is what the model has.
      setting.mood = 'well';
      const stored = (await setting.store.listKeys({ limit: 1000 })).items;
      expect(stored.map(({ state }) => state)).toEqual(model.keys.map(({ state }) => state));
    }),
    { numRuns: 60 },
  );
});
