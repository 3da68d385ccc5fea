// The room that is left in all scopes of a request: it admits by plain numbers while their windows stay the same. Where it does not,
// memory-limiter.ts asks the counters of each scope.
import { type ActiveLimits, roomIn } from '../active-limits.ts';
import type { Moment } from '../calendar.ts';
import type { Admitted, Amounts, Lease, ScopeStates } from '../limiter.ts';
import type { Scopes } from '../scope.ts';
import { UsageStates } from '../verdict.ts';
import type { ScopeCounters } from './scope-counters.ts';
import { COUNTED, countsOf, type Windows } from './windows.ts';

export class JointRoom {
  readonly counters: readonly ScopeCounters[];
  /** Of the counters. */
  readonly windows: readonly Windows[];
  readonly #active: readonly ActiveLimits[];
  /** What the windows had when this room was made, and the room beyond it. */
  readonly #before: readonly (readonly number[])[];
  readonly #room: readonly number[];

  /** @param windows present ones of the counters, in the order of the scopes */
  constructor({ list }: Scopes, counters: readonly ScopeCounters[], windows: readonly Windows[]) {
    this.counters = counters;
    this.windows = windows;
    this.#active = list.map(({ active }) => active);
    this.#before = windows.map(({ before }) => before);
    const room: number[] = [];
    for (const [index, active] of this.#active.entries()) {
      const kinds = roomIn(active, this.#before[index] ?? []);
      room.push(...COUNTED.map((kind) => kinds[kind]));
    }
    // A copy has no space for more, as an array that has grown has: each key in use has a room.
    this.#room = room.slice();
  }

  /**
   * Reserves a request in all scopes, if it fits.
   * @returns what is used then, for `statesAt`; undefined when nothing is reserved, because the counters decide
   */
  reserve(moment: Moment, amounts: Amounts): readonly number[] | undefined {
    const { windows } = this;
    const [before, room] = [this.#before, this.#room];
    const { tokens, cost } = amounts;
    for (let index = 0, at = 0; index < windows.length; index += 1, at += COUNTED.length) {
      const each = windows[index];
      if (each === undefined || each.before !== before[index] || !each.isOpenAt(moment)) return undefined;
      if (
        each.requests >= (room[at] ?? 0) ||
        each.tokens + tokens > (room[at + 1] ?? 0) ||
        each.cost + cost > (room[at + 2] ?? 0) ||
        each.running >= (room[at + 3] ?? 0)
      )
        return undefined;
    }
    const used: number[] = [];
    for (const each of windows) {
      each.reserve(amounts);
      each.addTo(used);
    }
    return used;
  }

  /** How far the limits are used, by what `reserve` returned at that moment. */
  statesAt({ now, wallMs, date }: Moment, used: readonly number[]): ScopeStates {
    return this.#active.map((active, index) => {
      const windowLeftMs = Math.max(0, (this.windows[index]?.end ?? 0) - now);
      const counts = countsOf(this.#before[index] ?? [], used, index * COUNTED.length);
      return new UsageStates(() => ({ wallMs, date, windowLeftMs, counts }), active);
    });
  }
}

/** An admission by it. States are made when headers or budgets ask for them. */
export class AdmittedInRoom implements Admitted {
  readonly kind = 'admitted';
  readonly lease: Lease;
  readonly #room: JointRoom;
  readonly #moment: Moment;
  readonly #used: readonly number[];
  #states: ScopeStates | undefined;

  constructor(lease: Lease, room: JointRoom, moment: Moment, used: readonly number[]) {
    this.lease = lease;
    this.#room = room;
    this.#moment = moment;
    this.#used = used;
  }

  get states(): ScopeStates {
    this.#states ??= this.#room.statesAt(this.#moment, this.#used);
    return this.#states;
  }
}
