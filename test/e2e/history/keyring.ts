// The whole keys that clients hold, and what they believe of each. What is true is in the history and in the store.
import { randomBytes } from 'node:crypto';
import type { Chance } from './chance.ts';

export interface Held {
  /** As in the history. */
  readonly name: string;
  /** The whole key. */
  readonly key: string;
}

/** Those that ended last are the ones that a replica may not have heard of. */
const RECENT = 4;

export class Keyring {
  readonly #living = new Map<string, Held>();
  /** Somebody asked for their end and got no clear answer. */
  readonly #doubtful = new Map<string, Held>();
  readonly #ended: Held[] = [];

  get living(): number {
    return this.#living.size;
  }

  /** All that were issued. */
  get all(): readonly Held[] {
    return [...this.#living.values(), ...this.#doubtful.values(), ...this.#ended];
  }

  /** Takes a new key. @returns its name */
  add(key: string): string {
    const name = key.slice(0, 8);
    this.#living.set(name, { name, key });
    return name;
  }

  /** Its end is asked for: from now on nobody counts on it. */
  doubt(held: Held): void {
    if (this.#living.delete(held.name)) this.#doubtful.set(held.name, held);
  }

  /** It has ended, as far as the client was told. */
  end(held: Held): void {
    const isNews = this.#living.delete(held.name) || this.#doubtful.delete(held.name);
    if (isNews) this.#ended.push(held);
  }

  /** A key to end. */
  toEnd(chance: Chance): Held | undefined {
    return chance.one([...(chance.is(0.15) ? this.#doubtful : this.#living).values()]);
  }

  /** A key to call with, of any kind, invented ones included. */
  toCall(chance: Chance): Held {
    const kind = chance.weighted({ living: 60, recent: 20, doubtful: 8, ended: 7, invented: 5 });
    const held =
      kind === 'living'
        ? chance.one([...this.#living.values()])
        : kind === 'recent'
          ? chance.one(this.#ended.slice(-RECENT))
          : kind === 'doubtful'
            ? chance.one([...this.#doubtful.values()])
            : chance.one(this.#ended);
    return kind === 'invented' || held === undefined ? invented(held) : held;
  }
}

/** A key that was never issued, with the prefix of one that was or of none. */
function invented(like: Held | undefined): Held {
  const tail = randomBytes(12).toString('hex');
  const key = (like?.key.slice(0, 8) ?? randomBytes(4).toString('hex')) + tail;
  return { name: `never-issued-${key.slice(0, 8)}-${tail.slice(0, 4)}`, key };
}
