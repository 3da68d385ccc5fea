// Breaks the fleet at random, round by round, and makes it whole again. A round is one fault that begins or ends and the
// traffic until the next.
import { pause, until } from '../../helpers/wait.ts';
import { field } from '../holder.ts';
import { type Fault, type FaultKind, faultOf, type Site } from './faults.ts';

/** Faults at the same time. */
const MOST = 3;
/** The store is away for less than the others, so that there are times in which what it bounds can be seen. */
const WEIGHTS: Readonly<Record<FaultKind, number>> = {
  'redis paused': 10,
  'redis killed': 6,
  'redis read-only': 8,
  'redis flushed': 10,
  'cable cut': 12,
  'cable swallows': 12,
  'cable slow': 24,
  'store paused': 6,
  'store crashed': 3,
  'replica paused': 8,
  'replica killed': 4,
};

interface Present {
  readonly fault: Fault;
  readonly heal: () => Promise<void>;
  /** In rounds. */
  left: number;
}

export class Nemesis {
  readonly #site: Site;
  readonly #present = new Map<string, Present>();
  readonly #done: string[] = [];
  /** How often each kind of fault happened. */
  readonly counts = new Map<string, number>();

  constructor(site: Site) {
    this.#site = site;
  }

  /** The last things that it did, for a message. */
  get recent(): readonly string[] {
    return this.#done.slice(-12);
  }

  /** One act, and a while in which clients find out. */
  async round(): Promise<void> {
    const { chance } = this.#site;
    const due = [...this.#present.values()].find((each) => --each.left <= 0);
    if (due !== undefined) await this.#heal(due);
    else if (this.#present.size < MOST) await this.#breakSomething();
    await pause(chance.between(40, 240));
  }

  /** Store and Redis both away for a while, and back in either order. Counts as one round. */
  async breakBoth(): Promise<void> {
    await this.heal();
    const { chance } = this.#site;
    const kinds: FaultKind[] = [
      chance.is(0.6) ? 'redis paused' : 'redis killed',
      chance.is(0.7) ? 'store paused' : 'store crashed',
    ];
    if (chance.is(0.5)) kinds.reverse();
    for (const kind of kinds) await this.#begin(kind, 1);
    await pause(chance.between(2500, 3500));
    const away = [...this.#present.values()];
    if (chance.is(0.5)) away.reverse();
    for (const each of away) {
      await this.#heal(each);
      await pause(chance.between(0, 600));
    }
  }

  /** Makes everything whole and waits until every replica says that it is well. */
  async heal(): Promise<void> {
    // The store first: without it no replica starts.
    const all = [...this.#present.values()].sort((a, b) => rank(a) - rank(b));
    for (const each of all) await this.#heal(each);
    for (const { url } of this.#site.roster.present) {
      await until(async () => {
        const report: unknown = await (await fetch(new URL('/health', url))).json();
        return field(report, 'status') === 'ok';
      }, 'a replica that is well');
    }
  }

  async #breakSomething(): Promise<void> {
    const { chance } = this.#site;
    const kind = chance.weighted(WEIGHTS);
    if (kind !== undefined) await this.#begin(kind, chance.integer(1, kind.startsWith('store') ? 3 : 6));
  }

  async #begin(kind: FaultKind, rounds: number): Promise<void> {
    const fault = faultOf(kind, this.#site);
    if (fault === undefined || this.#present.has(fault.place)) return;
    const killed = [...this.#present.values()].some((each) => each.fault.name.startsWith('replica killed'));
    // No replica starts without the store, and two of three are enough.
    if (killed && (kind === 'replica killed' || kind.startsWith('store'))) return;
    if (kind === 'replica killed' && this.#present.has('store')) return;
    this.#done.push(fault.name);
    this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1);
    this.#present.set(fault.place, { fault, heal: await fault.begin(), left: rounds });
  }

  async #heal(present: Present): Promise<void> {
    await present.heal();
    this.#present.delete(present.fault.place);
    this.#done.push(`no more ${present.fault.name}`);
  }
}

const ORDER = ['store', 'redis'];

function rank({ fault: { place } }: Present): number {
  const index = ORDER.indexOf(place);
  return index === -1 ? ORDER.length : index;
}
