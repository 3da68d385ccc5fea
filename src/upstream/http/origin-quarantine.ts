// Quarantine of origins that sent unsolicited bytes: their connections are not reused, since such bytes could become the response
// to another client's request. upstream-connection.ts detects them.
import { RecentMap } from '../../recent-map.ts';

const FIRST_MS = 5 * 60_000;
/** A recurrence soon after doubles the length, up to this. */
const MAX_MS = 60 * 60_000;
/** More than any configuration has. */
const MAX_ORIGINS = 1_024;
const NEVER = Number.NEGATIVE_INFINITY;

export class OriginQuarantine {
  #endsAt = NEVER;
  #lengthMs = 0;

  /** @param now monotonic milliseconds */
  isActive(now: () => number): boolean {
    return this.#endsAt !== NEVER && now() < this.#endsAt;
  }

  /** Length in milliseconds, counted from the last unsolicited bytes. */
  get lengthMs(): number {
    return this.#lengthMs;
  }

  /** Starts or extends the quarantine. @returns whether it has started */
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

/** The quarantines of a gateway, shared by all connection pools of an origin; they survive configuration reloads. */
export class OriginQuarantines {
  readonly #byOrigin = new RecentMap<string, OriginQuarantine>(MAX_ORIGINS);

  of(origin: string): OriginQuarantine {
    const quarantine = this.#byOrigin.get(origin) ?? new OriginQuarantine();
    this.#byOrigin.set(origin, quarantine);
    return quarantine;
  }
}
