// Origins that sent bytes which answer no request, and for how long their connections are not kept for a further one: on a kept
// connection such bytes could become the answer to somebody else. How they are noticed is upstream-connection.ts.
import { RecentMap } from '../../recent-map.ts';

const FIRST_MS = 5 * 60_000;
/** An origin that does it again soon after is left alone for twice as long, up to this. */
const MAX_MS = 60 * 60_000;
/** More than a configuration has. */
const MAX_ORIGINS = 1_024;
const NEVER = Number.NEGATIVE_INFINITY;

export class OriginQuarantine {
  #endsAt = NEVER;
  #lengthMs = 0;

  /** @param now monotonic milliseconds */
  isActive(now: () => number): boolean {
    return this.#endsAt !== NEVER && now() < this.#endsAt;
  }

  /** Milliseconds from its beginning, or from the last bytes, to its end. */
  get lengthMs(): number {
    return this.#lengthMs;
  }

  /**
   * Such bytes came: it begins, or lasts longer.
   * @returns whether it has begun
   */
  enter(now: number): boolean {
    const hasBegun = now >= this.#endsAt;
    if (hasBegun) {
      const isSoon = now < this.#endsAt + MAX_MS;
      this.#lengthMs = isSoon ? Math.min(2 * this.#lengthMs, MAX_MS) : FIRST_MS;
    }
    this.#endsAt = now + this.#lengthMs;
    return hasBegun;
  }
}

const quarantines = new RecentMap<string, OriginQuarantine>(MAX_ORIGINS);

/** The one of an origin, which all of its connection pools share; it outlives a change of the configuration. */
export function quarantineOf(origin: string): OriginQuarantine {
  const quarantine = quarantines.get(origin) ?? new OriginQuarantine();
  quarantines.set(origin, quarantine);
  return quarantine;
}
