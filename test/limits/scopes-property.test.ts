// Random sequences of requests of two holders of one team, whose keys and models have limits, too: on three replicas with one
// Redis and in memory, against one model for each scope. A request is admitted where it fits in all of its scopes, or changes
// none; the sums are exact in each, whoever is lost, and no limit and no budget is exceeded by more than what was not reserved.
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import type { Lease, Limiter, Rejected } from '../../src/limits/limiter.ts';
import { makeScope, makeScopes, type Scope, type Scopes } from '../../src/limits/scope.ts';
import type { UsageScope } from '../../src/store/usage-record.ts';
import { REDIS_TIMEOUT } from '../helpers/redis.ts';
import { MINUTE, Model, type Request } from './model.ts';
import { tokensOnly } from './of-holder.ts';
import { memoryRig, NOTHING, newHolder, RedisSetting, type Rig, totals, unreachable } from './setting.ts';
import { recordOf, recordsOf } from './states.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 150);
const STARTS = [Date.UTC(2027, 4, 17, 12), Date.UTC(2027, 4, 16, 23, 58), Date.UTC(2027, 11, 31, 23, 57)];
/** So that all totals are read when a scope is met first. */
const WITH_TOTALS: TierLimits = { requests_per_day: 1000 };

let setting: RedisSetting;

beforeAll(async () => {
  setting = await RedisSetting.start();
}, REDIS_TIMEOUT);
afterAll(() => setting?.stop());

/** Whose limits a request uses up: the holder is the first figure, the rest says what it uses of the others. */
const CALLERS = [
  ['holder0', 'key0', 'team', 'model0'],
  ['holder0', 'key1', 'team'],
  ['holder1', 'team'],
  ['holder1', 'team', 'model1'],
] as const;
type Name = (typeof CALLERS)[number][number];
const NAMES: readonly Name[] = ['holder0', 'holder1', 'key0', 'key1', 'team', 'model0', 'model1'];

type Step =
  | { readonly kind: 'admit'; readonly caller: number; readonly tokens: number; readonly replica: number }
  | {
      readonly kind: 'change';
      readonly which: number;
      readonly caller: number;
      readonly tokens: number;
      readonly replica: number;
    }
  | { readonly kind: 'settle'; readonly which: number; readonly tokens: number; readonly times: number }
  | { readonly kind: 'lose'; readonly which: number }
  | { readonly kind: 'pass'; readonly ms: number }
  | { readonly kind: 'configure'; readonly name: Name; readonly limits: TierLimits }
  | { readonly kind: 'flush' };

interface Running {
  readonly lease: Lease;
  readonly replica: number;
  readonly requests: Map<Name, Request>;
}

class World {
  readonly #rigs: readonly Rig[];
  readonly #models = new Map<Name, Model>();
  readonly #limits = new Map<Name, TierLimits>();
  readonly #known = new Map<string, Scopes>();
  readonly #ids = { team: newHolder(), holder0: newHolder(), holder1: newHolder() };
  #running: Running[] = [];
  #now: number;
  #lost = 0;

  constructor(rigs: readonly Rig[], start: number, limits: readonly TierLimits[]) {
    this.#rigs = rigs;
    this.#now = start;
    for (const [index, name] of NAMES.entries()) {
      const prior = index % 2 === 0 ? NOTHING : PRIOR;
      this.#models.set(name, new Model(this.#rig(0).leaseMs, { ...prior, at: start }));
      this.#limits.set(name, { ...WITH_TOTALS, ...limits[index] });
    }
    const byId = new Map(NAMES.map((name) => [this.#scope(name).id, this.#model(name)]));
    for (const { store } of rigs) store.answer = (id) => (byId.get(id) ?? unreachable()).stored(this.#now);
  }

  async play(steps: readonly Step[]): Promise<void> {
    await this.#rig(0).setWall(this.#now);
    for (const step of steps) {
      await this.#take(step);
      await this.#compare();
    }
    for (const running of this.#running) await this.#settle(running, 7, 1);
    this.#now += MINUTE;
    await this.#rig(0).advance(MINUTE);
    await this.#compare();
    expect(this.#rigs.reduce((sum, { counters }) => sum + counters.leases, 0)).toBe(this.#lost);
  }

  async #take(step: Step): Promise<void> {
    switch (step.kind) {
      case 'admit':
        return await this.#admit(step.caller, step.tokens, step.replica % this.#rigs.length);
      case 'change':
        return await this.#change(step);
      case 'settle': {
        const [taken] = this.#running.splice(step.which % Math.max(1, this.#running.length), 1);
        if (taken !== undefined) await this.#settle(taken, step.tokens, step.times);
        return;
      }
      case 'lose':
        // Only where leases expire can a process be lost without the counters.
        if (this.#rig(0).leaseMs === Number.POSITIVE_INFINITY || this.#running.length === 0) return;
        this.#running.splice(step.which % this.#running.length, 1);
        this.#lost += 1;
        return;
      case 'pass':
        this.#now += step.ms;
        return await this.#rig(0).advance(step.ms);
      case 'configure':
        this.#limits.set(step.name, { ...WITH_TOTALS, ...step.limits });
        this.#known.clear();
        return;
      case 'flush':
        if (this.#rig(0).flush === undefined) return;
        await setting.server.flush();
        for (const model of this.#models.values()) model.flush();
        // Nothing begins in the same microsecond.
        this.#now += 1;
        await this.#rig(0).advance(1);
    }
  }

  async #admit(caller: number, tokens: number, replica: number): Promise<void> {
    const names = CALLERS[caller] ?? unreachable();
    this.#meet(names);
    const expected = this.#refusal(names, tokens, new Map());
    const admission = await this.#limiter(replica).admit(this.#scopes(names), tokensOnly(tokens));
    expect(admission.kind === 'refused' ? rejectionIn(admission) : undefined).toEqual(expected);
    if (admission.kind === 'admitted') {
      const requests = new Map(names.map((name) => [name, this.#model(name).admit(this.#now, tokens)]));
      this.#running.push({ lease: admission.lease, replica, requests });
      // Only what is used beyond a reservation exceeds a limit; what costs nothing fits in a spent budget.
      for (const states of admission.states) {
        for (const [limit, state] of Object.entries(recordOf(states)))
          if (tokens > 0 || !limit.startsWith('cost')) expect(state.used).toBeLessThanOrEqual(state.limit);
      }
    }
    expect(recordsOf(admission.states)).toEqual(this.#states(names));
  }

  /** Other tokens, and perhaps more scopes: those of another caller that has the first of them. */
  async #change({ which, caller, tokens }: Extract<Step, { kind: 'change' }>): Promise<void> {
    const index = which % Math.max(1, this.#running.length);
    const taken = this.#running[index];
    if (taken === undefined) return;
    const { requests, replica, lease } = taken;
    // What has expired or was lost takes its slot again, which tests of Redis alone look at.
    if ([...requests].some(([name, request]) => !this.#model(name).isHeld(request, this.#now))) return;
    const wider = CALLERS[caller] ?? unreachable();
    const isWider = [...requests.keys()].every((name) => wider.some((other) => other === name));
    const names: readonly Name[] = isWider ? wider : [...requests.keys()];
    this.#meet(names);
    const expected = this.#refusal(names, tokens, requests);
    const admission = await this.#limiter(replica).admit(this.#scopes(names), tokensOnly(tokens), lease);
    expect(admission.kind === 'refused' ? rejectionIn(admission) : undefined).toEqual(expected);
    if (admission.kind === 'admitted') {
      for (const name of names) {
        const request = requests.get(name);
        if (request === undefined) requests.set(name, this.#model(name).admit(this.#now, tokens));
        else this.#model(name).change(this.#now, request, tokens);
      }
      this.#running[index] = { ...taken, lease: admission.lease };
    }
    expect(recordsOf(admission.states)).toEqual(this.#states(names));
  }

  async #settle({ lease, replica, requests }: Running, tokens: number, times: number): Promise<void> {
    for (let time = 0; time < times; time += 1) lease.settle(tokensOnly(tokens + time));
    await this.#rig(replica).settled();
    for (const [name, request] of requests) this.#model(name).settle(this.#now, request, tokens);
  }

  /** Every replica says of every scope what its model has, and no more is reserved than the limits allow. */
  async #compare(): Promise<void> {
    for (const [index, names] of CALLERS.entries()) {
      this.#meet(names);
      const replica = index % this.#rigs.length;
      expect(recordsOf(await this.#limiter(replica).peek(this.#scopes(names)))).toEqual(this.#states(names));
    }
  }

  /** Totals are read, where nobody counts. */
  #meet(names: readonly Name[]): void {
    for (const name of names) {
      const model = this.#model(name);
      if (model.knowledge.kind === 'nothing') model.knowledge = { kind: 'all' };
    }
  }

  #refusal(names: readonly Name[], tokens: number, held: ReadonlyMap<Name, Request>) {
    const all = names.flatMap((name) => {
      const limits = this.#limits.get(name) ?? {};
      const refusal = this.#model(name).refusal(this.#now, limits, tokens, held.get(name));
      return refusal === undefined ? [] : [{ id: this.#scope(name).id, limit: refusal[0], wait: refusal[1] }];
    });
    const waitOf = ({ wait = Number.POSITIVE_INFINITY }: (typeof all)[number]) => wait;
    return all.reduce<(typeof all)[number] | undefined>(
      (first, each) => (first === undefined || waitOf(each) > waitOf(first) ? each : first),
      undefined,
    );
  }

  #states(names: readonly Name[]) {
    return names.map((name) => this.#model(name).states(this.#now, this.#limits.get(name) ?? {}));
  }

  /** The same objects for the same names, as for a key that is cached. */
  #scopes(names: readonly Name[]): Scopes {
    const [first = unreachable(), ...rest] = names.map((name) => this.#scope(name));
    const scopes = this.#known.get(names.join()) ?? makeScopes(this.#ids.team, [first, ...rest]);
    this.#known.set(names.join(), scopes);
    return scopes;
  }

  #scope(name: Name): Scope {
    return makeScope(this.#owner(name), this.#limits.get(name) ?? {});
  }

  #owner(name: Name): UsageScope {
    const { team, holder0, holder1 } = this.#ids;
    switch (name) {
      case 'team':
        return { kind: 'team', id: team };
      case 'holder0':
        return { kind: 'holder', id: holder0 };
      case 'holder1':
        return { kind: 'holder', id: holder1 };
      case 'key0':
      case 'key1':
        return { kind: 'key', lineage: `${holder0}-${name}` };
      case 'model0':
        return { kind: 'model', holderId: holder0, model: 'gpt-*, large' };
      case 'model1':
        return { kind: 'model', holderId: holder1, model: 'gpt-*, large' };
    }
  }

  #model(name: Name): Model {
    return this.#models.get(name) ?? unreachable();
  }

  #rig(index: number): Rig {
    return this.#rigs[index] ?? unreachable();
  }

  #limiter(index: number): Limiter {
    return this.#rig(index).limiter.real;
  }
}

const PRIOR = totals({
  requests_per_day: 3,
  tokens_per_day: 90,
  tokens_per_month: 200,
  cost_per_day: 270,
  cost_per_month: 600,
});

function rejectionIn({ scope, limit, retryAfterMs }: Rejected) {
  return { id: scope.id, limit, wait: retryAfterMs };
}

const tokens = fc.oneof(fc.integer({ min: 0, max: 60 }), fc.integer({ min: 0, max: 400 }));
const which = fc.nat(20);
const caller = fc.nat(CALLERS.length - 1);
const replica = fc.nat(2);
// Most limits of most scopes are absent: otherwise hardly anything is admitted.
const limit = (...values: number[]) =>
  fc.oneof(
    { weight: 3, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.constantFrom(...values) },
  );
const limitsOf: fc.Arbitrary<TierLimits> = fc
  .record({
    requests_per_minute: limit(2, 5),
    tokens_per_minute: limit(100, 300),
    requests_per_day: limit(6, 12),
    tokens_per_day: limit(300, 800),
    tokens_per_month: limit(400, 1500),
    concurrency: limit(1, 3, 5),
    cost_per_day: limit(500, 2000),
    cost_per_month: limit(900, 4000),
  })
  .map((limits) => Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined)));
const ms = fc.oneof(
  fc.constantFrom(1, 5000, 29_999, 30_000, MINUTE - 1, MINUTE),
  fc.integer({ min: 0, max: 70_000 }),
);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('admit'), caller, tokens, replica }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('settle'),
      which,
      tokens,
      times: fc.integer({ min: 1, max: 2 }),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('change'), which, caller, tokens, replica }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lose'), which }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('pass'), ms }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('configure'),
      name: fc.constantFrom(...NAMES),
      limits: limitsOf,
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: 'flush' }) },
);

test.each<[string, () => Promise<Rig[]>, number]>([
  ['in memory', async () => [await memoryRig()], RUNS],
  [
    'on three replicas with one Redis',
    () => Promise.all([setting.rig(), setting.rig(), setting.rig()]),
    Math.ceil(RUNS / 3),
  ],
])('all scopes or none, in any order of steps: %s', async (_name, makeRigs, numRuns) => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...STARTS),
      fc.array(limitsOf, { minLength: NAMES.length, maxLength: NAMES.length }),
      fc.array(step, { maxLength: 40, size: 'max' }),
      async (start, limits, steps) => {
        await using stack = new AsyncDisposableStack();
        const rigs = (await makeRigs()).map((rig) => stack.use(rig));
        await new World(rigs, start, limits).play(steps);
      },
    ),
    { numRuns },
  );
});
