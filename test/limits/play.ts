// Runs steps against a limiter and the model: both admit the same requests, reject by the same limit, have the same state at
// every step, and end with nothing reserved.
import { expect } from 'vitest';
import { eachLimit, type TierLimits } from '../../src/config/limit-table.ts';
import type { HolderTotals } from '../../src/store/usage-record.ts';
import { Model, type Request } from './model.ts';
import type { HolderLease } from './of-holder.ts';
import { type MakeRig, NOTHING, newHolder, type Rig } from './setting.ts';

export type Step =
  | { readonly kind: 'admit'; readonly tokens: number }
  | { readonly kind: 'change'; readonly which: number; readonly tokens: number }
  | { readonly kind: 'settle'; readonly which: number; readonly tokens: number; readonly times?: number }
  /** The process is gone, where that makes a difference. */
  | { readonly kind: 'lose'; readonly which: number }
  | { readonly kind: 'pass'; readonly ms: number }
  | { readonly kind: 'configure'; readonly limits: TierLimits }
  /** The usage store answers from now on, or fails. */
  | { readonly kind: 'store'; readonly isAway: boolean }
  /** Redis is emptied. */
  | { readonly kind: 'flush' };

export interface Play {
  readonly start: number;
  readonly limits: TierLimits;
  /** Used before, as the store knows it. */
  readonly prior?: HolderTotals;
  /** Whether the store fails when the holder is met first. */
  readonly isAway?: boolean;
  readonly steps: readonly Step[];
}

/** How long the store is not asked again after it has failed. */
const REST_MS = 5000;
/** Day and month are always asked for, so that both limiters ask the store for them at the same steps. */
const WITH_TOTALS: TierLimits = { requests_per_day: 1000 };

export async function play(makeRig: MakeRig, order: Play): Promise<void> {
  await using rig = await makeRig();
  await new Player(rig, order).play(order.steps);
}

class Player {
  readonly #rig: Rig;
  readonly #holder = newHolder();
  readonly #model: Model;
  readonly #order: Play;
  #running: { readonly lease: HolderLease; readonly request: Request }[] = [];
  #now: number;
  #limits: TierLimits;
  #isAway: boolean;
  #restUntil = Number.NEGATIVE_INFINITY;
  #lost = 0;

  constructor(rig: Rig, order: Play) {
    const { start, limits, prior = NOTHING, isAway = false } = order;
    this.#rig = rig;
    this.#order = order;
    this.#model = new Model(rig.leaseMs, { ...prior, at: start });
    this.#now = start;
    this.#limits = { ...WITH_TOTALS, ...limits };
    this.#isAway = isAway;
    rig.store.answer = () => {
      if (this.#isAway) throw new Error('the store is away');
      return this.#model.stored(this.#now);
    };
  }

  async play(steps: readonly Step[]): Promise<void> {
    await this.#rig.setWall(this.#order.start);
    // Only an admission makes the limiter in memory remember a holder.
    await this.#admit(WITH_TOTALS, 0);
    for (const step of steps) {
      await this.#take(step);
      await this.#compare(this.#limits);
    }
    await this.#end();
  }

  async #take(step: Step): Promise<void> {
    switch (step.kind) {
      case 'admit':
        return await this.#admit(this.#limits, step.tokens);
      case 'change':
        return await this.#change(step.which, step.tokens);
      case 'settle': {
        const [taken] = this.#running.splice(step.which % Math.max(1, this.#running.length), 1);
        if (taken === undefined) return;
        for (let time = 0; time < (step.times ?? 1); time += 1) taken.lease.settle(step.tokens + time);
        await this.#rig.settled();
        this.#model.settle(this.#now, taken.request, step.tokens);
        return;
      }
      case 'lose':
        // Only where leases expire can a process be lost without the counters.
        if (this.#rig.leaseMs === Number.POSITIVE_INFINITY || this.#running.length === 0) return;
        this.#running.splice(step.which % this.#running.length, 1);
        this.#lost += 1;
        return;
      case 'pass':
        this.#now += step.ms;
        return await this.#rig.advance(step.ms);
      case 'configure':
        this.#limits = { ...WITH_TOTALS, ...step.limits };
        return;
      case 'store':
        this.#isAway = step.isAway;
        return;
      case 'flush':
        if (this.#rig.flush === undefined) return;
        await this.#rig.flush(this.#holder);
        this.#model.flush();
        // Nothing begins in the same microsecond.
        this.#now += 1;
        await this.#rig.advance(1);
    }
  }

  async #admit(limits: TierLimits, tokens: number): Promise<void> {
    const learns = this.#ask();
    const expected = this.#model.refusal(this.#now, limits, tokens);
    const admission = await this.#rig.limiter.admit(this.#holder, limits, tokens);
    if (admission.kind === 'admitted') {
      expect(expected).toBeUndefined();
      this.#running.push({ lease: admission.lease, request: this.#model.admit(this.#now, tokens) });
    } else expect([admission.limit, admission.retryAfterMs]).toEqual(expected);
    expect(admission.states).toEqual(this.#model.states(this.#now, limits));
    await this.#learn(learns);
  }

  async #change(which: number, tokens: number): Promise<void> {
    const index = which % Math.max(1, this.#running.length);
    const taken = this.#running[index];
    // What has expired or was lost takes its place again, which the tests of Redis alone look at.
    if (taken === undefined || !this.#model.isHeld(taken.request, this.#now)) return;
    const { lease, request } = taken;
    const learns = this.#ask();
    const expected = this.#model.refusal(this.#now, this.#limits, tokens, request);
    const admission = await this.#rig.limiter.admit(this.#holder, this.#limits, tokens, lease);
    if (admission.kind === 'admitted') {
      expect(expected).toBeUndefined();
      this.#model.change(this.#now, request, tokens);
      this.#running[index] = { lease: admission.lease, request };
    } else expect([admission.limit, admission.retryAfterMs]).toEqual(expected);
    expect(admission.states).toEqual(this.#model.states(this.#now, this.#limits));
    await this.#learn(learns);
  }

  async #compare(limits: TierLimits): Promise<void> {
    const learns = this.#ask() && this.#rig.flush !== undefined;
    const states = await this.#rig.limiter.peek(this.#holder, limits);
    expect(states).toEqual(this.#model.states(this.#now, limits));
    await this.#learn(learns);
  }

  /** @returns whether the store is asked while the request goes on */
  #ask(): boolean {
    const { kind } = this.#model.knowledge;
    const isResting = this.#now < this.#restUntil;
    if (kind === 'since') return !isResting;
    if (kind === 'all') return false;
    if (!isResting && !this.#isAway) this.#model.knowledge = { kind: 'all' };
    else {
      if (!isResting) this.#restUntil = this.#now + REST_MS;
      this.#model.beginFromNothing();
    }
    return false;
  }

  async #learn(learns: boolean): Promise<void> {
    if (!learns || this.#model.knowledge.kind !== 'since') return;
    await this.#rig.learned();
    if (this.#isAway) this.#restUntil = this.#now + REST_MS;
    else this.#model.learn(this.#now);
  }

  async #end(): Promise<void> {
    for (const { lease, request } of this.#running) {
      lease.settle(7);
      this.#model.settle(this.#now, request, 7);
    }
    await this.#rig.settled();
    expect(this.#rig.counters.leases).toBe(this.#lost);
    if (this.#lost > 0) {
      this.#now += this.#rig.leaseMs;
      await this.#rig.advance(this.#rig.leaseMs);
    }
    // The store is there in the end, and then nothing is missing and nothing is counted twice.
    this.#isAway = false;
    this.#now += REST_MS;
    await this.#rig.advance(REST_MS);
    await this.#admit(WITH_TOTALS, 0);
    await this.#compare(eachLimit(() => 9));
    expect(this.#model.knowledge.kind).toBe('all');
  }
}
